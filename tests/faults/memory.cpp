// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// The host has no memory for the bookkeeping: from the k-th allocation of an operation on, every one fails. Nothing is
// handed out twice or too early, a failed call changes nothing, and a free, which may not fail, loses at worst the
// block's bytes until the pool ends.

#include "scene.hpp"

using namespace faults;
using stage::checked;
using stage::closing;
using stage::fitted;
using stage::grow_first;
using stage::promised;
using stage::sized;
using stage::wait_first;
using weir::reuse::after_event;
using weir::reuse::stream_ordered;
namespace layer = weir::layer;

namespace {

template <class Pool>
void starve_pool() {
    CHECK(starve_everywhere(every_act<Pool>()) > 5);
}

} // namespace

TEST_CASE_TEMPLATE("memory: stream_ordered", Pool, pool<stream_ordered<checked, grow_first>, sized>,
                   pool<stream_ordered<checked, grow_first, closing>, fitted>,
                   pool<stream_ordered<checked, wait_first, closing>, sized>,
                   pool<stream_ordered<promised, grow_first>, sized>,
                   pool<stream_ordered<promised, wait_first, closing>, fitted>,
                   pool<stream_ordered<checked>, sized, weir::upstream::managed>) {
    starve_pool<Pool>();
}

TEST_CASE_TEMPLATE("memory: after_event", Pool, pool<after_event, sized>,
                   pool<after_event, fitted, weir::upstream::pinned<>>) {
    starve_pool<Pool>();
}

TEST_CASE_TEMPLATE("memory: immediate", Pool, pool<weir::reuse::immediate, sized>,
                   pool<weir::reuse::immediate, fitted, weir::upstream::pinned<>>) {
    starve_pool<Pool>();
}

TEST_CASE_TEMPLATE("memory: recipes", Pool, weir::device_pool, weir::promised_device_pool,
                   weir::compact_device_pool, weir::pinned_pool, weir::managed_pool, weir::host_pool,
                   weir::frame_pool, weir::node_pool, weir::driver_pool) {
    starve_pool<Pool>();
}

TEST_CASE_TEMPLATE(
    "memory: layers", Pool,
    layer::statistics<layer::limit<layer::guard<layer::fallback<
        pool<stream_ordered<checked>, sized>, pool<after_event, sized, weir::upstream::pinned<>>>>>>,
    layer::synchronized<weir::node_pool>) {
    starve_pool<Pool>();
}

#endif
