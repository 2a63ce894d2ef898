// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the host turn a float into one of fewer bits, and back?
//
// By integers: the sign is taken off; the mantissa is rounded to nearest even by adding half of the last place that stays, and
// a bit less where that place is even; a carry walks into the exponent, where it belongs. Numbers below the smallest normal one
// are rounded by an addition of floats: beside a number whose last place is the smallest subnormal one, a sum is rounded there.
// No step branches, so compilers make vector code of it.
//
// CUDA's types for such numbers are known by their names, which the compiler spells out: their headers are large, and whoever
// uses one of them has included its header.
//
// invariant: the same bits as CUDA's own conversions (__float2half_rn and so on), but for the payload of a NaN.
// cost:      about a nanosecond a number without vectors; to half and back, processors with F16C do eight at a time.
// not for:   a rounding mode other than to nearest, or a mode that flushes subnormals to zero.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weir {
inline namespace v0 {
namespace converting {
namespace detail {

inline std::uint32_t bits_of(float value) noexcept {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline float float_of(std::uint32_t bits) noexcept {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/// A sign, some bits of exponent and the rest mantissa. `Largest`: the bits of the largest finite number. `Overflow`: what
/// becomes of larger ones. `Infinity`: the bits of infinity and the NaNs begin here.
template <class Bits, unsigned ExponentBits, unsigned MantissaBits, std::uint32_t Largest, std::uint32_t Overflow,
          std::uint32_t Infinity>
struct float_format {
    using bits_type = Bits;

    static Bits encode(float value) noexcept {
        std::uint32_t const bits = detail::bits_of(value);
        std::uint32_t const size = bits & 0x7FFFFFFFu;
        std::uint32_t const even = (size >> dropped) & 1u;
        std::uint32_t code = ((size + ((1u << (dropped - 1)) - 1) + even) >> dropped) - (rebias << MantissaBits);
        if constexpr (rebias != 0) {
            std::uint32_t const subnormal = detail::bits_of(detail::float_of(size) + detail::float_of(place)) - place;
            code = size < least_normal ? subnormal : code;
        }
        code = code > Largest ? Overflow : code;
        code = size > float_infinity ? not_a_number : code;
        return static_cast<Bits>(code | (bits >> 31 << (ExponentBits + MantissaBits)));
    }

    static float decode(Bits stored) noexcept {
        std::uint32_t const size = stored & not_a_number;
        std::uint32_t bits = size << dropped;
        if constexpr (rebias != 0) {
            bits = detail::bits_of(detail::float_of(bits) * detail::float_of((127 + rebias) << 23));
            bits = size >= Infinity ? bits | float_infinity : bits;
        }
        return detail::float_of(bits | (static_cast<std::uint32_t>(stored) >> (ExponentBits + MantissaBits) << 31));
    }

private:
    static constexpr std::uint32_t dropped = 23 - MantissaBits;                           // bits of a float's mantissa
    static constexpr std::uint32_t rebias = 128 - (1u << (ExponentBits - 1));             // exponents differ by that
    static constexpr std::uint32_t least_normal = (rebias + 1) << 23;                     // as a float
    static constexpr std::uint32_t place = (rebias + 24 - MantissaBits) << 23;            // 1.0 times 2^...: see the head
    static constexpr std::uint32_t float_infinity = 0x7F800000u;
    static constexpr std::uint32_t not_a_number = (1u << (ExponentBits + MantissaBits)) - 1; // all bits but the sign
};

using half_format = float_format<std::uint16_t, 5, 10, 0x7BFF, 0x7C00, 0x7C00>;
using bfloat16_format = float_format<std::uint16_t, 8, 7, 0x7F7F, 0x7F80, 0x7F80>;
using e4m3_format = float_format<std::uint8_t, 4, 3, 0x7E, 0x7E, 0x7F>; // no infinity: what is above is a NaN
using e5m2_format = float_format<std::uint8_t, 5, 2, 0x7B, 0x7B, 0x7C>;

// Whether T is the type of that name in the global namespace.
template <class T>
constexpr bool is_named(char const* name) noexcept {
    char const* said = __PRETTY_FUNCTION__; // '... [with T = __half]', '... [T = __half]'
    while (*said != '=')
        ++said;
    do
        ++said;
    while (*said == ' ');
    for (; *name && *name == *said; ++name)
        ++said;
    return !*name && *said == ']';
}

template <class Storage>
constexpr auto known_format() noexcept {
    if constexpr (detail::is_named<Storage>("__half"))
        return half_format();
    else if constexpr (detail::is_named<Storage>("__nv_bfloat16"))
        return bfloat16_format();
    else if constexpr (detail::is_named<Storage>("__nv_fp8_e4m3"))
        return e4m3_format();
    else if constexpr (detail::is_named<Storage>("__nv_fp8_e5m2"))
        return e5m2_format();
}

/// The format of a storage type; void: it is not known here, and its own conversions are used.
template <class Storage>
struct format_of {
    using type = decltype(detail::known_format<Storage>());
};

} // namespace detail
} // namespace converting
} // namespace v0
} // namespace weir
