// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <weir/reuse/handover.hpp>

TEST_CASE("handover: the two handovers differ in the order of two rungs") {
    CHECK_FALSE(weir::handover::grow_first::waits_before_growing);
    CHECK(weir::handover::wait_first::waits_before_growing);
}
