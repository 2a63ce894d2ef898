// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <support/growth_numbers.hpp>
#include <weir/base/size.hpp>
#include <weir/growth/geometric.hpp>

using weir::GiB;
using weir::MiB;
namespace growth = weir::growth;

static_assert(support::geometric_of<4096, 50, 1 << 20>::next(1, 0) == 4096);

TEST_CASE("geometric: asks for a share of what is held, the first chunk at least") {
    using chunks = support::geometric_of<2 * MiB, 50, 64 * MiB>;
    CHECK(chunks::next(1, 0) == 2 * MiB);
    CHECK(chunks::next(1, 4 * MiB) == 2 * MiB);
    CHECK(chunks::next(1, 100 * MiB) == 100 * MiB / 100 * 50);
    CHECK(chunks::next(30 * MiB, 4 * MiB) == 30 * MiB);
    CHECK(chunks::next(30 * MiB, 100 * MiB) == 100 * MiB / 100 * 50);
}

TEST_CASE("geometric: gives a large need just what it needs") {
    using chunks = support::geometric_of<2 * MiB, 50, 64 * MiB>;
    CHECK(chunks::next(64 * MiB - 1, GiB) == GiB / 100 * 50);
    CHECK(chunks::next(64 * MiB, GiB) == 64 * MiB);
    CHECK(chunks::next(10 * GiB, 100 * GiB) == 10 * GiB);
}

TEST_CASE("geometric: the number of chunks rises as the logarithm of the footprint") {
    std::size_t held = 0;
    int chunks = 0;
    for (; held < 100 * GiB; ++chunks)
        held += support::geometric_of<16 * MiB, 100, GiB>::next(MiB, held);
    CHECK(chunks < 16);
}
