// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a null stream means is for the file that allocates to say, even where files that say otherwise are of one program.

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/recording_pool.hpp>

TEST_CASE("pool_base: a null stream is the thread's own one to a file that is compiled with per-thread default streams") {
    support::recording_pool<> pool;
    cudaStream_t const null = nullptr;
    void* const p = pool.allocate(null, 100);
    CHECK(pool.allocations.back().stream == cudaStreamPerThread);
    pool.deallocate(null, p, 100);
}
