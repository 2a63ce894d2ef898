// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Every CUDA call and every allocation of host memory fails, of an 'allocate' that finds no room and says so: what it
// cannot find out it leaves out, and the pool goes on working.

#include "scene.hpp"

#include <new>
#include <string>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>

using namespace faults;

namespace {

/// A pool that is full of a live block and one in flight.
template <class Pool>
struct full {
    static constexpr std::size_t limit_bytes = 6 * MiB;
    static constexpr bool lists = weir::contract::holds<support::wrapped_pool, Pool>;

    stage::stream a, b;
    std::unique_ptr<Pool> pool = made<Pool>(limit_bytes);
    void* live = pool->allocate(a, 4 * MiB);
    void* got = nullptr;
    std::string said;

    full() {
        void* const freed = pool->allocate(b, 2 * MiB);
        CHECK(device::launch(b, {}, {{freed, 2 * MiB}}) == cudaSuccess);
        pool->deallocate(b, freed, 2 * MiB);
    }
    ~full() {
        if (live)
            pool->deallocate(a, live, 4 * MiB);
    }
    void ask() {
        try {
            static_cast<void>(pool->allocate(a, 3 * MiB));
            FAIL_CHECK("there is no room");
        } catch (weir::out_of_memory const& error) {
            support::enough_memory const here;
            said = error.what();
        }
    }
    void goes_on() {
        CHECK(pool->state().live_blocks == 1);
        pool->deallocate(a, live, 4 * MiB);
        live = pool->allocate(b, 3 * MiB);
        pool->deallocate(b, live, 3 * MiB);
        live = nullptr;
        pool->settle();
        pool->trim();
        CHECK(pool->reserved_bytes() == 0);
    }
};

} // namespace

#define WEIR_REFUSING_POOLS                                                                                  \
    pool<stream_ordered<checked, grow_first>, sized>,                                                        \
        pool<stream_ordered<checked, wait_first, closing>, fitted>, pool<after_event, sized>,                \
        layer::statistics<pool<stream_ordered<checked>, sized>>, weir::device_pool

TEST_CASE_TEMPLATE("faults: a refusal says what it could find out", Pool, WEIR_REFUSING_POOLS) {
    std::uint64_t const runs =
        support::fault_sweep([] { return std::make_unique<full<Pool>>(); }, [](full<Pool>& s) { s.ask(); },
                             [](full<Pool>& s, support::struck const& fault) {
                                 CHECK(fault.threw == s.said.empty());
                                 bool const knows = support::contains(s.said, ", free on the device ");
                                 CHECK((!knows || !fault.hit("cudaMemGetInfo")));
                                 CHECK((knows || !fault.calls.empty()));
                                 if (full<Pool>::lists && !fault.threw)
                                     CHECK_SAYS(s.said, "; the largest live blocks: 4 MiB at 0x");
                                 s.goes_on();
                             });
    CHECK(runs > 5);
}

TEST_CASE_TEMPLATE("memory: a refusal without host memory is std::bad_alloc, and the pool goes on working",
                   Pool, WEIR_REFUSING_POOLS) {
    if (!support::host_memory_can_fail)
        return;
    bool refused = false;
    for (long k = 0; !refused; ++k) {
        REQUIRE(k < 1000);
        stage::world const here;
        full<Pool> s;
        try {
            support::failing_new const fails(k);
            s.ask();
            refused = true;
        } catch (std::bad_alloc const&) {
        }
        CHECK(refused != s.said.empty());
        s.goes_on();
    }
}

#endif
