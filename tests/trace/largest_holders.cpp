// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <string>
#include <support/failing_new.hpp>
#include <vector>
#include <weir/trace/largest_holders.hpp>

using weir::trace::event;
using weir::trace::event_kind;
using weir::trace::event_ring;
using weir::trace::largest_holders;
using weir::trace::name_table;

namespace {

void write(event_ring& ring, event_kind kind, std::uint64_t address, std::uint64_t bytes = 0, std::uint32_t site = 0,
           std::uint16_t source = 0) {
    event one;
    one.kind = kind;
    one.address = address;
    one.bytes = bytes;
    one.site = site;
    one.source = source;
    ring.write(one);
}

struct line {
    std::uint32_t site;
    std::uint64_t bytes, blocks;
    friend bool operator==(line const& a, line const& b) {
        return a.site == b.site && a.bytes == b.bytes && a.blocks == b.blocks;
    }
};
std::vector<line> found(largest_holders& all, event_ring& ring, std::uint16_t source = 0) {
    {
        support::failing_new const fails(0); // it needs no memory
        all.look(ring, source);
    }
    std::vector<line> lines;
    for (weir::trace::holder const& each : all)
        lines.push_back({each.site, each.bytes, each.blocks});
    return lines;
}
using lines = std::vector<line>;

} // namespace

TEST_CASE("largest_holders: what lives is added up by line, the most first") {
    event_ring ring(1000);
    largest_holders all(1000);
    CHECK(found(all, ring).empty());
    for (std::uint64_t i = 1; i <= 10; ++i)
        write(ring, event_kind::allocate, 256 * i, 100, i % 2 == 0 ? 7 : 8);
    write(ring, event_kind::free, 256 * 2, 100); // of line 7
    write(ring, event_kind::allocate, 256 * 2, 1000, 9);
    write(ring, event_kind::free, 256 * 3, 100);
    write(ring, event_kind::used_on, 256 * 4);
    write(ring, event_kind::refuse, 0, 5000, 9);
    write(ring, event_kind::allocate, 256, 30, 3, 1); // another pool's
    CHECK(found(all, ring) == lines{{9, 1000, 1}, {7, 400, 4}, {8, 400, 4}});
    CHECK(found(all, ring, 1) == lines{{3, 30, 1}});
    CHECK(found(all, ring, 2).empty());
}

TEST_CASE("largest_holders: the ring keeps its events, those of its lanes' blocks too") {
    event_ring ring(10'000);
    largest_holders all(10'000);
    for (std::uint64_t i = 1; i <= 700; ++i) // more than one block of the ring
        write(ring, event_kind::allocate, 256 * i, 1, 1);
    CHECK(found(all, ring) == lines{{1, 700, 700}});
    CHECK(found(all, ring) == lines{{1, 700, 700}});
    std::size_t kept = 0;
    ring.drain([&](event const*, std::size_t count) { kept += count; });
    CHECK(kept == 700);
    CHECK(found(all, ring).empty());
}

TEST_CASE("largest_holders: what finds no place is left out, lines as well as addresses") {
    event_ring ring(1000);
    largest_holders narrow(1), wide(8 * 1024);
    for (std::uint64_t i = 1; i <= 300; ++i)
        write(ring, event_kind::allocate, 256 * i, 1000 - i, static_cast<std::uint32_t>(i));
    CHECK(found(narrow, ring).size() == largest_holders::most);
    CHECK(found(wide, ring).size() == largest_holders::most);
    for (weir::trace::holder const& each : wide)
        CHECK(each.blocks == 1);
}

TEST_CASE("largest_holders: of a pool whose blocks end without a free nothing is said") {
    for (event_kind const ends : {event_kind::rewind, event_kind::clear}) {
        event_ring ring(1000);
        largest_holders all(1000);
        write(ring, event_kind::allocate, 256, 100, 1);
        write(ring, ends, 0);
        CHECK(found(all, ring).empty());
    }
}

TEST_CASE("largest_holders: a stack is told from the line outwards, as far as a sentence goes") {
    name_table names;
    std::uint32_t caller = 0;
    std::string expected = "10 B in 1 block at step.cpp:7";
    for (int depth = 0; depth < 10; ++depth) {
        std::string said = expected;
        for (int i = depth; i-- > 0 && i >= depth - 8;)
            said += " from f" + std::to_string(i) + "()";
        event_ring ring(1000);
        largest_holders all(1000);
        write(ring, event_kind::allocate, 256, 10, names.number_of(caller, "/src/step.cpp", "step", 7));
        all.look(ring, 0);
        CHECK(std::string(all.said(names)) == said + (depth > 8 ? " from others" : ""));
        caller = names.number_of(caller, "", ("f" + std::to_string(depth) + "()").c_str(), 0);
    }
}

TEST_CASE("largest_holders: a sentence, and none where the host has no memory for it") {
    name_table names;
    std::uint32_t const first = names.number_of(0, "/home/me/train.cpp", "step", 12);
    std::uint32_t const second = names.number_of(0, "load.cpp", "load", 3);
    event_ring ring(1000);
    largest_holders all(1000);
    CHECK(all.said(names) == "");
    write(ring, event_kind::allocate, 256, 2048, first);
    write(ring, event_kind::allocate, 512, 2048, first);
    write(ring, event_kind::allocate, 768, 100, second);
    write(ring, event_kind::allocate, 1024, 10);
    all.look(ring, 0);
    CHECK(all.said(names) == "4 KiB in 2 blocks at train.cpp:12, 100 B in 1 block at load.cpp:3, 10 B in 1 block at lines that "
                             "are not known");
    if (support::host_memory_can_fail) {
        support::failing_new const fails(1);
        CHECK(all.said(names).empty());
    }
}
