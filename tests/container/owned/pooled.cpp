// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <type_traits>
#include <utility>
#include <weir/container/owned/pooled.hpp>

using weir::memory_space;

namespace {

template <memory_space Space>
struct thing : weir::detail::pooled<Space> {
    thing(weir::pool_ref<Space> pool, weir::stream_ref stream, std::size_t bytes)
        : weir::detail::pooled<Space>(pool, stream, bytes, 1) {}
};

} // namespace

static_assert(!std::is_copy_constructible_v<thing<memory_space::device>>);
static_assert(!std::is_copy_assignable_v<thing<memory_space::device>>);
static_assert(std::is_nothrow_move_constructible_v<thing<memory_space::device>>);
static_assert(std::is_nothrow_move_assignable_v<thing<memory_space::device>>);
static_assert(!std::is_constructible_v<weir::detail::pooled<memory_space::device>, support::recording_pool<>&,
                                       cudaStream_t, std::size_t, std::size_t>,
              "a base only");

TEST_CASE_TEMPLATE("pooled: remembers pool and stream, also when it was moved from", Space,
                   std::integral_constant<memory_space, memory_space::device>,
                   std::integral_constant<memory_space, memory_space::pinned>) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<Space::value> pool, other;
        thing<Space::value> x(pool, a, 100), y(other, b, 200);
        CHECK(thing<Space::value>::space == Space::value);
        CHECK(x.pool() == weir::pool_ref<Space::value>(pool));
        CHECK(x.stream() == weir::stream_ref(a));
        CHECK(x.bytes().size() == 100);
        x.set_stream(b);
        CHECK(x.stream() == weir::stream_ref(b));
        x.used_on(a);
        y = std::move(x);
        CHECK(y.pool() == weir::pool_ref<Space::value>(pool));
        CHECK(y.bytes().size() == 100);
        CHECK(x.bytes().size() == 0);
        CHECK(x.pool() == y.pool());
        CHECK(x.stream() == weir::stream_ref(b));
        x.set_stream(a);
        x.used_on(b);
        CHECK(other.live_blocks() == 0);
        CHECK_THROWS_AS(thing<Space::value>(pool, weir::on_host, 1), weir::usage_error);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("pooled: a kernel on another stream holds the memory until it has run") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::following_pool<> told;
        support::recording_pool<> untold;
        {
            thing<memory_space::device> x(told, a, 100), y(untold, a, 100);
            weir::order_after(b, a);
            simulated_cuda::launch(b, {}, {{x.bytes().data(), 100}, {y.bytes().data(), 100}});
            x.used_on(b);
            y.used_on(b);
        } // the pools overwrite the blocks on a: a report, unless a waits for b
    });
}
#endif
