// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// CUB's caching allocator, behind two functions, so that no other source includes CUB.
//
// Powers of two from 256 bytes to 1 GiB, nothing given back: its default bins end at 2 MiB and its default
// cache at 6 MiB, past which it calls cudaMalloc each time. A block is always freed on the stream that it was
// allocated on: it cannot be handed over. Every block comes from a cudaMalloc of its own. Streams are told apart
// by their handles: a new stream of an old handle is given bytes that the old one still uses, and a thread's default stream
// those of another thread's.

#include "../abilities.hpp"

#include <cstddef>
#include <cuda_runtime_api.h>
#include <memory>

namespace weir_bench {

class cub_caching {
public:
    static constexpr char const* name = "cub::CachingDeviceAllocator";
    static constexpr unsigned able = many_threads | bulk | on_device | in_flight | side_by_side;

    cub_caching();
    ~cub_caching();
    void* allocate(cudaStream_t stream, std::size_t bytes);
    void deallocate(cudaStream_t stream, void* p, std::size_t bytes);

    /// CUB's version, as 'major.minor.patch'.
    static char const* version();

private:
    struct state;
    std::unique_ptr<state> state_;
};

} // namespace weir_bench
