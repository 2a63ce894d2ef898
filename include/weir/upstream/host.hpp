// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do chunks of ordinary host memory come from?
//
// From the global operator new, aligned to a page or more. No CUDA call is made, so pools over it work on a machine without a
// GPU or driver. It suits scratch memory of the host, tests, and the last pool of a layer::fallback.
//
// invariant: chunks are page aligned.
// cost:      that of operator new.
// not for:   memory that a kernel reads.

#include <cstddef>
#include <cstdint>
#include <new>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// operator new and delete. Copyable. Any thread may call any member.
class host {
public:
    static constexpr std::size_t alignment = 4 * KiB;
    static constexpr std::size_t usual_alignment = 1 * MiB; // chunks of this many bytes or more are aligned to it
    static constexpr memory_space space = memory_space::host;

    /// A chunk of `bytes` bytes, or null when there is no room.
    void* acquire(std::size_t bytes) noexcept {
        return bytes > PTRDIFF_MAX ? nullptr
                                   : ::operator new(bytes, alignment_of(bytes), std::nothrow); // larger sizes would wrap around
    }

    /// Gives a chunk back.
    void release(void* chunk, std::size_t bytes) noexcept { ::operator delete(chunk, alignment_of(bytes)); }

private:
    // A placement may cut naturally aligned pieces from a chunk, so a chunk is aligned to its size, up to 'usual_alignment'.
    static constexpr std::align_val_t alignment_of(std::size_t bytes) noexcept {
        std::size_t const most =
            bytes < usual_alignment ? std::size_t{1} << base::floor_log2(bytes | alignment) : usual_alignment;
        return std::align_val_t{most};
    }
};

} // namespace upstream
} // namespace v0
} // namespace weir
