// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <weir/base/size.hpp>
#include <weir/growth/exact.hpp>

using weir::GiB;
using weir::KiB;
using weir::MiB;
namespace growth = weir::growth;

static_assert(growth::exact::next(1, 0) == 1);

TEST_CASE("exact: asks for what is needed") {
    for (std::size_t needed : {std::size_t{1}, 4 * KiB, 3 * GiB, SIZE_MAX})
        for (std::size_t held : {std::size_t{0}, 7 * MiB, SIZE_MAX})
            CHECK(growth::exact::next(needed, held) == needed);
}
