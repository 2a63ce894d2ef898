// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <weir/trace/clock.hpp>

namespace trace = weir::trace;

TEST_CASE("clock: does not go back, by the processor's counter and by the system's clock") {
    for (bool const counter : {trace::has_invariant_counter(), false}) {
        trace::clock const clock(counter);
        std::uint64_t last = 0;
        for (int i = 0; i < 1000; ++i) {
            std::uint64_t const now = clock.ticks();
            CHECK(now >= last);
            last = now;
        }
        CHECK(last != 0);
        trace::moment const at = trace::now(clock);
        CHECK(at.ticks >= last);
        CHECK(at.steady_ns != 0);
        CHECK(at.wall_ns != 0);
    }
}

TEST_CASE("clock: two moments say how long a tick is") {
    CHECK(trace::ns_per_tick({100, 1000, 0}, {300, 1100, 0}) == 0.5);
    CHECK(trace::ns_per_tick({100, 1000, 0}, {100, 1100, 0}) == 1); // nothing is known
    CHECK(trace::ns_per_tick({100, 1000, 0}, {300, 1000, 0}) == 1);
}
