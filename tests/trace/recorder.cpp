// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <support/failing_new.hpp>
#include <vector>
#include <weir/trace/recorder.hpp>

using weir::trace::event;
using weir::trace::event_filter;
using weir::trace::event_kind;
using weir::trace::recorder;

namespace {

event of(event_kind kind, std::uint64_t bytes, std::uint64_t stream = 0) {
    event one;
    one.kind = kind;
    one.bytes = bytes;
    one.stream = stream;
    return one;
}

std::vector<std::uint64_t> held(recorder& of) {
    std::vector<std::uint64_t> bytes;
    if (of.ring())
        of.ring()->drain([&](event const* first, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i)
                bytes.push_back(first[i].bytes);
        });
    return bytes;
}

using bytes = std::vector<std::uint64_t>;

} // namespace

TEST_CASE("recorder: writes between start and stop, and has no memory before") {
    recorder tape(100);
    CHECK_FALSE(tape.is_on());
    tape.write(of(event_kind::allocate, 1));
    CHECK(tape.ring() == nullptr);
    CHECK(tape.lost() == 0);
    CHECK(tape.memory_bytes() == 0);
    tape.start();
    CHECK(tape.memory_bytes() >= tape.ring()->capacity() * sizeof(event));
    CHECK(tape.is_on());
    tape.write(of(event_kind::allocate, 2));
    tape.stop();
    tape.write(of(event_kind::allocate, 3));
    tape.start();
    tape.write(of(event_kind::free, 4));
    CHECK(held(tape) == bytes{2, 4});
    CHECK(tape.begun().steady_ns != 0);
}

TEST_CASE("recorder: takes 54 bytes for an event at most") {
    recorder tape(1 << 20);
    tape.start();
    CHECK(tape.memory_bytes() <= 54u << 20);
}

TEST_CASE("recorder: a filter admits blocks by size and stream, and whatever is no block's") {
    recorder tape;
    tape.start();
    event_filter which;
    which.least_bytes = 10;
    which.most_bytes = 20;
    tape.set_filter(which);
    for (std::uint64_t const size : {9u, 10u, 20u, 21u})
        for (event_kind const kind : {event_kind::allocate, event_kind::free, event_kind::refuse})
            tape.write(of(kind, size));
    tape.write(of(event_kind::trim, 1));
    CHECK(held(tape) == bytes{10, 10, 10, 20, 20, 20, 1});

    which = {};
    which.stream = 7;
    tape.set_filter(which);
    tape.write(of(event_kind::allocate, 1, 7));
    tape.write(of(event_kind::allocate, 2, 8));
    tape.write(of(event_kind::free, 3, 8)); // perhaps of a block that was allocated on stream 7
    tape.write(of(event_kind::settle, 4, 8));
    CHECK(held(tape) == bytes{1, 3, 4});

    tape.set_filter({});
    tape.write(of(event_kind::allocate, SIZE_MAX, 8));
    CHECK(held(tape) == bytes{SIZE_MAX});
}

TEST_CASE("recorder: what an event says is completed only if it is written") {
    recorder tape;
    int completed = 0;
    auto const write = [&](std::uint64_t size) {
        tape.write(of(event_kind::allocate, size), [&](event& one) { one.bytes = 100 + static_cast<std::uint64_t>(++completed); });
    };
    write(10); // it is off
    tape.start();
    event_filter which;
    which.least_bytes = 10;
    tape.set_filter(which);
    write(9);
    CHECK(completed == 0);
    write(10);
    CHECK(completed == 1);
    CHECK(held(tape) == bytes{101});
}

TEST_CASE("recorder: numbers its sources") {
    recorder tape;
    CHECK(tape.sources() == 0);
    CHECK(tape.add({"first", 1, weir::memory_space::device, 100}) == 0);
    CHECK(tape.add({"second"}) == 1);
    CHECK(tape.sources() == 2);
    CHECK(tape.source_of(0).name == "first");
    CHECK(tape.source_of(1).limit_bytes == UINT64_MAX);
}

TEST_CASE("recorder: is off if there is no host memory to start") {
    if (!support::host_memory_can_fail)
        return;
    recorder tape(10);
    CHECK_THROWS_AS(
        [&] {
            support::failing_new const fails(1);
            tape.start();
        }(),
        std::bad_alloc);
    CHECK_FALSE(tape.is_on());
    tape.write(of(event_kind::allocate, 1));
    tape.start();
    CHECK(held(tape).empty());
}
