// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstring>
#include <doctest/doctest.h>
#include <type_traits>
#include <weir/base/call_site.hpp>

namespace {

struct asked {
    weir::call_site where;
    explicit asked(int, weir::call_site here = weir::call_site::here()) : where(here) {}
};
template <class T>
weir::call_site of_template(T, weir::call_site where = weir::call_site::here()) {
    return where;
}

} // namespace

TEST_CASE("call_site: is the line, the file and the function of whoever calls") {
    unsigned const before = __LINE__;
    asked const first(1);
    weir::call_site const second = of_template(1);
    CHECK(first.where.line == before + 1);
    CHECK(second.line == before + 2);
    for (weir::call_site const& each : {first.where, second}) {
        CHECK(std::strcmp(each.file, __FILE__) == 0);
        CHECK(std::strcmp(each.function, __func__) == 0);
    }
    CHECK(weir::call_site::unknown().line == 0);
    CHECK(*weir::call_site::unknown().file == '\0');
    CHECK_FALSE(std::is_default_constructible_v<weir::call_site>);
}
