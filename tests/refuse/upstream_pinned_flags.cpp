// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: upstream::pinned takes cudaHostAllocPortable, cudaHostAllocMapped and cudaHostAllocWriteCombined, or-ed; other
// flags do not exist
#include <weir/upstream/pinned.hpp>

#ifdef REJECT
constexpr unsigned flags = 0x100;
#else
constexpr unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
#endif

void use() {
    weir::upstream::pinned<flags> upstream;
    static_cast<void>(upstream.release(upstream.acquire(1), 1));
}
