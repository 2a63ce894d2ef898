// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How many addresses are reserved, and when, is in tests/upstream/virtual_memory.cpp, where memory is behind them; which gap is
// taken, in tests/upstream/virtual_memory/free_addresses.cpp.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/every_schedule.hpp>
#include <support/noted.hpp>
#include <support/sanitized.hpp>
#include <support/sentence.hpp>
#include <sys/mman.h>
#include <utility>
#include <vector>
#include <weir/layer/failure_handler.hpp>
#include <weir/recipes.hpp>
#include <weir/upstream/virtual_memory/memory_map.hpp>
#include <weir/upstream/virtual_memory/reservations.hpp>

using weir::check_cuda;
using weir::GiB;
using weir::MiB;
using weir::base::range;

namespace {

constexpr std::size_t page = weir::upstream::detail::memory_map::page_bytes;

// A pool with a block of 1 MiB.
struct small_pool {
    explicit small_pool(cudaStream_t s) : stream(s), block(pool.try_allocate(s, 1 * MiB)) {}
    ~small_pool() { pool.deallocate(stream, block, 1 * MiB); }
    cudaStream_t stream;
    weir::compact_device_pool pool;
    void* block;
};

// Grows by blocks of 100 MiB to 600, as one does that shares a card, and gives the memory back.
std::size_t grown_and_back(weir::compact_device_pool& pool, cudaStream_t s) {
    std::vector<void*> blocks;
    for (int i = 0; i < 6; ++i)
        if (void* const p = pool.try_allocate(s, 100 * MiB))
            blocks.push_back(p);
    for (void* const each : blocks)
        pool.deallocate(s, each, 100 * MiB);
    return pool.trim();
}

} // namespace

TEST_CASE("reservations: what is taken goes on where the last one ended, and comes back") {
    support::every_schedule([] {
        weir::upstream::detail::memory_map map(0, {});
        weir::upstream::detail::reservations addresses(map);
        CHECK_FALSE(addresses.take(page));
        REQUIRE(addresses.more(page));
        CHECK_FALSE(addresses.ran_out());
        addresses.make_room(2);
        range const first = addresses.take(2 * page);
        REQUIRE(first);
        CHECK(addresses.behind(first.end()) >= 1024 * MiB - 2 * page);
        range const next{first.end(), page};
        CHECK(addresses.take_at(next));
        CHECK_FALSE(addresses.take_at(next));                            // it is out
        CHECK_FALSE(addresses.take_at(range{next.end() + page, page}));  // inside a gap
        CHECK_FALSE(addresses.take_at(range{next.end(), addresses.behind(next.end()) + page}));
        addresses.give(first);
        addresses.give(next);
        CHECK_FALSE(addresses.take_at(first)); // nothing of the reservation is before it
        CHECK(addresses.take(3 * page).offset == first.offset);
    });
}

TEST_CASE("reservations: many pools leave addresses to the process, and to each other") {
#ifdef WEIR_SIMULATED_CUDA
    // The simulated device has one range of addresses, and under a sanitizer few.
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(160 * GiB), support::report_all);
    std::size_t const count = support::sanitized ? 50 : 10000;
    std::size_t const grown = support::sanitized ? 10 : 200;
#else
    std::size_t const count = 300;
    std::size_t const grown = 200;
#endif
    support::scoped_stream const s;
    std::vector<std::unique_ptr<small_pool>> pools;
    for (std::size_t i = 0; i < count; ++i) {
        pools.push_back(std::make_unique<small_pool>(s));
        REQUIRE(pools.back()->block != nullptr);
    }
    std::size_t const wanted = 64 * GiB;
    void* const mapped = mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(mapped != MAP_FAILED);
    std::vector<std::unique_ptr<weir::compact_device_pool>> others;
    for (std::size_t i = 0; i < grown; ++i) {
        others.push_back(std::make_unique<weir::compact_device_pool>());
        CHECK(grown_and_back(*others.back(), s) == 600 * MiB);
    }
    if (mapped != MAP_FAILED)
        CHECK(munmap(mapped, wanted) == 0);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("reservations: a pool whose process has no more addresses says so, and not that the device is full") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_addresses(256 * MiB), support::report_all);
    support::scoped_stream const s;
    weir::compact_device_pool pool(weir::pool_options{}.name("late"));
    weir::layer::failure_handler asking([](weir::failed_allocation const&) { return false; }, pool);
    auto const refusal = [&](std::size_t bytes) {
        return support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(asking.allocate(s, bytes)); });
    };
    void* p = nullptr;
    {
        small_pool const first(s); // 1 GiB is not to be had: four times what it needs
        p = pool.allocate(s, 240 * MiB);
        CHECK_SAYS(refusal(32 * MiB), "weir: out of memory: pool 'late' cannot hand out 33554432 bytes (32 MiB): no free range is large "
                                      "enough and the process has no more addresses for another chunk of 32 MiB; end pools that are not "
                                      "needed, unmap memory elsewhere, or raise the limit that the system sets ('ulimit -v'); the failure "
                                      "handler was asked");
        CHECK_SAYS(refusal(80 * GiB), "the upstream (device memory) has no room"); // 240 MiB of it are the pool's own
        CHECK_SAYS(refusal(81 * GiB), "and of device memory there can be 85899345920 bytes (80 GiB) in all; ask for less");
    }
    pool.deallocate(s, p, 240 * MiB);
    p = pool.allocate(s, 8 * MiB);
    void* const filler = pool.allocate(s, 232 * MiB); // a chunk of the pool's own reservation
    CHECK(filler != nullptr);
    pool.deallocate(s, filler, 232 * MiB);
    pool.deallocate(s, p, 8 * MiB);
    pool.settle();
    pool.trim();
    void* device = nullptr;
    check_cuda(cudaMalloc(&device, 79 * GiB + 1000 * MiB), "cudaMalloc"); // now it is full
    CHECK_SAYS(refusal(32 * MiB), "the upstream (device memory) has no room for another chunk of 32 MiB");
    check_cuda(cudaFree(device), "cudaFree");
}

TEST_CASE("reservations: a pool goes on growing in place in its second reservation, and never from one into the other") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_addresses(8 * GiB), support::report_all);
    support::scoped_stream const s;
    weir::compact_device_pool pool;
    auto const take = [&](std::size_t bytes) { return static_cast<char*>(pool.allocate(s, bytes)); };
    char* const a = take(700 * MiB);
    char* const b = take(600 * MiB); // in 2 GiB of their own, which happen to be right behind the first
    CHECK(b == a + GiB);
    CHECK(take(500 * MiB) == b + 600 * MiB);
    CHECK(take(300 * MiB) == a + 700 * MiB); // what is left of the first is used
    CHECK(take(200 * MiB) == b + 1100 * MiB);
    CHECK(pool.reserved_bytes() == 2300 * MiB); // nothing twice
    CHECK(simulated_cuda::calls("cuMemAddressReserve") == 2 * 2);
    pool.deallocate(s, b, 600 * MiB);
    std::uint64_t const unmapped = simulated_cuda::calls("cuMemUnmap");
    char* const c = take(610 * MiB); // the hole before the second one's first block is 24 MiB; none of it helps
    CHECK((c >= b || c + 610 * MiB <= a + GiB));
    CHECK(simulated_cuda::calls("cuMemUnmap") > unmapped); // what was free is where it is needed
    CHECK(pool.reserved_bytes() < 2400 * MiB); // and little more was got
    for (auto const& [p, bytes] : {std::pair<char*, std::size_t>{a, 700 * MiB}, {b + 600 * MiB, 500 * MiB}, {a + 700 * MiB, 300 * MiB},
                                   {b + 1100 * MiB, 200 * MiB}, {c, 610 * MiB}})
        pool.deallocate(s, p, bytes);
}

TEST_CASE("reservations: every call may fail: what was reserved is kept to the end, and all else is free") {
    for (std::uint64_t k = 1;; ++k) {
        CAPTURE(k);
        simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
        weir::upstream::detail::memory_map map(0, {});
        weir::upstream::detail::reservations addresses(map);
        simulated_cuda::fail_call(k, cudaErrorUnknown);
        std::uint64_t const before = simulated_cuda::failed_calls();
        bool threw = false;
        bool done = false;
        try {
            done = addresses.more(page);
        } catch (weir::cuda_error const&) {
            threw = true;
        }
        bool const failed = simulated_cuda::failed_calls() != before;
        simulated_cuda::clear_faults();
        CHECK(done != threw);
        CHECK(static_cast<bool>(addresses.take(page)) == done);
        if (!failed)
            break;
    }
}

TEST_CASE("reservations: two that touch stay two") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_addresses(3 * 1024 * MiB), support::report_all);
    weir::upstream::detail::memory_map map(0, {});
    weir::upstream::detail::reservations addresses(map);
    REQUIRE(addresses.more(page)); // 1 GiB
    REQUIRE(addresses.more(page)); // 2 GiB, right behind
    range const all = addresses.take(1024 * MiB);
    range const other = addresses.take(page);
    REQUIRE((all && other.offset == all.end()));
    CHECK(addresses.behind(all.end()) == 0);
    addresses.make_room(2);
    addresses.give(other);
    CHECK_FALSE(addresses.take_at(other)); // it begins one
    addresses.give(all);
    CHECK(addresses.take(1025 * MiB + MiB).offset == other.offset);
    CHECK_FALSE(addresses.more(page));
    CHECK(addresses.ran_out());
    addresses.forget();
    CHECK_FALSE(addresses.ran_out());
}
#endif
