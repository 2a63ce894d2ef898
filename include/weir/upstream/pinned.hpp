// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do chunks of page-locked host memory come from?
//
// From cudaHostAlloc. Locking the pages takes 0.4 ms for 4 KiB and 0.37 s for 1 GiB, so pinned memory gains more from a pool
// than any other. The flags are CUDA's and fixed at compile time. Portable: every device sees the memory as pinned. Mapped:
// kernels may use it through its device pointer (with unified addressing, all of it is mapped). Write-combined: copies to the
// device avoid the caches, and the host must not read the memory.
//
// invariant: every chunk was allocated with exactly Flags.
// order:     'release' waits for the device (cudaFreeHost does).
// cost:      see above; for large chunks the time goes into locking the pages.
// not for:   memory that the host reads, if write-combined.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// cudaHostAlloc with `Flags` (cudaHostAllocPortable, cudaHostAllocMapped and cudaHostAllocWriteCombined, or-ed) and
/// cudaFreeHost. Copyable. Any thread may call any member.
template <unsigned Flags>
class pinned {
    static_assert((Flags & ~static_cast<unsigned>(cudaHostAllocPortable | cudaHostAllocMapped |
                                                  cudaHostAllocWriteCombined)) == 0,
                  "weir: upstream::pinned takes cudaHostAllocPortable, cudaHostAllocMapped and "
                  "cudaHostAllocWriteCombined, or-ed; other flags do not exist");

public:
    static constexpr std::size_t alignment = 256;
    static constexpr memory_space space = memory_space::pinned;
    static constexpr std::size_t granularity = 64 * KiB;
    static constexpr std::size_t usual_alignment = 1 * MiB; // chunks of this many bytes or more are aligned to it, seen on CUDA
                                                            // 13

    /// A chunk of `bytes` bytes, or null when the host cannot lock that much. Blocks. Throws cuda_error.
    void* acquire(std::size_t bytes) {
        runtime::capture_mode_scope const relaxed;
        void* chunk = nullptr;
        return runtime::out_of_room(cudaHostAlloc(&chunk, bytes, Flags), "cudaHostAlloc") ? nullptr : chunk;
    }

    /// Gives a chunk back. Waits for the device. Returns false if CUDA refused; the chunk is then still the caller's.
    bool release(void* chunk, std::size_t) noexcept {
        try {
            runtime::capture_mode_scope const relaxed;
            return runtime::succeeded(cudaFreeHost(chunk));
        } catch (...) {
            return false;
        }
    }

    /// All memory that the host has, in bytes; SIZE_MAX: not known.
    std::size_t most_bytes() const noexcept { return runtime::host_total_bytes(); }
};

} // namespace upstream
} // namespace v0
} // namespace weir
