// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <algorithm>
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <doctest/doctest.h>
#include <limits>
#include <numeric>
#include <string>
#include <support/sentence.hpp>
#include <type_traits>
#include <vector>
#include <weir/converting/converting_view.hpp>

template <class Element, class Storage>
using converting_iterator = weir::converting::iterator<Element, Storage>;
using weir::converting_view;

static_assert(std::is_trivially_copyable_v<converting_view<float, __half>>); // goes to kernels by value
static_assert(std::is_trivially_copyable_v<converting_iterator<float, __half>>);
static_assert(std::is_convertible_v<converting_view<float, __half>, converting_view<float, __half const>>);
static_assert(!std::is_convertible_v<converting_view<float, __half const>, converting_view<float, __half>>);
static_assert(!std::is_convertible_v<converting_iterator<float, __half const>, converting_iterator<float, __half>>);
static_assert(!std::is_assignable_v<decltype(converting_view<float, __half const>()[0]), float>);
static_assert(std::is_same_v<std::iterator_traits<converting_iterator<float, __half>>::value_type, float>);
#ifdef __cpp_lib_ranges
static_assert(std::random_access_iterator<converting_iterator<float, __half>>);
static_assert(std::random_access_iterator<converting_iterator<float, __half const>>);
static_assert(std::indirectly_writable<converting_iterator<float, __half>, float>);
#endif

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// What a float is once it was stored in a row of one number.
template <class Storage>
float stored(float value, float scale = 1) {
    Storage memory{};
    converting_view<float, Storage> const row(&memory, 1, scale);
    row[0] = value;
    return row[0];
}

} // namespace

TEST_CASE("converting_view: what is written is rounded, what is too large becomes infinite or the largest, NaN stays") {
    struct {
        float value, half, bfloat16, e4m3, e5m2;
    } const table[] = {
        {0.f, 0.f, 0.f, 0.f, 0.f},
        {-1.5f, -1.5f, -1.5f, -1.5f, -1.5f},
        {0.1f, 0.0999755859375f, 0.10009765625f, 0.1015625f, 0.09375f},
        {2049.f, 2048.f, 2048.f, 448.f, 2048.f}, // a tie, to even
        {2051.f, 2052.f, 2048.f, 448.f, 2048.f},
        {65519.f, 65504.f, 65536.f, 448.f, 57344.f}, // the largest that is finite as half
        {65520.f, infinity, 65536.f, 448.f, 57344.f},
        {-1e30f, -infinity, -1.00025555e30f, -448.f, -57344.f},
        {infinity, infinity, infinity, 448.f, 57344.f},
        {5.9604645e-8f, 5.9604645e-8f, 5.9604645e-8f, 0.f, 0.f}, // half's least
        {2.9802322e-8f, 0.f, 2.9802322e-8f, 0.f, 0.f},           // half of that: a tie
        {0.001953125f, 0.001953125f, 0.001953125f, 0.001953125f, 0.001953125f}, // e4m3's least
    };
    for (auto const& row : table) {
        CAPTURE(row.value);
        CHECK(stored<__half>(row.value) == row.half);
        CHECK(stored<__nv_bfloat16>(row.value) == row.bfloat16);
        CHECK(stored<__nv_fp8_e4m3>(row.value) == row.e4m3);
        CHECK(stored<__nv_fp8_e5m2>(row.value) == row.e5m2);
    }
    float const nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(stored<__half>(nan)));
    CHECK(std::isnan(stored<__nv_bfloat16>(nan)));
    CHECK(std::isnan(stored<__nv_fp8_e4m3>(nan)));
    CHECK(std::isnan(stored<__nv_fp8_e5m2>(nan)));
}

TEST_CASE("converting_view: a scale moves the range") {
    CHECK(stored<__nv_fp8_e4m3>(1e6f) == 448);
    CHECK(stored<__nv_fp8_e4m3>(1e6f, 1e6f / 448) == doctest::Approx(1e6f));
    CHECK(stored<__nv_fp8_e4m3>(1e-6f, 1e-6f) == doctest::Approx(1e-6f));
    CHECK(stored<__half>(3, -2) == 3);
    CHECK(stored<double>(3, 2) == 3); // any type that converts
}

TEST_CASE("converting_view: a scale is finite and not 0, and numbers have an address") {
    std::vector<__half> row(2);
    for (float const scale : {0.f, -0.f, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()})
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { converting_view<float, __half>(row.data(), 2, scale); }),
                   "a scale is a finite number other than 0");
    CHECK_SAYS(support::sentence_of<weir::usage_error>([] { converting_view<float, __half>(nullptr, 2); }), "null");
    CHECK(converting_view<float, __half>(nullptr, 0).empty());
    CHECK(converting_view<float, __half>().size() == 0);
}

TEST_CASE("converting_view: is a row to standard algorithms, for reading and writing") {
    std::vector<__half> memory(100);
    converting_view<float, __half> const all(memory);
    std::iota(all.begin(), all.end(), 1.f);
    CHECK(std::accumulate(all.begin(), all.end(), 0.f) == 5050);
    std::reverse(all.begin(), all.end());
    CHECK(all[0] == 100);
    std::sort(all.begin(), all.end());
    converting_view<float, __half const> const read = all;
    CHECK(std::is_sorted(read.begin(), read.end()));
    CHECK(*std::max_element(read.begin(), read.end()) == 100);
    std::transform(read.begin(), read.end(), all.begin(), [](float x) { return 2 * x; });
    CHECK(read[99] == 200);
    all[0] += 5;
    all[0] *= 4;
    all[0] -= 8;
    all[0] /= 2;
    CHECK(read[0] == 10);
    all[1] = all[0];
    CHECK(read[1] == 10);
    CHECK(read.size_bytes() == 200);
    converting_view<float, __half> const part = all.subview(10, 3);
    CHECK(part.size() == 3);
    CHECK(part[2] == 26);
    converting_view<float, __half const> const of_const(std::as_const(memory), 2);
    CHECK(of_const[0] == 20);
    CHECK(of_const.scale() == 2);
}

TEST_CASE("converting_view: a copy keeps the scale, however it is made") {
    std::vector<__half> memory(4);
    converting_view<float, __half> all(memory, 4);
    converting_view<float, __half> const copy(all);
    auto const captured = [all] { return all; };
    converting_view<float, __half const> const read(all), assigned = all;
    CHECK(copy.scale() == 4);
    CHECK(captured().scale() == 4);
    CHECK(read.scale() == 4);
    CHECK(assigned.scale() == 4);
    CHECK(all.subview(1, 2).scale() == 4);
    bool const of_other_elements = std::is_constructible_v<converting_view<double, __half>, converting_view<float, __half>&>;
    CHECK_FALSE(of_other_elements);
}

TEST_CASE("converting_view: its iterators walk as pointers do") {
    std::vector<__half> memory(9);
    converting_view<float, __half> const all(memory, 4);
    std::iota(all.begin(), all.end(), 0.f);
    auto i = all.begin();
    CHECK(*i++ == 0);
    CHECK(*++i == 2);
    CHECK(*i-- == 2);
    CHECK(*--i == 0);
    i += 5;
    i -= 1;
    CHECK(*i == 4);
    CHECK(*(2 + i) == 6);
    CHECK(*(i - 2) == 2);
    CHECK(i[3] == 7);
    CHECK(all.end() - i == 5);
    converting_iterator<float, __half const> const read = i;
    CHECK(*read == 4);
    CHECK(read.base() == memory.data() + 4);
    CHECK(read.scale() == 4);
    CHECK((i == i && i != all.end() && i < all.end() && all.end() > i && i <= i && i >= i));
    CHECK(converting_iterator<float, __half>().base() == nullptr);
}
