// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// One stream's bytes by hand, the way the reuse rule drives them. What several sets do together is in tests/reuse and
// tests/simulation.

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <new>
#include <set>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <utility>
#include <vector>
#include <weir/base/size.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>
#include <weir/reuse/tuning.hpp>
#include <weir/runtime/devices.hpp>

using weir::check_cuda;
using weir::runtime::event;
using weir::KiB;
using weir::MiB;
using weir::on_host;
using weir::base::range;

namespace {

struct tuning : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 4;
    static constexpr std::size_t recent_bytes = 64 * KiB;
    static constexpr unsigned young_frees = 0;
    static constexpr std::size_t aside_bytes = 64 * KiB;
};

using caller = weir::reuse::detail::caller<weir::identity::checked>;
using set = weir::reuse::detail::stream_set<weir::placement::best_fit<512>, weir::identity::checked, tuning>;

constexpr std::size_t base = 1 * MiB; // where the first chunk lies: a number, no memory

// The set of one stream with a fresh chunk of 1 MiB.
struct stage {
    stage() {
        own.name(caller(s), 0);
        own.covered().add(range{base, 1 * MiB});
        own.update_hint();
    }
    range take(std::size_t bytes) {
        range const block = own.take(bytes, 256, s);
        CHECK(block.bytes == weir::base::align_up(bytes, 512));
        own.used().took(block);
        return block;
    }
    bool give(range block) { return own.give(block, s); }
    weir::base::growing_array<event> uses_on(cudaStream_t user) {
        weir::base::growing_array<event> list;
        list.push_back(event(0));
        list.back().record(user);
        return list;
    }

    support::scoped_stream s, other;
    set own{weir::placement::best_fit<512>()};
};

#ifdef WEIR_SIMULATED_CUDA
// A stream whose work does not end before it is told to.
struct busy {
    explicit busy(cudaStream_t stream) { check_cuda(gate.close(stream), "gate"); }
    ~busy() { gate.open(); }
    simulated_cuda::gate gate;
};
#endif

} // namespace

TEST_CASE("stream_set: a fresh set is nobody's and holds nothing") {
    set fresh{weir::placement::best_fit<512>()};
    CHECK(fresh.is_at_rest());
    CHECK(fresh.is_at_rest());
    CHECK_FALSE(fresh.is_open());
    CHECK(fresh.open_bytes() == 0);
    CHECK(fresh.hint.bytes() == 0);
    CHECK(fresh.arrivals() == 0);
    CHECK(fresh.used().lost_bytes == 0);
    CHECK(fresh.used().bytes() == 0);
    CHECK(fresh.used().blocks() == 0);
    CHECK(fresh.device() == weir::any_device);
    CHECK(fresh.key.load(weir::base::memory_order_acquire) == 0);
}

TEST_CASE("stream_set: knows the stream that it was named for") {
    support::every_schedule([] {
        stage here;
        CHECK(here.own.id() == weir::runtime::id_of(here.s));
        CHECK(here.own.id() != weir::runtime::id_of(here.other));
        CHECK(here.own.device() == 0);
        CHECK(here.own.key.load(weir::base::memory_order_acquire) == reinterpret_cast<std::uintptr_t>(static_cast<cudaStream_t>(here.s)));
        CHECK(here.own.hint.bytes() == 1 * MiB);
        CHECK(here.own.reached());
    });
}

TEST_CASE("stream_set: what was freed lately comes back by size, with no CUDA call") {
    support::every_schedule([] {
        stage here;
        range const a = here.take(1000), b = here.take(1000), c = here.take(5000);
        CHECK(here.own.used().blocks() == 3);
        CHECK(here.own.used().bytes() == 1024 + 1024 + 5120);
#ifdef WEIR_SIMULATED_CUDA
        auto const before = simulated_cuda::calls();
#endif
        here.give(a);
        here.give(b);
        here.give(c);
        CHECK(here.own.is_open());
        CHECK(here.own.open_bytes() == 1024 + 1024 + 5120);
        CHECK(here.own.arrivals() == 3);
        CHECK(here.own.take_recent(1000, 256) == b); // the newest first
        CHECK(here.own.take_recent(1000, 256) == a);
        CHECK_FALSE(here.own.take_recent(1000, 256));
        CHECK(here.own.take_recent(5000, 256) == c);
        CHECK_FALSE(here.own.is_open());
#ifdef WEIR_SIMULATED_CUDA
        CHECK(simulated_cuda::calls() == before);
#endif
        CHECK(here.own.used().blocks() == 0);
    });
}

TEST_CASE("stream_set: keeps open as many bytes as it may, and not one more") {
    support::every_schedule([] {
        stage here;
        range const half = here.take(tuning::recent_bytes / 2), rest = here.take(tuning::recent_bytes / 2);
        range const more = here.take(512);
        CHECK(here.own.put_recent(half));
        CHECK(here.own.put_recent(rest));
        CHECK_FALSE(here.own.put_recent(more));
        CHECK(here.own.open_bytes() == tuning::recent_bytes);
    });
}

TEST_CASE("stream_set: what is too much to keep open is covered by an event") {
    support::every_schedule([] {
        stage here;
        range const large = here.take(100 * KiB); // more than may stay open
        here.give(large);
        CHECK_FALSE(here.own.is_open());
        CHECK(here.own.safe().passed());
        CHECK(here.own.hint.bytes() == 1 * MiB);
        std::vector<range> blocks;
        range const live = here.take(1000);
        for (int i = 0; i < 6; ++i)
            blocks.push_back(here.take(1000));
        for (range const& each : blocks)
            here.give(each); // the fifth does not fit: all that is open is covered with it
        CHECK(here.own.open_bytes() == 1024);
        here.own.put_recent(live);
        range const all = here.own.take(1 * MiB, 256, here.s); // closes the rest, and everything joins
        CHECK(all == range{base, 1 * MiB});
        here.own.put_back(all, false);
        here.own.safe().passed()->synchronize();
        CHECK(here.own.reached());
    });
}

TEST_CASE("stream_set: closing records the event, and reached tells when anyone may have the bytes") {
    support::every_schedule([] {
        stage here;
        range const block = here.take(1000);
        here.give(block);
        CHECK(here.own.close(here.s));
        CHECK_FALSE(here.own.is_open());
        CHECK(here.own.hint.bytes() == 1 * MiB);
        here.own.safe().passed()->synchronize();
        CHECK(here.own.reached());
        CHECK(here.own.reached()); // known by now
#ifdef WEIR_SIMULATED_CUDA
        busy held(here.s);
        CHECK(here.own.close(here.s));
        CHECK_FALSE(here.own.reached());
        held.gate.open();
        here.own.safe().passed()->synchronize();
        CHECK(here.own.reached());
#endif
    });
}

TEST_CASE("stream_set: the next event tells of what was taken while it was open") {
    support::every_schedule([] {
        stage here;
        here.give(here.take(1000));
        CHECK(here.own.take_recent(1000, 256));
        CHECK_FALSE(here.own.is_open());
        CHECK(here.own.is_untold()); // who took it may give it to another stream
        CHECK(here.own.close(here.s));
        CHECK_FALSE(here.own.is_untold());
        here.own.safe().passed()->synchronize();
        CHECK(here.own.is_at_rest()); // so that 'settle' waits for no other stream
        range const again = here.take(1000);
        here.give(again);
        CHECK(here.own.take_recent(1000, 256) == again);
        CHECK(here.own.is_untold());
        here.own.come_to_rest(); // as if all work on the device were over
        CHECK_FALSE(here.own.is_untold()); // or each settle from now on would wait for the device
        CHECK(here.own.is_at_rest());
    });
}

TEST_CASE("stream_set: when the last of many blocks comes back, an event tells of all") {
    support::every_schedule([] {
        stage here;
        std::vector<range> blocks;
        for (int i = 0; i < 6; ++i)
            blocks.push_back(here.take(1000));
        for (range const& each : blocks) {
            CHECK((&each == &blocks.front() || here.own.is_open() || &each == &blocks[5]));
            here.give(each);
        }
        CHECK_FALSE(here.own.is_open());
        here.own.safe().passed()->synchronize();
        CHECK(here.own.is_at_rest());
#ifdef WEIR_SIMULATED_CUDA
        std::uint64_t const before = simulated_cuda::calls("cudaEventRecord");
        range block = here.take(1000);
        for (int i = 0; i < 20; ++i) { // what comes and goes pays for none
            here.give(block);
            CHECK(here.own.take_recent(1000, 256) == block);
            here.own.used().took(block);
        }
        here.give(block);
        CHECK(simulated_cuda::calls("cudaEventRecord") == before);
        CHECK(here.own.is_open());
        here.give(here.take(100 * KiB)); // records one as it is
        CHECK(simulated_cuda::calls("cudaEventRecord") == before + 1);
        here.give(here.take(1000));
        CHECK(simulated_cuda::calls("cudaEventRecord") == before + 1);
#endif
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("stream_set: is at rest when no work can use a byte of it") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    stage here;
    support::scoped_stream const user;
    CHECK(here.own.is_at_rest());
    range const block = here.take(1000);
    range const large = here.take(100 * KiB);
    CHECK(here.own.is_at_rest()); // what is live is the pool's to know
    here.give(block);
    CHECK_FALSE(here.own.is_at_rest()); // open
    {
        busy held(here.s);
        here.give(large);
        CHECK_FALSE(here.own.is_open());
        CHECK_FALSE(here.own.is_at_rest()); // in flight
        held.gate.open();
        here.own.safe().passed()->synchronize();
        CHECK(here.own.is_at_rest());
    }
    range const used = here.take(1000);
    busy held(user);
    here.own.defer(used, here.uses_on(user), here.s);
    here.own.used().gave(used);
    here.own.safe().passed()->synchronize();
    CHECK(here.own.reached());
    CHECK_FALSE(here.own.is_at_rest()); // in use on another stream
    held.gate.open();
    check_cuda(cudaStreamSynchronize(user), "cudaStreamSynchronize");
    here.own.poll(here.s);
    CHECK(here.own.is_at_rest());
}
#endif

TEST_CASE("stream_set: cannot close while the stream is captured, and breaks no capture") {
    support::every_schedule([] {
        stage here;
        range const small = here.take(1000), large = here.take(100 * KiB);
        {
            support::capture graph(here.s);
            CHECK(here.give(small));
            CHECK_FALSE(here.give(large)); // more than may stay open
            CHECK_FALSE(here.own.close(here.s));
            CHECK(here.own.open_bytes() == 1024);
            CHECK(graph.unbroken());
        }
        CHECK(here.give(large));
        CHECK(here.own.hint.bytes() == 1 * MiB);
    });
}

TEST_CASE("stream_set: cannot close when the handle bears another stream") {
    support::every_schedule([] {
        stage here;
        range const block = here.take(1000);
        here.give(block);
        CHECK_FALSE(here.own.close(here.other));
        CHECK(here.own.open_bytes() == 1024);
        CHECK(here.own.close(here.s));
    });
}

TEST_CASE("stream_set: a block with uses on other streams is nobody's before they are over") {
    support::every_schedule([] {
        stage here;
        range const block = here.take(100 * KiB);
#ifdef WEIR_SIMULATED_CUDA
        busy held(here.other);
        here.own.used().gave(block);
        here.own.defer(block, here.uses_on(here.other), here.s);
        CHECK_FALSE(here.own.poll(here.s));
        CHECK_FALSE(here.own.is_at_rest());
        CHECK(here.own.take(1 * MiB, 256, here.s) == range{});
        held.gate.open();
        check_cuda(cudaStreamSynchronize(here.other), "cudaStreamSynchronize");
        CHECK(here.own.hint.bytes() == 1 * MiB); // soon anyone's
        CHECK(here.own.poll(here.s));
        CHECK_FALSE(here.own.poll(here.s));
        CHECK(here.own.hint.bytes() == 1 * MiB);
#else
        here.own.used().gave(block);
        here.own.defer(block, here.uses_on(here.other), here.s);
        check_cuda(cudaStreamSynchronize(here.other), "cudaStreamSynchronize");
#endif
        CHECK(here.own.take(1 * MiB, 256, here.s) == range{base, 1 * MiB});
        CHECK(here.own.hint.bytes() == 0);
    });
}

TEST_CASE("stream_set: or its own stream is made to wait for them") {
    support::every_schedule([] {
        stage here;
        range const block = here.take(100 * KiB);
        here.own.used().gave(block);
#ifdef WEIR_SIMULATED_CUDA
        busy held(here.other);
#endif
        {
            support::capture graph(here.s); // the stream's own last use would have no event
            CHECK_FALSE(here.own.defer(block, here.uses_on(here.other), here.s));
            CHECK(graph.unbroken());
        }
        CHECK(here.own.defer(block, here.uses_on(here.other), here.s));
        CHECK(here.own.open_bytes() == 0);
        CHECK(here.own.poll(here.s, true));
#ifdef WEIR_SIMULATED_CUDA // on a GPU the use may be over by now
        CHECK(here.own.open_bytes() == 100 * KiB); // open, and the stream waits
#endif
        CHECK(here.own.close(here.s));
        CHECK(here.own.take(1 * MiB, 256, here.s) == range{base, 1 * MiB});
#ifdef WEIR_SIMULATED_CUDA
        CHECK(cudaStreamQuery(here.s) == cudaErrorNotReady);
        static_cast<void>(cudaGetLastError());
#endif
    });
}

TEST_CASE("stream_set: the uses that blocks wait for can be listed and waited for without the lock") {
    support::every_schedule([] {
        stage here;
        range const a = here.take(1000), b = here.take(1000);
        here.own.defer(a, here.uses_on(here.other), here.s);
        here.own.defer(b, {}, here.s);
        weir::base::growing_array<weir::base::shared<weir::base::growing_array<event>>> list;
        here.own.deferred().list_uses(list);
        REQUIRE(list.size() == 1);
        for (event const& each : *list[0])
            each.synchronize();
        CHECK(here.own.poll(here.s));
        list.clear();
        here.own.deferred().list_uses(list);
        CHECK(list.empty());
    });
}

TEST_CASE("stream_set: a block that waits for other streams arrives, so that a settle under way does not vouch for it") {
    support::every_schedule([] {
        stage here;
        range const deferred = here.take(1000), stranded = here.take(1000);
        CHECK(here.own.arrivals() == 0);
        CHECK(here.own.defer(deferred, here.uses_on(here.other), here.s));
        CHECK(here.own.arrivals() == 1);
        here.own.strand(stranded, here.uses_on(here.other));
        CHECK(here.own.arrivals() == 2);
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    });
}

TEST_CASE("stream_set: settle turns every byte into anyone's, but for uses that are not over") {
    support::every_schedule([] {
        stage here;
        range const a = here.take(1000), b = here.take(100 * KiB), c = here.take(2000);
        here.give(a);
        {
            support::capture graph(here.s);
            CHECK_FALSE(here.give(b));
            CHECK(graph.unbroken());
        }
        CHECK(here.give(b));
#ifdef WEIR_SIMULATED_CUDA
        busy held(here.other);
        here.own.defer(c, here.uses_on(here.other), here.s);
        here.own.come_to_rest();
        CHECK(here.own.hint.bytes() >= 1 * MiB - 2048);
        CHECK(here.own.take(1 * MiB, 256, here.s) == range{});
        held.gate.open();
#else
        here.own.defer(c, here.uses_on(here.other), here.s);
#endif
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        here.own.come_to_rest();
        CHECK(here.own.reached());
        CHECK(here.own.open_bytes() == 0);
        CHECK(here.own.take(1 * MiB, 256, here.s) == range{base, 1 * MiB});
    });
}

TEST_CASE("stream_set: the host's set has no stream: what comes is anyone's at once") {
    support::every_schedule([] {
        set host{weir::placement::best_fit<512>()};
        host.covered().add(range{base, 1 * MiB});
        host.update_hint();
        range const block = host.take(100 * KiB, 256, on_host);
        CHECK(block);
        CHECK_FALSE(host.put_recent(block)); // nothing is kept open
        host.put(block, on_host);
        CHECK(host.reached());
        CHECK(host.hint.bytes() == 1 * MiB);
        CHECK(host.take(2 * MiB, 256, on_host) == range{});
        // What nothing is known of waits for settle.
        range const unknown = host.take(50 * KiB, 256, on_host);
        host.strand(unknown, {});
        CHECK(host.open_bytes() == 50 * KiB);
        CHECK(host.take(1 * MiB, 256, on_host) == range{});
        host.come_to_rest();
        range const all = host.take(1 * MiB, 256, on_host);
        CHECK(all == range{base, 1 * MiB});
        host.strand(all, {}, true); // lent bytes, no block
        host.come_to_rest();
        CHECK(host.hint.bytes() == 1 * MiB);
    });
}

TEST_CASE("stream_set: receives bytes that another set lent, and what is lost stays lost") {
    support::every_schedule([] {
        stage here;
        here.own.receive(range{10 * MiB, 1 * MiB}, false);
        CHECK(here.own.hint.bytes() == 2 * MiB);
        CHECK(here.own.arrivals() == 0);
        here.own.receive(range{20 * MiB, 1 * MiB}, true); // it waited: 'settle' is to know
        CHECK(here.own.arrivals() == 1);
        range const block = here.take(1000);
        here.own.lose(block);
        CHECK(here.own.used().lost_bytes == 1024);
        here.own.come_to_rest();
        CHECK(here.own.hint.bytes() == 3 * MiB - 1024);
    });
}

TEST_CASE("stream_set: default streams keep open blocks as others do; without these the set would rest") {
    support::every_schedule([] {
        for (cudaStream_t const each : {cudaStreamPerThread, cudaStreamLegacy}) {
            set own{weir::placement::best_fit<512>()};
            own.name(caller(each), 0);
            own.covered().add(range{base, 1 * MiB});
            own.update_hint();
            range const block = own.take(1000, 256, each);
            CHECK(own.put_recent(block));
            CHECK(own.is_open());
            CHECK_FALSE(own.is_at_rest());
            CHECK(own.rests_without_open());
            CHECK(own.close(each));
            CHECK(own.hint.bytes() == 1 * MiB);
            check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            CHECK(own.is_at_rest());
        }
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("stream_set: where the event cannot be recorded, nothing is taken") {
    for (std::uint64_t k = 1; k <= 6; ++k) {
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        stage here;
        range const block = here.take(100 * KiB);
        simulated_cuda::fail_call(k, cudaErrorUnknown);
        bool const taken = here.give(block);
        bool const failed = simulated_cuda::failed_calls() != 0;
        simulated_cuda::clear_faults();
        CHECK(here.own.hint.bytes() == 1 * MiB - (taken ? 0 : block.bytes));
        if (!taken) {
            CHECK(failed);
            CHECK(here.give(block));
        }
        CHECK(here.own.take(1 * MiB, 256, here.s) == range{base, 1 * MiB}); // and closing again helps
    }
}

TEST_CASE("stream_set: a set that is named anew covers nothing yet, whatever its former stream still does") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
    set own{weir::placement::best_fit<512>()};
    support::scoped_stream const first;
    own.name(caller(first), 0);
    busy held(first);
    CHECK(own.close(first));
    CHECK_FALSE(own.reached());
    for (int device : {0, 1}) { // where it keeps its event, and where it has none
        weir::runtime::device_scope const there(device);
        support::scoped_stream const s;
        own.name(caller(s), device);
        CHECK(own.reached());
    }
}

TEST_CASE("stream_set: once it made way nobody wants it, until another one searches in vain") {
    for (bool const in_use : {false, true}) {
        CAPTURE(in_use);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        stage here;
        set older{weir::placement::best_fit<512>()}, host{weir::placement::best_fit<512>()};
        busy held(here.s);
        CHECK(here.own.close(here.s));
        here.own.older = &older;
        here.own.host = &host;
        older.is_older = true;
        if (!in_use) {
            held.gate.open();
            here.own.safe().passed()->synchronize();
            CHECK(here.own.reached());
        }
        here.own.wanted.store(true, weir::base::memory_order_relaxed);
        CHECK(here.own.close(here.s));
        CHECK((in_use ? older : host).covered().free_bytes() == 1 * MiB);
        CHECK_FALSE(here.own.wanted.load(weir::base::memory_order_relaxed));
        // Nor is a set that becomes another stream's: nobody searched that one.
        here.own.wanted.store(true, weir::base::memory_order_relaxed);
        here.own.name(caller(here.other), 0);
        CHECK_FALSE(here.own.wanted.load(weir::base::memory_order_relaxed));
    }
}

TEST_CASE("stream_set: an event of another device is made anew when the set changes devices") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
    set own{weir::placement::best_fit<512>()};
    for (int device : {0, 1, 1, 0}) {
        weir::runtime::device_scope const there(device);
        support::scoped_stream const s;
        own.name(caller(s), device);
        CHECK(own.close(s));
        own.safe().passed()->synchronize();
    }
}
#endif
