// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "../../examples/replay/hand_overs.hpp"
#include "../../examples/replay/program.hpp"
#include <doctest/doctest.h>
#include <memory>
#include <vector>

using weir::trace::event;
using weir::trace::event_kind;
using weir::trace::hand_over_order;

namespace {

event one(event_kind kind, std::uint64_t bytes, hand_over_order order = {}, std::uint64_t address = 4096) {
    event made;
    made.kind = kind;
    made.bytes = bytes;
    made.address = address;
    made.log2_alignment = static_cast<std::uint8_t>(order);
    return made;
}

} // namespace

TEST_CASE("hand_overs: what went from one stream to another, and who waits for it") {
    event const at_once = one(event_kind::hand_over, 1024, hand_over_order::none);
    event const waits = one(event_kind::hand_over, 2048, hand_over_order::wait);
    event const untold = one(event_kind::hand_over, 512);
    event const gathered = one(event_kind::hand_over, 0, hand_over_order::none, 0);
    event const host = one(event_kind::wait, 3'000'000);
    struct {
        std::vector<event> events;
        char const* line;
    } const cases[] = {
        {{}, ""},
        {{gathered, one(event_kind::allocate, 100)}, ""},
        {{at_once, at_once, waits}, "from one stream to another went 2 blocks (2.00 KiB) at once, 1 block (2.00 KiB) for which the stream waits"},
        {{untold}, "from one stream to another went 1 block (512 B) of which it does not say whether the stream waits"},
        {{host}, "the host waited once, 1.50 ms"},
        {{at_once, host, host}, "from one stream to another went 1 block (1.00 KiB) at once; the host waited 2 times, 3.00 ms"},
    };
    for (auto const& each : cases) {
        auto const of = std::make_shared<replay::program>();
        of->what.first = {0, 0, 0};
        of->what.last = {2000, 1000, 0}; // two ticks a nanosecond
        for (event const& added : each.events)
            of->what.events.push_back(added);
        CHECK(replay::hand_overs_line(*of) == each.line);
        replay::trace what;
        CHECK(replay::hand_overs_text(what) == "");
        what.of = of;
        CHECK((replay::hand_overs_text(what).find(each.line) != std::string::npos || *each.line == '\0'));
    }
}
