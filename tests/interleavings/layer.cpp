// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Small programs over the counters and the lock of layers: a limit that holds at every step, peaks that miss nothing, one
// thread that gives back at a time, and one at a time in a pool that is made for one.

#include "explore.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <weir/base/memory_space.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/runtime/stream.hpp>

using interleavings::always;
using interleavings::explore;
using interleavings::require;
using interleavings::threads;
using interleavings::yield;
using weir::on_host;

namespace {

/// The least pool that a layer can stand on. Its blocks are no memory.
class roomy : public weir::resource::pool_base<roomy> {
public:
    static constexpr weir::memory_space space = weir::memory_space::host;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = 16;

    explicit roomy(std::size_t room_bytes = SIZE_MAX) : room_bytes_(room_bytes) {}
    void* try_allocate(weir::stream_ref, std::size_t bytes, std::size_t = default_alignment) {
        yield();
        if (bytes > room_bytes_)
            return nullptr;
        room_bytes_ -= bytes;
        return this;
    }
    void deallocate(weir::stream_ref, void* p, std::size_t bytes, std::size_t = default_alignment) noexcept {
        yield();
        if (p)
            room_bytes_ += bytes;
    }

    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {full_state(), "no room"}; }

private:
    std::size_t room_bytes_;
};

/// Made for one thread: a second one inside is a bug of the layer.
class alone : public weir::resource::pool_base<alone> {
public:
    static constexpr weir::memory_space space = weir::memory_space::host;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = false;
    static constexpr std::size_t default_alignment = 16;

    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return enter(), &calls; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept { enter(); }
    weir::memory_report state() const { return enter(), weir::memory_report{}; }
    weir::refusal refused(std::size_t, std::size_t) const { return enter(), weir::refusal{}; }
    std::size_t in_use_bytes() const { return enter(), 0; }
    std::size_t reserved_bytes() const { return enter(), 0; }
    std::string report() const { return enter(), ""; }
    bool owns(void const*) const { return enter(), true; }
    std::size_t trim(std::size_t) { return enter(), 0; }
    void settle() { enter(); }
    std::size_t suspend() { return enter(), 0; }
    std::size_t suspend(int&) { return enter(), 0; }
    std::size_t suspend(int&, std::initializer_list<weir::live_block>) { return enter(), 0; }
    bool try_resume() { return enter(), true; }
    std::size_t suspended_bytes() const { return enter(), 0; }
    void used_on(void*, weir::stream_ref) { enter(); }
    void last_used_on(void*, weir::stream_ref) { enter(); }
    bool suspended() const { return enter(), false; }
    std::size_t limit_bytes() const { return enter(), 0; }
    std::string const& name() const { return enter(), name_; }
    int device() const { return enter(), 0; }
    void examine(weir::memory_report&) const noexcept { enter(); }

    mutable int calls = 0;

private:
    void enter() const noexcept {
        require(!inside_, "two threads are in a pool that is made for one");
        inside_ = true;
        yield();
        inside_ = false;
        ++calls;
    }
    mutable bool inside_ = false;
    std::string name_;
};

/// What the program itself has out, counted where nobody can come between.
struct books {
    std::size_t live = 0;
    std::size_t most = 0;
    std::size_t blocks = 0;
    std::size_t bytes = 0;
    void add(std::size_t count) {
        live += count;
        bytes += count;
        ++blocks;
        most = live > most ? live : most;
    }
};

} // namespace

TEST_CASE("interleavings: limit: never exceeded, at no step and with any threads") {
    explore([] {
        weir::layer::limit<roomy> pool(200);
        books seen;
        always([&] {
            require(pool.requested_bytes() <= 200 && seen.live <= 200, "more is live than the limit allows");
            require(seen.live <= pool.requested_bytes(), "what is live is not counted");
        });
        auto const once = [&](std::size_t bytes, int times) {
            for (int i = 0; i < times; ++i)
                if (void* const p = pool.try_allocate(on_host, bytes)) {
                    seen.add(bytes);
                    yield();
                    seen.live -= bytes;
                    pool.deallocate(on_host, p, bytes);
                }
        };
        threads([&] { once(100, 2); }, [&] { once(101, 1); }, [&] { once(100, 1); });
        require(pool.requested_bytes() == 0, "bytes that are not live stay counted");
        require(pool.try_allocate(on_host, 200) != nullptr, "the whole limit is free and is refused");
        seen.live = 0;
    });
}

TEST_CASE("interleavings: limit: never exceeded by what shards are granted ahead of need") {
    explore([] {
        weir::layer::limit<roomy> pool(600); // of which each shard may keep 100
        books seen;
        always([&] {
            require(pool.requested_bytes() <= 600 && seen.live <= 600, "more is live than the limit allows");
            require(seen.live <= pool.requested_bytes(), "what is live is not counted");
        });
        auto const take = [&](std::size_t bytes) {
            for (int i = 0; i < 4; ++i)
                if (pool.try_allocate(on_host, bytes))
                    seen.add(bytes);
        };
        threads([&] { take(99); }, [&] { take(98); });
        require(seen.live > 500, "a block is refused that fits");
        pool.deallocate(on_host, &pool, seen.live);
        require(pool.requested_bytes() == 0, "bytes that are not live stay counted");
        seen.live = 0;
    });
}

TEST_CASE("interleavings: limit: a new limit below what is live lets nothing out, whatever is taken as it comes") {
    explore([] {
        weir::layer::limit<roomy> pool(600); // of which each shard may keep 100
        books seen;
        auto const take = [&](std::size_t bytes) {
            if (pool.try_allocate(on_host, bytes))
                seen.add(bytes);
        };
        threads([&] { take(300); }, [&] { pool.set_limit(200); });
        std::size_t const live = seen.live;
        require(pool.requested_bytes() == live, "what is live is not counted, or more");
        if (live != 0) {
            pool.deallocate(on_host, &pool, 20); // more than the limit is still live
            require(pool.try_allocate(on_host, 10) == nullptr, "a block is handed out while more is live than the limit allows");
            pool.deallocate(on_host, &pool, live - 20);
        }
        require(pool.try_allocate(on_host, 200) != nullptr, "the whole limit is free and is refused");
    });
}

TEST_CASE("interleavings: limit: nothing that fits at every moment is refused, wherever others count meanwhile") {
    explore([] {
        weir::layer::limit<roomy> pool(600); // of which each shard may keep 100
        pool.deallocate(on_host, pool.try_allocate(on_host, 100), 100);
        auto const pairs = [&] {
            for (int i = 0; i < 2; ++i) {
                void* const p = pool.try_allocate(on_host, 90);
                require(p != nullptr, "a small block is refused that fits");
                pool.deallocate(on_host, p, 90);
            }
        };
        auto const large = [&] {
            void* const p = pool.try_allocate(on_host, 420);
            require(p != nullptr, "a large block is refused that fits");
            pool.deallocate(on_host, p, 420);
        };
        threads(pairs, pairs, large);
        require(pool.requested_bytes() == 0, "bytes that are not live stay counted");
    });
}

TEST_CASE("interleavings: statistics: no peak is missed while counts go back and credits are collected") {
    constexpr std::size_t large = std::size_t{12} << 20; // more than a shard keeps
    explore([] {
        weir::layer::statistics<roomy> pool;
        books seen;
        auto const once = [&](std::size_t bytes, std::size_t more) {
            for (std::size_t const each : {bytes, more}) {
                void* const p = pool.try_allocate(on_host, each);
                seen.add(each);
                require(pool.peak_requested_bytes() >= each, "a peak is missed");
                yield();
                seen.live -= each;
                pool.deallocate(on_host, p, each);
            }
        };
        threads([&] { once(large, 100); }, [&] { once(100, large); });
        require(pool.requested_bytes() == 0, "what is not live stays counted");
        require(pool.peak_requested_bytes() >= seen.most, "a peak is missed");
        pool.reset_peaks();
        require(pool.peak_requested_bytes() == 0, "a peak is there after its reset");
    });
}

TEST_CASE("interleavings: limit: what the pool refuses is not counted for long") {
    explore([] {
        weir::layer::limit<roomy> pool(200, std::size_t{100}); // the pool has room for 100
        bool served = false;
        auto const once = [&] {
            if (void* const p = pool.try_allocate(on_host, 100)) {
                served = true;
                yield();
                pool.deallocate(on_host, p, 100);
            }
        };
        threads(once, once, once);
        require(served, "nobody is served, and there was room");
        require(pool.requested_bytes() == 0, "bytes that are not live stay counted");
    });
}

TEST_CASE("interleavings: statistics: totals are exact and no peak is missed") {
    explore([] {
        weir::layer::statistics<roomy> pool(std::size_t{350});
        books seen;
        std::size_t refused = 0;
        auto const once = [&](std::size_t bytes, int times) {
            for (int i = 0; i < times; ++i) {
                if (void* const p = pool.try_allocate(on_host, bytes)) {
                    seen.add(bytes);
                    yield();
                    seen.live -= bytes;
                    pool.deallocate(on_host, p, bytes);
                } else {
                    ++refused;
                }
            }
        };
        threads([&] { once(100, 2); }, [&] { once(200, 1); }, [&] { once(150, 1); });
        require(pool.requested_bytes() == 0 && pool.live_blocks() == 0, "what is not live stays counted");
        require(pool.total_bytes() == seen.bytes && pool.total_blocks() == seen.blocks, "the totals are not exact");
        require(pool.failures() == refused, "the failures are not exact");
        require(pool.peak_requested_bytes() >= seen.most, "a peak is missed");
        require(pool.peak_requested_bytes() <= 550 + 3 * (550 / 64), "a peak counts more than all blocks and what was granted ahead");
        require(pool.peak_live_blocks() >= 1 && pool.peak_live_blocks() <= 4, "a peak of more blocks than there were");
    });
}

TEST_CASE("interleavings: synchronized: one thread at a time is in the pool, whatever member each calls") {
    using pool_type = weir::layer::synchronized<alone>;
    static int keep = 0;
    void (*const members[])(pool_type&) = {[](pool_type& pool) { static_cast<void>(pool.try_allocate(on_host, 1)); },
                                           [](pool_type& pool) { pool.deallocate(on_host, &keep, 1); },
                                           [](pool_type& pool) { static_cast<void>(pool.state()); },
                                           [](pool_type& pool) { static_cast<void>(pool.refused(1, 1).reason); },
                                           [](pool_type& pool) { static_cast<void>(pool.can_hold(1, 1)); },
                                           [](pool_type& pool) { static_cast<void>(pool.in_use_bytes()); },
                                           [](pool_type& pool) { static_cast<void>(pool.reserved_bytes()); },
                                           [](pool_type& pool) { static_cast<void>(pool.report()); },
                                           [](pool_type& pool) { static_cast<void>(pool.owns(nullptr)); },
                                           [](pool_type& pool) { static_cast<void>(pool.trim()); },
                                           [](pool_type& pool) { pool.settle(); },
                                           [](pool_type& pool) { static_cast<void>(pool.suspend()); },
                                           [](pool_type& pool) { static_cast<void>(pool.suspend(keep)); },
                                           [](pool_type& pool) { static_cast<void>(pool.suspend(keep, {})); },
                                           [](pool_type& pool) { static_cast<void>(pool.try_resume()); },
                                           [](pool_type& pool) { pool.resume(); },
                                           [](pool_type& pool) { static_cast<void>(pool.suspended_bytes()); },
                                           [](pool_type& pool) { pool.used_on(&keep, on_host); },
                                           [](pool_type& pool) { pool.last_used_on(&keep, on_host); },
                                           [](pool_type& pool) { static_cast<void>(pool.suspended()); },
                                           [](pool_type& pool) { static_cast<void>(pool.limit_bytes()); },
                                           [](pool_type& pool) { static_cast<void>(pool.name()); },
                                           [](pool_type& pool) { static_cast<void>(pool.device()); },
                                           [](pool_type& pool) {
                                               weir::memory_report now;
                                               pool.examine(now);
                                           }};
    for (auto const& member : members) {
        CAPTURE(&member - members);
        explore([member] {
            pool_type pool;
            auto const once = [&] { member(pool); };
            auto const pair = [&] { pool.deallocate(on_host, pool.try_allocate(on_host, 1), 1); };
            threads(once, pair, once);
            require(pool.inner().calls == 4, "a call is lost");
        });
    }
}
