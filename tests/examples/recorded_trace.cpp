// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does 'replay' read what weir recorded, and what it lacks?

#include "../../examples/replay/program.hpp"
#include "../../examples/replay/recorded_trace.hpp"
#include "../../examples/replay/trace.hpp"
#include "../trace/events.hpp"
#include <doctest/doctest.h>
#include <string>
#include <vector>

namespace {

using weir::trace::event;
using weir::trace::event_kind;

event of(event_kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream = 0x5500, std::uint32_t thread = 1) {
    static std::uint64_t ticks = 0;
    event one;
    one.kind = kind;
    one.address = address;
    one.bytes = bytes;
    one.stream = stream;
    one.thread = thread;
    one.ticks = ticks += 1000;
    return one;
}

std::string file_of(std::vector<event> const& events) {
    trace_tests::writer all;
    for (event const& each : events)
        all.add(each);
    std::vector<unsigned char> const bytes = all.file();
    return std::string(bytes.begin(), bytes.end());
}

std::string complaint(std::string const& bytes) {
    try {
        static_cast<void>(replay::parse_trace(bytes, "a.weir"));
    } catch (replay::bad_input const& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("recorded_trace: blocks, streams, the peak and the name") {
    replay::trace const t = replay::parse_trace(
        file_of({of(event_kind::allocate, 512, 100), of(event_kind::allocate, 1024, 50, 0x6600), of(event_kind::refuse, 0, 1000),
                 of(event_kind::free, 512, 100, 0x6600), of(event_kind::allocate, 512, 20), of(event_kind::used_on, 512, 0)}),
        "folder/a.weir.gz");
    CHECK(t.name == "a");
    CHECK(t.remark == "");
    CHECK(t.blocks == 3);
    CHECK(t.streams == 2);
    CHECK(t.peak_requested_bytes == 150);
    REQUIRE(t.events.size() == 4);
    CHECK(t.events[2].is_free);
    CHECK(t.events[2].block == 0);
    CHECK(t.events[2].bytes == 100);
    CHECK(t.events[2].stream == 1);
    CHECK(t.events[2].allocated_on == 0);
    CHECK(t.events[3].block == 2);
    CHECK(t.microseconds[3] >= t.microseconds[2]);
}

TEST_CASE("recorded_trace: a rewind ends what came after its mark, and a clear ends all") {
    replay::trace const t = replay::parse_trace(
        file_of({of(event_kind::allocate, 512, 100), of(event_kind::mark, 0, 1), of(event_kind::allocate, 1024, 50),
                 of(event_kind::allocate, 2048, 7), of(event_kind::free, 2048, 7), of(event_kind::rewind, 0, 1),
                 of(event_kind::allocate, 4096, 60), of(event_kind::clear, 0, 0), of(event_kind::allocate, 8192, 1),
                 of(event_kind::rewind, 0, 9), of(event_kind::allocate, 512, 150)}), // whose mark is not in the recording
        "a.weir");
    std::string said;
    for (replay::event const& each : t.events)
        said += (each.is_free ? " f" : " a") + std::to_string(each.bytes);
    CHECK(said == " a100 a50 a7 f7 f50 a60 f60 f100 a1 f1 a150");
    CHECK(t.peak_requested_bytes == 160);
    CHECK(t.remark == "");
}

TEST_CASE("recorded_trace: a thread's own default stream is a stream of that thread") {
    replay::trace const t = replay::parse_trace(file_of({of(event_kind::allocate, 512, 1, 2, 1), of(event_kind::allocate, 1024, 1, 2, 7),
                                                        of(event_kind::allocate, 2048, 1, 1, 1), of(event_kind::allocate, 4096, 1, 1, 7)}),
                                                "a.weir");
    CHECK(t.streams == 3);
}

TEST_CASE("recorded_trace: what the recording lacks is made good, and told") {
    replay::trace const t = replay::parse_trace(
        file_of({of(event_kind::free, 4096, 9), of(event_kind::allocate, 512, 100), of(event_kind::allocate, 512, 30),
                 of(static_cast<event_kind>(weir::trace::event_kinds), 0, 0), of(event_kind::free, 512, 30)}),
        "a.weir");
    CHECK(t.remark == "1 event is of a kind that this weir does not know; 1 free is of a block whose allocation is not in the "
                      "recording");
    REQUIRE(t.events.size() == 4);
    CHECK(t.events[1].is_free);
    CHECK(t.events[1].bytes == 100);
    CHECK(t.peak_requested_bytes == 100);
}

TEST_CASE("recorded_trace: the blocks of several pools are replayed together, and that is told") {
    replay::program_maker maker;
    std::uint64_t address = 0;
    for (char const* const pool : {"frames", "nodes", "frames", "labels"})
        for (event_kind const kind : {event_kind::grow, event_kind::allocate}) {
            event one;
            one.kind = kind;
            one.address = address += 512;
            one.bytes = 512;
            one.stream = maker.stream(7);
            one.thread = maker.thread(1);
            one.source = maker.source(pool, 0);
            maker.add(one);
        }
    replay::trace const t = replay::trace_of(maker.made(), "a.weir");
    CHECK(t.remark == "the blocks of 3 pools are replayed together, through one: 'frames', 'nodes', ...");
    REQUIRE(t.held);
    CHECK(t.held->who == "3 pools, as recorded");
}

TEST_CASE("recorded_trace: a file that was cut off is replayed as far as it goes") {
    trace_tests::writer all;
    all.add(of(event_kind::allocate, 512, 100));
    all.end_segment();
    all.add(of(event_kind::allocate, 1024, 100));
    std::vector<unsigned char> const bytes = all.file();
    replay::trace const t = replay::parse_trace(std::string(bytes.begin(), bytes.end() - 3), "a.weir");
    CHECK(t.events.size() == 1);
    CHECK(t.remark == "the recording was cut off: 1 event before that can be read");
}

TEST_CASE("recorded_trace: what cannot be replayed is refused with a sentence") {
    CHECK(complaint(file_of({of(event_kind::settle, 0, 0)})) ==
          "a.weir: the recording has no allocations; record the program again, with the recorder started");
    std::string other = file_of({of(event_kind::allocate, 512, 100)});
    CHECK(complaint(other) == "");
    other[8] = 7;
    CHECK(complaint(other).find("a.weir: weir: the recording is of version 7") == 0);
    std::vector<event> many;
    for (std::uint64_t i = 0; i < 257; ++i)
        many.push_back(of(event_kind::allocate, 512 * (i + 1), 100, 0x5500 + i));
    CHECK(complaint(file_of(many)).find("more than the 256 streams") != std::string::npos);
}

TEST_CASE("recorded_trace: who asked for a block, and the named parts of the program") {
    replay::program_maker maker;
    std::uint64_t ticks = 0;
    auto const add = [&](event_kind kind, std::uint64_t address, std::string const& name, std::uint64_t thread = 1) {
        event one;
        one.kind = kind;
        one.ticks = ticks += 1000;
        one.address = address;
        one.bytes = 8;
        one.stream = maker.stream(7);
        one.thread = maker.thread(thread);
        one.source = maker.source("pool", 0);
        one.site = name.empty() ? 0 : maker.frame(0, "", name, 0);
        maker.add(one);
    };
    add(event_kind::end_scope, 0, "early"); // its begin was lost
    add(event_kind::begin_scope, 0, "step");
    add(event_kind::allocate, 512, "f");
    add(event_kind::begin_scope, 0, "lost"); // its end was
    add(event_kind::begin_scope, 0, "other", 2);
    add(event_kind::allocate, 1024, "", 2);
    add(event_kind::end_scope, 0, "step");
    add(event_kind::free, 1024, "");
    add(event_kind::free, 512, "");
    add(event_kind::end_scope, 0, "other", 2);
    replay::program const whole = maker.made();
    replay::trace const t = replay::trace_of(whole, "a");
    auto const name = [&](std::uint32_t site) { return site == 0 ? std::string() : std::string(whole.what.frames[site - 1].function.c_str()); };
    REQUIRE(t.origins.size() == 2);
    CHECK(name(t.origins[0].site) == "f");
    CHECK(t.origins[0].thread == 0);
    CHECK(name(t.origins[1].site) == "");
    CHECK(t.origins[1].thread == replay::origin::several);
    REQUIRE(t.parts.size() == 2);
    struct {
        char const* name;
        std::size_t begin, end;
        std::uint64_t end_us;
    } const expected[] = {{"step", 0, 2, 7}, {"other", 1, 4, 10}};
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(name(t.parts[i].name) == expected[i].name);
        CHECK(t.parts[i].begin == expected[i].begin);
        CHECK(t.parts[i].end == expected[i].end);
        CHECK(t.parts[i].end_us == expected[i].end_us);
    }
}
