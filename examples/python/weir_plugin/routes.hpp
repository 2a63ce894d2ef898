// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Into which private pool goes what is allocated on a stream now?
//
// PyTorch says when allocations begin to go into a pool, and names the streams by a function: those of a capture, of the
// calling thread, or one stream. It says when that ends, but not if a capture fails.
//
// cost:      a call of each function, which may ask CUDA; the latest is asked first.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>
#include <weir/order/graph_life.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/stream.hpp>

namespace weir_plugin {

using stream_filter = std::function<bool(cudaStream_t)>;

/// Whether a graph is captured on `stream`, and the number of its capture; 0: none. Throws cuda_error.
inline bool is_captured(cudaStream_t stream) {
    return stream && !weir::runtime::is_legacy(stream) && weir::runtime::is_capturing(stream);
}
inline unsigned long long capture_number(cudaStream_t stream) {
    return is_captured(stream) ? weir::runtime::capture_of(stream).id : 0;
}

/// What knows when the graph is gone that is captured on `stream`; none: CUDA or the host refuses.
inline std::optional<weir::order::graph_life> life_of_graph(cudaStream_t stream) {
    try {
        if (cudaGraph_t const graph = weir::runtime::capture_of(stream).graph)
            return weir::order::graph_life(graph);
    } catch (...) { // only PyTorch tells then
    }
    return {};
}

/// `Target`: a private pool. One thread at a time.
template <class Target>
class routes {
public:
    struct route {
        Target* target;
        stream_filter knows;
        std::thread::id thread;
        bool knows_legacy;          // asked once, as it may be an error while another stream is captured
        cudaStream_t stream;        // of the capture, once it is known
        unsigned long long capture; // its number; 0: not known yet
        std::optional<weir::order::graph_life> life; // of its graph; none: not known
    };

    void begin(Target& target, stream_filter filter) {
        bool knows_legacy = false;
        try {
            knows_legacy = filter(nullptr);
        } catch (...) { // it asked CUDA for the legacy stream while another one is captured
        }
        all_.push_back({&target, std::move(filter), std::this_thread::get_id(), knows_legacy, nullptr, 0, {}});
    }
    /// The latest of `target` is over. Returns the life of its graph.
    std::optional<weir::order::graph_life> end(Target const* target) {
        std::optional<weir::order::graph_life> life;
        for (std::size_t i = all_.size(); i-- > 0;)
            if (all_[i].target == target) {
                life = std::move(all_[i].life);
                drop(i);
                break;
            }
        return life;
    }
    /// Where what is allocated on `stream` goes: the latest that knows it, as a capture that failed has no end; null: nowhere.
    route* of(cudaStream_t stream) {
        bool const legacy = !stream || weir::runtime::is_legacy(stream);
        for (std::size_t i = all_.size(); i-- > 0;)
            if ((!legacy || all_[i].knows_legacy) && all_[i].knows(stream))
                return &all_[i];
        return nullptr;
    }
    /// The pool of the graph that `stream` is captured into; null: it is not captured, or into nobody's.
    Target* of_graph(cudaStream_t stream) {
        route const* const way = all_.empty() || !is_captured(stream) ? nullptr : of(stream);
        return way ? way->target : nullptr;
    }
    /// Drops what this thread began for a capture that is over: it has failed, or 'end' would have come before. Calls
    /// failed(target) for each.
    template <class Failed>
    void drop_failed(Failed const& failed) {
        for (std::size_t i = all_.size(); i-- > 0;) {
            route const& each = all_[i];
            if (each.capture == 0 || each.knows_legacy || each.thread != std::this_thread::get_id() ||
                capture_number(each.stream) == each.capture || each.knows(each.stream))
                continue; // it lasts, or is no graph's
            failed(*each.target);
            drop(i);
        }
    }
    std::size_t size() const noexcept { return all_.size(); }

private:
    void drop(std::size_t i) { all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i)); }

    std::vector<route> all_;
};

} // namespace weir_plugin
