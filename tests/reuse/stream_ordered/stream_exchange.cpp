// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Bytes that go from set to set, by hand. What pools make of it is in tests/reuse; that no order of threads loses any, in
// tests/interleavings and tests/simulation.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/reuse/stream_ordered/stream_exchange.hpp>
#include <weir/reuse/tuning.hpp>

using weir::runtime::event;
using weir::KiB;
using weir::MiB;
using weir::on_host;
using weir::base::range;
using weir::stream_ref;

#ifdef WEIR_SIMULATED_CUDA

namespace {

struct tuning : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 4;
    static constexpr std::size_t recent_bytes = 4 * KiB;
    static constexpr unsigned young_frees = 0;
    static constexpr std::size_t aside_bytes = 1 * MiB;
};

// A stream whose work does not go on before it is told to.
struct busy_stream : support::scoped_stream {
    busy_stream() { hold(); }
    ~busy_stream() { go_on(); }
    busy_stream(busy_stream const&) = delete;
    busy_stream& operator=(busy_stream const&) = delete;
    void hold() {
        gate = simulated_cuda::gate();
        weir::check_cuda(gate.close(*this), "gate");
    }
    void go_on() {
        gate.open();
        weir::check_cuda(cudaStreamSynchronize(*this), "cudaStreamSynchronize");
    }
    simulated_cuda::gate gate;
};

struct large_recent : tuning {
    static constexpr std::size_t recent_bytes = 1 * MiB;
};
struct splintering : tuning {
    static constexpr std::size_t splinter_bytes = 8 * KiB;
};

// Streams 'a' and 'b', both with work under way.
template <class Placement, class Tuning = tuning>
struct stage_of {
    using exchange_type = weir::reuse::detail::stream_exchange<Placement, weir::identity::checked, Tuning>;
    using directory = weir::reuse::detail::stream_directory<Placement, weir::identity::checked, Tuning>;
    using set = typename directory::set;
    using caller = typename directory::caller;

    auto enter(stream_ref stream) { return sets.enter(caller(stream)); }
    set* of(stream_ref stream) { return enter(stream).get(); }
    void gather(stream_ref stream, bool grows) { exchange.gather(caller(stream), grows); }
    void recall(stream_ref stream) { exchange.recall(caller(stream)); }
    // Bytes that were freed on the stream, up to an event.
    void freed(stream_ref stream, std::size_t at, std::size_t bytes) {
        auto const own = enter(stream);
        CHECK(own->put(range{at, bytes}, stream));
    }
    // The same of a block that `user` uses as well, and goes on with.
    void freed_while_used(stream_ref stream, std::size_t at, std::size_t bytes, cudaStream_t user) {
        weir::base::growing_array<event> uses;
        uses.push_back(event(0));
        uses.back().record(user);
        CHECK(enter(stream)->defer(range{at, bytes}, std::move(uses), stream));
    }
    range take(stream_ref stream, std::size_t bytes, bool wait = false) {
        made_wait = false;
        return exchange.take(of(stream), {caller(stream), bytes, 256, weir::base::align_up(bytes, 512), wait, &made_wait});
    }
    // Rung 1, as the reuse rule climbs it.
    range take_own(stream_ref stream, std::size_t bytes) { return enter(stream)->take(bytes, 256, stream); }
    // Whether the stream, told to go on, waits for another.
    static bool waits(busy_stream& stream) {
        stream.gate.open();
        bool const still = cudaStreamQuery(stream) == cudaErrorNotReady;
        static_cast<void>(cudaGetLastError());
        return still;
    }

    simulated_cuda::world const world{simulated_cuda::config{}.eager(), support::report_all};
    busy_stream a, b;
    directory sets{0};
    exchange_type exchange{sets};
    bool made_wait = false; // by the last 'take'
};
using stage = stage_of<weir::placement::best_fit<512>>;
using set = stage::set;

constexpr std::size_t at_a = 64 * MiB, at_b = 128 * MiB; // numbers, no memory

} // namespace

TEST_CASE("stream_exchange: takes what another stream is done with, and waits for the rest only if it is to") {
    stage here;
    here.freed(here.a, at_a, 2 * MiB);
    CHECK_FALSE(here.take(here.b, 1 * MiB));
    CHECK(here.take(here.b, 1 * MiB, true) == range{at_a, 1 * MiB});
    CHECK(here.made_wait);
    CHECK(stage::waits(here.b));
    here.a.go_on();
    CHECK_FALSE(stage::waits(here.b));
    CHECK(here.take(here.b, 1 * MiB, true) == range{at_a + 1 * MiB, 1 * MiB});
    CHECK_FALSE(here.made_wait);
    CHECK_FALSE(here.take(here.b, 1 * MiB));
}

TEST_CASE("stream_exchange: before a pool grows, what another stream uses is set aside with its event") {
    stage here;
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, false);
    CHECK(here.of(here.a)->older == nullptr); // nobody is short of memory
    here.gather(here.b, true);
    set* const own = here.of(here.a);
    REQUIRE(own->older != nullptr);
    CHECK(own->covered().free_bytes() == 0);
    CHECK(own->older->covered().free_bytes() == 2 * MiB);
    CHECK_FALSE(own->older->reached());
    CHECK_FALSE(own->is_at_rest());
    CHECK_FALSE(here.take(here.b, 1 * MiB));
    // What 'a' frees later puts nothing off.
    here.a.go_on();
    here.a.hold();
    here.freed(here.a, at_a + 8 * MiB, 1 * MiB);
    CHECK_FALSE(own->reached());
    CHECK(here.take(here.b, 2 * MiB) == range{at_a, 2 * MiB});
    CHECK_FALSE(here.take(here.b, 1 * MiB));
}

TEST_CASE("stream_exchange: a stream has what is aside of it at once, and waits for nothing") {
    stage here;
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, true);
    CHECK(here.take_own(here.a, 1 * MiB) == range{at_a, 1 * MiB});
    CHECK_FALSE(stage::waits(here.a));
}

TEST_CASE("stream_exchange: a block of a slab that is aside costs its stream no event, but no slab is cut there before") {
    using sized = weir::placement::by_size<64 * KiB, weir::placement::bins<256>, weir::placement::best_fit<512>>;
    stage_of<sized> here;
    here.freed(here.a, at_a, 2 * MiB);
    range const first = here.take_own(here.a, 1 * KiB); // of a slab
    here.gather(here.b, true);
    REQUIRE(here.of(here.a)->older != nullptr);
    CHECK(here.of(here.a)->older->covered().splinter_bytes() != 0);
    CHECK(here.enter(here.a)->put_recent(range{at_b, 512}));
    std::uint64_t const before = simulated_cuda::calls("cudaEventRecord");
    CHECK(here.take_own(here.a, 1 * KiB) == range{first.offset + 1 * KiB, 1 * KiB});
    CHECK(simulated_cuda::calls("cudaEventRecord") == before);
    range const large = here.take_own(here.a, 100 * KiB);
    CHECK(large.offset - at_a < 2 * MiB);
    CHECK(simulated_cuda::calls("cudaEventRecord") == before);
    CHECK(here.take_own(here.a, 2 * KiB)); // what is open may have joined to as much
    CHECK(simulated_cuda::calls("cudaEventRecord") == before + 1);
}

TEST_CASE("stream_exchange: a block that no work uses costs a stream no event, once bytes of it went aside") {
    using sized = weir::placement::by_size<64 * KiB, weir::placement::bins<256>, weir::placement::best_fit<512>>;
    stage_of<sized> here;
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, true);
    CHECK(here.of(here.a)->older->covered().take(2 * MiB, 512)); // no more
    here.freed(on_host, at_b, 2 * MiB);
    range const first = here.take_own(on_host, 1 * KiB); // of a slab
    CHECK(here.enter(here.a)->put_recent(range{at_a, 512}));
    std::uint64_t const before = simulated_cuda::calls("cudaEventRecord") + simulated_cuda::calls("cudaEventQuery");
    CHECK(here.take_own(here.a, 1 * KiB) == range{first.offset + 1 * KiB, 1 * KiB});
    CHECK(here.take_own(here.a, 100 * KiB));
    CHECK(simulated_cuda::calls("cudaEventRecord") + simulated_cuda::calls("cudaEventQuery") == before);
    CHECK_FALSE(here.take_own(here.a, 2 * KiB)); // no slab is cut
    CHECK(simulated_cuda::calls("cudaEventRecord") + simulated_cuda::calls("cudaEventQuery") == before + 1);
    auto const host = here.sets.host();
    CHECK(host->hint.bytes() == host->covered().free_bytes());
}

TEST_CASE("stream_exchange: of what is at hand a stream takes its own first, and one block at a time") {
    using sized = weir::placement::by_size<64 * KiB, weir::placement::bins<256>, weir::placement::best_fit<512>>;
    stage_of<sized> here;
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, true);
    here.freed(on_host, at_b, 2 * MiB);
    range const block = here.take_own(here.a, 100 * KiB);
    CHECK(block.offset - at_a < 2 * MiB);
    auto const own = here.enter(here.a);
    CHECK(own->older->covered().free_bytes() == 2 * MiB - 100 * KiB);
    CHECK(own->older->hint.bytes() == 2 * MiB - 100 * KiB);
    CHECK(own->host->covered().free_bytes() == 2 * MiB);
}

TEST_CASE("stream_exchange: blocks that come along go back where the stream has no set, and can have none") {
    using sized = weir::placement::by_size<64 * KiB, weir::placement::bins<256>, weir::placement::best_fit<512>>;
    for (bool const fails : {false, true}) {
        CAPTURE(fails);
        stage_of<sized, splintering> here;
        here.freed(here.a, at_a, 2 * MiB);
        CHECK(here.take_own(here.a, 1 * KiB)); // of a slab
        here.a.go_on();
        auto* const own = here.of(here.a);
        std::size_t const before = own->covered().free_bytes();
        if (fails) // as where the set became another stream's meanwhile
            simulated_cuda::fail_call("cudaStreamGetDevice", 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
        stage_of<sized, splintering>::caller const who(here.b);
        CHECK(here.exchange.take(nullptr, {who, 1 * KiB, 256, 1 * KiB, false, &here.made_wait}).bytes == 1 * KiB);
        simulated_cuda::clear_faults();
        CHECK(own->covered().free_bytes() == before - (fails ? 1 : 8) * KiB);
        CHECK(here.of(here.b)->covered().free_bytes() == (fails ? 0 : 7) * KiB);
    }
}

TEST_CASE("stream_exchange: a large range is not cut where what the stream freed last may do") {
    using sized = weir::placement::by_size<64 * KiB, weir::placement::bins<256>, weir::placement::best_fit<512>>;
    stage_of<sized, large_recent> here;
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, true);
    {
        auto const own = here.enter(here.a);
        CHECK(own->put_recent(range{at_b, 512 * KiB}));
        CHECK(own->put_recent(range{at_b + 512 * KiB, 512 * KiB}));
    }
    CHECK(here.take_own(here.a, 1 * MiB) == range{at_b, 1 * MiB}); // both, joined
}

TEST_CASE("stream_exchange: little is not set aside, nor is the host's, nor what is aside already") {
    stage here;
    here.freed(here.a, at_a, 512 * KiB);
    here.freed(on_host, at_b, 2 * MiB);
    here.gather(here.b, true);
    CHECK(here.of(here.a)->older == nullptr);
    CHECK(here.sets.host()->older == nullptr);
    here.freed(here.a, at_a + 1 * MiB, 1 * MiB);
    for (int i = 0; i < 3; ++i)
        here.gather(here.b, true);
    std::size_t count = 0, older = 0;
    for (set& each : here.sets)
        ++count, older += each.is_older;
    CHECK(count == 4); // of the host, of 'a' and 'b', and one aside
    CHECK(older == 1);
}

TEST_CASE("stream_exchange: wanted again, the next free sets aside before it puts off, if nothing is there") {
    stage here;
    here.freed(here.a, at_a, 1 * MiB);
    here.gather(here.b, true); // the first is aside
    set* const own = here.of(here.a);
    here.freed(here.a, at_a + 8 * MiB, 768 * KiB);
    CHECK_FALSE(here.take(here.b, 512 * KiB)); // and the second wanted
    here.freed(here.a, at_a + 16 * MiB, 2 * MiB);
    here.freed(here.a, at_a + 24 * MiB, 1 * MiB);
    CHECK(own->older->covered().free_bytes() == 1 * MiB); // something is there
    CHECK(own->covered().free_bytes() == 3 * MiB + 768 * KiB);
    CHECK(own->older->covered().take(1 * MiB, 256)); // no more
    here.freed(here.a, at_a + 32 * MiB, 2 * MiB);
    CHECK(own->older->covered().free_bytes() == 3 * MiB + 768 * KiB);
    CHECK(own->covered().free_bytes() == 2 * MiB);
    CHECK(own->older->covered().take(3 * MiB + 768 * KiB, 256) == range{}); // in three pieces
    here.a.go_on();
    here.gather(here.b, false);
    here.a.hold();
    CHECK(here.of(here.b)->covered().free_bytes() == 5 * MiB + 768 * KiB);
    here.freed(here.a, at_a, 1 * MiB);
    here.freed(here.a, at_a + 1 * MiB, 1 * MiB);
    CHECK(own->older->covered().free_bytes() == 1 * MiB); // since 'b' took what 'a' had brought
}

TEST_CASE("stream_exchange: what is aside comes back to join where its stream would grow, whenever more lies free") {
    stage here;
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, true); // the first is aside
    here.freed(here.a, at_a + 2 * MiB, 1 * MiB); // and its neighbour
    CHECK_FALSE(here.take_own(here.a, 3 * MiB));
    here.gather(here.a, true);
    set* const own = here.of(here.a);
    CHECK(own->covered().free_bytes() == 3 * MiB);
    CHECK(own->older->covered().free_bytes() == 0);
    CHECK_FALSE(own->reached());
    here.gather(here.b, true);
    here.gather(here.a, true); // as much lies free as before: others would wait for it in vain
    CHECK(own->older->covered().free_bytes() == 3 * MiB);
    here.freed(here.a, at_a + 8 * MiB, 1 * MiB);
    here.gather(here.a, true);
    CHECK(own->covered().free_bytes() == 4 * MiB);
    here.a.go_on();
    CHECK(here.take(here.b, 3 * MiB));
}

TEST_CASE("stream_exchange: what came back is in use until the event that went with it is reached") {
    for (bool const freed_since : {false, true}) {
        CAPTURE(freed_since);
        stage here;
        here.freed(here.a, at_a, 2 * MiB);
        here.gather(here.b, true);
        if (freed_since)
            here.freed(here.a, at_a + 8 * MiB, 512 * KiB);
        here.recall(here.a);
        set* const own = here.of(here.a);
        CHECK(own->covered().free_bytes() == (freed_since ? 2 * MiB + 512 * KiB : 2 * MiB));
        CHECK_FALSE(own->reached());
        CHECK_FALSE(here.take(here.b, 512 * KiB));
        here.freed(here.a, at_a + 16 * MiB, 1 * MiB); // and its event may be recorded anew
        here.a.go_on();
        CHECK(here.take(here.b, 2 * MiB));
    }
}

TEST_CASE("stream_exchange: what comes back and what was freed since are in use until the later event is reached") {
    stage here;
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, true);
    here.a.go_on();
    here.a.hold();
    here.freed(here.a, at_a + 8 * MiB, 512 * KiB);
    here.recall(here.a);
    CHECK(here.of(here.a)->covered().free_bytes() == 2 * MiB + 512 * KiB);
    CHECK_FALSE(here.take(here.b, 512 * KiB));
    here.a.go_on();
    CHECK(here.take(here.b, 512 * KiB));
}

TEST_CASE("stream_exchange: what lay free once and was given back keeps nothing from coming back") {
    stage here;
    here.freed(here.a, at_a, 64 * MiB);
    here.gather(here.b, true);
    here.gather(here.a, true); // comes back, of 64 MiB
    set* const own = here.of(here.a);
    CHECK(own->covered().take(64 * MiB, 256));
    own->update_hint();
    here.freed(here.a, at_a, 1 * MiB);
    here.gather(here.b, true);
    here.freed(here.a, at_a + 1 * MiB, 1 * MiB);
    here.gather(here.a, true);
    CHECK(own->covered().take(2 * MiB, 256) == range{at_a, 2 * MiB});
}

TEST_CASE("stream_exchange: who finds bytes in use says so") {
    stage here;
    here.freed(here.a, at_a, 1 * MiB);
    here.gather(here.b, true);
    set* const own = here.of(here.a);
    CHECK(own->older->covered().take(1 * MiB, 256));
    here.freed(here.a, at_a + 8 * MiB, 1 * MiB);
    here.freed(here.a, at_a + 16 * MiB, 1 * MiB);
    CHECK(own->older->covered().free_bytes() == 1 * MiB);
    CHECK_FALSE(own->wanted.load(weir::base::memory_order_relaxed)); // it made way
    CHECK_FALSE(here.take(here.b, 1 * MiB));
    CHECK(own->wanted.load(weir::base::memory_order_relaxed));
}

TEST_CASE("stream_exchange: its own blocks that others use come back as well, where a stream is to wait") {
    stage here;
    busy_stream user;
    here.freed(here.a, at_a, 1 * MiB);
    here.freed_while_used(here.a, at_a + 1 * MiB, 1 * MiB, user);
    here.gather(here.b, true);
    CHECK_FALSE(here.take_own(here.a, 2 * MiB));
    here.recall(here.a);
    CHECK(here.take_own(here.a, 2 * MiB) == range{at_a, 2 * MiB});
    CHECK(stage::waits(here.a)); // for 'user'
}

TEST_CASE("stream_exchange: a block that another stream uses for long is not in the way of what is set aside next") {
    stage here;
    busy_stream user;
    here.freed(here.a, at_a, 1 * MiB);
    here.freed_while_used(here.a, at_a + 8 * MiB, 1 * MiB, user);
    here.gather(here.b, true);
    set* const own = here.of(here.a);
    here.a.go_on();
    here.a.hold();
    here.freed(here.a, at_a + 16 * MiB, 1 * MiB);
    here.gather(here.b, true);
    CHECK(own->older->covered().free_bytes() == 1 * MiB);
    CHECK(own->older->deferred().empty());
    CHECK_FALSE(own->older->reached());
    CHECK(here.take_own(here.b, 1 * MiB) == range{at_a, 1 * MiB}); // it was gathered
    CHECK_FALSE(here.take(here.b, 1 * MiB));
    CHECK_FALSE(here.sets.host()->is_at_rest());
    user.go_on();
    CHECK(here.take(here.b, 1 * MiB) == range{at_a + 8 * MiB, 1 * MiB});
}

TEST_CASE("stream_exchange: a stream that nobody wants bytes of any more keeps them, after a while") {
    stage here;
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, true); // 'a' has a place to set aside
    here.a.go_on();
    here.b.go_on();
    auto const rounds_until_kept = [&] {
        int rounds = 0;
        do {
            here.gather(here.a, false);
            range const block = here.take_own(here.a, 512 * KiB);
            CHECK(block);
            here.freed(here.a, block.offset, block.bytes);
            weir::check_cuda(cudaStreamSynchronize(here.a), "cudaStreamSynchronize");
        } while (++rounds < 400 && here.of(here.a)->covered().free_bytes() != 2 * MiB);
        return rounds;
    };
    int const first = rounds_until_kept();
    CHECK(first > 50);
    CHECK(first < 100);
    here.of(here.a)->wanted.store(true, weir::base::memory_order_relaxed); // so it was wrong: twice as long the next time
    int const second = rounds_until_kept();
    CHECK(second > 100);
    CHECK(second < 200);
}

TEST_CASE("stream_exchange: what is aside is anyone's before all of it is used up, and the next lies ready") {
    stage here;
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, true);
    here.a.go_on();
    here.a.hold();
    here.freed(here.a, at_a + 8 * MiB, 1 * MiB);
    CHECK(here.take(here.b, 1 * MiB) == range{at_a, 1 * MiB});
    here.freed(here.a, at_a + 16 * MiB, 1 * MiB); // as much as is left aside, now
    CHECK(here.take(here.b, 512 * KiB) == range{at_a + 1 * MiB, 512 * KiB});
    CHECK(here.sets.host()->covered().free_bytes() == 512 * KiB);
    CHECK(here.of(here.a)->older->covered().free_bytes() == 2 * MiB);
    CHECK(here.of(here.a)->covered().free_bytes() == 0);
}

TEST_CASE("stream_exchange: what a stream gathered and no work uses is not put off by its next free") {
    stage here;
    here.freed(here.b, at_b, 2 * MiB);
    here.freed(here.a, at_a, 2 * MiB);
    here.gather(here.b, true); // 'a' has a place to set aside
    here.a.go_on();
    here.b.go_on();
    here.gather(here.a, true);
    CHECK(here.of(here.a)->covered().free_bytes() == 4 * MiB);
    here.a.hold();
    here.freed(here.a, at_a + 8 * MiB, 1 * MiB);
    CHECK(here.sets.host()->covered().free_bytes() == 4 * MiB);
    CHECK(here.of(here.a)->covered().free_bytes() == 1 * MiB);
    CHECK(here.take(here.b, 2 * MiB));
    CHECK(here.take(here.b, 2 * MiB));
}

TEST_CASE("stream_exchange: what is gathered does not come to a stream whose own bytes are in use, unless the pool grows") {
    stage here;
    here.freed(here.a, at_a, 2 * MiB);
    here.freed(here.b, at_b, 512 * KiB);
    here.a.go_on();
    here.gather(here.b, false);
    CHECK(here.of(here.b)->covered().free_bytes() == 512 * KiB);
    CHECK(here.sets.host()->covered().free_bytes() == 2 * MiB);
    here.gather(here.b, true);
    CHECK(here.of(here.b)->covered().free_bytes() == 2 * MiB + 512 * KiB);
    CHECK(here.sets.host()->covered().free_bytes() == 0);
    CHECK(here.sets.host()->hint.bytes() == 0);
}

TEST_CASE("stream_exchange: a block with a use on another stream goes aside with its stream's event") {
    stage here;
    busy_stream user;
    here.freed(here.a, at_a, 1 * MiB);
    here.freed_while_used(here.a, at_a + 8 * MiB, 1 * MiB, user);
    here.gather(here.b, true);
    set* const own = here.of(here.a);
    REQUIRE(own->older != nullptr);
    user.go_on(); // but 'a' is not done
    CHECK_FALSE(here.take(here.b, 1 * MiB));
    here.gather(here.b, false);
    CHECK(here.sets.host()->covered().free_bytes() == 0);
    CHECK(here.of(here.b)->covered().free_bytes() == 0);
    here.a.go_on();
    CHECK(here.take(here.b, 1 * MiB));
    CHECK(here.take(here.b, 1 * MiB));
}

TEST_CASE("stream_exchange: 'settle' vouches for nothing that was set aside while it waited") {
    stage here;
    here.freed(here.a, at_a, 1 * MiB);
    here.gather(here.b, true);
    set* const own = here.of(here.a);
    std::uint64_t const before = own->older->arrivals();
    here.a.go_on();
    CHECK(here.take(here.b, 1 * MiB)); // empty
    here.a.hold();
    here.freed(here.a, at_a + 8 * MiB, 1 * MiB);
    here.gather(here.b, true);
    CHECK(own->older->covered().free_bytes() == 1 * MiB);
    CHECK(own->older->arrivals() != before);
}

TEST_CASE("stream_exchange: a set is at rest, and another stream's to use again, when what is aside of it is") {
    stage here;
    here.freed(here.a, at_a, 1 * MiB);
    here.gather(here.b, true);
    set* const own = here.of(here.a);
    CHECK(own->reached()); // it has none
    CHECK_FALSE(own->is_at_rest());
    here.a.go_on();
    CHECK(own->is_at_rest());
}

TEST_CASE("stream_exchange: an event that was reached aside stands for the next bytes, and the one before for none") {
    stage here;
    for (int round = 0; round < 4; ++round) {
        CAPTURE(round);
        here.freed(here.a, at_a, 1 * MiB);
        here.gather(here.b, true);
        set* const own = here.of(here.a);
        CHECK(own->older->safe().passed() != own->safe().passed());
        CHECK_FALSE(here.take(here.b, 1 * MiB));
        here.a.go_on();
        CHECK(here.take(here.b, 1 * MiB) == range{at_a, 1 * MiB});
        here.a.hold();
    }
}

#endif
