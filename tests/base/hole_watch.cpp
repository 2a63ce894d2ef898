// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <doctest/doctest.h>
#include <utility>
#include <weir/base/hole_watch.hpp>
#include <weir/base/size.hpp>

using weir::base::hole_watch;
using weir::base::holes;
using weir::MiB;

static_assert(noexcept(std::declval<hole_watch&>().note(0, 0)));

TEST_CASE("hole_watch: a pool that grows while nearly all is in use has no holes") {
    hole_watch watch;
    CHECK(watch.note(0, 1) == holes::never);
    for (std::size_t held = 16 * MiB; held < 4096 * MiB; held += 16 * MiB) {
        REQUIRE(watch.note(held, held) == holes::never);
        REQUIRE(watch.note(held, held + 16 * MiB) == holes::never);
        REQUIRE(watch.note(held, held - held / 16) == holes::never); // as much as may be free
    }
    CHECK(watch.note(SIZE_MAX, SIZE_MAX) == holes::never);
}

TEST_CASE("hole_watch: one that grows with more than a 16th of it free has holes, and may have them again") {
    hole_watch watch;
    CHECK(watch.note(160 * MiB, 150 * MiB) == holes::never);
    CHECK(watch.note(160 * MiB, 150 * MiB - 1) == holes::now);
    CHECK(watch.note(160 * MiB, 150 * MiB) == holes::now);
    CHECK(watch.note(160 * MiB, 155 * MiB) == holes::earlier); // a 32nd: they are filled
    CHECK(watch.note(160 * MiB, 155 * MiB - 1) == holes::now);
    CHECK(watch.note(160 * MiB, 200 * MiB) == holes::earlier);
    CHECK(watch.note(160 * MiB, 0) == holes::now);
    CHECK(watch.note(SIZE_MAX, 0) == holes::now);
}
