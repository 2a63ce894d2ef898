// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/reuse/stream_ordered/stream_set/free_hint.hpp>

using weir::KiB;
using weir::MiB;
using weir::base::range;

namespace {
struct tuning {
    static constexpr std::size_t splinter_bytes = 512 * KiB;
};
} // namespace

TEST_CASE("free_hint: tells what is free, and what will be") {
    weir::reuse::detail::free_hint<tuning> hint;
    CHECK(hint.bytes() == 0);
    CHECK(hint.may_hold(0));
    CHECK_FALSE(hint.may_hold(1));
    weir::placement::best_fit<> free;
    free.add(range{4 * MiB, 1 * MiB});
    hint.update(free, 64 * KiB);
    CHECK(hint.bytes() == 1 * MiB + 64 * KiB);
    CHECK_FALSE(hint.is_splintered()); // it does not tell
    CHECK(free.take(1 * MiB, 256));
    hint.update(free, 0);
    CHECK(hint.bytes() == 0);
}

TEST_CASE("free_hint: what slabs cannot count is allowed for, an eighth at most") {
    weir::reuse::detail::free_hint<tuning> hint;
    weir::placement::best_fit<> free;
    free.add(range{4 * MiB, 7 * KiB});
    hint.update(free, 0);
    CHECK(hint.may_hold(8 * KiB));
    CHECK_FALSE(hint.may_hold(8 * KiB + 8));
}

TEST_CASE("free_hint: much that lies in small pieces is said to be splintered") {
    weir::reuse::detail::free_hint<tuning> hint;
    weir::placement::by_size<64 * KiB, weir::placement::bins<>, weir::placement::best_fit<>> free;
    free.add(range{4 * MiB, 4 * MiB});
    hint.update(free, 0);
    CHECK_FALSE(hint.is_splintered());
    range blocks[1500]; // every other one comes back, so that no slab is whole
    for (range& each : blocks)
        each = free.take(1024, 256);
    for (std::size_t i = 0; i < 1500; i += 2)
        free.give(blocks[i]);
    CHECK(free.splinter_bytes() > 512 * KiB);
    hint.update(free, 0);
    CHECK(hint.is_splintered());
}
