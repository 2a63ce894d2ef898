// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp; what CUDA refuses meanwhile, in tests/faults/handlers.cpp.

#include <atomic>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <deque>
#include <doctest/doctest.h>
#include <functional>
#include <mutex>
#include <string>
#include <support/counting_pool.hpp>
#include <support/every_schedule.hpp>
#include <support/noted.hpp>
#include <support/sanitized.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/layer/failure_handler.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/recipes.hpp>

using support::counting_pool;
using weir::failed_allocation;
using weir::MiB;
using weir::on_host;
using weir::handler::most_attempts;
using weir::handler::trim;
using weir::handler::trim_of;
using weir::layer::failure_handler;

namespace {

using any_handler = std::function<bool(failed_allocation const&)>;

// Has room for so many bytes and does not know it beforehand, as a pool without a limit on a device that is full.
struct full_pool : counting_pool<> {
    using counting_pool<>::counting_pool;
    weir::memory_report state() const {
        weir::memory_report now = counting_pool<>::state();
        now.limit_bytes = SIZE_MAX;
        return now;
    }
    bool can_hold(std::size_t, std::size_t = default_alignment) const { return true; }
};
using handled = failure_handler<full_pool, any_handler>;

struct never {
    bool operator()(failed_allocation const&) const { return false; }
};
struct for_one_thread : never {
    static constexpr bool thread_safe = false;
};
struct moved_only : never {
    moved_only() = default;
    moved_only(moved_only&&) = default;
};
struct handler_failure {};

// Room for 100 bytes, all of it taken by blocks of 10 that a handler can free.
struct crowded {
    crowded() {
        for (int i = 0; i < 10; ++i)
            cached.push_back(pool.allocate(on_host, 10));
    }
    ~crowded() {
        while (free_one()) {
        }
    }
    bool free_one() {
        if (cached.empty())
            return false;
        pool.deallocate(on_host, cached.front(), 10);
        cached.pop_front();
        return true;
    }
    counting_pool<> pool{std::size_t{100}};
    std::deque<void*> cached;
};

} // namespace

// As thread-safe as its pool and its handler; the rest is the pool's.
static_assert(handled::thread_safe && failure_handler<counting_pool<>&, never&>::thread_safe);
static_assert(!failure_handler<weir::frame_pool, never>::thread_safe);
static_assert(!failure_handler<counting_pool<>, for_one_thread>::thread_safe);
static_assert(!failure_handler<counting_pool<>, for_one_thread&>::thread_safe);
static_assert(failure_handler<counting_pool<>, trim_of<counting_pool<>>>::thread_safe);
static_assert(!failure_handler<counting_pool<>, trim_of<weir::frame_pool>>::thread_safe);
static_assert(handled::space == counting_pool<>::space && handled::default_alignment == 16);

TEST_CASE("failure_handler: is made from a handler and what makes its pool, and from nothing else") {
    using pool = counting_pool<>;
    using by_reference = failure_handler<pool&, never>;
    CHECK(std::is_constructible_v<handled, any_handler>);
    CHECK(std::is_constructible_v<handled, any_handler, std::size_t>);
    CHECK(std::is_constructible_v<by_reference, never, pool&>);
    CHECK(std::is_constructible_v<failure_handler<pool, never&>, never&>);
    CHECK(std::is_constructible_v<failure_handler<pool, moved_only>, moved_only>);
    CHECK_FALSE(std::is_constructible_v<failure_handler<pool, never&>, never>);
    CHECK_FALSE(std::is_constructible_v<handled>);
    CHECK_FALSE(std::is_constructible_v<by_reference, never>);
    CHECK_FALSE(std::is_constructible_v<by_reference, never, pool const&>);
    CHECK_FALSE(std::is_constructible_v<handled, any_handler, int*, int, int>);
    CHECK_FALSE(std::is_constructible_v<handled, any_handler, handled&>);
    CHECK_FALSE(std::is_constructible_v<handled, any_handler, handled>);
    CHECK_FALSE(std::is_constructible_v<handled, handled&>);

    pool below;
    never const no;
    failure_handler around(no, below);
    CHECK(std::is_same_v<decltype(around), by_reference>);
    CHECK(&around.inner() == &below);
}

TEST_CASE("failure_handler: is asked only where the pool has no room, and never for nothing") {
    int asked = 0;
    handled pool([&](failed_allocation const&) { return ++asked, false; }, std::size_t{100});
    void* const p = pool.allocate(on_host, 100);
    CHECK(pool.allocate(on_host, 0) == nullptr);
    CHECK(pool.try_allocate(on_host, 0) == nullptr);
    CHECK(pool.inner().allocations == 3);
    CHECK(asked == 0);
    pool.inner().throw_at = 1; // an error is no lack of room
    CHECK_THROWS_AS(static_cast<void>(pool.try_allocate(on_host, 10)), support::pool_failure);
    CHECK(asked == 0);
    CHECK(pool.try_allocate(on_host, 1) == nullptr);
    CHECK(asked == 1);
    pool.deallocate(on_host, p, 100);
    CHECK(pool.inner().frees == 1);
}

TEST_CASE("failure_handler: is told what failed, and how often it was asked for that") {
    std::vector<int> attempts;
    handled pool(
        [&](failed_allocation const& failed) {
            CHECK(failed.stream == weir::stream_ref(cudaStreamLegacy));
            CHECK(failed.bytes == 200);
            CHECK(failed.alignment == 64);
            attempts.push_back(failed.attempt);
            return failed.attempt < 2;
        },
        std::size_t{100});
    CHECK(pool.try_allocate(cudaStreamLegacy, 200, 64) == nullptr);
    CHECK(attempts == std::vector<int>{0, 1, 2});
    CHECK(pool.inner().allocations == 3);                           // none after the no
    CHECK(pool.try_allocate(cudaStreamLegacy, 200, 64) == nullptr); // another allocation: it counts anew
    CHECK(attempts == std::vector<int>{0, 1, 2, 0, 1, 2});
}

TEST_CASE("failure_handler: the pool is tried again after each yes, until it has room") {
    crowded here;
    int asked = 0;
    failure_handler pool([&](failed_allocation const&) { return ++asked, here.free_one(); }, here.pool);
    here.pool.allocations = 0;
    void* const p = pool.try_allocate(on_host, 30);
    CHECK(p != nullptr);
    CHECK(asked == 3); // no more than it took
    CHECK(here.pool.allocations == 4);
    CHECK(here.cached.size() == 7);
    void* const q = pool.try_allocate(on_host, 80);
    CHECK(q == nullptr);
    CHECK(asked == 3 + 8); // seven blocks and a no
    CHECK(here.pool.live_blocks() == 1);
    CHECK(here.pool.last_stream == weir::stream_ref(on_host));
    pool.deallocate(on_host, p, 30);
    CHECK(here.pool.live_blocks() == 0);
}

TEST_CASE(
    "failure_handler: one that always says yes is stopped, and what came free at its last yes is found") {
    int asked = 0;
    handled pool([&](failed_allocation const&) { return ++asked, true; }, std::size_t{100});
    CHECK(pool.try_allocate(on_host, 101) == nullptr);
    CHECK(asked == most_attempts);
    CHECK(pool.inner().allocations == 1 + most_attempts);

    counting_pool<> below(std::size_t{100});
    void* const old = below.allocate(on_host, 100);
    failure_handler late(
        [&](failed_allocation const& failed) {
            if (failed.attempt == most_attempts - 1)
                below.deallocate(on_host, old, 100);
            return true;
        },
        below);
    void* const p = late.try_allocate(on_host, 100);
    CHECK(p != nullptr);
    late.deallocate(on_host, p, 100);
}

TEST_CASE("failure_handler: what it throws leaves the allocation, and the pool is as it was") {
    bool throws = true;
    crowded here;
    auto const handler = [&](failed_allocation const& failed) {
        if (throws && failed.attempt == 1)
            throw handler_failure{};
        return here.free_one();
    };
    failure_handler inner(handler, here.pool);
    weir::layer::limit<decltype(inner)&> limited(1000, inner);
    weir::layer::statistics<decltype(limited)&> pool(limited);
    CHECK_THROWS_AS(static_cast<void>(pool.allocate(on_host, 30)), handler_failure);
    CHECK(here.cached.size() == 9); // what it freed is free
    CHECK(here.pool.live_blocks() == 9);
    CHECK(limited.requested_bytes() == 0);
    CHECK(pool.total_blocks() == 0);
    throws = false;
    void* const p = pool.allocate(on_host, 30);
    CHECK(here.pool.live_blocks() == 1 + 7);
    pool.deallocate(on_host, p, 30);

    here.pool.throw_at = 2; // the retry
    CHECK_THROWS_AS(static_cast<void>(pool.allocate(on_host, 80)), support::pool_failure);
    CHECK(here.pool.live_blocks() == 6);
    CHECK(limited.requested_bytes() == 0);
}

TEST_CASE("failure_handler: a refusal says that the handler was asked") {
    handled pool(never{}, std::size_t{100}, "full");
    try {
        static_cast<void>(pool.allocate(on_host, 101));
        FAIL_CHECK("nothing was thrown");
    } catch (weir::out_of_memory const& error) {
        CHECK(error.reason() == "full has no 101; the failure handler was asked, and there is no room still");
        CHECK(error.asked_bytes() == 101);
        CHECK(error.pool_name() == "full");
    }
    weir::layer::statistics<handled&> above(pool);
    CHECK_SAYS(
        support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(above.allocate(on_host, 200)); }),
        "pool 'full' cannot hand out 200 bytes: full has no 200; the failure handler was asked, and "
        "there is no room still (");
    CHECK(above.failures() == 1);
}

TEST_CASE("failure_handler: nobody is asked for what no memory makes room for, and the refusal does not say so") {
    int asked = 0;
    auto const yes = [&](failed_allocation const&) { return ++asked, true; };
    counting_pool<> below(std::size_t{100}, "small");
    failure_handler pool(yes, below);
    CHECK(pool.try_allocate(on_host, 101) == nullptr);
    CHECK(below.allocations == 1);
    CHECK(asked == 0);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(on_host, 101)); }),
               "pool 'small' cannot hand out 101 bytes: small has no 101 (");
    void* const p = pool.allocate(on_host, 1);
    CHECK(pool.try_allocate(on_host, 100) == nullptr); // which would fit once the other is gone
    CHECK(asked == most_attempts);
    CHECK(pool.refused(100, 16).reason == "small has no 100; the failure handler was asked, and there is no room still");
    pool.deallocate(on_host, p, 1);

    asked = 0;
    weir::layer::limit<counting_pool<>&> share(50, below); // the lower of two limits
    failure_handler limited(yes, share);
    CHECK(limited.try_allocate(on_host, 51) == nullptr);
    full_pool unlimited(std::size_t{0}, "unlimited");
    failure_handler large(yes, unlimited);
    CHECK(large.try_allocate(on_host, std::size_t{PTRDIFF_MAX} + 1) == nullptr);
    CHECK(large.refused(SIZE_MAX, 16).reason == "unlimited has no " + std::to_string(SIZE_MAX));
    CHECK(asked == 0);
    CHECK(large.try_allocate(on_host, PTRDIFF_MAX) == nullptr);
    CHECK(asked == most_attempts);
}

TEST_CASE("failure_handler: nobody is asked for a size or an alignment that no block can have, whatever lies between") {
    using nodes = weir::pool<weir::upstream::host, weir::placement::slab<64>, weir::reuse::immediate, weir::growth::fixed<4096>>;
    int asked = 0;
    auto const no = [&](failed_allocation const&) { return ++asked, false; };
    auto const asked_for = [&](auto& pool, std::size_t bytes, std::size_t alignment) {
        asked = 0;
        CHECK(pool.try_allocate(on_host, bytes, alignment) == nullptr);
        return asked;
    };
    auto const fill = [](auto& pool) {
        for (int i = 0; i < 64; ++i)
            REQUIRE(pool.try_allocate(on_host, 64, 64) != nullptr);
    };
    weir::pool_options const quiet = weir::pool_options{}.limit(4096).on_leak(weir::leak_action::ignore);

    failure_handler<nodes, any_handler> bare(no, quiet);
    fill(bare);
    CHECK(asked == 0);
    CHECK(asked_for(bare, 64, 64) == 1);
    CHECK(asked_for(bare, 65, 16) == 0);
    CHECK(asked_for(bare, 64, 128) == 0);

    failure_handler<weir::layer::synchronized<nodes>, any_handler> locked(no, quiet);
    fill(locked);
    CHECK(asked_for(locked, 64, 64) == 1);
    CHECK(asked_for(locked, 65, 16) == 0);

    failure_handler<weir::layer::limit<weir::layer::statistics<nodes>>, any_handler> limited(no, std::size_t{4096}, quiet);
    fill(limited);
    CHECK(asked_for(limited, 64, 64) == 1);
    CHECK(asked_for(limited, 65, 16) == 0);

    nodes small(quiet);
    counting_pool<> large(std::size_t{100});
    using two = weir::layer::fallback<nodes&, counting_pool<>&>;
    failure_handler<two, any_handler> either(no, small, large);
    fill(small);
    void* const all = large.allocate(on_host, 100);
    CHECK(asked_for(either, 64, 64) == 1);
    CHECK(asked_for(either, 100, 64) == 1); // the second could
    CHECK(asked_for(either, 101, 64) == 0);
    large.deallocate(on_host, all, 100);
}

TEST_CASE("failure_handler: nobody is asked for more than a pool of whole pages ever holds") {
    support::scoped_stream const s;
    int asked = 0;
    failure_handler<weir::compact_device_pool, any_handler> pool([&](failed_allocation const&) { return ++asked, false; },
                                                                 weir::pool_options{}.limit(7 * MiB)); // three pages
    CHECK(pool.try_allocate(s, 6 * MiB + 1) == nullptr);
    CHECK(asked == 0);
    void* const p = pool.allocate(s, 2 * MiB);
    CHECK(pool.try_allocate(s, 6 * MiB) == nullptr);
    CHECK(asked == 1);
    pool.deallocate(s, p, 2 * MiB);
}

TEST_CASE("failure_handler: nobody is asked while the pool is suspended") {
    support::every_schedule([] {
        support::scoped_stream const s;
        int asked = 0;
        failure_handler<weir::compact_device_pool, any_handler> pool([&](failed_allocation const&) { return ++asked, false; },
                                                                     weir::pool_options{}.limit(8 * MiB));
        void* const p = pool.allocate(s, 4 * MiB);
        pool.suspend();
        CHECK(pool.try_allocate(s, 1 * MiB) == nullptr);
        CHECK(asked == 0);
        CHECK(pool.refused(1 * MiB, 256).reason == "the pool is suspended; call 'resume' first");
        pool.resume();
        CHECK(pool.try_allocate(s, 8 * MiB) == nullptr);
        CHECK(asked == 1);
        pool.deallocate(s, p, 4 * MiB);
    });
}

TEST_CASE("failure_handler: trim says yes as often as a pool gives something back, and waits where it gives nothing") {
    struct ready {
        std::size_t trim() {
            std::size_t const given_back = left.empty() ? 0 : left.front();
            if (!left.empty())
                left.pop_front();
            return given_back;
        }
        std::deque<std::size_t> left;
    };
    struct settling : ready {
        void settle() { ++settles; }
        int settles = 0;
    };
    full_pool below(std::size_t{5});
    ready a;
    a.left = {5, 7};
    failure_handler of_ready(trim(a), below);
    CHECK(of_ready.try_allocate(on_host, 10) == nullptr);
    CHECK(below.allocations == 1 + 2);
    settling b;
    b.left = {0, 5, 0, 0};
    failure_handler of_settling(trim(b), below);
    CHECK(of_settling.try_allocate(on_host, 10) == nullptr);
    CHECK(b.settles == 2);
    CHECK(b.left.empty());
    CHECK(below.allocations == 3 + 1 + 1);
}

TEST_CASE("failure_handler: a lambda asks one handler after the other, and no further than it takes") {
    // Pools of one heap of 100 bytes: what one holds freely another has not.
    std::size_t left = 20;
    struct sharing : counting_pool<> {
        explicit sharing(std::size_t& room) : left(&room) {}
        void* try_allocate(weir::stream_ref on, std::size_t bytes, std::size_t alignment = default_alignment) {
            return bytes > *left ? nullptr : counting_pool::try_allocate(on, bytes, alignment);
        }
        std::size_t* left;
    };
    struct holding : counting_pool<> {
        holding(std::size_t& room, std::size_t held) : left(&room) { reserved_bytes = held; }
        std::size_t trim(std::size_t keep_bytes = 0) {
            std::size_t const given_back = counting_pool::trim(keep_bytes);
            *left += given_back;
            return given_back;
        }
        std::size_t* left;
    };
    sharing below(left);
    holding a(left, 10), b(left, 30), c(left, 40);
    failure_handler pool(
        [first = trim(a), second = trim(b), third = trim(c)](failed_allocation const& failed) mutable {
            return first(failed) || second(failed) || third(failed);
        },
        below);
    void* const p = pool.try_allocate(on_host, 50);
    CHECK(p != nullptr);
    CHECK(a.reserved_bytes + b.reserved_bytes == 0);
    CHECK(c.reserved_bytes == 40);
    pool.deallocate(on_host, p, 50);
}

TEST_CASE("failure_handler: a handler may be a reference, and a function") {
    struct counter {
        bool operator()(failed_allocation const&) { return ++asked < 3; }
        int asked = 0;
    } count;
    failure_handler<full_pool, counter&> pool(count, std::size_t{10});
    CHECK(pool.try_allocate(on_host, 11) == nullptr);
    CHECK(count.asked == 3);
    failure_handler<full_pool, bool (*)(failed_allocation const&)> plain(
        [](failed_allocation const&) { return false; }, std::size_t{10});
    CHECK(plain.try_allocate(on_host, 11) == nullptr);
}

TEST_CASE("failure_handler: a handler may use the pool itself, and allocate from the one inside") {
    crowded here;
    int asked = 0;
    void* of_handler = nullptr;
    failure_handler pool(
        [&](failed_allocation const&) {
            ++asked;
            here.pool.reserved_bytes = 5;
            CHECK(here.pool.trim() == 5);
            here.free_one();
            here.free_one();
            of_handler = here.pool.try_allocate(on_host, 10); // which asks nobody
            CHECK(of_handler != nullptr);
            CHECK(here.pool.try_allocate(on_host, 50) == nullptr);
            return true;
        },
        here.pool);
    void* const p = pool.try_allocate(on_host, 10);
    CHECK(p != nullptr);
    CHECK(asked == 1);
    pool.deallocate(on_host, of_handler, 10);
    pool.deallocate(on_host, p, 10);
}

TEST_CASE("failure_handler: a limit's refusal asks as well, and so do two pools in a row") {
    using weir::layer::fallback;
    using weir::layer::limit;
    counting_pool<> below;
    limit<counting_pool<>&> share(100, below);
    void* old = share.allocate(on_host, 100);
    auto const free_old = [&](failed_allocation const&) {
        share.deallocate(on_host, std::exchange(old, nullptr), 100);
        return true;
    };
    failure_handler limited(free_old, share);
    void* p = limited.try_allocate(on_host, 100);
    CHECK(p != nullptr);
    CHECK(limited.limit_bytes() == 100);
    limited.deallocate(on_host, p, 100);

    using both = fallback<counting_pool<>, counting_pool<>>;
    both two(std::size_t{10}, std::size_t{20});
    void* const first = two.allocate(on_host, 10);
    void* const second = two.allocate(on_host, 20);
    failure_handler spilling(
        [&](failed_allocation const&) { return two.deallocate(on_host, second, 20), true; }, two);
    p = spilling.try_allocate(on_host, 15);
    CHECK(two.second().owns(p));
    CHECK(spilling.owns(p));
    spilling.deallocate(on_host, p, 15);
    spilling.deallocate(on_host, first, 10);
}

namespace {

template <class Pool>
struct with_limit {
    static weir::pool_options options(std::size_t bytes) { return weir::pool_options{}.limit(bytes); }
};
template <>
struct with_limit<weir::driver_pool> {
    static weir::driver_pool_options options(std::size_t bytes) {
        weir::driver_pool_options all;
        all.limit(bytes);
        return all;
    }
};

void write(void* p, std::size_t bytes, cudaStream_t stream) {
    weir::check_cuda(cudaMemsetAsync(p, 1, bytes, stream), "cudaMemsetAsync");
}

} // namespace

TEST_CASE_TEMPLATE("failure_handler: what a handler frees while it is in use is handed out no earlier", Pool,
                   weir::device_pool, weir::promised_device_pool, weir::compact_device_pool,
                   weir::managed_pool, weir::pinned_pool, weir::driver_pool) {
    constexpr std::size_t bytes = 32 * MiB;
    support::every_schedule([] {
        support::scoped_stream const a, b, c;
        Pool below(with_limit<Pool>::options(2 * bytes));
        std::deque<std::pair<void*, cudaStream_t>> cached;
        for (cudaStream_t each : {cudaStream_t(a), cudaStream_t(b)}) {
            cached.emplace_back(support::take(below, each, bytes), each);
            write(cached.back().first, bytes, each);
        }
        failure_handler pool(
            [&](failed_allocation const&) {
                if (cached.empty())
                    return false;
                support::give(below, cached.front().second, cached.front().first, bytes);
                cached.pop_front();
                return true;
            },
            below);
        void* const p = support::take(pool, c, bytes);
        write(p, bytes, c);
        void* const q = support::take(pool, a, bytes);
        write(q, bytes, a);
        write(p, bytes, c);
        CHECK(cached.empty());
        support::give(pool, c, p, bytes);
        support::give(pool, a, q, bytes);
        pool.settle();
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("failure_handler: every order of a handler's free and the work on its block") {
    using simulated_cuda::config;
    std::uint64_t const bound = support::sanitized ? 2000 : 100000;
    std::uint64_t const runs = simulated_cuda::explore(config{}, bound, [] {
        support::scoped_stream const a, b;
        weir::promised_device_pool below(weir::pool_options{}.limit(4 * MiB));
        void* const cached = support::take(below, a, 4 * MiB);
        simulated_cuda::launch(a, {}, {{cached, 4 * MiB}});
        failure_handler pool(
            [&](failed_allocation const&) { return support::give(below, a, cached, 4 * MiB), true; }, below);
        void* const p = support::take(pool, b, 3 * MiB);
        support::give(pool, b, p, 3 * MiB);
    });
    for (simulated_cuda::report const& each : simulated_cuda::reports())
        FAIL_CHECK(each.sentence);
    CHECK(runs > 1000);
    CHECK((support::sanitized || runs < bound)); // else some were left out
    simulated_cuda::reset();
}

TEST_CASE(
    "failure_handler: trim gives back what another pool of the device holds, and nothing that is in use") {
    using simulated_cuda::config;
    for (config const& each :
         {config{}.eager(), config{}.late(), config{}.random(1), config{}.random(2), config{}.random(3)}) {
        simulated_cuda::world const world(config(each).with_memory(128 * MiB), support::report_all);
        CAPTURE(static_cast<int>(each.mode));
        CAPTURE(each.seed);
        support::scoped_stream const a, b;
        weir::device_pool below, other;
        std::vector<void*> blocks;
        for (int i = 0; i < 4; ++i) { // chunks of their own
            blocks.push_back(support::take(other, a, 24 * MiB));
            write(blocks.back(), 24 * MiB, a);
        }
        failure_handler pool(trim(other), below);
        CHECK(pool.try_allocate(b, 64 * MiB) == nullptr); // all of it is live
        support::give(other, a, blocks[0], 24 * MiB);
        support::give(other, a, blocks[1], 24 * MiB);
        void* const p = support::try_take(pool, b, 64 * MiB); // the work on it has run, or is waited for
        REQUIRE(p != nullptr);
        write(p, 64 * MiB, b);
        CHECK(other.reserved_bytes() == 48 * MiB);
        support::give(pool, b, p, 64 * MiB);
        support::give(other, a, blocks[2], 24 * MiB);
        support::give(other, a, blocks[3], 24 * MiB);
    }
}

#endif

namespace {

// Blocks that may go, the oldest first. Whoever finds no room lets one go, whichever thread it was for.
template <class Pool>
struct shared_cache {
    bool operator()(failed_allocation const&) {
        std::lock_guard<std::mutex> const lock(mutex);
        if (blocks.empty())
            return false;
        auto const [p, stream] = blocks.front();
        blocks.pop_front();
        support::give(*pool, stream, p, bytes);
        return true;
    }
    void put(void* p, weir::stream_ref stream) {
        std::lock_guard<std::mutex> const lock(mutex);
        blocks.emplace_back(p, stream);
    }
    static constexpr std::size_t bytes = 2 * MiB;
    Pool* pool;
    std::mutex mutex;
    std::deque<std::pair<void*, weir::stream_ref>> blocks;
};

} // namespace

TEST_CASE("failure_handler: threads that fail at the same time are in the handler at the same time") {
    // Each waits in the handler for the other: with a lock around it neither would come out.
    std::atomic<int> inside{0};
    full_pool below(std::size_t{10});
    failure_handler pool(
        [&](failed_allocation const& failed) {
            if (failed.attempt == 0) {
                inside.fetch_add(1);
                while (inside.load() < 2)
                    std::this_thread::yield();
            }
            return false;
        },
        below);
    std::vector<std::thread> crew;
    for (int t = 0; t < 2; ++t)
        crew.emplace_back([&] { CHECK(pool.try_allocate(on_host, 11) == nullptr); });
    for (std::thread& each : crew)
        each.join();
    CHECK(inside.load() == 2);
}

TEST_CASE_TEMPLATE("failure_handler: threads free in the handler what the others need", Pool,
                   weir::device_pool, weir::layer::fallback<weir::device_pool, weir::pinned_pool>,
                   counting_pool<>) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.random(5), support::report_all);
#endif
    using cache = shared_cache<Pool>;
    auto const run = [](Pool& below) {
        cache cached{&below, {}, {}};
        failure_handler<Pool&, cache&> pool(cached, below);
        std::atomic<int> got{0};
        std::vector<std::thread> crew;
        for (int t = 0; t < 2; ++t)
            crew.emplace_back([&] {
                support::scoped_stream const mine;
                for (int round = 0; round < 200; ++round)
                    if (void* const p = support::try_take(pool, mine, cache::bytes)) {
                        if (Pool::space != weir::memory_space::host)
                            weir::check_cuda(cudaMemsetAsync(p, 1, cache::bytes, mine), "cudaMemsetAsync");
                        weir::check_cuda(cudaStreamSynchronize(mine),
                                    "cudaStreamSynchronize"); // the stream ends first
                        cached.put(p, on_host);
                        got.fetch_add(1);
                    }
            });
        for (std::thread& each : crew)
            each.join();
        CHECK(got.load() > 2 * 4); // more than there is room for
        while (cached({on_host, 1, 1, 0})) {
        }
        CHECK(pool.state().live_blocks == 0);
    };
    if constexpr (std::is_same_v<Pool, counting_pool<>>) {
        Pool below(4 * cache::bytes);
        run(below);
    } else if constexpr (std::is_same_v<Pool, weir::device_pool>) {
        Pool below(weir::pool_options{}.limit(4 * cache::bytes));
        run(below);
    } else {
        Pool below(weir::pool_options{}.limit(2 * cache::bytes),
                   weir::pool_options{}.limit(2 * cache::bytes));
        run(below);
    }
}

TEST_CASE(
    "failure_handler: on a pool for one thread at a time the lock goes below, and the handler may free") {
    using weir::layer::synchronized;
    synchronized<weir::host_pool> below(weir::pool_options{}.limit(1 * MiB));
    void* old = below.allocate(on_host, 900 * weir::KiB);
    failure_handler pool(
        [&](failed_allocation const&) {
            below.deallocate(on_host, std::exchange(old, nullptr), 900 * weir::KiB);
            return true;
        },
        below);
    CHECK(decltype(pool)::thread_safe);
    void* const p = pool.try_allocate(on_host, 800 * weir::KiB);
    CHECK(p != nullptr);
    pool.deallocate(on_host, p, 800 * weir::KiB);
}
