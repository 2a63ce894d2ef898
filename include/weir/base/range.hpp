// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A range: where some bytes start and how many there are.
//
// Placements calculate with offsets and never touch the memory. A pool uses addresses as offsets, and a test uses small
// numbers; the arithmetic is the same.
//
// invariant: a range of no bytes means 'no range', whatever its offset; offset + bytes does not overflow.
// cost:      two words, passed in registers.
// not for:   owning memory.

#include <weir/base/size.hpp>

#include <cstddef>

namespace weir {
inline namespace v0 {
namespace base {

/// Bytes [offset, offset + bytes).
struct range {
    std::size_t offset = 0; ///< First byte: an address in a pool, a plain number in a test.
    std::size_t bytes = 0;  ///< Length in bytes; 0 means 'no range'.

    /// False for 'no range'.
    constexpr explicit operator bool() const noexcept { return bytes != 0; }

    /// One past the last byte.
    constexpr std::size_t end() const noexcept { return offset + bytes; }

    /// True when byte x lies inside.
    constexpr bool contains(std::size_t x) const noexcept { return x - offset < bytes; }

    /// True when all of 'inner' lies inside; an empty inner range never does.
    constexpr bool contains(range inner) const noexcept {
        return inner.bytes != 0 && inner.offset >= offset && inner.bytes <= bytes &&
               inner.offset - offset <= bytes - inner.bytes;
    }

    /// True when the two ranges have a byte in common.
    constexpr bool overlaps(range other) const noexcept {
        return bytes != 0 && other.bytes != 0 && (contains(other.offset) || other.contains(offset));
    }

    friend constexpr bool operator==(range a, range b) noexcept {
        return a.offset == b.offset && a.bytes == b.bytes;
    }
    friend constexpr bool operator!=(range a, range b) noexcept { return !(a == b); }
};

/// Returns 'r' after passing it through registers. Without this, g++ 12 may write both words to the stack and read them back
/// as one vector, which waits ten cycles.
inline range in_registers(range r) noexcept {
    asm("" : "+r"(r.offset), "+r"(r.bytes));
    return r;
}

/// The part of 'r' that consists of whole multiples of 'unit' (a power of two); 'no range' if there is no such part.
constexpr range inward(range r, std::size_t unit) noexcept {
    std::size_t const start = align_up(r.offset, unit);
    std::size_t const end = align_down(r.end(), unit);
    return start < r.offset || end <= start ? range{} : range{start, end - start};
}

/// True when a block of 'bytes' at a multiple of 'alignment' (a power of two) has room in 'r'.
constexpr bool has_room(range r, std::size_t bytes, std::size_t alignment) noexcept {
    std::size_t const start = align_up(r.offset, alignment);
    return start >= r.offset && start - r.offset < r.bytes && r.bytes - (start - r.offset) >= bytes;
}

} // namespace base
} // namespace v0
} // namespace weir
