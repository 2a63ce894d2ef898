// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does what comes next on a captured stream run behind what was captured before?
//
// In a capture no event can be asked. But CUDA tells the nodes that the next one of a stream will depend on, its end, and the
// nodes that each node depends on. So if the end that a branch had is found on the way back from the end of another stream,
// then that stream waited for the branch, and all that it captures from now on runs behind. A stream's own earlier end must be
// looked for as well: cudaStreamUpdateCaptureDependencies sends a stream elsewhere in its graph.
//
// invariant: a stream whose past holds an end captures only nodes that run behind all nodes up to that end.
// order:     of nodes. A kernel that a programmatic launch lets begin early counts as one that comes behind: as outside of
//            graphs, it waits itself (cudaGridDependencySynchronize) before it touches memory. One that may begin as soon as
//            the other has begun does not come behind.
// cost:      an end is one CUDA call; a past is one call for each node on the way to what is looked for, the near ones first.
// not for:   streams that are not captured; nodes that are removed from a graph while it is captured.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// A point in a graph, where captured streams are or were.
class branch_end {
public:
    /// Before all nodes.
    branch_end() noexcept = default;

    /// The present end of `stream`; not known if CUDA fails twice, or if an event of the midst of a kernel is part of it. A
    /// default stream is the current device's. Never blocks. Throws std::bad_alloc.
    static branch_end of(stream_ref stream) {
        branch_end found;
        found.add(stream);
        return found;
    }
    /// From here on this is behind the present end of `stream`, too. Otherwise as 'of'.
    void add(stream_ref stream) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaGraphNode_t const* nodes = nullptr;
        std::size_t count = 0;
        known_ &= base::try_twice([&] { return runtime::succeeded(ask(stream.get(), &status, &nodes, &count)); }) &&
                  status == cudaStreamCaptureStatusActive;
        nodes_.reserve_more(count);
        for (std::size_t i = 0; i < count; ++i)
            nodes_.push_back(nodes[i]);
    }

    bool is_known() const noexcept { return known_; }
    base::growing_array<cudaGraphNode_t> const& nodes() const noexcept { return nodes_; }

private:
    static cudaError_t ask(cudaStream_t stream, cudaStreamCaptureStatus* status, cudaGraphNode_t const** nodes,
                           std::size_t* count) {
#if CUDART_VERSION >= 13000
        return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nodes, nullptr, count);
#else
        return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nodes, count);
#endif
    }

    bool known_ = true;
    base::growing_array<cudaGraphNode_t> nodes_;
};

/// All that comes before an end. It asks for no more than the questions need.
class branch_past {
public:
    /// Of the end that `stream` has at the first question.
    explicit branch_past(stream_ref stream) noexcept : stream_(stream) {}
    /// Of `end`, which is known.
    explicit branch_past(branch_end end) : stream_(on_host) { begin(std::move(end)); }

    /// Where it begins. Throws std::bad_alloc.
    branch_end const& end() {
        if (!begun_)
            begin(branch_end::of(stream_));
        return end_;
    }

    /// Whether all of `earlier`, which is known, comes before; false also where CUDA does not tell. Throws std::bad_alloc.
    bool has(branch_end const& earlier) {
        for (cudaGraphNode_t const each : earlier.nodes())
            while (!found_.contains(key(each)))
                if (!go_back())
                    return false;
        return true;
    }

private:
    static std::uint64_t key(cudaGraphNode_t node) noexcept { return reinterpret_cast<std::uintptr_t>(node); }
    static cudaError_t ask(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges, std::size_t* count) {
#if CUDART_VERSION >= 13000
        return cudaGraphNodeGetDependencies(node, nodes, edges, count);
#else
        return cudaGraphNodeGetDependencies_v2(node, nodes, edges, count);
#endif
    }

    void begin(branch_end end) {
        end_ = std::move(end);
        if (end_.is_known())
            for (cudaGraphNode_t const each : end_.nodes())
                find(each);
        begun_ = true;
    }
    void find(cudaGraphNode_t node) {
        if (!found_.contains(key(node))) {
            in_order_.reserve_more(1);
            found_.insert(key(node), 0);
            in_order_.push_back(node);
        }
    }
    // Finds the nodes before the next one of those that were found. False: there is none, or CUDA does not tell.
    bool go_back() {
        end();
        if (next_ == in_order_.size())
            return false;
        std::size_t count = 0;
        do {
            if (count == before_.size()) // there may be more
                edges_.resize(count == 0 ? 8 : 2 * count), before_.resize(edges_.size());
            count = before_.size();
            if (!runtime::succeeded(ask(in_order_[next_], before_.data(), edges_.data(), &count)))
                return false;
        } while (count == before_.size());
        for (std::size_t i = 0; i < count; ++i)
            if (edges_[i].from_port != cudaGraphKernelNodePortLaunchCompletion)
                find(before_[i]);
        ++next_;
        return true;
    }

    stream_ref stream_;
    bool begun_ = false;
    branch_end end_;
    base::address_map found_;                       // nodes, as keys
    base::growing_array<cudaGraphNode_t> in_order_; // the same, the near ones first
    std::size_t next_ = 0;                          // the first of these whose own past is not known yet
    base::growing_array<cudaGraphNode_t> before_;   // of one node
    base::growing_array<cudaGraphEdgeData> edges_;  // as before_
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
