// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// With a stand-in for NVIDIA's tools, on the simulated device and on a GPU.
#if __has_include(<nvtx3/nvToolsExtMem.h>)

#include <support/nvtx_tool.hpp>

#include <cstring>
#include <cuda_runtime_api.h>
#include <memory>
#include <optional>
#include <random>
#include <support/capture.hpp>
#include <support/counting_pool.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/recorded_upstream.hpp>
#include <type_traits>
#include <weir/growth/exact.hpp>
#include <weir/interop/nvtx.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>
#include <weir/reuse/immediate.hpp>

using support::scoped_stream;
using support::tool;
using weir::MiB;
using weir::on_host;

namespace {

namespace nvtx = weir::interop::nvtx;

std::uintptr_t number(void const* p) { return reinterpret_cast<std::uintptr_t>(p); }

// A pool of ordinary memory with borders.
using checked_host = nvtx::checked_blocks<
    weir::pool<nvtx::checked_chunks<support::recorded_upstream<>>, weir::placement::best_fit<>, weir::reuse::immediate,
               weir::growth::exact>>;
struct host_memory {
    support::upstream_ledger ledger;
    nvtx::checked_memory memory;
    std::optional<checked_host> pool{};
    host_memory() {
        pool.emplace(memory, nvtx::checked_chunks<support::recorded_upstream<>>(memory, support::recorded_upstream<>(ledger)),
                     weir::pool_options{}.name("borders").on_leak(weir::leak_action::ignore));
    }
};

struct counting_pool : support::counting_pool<> {
    using support::counting_pool<>::counting_pool;
    std::size_t reserved_bytes() const { return held_bytes; }
    void settle() { held_bytes = 70; }
    std::size_t held_bytes = 5000;
};

void set(void* flag) { *static_cast<bool*>(flag) = true; }

} // namespace

TEST_CASE("nvtx: a block is a region of its chunk, of the bytes that were asked for, named by its pool and line") {
    {
        host_memory host;
        checked_host& pool = *host.pool;
        CHECK_FALSE(host.memory.has_tool());
        void* const p = pool.allocate(on_host, 1000), * const q = pool.try_allocate(on_host, 1);
        int const line = __LINE__ - 1;
        CHECK(host.memory.has_tool());
        CHECK(tool().heaps.size() == 1);
        REQUIRE(tool().regions.count(number(p)) == 1);
        CHECK(tool().regions[number(p)].bytes == 1000);
        CHECK(tool().regions[number(p)].name == "borders, " __FILE__ ":" + std::to_string(line));
        CHECK(tool().regions[number(q)].name == "borders");
        pool.deallocate(on_host, p, 1000);
        CHECK(tool().regions.count(number(p)) == 0);
        pool.deallocate(on_host, nullptr, 1);
        pool.deallocate(on_host, q, 1);
        CHECK(pool.try_allocate(on_host, 0) == nullptr);
        CHECK(pool.trim() != 0);
        CHECK(tool().heaps.empty());
        host.pool.reset();
    }
    tool().forget();
}

TEST_CASE("nvtx: sizes count with the zone behind, and none wraps") {
    {
        host_memory host;
        checked_host& pool = *host.pool;
        CHECK(checked_host::rounded(512, 256) == checked_host::pool_type::rounded(512 + checked_host::zone_bytes, 256));
        CHECK(pool.try_allocate(on_host, SIZE_MAX) == nullptr);
        CHECK_FALSE(pool.can_hold(SIZE_MAX));
        CHECK(pool.can_hold(100));
        CHECK_THROWS_AS(static_cast<void>(pool.allocate(on_host, SIZE_MAX)), weir::out_of_memory);
        CHECK_THROWS_AS(static_cast<void>(pool.allocate(on_host, SIZE_MAX / 2)), weir::out_of_memory);
        host.pool.reset();
    }
    tool().forget();
}

TEST_CASE("nvtx: a chunk that could not go back stays known, and a note without memory leaves nothing") {
    {
        host_memory host;
        checked_host& pool = *host.pool;
        pool.deallocate(on_host, pool.allocate(on_host, 1000), 1000);
        host.ledger.refuse = 1;
        CHECK(pool.trim() == 0);
        CHECK(tool().heaps.size() == 1);
        void* const p = pool.allocate(on_host, 1000);
        CHECK(tool().regions.size() == 1);
        pool.deallocate(on_host, p, 1000);
        host.pool.reset();
    }
    tool().forget();
    tool().listens = false; // it needs memory itself
    for (long left = 0, failed = 1; failed != 0; ++left) {
        CAPTURE(left);
        nvtx::checked_memory memory;
        using chunks = nvtx::checked_chunks<weir::upstream::host>;
        nvtx::checked_blocks<weir::pool<chunks, weir::placement::best_fit<>, weir::reuse::immediate, weir::growth::exact>> pool(
            memory, chunks(memory));
        void* p = nullptr;
        {
            support::failing_new const none(left);
            failed = 0;
            try {
                p = pool.allocate(on_host, 1000);
            } catch (std::bad_alloc const&) {
                failed = 1;
            }
        }
        CHECK(pool.state().live_blocks == (p ? 1 : 0));
        pool.deallocate(on_host, p, 1000);
    }
    tool().forget();
}

TEST_CASE("nvtx: blocks that are still out when their pool ends are no regions any more; those of no known chunk never were") {
    {
        nvtx::checked_memory memory;
        support::counting_pool<> below;
        nvtx::checked_blocks<support::counting_pool<>&> pool(memory, below);
        void* const p = pool.allocate(on_host, 100);
        CHECK(tool().regions.empty());
        pool.deallocate(on_host, p, 100);
        host_memory host;
        static_cast<void>(host.pool->allocate(on_host, 100));
        host.pool->inner().trim();
        CHECK(tool().regions.size() == 1);
        host.pool.reset();
    }
    tool().forget();
}

TEST_CASE("nvtx: with no tool nothing is told, and the pool is as ever") {
    tool().listens = false;
    {
        nvtx::checked_memory memory;
        host_memory host;
        void* const p = host.pool->allocate(on_host, 100);
        CHECK_FALSE(host.memory.has_tool());
        host.pool->deallocate(on_host, p, 100);
        host.pool.reset();
        nvtx::counted<counting_pool> pool;
        void* const q = pool.allocate(on_host, 100);
        CHECK_FALSE(pool.has_tool());
        CHECK(pool.requested_bytes() == 100);
        CHECK(pool.try_allocate(on_host, 0) == nullptr);
        pool.settle();
        pool.deallocate(on_host, q, 100);
    }
    CHECK(tool().ranges.size() % 2 == 0);
    tool().samples.clear();
    tool().forget();
}

TEST_CASE("nvtx: a region goes when the last use of its block is over, on every stream, and not before") {
    support::every_schedule([] {
        {
            nvtx::checked_device_pool pool;
            scoped_stream a, b;
            void* const p = pool.allocate(a, 1000), * const q = pool.allocate(a, 1000), * const r = pool.allocate(a, 1000);
            CHECK(pool.has_tool());
            bool done[4] = {};
            CHECK(cudaLaunchHostFunc(a, &set, &done[0]) == cudaSuccess);
            CHECK(cudaLaunchHostFunc(b, &set, &done[1]) == cudaSuccess);
            int ended = 0;
            tool().on_region_ends = [&](std::uintptr_t which) {
                ++ended;
                CHECK(done[0]);
                CHECK((which == number(p) || done[1]));
            };
            pool.deallocate(a, p, 1000);
            pool.used_on(q, b);
            pool.deallocate(a, q, 1000);
            done[1] = false;
            CHECK(cudaLaunchHostFunc(b, &set, &done[1]) == cudaSuccess);
            pool.last_used_on(r, b);
            pool.deallocate(a, r, 1000);
            CHECK(ended == 3);
            tool().on_region_ends = [](std::uintptr_t) {};
        }
        tool().forget();
    });
}

TEST_CASE("nvtx: what a captured stream frees stays a region, and taken, until the pool ends") {
    support::every_schedule([] {
        {
            nvtx::checked_device_pool pool;
            scoped_stream stream;
            void* const p = pool.allocate(stream, 1000);
            support::capture capture(stream);
            pool.deallocate(stream, p, 1000);
            CHECK(capture.unbroken());
            CHECK(tool().regions.count(number(p)) == 1);
            void* const q = pool.allocate(stream, 1000);
            CHECK(q != p);
            pool.deallocate(stream, q, 1000);
        }
        tool().forget();
    });
}

TEST_CASE("nvtx: a block that a captured stream frees needs none of its streams, and is a region until its graph's work is over") {
    support::every_schedule([] {
        {
            std::optional<nvtx::checked_device_pool> pool(std::in_place);
            scoped_stream stream;
            bool done = false;
            void* const p = pool->allocate(stream, 1000);
            cudaGraph_t graph = nullptr;
            cudaGraphExec_t launched = nullptr;
            {
                scoped_stream ends_before;
                pool->used_on(p, ends_before);
                REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
                CHECK(cudaLaunchHostFunc(stream, &set, &done) == cudaSuccess);
                pool->deallocate(stream, p, 1000);
                REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
            }
            REQUIRE(cudaGraphInstantiate(&launched, graph, 0) == cudaSuccess);
            CHECK(cudaGraphLaunch(launched, stream) == cudaSuccess);
            tool().on_region_ends = [&](std::uintptr_t) { CHECK(done); };
            pool.reset();
            CHECK(tool().regions.empty());
            tool().on_region_ends = [](std::uintptr_t) {};
            CHECK(cudaGraphExecDestroy(launched) == cudaSuccess);
            CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        }
        tool().forget();
    });
}

TEST_CASE("nvtx: whichever call of a free fails, the block stays a region only where CUDA says nothing of its stream") {
    struct state {
        scoped_stream own, other;
        std::optional<nvtx::checked_device_pool> pool{std::in_place, weir::pool_options{}.on_leak(weir::leak_action::ignore)};
        void* p = pool->allocate(own, 1000);
    };
    std::size_t stayed = 0;
    for (bool const is_used_elsewhere : {false, true})
        support::fault_sweep(
            [&] {
                auto fresh = std::make_unique<state>();
                if (is_used_elsewhere)
                    fresh->pool->used_on(fresh->p, fresh->other);
                return fresh;
            },
            [](state& x) { x.pool->deallocate(x.own, x.p, 1000); },
            [&](state& x, support::struck const&) {
                CHECK(tool().regions.size() == x.pool->state().live_blocks);
                stayed += tool().regions.size();
                x.pool.reset();
                tool().forget();
            });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(stayed == 2);
#else
    CHECK(stayed == 0);
#endif
}

TEST_CASE("nvtx: what a scope ends are no regions any more, once its work is over") {
    support::every_schedule([] {
        {
            nvtx::checked_memory memory;
            using frames = nvtx::checked_blocks<
                weir::pool<nvtx::checked_chunks<weir::upstream::device>, weir::placement::arena, weir::reuse::immediate>>;
            frames pool(memory, nvtx::checked_chunks<weir::upstream::device>(memory), weir::pool_options{});
            scoped_stream stream;
            void* const kept = pool.allocate(stream, 100);
            bool done = false;
            tool().on_region_ends = [&](std::uintptr_t) { CHECK(done); };
            {
                weir::scope<frames> const frame(pool);
                static_cast<void>(pool.allocate(stream, 100));
                CHECK(tool().regions.size() == 2);
                CHECK(cudaLaunchHostFunc(stream, &set, &done) == cudaSuccess);
            }
            CHECK(tool().regions.size() == 1);
            auto const here = pool.mark();
            pool.rewind(here);
            CHECK(tool().regions.count(number(kept)) == 1);
            pool.clear();
            CHECK(tool().regions.empty());
        }
        tool().forget();
    });
}

TEST_CASE_TEMPLATE("nvtx: under random campaigns each region comes once, goes once, and lies in its heap", Pool,
                   nvtx::checked_device_pool, nvtx::checked_pinned_pool, nvtx::checked_managed_pool) {
    support::every_schedule([] {
        int allocated = 0;
        {
            Pool pool;
            scoped_stream streams[3];
            struct block {
                void* p;
                std::size_t bytes, alignment, stream;
            };
            std::vector<block> live;
            std::mt19937 random(41);
            auto const end = [&](std::size_t at) {
                pool.deallocate(streams[live[at].stream], live[at].p, live[at].bytes, live[at].alignment);
                live[at] = live.back();
                live.pop_back();
            };
            for (int step = 0; step != 300; ++step) {
                unsigned const dice = random() % 16;
                if (dice < 8 || live.empty()) {
                    std::size_t const bytes = 1 + random() % (dice == 0 ? 4 * MiB : 5000);
                    std::size_t const alignment = std::size_t{1} << random() % 13;
                    std::size_t const stream = random() % 3;
                    live.push_back({pool.allocate(streams[stream], bytes, alignment), bytes, alignment, stream});
                    ++allocated;
                    REQUIRE(tool().regions.count(number(live.back().p)) == 1);
                    CHECK(tool().regions[number(live.back().p)].bytes == bytes);
                } else if (dice < 14) {
                    end(random() % live.size());
                } else if (dice == 14) {
                    pool.used_on(live[random() % live.size()].p, streams[random() % 3]);
                } else {
                    pool.trim();
                }
                CHECK(tool().regions.size() == live.size());
            }
            while (!live.empty())
                end(live.size() - 1);
        }
        CHECK(tool().registered == allocated);
        tool().forget();
    });
}

TEST_CASE("nvtx: counters say what is requested and reserved; what may take long is a range, a refusal a mark") {
    {
        nvtx::counted<counting_pool> pool(std::size_t{1000}, std::string("textures"));
        CHECK(tool().counters == std::vector<std::string>{"textures: requested", "textures: reserved"});
        void* const p = pool.allocate(on_host, 100), * const q = pool.allocate(on_host, 50);
        CHECK(pool.try_allocate(on_host, 0) == nullptr);
        CHECK(pool.try_allocate(on_host, 5000) == nullptr);
        pool.deallocate(on_host, p, 100);
        pool.deallocate(on_host, nullptr, 100);
        pool.settle();
        CHECK(pool.trim() == 0);
        pool.deallocate(on_host, q, 50);
        CHECK(tool().samples[1] == std::vector<std::int64_t>{100, 150, 50, 0});
        CHECK(tool().samples[2] == std::vector<std::int64_t>{5000, 5000, 5000, 5000, 70, 70});
        CHECK(tool().ranges == std::vector<std::string>{"+allocate", "-", "+allocate", "-", "+allocate", "-", "+allocate",
                                                        "!refused", "-", "+settle", "-", "+trim", "-"});
    }
    tool().forget();
}

TEST_CASE("nvtx: a scope's blocks no longer count when it ends; a range of a pool that reserves") {
    support::every_schedule([] {
        {
            nvtx::counted<weir::pool<weir::upstream::device, weir::placement::arena, weir::reuse::immediate>> pool;
            pool.reserve(MiB);
            static_cast<void>(pool.allocate(on_host, 100));
            {
                weir::scope<std::remove_reference_t<decltype(pool)>> const frame(pool);
                static_cast<void>(pool.allocate(on_host, 50));
                CHECK(pool.requested_bytes() == 150);
            }
            CHECK(pool.requested_bytes() == 100);
            pool.clear();
            CHECK(pool.requested_bytes() == 0);
            CHECK(tool().samples[1] == std::vector<std::int64_t>{100, 150, 100, 0});
            CHECK(tool().ranges[0] == "+reserve");
        }
        tool().forget();
    });
}

#endif
