// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <iterator>
#include <map>
#include <random>
#include <vector>
#include <weir/layer/guard/live_order.hpp>

namespace {

using weir::layer::detail::live_order;

struct block {
    std::uintptr_t address = 0;
    std::uint32_t lower = live_order::none;
    std::uint32_t higher = live_order::none;
};

} // namespace

TEST_CASE("live_order: finds what std::map finds, whatever comes and goes") {
    std::mt19937_64 draw(3);
    for (std::size_t step : {1u, 512u}) { // 1: all in order; more: at random
        std::vector<block> blocks(400);
        std::map<std::uintptr_t, std::uint32_t> expected;
        live_order order;
        for (std::uint32_t i = 0; i < blocks.size(); ++i)
            blocks[i].address = step * (i + 1);
        for (std::size_t round = 0; round < 4000; ++round) {
            auto const at = static_cast<std::uint32_t>(step == 1 ? round % 400 : draw() % 400);
            std::uintptr_t const address = blocks[at].address;
            if (expected.erase(address) != 0) {
                order.remove(blocks, at);
            } else {
                expected.emplace(address, at);
                order.insert(blocks, at);
            }
            std::uintptr_t const end = draw() % (401 * step);
            auto const next = expected.lower_bound(end);
            REQUIRE(order.last_before(blocks, end) == (next == expected.begin() ? live_order::none : std::prev(next)->second));
        }
    }
}
