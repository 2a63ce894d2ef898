// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What every pool must do, and every layer on one: the cases of tests/contract/pool*.cpp and layer.cpp. A file lists its
// pools in WEIR_TEST_POOLS, specialises 'subject' where need be, and includes this page last.

#include "pool_subject.hpp"

using namespace pool_contract;

TEST_CASE_TEMPLATE("pool contract: says what it is", Pool, WEIR_TEST_POOLS) {
    CHECK(weir::contract::require_layered<Pool, stream_ref>());
    CHECK(std::is_same_v<decltype(Pool::thread_safe), bool const>);
    CHECK(std::is_same_v<decltype(Pool::stream_ordered), bool const>);
    CHECK(weir::base::is_power_of_two(Pool::default_alignment));
    CHECK(Pool::default_alignment >= alignof(std::max_align_t));
    CHECK((Pool::space != weir::memory_space::device || Pool::default_alignment >= 256));
    CHECK_FALSE(std::is_copy_constructible_v<Pool>);
    CHECK_FALSE(std::is_copy_assignable_v<Pool>);
    CHECK(noexcept(std::declval<Pool&>().deallocate(on_host, nullptr, 1, 1)));
    CHECK(noexcept(std::declval<Pool&>().deallocate_sync(nullptr, 1)));
}

TEST_CASE_TEMPLATE("pool contract: equals itself and no other", Pool, WEIR_TEST_POOLS) {
    support::every_schedule([] {
        subject<Pool> a, b;
        CHECK(a.pool == a.pool);
        CHECK(a.pool != b.pool);
        CHECK_FALSE(a.pool == b.pool);
        CHECK_FALSE(a.pool != a.pool);
    });
}

TEST_CASE_TEMPLATE("pool contract: holds nothing before it is asked, and has a name", Pool, WEIR_TEST_POOLS) {
    support::every_schedule([] {
        subject<Pool> here;
        weir::memory_report const state = here.pool.state();
        CHECK(state.in_use_bytes == 0);
        CHECK(state.live_blocks == 0);
        CHECK(state.reserved_bytes == 0);
        CHECK_FALSE(state.name.empty());
        CHECK_FALSE(here.pool.report().empty());
        CHECK_SAYS(here.pool.report(), state.name);
        CHECK(here.pool.device() >= weir::any_device);
    });
}

TEST_CASE_TEMPLATE("pool contract: zero bytes are null, null is freed in vain", Pool, WEIR_TEST_POOLS) {
    support::every_schedule([] {
        support::scoped_stream const s;
        subject<Pool> here;
        for (std::size_t alignment : {std::size_t{1}, std::size_t{64}, 1 * MiB}) {
            CHECK(here.pool.allocate(s, 0, alignment) == nullptr);
            CHECK(here.pool.try_allocate(on_host, 0, alignment) == nullptr);
            here.pool.deallocate(s, nullptr, 0, alignment);
            here.pool.deallocate(on_host, nullptr, 100, alignment);
        }
        CHECK(here.pool.allocate_sync(0) == nullptr);
        here.pool.deallocate_sync(nullptr, 0);
        CHECK(here.pool.state().live_blocks == 0);
        CHECK(here.pool.state().reserved_bytes == 0);
    });
}

TEST_CASE_TEMPLATE("pool contract: an alignment that is no power of two is a usage_error that says so", Pool,
                   WEIR_TEST_POOLS) {
    support::every_schedule([] {
        support::scoped_stream const s;
        subject<Pool> here;
        for (std::size_t wrong : {std::size_t{0}, std::size_t{3}, std::size_t{48}, std::size_t{1000}, SIZE_MAX}) {
            std::string const expected =
                "weir: an alignment must be a power of two; got " + std::to_string(wrong);
            CHECK(support::sentence_of<weir::usage_error>(
                      [&] { static_cast<void>(here.pool.allocate(s, 10, wrong)); }) == expected);
            CHECK(support::sentence_of<weir::usage_error>(
                      [&] { static_cast<void>(here.pool.allocate_sync(10, wrong)); }) == expected);
        }
        CHECK(here.pool.state().live_blocks == 0);
        CHECK(here.pool.state().reserved_bytes == 0);
    });
}

TEST_CASE_TEMPLATE("pool contract: what cannot be is out_of_memory, with who, how much and why", Pool, WEIR_TEST_POOLS) {
#ifndef WEIR_SIMULATED_CUDA // no more managed memory is asked of a GPU than it has
    if (!has_limit<Pool>)
        return;
#endif
    support::every_schedule([] {
        support::scoped_stream const s;
        subject<Pool> here;
        void* const p = here.pool.allocate(s, 16, 16);
        std::size_t const in_use = here.pool.state().in_use_bytes;
        for (std::size_t bytes : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4095, SIZE_MAX - 8 * MiB}) {
            CHECK(here.pool.try_allocate(s, bytes) == nullptr);
            CHECK(here.pool.try_allocate(on_host, bytes, 1) == nullptr);
            try {
                static_cast<void>(here.pool.allocate(s, bytes));
                FAIL_CHECK("nothing was thrown");
            } catch (weir::out_of_memory const& error) {
                CHECK(error.asked_bytes() == bytes);
                CHECK(error.in_use_bytes() == here.pool.refused(bytes, 16).state.in_use_bytes); // the part's that refused
                CHECK_FALSE(error.pool_name().empty());
                CHECK_SAYS(error.reason(), "; "); // a refusal and what to do about it
                CHECK_SAYS(error.what(), "weir: out of memory: pool '" + error.pool_name() + "' cannot hand out " +
                                             std::to_string(bytes) + " bytes (" + std::string(weir::base::bytes_text(bytes)) +
                                             "): " + error.reason());
            }
        }
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        CHECK(here.pool.state().live_blocks == 1);
        CHECK(here.pool.state().in_use_bytes == in_use);
        here.pool.deallocate(s, p, 16, 16);
        CHECK(here.pool.state().live_blocks == 0);
        end_blocks(here.pool);
    });
}

TEST_CASE_TEMPLATE("pool contract: any size at any alignment up to 1 MiB", Pool, WEIR_TEST_POOLS) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.random(1), support::report_all);
#endif
    support::scoped_stream const s;
    subject<Pool> here;
    live_blocks live;
    for (std::size_t alignment = 1; alignment <= 1 * MiB; alignment *= 2)
        for (std::size_t bytes : {std::size_t{1}, std::size_t{17}, std::size_t{64}, std::size_t{1000}, 10 * KiB + 1,
                                  64 * KiB, 64 * KiB + 1, 300 * KiB}) {
            void* const p = support::try_take(here.pool, s, bytes, alignment);
            bool const can = bytes <= subject<Pool>::largest_bytes && alignment <= subject<Pool>::largest_alignment;
            REQUIRE((p != nullptr) == can);
            if (!p)
                continue;
            REQUIRE(live.add(p, {bytes, alignment, 0}));
            fill<Pool>(p, 1, bytes, s);
        }
    CHECK(here.pool.state().live_blocks == live.size());
    CHECK(here.pool.state().in_use_bytes >= live.bytes());
    CHECK(here.pool.state().reserved_bytes >= here.pool.state().in_use_bytes);
    weir::check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    while (live.size() != 0) {
        auto const [p, what] = live.take(0);
        support::give(here.pool, s, p, what.bytes, what.alignment);
    }
    CHECK(here.pool.state().live_blocks == 0);
    end_blocks(here.pool);
    CHECK(here.pool.state().in_use_bytes == 0);
}

TEST_CASE_TEMPLATE("pool contract: blocks are disjoint, keep their bytes, and are counted, over random calls", Pool,
                   WEIR_TEST_POOLS) {
    for (unsigned seed = 1; seed <= 3; ++seed) {
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::world const world(simulated_cuda::config{}.random(seed), support::report_all);
#endif
        support::scoped_stream const s;
        subject<Pool> here;
        live_blocks live;
        std::mt19937_64 draw(seed);
        for (int step = 0; step < 400; ++step) {
            if (live.size() < 5 || (live.size() < 60 && draw() % 2 == 0)) {
                std::size_t const bytes = some_bytes<Pool>(draw);
                std::size_t const alignment = some_alignment<Pool>(draw);
                void* const p = support::take(here.pool, s, bytes, alignment);
                int const value = static_cast<int>(draw() % 255 + 1);
                REQUIRE(live.add(p, {bytes, alignment, value}));
                fill<Pool>(p, value, bytes, s);
            } else {
                weir::check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
                auto const [p, what] = live.take(draw());
                REQUIRE(is_filled<Pool>(p, what.value, what.bytes));
                support::give(here.pool, s, p, what.bytes, what.alignment);
            }
            REQUIRE(here.pool.state().live_blocks == live.size());
            if (subject<Pool>::frees)
                REQUIRE(here.pool.state().in_use_bytes >= live.bytes());
        }
        weir::check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        while (live.size() != 0) {
            auto const [p, what] = live.take(0);
            REQUIRE(is_filled<Pool>(p, what.value, what.bytes));
            support::give(here.pool, s, p, what.bytes, what.alignment);
        }
        CHECK(here.pool.state().live_blocks == 0);
        end_blocks(here.pool);
    }
}

TEST_CASE_TEMPLATE("pool contract: memory that was freed is used again", Pool, WEIR_TEST_POOLS) {
    if (!subject<Pool>::frees)
        return;
    support::every_schedule([] {
        support::scoped_stream const s;
        subject<Pool> here;
        std::size_t const bytes = std::min<std::size_t>(100 * KiB, subject<Pool>::largest_bytes);
        std::size_t reserved = 0;
        for (std::size_t round = 0; round < 50 || round * 4 * bytes < 2 * reserved; ++round) { // more than it holds
            std::vector<void*> blocks;
            for (int i = 0; i < 4; ++i)
                blocks.push_back(support::take(here.pool, s, bytes));
            for (void* each : blocks)
                support::give(here.pool, s, each, bytes);
            weir::check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            if (round == 0)
                reserved = here.pool.state().reserved_bytes;
        }
        CHECK(here.pool.state().reserved_bytes == reserved);
    });
}

TEST_CASE_TEMPLATE("pool contract: without a stream, memory is there at once and gone at once", Pool, WEIR_TEST_POOLS) {
    support::every_schedule([] {
        subject<Pool> here;
        std::size_t const bytes = std::min<std::size_t>(10000, subject<Pool>::largest_bytes);
        for (int round = 0; round < 10; ++round) {
            void* const p = here.pool.allocate_sync(bytes);
            support::note_taken(here.pool, on_host, p, bytes);
            fill<Pool>(p, round, bytes, on_host);
            CHECK(is_filled<Pool>(p, round, bytes));
            support::give(here.pool, on_host, p, bytes);
        }
        void* const q = here.pool.allocate_sync(8, 64);
        CHECK(reinterpret_cast<std::uintptr_t>(q) % 64 == 0);
        here.pool.deallocate_sync(q, 8, 64);
        std::size_t const large = std::min<std::size_t>(1 * MiB, subject<Pool>::largest_bytes);
        here.pool.deallocate_sync(here.pool.allocate_sync(large), large);
        std::size_t const reserved = here.pool.state().reserved_bytes;
        for (std::size_t gone = 0; subject<Pool>::frees && gone < 2 * reserved; gone += large) // more than it holds
            here.pool.deallocate_sync(here.pool.allocate_sync(large), large);
        CHECK(here.pool.state().reserved_bytes == reserved);
        CHECK(here.pool.state().live_blocks == 0);
        end_blocks(here.pool);
    });
}

TEST_CASE_TEMPLATE("pool contract: the default streams will do", Pool, WEIR_TEST_POOLS) {
    support::every_schedule([] {
        subject<Pool> here;
        std::size_t const bytes = std::min<std::size_t>(5000, subject<Pool>::largest_bytes);
        for (cudaStream_t s : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
            if (s == cudaStreamPerThread && !knows_thread_streams<Pool>)
                continue;
            for (int round = 0; round < 3; ++round) {
                void* const p = support::take(here.pool, s, bytes);
                fill<Pool>(p, round, bytes, s);
                if (!Pool::stream_ordered)
                    weir::check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
                support::give(here.pool, s, p, bytes);
            }
            weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        }
        CHECK(here.pool.state().live_blocks == 0);
        end_blocks(here.pool);
    });
}

TEST_CASE_TEMPLATE("pool contract: a limit holds", Pool, WEIR_TEST_POOLS) {
    if (!has_limit<Pool>)
        return;
    support::every_schedule([] {
        support::scoped_stream const s;
        subject<Pool> here(64 * MiB);
        std::size_t const bytes = std::min<std::size_t>(3 * MiB, subject<Pool>::largest_bytes);
        std::size_t const most = std::min<std::size_t>(64, 64 * MiB / bytes);
        for (int round = 0; round < 2; ++round) { // what was freed counts no longer
            std::vector<void*> blocks;
            while (blocks.size() < 64) {
                void* const p = support::try_take(here.pool, s, bytes);
                if (!p)
                    break;
                blocks.push_back(p);
                CHECK(here.pool.state().reserved_bytes <= 64 * MiB);
            }
            CHECK(blocks.size() >= most / 2);
            CHECK(blocks.size() <= most);
            for (void* each : blocks)
                support::give(here.pool, s, each, bytes);
            CHECK(here.pool.state().live_blocks == 0);
            CHECK(here.pool.try_allocate(s, 65 * MiB) == nullptr);
            end_blocks(here.pool);
        }
    });
}

TEST_CASE_TEMPLATE("pool contract: settle and trim give everything back", Pool, WEIR_TEST_POOLS) {
    if constexpr (can_trim<Pool>::value) {
        support::every_schedule([] {
            support::scoped_stream const s;
            subject<Pool> here;
            std::size_t const bytes = std::min<std::size_t>(1 * MiB, subject<Pool>::largest_bytes);
            std::vector<void*> blocks;
            for (int i = 0; i < 5; ++i)
                blocks.push_back(support::take(here.pool, s, bytes));
            if constexpr (owns_memory<Pool>::value) {
                for (void* each : blocks)
                    CHECK(here.pool.owns(each));
                CHECK_FALSE(here.pool.owns(&here));
                CHECK_FALSE(here.pool.owns(nullptr));
            }
            for (void* each : blocks) {
                fill<Pool>(each, 1, bytes, s);
                if (!Pool::stream_ordered)
                    weir::check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
                support::give(here.pool, s, each, bytes);
            }
            end_blocks(here.pool);
            std::size_t const reserved = here.pool.state().reserved_bytes;
            CHECK(reserved >= std::min<std::size_t>(5 * bytes, 64 * KiB));
            here.pool.settle();
            CHECK(here.pool.trim(reserved) == 0);
            CHECK(here.pool.trim() == reserved);
            CHECK(here.pool.state().reserved_bytes == 0);
            CHECK(here.pool.trim() == 0);
            void* const again = support::take(here.pool, s, bytes);
            support::give(here.pool, s, again, bytes);
            end_blocks(here.pool);
        });
    }
}

TEST_CASE_TEMPLATE("pool contract: work may still use what a stream-ordered pool takes back", Pool, WEIR_TEST_POOLS) {
    if (!Pool::stream_ordered)
        return;
    support::every_schedule([] {
        support::scoped_stream const a, b;
        subject<Pool> here;
        std::mt19937_64 draw(77);
        std::vector<std::pair<void*, std::size_t>> live[2];
        cudaStream_t const streams[2] = {a, b};
        for (int step = 0; step < 150; ++step) {
            std::size_t const on = draw() % 2;
            if (live[on].size() < 6 && draw() % 2 == 0) {
                std::size_t const bytes = some_bytes<Pool>(draw);
                void* const p = support::take(here.pool, streams[on], bytes);
                if (weir::base::device_accessible(Pool::space))
                    fill<Pool>(p, step, bytes, streams[on]);
                live[on].emplace_back(p, bytes);
            } else if (!live[on].empty()) {
                support::give(here.pool, streams[on], live[on].back().first, live[on].back().second);
                live[on].pop_back();
            }
        }
        for (std::size_t on : {0u, 1u})
            for (auto const& [p, bytes] : live[on])
                support::give(here.pool, streams[on], p, bytes);
        CHECK(here.pool.state().live_blocks == 0);
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    });
}

TEST_CASE_TEMPLATE("pool contract: a free waits for all that marked streams do until then, whenever they were marked", Pool,
                   WEIR_TEST_POOLS) {
    if constexpr (weir::contract::holds<weir::contract::has_used_on, Pool, void*, stream_ref> && weir::base::device_accessible(Pool::space))
        support::every_schedule([] {
            support::scoped_stream const a, b, c;
            subject<Pool> here;
            std::size_t const bytes = subject<Pool>::largest_bytes < 4096 ? subject<Pool>::largest_bytes : 4096;
            for (int round = 0; round < 12; ++round) {
                void* const p = support::take(here.pool, a, bytes);
                weir::order_after(b, a);
                weir::order_after(c, a);
                if (round % 3 == 0) // before its launches
                    here.pool.used_on(p, b);
                fill<Pool>(p, round, bytes, b);
                if (round % 3 == 1) // between them
                    here.pool.used_on(p, b);
                fill<Pool>(p, round + 1, bytes, b);
                weir::order_after(c, b);
                fill<Pool>(p, round + 2, bytes, c);
                if (round % 3 == 2) { // behind them, of each or once
                    here.pool.last_used_on(p, b);
                    here.pool.used_on(p, c);
                } else {
                    here.pool.last_used_on(p, c);
                }
                support::give(here.pool, a, p, bytes);
                for (cudaStream_t const each : {cudaStream_t(a), cudaStream_t(c)}) {
                    void* const q = support::take(here.pool, each, bytes);
                    fill<Pool>(q, round, bytes, each);
                    support::give(here.pool, each, q, bytes);
                }
            }
            CHECK(here.pool.state().live_blocks == 0);
            CHECK(here.pool.state().lost_bytes == 0);
            here.pool.settle();
            weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        });
}

TEST_CASE_TEMPLATE("pool contract: threads share a pool that says they may", Pool, WEIR_TEST_POOLS) {
    if (!Pool::thread_safe)
        return;
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.random(9), support::report_all);
#endif
    support::scoped_stream const streams[4]; // they outlive the pool, as identity::promised asks
    subject<Pool> here;
    std::atomic<int> wrong{0};
    std::mutex mutex;
    live_blocks everything; // of all threads
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 4; ++t)
        crew.emplace_back([&, t] {
            cudaStream_t const s = streams[t];
            std::mt19937_64 draw(t);
            std::vector<std::pair<void*, live_blocks::block>> live;
            auto const give_back = [&] {
                auto const [p, what] = live.back();
                live.pop_back();
                weir::check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
                if (weir::base::host_accessible(Pool::space) && !is_filled<Pool>(p, what.value, what.bytes))
                    wrong.fetch_add(1);
                {
                    std::lock_guard<std::mutex> const lock(mutex);
                    everything.remove(p);
                }
                support::give(here.pool, s, p, what.bytes);
            };
            for (int step = 0; step < 120; ++step) {
                if (live.size() < 10 && draw() % 2 == 0) {
                    std::size_t const bytes = some_bytes<Pool>(draw);
                    void* const p = here.pool.allocate(s, bytes);
                    live.emplace_back(p, live_blocks::block{bytes, Pool::default_alignment, static_cast<int>(t + 1)});
                    support::note_taken(here.pool, s, p, bytes);
                    fill<Pool>(p, static_cast<int>(t + 1), bytes, s);
                    std::lock_guard<std::mutex> const lock(mutex);
                    if (!everything.add(p, live.back().second))
                        wrong.fetch_add(1);
                } else if (!live.empty()) {
                    std::swap(live[draw() % live.size()], live.back());
                    give_back();
                }
            }
            while (!live.empty())
                give_back();
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(wrong.load() == 0);
    CHECK(here.pool.state().live_blocks == 0);
}
