// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <vector>
#include <weir/trace/named_scope.hpp>

using weir::trace::event;
using weir::trace::event_kind;
using weir::trace::named_scope;

TEST_CASE("named_scope: writes its name at both ends, where the recorder is on") {
    weir::trace::recorder tape(100);
    {
        named_scope const silent(tape, "before the start");
        tape.start(); // what began in silence ends in silence
    }
    {
        named_scope const outer(tape, "step");
        named_scope const inner(tape, "forward");
    }
    std::vector<event> all;
    tape.ring()->drain([&](event const* first, std::size_t count) { all.insert(all.end(), first, first + count); });
    REQUIRE(all.size() == 4);
    CHECK(all[0].kind == event_kind::begin_scope);
    CHECK(all[1].kind == event_kind::begin_scope);
    CHECK(all[2].kind == event_kind::end_scope);
    CHECK(tape.names()[all[1].site].function == "forward");
    CHECK(all[2].site == all[1].site);
    CHECK(all[3].site == all[0].site);
    CHECK(tape.names().size() == 2);
}

TEST_CASE("named_scope: a scope that ends while the recorder is off does not reach into what is recorded later") {
    weir::trace::recorder tape(100);
    tape.start();
    {
        named_scope const step(tape, "step");
        tape.stop();
        named_scope const silent(tape, "in silence");
    }
    tape.start();
    named_scope const next(tape, "next");
    std::vector<event> all;
    tape.ring()->drain([&](event const* first, std::size_t count) { all.insert(all.end(), first, first + count); });
    REQUIRE(all.size() == 3);
    CHECK(all[1].kind == event_kind::end_scope);
    CHECK(all[1].site == all[0].site);
    CHECK(all[2].kind == event_kind::begin_scope);
    CHECK(tape.names()[all[2].site].function == "next");
}
