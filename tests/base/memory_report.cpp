// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <doctest/doctest.h>
#include <random>
#include <string>
#include <type_traits>
#include <vector>
#include <weir/base/memory_report.hpp>

using weir::largest_blocks;
using weir::live_block;

static_assert(std::is_nothrow_copy_constructible_v<largest_blocks> &&
              std::is_nothrow_copy_assignable_v<largest_blocks>);

namespace {

void const* at(std::uintptr_t address) {
    return reinterpret_cast<void const*>(address);
}

} // namespace

TEST_CASE("memory_report: is empty at first, and keeps what fits in order of size") {
    largest_blocks list;
    CHECK(list.empty());
    CHECK(list.begin() == list.end());
    list.offer(live_block{at(16), 5});
    list.offer(live_block{at(32), 7});
    list.offer(live_block{at(48), 6});
    REQUIRE(list.size() == 3);
    CHECK(list[0].bytes == 7);
    CHECK(list[0].address == at(32));
    CHECK(list[1].bytes == 6);
    CHECK(list[2].bytes == 5);
    CHECK_FALSE(list.empty());
}

TEST_CASE("memory_report: an address is there once, however many offer it") {
    largest_blocks list;
    for (int i = 0; i < 3; ++i)
        for (std::uintptr_t each = 1; each <= 20; ++each)
            list.offer(live_block{at(16 * each), each});
    REQUIRE(list.size() == largest_blocks::most);
    for (std::size_t i = 0; i < list.size(); ++i)
        CHECK(list[i].bytes == 20 - i);
}

TEST_CASE("memory_report: the ten largest of any, in any order") {
    std::mt19937_64 draw(7);
    for (std::size_t const count :
         {std::size_t{1}, std::size_t{9}, std::size_t{10}, std::size_t{11}, std::size_t{300}}) {
        largest_blocks list;
        std::vector<std::size_t> all;
        for (std::uintptr_t i = 0; i < count; ++i) {
            all.push_back(draw() % 50);
            list.offer(live_block{at(16 * (i + 1)), all.back()});
        }
        std::sort(all.rbegin(), all.rend());
        REQUIRE(list.size() == std::min(count, largest_blocks::most));
        std::size_t i = 0;
        for (live_block const& each : list)
            CHECK(each.bytes == all[i++]);
    }
}

TEST_CASE("memory_report: an address reads as printf's") {
    for (std::uintptr_t each : {std::uintptr_t{1}, std::uintptr_t{0xABCDEF0}, UINTPTR_MAX, UINTPTR_MAX / 3}) {
        char said[32];
        std::snprintf(said, sizeof said, "%p", at(each));
        CHECK(std::string(weir::base::address_text(at(each))) == said);
    }
    CHECK(weir::base::address_text(nullptr) == "0x0");
}
