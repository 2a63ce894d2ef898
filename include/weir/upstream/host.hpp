// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do chunks of ordinary host memory come from?
//
// The global operator new, aligned to a page. No CUDA call is made, so pools over it work on a machine without
// a GPU or driver: for host-side scratch, for tests, and as the last of a fallback.
//
// invariant: chunks are page aligned.
// cost:      that of operator new.
// not for:   memory that a kernel reads.

#include <cstddef>
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
    static constexpr memory_space space = memory_space::host;

    /// A chunk of `bytes` bytes, or null when there is no room.
    void* acquire(std::size_t bytes) noexcept {
        return ::operator new(bytes, std::align_val_t{alignment}, std::nothrow);
    }

    /// Gives a chunk back.
    void release(void* chunk, std::size_t) noexcept { ::operator delete(chunk, std::align_val_t{alignment}); }
};

} // namespace upstream
} // namespace v0
} // namespace weir
