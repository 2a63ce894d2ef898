// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does an algorithm of CUB's get its temporary storage from a pool?
//
// CUB's device-wide algorithms are called twice: first with a null pointer, to learn how many bytes they need, then with that
// storage. 'run' does both, and takes the storage from the pool and gives it back, on the stream.
//
//     weir::interop::cub::run(pool, stream, [&](void* storage, std::size_t& bytes, cudaStream_t s) {
//         return cub::DeviceRadixSort::SortKeys(storage, bytes, keys.data(), sorted.data(), n, 0, 32, s);
//     });
//
// This header includes none of CUB's: whoever calls an algorithm has included it. With CCCL 3.1 and later many algorithms can
// also be called once, with an environment: see interop::cuda_mr::environment.
//
// invariant: the storage goes back to the pool, with the size that it was allocated with, whatever the algorithm returns.
// order:     the algorithm runs on the stream that it is handed. The storage is freed there, behind its work.
// cost:      two calls of the algorithm, as without this, one allocation and one free.
// not for:   a pool that is not stream ordered, unless only one stream uses it.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace cub {

/// Calls `algorithm(void* storage, std::size_t& bytes, cudaStream_t)`, which returns a cudaError_t, twice: with a null pointer,
/// so that it says how many bytes it needs, and with storage from `pool`, a device, managed or pinned pool. May return while
/// the algorithm runs. Blocks as the pool does. Throws usage_error if `stream` is the host, cuda_error for what the algorithm
/// returns, what it throws, and what the pool's 'allocate' throws.
template <class Algorithm>
void run(pool_ref<memory_space::device> pool, stream_ref stream, Algorithm&& algorithm) {
    if (stream.is_host())
        throw usage_error("weir: CUB runs on a stream, and 'on_host' is none; name one");
    std::size_t needed = 0;
    check_cuda(algorithm(static_cast<void*>(nullptr), needed, stream.get()), "the size query of a CUB algorithm");

    // A null pointer would ask again. So storage is allocated even if none is needed.
    struct storage {
        storage(pool_ref<memory_space::device> from, stream_ref on, std::size_t size)
            : pool(from), stream(on), bytes(size), p(from.allocate(on, size)) {}
        storage(storage const&) = delete;
        storage& operator=(storage const&) = delete;
        ~storage() { pool.deallocate(stream, p, bytes); }
        pool_ref<memory_space::device> pool;
        stream_ref stream;
        std::size_t bytes;
        void* p;
    } const held(pool, stream, needed == 0 ? 1 : needed);
    check_cuda(algorithm(held.p, needed, stream.get()), "a CUB algorithm");
}

} // namespace cub
} // namespace interop
} // namespace v0
} // namespace weir
