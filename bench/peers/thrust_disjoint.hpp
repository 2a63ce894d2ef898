// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Thrust's pool for memory that the host cannot touch, behind two functions, so that no other source includes
// Thrust.
//
// thrust::mr::disjoint_unsynchronized_pool_resource over cudaMalloc, with its default options but for the
// alignment: blocks aligned to 256 bytes, as everybody's are, would else be oversized to it, every one a cudaMalloc
// of its own. It knows no streams and one thread: what it does is a floor for a pool that does not have to be safe.

#include "../abilities.hpp"

#include <cstddef>
#include <cuda_runtime_api.h>
#include <memory>

namespace weir_bench {

class thrust_disjoint {
public:
    static constexpr char const* name = "thrust::disjoint_pool";
    static constexpr unsigned able = bulk | millions | on_device | side_by_side;

    thrust_disjoint();
    ~thrust_disjoint();
    void* allocate(cudaStream_t stream, std::size_t bytes);
    void deallocate(cudaStream_t stream, void* p, std::size_t bytes);

    /// Thrust's version, as 'major.minor.patch'.
    static char const* version();

private:
    struct state;
    std::unique_ptr<state> state_;
};

} // namespace weir_bench
