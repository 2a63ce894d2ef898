// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Byte for byte: what stands in files of this version. That all of it is read again is in tests/trace/recording.cpp.

#include "events.hpp"
#include <doctest/doctest.h>
#include <functional>
#include <string>
#include <vector>
#include <weir/trace/event_encoder.hpp>

using weir::trace::event;
using weir::trace::event_encoder;
using weir::trace::event_kind;
using content = std::vector<unsigned char>;

namespace {

event block(event_kind kind, std::uint64_t ticks, std::uint64_t address, std::uint64_t bytes, std::uint32_t extra_bytes = 0) {
    event one;
    one.kind = kind;
    one.ticks = ticks;
    one.address = address;
    one.bytes = bytes;
    one.extra_bytes = extra_bytes;
    one.log2_alignment = 8;
    return one;
}

} // namespace

TEST_CASE("event_encoder: definitions and states, byte for byte") {
    struct {
        char const* what;
        std::function<void(event_encoder&)> add;
        content bytes;
    } const cases[] = {
        {"moment", [](event_encoder& to) { to.add(weir::trace::moment{300, 1, 0}); }, {1, 0x84, 0x80, 0, 0xac, 2, 1, 0}},
        {"frame", [](event_encoder& to) { to.add(2, weir::trace::frame{1, 12, "a", "f"}); }, {2, 0x87, 0x80, 0, 2, 1, 12, 1, 'a', 1, 'f'}},
        {"a caller", [](event_encoder& to) { to.add(1, weir::trace::frame{0, 0, "", "g"}); }, {2, 0x86, 0x80, 0, 1, 0, 0, 0, 1, 'g'}},
        {"source",
         [](event_encoder& to) { to.add(0, weir::trace::source{"p", -1, weir::memory_space::pinned, 300}); },
         {3, 0x87, 0x80, 0, 0, 1, 1, 0xad, 2, 1, 'p'}},
        {"no limit", [](event_encoder& to) { to.add(1, weir::trace::source{"", 2, weir::memory_space::device, UINT64_MAX}); }, {3, 0x85, 0x80, 0, 1, 4, 0, 0, 0}},
        {"lost", [](event_encoder& to) { to.add_lost(128); }, {7, 0x82, 0x80, 0, 0x80, 1}},
        {"base", [](event_encoder& to) { to.add_base(5); }, {8, 0x81, 0x80, 0, 5}},
        {"forget", [](event_encoder& to) { to.forget(); }, {9, 0x80, 0x80, 0}},
    };
    for (auto const& each : cases) {
        CAPTURE(each.what);
        trace_tests::writer writer;
        each.add(writer.encoder);
        CHECK(writer.encoder.size() == each.bytes.size());
        CHECK(writer.content() == each.bytes);
    }
}

TEST_CASE("event_encoder: events, byte for byte, one after the other") {
    struct {
        char const* what;
        event one;
        content bytes;
    } const cases[] = {
        // what it has in common with others, and then: its context, ticks, slot 1 with a size, address and size
        {"the first", block(event_kind::allocate, 7, 0x200, 0x100),
         {4, 0x81, 0x80, 0, 0, 5, 0x81, 0x80, 0, 0, 6, 0x86, 0x80, 0, 1, 0, 0, 0, 0, 8, 16, 7, 2, 0x29, 0x28}},
        {"its free", block(event_kind::free, 10, 0x200, 0x100), {6, 0x86, 0x80, 0, 2, 0, 0, 0, 0, 8, 17, 3, 3}},
        {"as before", block(event_kind::allocate, 10, 0x200, 0x100), {16, 0, 3}},
        {"another size", block(event_kind::allocate, 138, 0x200, 0x300, 5), {16, 0x80, 1, 2, 0x78, 5}},
        {"an address above", block(event_kind::allocate, 139, 0x600, 0x300), {16, 1, 4, 0x2a, 0x68}},
        {"one below", block(event_kind::allocate, 140, 0x100, 7), {16, 1, 6, 0xb8, 1, 0xe0, 1}},
        {"no address", block(event_kind::allocate, 141, 0, 0), {16, 1, 1}},
    };
    trace_tests::writer writer;
    std::size_t before = 0;
    for (auto const& each : cases) {
        writer.add(each.one);
        CAPTURE(each.what);
        CHECK(writer.encoder.size() - before == each.bytes.size());
        before = writer.encoder.size();
    }
    content expected;
    for (auto const& each : cases)
        expected.insert(expected.end(), each.bytes.begin(), each.bytes.end());
    CHECK(writer.content() == expected);
}

TEST_CASE("event_encoder: a segment's head, and none of its bytes in the next one") {
    trace_tests::writer writer;
    writer.encoder.add_lost(1);
    writer.end_segment();
    CHECK(writer.encoder.size() == 0);
    writer.encoder.add_lost(2);
    writer.end_segment();
    REQUIRE(writer.bytes.size() == 2 * (weir::trace::segment_head_bytes + 5));
    for (std::size_t const at : {std::size_t{0}, weir::trace::segment_head_bytes + 5}) {
        unsigned char const* const head = writer.bytes.data() + at;
        CHECK(std::string(head, head + 4) == "werS");
        CHECK(content(head + 4, head + 8) == content{5, 0, 0, 0});
        std::uint64_t const sum = weir::trace::checksum_of(head + 16, 5);
        for (unsigned i = 0; i < 8; ++i)
            CHECK(head[8 + i] == (sum >> 8 * i & 0xff));
        CHECK(head[20] == (at == 0 ? 1 : 2));
    }
}

TEST_CASE("event_encoder: what it wrote is read up to where it is cut off, and with each bit turned nothing runs astray") {
    trace_tests::writer writer;
    writer.encoder.add(1, weir::trace::frame{0, 0, "", "main"});
    writer.encoder.add(2, weir::trace::frame{1, 3, "a.cpp", "step"});
    std::vector<event> events = trace_tests::random_events(11, 20);
    for (event& each : events) {
        each.site = 2;
        writer.add(each);
    }
    content const whole = writer.content();
    std::size_t most = 0;
    for (std::size_t size = 0; size <= whole.size(); ++size) {
        weir::trace::recording read;
        weir::trace::event_decoder decoder(read);
        bool const is_sound = decoder.read(whole.data(), size);
        CHECK((is_sound || size != whole.size()));
        REQUIRE(read.events.size() <= events.size());
        CHECK(read.events.size() >= most);
        most = read.events.size();
        for (std::size_t i = 0; i < most; ++i)
            CHECK(trace_tests::same(read, read.events[i], events[i]));
    }
    CHECK(most == events.size());
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
        content turned = whole;
        turned[bit / 8] = static_cast<unsigned char>(turned[bit / 8] ^ 1u << bit % 8);
        weir::trace::recording read;
        weir::trace::event_decoder decoder(read);
        decoder.read(turned.data(), turned.size());
        bool is_whole = true;
        for (event const& each : read.events)
            is_whole = is_whole && each.stream < read.streams.size() && each.thread < read.threads.size() && each.site <= read.frames.size();
        for (std::size_t i = 0; i < read.frames.size(); ++i)
            is_whole = is_whole && read.frames[i].caller <= i;
        CHECK(is_whole);
    }
}
