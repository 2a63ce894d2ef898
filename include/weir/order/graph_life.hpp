// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Is anything left of a captured graph that could still run?
//
// CUDA has 'user objects' and counts the owners of each: the graph that it was given to, copies of that graph, and executables
// made of them or updated to them. An owner counts until its last launch has ended. When the last owner is gone, CUDA calls a
// function, which sets a flag here. A graph can be given the object while it is still being captured, in every capture mode,
// and that breaks no capture. If a capture breaks, its graph ends, and the object with it.
//
// invariant: where is_over() is true, no work of the graph runs or will ever run, nor work of what was made of the graph since
//            it was watched. It may stay false for some time longer: after a launch CUDA calls the function on a thread of its
//            own.
// order:     what the graph's work did is done before is_over() is true.
// cost:      two CUDA calls and two small host allocations a graph; is_over() reads a flag.
// not for:   work outside of the graph on the memory that it uses; what was made of the graph before it was watched; captures
//            into a graph that existed before (cudaStreamBeginCaptureToGraph), such as bodies of conditional nodes: CUDA says
//            little of what happens to their objects.

#include <cuda_runtime_api.h>
#include <new>
#include <weir/base/shared.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/check.hpp>

namespace weir {
inline namespace v0 {
namespace order {

/// Knows when a graph is over. One thread at a time.
class graph_life {
public:
    /// Watches no graph: is_over() is true.
    graph_life() noexcept = default;

    /// Watches `graph` and all that is made of it from now on. No other thread may use the graph meanwhile, as for all of
    /// CUDA's calls that name it. Never blocks. Throws cuda_error, std::bad_alloc; then the graph is as it was.
    explicit graph_life(cudaGraph_t graph) : over_(flag::make(false)) {
        auto* const told = new flag(over_);
        cudaUserObject_t object = nullptr;
        cudaError_t error = cudaUserObjectCreate(&object, told, tell, 1, cudaUserObjectNoDestructorSync);
        if (error != cudaSuccess)
            delete told;
        require(error, "cudaUserObjectCreate");
        error = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
        if (error != cudaSuccess)
            base::try_twice([&] { return runtime::succeeded(cudaUserObjectRelease(object, 1)); });
        require(error, "cudaGraphRetainUserObject");
    }

    /// Whether the graph, its copies and its executables are gone, and their last launch has ended. Never blocks.
    bool is_over() const noexcept { return !over_ || over_->load(base::memory_order_acquire); }

private:
    using flag = base::shared<base::atomic<bool>>;

    // What these calls lack, if they lack memory, is memory of the host.
    static void require(cudaError_t error, char const* call) {
        if (runtime::out_of_room(error, call))
            throw std::bad_alloc();
    }

    static void CUDART_CB tell(void* told) noexcept {
        auto* const over = static_cast<flag*>(told);
        (*over)->store(true, base::memory_order_release);
        delete over;
    }

    flag over_;
};

} // namespace order
} // namespace v0
} // namespace weir
