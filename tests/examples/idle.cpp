// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does 'replay' say why memory is free?

#include "../../examples/replay/idle.hpp"
#include "../../examples/replay/program.hpp"
#include "../../examples/replay/report.hpp"
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <vector>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace {

using replay::idle_meter;
using weir::trace::event_kind;

constexpr std::uint64_t MiB = 1024 * 1024, page = 2 * MiB, base = 1024 * MiB;

weir::trace::event event_of(event_kind kind, std::uint64_t at, std::uint64_t bytes, std::uint64_t stream = 0) {
    weir::trace::event one;
    one.kind = kind;
    one.address = base + at;
    one.bytes = bytes;
    one.stream = stream;
    return one;
}

/// In MiB, in the order of the causes.
std::vector<std::uint64_t> of(idle_meter const& meter) {
    std::vector<std::uint64_t> out;
    for (std::uint64_t const each : meter.now().of)
        out.push_back(each / MiB);
    return out;
}

using in_MiB = std::vector<std::uint64_t>;

} // namespace

TEST_CASE("idle: each cause, one after the other") {
    idle_meter meter;
    struct {
        weir::trace::event one;
        in_MiB expected; // another stream's, beside a lone block, holes, kept
    } const steps[] = {
        {event_of(event_kind::grow, 0, 4 * page), {0, 0, 0, 8}},
        {event_of(event_kind::allocate, 0, MiB / 2), {0, 1, 0, 6}},            // 1.5 MiB beside it
        {event_of(event_kind::allocate, MiB, MiB / 2), {0, 0, 1, 6}},          // now two share the page
        {event_of(event_kind::allocate, page, 3 * MiB), {0, 0, 2, 2}},         // it ends in the middle of a page, which is half used
        {event_of(event_kind::free, page, 3 * MiB), {0, 0, 1, 6}},             // by its own stream
        {event_of(event_kind::allocate, 3 * page, MiB, 1), {3, 0, 2, 1}},      // another one may not have it yet
        {event_of(event_kind::hand_over, page, MiB, 1), {2, 0, 2, 2}},         // a part of it changes hands
        {event_of(event_kind::settle, 0, 0), {0, 0, 2, 4}},                    // and now nobody uses it
        {event_of(event_kind::free, 0, MiB / 2, 0), {0, 1, 1, 4}},             // half a MiB another stream's: less than one
        {event_of(event_kind::withdraw, page, 2 * page), {0, 1, 1, 0}},
        {event_of(event_kind::restore, page, page), {0, 1, 1, 2}},
        {event_of(event_kind::give_back, page, page), {0, 1, 1, 0}},
    };
    for (auto const& each : steps) {
        CAPTURE(static_cast<int>(each.one.kind));
        CAPTURE(each.one.address - base);
        meter.add(each.one);
        CHECK(of(meter) == each.expected);
    }
    CHECK(meter.held_bytes() == 2 * page);
}

TEST_CASE("idle: the causes are what is held less what is handed out") {
    idle_meter meter;
    std::uint64_t seed = 5, live_bytes = 0;
    auto const random = [&](std::uint64_t below) { return (seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33 & (below - 1); };
    std::vector<std::uint64_t> live(256, 0); // slots of 256 KiB
    meter.add(event_of(event_kind::grow, 0, 64 * MiB));
    for (int i = 0; i < 4000; ++i) {
        std::uint64_t const slot = random(256), bytes = 1 + random(256) * 1024;
        if (live[slot] == 0)
            meter.add(event_of(event_kind::allocate, slot * MiB / 4, bytes, random(4)));
        else
            meter.add(event_of(event_kind::free, slot * MiB / 4, live[slot], random(4)));
        live_bytes = live[slot] == 0 ? live_bytes + bytes : live_bytes - live[slot];
        live[slot] = live[slot] == 0 ? bytes : 0;
        REQUIRE(meter.now().all() == 64 * MiB - live_bytes);
    }
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("idle: a replay through weir's pool, and what the recorded program held") {
    simulated_cuda::world const device;
    std::string rows = "op,id,bytes,stream,t_us\n";
    for (int i = 0; i < 8; ++i)
        rows += "a," + std::to_string(i) + ",1048576,0," + std::to_string(i) + '\n';
    for (int i = 0; i < 8; i += 2)
        rows += "f," + std::to_string(i) + ",1048576,0," + std::to_string(10 + i) + '\n';
    rows += "a,9,4194304,1,1000\n";
    replay::trace t = replay::parse_trace(rows, "a.csv");
    double last = -1;
    replay::idle_report const seen = replay::idle_of_replay(t, replay::no_limit, [&](double part) { last = part; });
    CHECK(last == 0);
    CHECK(seen.over_time.size() == replay::idle_report::columns);
    // Every second MiB of eight.
    CHECK(seen.over_time[100].of[0] == 0);
    CHECK(seen.over_time[100].all() >= 4 * MiB);
    CHECK(seen.over_time.back().all() == seen.peak_held_bytes - 8 * MiB);
    CHECK(seen.peak_held_bytes >= 12 * MiB);
    CHECK(seen.at_peak.all() == seen.peak_held_bytes - 8 * MiB);
    CHECK(seen.average[1] + seen.average[2] > 3.5 * MiB);
    CHECK(replay::as_table({seen}).find("free in device_pool when it held most, ") == 2);
    CHECK(replay::idle_of_recording(t).over_time.empty()); // the trace says nothing
    CHECK(replay::as_table({replay::idle_of_recording(t)}).empty());
}
#endif
