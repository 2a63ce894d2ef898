// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Do vectors that never move keep what is in them, and leave as much memory free as before, however often they grow and shrink?
//
// Threads with a stream and a vector each share a pool of pages that has too few for all. They append, fill what they got and
// look at it, shrink at once behind the last look, and now and then end their vector and begin another. Kernels find every word
// that is not what was written (watch.hpp).
//
// WEIR_SOAK_ROUNDS  rounds of all threads together (16,000 on a GPU, 1,600 on the simulated device; a million by hand)
// WEIR_SOAK_SEED    (1)

#include "watch.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <support/every_schedule.hpp>
#include <thread>
#include <vector>
#include <weir/stable.hpp>

namespace {

using weir::KiB;
using weir::MiB;
using words = weir::stable_vector<std::uint32_t>;

constexpr std::size_t threads = 16;
constexpr std::size_t warm_up = 1000;
constexpr std::size_t page_bytes = 2 * MiB;
constexpr std::size_t page_words = page_bytes / 4;
constexpr std::size_t most_pages = 6; // of a vector
#ifdef WEIR_SIMULATED_CUDA
constexpr std::size_t rounds_here = 1600;
constexpr std::size_t watched_words = 256; // its kernels are loops of the host
#else
constexpr std::size_t rounds_here = 16'000;
constexpr std::size_t watched_words = 64 * KiB;
#endif

std::size_t setting(char const* variable, std::size_t otherwise) {
    char const* const text = std::getenv(variable);
    return text && *text ? static_cast<std::size_t>(std::strtoull(text, nullptr, 10)) : otherwise;
}

// One thread's rounds. Returns how many of them found no room.
std::size_t work(weir::stable::page_pool const& pool, cudaStream_t stream, soak::watch& seen, std::uint64_t seed, std::size_t rounds) {
    std::mt19937_64 random(seed);
    auto xs = std::make_unique<words>(pool, stream, most_pages * page_words);
    std::size_t refused = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
        if (xs->size() == xs->max_elements())
            xs->shrink(xs->size());
        std::size_t const left = xs->max_elements() - xs->size();
        std::size_t const count = std::min(left, 1 + random() % (2 * page_words));
        try {
            std::uint32_t* const added = xs->append(count);
            std::uint32_t* const watched = added + count - std::min(count, watched_words); // the last page's last words
            std::size_t const bytes = std::min(count, watched_words) * 4;
            auto const tag = static_cast<std::uint32_t>(random());
            seen.fill(stream, watched, bytes, tag, 1000);
            seen.check(stream, watched, bytes, tag, 1000);
        } catch (weir::out_of_memory const&) { // the others have all pages
            ++refused;
        }
        if (random() % 32 == 0) {
            xs.reset();
            xs = std::make_unique<words>(pool, stream, (1 + random() % most_pages) * page_words);
        } else {
            xs->shrink(random() % (xs->size() + 1));
        }
    }
    return refused;
}

std::size_t free_bytes() {
    std::size_t now = 0, all = 0;
    weir::check_cuda(cudaMemGetInfo(&now, &all), "cudaMemGetInfo");
    return now;
}

} // namespace

TEST_CASE("soak: vectors of many threads grow and shrink, and as much memory is free afterwards" *
          doctest::test_suite("fills the card")) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.random(setting("WEIR_SOAK_SEED", 1)), support::report_all);
#endif
    std::size_t const rounds = setting("WEIR_SOAK_ROUNDS", rounds_here);
    soak::watch seen;
    std::array<support::scoped_stream, threads> const streams;
    weir::stable::page_pool pool(weir::stable::page_pool_options{}.page_bytes(page_bytes).limit(threads * 3 / 2 * page_bytes));
    std::size_t refused = 0;
    // Returns what is free when nothing is in use.
    auto const run = [&](std::size_t in_all, std::uint64_t seed) {
        std::array<std::size_t, threads> each{};
        std::vector<std::thread> crew;
        for (std::size_t who = 0; who < threads; ++who)
            crew.emplace_back([&, who] { each[who] = work(pool, streams[who], seen, seed * threads + who, in_all / threads); });
        for (std::thread& one : crew)
            one.join();
        for (std::size_t const count : each)
            refused += count;
        CHECK(pool.in_use_bytes() == 0);
        pool.settle();
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
        return free_bytes();
    };
    std::size_t const before = run(warm_up, setting("WEIR_SOAK_SEED", 1));
    CHECK(run(rounds, setting("WEIR_SOAK_SEED", 1) + 1) == before);
    CHECK(refused < (warm_up + rounds) / 2);
    CHECK(seen.wrong_words() == 0);
    if (std::getenv("WEIR_SOAK_ROUNDS"))
        std::printf("%zu rounds, %zu without room; %zu bytes free before and after\n", rounds, refused, before);
}
