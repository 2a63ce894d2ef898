// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <memory>
#include <weir/base/swap.hpp>

TEST_CASE("swap: each gets what the other had, by moves") {
    auto a = std::make_unique<int>(1);
    std::unique_ptr<int> b;
    weir::base::swap_values(a, b);
    CHECK(a == nullptr);
    REQUIRE(b != nullptr);
    CHECK(*b == 1);
}
