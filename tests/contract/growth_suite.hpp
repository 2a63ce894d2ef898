// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What every growth policy promises. A file lists its policies in WEIR_TEST_GROWTHS and includes this page last.

#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <initializer_list>
#include <random>
#include <weir/base/hole_watch.hpp>
#include <weir/contract/growth_slot.hpp>

namespace growth_contract {

/// Checks one answer of a policy, and those of its pieces where it has any.
template <class Policy>
void check_answer(std::size_t needed, std::size_t held) {
    CAPTURE(needed);
    CAPTURE(held);
    REQUIRE(Policy::next(needed, held) >= needed);
    if constexpr (weir::contract::holds<weir::contract::has_piece, Policy, weir::base::holes>) {
        for (weir::base::holes const each : {weir::base::holes::never, weir::base::holes::earlier, weir::base::holes::now})
            REQUIRE(Policy::piece(held, each) > 0);
        check_answer<typename Policy::apart>(needed, held);
    }
}

} // namespace growth_contract

TEST_CASE_TEMPLATE("growth contract: no policy asks for less than is needed, or overflows", Policy, WEIR_TEST_GROWTHS) {
    static_assert(weir::contract::require_growth<Policy>());
    for (std::size_t const needed : {std::size_t{1}, std::size_t{256}, SIZE_MAX / 2, SIZE_MAX - 1, SIZE_MAX})
        for (std::size_t const held : {std::size_t{0}, std::size_t{1}, SIZE_MAX / 2, SIZE_MAX - 1, SIZE_MAX})
            growth_contract::check_answer<Policy>(needed, held);
    std::mt19937_64 draw(2);
    for (int i = 0; i < 3000; ++i) {
        std::size_t const needed = static_cast<std::size_t>(draw() >> (draw() % 64));
        std::size_t const held = static_cast<std::size_t>(draw() >> (draw() % 64));
        growth_contract::check_answer<Policy>(needed, held);
    }
}
