// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "events.hpp"
#include <doctest/doctest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>
#include <weir/base/error.hpp>
#include <weir/trace/recording.hpp>

using trace_tests::encoded;
using trace_tests::random_events;
using trace_tests::same;
using weir::trace::event;
using weir::trace::event_encoder;
using weir::trace::event_kind;
using weir::trace::read_recording;
using weir::trace::recording;

namespace {

std::string refusal(std::vector<unsigned char> const& bytes) {
    try {
        static_cast<void>(read_recording(bytes.data(), bytes.size()));
    } catch (weir::usage_error const& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("recording: gives back every event that was encoded, for any mix of them") {
    for (unsigned seed = 1; seed <= 4; ++seed) {
        std::vector<event> const events = random_events(seed, 3000);
        recording const read = encoded(events);
        CHECK(read.complaint == "");
        REQUIRE(read.events.size() == events.size());
        for (std::size_t i = 0; i < events.size(); ++i)
            REQUIRE(same(read, read.events[i], events[i]));
    }
}

TEST_CASE("recording: numbers of any size come back") {
    std::vector<event> events;
    for (std::uint64_t const number : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{31}, std::uint64_t{32}, std::uint64_t{4096},
                                       std::uint64_t{1} << 40, std::uint64_t{1} << 63, (std::uint64_t{1} << 63) + 1, UINT64_MAX}) {
        event one;
        one.kind = event_kind::allocate;
        one.address = number;
        one.bytes = number;
        one.extra_bytes = static_cast<std::uint32_t>(number);
        one.stream = number / 2;
        one.thread = static_cast<std::uint32_t>(number);
        one.ticks = number;
        events.push_back(one);
        one.kind = event_kind::free;
        one.bytes = UINT64_MAX - number; // another size at the same address
        events.push_back(one);
    }
    recording const read = encoded(events);
    REQUIRE(read.events.size() == events.size());
    for (std::size_t i = 0; i < events.size(); ++i)
        CHECK(same(read, read.events[i], events[i]));
}

TEST_CASE("recording: blocks that come back to their addresses take at most 8 bytes an event") {
    std::mt19937 random(7);
    std::vector<event> events(20000);
    std::uint64_t ticks = 1'000'000;
    for (event& each : events) {
        std::size_t const block = random() % 4096;
        each.address = 0x7f0000000000 + block * 0x3b200;
        each.bytes = 512 * (block + 1);
        each.extra_bytes = 0;
        each.stream = 0x55550000 + block % 4 * 64;
        each.site = static_cast<std::uint32_t>(block % 20);
        each.thread = static_cast<std::uint32_t>(block % 3);
        each.kind = random() % 2 == 0 ? event_kind::allocate : event_kind::free;
        each.ticks = ticks += random() % 10000;
    }
    trace_tests::writer writer;
    for (std::size_t i = 0; i < 4096; ++i)
        writer.add(events[i]);
    std::size_t const before = writer.encoder.size();
    for (std::size_t i = 4096; i < events.size(); ++i)
        writer.add(events[i]);
    CHECK(writer.encoder.size() - before <= 8 * (events.size() - 4096));
}

TEST_CASE("recording: a stream whose end was told is another one when its handle comes again") {
    event one;
    one.kind = event_kind::allocate;
    one.stream = 77;
    event ends = one;
    ends.kind = event_kind::stream_ends;
    recording const read = encoded({one, one, ends, one});
    CHECK(read.events[0].stream == read.events[1].stream);
    CHECK(read.events[2].stream == read.events[0].stream);
    CHECK(read.events[3].stream != read.events[0].stream);
    CHECK(read.streams.size() == 2);
    CHECK(read.streams[0] == read.streams[1]);
}

TEST_CASE("recording: what was forgotten is defined again, and streams and threads stay who they are") {
    trace_tests::writer writer;
    event one;
    one.kind = event_kind::allocate;
    one.stream = 77;
    one.address = 4096;
    writer.add(one);
    writer.encoder.forget();
    writer.encoder.add_base(0);
    one.address = 8192;
    writer.add(one);
    recording const read = writer.read();
    REQUIRE(read.events.size() == 2);
    CHECK(read.events[0].stream == read.events[1].stream);
    CHECK(read.events[1].address == 8192);
    CHECK(read.streams.size() == 1);
}

TEST_CASE("recording: more addresses than slots") {
    trace_tests::writer writer;
    event one;
    one.kind = event_kind::allocate;
    for (std::uint64_t i = 1; i <= weir::trace::most_slots + 10; ++i) {
        one.address = i << 9;
        one.bytes = i;
        writer.add(one);
    }
    recording const read = writer.read();
    REQUIRE(read.events.size() == weir::trace::most_slots + 10);
    CHECK(read.events.back().address == std::uint64_t{weir::trace::most_slots + 10} << 9);
    CHECK(read.events.back().bytes == weir::trace::most_slots + 10);
}

TEST_CASE("recording: definitions, moments and losses are there") {
    trace_tests::writer writer;
    writer.encoder.add(weir::trace::moment{100, 1000, 5});
    writer.encoder.add(0, weir::trace::source{"a pool", -1, weir::memory_space::pinned, 300});
    writer.encoder.add(0, weir::trace::source{"once more", 0, weir::memory_space::host, 0});
    writer.encoder.add(1, weir::trace::frame{0, 12, "<a>.cpp", "f<\"b\">"});
    writer.encoder.add(2, weir::trace::frame{1, 0, "", std::string(100000, 'x')});
    writer.encoder.add_lost(17);
    writer.encoder.add(weir::trace::moment{300, 1100, 6});
    event one;
    one.kind = event_kind::begin_scope;
    one.site = 2;
    one.ticks = 200;
    writer.add(one);
    recording const read = writer.read();
    CHECK(read.complaint == "");
    CHECK(read.first.wall_ns == 5);
    CHECK(read.last.wall_ns == 6);
    CHECK(read.ns_of(read.events[0]) == 50);
    CHECK(read.ns_of(event{}) == 0);
    CHECK(read.lost == 17);
    REQUIRE(read.sources.size() == 1);
    CHECK(read.sources[0].name == "a pool");
    CHECK(read.sources[0].device == -1);
    CHECK(read.sources[0].space == weir::memory_space::pinned);
    CHECK(read.sources[0].limit_bytes == 300);
    REQUIRE(read.frames.size() == 2);
    CHECK(read.frames[0].file == "<a>.cpp");
    CHECK(read.frames[0].function == "f<\"b\">");
    CHECK(read.frames[1].caller == 1);
    CHECK(read.frames[1].function.size() == weir::trace::most_text_bytes);
}

TEST_CASE("recording: a file that was cut off is read up to its last whole segment, and says so") {
    trace_tests::writer writer;
    std::vector<event> const events = random_events(5, 60);
    for (std::size_t i = 0; i < events.size(); ++i) {
        writer.add(events[i]);
        if (i % 20 == 19)
            writer.end_segment();
    }
    std::vector<unsigned char> const whole = writer.file();
    std::size_t most = 0;
    for (std::size_t size = weir::trace::file_head_bytes; size < whole.size(); ++size) {
        recording const read = read_recording(whole.data(), size);
        CHECK(read.events.size() % 20 == 0);
        CHECK(read.events.size() >= most);
        most = read.events.size();
        CHECK((read.complaint.empty() || std::string(read.complaint).find("cut off") != std::string::npos));
        for (std::size_t i = 0; i < read.events.size(); ++i)
            CHECK(same(read, read.events[i], events[i]));
    }
    CHECK(most == 40);
    CHECK(read_recording(whole.data(), whole.size()).events.size() == 60);
}

TEST_CASE("recording: a damaged byte costs what stands behind it, and nothing runs astray") {
    trace_tests::writer writer;
    for (event const& each : random_events(6, 40))
        writer.add(each);
    writer.end_segment();
    std::vector<unsigned char> bytes = writer.file();
    for (std::size_t at = weir::trace::file_head_bytes; at < bytes.size(); ++at) {
        bytes[at] ^= 0x41;
        recording const read = read_recording(bytes.data(), bytes.size());
        CHECK_FALSE(read.complaint.empty());
        CHECK(read.events.size() == 0);
        bytes[at] ^= 0x41;
    }
}

TEST_CASE("recording: what no encoder writes is refused, whatever it is") { // with a right checksum
    std::mt19937 random(8);
    trace_tests::writer writer;
    for (event const& each : random_events(9, 30))
        writer.add(each);
    std::vector<unsigned char> const content = writer.content();
    int refused = 0;
    for (int i = 0; i < 20000; ++i) {
        std::vector<unsigned char> bad = content;
        for (int k = 0; k < 3; ++k)
            bad[random() % bad.size()] = static_cast<unsigned char>(random());
        bad.resize(bad.size() - random() % 3);
        recording read;
        weir::trace::event_decoder decoder(read);
        refused += !decoder.read(bad.data(), bad.size());
        for (event const& each : read.events) {
            CHECK(each.stream < read.streams.size());
            CHECK(each.thread < read.threads.size());
            CHECK(each.site <= read.frames.size());
            CHECK((each.source < read.sources.size() || each.source == 0));
        }
        for (std::size_t k = 0; k < read.frames.size(); ++k)
            CHECK(read.frames[k].caller <= k);
    }
    CHECK(refused > 1000);
}

TEST_CASE("recording: what a later version adds is passed over, and counted where it is an event") {
    trace_tests::writer writer;
    event one;
    one.kind = static_cast<event_kind>(weir::trace::event_kinds);
    writer.add(one);
    one.kind = event_kind::allocate;
    writer.add(one);
    std::vector<unsigned char> content = writer.content();
    for (unsigned const byte : {15u, 3u, 0xffu, 0xffu, 0xffu}) // a record of an unknown kind, of three bytes
        content.push_back(static_cast<unsigned char>(byte));
    recording read;
    weir::trace::event_decoder decoder(read);
    CHECK(decoder.read(content.data(), content.size()));
    CHECK(read.events.size() == 1);
    CHECK(read.unknown == 1);
}

TEST_CASE("recording: other files are refused with a sentence") {
    CHECK(refusal({}).find("are no recording of weir's") != std::string::npos);
    std::vector<unsigned char> bytes = trace_tests::writer().file();
    CHECK(refusal(bytes) == "");
    for (std::size_t size = 0; size < weir::trace::file_head_bytes; ++size)
        CHECK(refusal({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}).find("no recording") != std::string::npos);
    bytes[8] = 9;
    CHECK(refusal(bytes).find("is of version 9, and this weir reads version 1") != std::string::npos);
}

TEST_CASE("recording: events of overlapping flushes are put in order") {
    trace_tests::writer writer;
    event one;
    one.kind = event_kind::allocate;
    for (std::uint64_t const ticks : {50u, 60u}) {
        one.ticks = ticks;
        writer.add(one);
    }
    writer.encoder.add_base(55);
    one.ticks = 55;
    writer.add(one);
    recording const read = writer.read();
    REQUIRE(read.events.size() == 3);
    CHECK(read.events[1].ticks == 55);
}
