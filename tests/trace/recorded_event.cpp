// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstring>
#include <doctest/doctest.h>
#include <weir/trace/recorded_event.hpp>

using weir::trace::event;
using weir::trace::event_kind;
using weir::trace::hand_over_order;

TEST_CASE("recorded_event: all zeros is no event") {
    unsigned char zeros[sizeof(event)] = {};
    event const none;
    CHECK(std::memcmp(&none, zeros, sizeof none) == 0);
    CHECK(none.kind == event_kind::none);
}

TEST_CASE("recorded_event: the numbers of kinds are those that stand in files") {
    struct {
        event_kind kind;
        unsigned number;
    } const cases[] = {
        {event_kind::none, 0},     {event_kind::allocate, 1},   {event_kind::free, 2},         {event_kind::refuse, 3},
        {event_kind::used_on, 4},  {event_kind::last_used_on, 5}, {event_kind::mark, 6},       {event_kind::rewind, 7},
        {event_kind::clear, 8},    {event_kind::stream_ends, 9}, {event_kind::settle, 10},     {event_kind::trim, 11},
        {event_kind::reserve, 12}, {event_kind::set_limit, 13}, {event_kind::suspend, 14},     {event_kind::resume, 15},
        {event_kind::grow, 16},    {event_kind::extend, 17},    {event_kind::move_from, 18},   {event_kind::move_to, 19},
        {event_kind::give_back, 20}, {event_kind::withdraw, 21}, {event_kind::restore, 22},    {event_kind::hand_over, 23},
        {event_kind::wait, 24},    {event_kind::begin_scope, 25}, {event_kind::end_scope, 26},
    };
    unsigned next = 0;
    for (auto const& each : cases) {
        CHECK(static_cast<unsigned>(each.kind) == each.number);
        CHECK(each.number == next++);
    }
    CHECK(next == weir::trace::event_kinds);
}

TEST_CASE("recorded_event: what a stream waits for, also in files of those who did not tell, or tell more") {
    struct {
        std::uint8_t told;
        hand_over_order order;
    } const cases[] = {
        {0, hand_over_order::not_known}, {1, hand_over_order::none}, {2, hand_over_order::wait}, {3, hand_over_order::not_known}, {63, hand_over_order::not_known}};
    for (auto const& each : cases) {
        event one;
        one.log2_alignment = each.told;
        CHECK(order_of(one) == each.order);
    }
}
