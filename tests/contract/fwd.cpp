// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The page of names alone is enough to mention every part; with the umbrella, the names are the parts.

#include <weir/fwd.hpp>

// A header that only mentions pools.
struct mentions_pools {
    weir::pool<weir::upstream::device, weir::placement::arena, weir::reuse::immediate>* frames;
    weir::pool<weir::upstream::pinned<>, weir::placement::slab<64>, weir::reuse::after_event, weir::growth::exact>* nodes;
    weir::pool<weir::upstream::managed,
               weir::placement::by_size<65536, weir::placement::bins<>, weir::placement::best_fit<>>,
               weir::reuse::stream_ordered<weir::identity::promised>, weir::growth::fixed<4096>>* any;
    weir::layer::limit<weir::layer::statistics<weir::layer::guard<weir::driver_pool>>>* tower;
    weir::layer::fallback<weir::driver_pool&, weir::layer::synchronized<weir::driver_pool>>* two;
    weir::layer::failure_handler<weir::driver_pool, weir::handler::trim_of<weir::driver_pool>>* handled;
    weir::failed_allocation* failed;
    weir::scope<weir::driver_pool>* scope;
    weir::device_vector<float>* vector;
    weir::pinned_vector<float>* pinned_vector;
    weir::device_value<float>* value;
    weir::pinned_value<float>* pinned_value;
    weir::device_buffer* buffer;
    weir::pinned_buffer* pinned_buffer;
    weir::device_pool* recipes[2];
    weir::layer::limit<weir::compact_device_pool>* tenant;
    weir::any_device_pool* owner;
    weir::any_pool<weir::memory_space{2}>* of_managed;
    weir::device_pool_ref* ref;
    weir::pool_options* options;
    weir::text* name;
    weir::upstream::host* host;
    weir::reuse::stream_ordered<weir::identity::checked, weir::handover::wait_first>* waits;
};
void takes_stream(weir::stream_ref stream);

#include <doctest/doctest.h>
#include <string>
#include <type_traits>
#include <weir/weir.hpp>

namespace {
using weir::memory_space;
namespace growth = weir::growth;
namespace placement = weir::placement;
namespace reuse = weir::reuse;

// The names are those of the parts, with the defaults that their pages document.
static_assert(std::is_same_v<placement::bins<>, placement::bins<256>>);
static_assert(std::is_same_v<placement::best_fit<>, placement::best_fit<512>>);
static_assert(std::is_same_v<weir::upstream::pinned<>, weir::upstream::pinned<0>>);
static_assert(std::is_same_v<reuse::stream_ordered<>,
                             reuse::stream_ordered<weir::identity::checked, weir::handover::grow_first,
                                                   reuse::stream_ordered_tuning>>);
static_assert(std::is_same_v<growth::geometric<>, growth::geometric<growth::geometric_tuning>>);
static_assert(std::is_same_v<growth::by_holes<>::apart, growth::geometric<>>);
static_assert(std::is_same_v<weir::pool<weir::upstream::device, placement::arena, reuse::immediate>,
                             weir::pool<weir::upstream::device, placement::arena, reuse::immediate, growth::geometric<>>>);
static_assert(sizeof(weir::upstream::span<memory_space::device>) > 0);
static_assert(sizeof(weir::pool_ref<memory_space::device>) == 2 * sizeof(void*));
static_assert(std::is_same_v<weir::device_pool_ref, weir::pool_ref<memory_space::device>>);
static_assert(std::is_same_v<weir::any_pinned_pool, weir::any_pool<memory_space::pinned>>);
static_assert(std::is_same_v<weir::host_pool_ref, weir::pool_ref<memory_space::host>>);
} // namespace

TEST_CASE("fwd: the version reads as a number") {
    CHECK(WEIR_VERSION / 10000 == 0);
    CHECK(WEIR_VERSION / 100 % 100 == 2);
    CHECK(WEIR_VERSION % 100 == 0);
}

TEST_CASE("fwd: every part lives in the inline namespace of the version") {
    CHECK(std::is_same_v<weir::driver_pool, weir::v0::driver_pool>);
    CHECK(std::is_same_v<weir::upstream::device, weir::v0::upstream::device>);
    CHECK(std::is_same_v<weir::layer::guard<weir::driver_pool>, weir::v0::layer::guard<weir::v0::driver_pool>>);
    CHECK(sizeof(mentions_pools) != 0);
}
