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
using weir::reuse::stream_ordered;

namespace {

/// Runs an act with no host memory after `k` allocations; false if it needs no more.
template <class Pool>
bool starve(act<Pool> const& what, long k) {
    device::world const world(device::config{}.late(), support::report_all);
    scene<Pool> s(what.limit);
    what.prepare(s);
    bool starved = false;
    bool threw = false;
    {
        support::failing_new const fails(k);
        try {
            what.attempt(s);
        } catch (std::bad_alloc const&) {
            threw = true;
        }
        starved = support::allocations_left == 0;
    }
    bool const frees = std::string(what.name).find("deallocate") != std::string::npos;
    s.check(what.limit, frees && !threw);
    return starved;
}

template <class Pool>
void starve_everywhere() {
    std::size_t runs = 0;
    for (act<Pool> const& what : every_act<Pool>())
        for (long k = 0; k < 1000; ++k) {
            CAPTURE(std::string(what.name));
            CAPTURE(k);
            if (!starve(what, k))
                break;
            ++runs;
        }
    CHECK(runs > 20);
}

} // namespace

TEST_CASE_TEMPLATE("memory: stream_ordered", Pool, pool<stream_ordered<checked, grow_first>, sized>,
                   pool<stream_ordered<checked, grow_first, closing>, fitted>,
                   pool<stream_ordered<checked, wait_first, closing>, sized>,
                   pool<stream_ordered<promised, grow_first>, sized>,
                   pool<stream_ordered<promised, wait_first, closing>, fitted>,
                   pool<stream_ordered<checked>, sized, weir::upstream::managed>) {
    starve_everywhere<Pool>();
}

TEST_CASE_TEMPLATE("memory: after_event", Pool, pool<weir::reuse::after_event, sized>,
                   pool<weir::reuse::after_event, fitted, weir::upstream::pinned<>>) {
    starve_everywhere<Pool>();
}

TEST_CASE_TEMPLATE("memory: immediate", Pool, pool<weir::reuse::immediate, sized>,
                   pool<weir::reuse::immediate, fitted, weir::upstream::pinned<>>) {
    starve_everywhere<Pool>();
}

#endif
