// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <type_traits>
#include <weir/resource/layer_options.hpp>

static_assert(std::is_copy_constructible_v<weir::layer_options>);

TEST_CASE("layer_options: carry a name, or none") {
    CHECK(weir::layer_options{}.name().empty());
    CHECK(weir::layer_options{}.name("tenant a").name() == "tenant a");
}
