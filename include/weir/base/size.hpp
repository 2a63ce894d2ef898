// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Sizes: units, alignment and overflow, as pure arithmetic.
//
// Every part of the library counts bytes in std::size_t and rounds them to powers of two. That rounding is written only here,
// so overflow is handled in one place.
//
// invariant: no function here wraps around silently: align_up returns 0 when the rounded value does not fit.
// cost:      a few instructions each; all are constexpr.
// not for:   rounding to something that is not a power of two.

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {

/// 1,024 bytes.
inline constexpr std::size_t KiB = std::size_t{1} << 10;
/// 1,048,576 bytes.
inline constexpr std::size_t MiB = std::size_t{1} << 20;
/// 1,073,741,824 bytes.
inline constexpr std::size_t GiB = std::size_t{1} << 30;

namespace base {
/// An upper bound of the bytes that a process can address, on any machine that has CUDA.
inline constexpr std::size_t most_addresses = std::size_t{1} << 48;

/// True for 1, 2, 4, ...; false for 0.
constexpr bool is_power_of_two(std::size_t x) noexcept {
    return x != 0 && (x & (x - 1)) == 0;
}

/// True when a + b does not fit std::size_t.
constexpr bool add_overflows(std::size_t a, std::size_t b) noexcept {
    return a > SIZE_MAX - b;
}

/// True when a * b does not fit std::size_t.
constexpr bool multiply_overflows(std::size_t a, std::size_t b) noexcept {
    return b != 0 && a > SIZE_MAX / b;
}

/// The least multiple of 'alignment' (a power of two) that is not below x; 0 when it does not fit
/// std::size_t.
constexpr std::size_t align_up(std::size_t x, std::size_t alignment) noexcept {
    return (x + (alignment - 1)) & ~(alignment - 1) & (x > SIZE_MAX - (alignment - 1) ? 0 : SIZE_MAX);
}

/// The greatest multiple of 'alignment' (a power of two) that is not above x.
constexpr std::size_t align_down(std::size_t x, std::size_t alignment) noexcept {
    return x & ~(alignment - 1);
}

/// a if 'first' is true, else b, without a branch. Use it when 'first' cannot be predicted.
constexpr std::size_t choose(bool first, std::size_t a, std::size_t b) noexcept {
    return b ^ ((a ^ b) & (0 - std::size_t{first}));
}

/// True when x is a multiple of 'alignment' (a power of two).
constexpr bool is_aligned(std::size_t x, std::size_t alignment) noexcept {
    return (x & (alignment - 1)) == 0;
}

/// The position of the highest set bit: floor_log2(1) == 0, floor_log2(4096) == 12. x must not be 0.
constexpr unsigned floor_log2(std::uint64_t x) noexcept {
    return 63u - static_cast<unsigned>(__builtin_clzll(x));
}

/// The exponent of the least power of two that is not below x: ceil_log2(4097) == 13. x must not be 0.
constexpr unsigned ceil_log2(std::uint64_t x) noexcept {
    return x == 1 ? 0u : base::floor_log2(x - 1) + 1u;
}

/// The position of the lowest set bit: lowest_bit(12) == 2. x must not be 0.
constexpr unsigned lowest_bit(std::uint64_t x) noexcept {
    return static_cast<unsigned>(__builtin_ctzll(x));
}

/// The bytes that a range needs so that 'bytes' bytes at a multiple of 'alignment' fit into it, if the range may start at any
/// multiple of 'base'. Both are powers of two. 0 if 'bytes' is 0 or the sum overflows.
constexpr std::size_t with_slack(std::size_t bytes, std::size_t alignment, std::size_t base) noexcept {
    std::size_t const slack = alignment > base ? alignment - base : 0;
    return bytes == 0 || base::add_overflows(bytes, slack) ? 0 : bytes + slack;
}

/// How many bits of x are set.
constexpr unsigned count_bits(std::uint64_t x) noexcept {
    // Adds neighbouring groups of bits. The compiler's builtin would be a function call on targets without the instruction.
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return static_cast<unsigned>(x * 0x0101010101010101u >> 56);
}

/// The least power of two that is not below x; 0 when it does not fit std::size_t. x must not be 0.
constexpr std::size_t power_of_two_above(std::size_t x) noexcept {
    return x > (SIZE_MAX / 2 + 1) ? 0 : std::size_t{1} << base::ceil_log2(x);
}

/// The greatest power of two that divides x, which is the alignment of x as an address; 0 for x == 0.
constexpr std::size_t natural_alignment(std::size_t x) noexcept {
    return x & (~x + 1);
}

} // namespace base
} // namespace v0
} // namespace weir
