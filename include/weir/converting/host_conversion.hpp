// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the host convert a row of numbers as fast as it copies?
//
// Known formats are converted in blocks of a fixed length, which compilers turn into vector code (float_format.hpp). For half
// there is an instruction, eight numbers at a time; whether the processor has it is asked at run time, so a program that is
// compiled for any x86 uses it where it can. Other storage types convert themselves, number by number.
//
// invariant: each way gives the same bits, but for the payload of a NaN.
// cost:      for half about what memcpy takes for the floats.
// not for:   the device: see converting/converting_kernel.cuh.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <weir/converting/converting_view.hpp>
#include <weir/converting/float_format.hpp>

namespace weir {
inline namespace v0 {
namespace converting {
namespace detail {

#if defined(__x86_64__) && defined(__GNUC__)
using eight_floats = float __attribute__((vector_size(32)));
using eight_halves = short __attribute__((vector_size(16)));

__attribute__((target("avx,f16c"))) inline eight_floats widened(eight_halves halves) noexcept {
#if defined(__clang__) && __clang_major__ >= 16 // where the conversion has a type; later ones know no other word for it
    using as_halves = _Float16 __attribute__((vector_size(16)));
    return __builtin_convertvector(reinterpret_cast<as_halves>(halves), eight_floats);
#else
    return __builtin_ia32_vcvtph2ps256(halves);
#endif
}

/// Eight at a time; returns how many that were. The processor has the instructions.
__attribute__((target("avx,f16c"))) inline std::size_t half_from_float_by_eight(std::uint16_t* to, float const* from,
                                                                                std::size_t count, float scale) noexcept {
    eight_floats const divisor = {scale, scale, scale, scale, scale, scale, scale, scale};
    std::size_t const whole = count / 8 * 8;
    for (std::size_t i = 0; i != whole; i += 8) {
        eight_floats values;
        std::memcpy(&values, from + i, sizeof values);
        if (scale != 1)
            values /= divisor;
        eight_halves const halves = __builtin_ia32_vcvtps2ph256(values, 0); // 0: to nearest even
        std::memcpy(to + i, &halves, sizeof halves);
    }
    return whole;
}
__attribute__((target("avx,f16c"))) inline std::size_t float_from_half_by_eight(float* to, std::uint16_t const* from,
                                                                                std::size_t count, float scale) noexcept {
    eight_floats const factor = {scale, scale, scale, scale, scale, scale, scale, scale};
    std::size_t const whole = count / 8 * 8;
    for (std::size_t i = 0; i != whole; i += 8) {
        eight_halves halves;
        std::memcpy(&halves, from + i, sizeof halves);
        eight_floats const values = detail::widened(halves) * factor;
        std::memcpy(to + i, &values, sizeof values);
    }
    return whole;
}
/// Whether it has them. Asked is AVX2, which came later: some compilers know no word for F16C.
inline bool has_f16c() noexcept {
    return __builtin_cpu_supports("avx2") != 0;
}
#else
inline std::size_t half_from_float_by_eight(std::uint16_t*, float const*, std::size_t, float) noexcept {
    return 0;
}
inline std::size_t float_from_half_by_eight(float*, std::uint16_t const*, std::size_t, float) noexcept {
    return 0;
}
inline bool has_f16c() noexcept {
    return false;
}
#endif

/// In blocks of so many numbers, so that the loop within one has no rest.
inline constexpr std::size_t numbers_a_block = 64;

/// The rows do not overlap. By integers, on any processor.
template <class Format>
void encode_row(typename Format::bits_type* to, float const* from, std::size_t count, float scale) noexcept {
    for (; count >= numbers_a_block; count -= numbers_a_block, to += numbers_a_block, from += numbers_a_block)
        for (std::size_t i = 0; i != numbers_a_block; ++i)
            to[i] = Format::encode(from[i] / scale);
    for (std::size_t i = 0; i != count; ++i)
        to[i] = Format::encode(from[i] / scale);
}
template <class Format>
void decode_row(float* to, typename Format::bits_type const* from, std::size_t count, float scale) noexcept {
    for (; count >= numbers_a_block; count -= numbers_a_block, to += numbers_a_block, from += numbers_a_block)
        for (std::size_t i = 0; i != numbers_a_block; ++i)
            to[i] = Format::decode(from[i]) * scale;
    for (std::size_t i = 0; i != count; ++i)
        to[i] = Format::decode(from[i]) * scale;
}

/// Whether the host knows how `Storage` is laid out, and converts to it from `Element` by itself.
template <class Element, class Storage>
inline constexpr bool has_known_format =
    std::is_same_v<Element, float> && !std::is_void_v<typename format_of<Storage>::type>;

/// Stores `count` elements at `from` as the numbers at `to`, as a converting_view of that scale does. The rows do not overlap.
template <class Element, class Storage>
void store_row(Storage* to, Element const* from, std::size_t count, Element scale) noexcept {
    if constexpr (has_known_format<Element, Storage>) {
        using format = typename format_of<Storage>::type;
        static_assert(sizeof(Storage) == sizeof(typename format::bits_type));
        auto* bits = reinterpret_cast<typename format::bits_type*>(to);
        std::size_t done = 0;
        if constexpr (std::is_same_v<format, half_format>)
            if (detail::has_f16c())
                done = detail::half_from_float_by_eight(bits, from, count, scale);
        detail::encode_row<format>(bits + done, from + done, count - done, scale);
    } else {
        for (std::size_t i = 0; i != count; ++i)
            to[i] = detail::stored_as<Element, Storage>::storage(from[i], scale);
    }
}

/// The other way.
template <class Element, class Storage>
void load_row(Element* to, Storage const* from, std::size_t count, Element scale) noexcept {
    if constexpr (has_known_format<Element, Storage>) {
        using format = typename format_of<Storage>::type;
        static_assert(sizeof(Storage) == sizeof(typename format::bits_type));
        auto const* bits = reinterpret_cast<typename format::bits_type const*>(from);
        std::size_t done = 0;
        if constexpr (std::is_same_v<format, half_format>)
            if (detail::has_f16c())
                done = detail::float_from_half_by_eight(to, bits, count, scale);
        detail::decode_row<format>(to + done, bits + done, count - done, scale);
    } else {
        for (std::size_t i = 0; i != count; ++i)
            to[i] = detail::stored_as<Element, Storage>::element(from[i], scale);
    }
}

} // namespace detail
} // namespace converting
} // namespace v0
} // namespace weir
