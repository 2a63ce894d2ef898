// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <array>
#include <cstdint>
#include <doctest/doctest.h>
#include <string>
#include <weir/container/owned/element.hpp>

namespace {

struct pixel {
    unsigned char r, g, b;
};
struct elsewhere { // does not say where it is
    int value;
    elsewhere* operator&() { return nullptr; }
    elsewhere const* operator&() const { return nullptr; }
};

template <class T>
std::string refusal(std::size_t count) {
    try {
        static_cast<void>(weir::container::detail::element<T>::bytes_of(count));
    } catch (weir::usage_error const& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("element: bytes_of multiplies") {
    CHECK(weir::container::detail::element<char>::bytes_of(0) == 0);
    CHECK(weir::container::detail::element<char>::bytes_of(7) == 7);
    CHECK(weir::container::detail::element<pixel>::bytes_of(5) == 15);
    CHECK(weir::container::detail::element<std::array<double, 4>>::bytes_of(3) == 96);
}

TEST_CASE("element: address_of asks no operator of the element's") {
    elsewhere const here[2] = {{1}, {2}};
    CHECK(weir::container::detail::element<elsewhere>::address_of(here[1]) == here + 1);
}

TEST_CASE("element: bytes_of refuses what does not fit, and takes the most that does") {
    CHECK(weir::container::detail::element<char>::most == PTRDIFF_MAX);
    CHECK(weir::container::detail::element<char>::bytes_of(PTRDIFF_MAX) == static_cast<std::size_t>(PTRDIFF_MAX));
    CHECK(weir::container::detail::element<double>::bytes_of(weir::container::detail::element<double>::most) == PTRDIFF_MAX / 8 * 8);
    CHECK_THROWS_AS(weir::container::detail::element<char>::bytes_of(SIZE_MAX), weir::usage_error);
    CHECK_THROWS_AS(weir::container::detail::element<pixel>::bytes_of(weir::container::detail::element<pixel>::most + 1), weir::usage_error);
    CHECK(refusal<char>(SIZE_MAX) == "weir: 18446744073709551615 elements of 1 byte do not fit the address space; ask for at "
                                     "most 9223372036854775807");
    // 2^61 + 1 doubles would wrap to 8 bytes.
    CHECK(refusal<double>((std::size_t{1} << 61) + 1) ==
          "weir: 2305843009213693953 elements of 8 bytes do not fit the address space; ask for at most "
          "1152921504606846975");
}
