// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does what comes next on a captured stream run behind what another one did so far?
//
// In a capture no event can be asked. But CUDA tells the nodes that the next one of a stream will depend on, its end, and the
// nodes that each node depends on. So if the end that a branch had is found on the way back from the end of another stream,
// then that stream waited for the branch, and all that it captures from now on runs behind.
//
// invariant: a stream whose past holds an end captures only nodes that run behind all nodes up to that end.
// order:     of nodes. One that a programmatic launch lets begin early counts for nothing: its stream's end is not known.
// cost:      an end is one CUDA call; a past is two calls for each node behind it.
// not for:   streams that are not captured, and default streams, whose name may mean two.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// Where a captured stream is in its graph.
class branch_end {
public:
    /// Before all nodes.
    branch_end() noexcept = default;

    /// The present end of `stream`. If that is a default stream, or CUDA does not tell, no stream is known to come behind it.
    /// Never blocks. Throws std::bad_alloc.
    static branch_end of(stream_ref stream) {
        branch_end found;
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaGraphNode_t const* nodes = nullptr;
        std::size_t count = 0;
        found.known_ = !runtime::is_default_stream(stream) && runtime::succeeded(ask(stream.get(), &status, &nodes, &count)) &&
                       status == cudaStreamCaptureStatusActive;
        found.nodes_.reserve(count);
        for (std::size_t i = 0; i < count; ++i)
            found.nodes_.push_back(nodes[i]);
        return found;
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

/// All that comes before an end.
class branch_past {
public:
    /// Throws std::bad_alloc.
    explicit branch_past(branch_end const& end) : known_(end.is_known()) {
        base::growing_array<cudaGraphNode_t> left = end.nodes(), before;
        while (known_ && !left.empty()) {
            cudaGraphNode_t const node = left.back();
            left.pop_back();
            if (nodes_.contains(key(node)))
                continue;
            nodes_.insert(key(node), 0);
            std::size_t count = 0;
            known_ = runtime::succeeded(ask(node, nullptr, &count));
            before.resize(count);
            known_ = known_ && (count == 0 || runtime::succeeded(ask(node, before.data(), &count)));
            for (cudaGraphNode_t const each : before)
                left.push_back(each);
        }
    }

    bool has(branch_end const& earlier) const noexcept {
        bool found = known_ && earlier.is_known();
        for (cudaGraphNode_t const each : earlier.nodes())
            found = found && nodes_.contains(key(each));
        return found;
    }

private:
    static std::uint64_t key(cudaGraphNode_t node) noexcept { return reinterpret_cast<std::uintptr_t>(node); }
    static cudaError_t ask(cudaGraphNode_t node, cudaGraphNode_t* nodes, std::size_t* count) {
#if CUDART_VERSION >= 13000
        return cudaGraphNodeGetDependencies(node, nodes, nullptr, count);
#else
        return cudaGraphNodeGetDependencies(node, nodes, count);
#endif
    }

    bool known_;
    base::address_map nodes_; // as keys
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
