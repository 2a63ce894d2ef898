// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <weir/reuse/stream_ordered/last_numbers.hpp>

TEST_CASE("last_numbers: knows the last few, each once, and never 0") {
    weir::reuse::detail::last_numbers<4> last;
    CHECK_FALSE(last.take_out(0));
    CHECK_FALSE(last.take_out(7));
    for (std::uint64_t each = 1; each <= 5; ++each)
        last.note(each);
    for (int i = 0; i < 4; ++i)
        last.note(0);
    CHECK_FALSE(last.take_out(1)); // four came after it
    CHECK(last.take_out(3));
    CHECK_FALSE(last.take_out(3));
    CHECK(last.take_out(2));
    CHECK(last.take_out(5));
    CHECK(last.take_out(4));
    CHECK_FALSE(last.take_out(0)); // the places are empty again
    last.note(9);
    last.note(9);
    CHECK(last.take_out(9));
    CHECK(last.take_out(9));
    CHECK_FALSE(last.take_out(9));
}
