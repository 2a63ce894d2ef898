// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Where the host's memory runs out in the midst, and what must stay where it is. What goes aside and comes back otherwise:
// stream_exchange.cpp.

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <new>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/reuse/stream_ordered/older_generation.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>
#include <weir/reuse/tuning.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>

using weir::KiB;
using weir::MiB;
using weir::base::range;

#ifdef WEIR_SIMULATED_CUDA

namespace {

struct tuning : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 4;
    static constexpr std::size_t recent_bytes = 0;
    static constexpr unsigned young_frees = 0;
    static constexpr std::size_t aside_bytes = 64 * KiB;
};
// Takes half of what it is to absorb, and no more, where there is no host memory for it.
struct halting : weir::placement::best_fit<512> {
    void absorb(halting& other) {
        halting half;
        for (int i = 0; i < 150 && halts; ++i)
            half.add(other.take(1 * KiB, 1));
        best_fit::absorb(halts ? half : other);
        if (halts)
            throw std::bad_alloc();
    }
    static inline bool halts = false;
};
using caller = weir::reuse::detail::caller<weir::identity::checked>;
using set = weir::reuse::detail::stream_set<halting, weir::identity::checked, tuning>;

// A set of many small ranges under an event that is not reached, and an empty one aside.
struct stage {
    stage() {
        weir::check_cuda(gate.close(s), "gate");
        own.name(caller(s), 0);
        for (std::size_t i = 0; i < 300; ++i)
            own.covered().add(range{i * 2 * KiB, 1 * KiB});
        CHECK(own.close(s));
        own.older = &other;
        own.host = &host;
        other.is_older = true;
    }
    ~stage() { gate.open(); }
    std::size_t sum() { return own.covered().free_bytes() + other.covered().free_bytes() + host.covered().free_bytes(); }
    simulated_cuda::world const world{simulated_cuda::config{}.eager(), support::report_all};
    simulated_cuda::gate gate;
    support::scoped_stream const s;
    set own{halting()}, other{halting()}, host{halting()};
};

} // namespace

TEST_CASE("older_generation: where host memory runs out in the midst no byte is lost and none is without its event") {
    for (bool const halts : {false, true}) {
        CAPTURE(halts);
        stage here;
        halting::halts = halts;
        CHECK(weir::reuse::detail::set_aside(here.own));
        halting::halts = false;
        CHECK(here.own.covered().free_bytes() == (halts ? 150 * KiB : 0));
        CHECK(here.other.covered().free_bytes() == (halts ? 150 * KiB : 300 * KiB));
        CHECK(here.own.reached() == !halts);
        CHECK_FALSE(here.other.reached());
        for (set* each : {&here.own, &here.other})
            CHECK(each->hint.bytes() == each->covered().free_bytes());
        CHECK(here.own.close(here.s)); // also where both share the event
        CHECK_FALSE(here.other.reached());
        CHECK(here.sum() == 300 * KiB);
    }
}

TEST_CASE("older_generation: whatever host memory is left when bytes come back, none is lost, and none without its event") {
    if (!support::host_memory_can_fail)
        return;
    for (bool const later : {false, true}) {
        bool threw = true;
        for (long left = 0; threw; ++left) {
            CAPTURE(later);
            CAPTURE(left);
            REQUIRE(left < 100);
            stage here;
            CHECK(weir::reuse::detail::set_aside(here.own));
            if (later)
                CHECK(here.own.close(here.s));
            for (std::size_t i = 0; i < 100; ++i)
                here.own.covered().add(range{16 * MiB + i * 2 * KiB, 1 * KiB});
            threw = false;
            try {
                support::failing_new const none(left);
                weir::reuse::detail::recall(here.own);
            } catch (std::bad_alloc const&) {
                threw = true;
            }
            CHECK(here.sum() == 400 * KiB);
            CHECK(here.own.arrivals() == 1);
            for (set* each : {&here.own, &here.other})
                if (each->covered().free_bytes() > 100 * KiB)
                    CHECK_FALSE(each->reached());
            CHECK(here.own.hint.bytes() == here.own.covered().free_bytes());
        }
    }
}

TEST_CASE("older_generation: where host memory runs out while bytes go to the host's set, what is there is seen there") {
    stage here;
    halting::halts = true;
    CHECK_THROWS_AS(weir::reuse::detail::move_covered(here.own, here.host), std::bad_alloc);
    halting::halts = false;
    CHECK(here.host.hint.bytes() == 150 * KiB);
    CHECK(here.own.hint.bytes() == 150 * KiB);
    CHECK(here.sum() == 300 * KiB);
}

TEST_CASE("older_generation: where no event can be recorded what goes aside keeps its event, and so does its owner") {
    stage here;
    here.own.wanted.store(true, weir::base::memory_order_relaxed);
    simulated_cuda::fail_call("cudaEventRecord", 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
    CHECK_FALSE(here.own.close(here.s));
    simulated_cuda::clear_faults();
    CHECK(here.other.covered().free_bytes() == 300 * KiB);
    CHECK_FALSE(here.other.reached());
    CHECK_FALSE(here.own.reached());
}

TEST_CASE("older_generation: what was set aside in the life of another device's stream does not come back with its event") {
    simulated_cuda::world const world(simulated_cuda::config{}.eager().with_devices(2), support::report_all);
    support::scoped_stream const s;
    set own{halting()}, other{halting()}, host{halting()};
    own.name(caller(s), 0);
    own.covered().add(range{0, 300 * KiB});
    CHECK(own.close(s));
    own.older = &other;
    own.host = &host;
    other.is_older = true;
    CHECK(weir::reuse::detail::set_aside(own));
    weir::runtime::device_scope const there(1);
    support::scoped_stream const far;
    own.name(caller(far), 1); // the set is used again
    weir::reuse::detail::recall(own);
    CHECK(other.covered().free_bytes() == 300 * KiB);
    CHECK(own.device() == 1);
    CHECK(own.close(far)); // an event of device 0 could not be recorded there
}

TEST_CASE("older_generation: nothing goes aside over a block there that waits for other streams, whose event is not the later one") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, user;
    set own{halting()}, other{halting()}, host{halting()};
    own.name(caller(s), 0);
    own.covered().add(range{0, 300 * KiB});
    CHECK(own.close(s));
    simulated_cuda::gate gate;
    weir::check_cuda(gate.close(user), "gate");
    weir::base::growing_array<weir::runtime::event> uses;
    uses.push_back(weir::runtime::event(0));
    uses.back().record(user);
    CHECK(own.defer(range{1 * MiB, 100 * KiB}, std::move(uses), s));
    own.older = &other;
    own.host = &host;
    other.is_older = true;
    CHECK(weir::reuse::detail::set_aside(own));
    CHECK(other.covered().take(300 * KiB, 1)); // the stream itself took it
    CHECK(other.deferred().closed_bytes() == 100 * KiB);
    own.covered().add(range{2 * MiB, 300 * KiB});
    CHECK_FALSE(weir::reuse::detail::set_aside(own));
    CHECK(own.covered().free_bytes() == 300 * KiB);
    CHECK(other.covered().free_bytes() == 0);
    gate.open();
}

TEST_CASE("older_generation: where host memory runs out while a close makes way, the bytes stay and the close goes on") {
    stage here;
    here.gate.open();
    weir::check_cuda(cudaStreamSynchronize(here.s), "cudaStreamSynchronize");
    CHECK(here.own.reached());
    halting::halts = true;
    CHECK(here.own.close(here.s));
    halting::halts = false;
    CHECK(here.sum() == 300 * KiB);
}

#endif
