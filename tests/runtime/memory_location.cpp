// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <type_traits>
#include <weir/runtime/memory_location.hpp>

using weir::memory_location;

static_assert(std::is_trivially_copyable_v<memory_location> && !std::is_default_constructible_v<memory_location>);
static_assert(memory_location::device(3).get().type == cudaMemLocationTypeDevice && memory_location::device(3).get().id == 3);
static_assert(memory_location::host().get().type == cudaMemLocationTypeHost);
static_assert(memory_location::host_node(1).get().type == cudaMemLocationTypeHostNuma);
static_assert(memory_location::host_node(1).get().id == 1);
static_assert(memory_location::nearest_host_node().get().type == cudaMemLocationTypeHostNumaCurrent);
#if CUDART_VERSION >= 13000
static_assert(memory_location::anywhere().get().type == cudaMemLocationTypeNone);
#endif

TEST_CASE("memory_location: places are equal if they are one place") {
    memory_location const all[] = {memory_location::anywhere(),   memory_location::device(0),    memory_location::device(1),
                                   memory_location::host(),       memory_location::host_node(0), memory_location::host_node(1),
                                   memory_location::nearest_host_node()};
    for (memory_location const& a : all)
        for (memory_location const& b : all) {
            CHECK((a == b) == (&a == &b));
            CHECK((a != b) == (&a != &b));
        }
}
