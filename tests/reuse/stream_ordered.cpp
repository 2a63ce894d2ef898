// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// The traps that other pools fell into, each by name, and the rungs of the ladder. The simulated device runs work as
// late as is legal unless a test says otherwise, so that what is not ordered is in flight.

#include "stage.hpp"

#include <atomic>
#include <support/capture.hpp>

#include <deque>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <weir/growth/exact.hpp>
#include <weir/order/order_after.hpp>
#include <weir/recipes.hpp>
#include <weir/upstream/virtual_memory.hpp>

using namespace stage;
using weir::on_host;
using weir::pool_options;
using weir::base::range;
using weir::usage_error;

namespace {

template <class Handover = grow_first, class Identity = checked, class Tuning = closing>
using rule = stream_ordered<Identity, Handover, Tuning>;
template <class Handover = grow_first, class Identity = checked>
using usual = stream_ordered<Identity, Handover, grown_up>;

using fits = watched<pool_of<rule<>>>;
using fits_compact = watched<pool_of<rule<wait_first>>>;
using slabs = watched<pool_of<rule<>, sized>>;
using slabs_compact = watched<pool_of<rule<wait_first>, sized>>;
using loose = watched<pool_of<usual<>>>;

pool_options limit(std::size_t bytes) { return pool_options{}.limit(bytes); }

} // namespace

// ---- the ladder ---------------------------------------------------------------------------------------------

TEST_CASE("stream_ordered: rung 1 asks the device nothing") {
    world const here;
    stream a;
    loose pool;
    void* const p = pool.write(a, 1 * MiB);
    pool.deallocate(a, p, 1 * MiB);
    tally const calls;
    for (int i = 0; i < 100; ++i) {
        CHECK(pool.allocate(a, 1 * MiB) == p);
        pool.deallocate(a, p, 1 * MiB);
    }
    CHECK(calls.chunks() + calls.waits() + calls.records() + calls.queries() + calls.host_waits() == 0);
    CHECK(device::pending() == 1); // the kernel has not run
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: rung 1 serves another size from what was freed, without a wait") {
    world const here;
    stream a;
    loose pool;
    void* const p = pool.write(a, 2 * MiB);
    pool.deallocate(a, p, 2 * MiB);
    tally const calls;
    void* const q = pool.write(a, 1 * MiB);
    CHECK(q == p);
    CHECK(calls.records() == 1); // the open bytes were closed, once
    CHECK(calls.chunks() + calls.waits() + calls.host_waits() == 0);
    pool.deallocate(a, q, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE_TEMPLATE("stream_ordered: rung 2 takes what another stream is done with, without a wait", Pool, fits,
                   fits_compact) {
    world const here;
    stream a, b;
    Pool pool;
    void* const p = pool.write(a, 2 * MiB);
    pool.deallocate(a, p, 2 * MiB);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    tally const calls;
    CHECK(pool.write(b, 2 * MiB) == p);
    CHECK(calls.queries() >= 1);
    CHECK(calls.chunks() + calls.waits() + calls.host_waits() == 0);
    pool.deallocate(b, p, 2 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: rung 3 comes before 4 where streams shall stay independent") {
    world const here;
    stream a, b;
    fits pool;
    device::gate gate;
    void* const p = pool.write(a, 2 * MiB);
    CHECK(gate.close(a) == cudaSuccess);
    pool.deallocate(a, p, 2 * MiB);
    tally const calls;
    void* const q = pool.write(b, 2 * MiB);
    CHECK(q != p);
    CHECK(calls.chunks() == 1);
    CHECK(calls.waits() + calls.host_waits() == 0);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess); // it does not hang behind the gate
    gate.open();
    pool.deallocate(b, q, 2 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: rung 4 comes before 3 where the footprint counts, and is climbed at the limit") {
    auto const check_rung = [](auto& pool) {
        stream a, b;
        void* const p = pool.write(a, 2 * MiB);
        pool.deallocate(a, p, 2 * MiB);
        tally const calls;
        CHECK(pool.write(b, 2 * MiB) == p);
        CHECK(calls.waits() == 1);
        CHECK(calls.chunks() + calls.host_waits() == 0);
        CHECK(device::pending() >= 2); // nothing was waited for on the host
        pool.deallocate(b, p, 2 * MiB);
        CHECK(pool->reserved_bytes() == 2 * MiB);
        check_all_returns(pool);
    };
    world const here;
    fits_compact compact;
    check_rung(compact);
    fits limited(limit(2 * MiB));
    check_rung(limited);
}

TEST_CASE("stream_ordered: what is left of a chunk needs no wait") {
    world const here;
    stream a, b;
    watched<weir::pool<weir::upstream::device, fitted, usual<wait_first>, weir::growth::fixed<8 * MiB>>> pool;
    device::gate gate;
    void* const p = pool.write(a, 1 * MiB);
    CHECK(gate.close(a) == cudaSuccess);
    tally const calls;
    void* const q = pool.write(b, 1 * MiB);
    CHECK(calls.chunks() + calls.waits() + calls.host_waits() == 0);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    gate.open();
    pool.deallocate(a, p, 1 * MiB);
    pool.deallocate(b, q, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: rung 5 waits for several streams and joins what they freed") {
    world const here;
    stream a, b, c, d;
    fits pool(limit(6 * MiB));
    void* const whole = pool.allocate(a, 6 * MiB); // one chunk
    pool.deallocate(a, whole, 6 * MiB);
    void* const p = pool.write(a, 2 * MiB);
    void* const q = pool.write(a, 2 * MiB);
    void* const r = pool.write(a, 2 * MiB);
    cudaEvent_t passed = nullptr;
    CHECK(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming) == cudaSuccess);
    CHECK(cudaEventRecord(passed, a) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(b, passed, 0) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(c, passed, 0) == cudaSuccess);
    CHECK(cudaEventDestroy(passed) == cudaSuccess);
    pool.deallocate(a, p, 2 * MiB);
    pool.deallocate(b, q, 2 * MiB);
    pool.deallocate(c, r, 2 * MiB);
    tally const calls;
    void* const again = pool.write(d, 6 * MiB);
    CHECK(again == whole);
    CHECK(calls.of("cudaEventSynchronize") >= 2);
    CHECK(calls.device_waits() + calls.chunks() == 0);
    pool.deallocate(d, again, 6 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: rung 5 gives chunks back and grows anew") {
    world const here;
    stream a, b;
    fits pool(limit(4 * MiB));
    void* const p = pool.write(a, 2 * MiB);
    void* const q = pool.write(a, 2 * MiB);
    CHECK(pool->state().chunks == 2);
    pool.deallocate(a, p, 2 * MiB);
    pool.deallocate(a, q, 2 * MiB);
    void* const r = pool.write(b, 4 * MiB); // two chunks do not join
    CHECK(pool->state().chunks == 1);
    CHECK(pool->reserved_bytes() == 4 * MiB);
    pool.deallocate(b, r, 4 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: rung 5 finds what an idle stream keeps for itself") {
    world const here;
    stream a, b;
    loose pool(limit(4 * MiB));
    void* const p = pool.write(a, 16 * KiB);
    void* const q = pool.write(a, 16 * KiB);
    pool.deallocate(a, p, 16 * KiB);
    pool.deallocate(a, q, 16 * KiB); // both open: no event was recorded, and 'a' makes no more calls
    tally const calls;
    void* const r = pool.write(b, 4 * MiB);
    CHECK(calls.device_waits() == 2); // the wait, and the chunk that goes back
    pool.deallocate(b, r, 4 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a block above the limit is refused at once") {
    world const here;
    stream a, b;
    loose pool(limit(4 * MiB));
    void* const p = pool.write(a, 1 * MiB);
    pool.deallocate(a, p, 1 * MiB);
    tally const calls;
    CHECK(pool.try_allocate(b, 4 * MiB + 1) == nullptr);
    CHECK(pool.try_allocate(on_host, 400 * MiB) == nullptr);
    CHECK(calls.host_waits() + calls.chunks() == 0);
    CHECK_THROWS_AS(static_cast<void>(pool->allocate(b, 5 * MiB)), weir::out_of_memory);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: the limit is exact") {
    world const here;
    stream a;
    fits pool(limit(8 * MiB));
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i)
        blocks.push_back(pool.write(a, 2 * MiB));
    CHECK(pool->reserved_bytes() == 8 * MiB);
    CHECK(pool.try_allocate(a, 256) == nullptr);
    for (void* each : blocks)
        pool.deallocate(a, each, 2 * MiB);
    CHECK(pool->reserved_bytes() == 8 * MiB);
    check_all_returns(pool);
}

// ---- a donor's event travels with the bytes -------------------------------------------------------------------

TEST_CASE_TEMPLATE("stream_ordered: a donor's event travels with the bytes over two moves", Pool, fits_compact,
                   slabs_compact) {
    for (std::size_t const bytes : {4 * KiB, 256 * KiB}) {
        CAPTURE(bytes);
        support::every_schedule([&] {
            stream a, b, c;
            Pool pool(limit(2 * MiB));
            std::vector<void*> all;
            while (void* const p = pool.try_allocate(a, bytes)) {
                CHECK(device::launch(a, {}, {{p, bytes}}) == cudaSuccess);
                all.push_back(p);
            }
            for (void* each : all) // in flight on 'a'
                pool.deallocate(a, each, bytes);
            void* const first = pool.allocate(b, bytes); // moves to 'b', which waits for 'a'
            void* const second = pool.allocate(b, bytes);
            pool.deallocate(b, second, bytes); // unused: only the event of 'a' tells when it is free
            tally const calls;
            std::vector<void*> taken;
            while (void* const p = pool.try_allocate(c, bytes)) { // and on to 'c'
                CHECK(device::launch(c, {}, {{p, bytes}}) == cudaSuccess);
                taken.push_back(p);
            }
            CHECK(taken.size() + 1 == all.size());
            for (void* each : taken)
                pool.deallocate(c, each, bytes);
            pool.deallocate(b, first, bytes);
            check_all_returns(pool);
        });
    }
}

TEST_CASE("stream_ordered: bytes that moved in a slab are ordered after their donor where a third stream takes them") {
    world const here;
    stream a, b, c;
    slabs pool(limit(2 * MiB));
    // One slab of 16 KiB, whole again and in flight on 'a', and nothing else.
    void* const rest = pool.allocate(a, 2 * MiB - 16 * KiB);
    std::vector<void*> all;
    while (void* const p = pool.try_allocate(a, 1 * KiB)) {
        CHECK(device::launch(a, {}, {{p, 1 * KiB}}) == cudaSuccess);
        all.push_back(p);
    }
    CHECK(all.size() == 16);
    for (void* each : all)
        pool.deallocate(a, each, 1 * KiB);
    tally const calls;
    void* const p = pool.write(b, 1 * KiB); // the slab moves to 'b'
    CHECK(calls.waits() == 1);
    void* const q = pool.write(c, 1 * KiB); // a block of it to 'c'
    CHECK(calls.waits() == 2);
    CHECK(p != q);
    CHECK(calls.host_waits() == 0);
    pool.deallocate(b, p, 1 * KiB);
    pool.deallocate(c, q, 1 * KiB);
    pool.deallocate(a, rest, 2 * MiB - 16 * KiB);
    check_all_returns(pool);
}

namespace {

bool starves = false; // from the moment that a placement is given fresh bytes

/// Slabs, where taking a block may find no host memory. With the library's placements it takes another thread, which
/// uses up the room for records that the first search made, to come there.
class starving : public sized {
public:
    starving() = default;
    starving sibling() const { return starving(sized::sibling()); }
    void absorb(starving& other) { sized::absorb(other); }
    void add(range fresh) {
        sized::add(fresh);
        fed_ = starves;
    }
    range take(std::size_t bytes, std::size_t alignment) {
        if (std::exchange(fed_, false) && starves)
            throw std::bad_alloc();
        return sized::take(bytes, alignment);
    }

private:
    explicit starving(sized&& empty) : sized(std::move(empty)) {}
    bool fed_ = false;
};

/// Slabs, where adding one may find no host memory.
class unkept : public sized {
public:
    unkept() = default;
    unkept sibling() const { return unkept(sized::sibling()); }
    void absorb(unkept& other) { sized::absorb(other); }
    void add(range fresh) {
        if (starves)
            throw std::bad_alloc();
        sized::add(fresh);
    }

private:
    explicit unkept(sized&& empty) : sized(std::move(empty)) {}
};

} // namespace

TEST_CASE("stream_ordered: a slab that moved is in one place, also where its block finds no host memory") {
    for (bool const in_flight : {false, true}) {
        CAPTURE(in_flight);
        world const here;
        stream a, b;
        watched<pool_of<rule<wait_first>, starving>> pool(limit(2 * MiB));
        void* const rest = pool.allocate(a, 2 * MiB - 16 * KiB);
        void* const p = pool.write(a, 1 * KiB); // of the only slab
        pool.deallocate(a, p, 1 * KiB);
        if (!in_flight)
            CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        starves = true;
        CHECK_THROWS_AS(static_cast<void>(pool->try_allocate(b, 1 * KiB)), std::bad_alloc);
        starves = false;
        std::vector<std::pair<cudaStream_t, void*>> all;
        for (cudaStream_t on : {static_cast<cudaStream_t>(a), static_cast<cudaStream_t>(b)})
            while (void* const q = pool.try_allocate(on, 1 * KiB)) {
                CHECK(device::launch(on, {}, {{q, 1 * KiB}}) == cudaSuccess);
                all.emplace_back(on, q);
            }
        CHECK(all.size() == 16);
        for (auto const& each : all)
            pool.deallocate(each.first, each.second, 1 * KiB);
        pool.deallocate(a, rest, 2 * MiB - 16 * KiB);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: a slab that its lender has no host memory to take back is free after a settle, or counted as lost") {
    for (bool const in_flight : {false, true}) {
        CAPTURE(in_flight);
        world const here;
        stream a, b;
        watched<pool_of<rule<wait_first>, unkept>> pool(limit(2 * MiB));
        void* const rest = pool.allocate(a, 2 * MiB - 16 * KiB);
        void* const p = pool.write(a, 1 * KiB); // of the only slab
        pool.deallocate(a, p, 1 * KiB);
        if (in_flight)
            device::fail_call("cudaStreamWaitEvent", 1, cudaErrorUnknown); // before the taker has it
        else
            CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        starves = true;
        if (in_flight)
            CHECK_THROWS_AS(static_cast<void>(pool->try_allocate(b, 1 * KiB)), weir::cuda_error);
        else
            CHECK_THROWS_AS(static_cast<void>(pool->try_allocate(b, 1 * KiB)), std::bad_alloc);
        starves = false;
        pool->settle();
        CHECK(pool->state().lost_bytes == (in_flight ? 16 * KiB : 0));
        std::vector<void*> all;
        while (void* const q = pool.try_allocate(b, 1 * KiB))
            all.push_back(q);
        CHECK(all.size() == (in_flight ? 0 : 16));
        for (void* const each : all)
            pool.deallocate(b, each, 1 * KiB);
        pool.deallocate(a, rest, 2 * MiB - 16 * KiB);
    }
}

namespace {

struct splintering : closing {
    static constexpr std::size_t splinter_bytes = 8 * KiB;
};

/// Slabs, where the host has memory for so many calls only, while it starves.
class rationed : public sized {
public:
    rationed() = default;
    rationed sibling() const { return rationed(sized::sibling()); }
    void absorb(rationed& other) { sized::absorb(other); }
    range take(std::size_t bytes, std::size_t alignment) {
        call();
        return sized::take(bytes, alignment);
    }
    range take_at_hand(std::size_t bytes, std::size_t alignment) {
        call();
        return sized::take_at_hand(bytes, alignment);
    }
    void give(range block) {
        call();
        sized::give(block);
    }

    static inline int calls_left = 0;

private:
    explicit rationed(sized&& empty) : sized(std::move(empty)) {}
    static void call() {
        if (starves && calls_left-- <= 0)
            throw std::bad_alloc();
    }
};

/// What a stream allocated to the last byte of the pool, and every second block of which it freed.
template <class Pool>
struct splinters {
    splinters(Pool& from, cudaStream_t on, std::size_t of_bytes) : pool(from), stream(on), bytes(of_bytes) {
        while (void* const p = pool.try_allocate(stream, bytes))
            live.push_back(p);
        for (std::size_t i = 0; i < live.size(); ++i)
            free(i);
    }
    ~splinters() {
        for (void* const each : live)
            pool.deallocate(stream, each, bytes);
    }
    void free(std::size_t i) {
        CHECK(device::launch(stream, {}, {{live[i], bytes}}) == cudaSuccess);
        pool.deallocate(stream, live[i], bytes);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
        ++freed;
    }
    splinters(splinters const&) = delete;
    splinters& operator=(splinters const&) = delete;

    Pool& pool;
    cudaStream_t stream;
    std::size_t bytes;
    std::vector<void*> live;
    std::size_t freed = 0;
};

} // namespace

TEST_CASE("stream_ordered: where much lies in another stream's slabs, a few blocks come at once") {
    struct scene {
        std::size_t bytes, at_once;
    };
    for (scene const now : {scene{512, 8}, scene{1 * KiB, 8}, scene{16 * KiB, 8}, scene{20 * KiB, 6}, scene{32 * KiB, 4}}) {
        CAPTURE(now.bytes);
        world const here;
        stream a, b;
        watched<pool_of<rule<wait_first, checked, splintering>, sized>> pool(limit(2 * MiB));
        std::vector<void*> taken;
        {
            splinters<decltype(pool)> apart(pool, a, now.bytes);
            CHECK(cudaStreamSynchronize(a) == cudaSuccess);
            taken.push_back(pool.write(b, now.bytes));
            apart.free(apart.live.size() - 1); // so that all that 'a' freed is in flight again
            tally const calls;
            while (taken.size() < now.at_once)
                taken.push_back(pool.write(b, now.bytes));
            CHECK(calls.waits() + calls.queries() + calls.records() == 0);
            taken.push_back(pool.write(b, now.bytes));
            CHECK(calls.waits() == 1);
        }
        for (void* const each : taken)
            pool.deallocate(b, each, now.bytes);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: of large blocks none comes that nobody asked for, where slabs are of small ones only") {
    using low = weir::placement::by_size<4 * KiB, weir::placement::bins<>, weir::placement::best_fit<>>;
    world const here;
    stream a, b, c;
    watched<pool_of<rule<grow_first, checked, splintering>, low>> pool(limit(2 * MiB));
    void* taken = nullptr;
    {
        void* const busy = pool.write(b, 256); // so that what comes to 'b' stays there
        void* const whole = pool.allocate(a, 512 * KiB);
        splinters<decltype(pool)> const apart(pool, a, 1 * KiB);
        pool.deallocate(a, whole, 512 * KiB);
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        pool.deallocate(b, busy, 256);
        void* const own = pool.allocate(b, 12 * KiB);
        tally const calls;
        taken = pool.allocate(c, 496 * KiB); // all but one block
        CHECK(calls.host_waits() == 0);
        pool.deallocate(b, own, 12 * KiB);
    }
    pool.deallocate(c, taken, 496 * KiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: of another stream's slabs in use a stream waits for one block at a time") {
    world const here;
    stream a, b;
    watched<pool_of<rule<wait_first, checked, splintering>, sized>> pool(limit(2 * MiB));
    std::vector<void*> taken;
    {
        splinters<decltype(pool)> const apart(pool, a, 1 * KiB);
        tally const calls;
        for (std::uint64_t i = 1; i <= 3; ++i) {
            taken.push_back(pool.write(b, 1 * KiB));
            CHECK(calls.waits() == i);
        }
    }
    for (void* const each : taken)
        pool.deallocate(b, each, 1 * KiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: what came at once is anyone's, as it was") {
    world const here;
    stream a, b, c;
    watched<pool_of<rule<grow_first, checked, splintering>, sized>> pool(limit(2 * MiB));
    std::vector<void*> taken;
    {
        splinters<decltype(pool)> const apart(pool, a, 1 * KiB);
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        taken.push_back(pool.allocate(b, 1 * KiB));
        tally const calls;
        while (void* const p = pool.try_allocate(c, 1 * KiB))
            taken.push_back(p);
        CHECK(taken.size() == apart.freed);
        CHECK(calls.host_waits() == 0);
    }
    for (void* const each : taken)
        pool.deallocate(c, each, 1 * KiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: no slab is cut for blocks that nobody asked for") {
    // 'a' has one block of 1 KiB free, many smaller ones, and 2 MiB: those stay whole, while 'b' is busy.
    world const here;
    stream a, b, c;
    watched<pool_of<rule<grow_first, checked, splintering>, sized>> pool(limit(4 * MiB));
    {
        void* const own = pool.write(b, 256);
        void* const whole = pool.allocate(a, 2 * MiB);
        std::vector<void*> full{pool.allocate(a, 1 * KiB)};
        splinters<decltype(pool)> const apart(pool, a, 512);
        while (void* const p = pool.try_allocate(a, 1 * KiB))
            full.push_back(p);
        pool.deallocate(a, whole, 2 * MiB);
        pool.deallocate(a, full.back(), 1 * KiB);
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        pool.deallocate(b, own, 256);
        tally const calls;
        CHECK(pool.allocate(b, 1 * KiB) == full.back());
        CHECK(pool.allocate(c, 2 * MiB) == whole);
        CHECK(calls.host_waits() == 0);
        for (void* const each : full)
            pool.deallocate(b, each, 1 * KiB);
        pool.deallocate(c, whole, 2 * MiB);
    }
    check_all_returns(pool);
}

namespace {
/// 'b' wants one of 'a's splinters while something fails from arm() to disarm(); then it has all of them.
template <class Placement, class Arm, class Disarm>
void check_none_is_lost(Arm const& arm, Disarm const& disarm) {
    world const here;
    stream a, b;
    watched<pool_of<rule<grow_first, checked, splintering>, Placement>> pool(limit(2 * MiB));
    std::vector<void*> taken;
    {
        splinters<decltype(pool)> const apart(pool, a, 1 * KiB);
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        arm();
        try {
            taken.push_back(pool.allocate(b, 1 * KiB));
        } catch (weir::cuda_error const&) {
        } catch (std::bad_alloc const&) {
        }
        disarm();
        CHECK(pool->state().lost_bytes == 0);
        CHECK(pool->state().live_blocks == apart.live.size() + taken.size());
        while (void* const p = pool.try_allocate(b, 1 * KiB))
            taken.push_back(p);
        CHECK(taken.size() == apart.freed);
    }
    for (void* const each : taken)
        pool.deallocate(b, each, 1 * KiB);
    check_all_returns(pool);
}
} // namespace

TEST_CASE("stream_ordered: of blocks that come at once none is lost, where the stream cannot be asked about any more") {
    bool failed = true;
    for (std::uint64_t call = 1; failed; ++call) {
        CAPTURE(call);
        std::uint64_t before = 0;
        check_none_is_lost<sized>(
            [&] {
                before = device::calls("cudaStreamGetId");
                device::fail_call("cudaStreamGetId", call, cudaErrorUnknown);
            },
            [&] {
                failed = call <= device::calls("cudaStreamGetId") - before;
                device::clear_faults();
            });
    }
}

TEST_CASE("stream_ordered: of blocks that come at once none is lost, whatever host memory is left") {
    for (int calls = 0, left = 0; left <= 0; ++calls) {
        CAPTURE(calls);
        check_none_is_lost<rationed>(
            [&] {
                rationed::calls_left = calls;
                starves = true;
            },
            [&] {
                starves = false;
                left = rationed::calls_left;
            });
    }
}

TEST_CASE("stream_ordered: what was gathered is no sooner free than it was") {
    world const here;
    stream a, b, c;
    slabs pool(limit(4 * MiB));
    void* const p = pool.write(a, 1 * MiB);
    void* const q = pool.write(b, 1 * MiB);
    pool.deallocate(a, p, 1 * MiB);
    pool.deallocate(b, q, 1 * MiB);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    pool->trim(4 * MiB); // gathers what 'b' is done with; what 'a' still uses stays with 'a'
    void* const r = pool.write(c, 1 * MiB);
    void* const s = pool.write(c, 1 * MiB);
    void* const t = pool.write(c, 1 * MiB);
    for (void* each : {r, s, t})
        pool.deallocate(c, each, 1 * MiB);
    check_all_returns(pool);
}

// ---- a handle is no identity ------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("stream_ordered: a stream that bears the handle of a destroyed one gets none of its open bytes", Pool,
                   loose, watched<pool_of<usual<>, sized>>) {
    for (std::size_t const bytes : {4 * KiB, 1 * MiB}) {
        CAPTURE(bytes);
        support::every_schedule([&] {
            Pool pool;
            stream a;
            cudaStream_t const handle = a;
            void* const p = pool.write(a, bytes);
            pool.deallocate(a, p, bytes);
            a.destroy(); // with the kernel perhaps still to run
            stream b;
            REQUIRE(static_cast<cudaStream_t>(b) == handle); // CUDA does so
            void* const q = pool.write(b, bytes);
            CHECK(q != p);
            pool.deallocate(b, q, bytes);
            check_all_returns(pool);
        });
    }
}

TEST_CASE("stream_ordered: a free on a stream of an old handle does not lend the old stream its event") {
    world const here;
    loose pool;
    stream a, c;
    cudaStream_t const handle = a;
    void* const q = pool.write(a, 8 * MiB);
    cudaEvent_t written = nullptr;
    CHECK(cudaEventCreateWithFlags(&written, cudaEventDisableTiming) == cudaSuccess);
    CHECK(cudaEventRecord(written, a) == cudaSuccess);
    void* const p = pool.write(a, 1 * MiB);
    pool.deallocate(a, p, 1 * MiB); // open
    a.destroy();
    stream b;
    REQUIRE(static_cast<cudaStream_t>(b) == handle);
    CHECK(cudaStreamWaitEvent(b, written, 0) == cudaSuccess); // 'b' comes after the use of 'q', not of 'p'
    CHECK(cudaEventDestroy(written) == cudaSuccess);
    pool.deallocate(b, q, 8 * MiB); // too large to stay open, and no event of 'b' may stand for the bytes of 'a'
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    CHECK(device::pending() == 1); // the old stream's last kernel
    void* const r = pool.write(c, 1 * MiB);
    void* const s = pool.write(b, 1 * MiB);
    CHECK(r != p);
    CHECK(s != p);
    pool.deallocate(c, r, 1 * MiB);
    pool.deallocate(b, s, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: an event recorded before the destroy stays good") {
    world const here;
    fits pool(limit(2 * MiB));
    stream a;
    void* const p = pool.write(a, 2 * MiB);
    pool.deallocate(a, p, 2 * MiB);
    a.destroy();
    stream b;
    tally const calls;
    CHECK(pool.write(b, 2 * MiB) == p); // ordered after the old stream's event
    CHECK(calls.waits() == 1);
    CHECK(calls.host_waits() == 0);
    pool.deallocate(b, p, 2 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: stranded bytes come back by settle") {
    world const here;
    loose pool;
    stream s;
    void* const live = pool.write(s, 1 * MiB);
    for (int i = 0; i < 20; ++i) {
        stream a; // the same handle each time
        void* const p = pool.write(a, 1 * MiB);
        pool.deallocate(a, p, 1 * MiB);
    }
    CHECK(pool->in_use_bytes() == 1 * MiB);
    CHECK(device::pending() != 0);
    pool->trim();
    CHECK(device::pending() != 0);
    CHECK(pool->reserved_bytes() > 1 * MiB); // nobody knows when those streams are done
    pool.deallocate(s, live, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: for the little that one stream left behind nobody waits") {
    world const here;
    loose pool;
    stream a;
    cudaStream_t const handle = a;
    void* const p = pool.write(a, 1 * MiB);
    pool.deallocate(a, p, 1 * MiB); // open
    a.destroy();
    stream b;
    REQUIRE(static_cast<cudaStream_t>(b) == handle);
    tally const calls;
    void* const q = pool.write(b, 4 * MiB);
    CHECK(calls.chunks() == 1);
    CHECK(calls.host_waits() == 0);
    CHECK(device::pending() == 2);
    pool.deallocate(b, q, 4 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: the limit is reached with stranded bytes, and they are waited for") {
    world const here;
    loose pool(limit(2 * MiB));
    for (int i = 0; i < 20; ++i) {
        stream a;
        void* const p = pool.write(a, 2 * MiB);
        pool.deallocate(a, p, 2 * MiB);
    }
    CHECK(pool->reserved_bytes() == 2 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a promise saves the questions") {
    world const here;
    stream a;
    watched<pool_of<usual<grow_first, promised>>> pool;
    void* const p = pool.write(a, 1 * MiB);
    pool.deallocate(a, p, 1 * MiB);
    std::uint64_t const before = device::calls();
    for (int i = 0; i < 10; ++i)
        pool->deallocate(a, pool->allocate(a, 1 * MiB), 1 * MiB);
    CHECK(device::calls() == before);
    check_all_returns(pool);
}

// ---- record before publishing ------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("stream_ordered: no thread sees a freed block before its event", Pool, slabs, fits_compact) {
    std::atomic<unsigned> taken{0};
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        world const here(device::config{}.random(seed));
        stream a, b;
        Pool pool(limit(4 * MiB));
        auto const loop = [&](cudaStream_t on, std::size_t bytes) {
            for (int i = 0; i < 12; ++i)
                if (void* const p = pool.try_allocate(on, bytes)) {
                    taken.fetch_add(1);
                    CHECK(device::launch(on, {}, {{p, bytes}}) == cudaSuccess);
                    pool.deallocate(on, p, bytes);
                }
        };
        device::run_threads({[&] { loop(a, 2 * MiB); }, [&] { loop(b, 2 * MiB); }, [&] { loop(a, 1 * MiB); }});
        check_all_returns(pool);
    }
    CHECK(taken > 60 * 24);
}

// ---- used on a second stream -------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("stream_ordered: a block that another stream uses is not handed out before that is over", Pool, loose,
                   fits, watched<pool_of<usual<>, sized>>) {
    for (std::size_t const bytes : {4 * KiB, 1 * MiB}) {
        CAPTURE(bytes);
        world const here;
        stream a, b;
        Pool pool;
        void* const p = pool.allocate(a, bytes);
        CHECK(device::launch(b, {}, {{p, bytes}}) == cudaSuccess);
        pool->used_on(p, b);
        pool.deallocate(a, p, bytes);
        CHECK(pool->in_use_bytes() == 0);
        std::vector<void*> others;
        do { // its own stream could have it, were it not for 'b', and would rather than let the pool grow
            others.push_back(pool.write(a, bytes));
            CHECK(others.back() != p);
        } while (pool->state().chunks == 1);
        for (void* each : others)
            pool.deallocate(a, each, bytes);
        CHECK(cudaStreamSynchronize(b) == cudaSuccess);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: after the other stream's use the block is there again") {
    world const here;
    stream a, b;
    loose pool;
    void* const p = pool.allocate(a, 8 * MiB);
    CHECK(device::launch(b, {}, {{p, 8 * MiB}}) == cudaSuccess);
    pool->last_used_on(p, b);
    CHECK(device::launch(b, {}, {{p, 8 * MiB}}) == cudaSuccess);
    pool->last_used_on(p, b); // which was not the last one
    pool.deallocate(a, p, 8 * MiB);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    tally const calls;
    CHECK(pool.write(a, 8 * MiB) == p);
    CHECK(calls.chunks() + calls.waits() + calls.host_waits() == 0);
    pool.deallocate(a, p, 8 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: of many blocks that another stream uses few are asked about") {
    world const here;
    stream a, b;
    loose pool;
    device::gate gate;
    CHECK(gate.close(b) == cudaSuccess);
    std::vector<void*> blocks;
    for (int i = 0; i != 100; ++i)
        blocks.push_back(pool.allocate(a, 64 * KiB));
    for (void* const each : blocks) {
        pool->used_on(each, b);
        pool.deallocate(a, each, 64 * KiB);
    }
    tally const growing;
    pool.deallocate(a, pool.allocate(a, 128 * MiB), 128 * MiB); // more than there is
    std::uint64_t const asked = growing.queries();
    gate.open();
    CHECK(asked <= 40); // some searches of 8 questions: 100 < 2^7
    tally const settling;
    pool->settle();
    CHECK(settling.queries() <= 100 + 40); // the wait asks each
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a second stream may be destroyed before the free") {
    world const here;
    stream a;
    fits pool(limit(2 * MiB));
    void* const p = pool.allocate(a, 2 * MiB);
    {
        stream b;
        CHECK(device::launch(b, {}, {{p, 2 * MiB}}) == cudaSuccess);
        pool->last_used_on(p, b);
    }
    pool.deallocate(a, p, 2 * MiB);
    tally const calls;
    CHECK(pool.write(a, 2 * MiB) == p); // at the limit 'a' waits for what 'b' did
    CHECK(calls.waits() == 1);
    CHECK(calls.host_waits() == 0);
    pool.deallocate(a, p, 2 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a third stream finds a block with a second use when all is over") {
    for (bool const over : {false, true}) {
        CAPTURE(over);
        world const here;
        stream a, b, c;
        fits pool(limit(2 * MiB));
        void* const p = pool.write(a, 2 * MiB);
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        CHECK(device::launch(b, {{p, 2 * MiB}}, {}) == cudaSuccess);
        pool->used_on(p, b);
        CHECK(device::launch(a, {{p, 2 * MiB}}, {}) == cudaSuccess);
        pool.deallocate(a, p, 2 * MiB);
        if (over) {
            CHECK(cudaStreamSynchronize(a) == cudaSuccess);
            CHECK(cudaStreamSynchronize(b) == cudaSuccess);
        }
        tally const calls;
        CHECK(pool.write(c, 2 * MiB) == p); // 'a' makes no more calls
        CHECK(calls.device_waits() == 0);
        if (over)
            CHECK(calls.host_waits() == 0);
        pool.deallocate(c, p, 2 * MiB);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: the host's free waits for second uses, and for nothing else") {
    world const here;
    stream a, b;
    loose pool;
    void* const p = pool->allocate_sync(1 * MiB);
    CHECK(device::launch(b, {}, {{p, 1 * MiB}}) == cudaSuccess);
    pool->used_on(p, b);
    pool->deallocate_sync(p, 1 * MiB);
    CHECK(device::pending() != 0);
    void* const q = pool->allocate_sync(1 * MiB);
    CHECK(q != p);
    CHECK(device::pending() != 0);
    pool->deallocate_sync(q, 1 * MiB);
    CHECK(pool->allocate_sync(1 * MiB) == q); // at once
    CHECK(device::pending() != 0);
    pool->deallocate_sync(q, 1 * MiB);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    check_all_returns(pool);
}

// ---- capture ---------------------------------------------------------------------------------------------------------

namespace {

/// Captures on a stream for a scope; 'end' must find the capture whole.
class capture {
public:
    explicit capture(cudaStream_t on, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) : on_(on) {
        REQUIRE(cudaStreamBeginCapture(on, mode) == cudaSuccess);
    }
    ~capture() {
        if (exec_)
            CHECK(cudaGraphExecDestroy(exec_) == cudaSuccess);
        if (graph_)
            CHECK(cudaGraphDestroy(graph_) == cudaSuccess);
    }
    capture(capture const&) = delete;
    capture& operator=(capture const&) = delete;
    void end() {
        cudaStreamCaptureStatus status{};
        CHECK(cudaStreamIsCapturing(on_, &status) == cudaSuccess);
        CHECK(status == cudaStreamCaptureStatusActive);
        REQUIRE(cudaStreamEndCapture(on_, &graph_) == cudaSuccess);
        REQUIRE(cudaGraphInstantiate(&exec_, graph_, 0) == cudaSuccess);
    }
    void launch(cudaStream_t on) { CHECK(cudaGraphLaunch(exec_, on) == cudaSuccess); }

private:
    cudaStream_t on_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t exec_ = nullptr;
};

} // namespace

TEST_CASE_TEMPLATE("stream_ordered: an allocation on a captured stream is refused and the capture goes on", Pool, loose,
                   fits, slabs) {
    world const here;
    stream a;
    Pool pool;
    for (bool const known : {false, true}) {
        CAPTURE(known);
        auto const before = pool->state();
        capture graph(a);
        tally const calls;
        CHECK_THROWS_AS(static_cast<void>(pool->allocate(a, 1 * MiB)), usage_error);
        CHECK_THROWS_AS(static_cast<void>(pool->try_allocate(a, 256)), usage_error);
        CHECK(calls.of("cudaStreamGetId") == 0); // which would break the capture
        CHECK(calls.of("cudaStreamGetDevice") == 0);
        graph.end();
        CHECK(pool->state().in_use_bytes == before.in_use_bytes);
        CHECK(pool->state().reserved_bytes == before.reserved_bytes);
        void* const p = pool.write(a, 1 * MiB);
        pool.deallocate(a, p, 1 * MiB);
    }
    check_all_returns(pool);
}

TEST_CASE_TEMPLATE("stream_ordered: what a captured stream frees is not handed out while the graph lives", Pool, loose,
                   fits, slabs) {
    for (std::size_t const bytes : {4 * KiB, 8 * MiB}) {
        CAPTURE(bytes);
        world const here;
        stream a, b;
        Pool pool;
        void* const p = pool.allocate(a, bytes);
        capture graph(a);
        CHECK(device::launch(a, {}, {{p, bytes}}) == cudaSuccess);
        tally const calls;
        pool.deallocate(a, p, bytes);
        CHECK(pool->in_use_bytes() == 0);
        CHECK(calls.records() == 0); // no event on a captured stream
        CHECK(calls.of("cudaStreamGetId") == 0);
        CHECK(calls.of("cudaStreamGetDevice") == 0);
        graph.end();
        pool->settle();
        for (cudaStream_t on : {static_cast<cudaStream_t>(a), static_cast<cudaStream_t>(b)}) {
            void* const q = pool.write(on, bytes);
            CHECK(q != p);
            pool.deallocate(on, q, bytes);
        }
        graph.launch(b); // and uses the block
        pool->settle();
        pool->trim();
        CHECK(pool->state().live_blocks == 0);
        CHECK(pool->reserved_bytes() > 0); // the chunk stays until the pool ends
    }
}

TEST_CASE("stream_ordered: a block that is stranded while a graph uses it is that graph's") {
    world const here;
    stream a, b;
    weir::reuse::stream_ordered<>::over<weir::placement::best_fit<>> rule(0);
    rule.add(weir::base::range{1 * MiB, 1 * MiB}, weir::on_host);
    weir::base::range const block = rule.take(1 * MiB, 512, a);
    REQUIRE(block);
    rule.used_on(block, b);
    {
        capture graph(b);
        rule.strand(block);
        graph.end();
        rule.settle();
        CHECK(rule.used().lost_bytes == 1 * MiB);
        CHECK_FALSE(rule.borrow(1 * MiB, 512, a));
    }
    rule.settle(); // meanwhile CUDA tells that the graph is gone
    CHECK(rule.used().lost_bytes == 0);
    rule.settle();
    rule.gather(a, true);
    CHECK(rule.take(1 * MiB, 512, a).bytes == 1 * MiB);
}

TEST_CASE("stream_ordered: a free on a captured stream that the pool does not know leaves the capture whole") {
    world const here;
    stream a, b;
    loose pool;
    watched<pool_of<usual<grow_first, promised>>> trusting;
    void* const p = pool.allocate(a, 1 * MiB);
    void* const q = trusting.allocate(a, 1 * MiB);
    {
        capture graph(b);
        tally const calls;
        pool.deallocate(b, p, 1 * MiB);
        trusting.deallocate(b, q, 1 * MiB);
        CHECK(calls.of("cudaStreamGetId") == 0);
        CHECK(calls.of("cudaStreamGetDevice") == 0);
        CHECK(calls.records() == 0);
        graph.end();
    }
    CHECK(pool->in_use_bytes() == 0);
    CHECK(trusting->in_use_bytes() == 0);
}

TEST_CASE("stream_ordered: the legacy stream's frees outlast the capture of a blocking stream") {
    world const here;
    stream a(cudaStreamDefault);
    loose pool;
    void* const p = pool.write(cudaStreamLegacy, 1 * MiB);
    void* const q = pool.write(cudaStreamLegacy, 8 * MiB);
    {
        capture graph(a);
        pool.deallocate(cudaStreamLegacy, p, 1 * MiB); // the legacy stream may not be used meanwhile
        pool.deallocate(cudaStreamLegacy, q, 8 * MiB);
        void* const own = pool.allocate(cudaStreamLegacy, 256); // its own set has that, and nobody need be asked
        pool.deallocate(cudaStreamLegacy, own, 256);
        CHECK_THROWS_AS(static_cast<void>(pool->allocate(cudaStreamLegacy, 32 * MiB)), usage_error);
        graph.end();
    }
    CHECK(pool->in_use_bytes() == 0);
    stream b; // which the legacy stream does not wait for, nor it for the legacy stream
    void* const r = pool.write(b, 1 * MiB);
    void* const s = pool.write(b, 8 * MiB);
    CHECK(r != p);
    CHECK(s != q);
    pool.deallocate(b, r, 1 * MiB);
    pool.deallocate(b, s, 8 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a thread's default stream may be captured") {
    world const here;
    loose pool;
    watched<pool_of<usual<grow_first, promised>>> trusting;
    void* const p = pool.allocate(cudaStreamPerThread, 1 * MiB);
    void* const q = trusting.allocate(cudaStreamPerThread, 1 * MiB);
    capture graph(cudaStreamPerThread);
    tally const calls;
    CHECK_THROWS_AS(static_cast<void>(pool->allocate(cudaStreamPerThread, 256)), usage_error);
    CHECK_THROWS_AS(static_cast<void>(trusting->allocate(cudaStreamPerThread, 32 * MiB)), usage_error); // none is at hand
    pool.deallocate(cudaStreamPerThread, p, 1 * MiB);
    CHECK(calls.of("cudaStreamGetId") == 0);
    CHECK(calls.records() == 0);
    graph.end();
    trusting.deallocate(cudaStreamPerThread, q, 1 * MiB);
}

TEST_CASE("stream_ordered: 'used_on' a captured stream is refused") {
    world const here;
    stream a, b;
    loose pool;
    void* const p = pool.allocate(a, 1 * MiB);
    {
        capture graph(b);
        CHECK_THROWS_AS(pool->used_on(p, b), usage_error);
        graph.end();
    }
    pool.deallocate(a, p, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: housekeeping does not break another stream's capture") {
    for (bool const other_thread : {false, true})
        for (cudaStreamCaptureMode const mode :
             {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
            CAPTURE(other_thread);
            CAPTURE(static_cast<int>(mode));
            world const here;
            stream a, b, c;
            stream captured;
            fits pool(limit(8 * MiB));
            slabs small;
            void* const p = pool.write(a, 2 * MiB);
            void* const q = pool.write(b, 2 * MiB);
            capture graph(captured, mode);
            auto const work = [&] {
                pool->used_on(p, b);
                pool.deallocate(a, p, 2 * MiB); // deferred
                pool.deallocate(b, q, 2 * MiB); // covered
                void* const grown = pool.write(c, 4 * MiB);
                void* const lent = pool.write(c, 2 * MiB);   // rung 4
                void* const waited = pool.write(a, 2 * MiB); // rung 4: 'a' waits for 'b'
                for (void* each : {lent, waited})
                    pool.deallocate(each == lent ? c : a, each, 2 * MiB);
                pool.deallocate(c, grown, 4 * MiB);
                void* const joined = pool.write(b, 8 * MiB); // rung 5: chunks go back
                pool.deallocate(b, joined, 8 * MiB);
                void* const host = pool->allocate_sync(1 * MiB);
                pool->deallocate_sync(host, 1 * MiB);
                pool->trim();
                void* const little = small.write(a, 1 * KiB);
                small.deallocate(a, little, 1 * KiB);
                void* const moved = small.write(b, 1 * KiB);
                small.deallocate(b, moved, 1 * KiB);
            };
            if (other_thread)
                std::thread(work).join();
            else
                work();
            graph.end();
        }
}

// ---- threads, devices, default streams -------------------------------------------------------------------------------

TEST_CASE("stream_ordered: a thread that ends young leaves nothing without an event") {
    for (bool const second_use : {false, true}) {
        CAPTURE(second_use);
        world const here;
        stream a, b;
        watched<pool_of<stream_ordered<>>> pool(limit(2 * MiB));
        void* p = nullptr;
        std::thread([&] {
            p = pool.write(cudaStreamPerThread, 2 * MiB);
            if (second_use) {
                cudaEvent_t written = nullptr;
                CHECK(cudaEventCreateWithFlags(&written, cudaEventDisableTiming) == cudaSuccess);
                CHECK(cudaEventRecord(written, cudaStreamPerThread) == cudaSuccess);
                CHECK(cudaStreamWaitEvent(b, written, 0) == cudaSuccess);
                CHECK(cudaEventDestroy(written) == cudaSuccess);
                CHECK(device::launch(b, {{p, 2 * MiB}}, {}) == cudaSuccess);
                pool->used_on(p, b);
            }
            pool.deallocate(cudaStreamPerThread, p, 2 * MiB);
        }).join();
        tally const calls;
        CHECK(pool.write(a, 2 * MiB) == p);
        CHECK(calls.device_waits() == 0);
        pool.deallocate(a, p, 2 * MiB);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: what threads leave that end without a word does not grow, and is not handed out too early") {
    world const here(device::config{}.late());
    loose pool;
    std::size_t early = 0;
    for (int number = 0; number < 200; ++number) {
        std::thread([&] {
            for (int turn = 0; turn < 12; ++turn) {
                void* const p = pool.write(cudaStreamPerThread, 1 * MiB); // reported where others still use it
                pool.deallocate(cudaStreamPerThread, p, 1 * MiB);
            }
        }).join();
        if (number == 99)
            early = pool->reserved_bytes();
    }
    CHECK(pool->reserved_bytes() <= early + 8 * MiB);
    CHECK(early <= 96 * MiB); // stranded bytes are limited by the tuning, and the last sets keep theirs
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: streams that come and go leave nothing behind that grows") {
    // Each does a little and is destroyed while its work is in flight. What they held in all is what some of them held.
    for (bool const compact : {false, true}) {
        CAPTURE(compact);
        world const here(device::config{}.random(7));
        auto const play = [](auto& pool) {
            std::size_t early = 0;
            tally const calls;
            for (int round = 0; round < 60; ++round) {
                stream streams[8];
                for (int turn = 0; turn < 4; ++turn)
                    for (stream const& each : streams) {
                        void* const small = pool.write(each, 4 * KiB);
                        void* const large = pool.write(each, 1 * MiB);
                        pool.deallocate(each, small, 4 * KiB);
                        pool.deallocate(each, large, 1 * MiB);
                    }
                for (stream const& each : streams)
                    CHECK(cudaStreamSynchronize(each) == cudaSuccess);
                if (round == 9)
                    early = pool->reserved_bytes();
            }
            CHECK(pool->reserved_bytes() <= early + early / 4);
            CHECK(calls.device_waits() == 0); // nobody waits for what they left
            check_all_returns(pool);
        };
        if (compact) {
            watched<pool_of<stream_ordered<checked, wait_first>, sized>> pool;
            play(pool);
        } else {
            watched<pool_of<stream_ordered<checked, grow_first>, sized>> pool;
            play(pool);
        }
    }
}

TEST_CASE("stream_ordered: streams that only free, each under the same handle, leave nothing that grows") {
    world const here(device::config{}.eager());
    stream producer;
    watched<pool_of<stream_ordered<>>> pool;
    for (int round = 0; round < 300; ++round) {
        stream consumer;
        void* const p = pool.write(producer, 1 * MiB);
        CHECK(cudaStreamSynchronize(producer) == cudaSuccess);
        CHECK(device::launch(consumer, {{p, 1 * MiB}}, {}) == cudaSuccess);
        pool.deallocate(consumer, p, 1 * MiB);
        CHECK(cudaStreamSynchronize(consumer) == cudaSuccess);
    }
    CHECK(pool->reserved_bytes() <= 16 * MiB);
    check_all_returns(pool);
}

namespace {
struct tidy : weir::reuse::stream_ordered_tuning {
    static constexpr std::size_t stranded_bytes = 8 * MiB;
};
} // namespace

TEST_CASE("stream_ordered: streams that live long and go leave no more than is allowed") {
    world const here;
    watched<pool_of<stream_ordered<checked, grow_first, tidy>, sized>> pool;
    cudaStream_t captured = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking) == cudaSuccess);
    support::capture graph(captured); // which no wait for the device may break
    for (int life = 0; life < 40; ++life) {
        stream s;
        for (int turn = 0; turn < 70; ++turn) {
            void* const large = pool.write(s, 1 * MiB);
            void* const small = pool.write(s, 4 * KiB);
            pool.deallocate(s, large, 1 * MiB);
            pool.deallocate(s, small, 4 * KiB);
        }
    }
    CHECK(pool->reserved_bytes() <= 8 * MiB + 3 * 4 * MiB);
    CHECK(graph.unbroken());
    CHECK(cudaStreamDestroy(captured) == cudaSuccess);
    check_all_returns(pool);
}

TEST_CASE_TEMPLATE("stream_ordered: a block of a default stream is ordered after its own device's, whichever is current", Pool,
                   fits, slabs, watched<pool_of<weir::reuse::after_event>>) {
    for (cudaStream_t on : {cudaStreamLegacy, cudaStream_t{}, cudaStreamPerThread}) {
        world const here(device::config{}.late().with_devices(2));
        Pool pool(limit(2 * MiB));
        void* const p = pool.write(on, 2 * MiB);
        cudaEvent_t written = nullptr;
        REQUIRE(cudaEventCreateWithFlags(&written, cudaEventDisableTiming) == cudaSuccess);
        CHECK(cudaEventRecord(written, on) == cudaSuccess);
        CHECK(device::launch(on, {{p, 2 * MiB}}, {}) == cudaSuccess);
        REQUIRE(cudaSetDevice(1) == cudaSuccess);
        REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(on, written, 0) == cudaSuccess); // the current device's stream of that name
        CHECK(device::launch(on, {{p, 2 * MiB}}, {}) == cudaSuccess);
        CHECK(cudaEventDestroy(written) == cudaSuccess);
        pool->deallocate(on, p, 2 * MiB);
        device::note_free(p, 2 * MiB, on);
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        stream b;
        void* const q = pool.write(b, 2 * MiB);
        CHECK(q == p);
        pool.deallocate(b, q, 2 * MiB);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: at the limit the pool waits for the device and breaks no capture") {
    world const here;
    stream a, b, captured;
    loose pool(limit(2 * MiB));
    void* const p = pool.write(a, 2 * MiB);
    pool.deallocate(a, p, 2 * MiB); // open: 'b' cannot wait for it
    {
        support::capture graph(captured);
        void* const q = pool.write(b, 2 * MiB);
        CHECK(graph.unbroken());
        pool.deallocate(b, q, 2 * MiB);
    }
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: memory of no device is waited for on every device") {
    world const here(device::config{}.late().with_devices(2));
    {
        watched<pool_of<usual<>, fitted, weir::upstream::managed>> pool;
        REQUIRE(cudaSetDevice(1) == cudaSuccess);
        stream far;
        void* const p = pool.write(far, 1 * MiB);
        pool.deallocate(far, p, 1 * MiB);
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        CHECK(device::pending() == 1);
        pool->settle();
        CHECK(device::pending() == 0);
        void* const q = pool.write(far, 1 * MiB);
        pool.deallocate(far, q, 1 * MiB);
        CHECK(device::pending() == 1);
    } // the end waits too
    CHECK(device::pending() == 0);
    {
        watched<pool_of<usual<>, fitted, weir::upstream::managed>> pool;
        stream near;
        REQUIRE(cudaSetDevice(1) == cudaSuccess);
        stream far;
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        for (unsigned frees = 0; frees <= weir::reuse::stream_ordered_tuning::young_frees; ++frees)
            for (cudaStream_t each : {cudaStream_t(near), cudaStream_t(far)})
                pool.deallocate(each, pool.write(each, 64 * KiB), 64 * KiB);
        CHECK(pool->state().live_blocks == 0);
        CHECK(device::pending() != 0); // and no event tells of the last two
        pool->settle();
        CHECK(device::pending() == 0);
    }
}

TEST_CASE("stream_ordered: a stream that has lived for a while keeps what it frees, with no event") {
    world const here;
    stream a;
    watched<pool_of<stream_ordered<>>> pool;
    constexpr unsigned young = weir::reuse::stream_ordered_tuning::young_frees;
    tally const calls;
    for (unsigned frees = 0; frees < young; ++frees)
        pool.deallocate(a, pool.allocate(a, 1 * MiB), 1 * MiB);
    CHECK(calls.records() == young);
    for (unsigned frees = 0; frees < young; ++frees)
        pool.deallocate(a, pool.allocate(a, 1 * MiB), 1 * MiB);
    CHECK(calls.records() == young);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: each thread's default stream is a stream of its own") {
    world const here;
    loose pool;
    void* const p = pool.write(cudaStreamPerThread, 1 * MiB);
    pool.deallocate(cudaStreamPerThread, p, 1 * MiB);
    void* q = nullptr;
    std::thread([&] {
        q = pool.write(cudaStreamPerThread, 1 * MiB);
        pool.deallocate(cudaStreamPerThread, q, 1 * MiB);
    }).join();
    CHECK(q != p);
    CHECK(pool.allocate(cudaStreamPerThread, 1 * MiB) == p);
    pool.deallocate(cudaStreamPerThread, p, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: the legacy stream has one set under both its names") {
    world const here;
    loose pool;
    void* const p = pool.write(cudaStreamLegacy, 1 * MiB);
    pool.deallocate(cudaStreamLegacy, p, 1 * MiB);
    CHECK(pool.write(cudaStream_t{}, 1 * MiB) == p);
    pool.deallocate(cudaStream_t{}, p, 1 * MiB);
    CHECK(pool.allocate(cudaStreamLegacy, 1 * MiB) == p);
    pool.deallocate(cudaStreamLegacy, p, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE_TEMPLATE("stream_ordered: another device may be current", Pool, loose, slabs,
                   watched<pool_of<usual<grow_first, promised>>>) {
    world const here(device::config{}.late().with_devices(2));
    Pool pool(limit(4 * MiB));
    stream a, b;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    void* const p = pool.write(a, 2 * MiB);
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, p) == cudaSuccess);
    CHECK(attributes.device == 0);
    void* const q = pool.write(b, 2 * MiB);
    CHECK(device::launch(b, {{q, 1}}, {}) == cudaSuccess);
    pool->used_on(q, a);
    pool.deallocate(a, p, 2 * MiB);
    pool.deallocate(b, q, 2 * MiB);
    void* const r = pool.write(b, 4 * MiB);
    pool.deallocate(b, r, 4 * MiB);
    check_all_returns(pool);
    int current = 0;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 1);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("stream_ordered: a stream of another device is refused, and its frees wait for it") {
    world const here(device::config{}.late().with_devices(2));
    fits pool(limit(2 * MiB));
    stream a;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
    stream far;
    for (cudaStream_t on : {static_cast<cudaStream_t>(far), cudaStreamLegacy, cudaStreamPerThread}) {
        try {
            static_cast<void>(pool->allocate(on, 256));
            FAIL("it was not refused");
        } catch (usage_error const& error) {
            CHECK(std::string(error.what()).find("device 1") != std::string::npos);
            CHECK(std::string(error.what()).find("device 0") != std::string::npos);
        }
    }
    CHECK(pool->reserved_bytes() == 0);
    void* const p = pool.allocate(a, 2 * MiB);
    CHECK(device::launch(far, {}, {{p, 2 * MiB}}) == cudaSuccess);
    pool.deallocate(far, p, 2 * MiB);
    CHECK(pool->in_use_bytes() == 0);
    CHECK(pool.write(a, 2 * MiB) == p); // after the other device's kernel
    pool->used_on(p, far);              // a second use may be there
    CHECK(device::launch(far, {{p, 0}}, {}) == cudaSuccess);
    pool.deallocate(a, p, 2 * MiB);
    check_all_returns(pool);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE_TEMPLATE("stream_ordered: what another device's default stream frees while it is captured is its graph's", Pool,
                   loose, watched<pool_of<rule<>, fitted, weir::upstream::virtual_memory<>>>,
                   watched<pool_of<weir::reuse::after_event>>) {
    world const here(device::config{}.late().with_devices(2));
    Pool pool;
    stream a;
    void* const p = pool.allocate(a, 2 * MiB);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeGlobal) == cudaSuccess);
    pool->deallocate(cudaStreamPerThread, p, 2 * MiB);
    CHECK(cudaStreamEndCapture(cudaStreamPerThread, &graph) == cudaSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    pool->settle();
    CHECK(pool->state().lost_bytes == 2 * MiB);
    CHECK(pool->in_use_bytes() == 0);
    void* const q = pool->try_allocate(a, 2 * MiB);
    CHECK(q != p);
    pool->deallocate(a, q, 2 * MiB);
    device::note_free(p, 2 * MiB, a);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    for (int turns = 0; turns < 100 && pool->state().lost_bytes != 0; ++turns)
        static_cast<void>(cudaStreamQuery(a)); // CUDA tells of a graph's end some time later
    CHECK(pool->state().lost_bytes == 0);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: what a stream of another device freed is anyone's when that stream has passed") {
    world const here(device::config{}.late().with_devices(2));
    fits pool;
    stream a;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
    stream far;
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    void* const p = pool.allocate(a, 2 * MiB);
    CHECK(device::launch(far, {}, {{p, 2 * MiB}}) == cudaSuccess);
    pool.deallocate(far, p, 2 * MiB);
    CHECK(cudaStreamSynchronize(far) == cudaSuccess);
    tally const calls;
    CHECK(pool.write(a, 2 * MiB) == p); // an event told: nobody settles
    CHECK(calls.chunks() + calls.host_waits() == 0);
    pool.deallocate(a, p, 2 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: memory of no device hands over between devices") {
    world const here(device::config{}.late().with_devices(2));
    watched<pool_of<rule<wait_first>, fitted, weir::upstream::managed>> pool(limit(4 * MiB));
    stream a;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    stream far;
    void* const q = pool.allocate(far, 2 * MiB);
    void* const p = pool.write(far, 2 * MiB);
    pool.deallocate(far, p, 2 * MiB);
    CHECK(device::launch(far, {}, {{q, 2 * MiB}}) == cudaSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    tally const calls;
    CHECK(pool.write(a, 2 * MiB) == p);
    CHECK(calls.waits() == 1);
    pool.deallocate(a, p, 2 * MiB);
    pool.deallocate(far, q, 2 * MiB); // no stream of the other device waits for this one's use
    CHECK(device::pending() != 0);
    pool->settle();
    CHECK(device::pending() == 0); // both devices were waited for
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a stream of another device with the handle of one that is gone is not taken for it by its frees") {
    world const here(device::config{}.late().with_devices(2));
    watched<pool_of<usual<>, fitted, weir::upstream::managed>> pool;
    stream a, d;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    stream far;
    void* const p = pool.allocate(far, 1 * MiB);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    pool.deallocate(a, pool.allocate(a, 4096), 4096); // the pool knows the stream
    cudaStream_t const gone = a;
    a.destroy();
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    stream again;
    REQUIRE(cudaStream_t(again) == gone);
    weir::order_after(again, cudaStream_t(far));
    CHECK(device::launch(again, {}, {{p, 1 * MiB}}) == cudaSuccess);
    pool.deallocate(again, p, 1 * MiB);
    pool->settle();
    CHECK(cudaStreamQuery(again) == cudaSuccess); // the device that was waited for
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    void* const q = pool.write(d, 1 * MiB);
    CHECK(q == p);
    pool.deallocate(d, q, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a copy by peers needs no access, and is waited for on its stream, whatever handle that one bears") {
    world const here(device::config{}.late().with_devices(2));
    watched<weir::pool<weir::upstream::virtual_memory<>, weir::recipes::general_placement, weir::reuse::stream_ordered<>, weir::growth::exact>>
        pool(weir::pool_options{}.limit(64 * MiB)); // of which a set keeps blocks of 256 KiB at most
    stream a, b;
    void* some[12];
    for (void*& each : some)
        each = pool.allocate(b, 128 * KiB);
    for (void* each : some) // so that its set is no young one's
        pool.deallocate(b, each, 128 * KiB);
    weir::check_cuda(cudaStreamSynchronize(b), "cudaStreamSynchronize");
    cudaStream_t const gone = b;
    b.destroy();
    void* const p = pool.allocate(a, 128 * KiB);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    stream far;
    REQUIRE(cudaStream_t(far) == gone);
    void* there = nullptr;
    weir::check_cuda(cudaMalloc(&there, 128 * KiB), "cudaMalloc");
    weir::check_cuda(cudaMemcpyPeerAsync(there, 1, p, 0, 128 * KiB, far), "cudaMemcpyPeerAsync");
    pool.deallocate(far, p, 128 * KiB);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    void* const q = pool.write(a, 64 * MiB); // all of it
    CHECK(q != nullptr);
    pool.deallocate(a, q, 64 * MiB);
    check_all_returns(pool);
    weir::check_cuda(cudaFree(there), "cudaFree");
}

TEST_CASE("stream_ordered: a block of whose use on another device nothing is known comes back when that one is done") {
    for (bool const fault : {false, true}) {
        CAPTURE(fault);
        world const here(device::config{}.late().with_devices(2));
        weir::upstream::virtual_memory<> shared(0);
        shared.enable_access_from(1);
        using reached_by_two =
            watched<weir::pool<weir::upstream::virtual_memory<>, fitted, rule<>, weir::growth::paged<>>>;
        reached_by_two pool(std::move(shared));
        stream d;
        void* const p = pool.allocate(on_host, 1 * MiB);
        REQUIRE(cudaSetDevice(1) == cudaSuccess);
        stream captured(cudaStreamDefault), far;
        cudaStream_t const user = fault ? cudaStream_t(far) : cudaStreamLegacy;
        CHECK(device::launch(user, {}, {{p, 1 * MiB}}) == cudaSuccess);
        if (fault)
            device::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
        else
            REQUIRE(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed) == cudaSuccess); // legacy is in its way
        pool.deallocate(user, p, 1 * MiB);
        device::clear_faults();
        cudaGraph_t graph = nullptr;
        if (!fault) {
            REQUIRE(cudaStreamEndCapture(captured, &graph) == cudaSuccess);
            CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        }
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        pool->settle();
        CHECK(device::pending() == 0);
        void* const q = pool.write(d, 1 * MiB);
        pool.deallocate(d, q, 1 * MiB);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: what the pool can never hold is refused without a wait") {
    world const here;
    stream a, b;
    fits pool(limit(5 * MiB)); // two pages
    void* const p = pool.write(b, 1 * MiB);
    pool.deallocate(b, p, 1 * MiB);
    for (std::size_t bytes : {4 * MiB + 1, 5 * MiB + 1, 6 * MiB}) {
        CHECK(pool->try_allocate(cudaStream_t(a), bytes) == nullptr);
        CHECK(device::pending() != 0);
    }
    void* const q = pool.write(a, 4 * MiB);
    pool.deallocate(a, q, 4 * MiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a pool that ends waits for uses on another device") {
    world const here(device::config{}.late().with_devices(2));
    stream a;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
    stream far;
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    {
        fits pool;
        void* const p = pool.allocate(a, 2 * MiB);
        CHECK(device::launch(far, {}, {{p, 2 * MiB}}) == cudaSuccess);
        pool->used_on(p, far);
        pool.deallocate(a, p, 2 * MiB);
        CHECK(device::pending() != 0);
    }
    CHECK(device::pending() == 0);
}

TEST_CASE("stream_ordered: a free on a stream that is no more is kept until settle") {
    world const here;
    fits pool;
    stream a, b, c;
    void* const p = pool.write(a, 2 * MiB);
    cudaStream_t const gone = b;
    b.destroy();
    pool->deallocate(gone, p, 2 * MiB); // against the rules
    device::note_free(p, 2 * MiB, a);
    CHECK(pool->in_use_bytes() == 0);
    void* const q = pool.write(c, 2 * MiB);
    CHECK(q != p);
    pool->trim();
    CHECK(pool->reserved_bytes() >= 4 * MiB);
    pool.deallocate(c, q, 2 * MiB);
    check_all_returns(pool);
    CHECK(!device::reports(device::finding::destroyed_handle).empty());
    device::clear_reports();
}

// ---- threads ------------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("stream_ordered: a thread that waits at the limit stands in nobody's way", Handover, grow_first, wait_first) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed)
        stage::check_waits_in_nobodys_way<pool_of<rule<Handover>>>(seed, [](auto&) {});
}

TEST_CASE("stream_ordered: 'settle' vouches for nothing that came while it waited") {
    // One thread settles; the other moves a slab that is in flight to its own stream meanwhile.
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        world const here(device::config{}.random(seed));
        stream a, b, c;
        slabs_compact pool(limit(2 * MiB));
        CHECK(pool.try_allocate(b, 4 * MiB) == nullptr); // 'b' is known, and has nothing
        void* const rest = pool.allocate(a, 1 * MiB);
        device::run_threads(
            {[&] { pool->settle(); },
             [&] {
                 std::vector<void*> all;
                 while (void* const p = pool.try_allocate(a, 1 * KiB)) {
                     CHECK(device::launch(a, {}, {{p, 1 * KiB}}) == cudaSuccess);
                     all.push_back(p);
                 }
                 for (void* each : all)
                     pool.deallocate(a, each, 1 * KiB);
                 void* const moved = pool.write(b, 1 * KiB);
                 void* const third = pool.write(c, 1 * KiB);
                 pool.deallocate(c, third, 1 * KiB);
                 pool.deallocate(b, moved, 1 * KiB);
             }});
        pool.deallocate(a, rest, 1 * MiB);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: 'settle' vouches for no slab that moved while it waited") {
    // It waits for a second use, on another device, of what 'b' and 'd' freed, when a slab moves, in flight, to 'b'.
    world const here(device::config{}.late().with_devices(2));
    stream a, b, c, d;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    stream far;
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    slabs_compact pool(limit(4 * MiB));
    void* const used = pool.allocate(d, 2 * MiB);
    void* const small = pool.allocate(b, 512);
    void* const live = pool.allocate(b, 512); // so that 'b' has no other use for their slab
    void* const rest = pool.allocate(a, 2 * MiB - 32 * KiB);
    std::vector<void*> slab;
    while (void* const p = pool.try_allocate(a, 1 * KiB))
        slab.push_back(p);
    CHECK(slab.size() == 16);
    device::gate gate;
    CHECK(gate.close(far) == cudaSuccess);
    pool->used_on(used, far);
    pool->used_on(small, far);
    pool.deallocate(d, used, 2 * MiB);
    pool.deallocate(b, small, 512);
    for (cudaStream_t each : {cudaStream_t(b), cudaStream_t(d)})
        CHECK(cudaStreamSynchronize(each) == cudaSuccess); // so that the second use is all there is to wait for
    void* moved = nullptr;
    tally const waiting;
    device::run_threads({[&] { pool->settle(); },
                         [&] {
                             while (waiting.of("cudaEventSynchronize") == 0)
                                 device::yield();
                             CHECK(waiting.device_waits() == 0); // events tell of everything
                             for (void* each : slab) {
                                 CHECK(device::launch(a, {}, {{each, 1 * KiB}}) == cudaSuccess);
                                 pool.deallocate(a, each, 1 * KiB);
                             }
                             moved = pool.write(b, 1 * KiB);
                             gate.open();
                         }});
    CHECK(pool.write(d, 2 * MiB) == used); // so that the slab is all there is
    tally const calls;
    void* const third = pool.write(c, 1 * KiB);
    CHECK(calls.waits() == 1);
    pool.deallocate(c, third, 1 * KiB);
    pool.deallocate(b, moved, 1 * KiB);
    pool.deallocate(d, used, 2 * MiB);
    pool.deallocate(b, live, 512);
    pool.deallocate(a, rest, 2 * MiB - 32 * KiB);
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: a stock goes back where it came from, but the set may be another stream's by then") {
    // One thread lends the slab of a thread that has ended, in flight, but cannot record an event for it; meanwhile the
    // other thread's new stream wants a set that nobody uses any more.
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        world const here(device::config{}.random(seed));
        stream a, b, fresh;
        slabs_compact pool(limit(2 * MiB));
        void* const rest = pool.allocate(a, 2 * MiB - 16 * KiB);
        device::gate gate;
        std::thread([&] {
            CHECK(gate.close(cudaStreamPerThread) == cudaSuccess);
            void* const p = pool.write(cudaStreamPerThread, 1 * KiB);
            pool.deallocate(cudaStreamPerThread, p, 1 * KiB);
        }).join();
        CHECK(!pool.try_allocate(b, 4 * MiB));
        stream others[12]; // the next set is the seventeenth: a spare one is looked for
        for (stream const& each : others)
            CHECK(!pool.try_allocate(each, 4 * MiB));
        device::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
        device::run_threads({[&] {
                                 if (void* const p = pool.try_allocate(b, 1 * KiB)) {
                                     CHECK(device::launch(b, {}, {{p, 1 * KiB}}) == cudaSuccess);
                                     pool.deallocate(b, p, 1 * KiB);
                                 }
                             },
                             [&] {
                                 CHECK(!pool.try_allocate(fresh, 4 * MiB));
                                 if (void* const p = pool.try_allocate(fresh, 1 * KiB)) {
                                     CHECK(device::launch(fresh, {}, {{p, 1 * KiB}}) == cudaSuccess);
                                     pool.deallocate(fresh, p, 1 * KiB);
                                 }
                             },
                             [&] {
                                 for (int turn = 0; turn < 20; ++turn)
                                     device::yield();
                                 gate.open();
                             }});
        device::clear_faults();
        pool.deallocate(a, rest, 2 * MiB - 16 * KiB);
        check_all_returns(pool);
    }
}

TEST_CASE("stream_ordered: small blocks that live long take little more memory on many streams than on one") {
    using sized = weir::placement::by_size<64 * KiB, weir::placement::bins<>, weir::placement::best_fit<>>;
    using mapped = weir::pool<weir::upstream::virtual_memory<>, sized, usual<>, weir::growth::by_holes<>>;
    struct lasting {
        void* p;
        std::size_t bytes;
    };
    for (std::size_t const count : {std::size_t{1}, std::size_t{3}, std::size_t{8}, std::size_t{0}}) { // 0: a new stream each step
        CAPTURE(count);
        device::world const here;
        mapped pool;
        stream streams[8];
        std::deque<lasting> live;
        std::mt19937 draw(1);
        for (std::size_t step = 0; step < 6000; ++step) {
            std::unique_ptr<stream> const fresh(count == 0 ? new stream : nullptr);
            cudaStream_t const on = fresh ? static_cast<cudaStream_t>(*fresh) : static_cast<cudaStream_t>(streams[step % count]);
            std::size_t const bytes = 1 + draw() % (1u << (6 + draw() % 9));
            live.push_back({pool.allocate(on, bytes), bytes});
            for (int i = 0; i < 3; ++i) {
                std::size_t const short_lived = 1 + draw() % (1u << (6 + draw() % 12));
                pool.deallocate(on, pool.allocate(on, short_lived), short_lived);
            }
            if (live.size() > 2000) {
                pool.deallocate(on, live.front().p, live.front().bytes);
                live.pop_front();
            }
            CHECK(cudaStreamSynchronize(on) == cudaSuccess);
        }
        CHECK(pool.in_use_bytes() < 5 * MiB);
        CHECK(pool.reserved_bytes() <= (count == 1 ? 16 * MiB : 48 * MiB));
        for (lasting const& each : live)
            pool.deallocate(streams[0], each.p, each.bytes);
    }
}

namespace {
// Steps of one program, each of which gives back all that it took; what the pool holds after some, and after many.
template <class Pool, class Step>
void check_equal_steps(Pool& pool, Step const& step, std::size_t most_bytes) {
    for (int i = 0; i < 50; ++i)
        step();
    std::size_t const held = pool->reserved_bytes();
    CHECK(held <= most_bytes);
    tally const calls;
    for (int i = 0; i < 200; ++i)
        step();
    CHECK(pool->reserved_bytes() == held);
    CHECK(calls.chunks() == 0);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    check_all_returns(pool);
}

// 'to' goes on after what is enqueued on 'from'.
void order(cudaStream_t from, cudaStream_t to) {
    cudaEvent_t here = nullptr;
    CHECK(cudaEventCreateWithFlags(&here, cudaEventDisableTiming) == cudaSuccess);
    CHECK(cudaEventRecord(here, from) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(to, here, 0) == cudaSuccess);
    CHECK(cudaEventDestroy(here) == cudaSuccess);
}
using usual_pool = pool_of<stream_ordered<checked, grow_first>, sized>;
} // namespace

TEST_CASE("stream_ordered: in equal steps on two streams nothing grows, though each is busy when the other allocates") {
    for (std::size_t const bytes : {32 * MiB, 3 * MiB, 100 * KiB, 20 * KiB}) {
        CAPTURE(bytes);
        world const here;
        stream const a, b;
        watched<usual_pool> pool;
        auto const step = [&] {
            for (cudaStream_t const each : {cudaStream_t(a), cudaStream_t(b)})
                for (int i = 0; i < 5; ++i)
                    pool.deallocate(each, pool.write(each, bytes), bytes);
            CHECK(cudaDeviceSynchronize() == cudaSuccess);
        };
        check_equal_steps(pool, step, 2 * weir::base::align_up(bytes, 2 * MiB) + 8 * MiB);
    }
}

TEST_CASE("stream_ordered: what one stream makes and another frees comes round") {
    for (std::size_t const bytes : {32 * MiB, 3 * MiB, 100 * KiB}) {
        CAPTURE(bytes);
        world const here;
        stream const a, b;
        watched<usual_pool> pool;
        auto const step = [&] {
            for (int i = 0; i < 5; ++i) {
                void* const made = pool.write(a, bytes);
                order(a, b);
                CHECK(device::launch(b, {{made, bytes}}, {}) == cudaSuccess);
                pool.deallocate(b, made, bytes);
            }
            CHECK(cudaDeviceSynchronize() == cudaSuccess);
        };
        check_equal_steps(pool, step, 5 * weir::base::align_up(bytes, 2 * MiB) + 16 * MiB);
    }
}

TEST_CASE("stream_ordered: it comes round while the host is some steps ahead of the device, and neither ever rests") {
    for (int const ahead : {1, 3, 8})
        for (bool const second_use : {false, true}) {
            CAPTURE(ahead);
            CAPTURE(second_use);
            world const here;
            stream const a, b;
            watched<usual_pool> pool;
            std::vector<cudaEvent_t> ends(static_cast<std::size_t>(ahead));
            for (cudaEvent_t& each : ends)
                CHECK(cudaEventCreateWithFlags(&each, cudaEventDisableTiming) == cudaSuccess);
            std::size_t now = 0;
            auto const step = [&] {
                CHECK(cudaEventSynchronize(ends[now]) == cudaSuccess); // of the step that was enqueued 'ahead' steps ago
                for (int i = 0; i < 5; ++i) {
                    void* const made = pool.write(a, 1 * MiB);
                    order(a, b);
                    CHECK(device::launch(b, {{made, 1 * MiB}}, {}) == cudaSuccess);
                    if (second_use)
                        pool->used_on(made, b);
                    pool.deallocate(second_use ? a : b, made, 1 * MiB);
                }
                CHECK(cudaEventRecord(ends[now], b) == cudaSuccess);
                now = (now + 1) % ends.size();
            };
            std::size_t const step_bytes = 5 * MiB;
            check_equal_steps(pool, step, static_cast<std::size_t>(4 * (ahead + 2)) * step_bytes);
            for (cudaEvent_t const each : ends)
                CHECK(cudaEventDestroy(each) == cudaSuccess);
        }
}

TEST_CASE("stream_ordered: it comes round beside one block that another stream uses for long") {
    world const here;
    stream const a, b, c;
    device::gate long_use;
    CHECK(long_use.close(c) == cudaSuccess);
    watched<usual_pool> pool;
    void* const used = pool.write(a, 4 * KiB);
    order(a, c);
    CHECK(device::launch(c, {{used, 4 * KiB}}, {}) == cudaSuccess);
    pool->used_on(used, c);
    int steps = 0;
    auto const step = [&] {
        for (int i = 0; i < 4; ++i) {
            void* const made = pool.write(b, 4 * MiB);
            order(b, a);
            CHECK(device::launch(a, {{made, 4 * MiB}}, {}) == cudaSuccess);
            pool.deallocate(a, made, 4 * MiB);
        }
        if (++steps == 4)
            pool.deallocate(a, used, 4 * KiB);
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    };
    for (int i = 0; i < 20; ++i)
        step();
    std::size_t const held = pool->reserved_bytes();
    CHECK(held <= 64 * MiB);
    for (int i = 0; i < 200; ++i)
        step();
    CHECK(pool->reserved_bytes() == held);
    long_use.open();
    check_all_returns(pool);
}

TEST_CASE("stream_ordered: what goes to and fro between two streams joins, and holds no more with time") {
    for (int const ahead : {1, 2, 3}) {
        CAPTURE(ahead);
        world const here;
        stream const a, b;
        watched<weir::device_pool> pool;
        std::vector<cudaEvent_t> ends(static_cast<std::size_t>(2 * ahead));
        for (cudaEvent_t& each : ends)
            CHECK(cudaEventCreateWithFlags(&each, cudaEventDisableTiming) == cudaSuccess);
        std::size_t now = 0;
        auto const handed = [&](cudaStream_t from, cudaStream_t to, std::size_t bytes) {
            void* const p = pool.write(from, bytes);
            order(from, to);
            CHECK(device::launch(to, {{p, bytes}}, {}) == cudaSuccess);
            pool.deallocate(to, p, bytes);
        };
        std::size_t most = 0;
        for (int step = 0; step < 400; ++step) {
            for (std::size_t i = 0; i < 2; ++i)
                CHECK(cudaEventSynchronize(ends[(now + i) % ends.size()]) == cudaSuccess);
            pool.deallocate(a, pool.write(a, 16 * MiB), 16 * MiB);
            handed(b, a, 832 * KiB);
            handed(a, b, 8128 * KiB);
            for (cudaStream_t const each : {cudaStream_t(a), cudaStream_t(b)}) {
                CHECK(cudaEventRecord(ends[now], each) == cudaSuccess);
                now = (now + 1) % ends.size();
            }
            if (step == 100)
                most = pool->reserved_bytes();
        }
        CHECK(most <= static_cast<std::size_t>(1 + ahead) * 32 * MiB);
        CHECK(pool->reserved_bytes() <= most + most / 4);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        check_all_returns(pool);
        for (cudaEvent_t const each : ends)
            CHECK(cudaEventDestroy(each) == cudaSuccess);
    }
}

TEST_CASE_TEMPLATE("stream_ordered: a stream's own neighbours join, also where others wanted one of them", Handover, grow_first,
                   wait_first) {
    for (bool const limited : {false, true}) {
        CAPTURE(limited);
        world const here;
        stream const a, b;
        watched<pool_of<stream_ordered<checked, Handover>, sized>> pool(limit(limited ? 96 * MiB : SIZE_MAX));
        void* const whole = pool.allocate(a, 32 * MiB);
        pool.deallocate(a, whole, 32 * MiB);
        void* const x = pool.write(a, 16 * MiB);
        void* const y = pool.write(a, 16 * MiB);
        void* const other = pool.write(b, 48 * MiB);
        pool.deallocate(a, x, 16 * MiB);
        void* const more = pool.allocate(b, 16 * MiB); // grows, or waits
        pool.deallocate(a, y, 16 * MiB);
        if (!Handover::waits_before_growing) {
            tally const calls;
            void* const again = pool.write(a, 32 * MiB);
            CHECK(again == whole);
            CHECK(calls.host_waits() == 0);
            CHECK(calls.chunks() == 0);
            pool.deallocate(a, again, 32 * MiB);
        }
        pool.deallocate(b, more, 16 * MiB);
        pool.deallocate(b, other, 48 * MiB);
        check_all_returns(pool);
    }
}

namespace {
/// Little is set aside already.
struct handing : closing {
    static constexpr std::size_t gather_bytes = 1 * MiB;
    static constexpr std::size_t aside_bytes = 64 * KiB;
};
} // namespace

TEST_CASE_TEMPLATE("stream_ordered: real threads", Pool, watched<pool_of<usual<>, sized>>, fits_compact,
                   watched<pool_of<rule<grow_first, checked, handing>, sized>>,
                   watched<pool_of<usual<wait_first, promised>, sized>>) {
    world const here(device::config{}.eager());
    stream streams[3];
    Pool pool(limit(16 * MiB));
    std::atomic<unsigned> taken{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread)
        threads.emplace_back([&, thread] {
            std::uint64_t state = static_cast<std::uint64_t>(thread) + 1;
            auto const below = [&](std::size_t n) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                return static_cast<std::size_t>(state >> 33) % n;
            };
            for (int i = 0; i < 300; ++i) {
                std::size_t const place = below(4);
                cudaStream_t const on =
                    place == 3 ? cudaStreamPerThread : static_cast<cudaStream_t>(streams[place]);
                std::size_t const bytes = 1 + below(below(4) == 0 ? 4 * MiB : 16 * KiB);
                if (void* const p = pool.try_allocate(on, bytes)) {
                    taken.fetch_add(1);
                    if (below(8) == 0)
                        pool->used_on(p, streams[below(3)]);
                    pool.deallocate(on, p, bytes);
                }
                switch (below(40)) {
                case 0: pool->settle(); break;
                case 1: pool->trim(below(16) * MiB); break;
                case 2: CHECK(pool->state().reserved_bytes <= 16 * MiB); break;
                case 3:
                    if (void* const p = pool.try_allocate(on_host, bytes))
                        pool.deallocate(on_host, p, bytes);
                    break;
                default: break;
                }
            }
        });
    for (std::thread& each : threads)
        each.join();
    CHECK(taken.load() > 600);
    check_all_returns(pool);
}

#endif
