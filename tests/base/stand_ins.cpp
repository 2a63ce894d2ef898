// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <type_traits>
#include <weir/base/stand_ins.hpp>

TEST_CASE("stand_ins: the host is of a type of its own, and any_device is the number of none") {
    CHECK(std::is_same_v<decltype(weir::on_host), weir::on_host_t const>);
    CHECK(std::is_empty_v<weir::on_host_t>);
    CHECK(weir::any_device < 0);
}
