// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// PyTorch's caching allocator, reached from C++, behind plain functions.
//
// It is one for the process: 'fresh' means that its cache was emptied. A block goes back to the stream that
// it was allocated on, so it cannot be handed over, and streams are told apart by their handles. Two contenders: as it
// is, and with expandable segments, which a setting turns on for the process.

#include "../abilities.hpp"

#include <cstddef>
#include <cuda_runtime_api.h>

namespace weir_bench {

class pytorch_caching {
public:
    static constexpr char const* name = "pytorch";
    static constexpr unsigned able = many_threads | bulk | millions | on_device | in_flight;

    explicit pytorch_caching(bool expandable = false);
    ~pytorch_caching();
    void* allocate(cudaStream_t stream, std::size_t bytes);
    void deallocate(cudaStream_t stream, void* p, std::size_t bytes);
    static char const* version();
};

class pytorch_expandable : public pytorch_caching {
public:
    static constexpr char const* name = "pytorch::expandable";

    pytorch_expandable() : pytorch_caching(true) {}
};

using pytorch_pools = pool_list<pytorch_caching, pytorch_expandable>;

} // namespace weir_bench
