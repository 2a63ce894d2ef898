// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <weir/base/size.hpp>
#include <weir/growth/fixed.hpp>

using weir::GiB;
using weir::KiB;
namespace growth = weir::growth;

static_assert(growth::fixed<4096>::next(1, 0) == 4096);

TEST_CASE("fixed: asks for one size, or for what is needed if that is more") {
    using chunks = growth::fixed<64 * KiB>;
    CHECK(chunks::next(1, 0) == 64 * KiB);
    CHECK(chunks::next(64 * KiB, 5 * GiB) == 64 * KiB);
    CHECK(chunks::next(64 * KiB + 1, 0) == 64 * KiB + 1);
    CHECK(chunks::next(SIZE_MAX, SIZE_MAX) == SIZE_MAX);
}
