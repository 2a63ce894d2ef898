// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What each recipe promises in its name and its sentence. That it is a pool is in pool.cpp.

#include <cstdint>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/every_schedule.hpp>
#include <support/noted.hpp>
#include <support/random_replacement.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/growth/exact.hpp>
#include <weir/layer/failure_handler.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/record.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>
#include <weir/recipes/recorded_device_pool.hpp>
#include <weir/trace/recorder.hpp>

using weir::check_cuda;
using weir::KiB;
using weir::memory_space;
using weir::MiB;

// Every recipe; tests/checks/mirror.py finds one that is missing here. In debug builds all wear the guard, which CUDA's own
// pools do not. That none does in release builds is in pool.ndebug.cpp.
#define WEIR_TEST_RECIPES                                                                                              \
    weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::recorded_device_pool,              \
        weir::pinned_pool, weir::managed_pool, weir::host_pool, weir::frame_pool, weir::node_pool

template <class>
constexpr bool is_guard = false;
template <class Pool>
constexpr bool is_guard<weir::layer::guard<Pool>> = true;
template <class Pool>
constexpr bool is_guard<weir::layer::record<Pool>> = is_guard<Pool>;
template <class... Pools>
constexpr bool all_are_guarded = (is_guard<typename Pools::parts> && ...);
static_assert(all_are_guarded<WEIR_TEST_RECIPES>);
static_assert(!is_guard<weir::driver_pool>);

// Where the memory is, and whose.
static_assert(weir::device_pool::space == memory_space::device && weir::device_pool::thread_safe &&
              weir::device_pool::stream_ordered);
static_assert(weir::promised_device_pool::space == memory_space::device && weir::promised_device_pool::thread_safe &&
              weir::promised_device_pool::stream_ordered);
static_assert(weir::compact_device_pool::space == memory_space::device && weir::compact_device_pool::thread_safe &&
              weir::compact_device_pool::stream_ordered);
static_assert(weir::pinned_pool::space == memory_space::pinned && weir::pinned_pool::thread_safe &&
              weir::pinned_pool::stream_ordered);
static_assert(weir::managed_pool::space == memory_space::managed && weir::managed_pool::thread_safe &&
              weir::managed_pool::stream_ordered);
static_assert(weir::host_pool::space == memory_space::host && !weir::host_pool::thread_safe &&
              !weir::host_pool::stream_ordered);
static_assert(weir::frame_pool::space == memory_space::device && !weir::frame_pool::thread_safe);
static_assert(weir::node_pool::space == memory_space::pinned && !weir::node_pool::thread_safe);

TEST_CASE_TEMPLATE("recipes: in debug builds a wrong free is caught with a sentence", Pool, WEIR_TEST_RECIPES) {
    support::every_schedule([] {
        weir::trace::recorder tape;
        auto const tested = [](Pool& pool) {
            void* const p = pool.allocate_sync(64, 16);
            CHECK_SAYS(support::standard_error_of([&] { pool.deallocate_sync(p, 32, 16); }),
                       "was allocated with 64 bytes at alignment 16 and is freed with 32 bytes at alignment 16");
            CHECK_SAYS(support::standard_error_of([&] { pool.deallocate_sync(p, 64, 16); }),
                       "is freed already; free each block once");
            CHECK(pool.state().live_blocks == 0);
        };
        if constexpr (std::is_constructible_v<Pool, weir::trace::recorder&>) {
            Pool pool(tape);
            tested(pool);
        } else {
            Pool pool;
            tested(pool);
        }
    });
}

TEST_CASE("recipes: compact_device_pool lets a stream wait before it grows, device_pool grows") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        weir::compact_device_pool compact;
        weir::device_pool usual;
        auto const hand_over = [&](auto& pool) {
            void* const p = support::take(pool, a, 20 * MiB);
            check_cuda(cudaMemsetAsync(p, 1, 20 * MiB, a), "cudaMemsetAsync");
            support::give(pool, a, p, 20 * MiB);
            void* const q = support::take(pool, b, 20 * MiB);
            check_cuda(cudaMemsetAsync(q, 2, 20 * MiB, b), "cudaMemsetAsync");
            support::give(pool, b, q, 20 * MiB);
            return pool.reserved_bytes();
        };
        CHECK(hand_over(compact) == 20 * MiB);
        CHECK(hand_over(usual) <= 40 * MiB); // as far as the work on a has come
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    });
}

TEST_CASE("recipes: pinned_pool hands out what a stream has passed, whoever freed it") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        weir::pinned_pool pool(weir::pool_options{}.limit(1 * MiB));
        void* const p = support::take(pool, a, 900 * KiB);
        check_cuda(cudaMemsetAsync(p, 1, 900 * KiB, a), "cudaMemsetAsync");
        support::give(pool, a, p, 900 * KiB);
        check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
        void* const q = support::take(pool, b, 900 * KiB);
        CHECK(q == p);
        support::give(pool, b, q, 900 * KiB);
    });
}

TEST_CASE_TEMPLATE("recipes: with nothing handed out trim gives everything back, without a settle before", Pool,
                   weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::managed_pool,
                   weir::pinned_pool) {
    support::every_schedule([] {
        support::scoped_stream const streams[3];
        Pool pool;
        for (int i = 0; i < 100; ++i) {
            cudaStream_t const s = streams[i % 3];
            void* const p = pool.allocate(s, 1 * MiB);
            check_cuda(cudaMemsetAsync(p, i, 1 * MiB, s), "cudaMemsetAsync");
            pool.deallocate(s, p, 1 * MiB); // the last of them no event tells of
        }
        pool.deallocate(streams[0], pool.allocate(streams[0], 8 * MiB), 8 * MiB);
        CHECK(pool.reserved_bytes() != 0);
        CHECK(pool.trim(SIZE_MAX) == 0);
        std::size_t const held = pool.reserved_bytes();
        CHECK(pool.trim() == held); // work is under way on every stream
        CHECK(pool.reserved_bytes() == 0);
    });
}

TEST_CASE("recipes: frame_pool ends frame by frame") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::frame_pool pool;
        void* first = nullptr;
        for (int round = 0; round < 10; ++round) {
            weir::scope const frame(pool);
            void* const p = pool.allocate(s, 1 * MiB);
            first = round == 0 ? p : first;
            CHECK(p == first);
            CHECK(pool.allocate(s, 3 * MiB) != nullptr);
            CHECK(pool.reserved_bytes() == 16 * MiB);
        }
        CHECK(pool.state().live_blocks == 0);
    });
}

TEST_CASE("recipes: node_pool hands out nodes of 64 bytes and nothing larger") {
    support::every_schedule([] {
        weir::node_pool pool;
        std::vector<void*> nodes;
        for (int i = 0; i < 1000; ++i)
            nodes.push_back(pool.allocate_sync(64, 64));
        CHECK(pool.reserved_bytes() == 1 * MiB);
        CHECK_THROWS_AS(static_cast<void>(pool.allocate_sync(65)), weir::out_of_memory);
        for (void* each : nodes)
            pool.deallocate_sync(each, 64, 64);
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE("recipes: host_pool wastes at most an eighth on small blocks") {
    weir::host_pool pool;
    std::vector<std::pair<void*, std::size_t>> live;
    for (std::size_t bytes = 128; bytes <= 64 * KiB; bytes += 111) {
        std::size_t const before = pool.in_use_bytes();
        live.emplace_back(pool.allocate_sync(bytes), bytes);
        CHECK(pool.in_use_bytes() - before <= bytes + bytes / 8 + 16);
    }
    for (auto const& [p, bytes] : live)
        pool.deallocate_sync(p, bytes);
    CHECK(pool.in_use_bytes() == 0);
}

// Pools whose chunks cannot grow, with a policy that gets a block's own chunk, too.
template <class Upstream, class Growth = weir::growth::geometric<>>
using pool_over = weir::pool<Upstream, weir::recipes::general_placement, weir::reuse::stream_ordered<>, Growth>;

TEST_CASE_TEMPLATE("recipes: a limit that is the sum of equal blocks has room for all of them", Pool, weir::device_pool,
                   weir::compact_device_pool, weir::pinned_pool, weir::managed_pool, weir::host_pool, weir::frame_pool,
                   pool_over<weir::upstream::device>, pool_over<weir::upstream::managed, weir::growth::exact>) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    support::scoped_stream const streams[3];
    for (std::size_t const bytes : {5 * MiB / 1024, 20 * MiB / 1024, 1 * MiB, 2 * MiB, 3 * MiB, 5 * MiB / 2, 6 * MiB, 8 * MiB, 12 * MiB})
        for (std::size_t const count : {2u, 3u, 4u, 5u, 8u, 13u, 2048u, 2560u})
            for (std::size_t const used : {1u, 3u}) {
                if (bytes * count % (2 * MiB) != 0 || (bytes < 1 * MiB) != (count > 13) || // no pool holds a part of a page
                    (bytes < 1 * MiB && used != 1)) // each stream has slabs of its own
                    continue;
                CAPTURE(bytes);
                CAPTURE(count);
                CAPTURE(used);
                Pool pool(weir::pool_options{}.limit(bytes * count));
                std::vector<void*> blocks;
                while (void* const p = pool.try_allocate(streams[blocks.size() % used], bytes))
                    blocks.push_back(p);
                CHECK(blocks.size() == count);
                for (std::size_t i = 0; i < blocks.size(); ++i)
                    pool.deallocate(streams[i % used], blocks[i], bytes);
            }
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE_TEMPLATE("recipes: a new limit takes nothing back, refuses growth, and leaves what is held to serve", Pool,
                   weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::pinned_pool,
                   weir::managed_pool, weir::host_pool) {
    Pool pool;
    void* const first = pool.allocate_sync(8 * MiB);
    pool.set_limit(4 * MiB);
    CHECK(pool.limit_bytes() == 4 * MiB);
    CHECK(pool.state().limit_bytes == 4 * MiB);
    CHECK(pool.reserved_bytes() >= 8 * MiB);
    CHECK(pool.can_hold(8 * MiB)); // in what is held
    CHECK_FALSE(pool.can_hold(64 * MiB));
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate_sync(64 * MiB)); }),
               "more than the pool's limit of 4194304 bytes (4 MiB)");
    CHECK_THROWS_AS(pool.reserve(64 * MiB), weir::out_of_memory);
    pool.deallocate_sync(first, 8 * MiB);
    void* const again = pool.allocate_sync(8 * MiB);
    CHECK(again != nullptr);
    pool.deallocate_sync(again, 8 * MiB);
    CHECK(pool.trim() >= 8 * MiB);
    CHECK(pool.reserved_bytes() == 0);
    CHECK(pool.peak_reserved_bytes() >= 8 * MiB);
    pool.reset_peaks();
    CHECK(pool.peak_reserved_bytes() == 0);
    CHECK_FALSE(pool.can_hold(8 * MiB));
    CHECK_THROWS_AS(static_cast<void>(pool.allocate_sync(8 * MiB)), weir::out_of_memory);
    pool.set_limit(SIZE_MAX);
    void* const larger = pool.allocate_sync(64 * MiB);
    CHECK(larger != nullptr);
    pool.deallocate_sync(larger, 64 * MiB);
}

TEST_CASE_TEMPLATE("recipes: below what is held, a new limit costs nothing that is free", Pool, weir::device_pool,
                   weir::compact_device_pool, weir::pinned_pool, weir::managed_pool, weir::host_pool) {
    Pool pool;
    void* const kept = pool.allocate_sync(40 * MiB);
    for (std::size_t bytes = 50 * MiB; bytes <= 140 * MiB; bytes += 10 * MiB)
        pool.reserve(bytes); // chunk by chunk
    auto const free_blocks = [&] {
        std::vector<void*> blocks;
        while (void* const p = pool.try_allocate(weir::on_host, 1 * MiB))
            blocks.push_back(p);
        for (void* const p : blocks)
            pool.deallocate_sync(p, 1 * MiB);
        return blocks.size();
    };
    pool.set_limit(30 * MiB);
    std::size_t const held = pool.reserved_bytes();
    CHECK(free_blocks() >= 100);
    if (void* const p = pool.try_allocate(weir::on_host, 25 * MiB)) // as chunks move; else it is refused
        pool.deallocate_sync(p, 25 * MiB);
    CHECK(pool.reserved_bytes() == held);
    CHECK(free_blocks() >= 100);
    pool.deallocate_sync(kept, 40 * MiB);
    void* const all = pool.allocate_sync(30 * MiB); // nothing is in use: what is free may go for it
    pool.deallocate_sync(all, 30 * MiB);
}

TEST_CASE_TEMPLATE("recipes: blocks of one size get nearly all of a small limit", Pool, weir::pinned_pool, weir::host_pool,
                   weir::managed_pool, weir::device_pool) {
    for (std::size_t const limit : {2 * MiB, 4 * MiB})
        support::every_schedule([&] {
            Pool pool(weir::pool_options{}.limit(limit));
            for (int round = 0; round < 2; ++round) {
                std::vector<void*> blocks;
                while (void* const p = pool.try_allocate(weir::on_host, 40000))
                    blocks.push_back(p);
                CHECK(blocks.size() * 40000 > limit / 10 * 9);
                for (void* const each : blocks)
                    pool.deallocate(weir::on_host, each, 40000);
            }
        });
}

TEST_CASE("recipes: device_pool survives streams that come and go under the same handle") {
    for (simulated_cuda::config const& each : {simulated_cuda::config{}.late(), simulated_cuda::config{}.random(3)}) {
        simulated_cuda::world const world(each, support::report_all);
        weir::device_pool pool;
        for (int i = 0; i < 60; ++i) {
            support::scoped_stream const s;
            void* const p = support::take(pool, s, 100 * KiB);
            check_cuda(simulated_cuda::launch(s, {}, {{p, 100 * KiB}}), "launch");
            support::give(pool, s, p, 100 * KiB);
        } // destroyed while its kernel may still run
        CHECK(pool.in_use_bytes() == 0);
        pool.settle();
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
    }
}
#endif

namespace {

constexpr std::size_t one_pebibyte = std::size_t{1} << 50;

template <class Pool>
constexpr bool is_limit = false;
template <class Pool>
constexpr bool is_limit<weir::layer::limit<Pool>> = true;

// Pools of which a hopeless request is made, each with whether 2^45 bytes are too many for it as well: of managed memory and of
// the host's heap nobody knows.
template <class Pool, bool KnowsItsMemory>
struct hopeful {
    using pool = Pool;
    static constexpr std::size_t largest_alignment = KnowsItsMemory ? std::size_t{1} << 45 : std::size_t{1} << 49;
};
template <class Pool>
using asking = weir::layer::failure_handler<Pool, bool (*)(weir::failed_allocation const&)>;

int handlers_asked = 0;
bool note_and_say_yes(weir::failed_allocation const&) {
    ++handlers_asked;
    return true;
}

template <class Pool>
std::unique_ptr<Pool> made() {
    if constexpr (std::is_constructible_v<Pool, bool (*)(weir::failed_allocation const&)>)
        return std::make_unique<Pool>(&note_and_say_yes);
    else
        return std::make_unique<Pool>();
}

#ifdef WEIR_SIMULATED_CUDA
// Calls that wait, that get memory, or that give it back.
std::uint64_t heavy_calls() {
    std::uint64_t sum = 0;
    for (char const* const each :
         {"cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaStreamWaitEvent", "cudaMalloc",
          "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaHostRegister", "cudaHostUnregister", "cudaMallocManaged",
          "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemAddressReserve", "cudaMemPoolTrimTo"})
        sum += simulated_cuda::calls(each);
    return sum;
}
#endif

} // namespace

TEST_CASE_TEMPLATE(
    "recipes: what no memory makes room for is refused at once: nobody waits, nothing goes back, no handler is asked", Row,
    hopeful<weir::device_pool, true>, hopeful<weir::promised_device_pool, true>, hopeful<weir::compact_device_pool, true>,
    hopeful<weir::pinned_pool, true>, hopeful<weir::managed_pool, false>, hopeful<weir::host_pool, false>,
    hopeful<weir::frame_pool, true>, hopeful<weir::driver_pool, true>, hopeful<weir::pinned_driver_pool, true>,
    hopeful<weir::layer::limit<weir::layer::statistics<weir::device_pool>>, true>,
    hopeful<weir::layer::synchronized<weir::frame_pool>, true>,
    hopeful<weir::layer::fallback<weir::device_pool, weir::pinned_pool>, true>, hopeful<asking<weir::device_pool>, true>,
    hopeful<asking<weir::layer::fallback<weir::compact_device_pool, weir::managed_pool>>, false>,
    hopeful<asking<weir::promised_device_pool>, true>, hopeful<asking<weir::pinned_pool>, true>,
    hopeful<asking<weir::frame_pool>, true>, hopeful<asking<weir::driver_pool>, true>,
    hopeful<asking<weir::pinned_driver_pool>, true>) {
    support::every_schedule([] {
        using pool_type = typename Row::pool;
        support::scoped_stream const s, other;
        auto const owner = [] {
            if constexpr (is_limit<pool_type>)
                return std::make_unique<pool_type>(SIZE_MAX);
            else
                return made<pool_type>();
        }();
        pool_type& pool = *owner;
        bool const on_device = weir::base::device_accessible(pool_type::space);
        void* const live = pool.allocate(s, 1 * MiB);
        void* const idle = pool.allocate(s, 40 * MiB);
        void* const busy = pool.allocate(other, 20 * MiB);
        pool.deallocate(s, idle, 40 * MiB);
        if (on_device)
            check_cuda(cudaMemsetAsync(busy, 1, 20 * MiB, other), "cudaMemsetAsync");
        pool.deallocate(other, busy, 20 * MiB);
        handlers_asked = 0;
        std::size_t const held = pool.state().reserved_bytes;
        for (int turn = 0; turn < 2; ++turn)
            for (auto const& asked : {std::pair<std::size_t, std::size_t>{one_pebibyte, 256}, {1, Row::largest_alignment},
                                      {one_pebibyte - 1, 1}, {SIZE_MAX, 1}}) {
                std::size_t const bytes = asked.first, alignment = asked.second;
                CAPTURE(bytes);
                CAPTURE(alignment);
#ifdef WEIR_SIMULATED_CUDA
                std::uint64_t const before = heavy_calls();
                std::size_t const pending = simulated_cuda::pending();
#endif
                for (cudaStream_t const on : {cudaStream_t(s), cudaStream_t(other)})
                    CHECK(pool.try_allocate(on, bytes, alignment) == nullptr);
                CHECK_FALSE(pool.can_hold(bytes, alignment));
                CHECK(pool.state().reserved_bytes == held);
                CHECK(handlers_asked == 0);
#ifdef WEIR_SIMULATED_CUDA
                CHECK(heavy_calls() == before);
                if (simulated_cuda::configuration().mode == simulated_cuda::schedule::late)
                    CHECK(simulated_cuda::pending() == pending);
#endif
            }
        CHECK(pool.can_hold(1 * MiB, 256));
        CHECK(pool.can_hold(1 * MiB));
        pool.deallocate(s, live, 1 * MiB);
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    });
}

TEST_CASE("recipes: a refusal of what there can never be says how much there can be") {
    weir::device_pool pool(weir::pool_options{}.name("frames"));
    std::string const said =
        support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate_sync(one_pebibyte)); });
    CHECK_SAYS(said, "it needs a chunk of 1125899906842624 bytes (1 PiB), and of device memory there can be ");
    CHECK_SAYS(said, " in all; ask for less (in use 0 B, reserved 0 B, limit none");
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE_TEMPLATE("recipes: all that a device has can be held, and a byte more cannot", Pool, weir::device_pool,
                   weir::compact_device_pool, weir::frame_pool, weir::driver_pool) {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(64 * MiB), support::report_all);
    Pool pool;
    CHECK(pool.can_hold(64 * MiB, 256));
    CHECK_FALSE(pool.can_hold(64 * MiB + 1, 256));
    void* const all = pool.allocate_sync(64 * MiB);
    CHECK(pool.try_allocate(weir::on_host, 64 * MiB) == nullptr);
    pool.deallocate_sync(all, 64 * MiB);
    simulated_cuda::fail_call("cudaMemGetInfo", 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
    Pool unknowing; // where CUDA does not say what there is, it is asked for memory
    CHECK(unknowing.can_hold(65 * MiB, 256));
    CHECK(unknowing.try_allocate(weir::on_host, 65 * MiB) == nullptr);
    simulated_cuda::clear_faults();
}
#endif

// By hand for longer: WEIR_REPLACEMENT_TURNS=20000.
TEST_CASE_TEMPLATE("recipes: random replacement survives what best fit over one range survives, less ten points", Pool,
                   weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::managed_pool) {
    struct placed {
        void* p;
        std::size_t bytes;
        unsigned stream;
    };
    char const* const given = std::getenv("WEIR_REPLACEMENT_TURNS");
    unsigned const turns = given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : 3000;
    for (std::size_t const most : {64 * KiB, 4 * MiB})
        for (unsigned const streams : {1u, 3u}) {
            support::replacement const what{16 * MiB, 256, most, streams, turns};
            // Of the largest sizes a handful is live. Where work is late, what other streams freed cannot join them in time.
            unsigned const percent = support::oracle_percent(what, 5) - (most == 64 * KiB || streams == 1 ? 10 : 20);
            CAPTURE(most);
            CAPTURE(streams);
            CAPTURE(percent);
            support::every_schedule([&] {
                Pool pool{weir::pool_options{}.limit(what.limit_bytes)};
                std::vector<support::scoped_stream> on(streams);
                auto const take = [&](unsigned stream, std::size_t bytes, placed& block) {
                    block = {pool.try_allocate(static_cast<cudaStream_t>(on[stream]), bytes), bytes, stream};
                    if (!block.p)
                        CHECK(pool.state().largest_free_bytes < bytes);
                    return block.p != nullptr;
                };
                auto const give = [&](placed const& block) {
                    pool.deallocate(static_cast<cudaStream_t>(on[block.stream]), block.p, block.bytes);
                };
                CHECK(support::refused_bytes<placed>(what, percent, take, give) == 0);
                CHECK(support::refused_bytes<placed>(what, 100, take, give) != 0); // and 'take' has looked
                pool.settle();
            });
        }
}

TEST_CASE_TEMPLATE("recipes: a limit below a slab's bytes is enough for a small block", Pool, weir::host_pool, weir::pinned_pool) {
    Pool pool(weir::pool_options{}.limit(512 * KiB));
    void* const p = pool.allocate(weir::on_host, 60 * KiB); // a slab for it is 1 MiB
    void* const q = pool.allocate(weir::on_host, 400 * KiB);
    CHECK(pool.try_allocate(weir::on_host, 60 * KiB) == nullptr);
    pool.deallocate(weir::on_host, p, 60 * KiB);
    void* const again = pool.allocate(weir::on_host, 60 * KiB);
    pool.deallocate(weir::on_host, again, 60 * KiB);
    pool.deallocate(weir::on_host, q, 400 * KiB);
    pool.settle();
    pool.trim();
    CHECK(pool.reserved_bytes() == 0);
}
