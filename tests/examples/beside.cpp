// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does 'replay' say which call site grew between two recordings?

#include "../../examples/replay/beside.hpp"
#include "../../examples/replay/program.hpp"
#include "../../examples/replay/recorded_trace.hpp"
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <vector>

namespace {

using weir::trace::event_kind;

struct call {
    char const* function; // null: a free
    std::uint32_t line;
    std::uint64_t address, bytes;
};

replay::trace recorded(std::string const& name, std::vector<call> const& calls) {
    replay::program_maker maker;
    for (call const& each : calls) {
        weir::trace::event one;
        one.kind = each.function ? event_kind::allocate : event_kind::free;
        one.address = each.address;
        one.bytes = each.bytes;
        one.site = each.function ? maker.frame(0, "src/a.cpp", each.function, each.line) : 0;
        one.stream = maker.stream(0);
        one.source = maker.source("pool", 0);
        one.thread = maker.thread(0);
        maker.add(one);
    }
    replay::program const of = maker.made();
    replay::trace made = replay::trace_of(of, name);
    made.name = name;
    made.of = std::make_shared<replay::program const>(of);
    return made;
}

} // namespace

TEST_CASE("beside: which call sites grew, shrank, moved and are new") {
    // At the peak of 'old' the blocks of grow and steady are live, after shrink's went.
    replay::trace const old = recorded("old", {{"shrink<T>", 5, 1, 3000}, {nullptr, 0, 1, 3000}, {"grow", 7, 2, 4000}, {"steady", 9, 3, 500}});
    replay::trace const now = recorded("now", {{"grow", 8, 2, 4000}, {"grow", 8, 4, 6000}, {"steady", 9, 3, 500}, {nullptr, 0, 4, 6000},
                                               {"shrink<T>", 5, 1, 1000}, {"fresh", 20, 5, 70}});
    std::vector<replay::site_change> const changes = replay::changes_between(old, now);
    struct {
        char const* site;
        std::uint64_t before[3], after[3]; // peak, at the program's peak, blocks
    } const expected[] = {
        {"a.cpp:7, grow", {4000, 4000, 1}, {10000, 10000, 2}}, // although its line is another one
        {"a.cpp:5, shrink<T>", {3000, 0, 1}, {1000, 0, 1}},
        {"a.cpp:20, fresh", {0, 0, 0}, {70, 0, 1}},
        {"a.cpp:9, steady", {500, 500, 1}, {500, 500, 1}},
    };
    REQUIRE(changes.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
        CAPTURE(expected[i].site);
        CHECK(changes[i].site == expected[i].site);
        auto const same = [](replay::site_use const& is, std::uint64_t const (&due)[3]) {
            CHECK(is.peak_bytes == due[0]);
            CHECK(is.at_peak_bytes == due[1]);
            CHECK(is.blocks == due[2]);
        };
        same(changes[i].before, expected[i].before);
        same(changes[i].after, expected[i].after);
    }
    std::string const table = replay::as_table(changes, old, now, 2), card = replay::as_card(changes, old, now, 200);
    CHECK(table.find("now beside old: 10.3 KiB requested at the peak, 4.39 KiB before (+5.86 KiB)\n") == 0);
    CHECK(table.find("+5.86 KiB") != std::string::npos);
    CHECK(table.find("-1.95 KiB") != std::string::npos);
    CHECK(table.find("  and 2 call sites that changed less\n") != std::string::npos);
    CHECK(card.find("<code>a.cpp:5, shrink&lt;T&gt;</code></th><td data-name=\"peak before\">2.93 KiB<") != std::string::npos);
    CHECK(card.find("<td data-name=\"grew by\">-1.95 KiB<") != std::string::npos);
}

TEST_CASE("beside: a trace without call sites is one site") {
    replay::trace const plain = replay::parse_trace("op,id,bytes,stream,t_us\na,0,1000,0,0\n", "a.csv");
    std::vector<replay::site_change> const changes = replay::changes_between(plain, plain);
    REQUIRE(changes.size() == 1);
    CHECK(changes[0].site == "not known");
    CHECK(changes[0].after.at_peak_bytes == 1000);
}
