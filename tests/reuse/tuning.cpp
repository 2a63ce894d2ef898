// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <weir/base/memory_space.hpp>
#include <weir/reuse/handover.hpp>
#include <weir/reuse/tuning.hpp>

namespace {
struct promising {
    static constexpr bool asks = false;
    static unsigned long long id(weir::on_host_t);
    static void require_no_capture(weir::on_host_t);
};
struct few : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 2;
};
} // namespace

TEST_CASE("tuning: the constants keep to their constraints, and one can be changed") {
    using usual = weir::reuse::stream_ordered_tuning;
    CHECK(usual::recent_blocks >= 1);
    CHECK(usual::recent_blocks <= 64);
    CHECK(usual::recent_bytes > 0);
    CHECK(usual::gather_bytes >= usual::recent_bytes); // what is kept is not gathered

    CHECK(few::recent_blocks == 2);
    CHECK(few::recent_bytes == usual::recent_bytes);
}

TEST_CASE("tuning: what keeps every clause is let in, asked at run time too") {
    using usual = weir::reuse::stream_ordered_tuning;
    bool (*const clauses[])() = {
        &weir::contract::require_stream_order<promising, weir::handover::grow_first, usual, weir::on_host_t>,
        &weir::contract::require_stream_order<promising, weir::handover::wait_first, few, weir::on_host_t>};
    for (auto const clause : clauses)
        CHECK(clause());
}
