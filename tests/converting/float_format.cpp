// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cmath>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <doctest/doctest.h>
#include <limits>
#include <type_traits>
#include <vector>
#include <weir/converting/host_conversion.hpp>

using namespace weir::converting::detail;

namespace {

// What a format is by its definition, in double, where every number of it and every middle of two is exact.
struct definition {
    int exponent_bits, mantissa_bits;
    bool has_infinity, saturates;

    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    double value(std::uint32_t code) const {
        int const exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
        double const fraction = static_cast<double>(code & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
        double const size = exponent == 0 ? std::ldexp(fraction, 1 - bias()) : std::ldexp(1 + fraction, exponent - bias());
        return code >> (exponent_bits + mantissa_bits) & 1 ? -size : size;
    }
    std::uint32_t largest() const {
        std::uint32_t const ones = (1u << (exponent_bits + mantissa_bits)) - 1;
        return has_infinity ? ones - (1u << mantissa_bits) : ones - 1;
    }
    // The nearest code of two neighbours, by halving the row of codes. Infinite codes count as the next number.
    std::uint32_t nearest(float x) const {
        double const size = std::fabs(static_cast<double>(x));
        std::uint32_t low = 0, high = largest() + 1;
        while (high - low > 1) {
            std::uint32_t const middle = (low + high) / 2;
            (value(middle) <= size ? low : high) = middle;
        }
        double const between = (value(low) + value(low + 1)) / 2;
        std::uint32_t code = size > between || (size == between && low % 2 == 1) ? low + 1 : low;
        if (code > largest())
            code = saturates ? largest() : largest() + 1;
        return code | (std::signbit(x) ? 1u << (exponent_bits + mantissa_bits) : 0);
    }
};

// Only CUDA's own types are known, whatever others are called.
struct other {
    struct __half {};
};
struct __nv_fp8_e5m2_too {};
template <class Storage>
constexpr bool is_unknown = std::is_void_v<typename format_of<Storage>::type>;
static_assert(std::is_same_v<format_of<half>::type, half_format>);
static_assert(is_unknown<other::__half> && is_unknown<__nv_fp8_e5m2_too> && is_unknown<__half*> && is_unknown<float>);

template <class Storage>
definition defined();
template <>
definition defined<__half>() {
    return {5, 10, true, false};
}
template <>
definition defined<__nv_bfloat16>() {
    return {8, 7, true, false};
}
template <>
definition defined<__nv_fp8_e4m3>() {
    return {4, 3, false, true};
}
template <>
definition defined<__nv_fp8_e5m2>() {
    return {5, 2, true, true};
}

template <class Storage>
auto code_of(Storage const& stored) {
    typename format_of<Storage>::type::bits_type code = 0;
    std::memcpy(&code, &stored, sizeof code);
    return code;
}

// Floats at, beside and between all numbers of the format, and some 70,000 others from all over.
template <class Storage>
std::vector<float> interesting() {
    definition const of = defined<Storage>();
    std::vector<float> all;
    for (std::uint32_t code = 0; code <= of.largest(); ++code)
        for (double const x : {of.value(code), (of.value(code) + of.value(code + 1)) / 2}) {
            float const at = static_cast<float>(x);
            for (float const beside : {at, std::nextafter(at, -1.f), std::nextafter(at, INFINITY)})
                all.insert(all.end(), {beside, -beside});
        }
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 61441)
        all.push_back(float_of(static_cast<std::uint32_t>(bits)));
    all.insert(all.end(), {INFINITY, -INFINITY, NAN, -NAN, std::numeric_limits<float>::max(), float_of(1), float_of(0x7F800001)});
    return all;
}

} // namespace

TEST_CASE_TEMPLATE("float_format: every number goes to a float and comes back", Storage, __half, __nv_bfloat16, __nv_fp8_e4m3,
                   __nv_fp8_e5m2) {
    using format = typename format_of<Storage>::type;
    definition const of = defined<Storage>();
    std::size_t wrong = 0, numbers = 0;
    for (std::uint32_t i = 0; i <= std::numeric_limits<typename format::bits_type>::max(); ++i) {
        auto const code = static_cast<typename format::bits_type>(i);
        Storage stored;
        std::memcpy(static_cast<void*>(&stored), &code, sizeof code);
        float const x = format::decode(code), of_cuda = static_cast<float>(stored);
        std::uint32_t const size = i & ((1u << (of.exponent_bits + of.mantissa_bits)) - 1);
        if (size <= of.largest()) {
            wrong += static_cast<double>(x) != of.value(i) || bits_of(x) != bits_of(of_cuda) || format::encode(x) != code;
            ++numbers;
        } else if (of.has_infinity && size == of.largest() + 1) {
            wrong += !std::isinf(x) || x != of_cuda || format::encode(x) != (of.saturates ? code - 1 : code);
        } else {
            wrong += !std::isnan(x) || !std::isnan(of_cuda) || !std::isnan(format::decode(format::encode(x)));
        }
    }
    CHECK(wrong == 0);
    CHECK(numbers == 2 * (of.largest() + 1));
}

TEST_CASE_TEMPLATE("float_format: a float becomes the nearest number, as CUDA has it", Storage, __half, __nv_bfloat16,
                   __nv_fp8_e4m3, __nv_fp8_e5m2) {
    using format = typename format_of<Storage>::type;
    definition const of = defined<Storage>();
    std::size_t wrong = 0;
    for (float const x : interesting<Storage>()) {
        auto const code = format::encode(x);
        if (std::isnan(x)) {
            wrong += !std::isnan(format::decode(code));
        } else if (code != of.nearest(x) || code != code_of(static_cast<Storage>(x))) {
            ++wrong;
            INFO("of ", x, ": ", int{code}, ", nearest ", of.nearest(x), ", CUDA's ", int{code_of(static_cast<Storage>(x))});
            CHECK_MESSAGE(wrong > 5, "wrong"); // shows the first five
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("float_format: rows of every length are stored and loaded as number by number", Storage, __half,
                   __nv_bfloat16, __nv_fp8_e4m3, __nv_fp8_e5m2) {
    using format = typename format_of<Storage>::type;
    std::vector<float> const row = interesting<Storage>();
    std::size_t wrong = 0;
    for (float const scale : {1.f, -0.75f, 1e-3f})
        for (std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{65},
                                   std::size_t{1000}, row.size() - 3}) {
            std::vector<Storage> stored(length + 1), by_integers(length + 1);
            std::vector<float> loaded(length + 1, 5.f);
            store_row(stored.data(), row.data() + 3, length, scale);
            load_row(loaded.data(), stored.data(), length, scale);
            for (std::size_t i = 0; i != length; ++i) {
                auto const code = format::encode(row[i + 3] / scale), found = code_of(stored[i]);
                float const back = format::decode(code) * scale;
                bool const same = std::isnan(back) ? std::isnan(format::decode(found)) && std::isnan(loaded[i])
                                                   : code == found && bits_of(back) == bits_of(loaded[i]);
                wrong += !same;
            }
            wrong += code_of(stored[length]) != 0 || loaded[length] != 5.f; // what lies behind stays
        }
    CHECK(wrong == 0);
}

TEST_CASE("float_format: a format that is not known converts itself, also from double") {
    std::vector<double> const row{1.0 / 3, 1e300, -2, 0};
    std::vector<float> floats(4);
    std::vector<__half> halves(4);
    std::vector<double> back(4);
    store_row(floats.data(), row.data(), 4, 2.0);
    CHECK(floats[0] == static_cast<float>(1.0 / 6));
    load_row(back.data(), floats.data(), 4, 2.0);
    CHECK(back[2] == -2);
    store_row(halves.data(), row.data(), 4, 1.0);
    load_row(back.data(), halves.data(), 4, 1.0);
    CHECK(std::isinf(back[1]));
    CHECK(back[0] == 0.333251953125);
}
