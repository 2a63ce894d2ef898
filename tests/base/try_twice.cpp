// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <weir/base/try_twice.hpp>

TEST_CASE("try_twice: a call is made until it succeeds, and twice at most") {
    struct {
        int succeeds_at;
        bool throws;
        int calls;
        bool answer;
    } const cases[] = {{1, false, 1, true}, {2, false, 2, true}, {3, false, 2, false}, {2, true, 2, true}, {3, true, 2, false}};
    for (auto const& each : cases) {
        int calls = 0;
        bool const answer = weir::base::try_twice([&] {
            if (++calls < each.succeeds_at && each.throws)
                throw 1;
            return calls >= each.succeeds_at;
        });
        CAPTURE(each.succeeds_at);
        CAPTURE(each.throws);
        CHECK(calls == each.calls);
        CHECK(answer == each.answer);
    }
}
