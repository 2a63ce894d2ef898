// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Every CUDA call that a public operation of a pool makes fails: over every recipe, every reuse rule, every layer and
// CUDA's own pool.

#include "scene.hpp"
#include <algorithm>

using namespace faults;

namespace {

template <class Pool>
void strike_pool(int current = 0) {
    CHECK(strike_everywhere(every_act<Pool>(), current) > 10);
}

} // namespace

TEST_CASE("faults: stream_ordered, checked, growth first") {
    strike_pool<pool<stream_ordered<checked, grow_first>, sized>>();
    strike_pool<pool<stream_ordered<checked, grow_first, closing>, fitted>>();
}

TEST_CASE("faults: stream_ordered, checked, waits first") {
    strike_pool<pool<stream_ordered<checked, wait_first>, fitted>>();
    strike_pool<pool<stream_ordered<checked, wait_first, closing>, sized>>();
}

TEST_CASE("faults: stream_ordered, promised") {
    strike_pool<pool<stream_ordered<promised, grow_first, closing>, sized>>();
    strike_pool<pool<stream_ordered<promised, wait_first>, sized>>();
}

TEST_CASE("faults: stream_ordered, managed memory of no device") {
    strike_pool<pool<stream_ordered<checked>, sized, weir::upstream::managed>>();
}

TEST_CASE("faults: after_event") {
    strike_pool<pool<after_event, sized>>();
    strike_pool<pool<after_event, fitted, weir::upstream::pinned<>>>();
}

TEST_CASE("faults: immediate") {
    strike_pool<pool<weir::reuse::immediate, sized>>();
    strike_pool<pool<weir::reuse::immediate, fitted, weir::upstream::pinned<>>>();
}

TEST_CASE_TEMPLATE("faults: recipes", Pool, weir::device_pool, weir::promised_device_pool,
                   weir::compact_device_pool, weir::pinned_pool, weir::managed_pool, weir::frame_pool,
                   weir::node_pool, weir::driver_pool, weir::pinned_driver_pool) {
    strike_pool<Pool>();
}

#if CUDART_VERSION >= 13000
TEST_CASE("faults: a pool of CUDA's managed memory") {
    strike_pool<weir::managed_driver_pool>();
}
#endif

TEST_CASE("faults: a host pool calls nothing that could fail") {
    CHECK(strike_everywhere(every_act<weir::host_pool>()) == 0);
}

TEST_CASE_TEMPLATE(
    "faults: layers", Pool,
    layer::statistics<layer::limit<layer::guard<layer::fallback<
        pool<stream_ordered<checked>, sized>, pool<after_event, sized, weir::upstream::pinned<>>>>>>,
    layer::synchronized<weir::node_pool>,
    layer::statistics<layer::failure_handler<layer::limit<weir::compact_device_pool>, persistent>>) {
    strike_pool<Pool>();
}

TEST_CASE_TEMPLATE("faults: while another device is current", Pool,
                   pool<stream_ordered<checked, grow_first>, sized>,
                   pool<stream_ordered<promised, wait_first, closing>, fitted>, pool<after_event, fitted>,
                   weir::managed_pool, weir::driver_pool) {
    auto acts = every_act<Pool>();
    acts.erase(std::remove_if(acts.begin(), acts.end(), // a default stream is the current device's
                              [](auto const& each) {
                                  return std::string(each.name).find("default streams") != std::string::npos;
                              }),
               acts.end());
    CHECK(strike_everywhere(acts, 1) > 10);
}

#define WEIR_SOME_POOLS                                                                                      \
    weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::pinned_pool,             \
        weir::managed_pool, weir::node_pool, weir::driver_pool, weir::pinned_driver_pool,                    \
        pool<after_event, fitted>,                                                                           \
        layer::statistics<weir::device_pool>

TEST_CASE_TEMPLATE("faults: a pool that cannot be made", Pool, WEIR_SOME_POOLS) {
    strike_life([](auto armed) {
        armed();
        std::unique_ptr<Pool> const pool = made<Pool>(64 * MiB);
        device::clear_faults(); // its end is another story
    });
}

TEST_CASE_TEMPLATE("faults: a pool whose end fails", Pool, WEIR_SOME_POOLS) {
    strike_life([](auto armed) {
        scene<Pool> s(64 * MiB);
        clutter(s);
        while (is_driver_pool<Pool> && !s.live.empty())
            s.free(s.live.begin()->first); // of this pool CUDA takes back only what was freed
        armed();
        s.abandon();
        device::clear_faults();
    });
}

#endif
