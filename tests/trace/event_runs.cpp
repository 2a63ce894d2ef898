// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <vector>
#include <weir/trace/event_runs.hpp>

using weir::trace::event;
using weir::trace::event_kind;

namespace {

event allocation(std::uint64_t address, std::uint64_t ticks = 0) {
    event one;
    one.kind = event_kind::allocate;
    one.address = address;
    one.ticks = ticks;
    return one;
}

} // namespace

TEST_CASE("event_runs: runs are merged by time, and a free comes first") {
    std::mt19937 random(4);
    std::vector<std::vector<event>> lanes(5);
    weir::base::growing_array<weir::trace::event_run> runs;
    std::size_t count = 0;
    for (auto& lane : lanes) {
        std::uint64_t ticks = random() % 100;
        for (std::size_t i = 0, size = 1 + random() % 50; i < size; ++i, ++count) {
            lane.push_back(allocation(count));
            lane.back().ticks = ticks += random() % 4;
            lane.back().kind = random() % 2 == 0 ? event_kind::allocate : event_kind::free;
        }
        runs.push_back({lane.data(), lane.data() + lane.size(), runs.size()});
    }
    std::vector<event> merged;
    weir::trace::take_in_order(runs, [&](event const& each) { merged.push_back(each); });
    REQUIRE(merged.size() == count);
    CHECK(std::is_sorted(merged.begin(), merged.end(), [](event const& a, event const& b) { return a.ticks < b.ticks; }));

    event const allocates = allocation(1);
    event frees = allocates;
    frees.kind = event_kind::free;
    runs.clear();
    runs.push_back({&allocates, &allocates + 1, 0});
    runs.push_back({&frees, &frees + 1, 1});
    merged.clear();
    weir::trace::take_in_order(runs, [&](event const& each) { merged.push_back(each); });
    CHECK(merged[0].kind == event_kind::free);
}

TEST_CASE("event_runs: where the time goes back a run ends, and events of one time stay in their order") {
    event const written[] = {allocation(1, 10), allocation(2, 30), allocation(3, 20), allocation(4, 20), allocation(5, 5)};
    weir::base::growing_array<weir::trace::event_run> runs;
    weir::trace::add_runs(runs, written, written + 5);
    CHECK(runs.size() == 3);
    std::vector<std::uint64_t> order;
    weir::trace::take_in_order(runs, [&](event const& each) { order.push_back(each.address); });
    CHECK(order == std::vector<std::uint64_t>{5, 1, 3, 4, 2});
    weir::trace::add_runs(runs, written, written);
}
