// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What every reuse rule promises, whichever placement it stands on. A file lists 'bound<Rule, Placement>'s in WEIR_TEST_RULES,
// specialises 'usual' where need be, and includes this page last.
//
// On a GPU the bytes are only counted; on the simulated device each hand-out and free is noted as well, so that bytes
// which are handed out too early are reported.

#include "reuse_subject.hpp"
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <iterator>
#include <map>
#include <random>
#include <support/every_schedule.hpp>
#include <thread>
#include <vector>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/runtime/stream.hpp>

namespace reuse_contract {

using weir::on_host;
using weir::stream_ref;
using weir::base::range;

/// Device memory to be handed out.
class memory {
public:
    explicit memory(std::size_t bytes) : bytes_(bytes) {
        REQUIRE(cudaMalloc(&p_, bytes) == cudaSuccess);
    }
    memory(memory const&) = delete;
    memory& operator=(memory const&) = delete;
    ~memory() { CHECK(cudaFree(p_) == cudaSuccess); }
    operator range() const { return range{reinterpret_cast<std::uintptr_t>(p_), bytes_}; }

private:
    void* p_ = nullptr;
    std::size_t bytes_;
};

#ifdef WEIR_SIMULATED_CUDA
inline void note_take(range block, stream_ref on, bool orders) {
    auto const p = reinterpret_cast<void*>(block.offset);
    if (!orders)
        return;
    if (on.is_host()) {
        simulated_cuda::note_allocate_host(p, block.bytes);
    } else {
        simulated_cuda::note_allocate(p, block.bytes, on.get());
        CHECK(simulated_cuda::launch(on.get(), {}, {{p, block.bytes}}) == cudaSuccess);
    }
}
inline void note_give(range block, stream_ref on, bool orders) {
    auto const p = reinterpret_cast<void*>(block.offset);
    if (!orders)
        return;
    if (on.is_host())
        simulated_cuda::note_free_host(p, block.bytes);
    else
        simulated_cuda::note_free(p, block.bytes, on.get());
}
#else
inline void note_take(range, stream_ref, bool) {}
inline void note_give(range, stream_ref, bool) {}
#endif

/// A rule whose calls are noted.
template <class Bound>
class watched {
public:
    using over = typename Bound::over;
    static constexpr bool orders = Bound::rule::orders_streams;
    static constexpr bool shows_memory =
        weir::contract::holds<weir::contract::has_visit_usable, over, stream_ref, typename Bound::placement> &&
        weir::contract::holds<weir::contract::has_remove, typename Bound::placement>;

    range take(std::size_t bytes, std::size_t alignment, stream_ref on) {
        range const block = rule_.take(bytes, alignment, on);
        if (block)
            note_take(block, on, orders);
        return block;
    }
    range borrow(std::size_t bytes, std::size_t alignment, stream_ref on) {
        if constexpr (weir::contract::holds<weir::contract::has_borrow, over, stream_ref>) {
            range const block = rule_.borrow(bytes, alignment, on);
            if (block)
                note_take(block, on, orders);
            return block;
        }
        return take(bytes, alignment, on);
    }
    void give(range block, stream_ref on) {
        note_give(block, on, orders);
        rule_.give(block, on);
    }
    /// Takes a chunk out, as it was added, and checks that this succeeds, or does not. Rules and placements that cannot do that
    /// are not asked.
    void check_removed(range chunk, bool is_whole) {
        if constexpr (shows_memory) {
            if constexpr (weir::contract::holds<weir::contract::has_borrow, over, stream_ref>)
                rule_.gather(on_host, false);
            bool removed = false;
            rule_.visit_unused([&](auto& free) { return removed = free.remove(chunk); });
            CHECK(removed == is_whole);
        }
    }
    over* operator->() { return &rule_; }

private:
    over rule_{0};
};

struct live_block {
    range where;
    stream_ref on = on_host;
};

} // namespace reuse_contract

using namespace reuse_contract;

TEST_CASE_TEMPLATE("reuse contract: an empty rule has nothing", Bound, WEIR_TEST_RULES) {
    support::every_schedule([] {
        static_assert(weir::contract::require_rule<typename Bound::rule, typename Bound::placement>());
        static_assert(weir::contract::require_reuse<typename Bound::over, stream_ref>());
        support::scoped_stream a;
        watched<Bound> rule;
        CHECK_FALSE(rule.take(1, 1, a));
        CHECK_FALSE(rule.take(1 * MiB, 256, on_host));
        CHECK_FALSE(rule.borrow(1, 1, a));
        CHECK_FALSE(rule.borrow(1, 1, on_host));
        rule->settle();
        weir::base::usage const used = rule->used();
        CHECK(used.bytes == 0);
        CHECK(used.blocks == 0);
        CHECK(used.largest_free_bytes == 0);
        CHECK(used.lost_bytes == 0);
    });
}

TEST_CASE_TEMPLATE("reuse contract: blocks lie in the chunk, apart from one another, aligned", Bound,
                   WEIR_TEST_RULES) {
    support::every_schedule([] {
        support::scoped_stream a;
        memory const chunk(8 * MiB);
        watched<Bound> rule;
        rule->add(chunk, a);
        std::vector<live_block> live;
        std::size_t bytes = 0;
        for (std::size_t const size : {1u, 256u, 1000u, 4096u, 65536u, 65537u, 1u << 20})
            for (std::size_t const alignment : {1u, 256u, 4096u, 65536u}) {
                if (alignment > usual<Bound>::most_alignment)
                    continue;
                range const block = rule.take(size, alignment, a);
                REQUIRE(block);
                CHECK(block.bytes == Bound::placement::rounded(size, alignment));
                CHECK(block.bytes >= size);
                CHECK(block.offset % alignment == 0);
                CHECK(static_cast<range>(chunk).contains(block));
                for (live_block const& each : live)
                    CHECK_FALSE(each.where.overlaps(block));
                live.push_back({block, a});
                bytes += block.bytes;
                CHECK(rule->used().bytes == bytes);
                CHECK(rule->used().blocks == live.size());
            }
        CHECK_FALSE(rule.take(8 * MiB, 1, a));
        rule.check_removed(chunk, false);
        for (live_block const& each : live)
            rule.give(each.where, each.on);
        CHECK(rule->used().blocks == 0);
        rule->settle();
        rule.check_removed(chunk, true);
        rule.check_removed(chunk, false);
        if (watched<Bound>::shows_memory)
            CHECK_FALSE(rule.take(1, 1, a));
    });
}

TEST_CASE_TEMPLATE("reuse contract: what was freed comes back to every stream by 'settle'", Bound, WEIR_TEST_RULES) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        memory const chunk(4 * MiB);
        for (bool const on_other : {false, true}) {
            watched<Bound> rule;
            rule->add(chunk, a);
            for (int round = 0; round < 5; ++round) {
                range const block = rule.take(3 * MiB, 256, a);
                REQUIRE(block);
                rule.give(block, a);
                rule->settle();
                cudaStream_t const on = on_other ? b : a;
                range const again = rule.take(3 * MiB, 256, on);
                CHECK(again == block);
                rule.give(again, on);
                rule->settle();
                if (watched<Bound>::shows_memory)
                    CHECK(rule->used().largest_free_bytes >= 3 * MiB);
            }
            rule.check_removed(chunk, true);
        }
    });
}

TEST_CASE_TEMPLATE("reuse contract: the host gets bytes that nothing in flight uses", Bound, WEIR_TEST_RULES) {
    support::every_schedule([] {
        support::scoped_stream a;
        memory const chunk(4 * MiB);
        watched<Bound> rule;
        rule->add(chunk, on_host);
        range const first = rule.take(3 * MiB, 256, on_host);
        REQUIRE(first);
        rule.give(first, on_host);
        if (!usual<Bound>::host_gets_back_at_once)
            rule->settle();
        range const second = rule.take(3 * MiB, 256, on_host);
        CHECK(second == first);
        rule.give(second, on_host);
        if (!usual<Bound>::host_gets_back_at_once)
            rule->settle();
        range const third = rule.take(3 * MiB, 256, a);
        REQUIRE(third);
        rule.give(third, a);
        range fourth = rule.borrow(3 * MiB, 256, on_host); // may wait
        if (!fourth) { // kept by its stream
            rule->settle();
            fourth = rule.take(3 * MiB, 256, on_host);
        }
        CHECK(fourth == first);
        rule.give(fourth, on_host);
        rule->settle();
        rule.check_removed(chunk, true);
    });
}

TEST_CASE_TEMPLATE("reuse contract: chunks stay apart", Bound, WEIR_TEST_RULES) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        memory const whole(4 * MiB);
        range const low{static_cast<range>(whole).offset, 2 * MiB};
        range const high{low.end(), 2 * MiB};
        for (bool const one_stream : {false, true}) { // whose bytes would join at once
            CAPTURE(one_stream);
            watched<Bound> rule;
            rule->add(low, a);
            rule->add(high, one_stream ? a : b);
            CHECK_FALSE(rule.take(2 * MiB + 1, 256, a));
            CHECK_FALSE(rule.borrow(4 * MiB, 256, b));
            if constexpr (weir::contract::holds<weir::contract::has_borrow, typename Bound::over, stream_ref>)
                rule->gather(a, false); // nor where all lie in one placement
            CHECK_FALSE(rule.take(2 * MiB + 1, 256, a));
            range const block = rule.take(1 * MiB, 256, a);
            REQUIRE(block);
            CHECK((low.contains(block) || high.contains(block)));
            rule.check_removed(low.contains(block) ? high : low, true);
            rule.check_removed(low.contains(block) ? low : high, false);
            rule.give(block, a);
            rule->settle();
            rule.check_removed(low.contains(block) ? low : high, true);
        }
    });
}

TEST_CASE_TEMPLATE("reuse contract: a use on a second stream is waited for", Bound, WEIR_TEST_RULES) {
    if constexpr (weir::contract::holds<weir::contract::has_used_on, typename Bound::over, range, stream_ref>) {
        support::every_schedule([] {
            support::scoped_stream a, b;
            memory const chunk(4 * MiB);
            watched<Bound> rule;
            rule->add(chunk, a);
            for (int round = 0; round < 4; ++round) {
                range const block = rule.take(1 * MiB, 256, a);
                REQUIRE(block);
                cudaEvent_t written = nullptr;
                REQUIRE(cudaEventCreateWithFlags(&written, cudaEventDisableTiming) == cudaSuccess);
                CHECK(cudaEventRecord(written, a) == cudaSuccess);
                CHECK(cudaStreamWaitEvent(b, written, 0) == cudaSuccess);
                CHECK(cudaEventDestroy(written) == cudaSuccess);
                bool const marked = round % 2 == 0; // before the launch, or told of it afterwards
                if (marked)
                    rule->used_on(block, b);
#ifdef WEIR_SIMULATED_CUDA
                CHECK(simulated_cuda::launch(b, {{reinterpret_cast<void*>(block.offset), block.bytes}}, {}) ==
                      cudaSuccess);
#endif
                if (!marked)
                    rule->last_used_on(block, b);
                rule.give(block, a);
            }
            CHECK(rule->used().blocks == 0);
            rule->settle();
            rule.check_removed(chunk, true);
        });
    }
}

TEST_CASE_TEMPLATE("reuse contract: random use follows a model", Bound, WEIR_TEST_RULES) {
    support::every_schedule([] {
        support::scoped_stream streams[3];
        memory const first(4 * MiB);
        memory const second(2 * MiB);
        watched<Bound> rule;
        rule->add(first, streams[0]);
        rule->add(second, streams[1]);
        std::mt19937_64 random(5);
        std::map<std::size_t, live_block> live;
        std::size_t bytes = 0;
        unsigned taken = 0;
        for (int i = 0; i < 1500; ++i) {
            std::size_t const place = random() % 8;
            stream_ref const on = place == 7   ? stream_ref(on_host)
                                  : place == 6 ? stream_ref(cudaStreamLegacy)
                                  : place == 5 ? stream_ref(cudaStreamPerThread)
                                               : stream_ref(static_cast<cudaStream_t>(streams[place % 3]));
            if (live.empty() || random() % 5 < 3) {
                std::size_t const size = 1 + random() % (random() % 4 == 0 ? 512 * KiB : 8 * KiB);
                std::size_t const alignment = std::min(std::size_t{1} << (random() % 14), usual<Bound>::most_alignment);
                range const block = random() % 4 == 0 ? rule.borrow(size, alignment, on) : rule.take(size, alignment, on);
                if (!block) {
                    if (!usual<Bound>::host_gets_back_at_once)
                        rule->settle(); // it has no room before
                    continue;
                }
                ++taken;
                REQUIRE(block.bytes == Bound::placement::rounded(size, alignment));
                REQUIRE((static_cast<range>(first).contains(block) || static_cast<range>(second).contains(block)));
                auto const above = live.lower_bound(block.offset);
                REQUIRE((above == live.end() || block.end() <= above->first));
                REQUIRE((above == live.begin() || std::prev(above)->second.where.end() <= block.offset));
                live[block.offset] = {block, on};
                bytes += block.bytes;
            } else {
                auto at = live.begin();
                std::advance(at, static_cast<std::ptrdiff_t>(random() % live.size()));
                rule.give(at->second.where, at->second.on);
                bytes -= at->second.where.bytes;
                live.erase(at);
            }
            if (random() % 200 == 0)
                rule->settle();
            REQUIRE(rule->used().bytes == bytes);
            REQUIRE(rule->used().blocks == live.size());
        }
        CHECK(taken > 400); // so that what follows is of many blocks
        for (auto const& each : live)
            rule.give(each.second.where, each.second.on);
        rule->settle();
        CHECK(rule->used().lost_bytes == 0);
        rule.check_removed(first, true);
        rule.check_removed(second, true);
    });
}

TEST_CASE_TEMPLATE("reuse contract: threads share a rule that is thread-safe", Bound, WEIR_TEST_RULES) {
    if constexpr (Bound::rule::thread_safe) {
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::world const world(simulated_cuda::config{}.eager(), support::report_all);
#endif
        support::scoped_stream streams[2];
        memory const chunk(16 * MiB);
        watched<Bound> rule;
        rule->add(chunk, streams[0]);
        std::atomic<unsigned> taken{0};
        std::vector<std::thread> threads;
        for (unsigned thread = 0; thread < 4; ++thread)
            threads.emplace_back([&, thread] {
                std::mt19937_64 random(thread);
                for (int i = 0; i < 300; ++i) {
                    stream_ref const on = random() % 3 == 0
                                              ? stream_ref(cudaStreamPerThread)
                                              : stream_ref(static_cast<cudaStream_t>(streams[random() % 2]));
                    std::size_t const size = 1 + random() % (64 * KiB);
                    std::size_t const coarse = std::min(std::size_t{4096}, usual<Bound>::most_alignment);
                    range const block = random() % 2 == 0 ? rule->take(size, 256, on) : rule->take(size / 8 + 1, coarse, on);
                    if (block) {
                        taken.fetch_add(1);
                        rule->give(block, on);
                    }
                    if (random() % 50 == 0)
                        rule->settle();
                    static_cast<void>(rule->used());
                }
            });
        for (std::thread& each : threads)
            each.join();
        CHECK(taken.load() > 600);
        CHECK(rule->used().blocks == 0);
        CHECK(rule->used().bytes == 0);
        rule->settle();
        rule.check_removed(chunk, true);
    }
}
