// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What each clause of the slots demands is in contracts.cpp; here is what an upstream may say besides.

#include <cstddef>
#include <doctest/doctest.h>
#include <weir/base/memory_space.hpp>
#include <weir/base/upstream_contract.hpp>

namespace contracts = weir::contracts;

namespace {

struct plain {
    static constexpr std::size_t alignment = 64;
    static constexpr weir::memory_space space = weir::memory_space::host;
    void* acquire(std::size_t);
    void release(void*, std::size_t) noexcept;
};
struct bounded : plain {
    std::size_t most_bytes() const noexcept;
    std::size_t addresses_behind(void const*) const noexcept;
    bool out_of_addresses() const noexcept;
};
struct may_throw : plain {
    std::size_t most_bytes() const;
    std::size_t addresses_behind(void const*) const;
    bool out_of_addresses() const;
};
struct says_half : plain {
    int most_bytes() const noexcept;
    std::size_t addresses_behind(void const*) const noexcept;
};

static_assert(contracts::require_upstream<plain>() && contracts::require_upstream<bounded>());

} // namespace

TEST_CASE("upstream_contract: what an upstream bounds is told by members, all or none") {
    CHECK_FALSE(contracts::holds<contracts::says_most_bytes, plain>);
    CHECK_FALSE(contracts::holds<contracts::bounds_addresses, plain>);
    CHECK(contracts::holds<contracts::says_most_bytes, bounded>);
    CHECK(contracts::holds<contracts::bounds_addresses, bounded>);
    for (bool const wrong : {contracts::holds<contracts::says_most_bytes, may_throw>, contracts::holds<contracts::bounds_addresses, may_throw>,
                             contracts::holds<contracts::says_most_bytes, says_half>, contracts::holds<contracts::bounds_addresses, says_half>})
        CHECK_FALSE(wrong);
    for (bool const seen : {contracts::holds<contracts::has_most_bytes, may_throw>, contracts::holds<contracts::has_addresses_behind, may_throw>,
                            contracts::holds<contracts::has_most_bytes, says_half>, contracts::holds<contracts::has_addresses_behind, says_half>})
        CHECK(seen); // so that its author is told
}
