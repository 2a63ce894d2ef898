// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// What streams leave behind in a pool of reuse::stream_ordered when they end, and what frees leave where CUDA answers
// nothing. More of the same rule is in stream_ordered.cpp.

#include "stage.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <weir/order/order_after.hpp>

using namespace stage;
using weir::on_host;
using weir::pool_options;
using weir::usage_error;

namespace {

template <class Handover, class Identity>
using rule = stream_ordered<Identity, Handover, closing>;

pool_options limit(std::size_t bytes) { return pool_options{}.limit(bytes); }

} // namespace

TEST_CASE_TEMPLATE("stream_ordered: by promise a stream that only allocated may go, whatever it was made to wait for", Pool,
                   watched<pool_of<rule<grow_first, promised>>>, watched<pool_of<rule<wait_first, promised>>>,
                   watched<pool_of<rule<grow_first, promised>, sized>>, watched<pool_of<rule<wait_first, promised>, sized>>) {
    for (std::size_t const bytes : {1 * KiB, 4 * KiB, 64 * KiB, 512 * KiB}) {
        CAPTURE(bytes);
        world const here;
        stream z, s;
        cudaStream_t const handle = s;
        Pool pool(limit(2 * MiB));
        void* const all = pool.write(z, 2 * MiB); // in flight from now on
        pool.deallocate(z, all, 2 * MiB);
        void* const p = pool.allocate(s, bytes); // after z's work, by a wait of s
        s.destroy();
        stream t;
        REQUIRE(static_cast<cudaStream_t>(t) == handle);
        void* const q = pool.write(t, bytes); // reported where it is not after z's work
        pool.deallocate(t, q, bytes);
        pool.deallocate(z, p, bytes);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: by promise a stream of another device is refused where its handle was one of the pool's") {
    world const here(device::config{}.late().with_devices(2));
    stream a;
    cudaStream_t const handle = a;
    watched<pool_of<rule<grow_first, promised>>> pool;
    void* const p = pool.allocate(a, 2 * MiB); // it allocates only, and may go
    a.destroy();
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    {
        stream b;
        REQUIRE(static_cast<cudaStream_t>(b) == handle);
        CHECK_THROWS_WITH_AS(pool.try_allocate(b, 2 * MiB), doctest::Contains("belongs to device 1"), usage_error);
    }
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    pool.deallocate(on_host, p, 2 * MiB);
    check_all_returns(pool);
}

namespace {

// One stream a request, 16 alive at a time, each with up to 200 blocks of mixed sizes.
struct requests {
    bool frees_elsewhere; // the last block is freed on another stream
    bool settles;         // before each stream ends
    bool only_allocates;  // and a stream that stays frees
    bool grows;           // every hundredth request leaves a block behind, until the end
};

struct request_figures {
    std::uint64_t events = 0;      // alive at the end: at most two a set
    std::uint64_t early_calls = 0; // CUDA's, of a hundred requests
    std::uint64_t late_calls = 0;
};

template <class Pool>
request_figures play(requests const& how, int count) {
    request_figures figures;
    Pool pool;
    stream stays;
    std::vector<std::pair<void*, std::size_t>> kept;
    std::minstd_rand die(5);
    auto const below = [&](std::size_t n) { return die() % n; };
    std::vector<std::unique_ptr<stream>> alive(16);
    std::uint64_t before = device::calls();
    for (int i = 0; i < count; ++i) {
        std::unique_ptr<stream>& each = alive[static_cast<std::size_t>(i) % alive.size()];
        if (each && how.settles)
            pool->settle();
        each = std::make_unique<stream>(); // the one that was there ends
        std::size_t const pairs = below(4) == 0 ? 1 + below(200) : 1 + below(20);
        for (std::size_t k = 0; k < pairs; ++k) {
            std::size_t const bytes = std::size_t{1} << (8 + below(12));
            void* const p = pool.allocate(*each, bytes);
            bool const elsewhere = how.only_allocates || (how.frees_elsewhere && k + 1 == pairs);
            if (how.grows && i % 100 == 0 && k == 0) {
                kept.emplace_back(p, bytes);
                continue;
            }
            if (elsewhere)
                weir::order_after(static_cast<cudaStream_t>(stays), static_cast<cudaStream_t>(*each));
            pool.deallocate(elsewhere ? stays : *each, p, bytes);
        }
        if (i % 100 == 99) {
            std::uint64_t const now = device::calls();
            if (i == 299)
                figures.early_calls = now - before;
            figures.late_calls = now - before;
            before = now;
        }
    }
    figures.events = device::calls("cudaEventCreateWithFlags") - device::calls("cudaEventDestroy");
    for (auto const& [p, bytes] : kept)
        pool.deallocate(stays, p, bytes);
    check_all_returns(pool);
    return figures;
}

} // namespace

TEST_CASE("stream_ordered: a stream a request leaves no sets, events or calls behind that grow") {
    using by_question = watched<pool_of<stream_ordered<>, sized>>;
    using by_question_compact = watched<pool_of<stream_ordered<checked, wait_first>, sized>>;
    using by_promise = watched<pool_of<stream_ordered<promised>, sized>>;
    struct row {
        std::string name;
        request_figures (*play)(requests const&, int);
        requests how;
    };
    row const rows[] = {
        {"own", &play<by_question>, {false, false, false, false}},
        {"own, compact", &play<by_question_compact>, {false, false, false, false}},
        {"own, grows", &play<by_question>, {false, false, false, true}},
        {"last elsewhere", &play<by_question>, {true, false, false, false}},
        {"last elsewhere, grows", &play<by_question>, {true, false, false, true}},
        {"only allocates", &play<by_question>, {false, false, true, false}},
        {"promised, only allocates", &play<by_promise>, {false, false, true, false}},
        {"promised, only allocates, grows", &play<by_promise>, {false, false, true, true}},
        {"promised, settles", &play<by_promise>, {false, true, false, false}},
    };
    for (row const& each : rows)
        for (bool const random : {false, true}) {
            CAPTURE(each.name);
            CAPTURE(random);
            world const here(random ? device::config{}.random(3) : device::config{}.eager());
            request_figures const got = each.play(each.how, 500);
            CHECK(got.events <= 2 * 256);
            CHECK(got.late_calls <= got.early_calls + got.early_calls / 4);
        }
}

TEST_CASE_TEMPLATE("stream_ordered: what threads leave that end while the device is behind does not grow", pool_type,
                   watched<pool_of<stream_ordered<checked, wait_first>, sized>>,
                   watched<pool_of<stream_ordered<promised, wait_first>, sized>>) {
    world const here;
    pool_type pool;
    constexpr std::size_t blocks = 12; // of which the last four are kept for the thread, without an event
    std::size_t most_bytes = 0;
    for (int number = 0; number < 200; ++number) {
        std::thread([&] {
            void* held[blocks];
            for (void*& each : held)
                each = pool.write(cudaStreamPerThread, 1 * MiB);
            for (void* each : held)
                pool.deallocate(cudaStreamPerThread, each, 1 * MiB);
        }).join();
        most_bytes = std::max(most_bytes, pool->state().unsettled_bytes);
        CHECK(device::pending() != 0);
    }
    // What sixteen keep, and a few that come meanwhile, and what may be stranded: see stream_directory.hpp.
    CHECK(most_bytes <= 20 * 4 * MiB + 64 * MiB);
    CHECK(pool->reserved_bytes() <= 160 * MiB); // 324 MiB if all of them kept theirs
    check_all_returns(pool);
}

namespace {

template <class Pool>
struct freed_later {
    Pool* pool;
    cudaStream_t on;
    void* p;
    std::size_t bytes;
    static void call(void* of) {
        auto const& self = *static_cast<freed_later*>(of);
        self.pool->deallocate(self.on, self.p, self.bytes);
    }
};

} // namespace

TEST_CASE_TEMPLATE("stream_ordered: what host functions free, where CUDA answers nothing, comes back", pool_type,
                   watched<pool_of<stream_ordered<>>>, watched<pool_of<weir::reuse::after_event>>) {
    for (cudaStream_t const named : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
        world const here;
        stream own;
        cudaStream_t const on = named ? named : own;
        pool_type pool;
        for (int i = 0; i < 300; ++i) {
            freed_later<pool_type> work{&pool, on, pool.write(on, 1 * MiB), 1 * MiB};
            CHECK(cudaLaunchHostFunc(on, &freed_later<pool_type>::call, &work) == cudaSuccess);
            device::drain();
            CHECK(pool->state().in_use_bytes == 0);
            CHECK(pool->state().unsettled_bytes != 0);
        }
        CHECK(pool->reserved_bytes() <= 64 * MiB + 2 * MiB);
        for (device::report const& each : device::reports()) // of the calls in host functions, and of nothing else
            CHECK(each.kind == device::finding::host_access);
        device::clear_reports();
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: where what is stranded cannot be waited for, the next allocation tries again") {
    world const here;
    watched<pool_of<stream_ordered<>, sized>> pool;
    stream keeper;
    void* const spare[] = {pool->allocate(keeper, 4 * MiB), pool->allocate(keeper, 4 * MiB)};
    for (int i = 0; i < 32; ++i) {
        stream once;
        for (int k = 0; k < 12; ++k)
            pool->deallocate(once, pool->allocate(once, 2 * MiB), 2 * MiB);
    }
    for (void* each : spare) // free for others at once
        pool->deallocate(keeper, each, 4 * MiB);
    REQUIRE(cudaStreamSynchronize(keeper) == cudaSuccess);
    stream own;
    device::fail_call("cudaFree", 1, cudaErrorUnknown); // the byte goes with the second try, and the wait has failed
    void* const p = pool->allocate(own, 2 * MiB); // of what the keeper freed
    CHECK(pool->state().unsettled_bytes >= 64 * MiB);
    stream other;
    void* const q = pool->allocate(other, 2 * MiB);
    CHECK(pool->state().unsettled_bytes == 0);
    pool->deallocate(own, p, 2 * MiB);
    pool->deallocate(other, q, 2 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: what can never be held waits for nothing, however much is stranded") {
    world const here;
    stream busy;
    using pool_type = watched<pool_of<stream_ordered<>, sized>>;
    pool_type pool;
    for (int i = 0; i < 32; ++i) { // each leaves 2 MiB, and a note that they went out again, which its successor strands
        stream once;
        for (int k = 0; k < 12; ++k)
            pool->deallocate(once, pool->allocate(once, 2 * MiB), 2 * MiB);
    }
    REQUIRE(pool->state().unsettled_bytes == 64 * MiB);
    stream own;
    REQUIRE(device::launch(busy, {}, {}) == cudaSuccess);
    std::size_t const reserved = pool->reserved_bytes(), unsettled = pool->state().unsettled_bytes;
    tally const calls;
    CHECK(pool->try_allocate(own, std::size_t{1} << 50) == nullptr);
    CHECK(calls.host_waits() + calls.device_waits() == 0);
    CHECK(device::pending() != 0);
    CHECK(pool->reserved_bytes() == reserved);
    CHECK(pool->state().unsettled_bytes == unsettled);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a block whose event cannot be recorded is the stream's own until it can") {
    world const here;
    stream a;
    watched<pool_of<stream_ordered<>>> pool;
    void* const p = pool.write(a, 2 * MiB);
    device::fail_call("cudaEventCreateWithFlags", 1, cudaErrorNotPermitted, device::lasting::for_ever);
    pool.deallocate(a, p, 2 * MiB);
    device::clear_faults();
    CHECK(pool->state().unsettled_bytes == 2 * MiB);
    tally const calls;
    CHECK(pool.allocate(a, 2 * MiB) == p);
    CHECK(calls.host_waits() == 0);
    pool.deallocate(a, p, 2 * MiB);
    check_all_returns(pool);
}

#endif
