// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Thousands of random programs on the simulated device, in the manner of FoundationDB and TigerBeetle.
//
// WEIR_SIMULATION_SEEDS    how many programs (2,400; fewer under sanitizers and where WEIR_QUICK is set)
// WEIR_SIMULATION_FIRST    the first seed (1)
// WEIR_SIMULATION_POOL     drive this pool only (simulation/pools.hpp names them)
// More than 10,000 programs print a line of progress now and then.

#include "program.hpp"

#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <string>

namespace {

std::size_t number_from(char const* variable, std::size_t otherwise) {
    char const* const text = std::getenv(variable);
    return text && *text ? static_cast<std::size_t>(std::strtoull(text, nullptr, 10)) : otherwise;
}

#if defined(__SANITIZE_THREAD__)
#define WEIR_FREE_THREADS
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEIR_FREE_THREADS
#endif
#endif
#if defined(WEIR_FREE_THREADS) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t seeds_here = 200;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr std::size_t seeds_here = 200;
#else
constexpr std::size_t seeds_here = 2400;
#endif
#else
constexpr std::size_t seeds_here = 2400;
#endif

simulation::contestant const& contestant_of(std::uint64_t seed) {
    auto const& all = simulation::contestants();
    if (char const* const name = std::getenv("WEIR_SIMULATION_POOL"))
        for (simulation::contestant const& each : all)
            if (std::string(name) == each.name)
                return each;
    return all[seed % all.size()];
}

} // namespace

TEST_CASE("simulation: random programs over every stream-ordered pool") {
    std::size_t const first = number_from("WEIR_SIMULATION_FIRST", 1);
    std::size_t const seeds = number_from("WEIR_SIMULATION_SEEDS", std::getenv("WEIR_QUICK") ? 100 : seeds_here);
    std::size_t allocations = 0;
    std::size_t reuses = 0;
    std::size_t refusals = 0;
    std::size_t faults = 0;
    std::size_t moves = 0;
    std::size_t launches = 0;
    std::size_t pauses = 0;
    std::size_t failed = 0;
    for (std::size_t seed = first; seed < first + seeds && failed < 3; ++seed) {
        simulation::options what;
        what.seed = seed;
        what.pool = &contestant_of(seed);
        CAPTURE(seed); // where the program dies, this is printed
        CAPTURE(std::string(what.pool->name));
        simulation::outcome const seen = simulation::run(what);
        allocations += seen.allocations;
        reuses += seen.reuses;
        refusals += seen.refusals;
        faults += seen.faults;
        moves += seen.moves;
        launches += seen.launches;
        pauses += seen.pauses;
        if (!seen.complaints.empty()) {
            ++failed;
            FAIL_CHECK(simulation::account(what, seen));
        } else {
            CHECK(seen.complaints.empty());
        }
        if (seeds > 10000 && (seed - first) % 1000 == 999)
            std::fprintf(stderr, "simulation: %zu of %zu seeds, %zu allocations, %zu refused, %zu calls broken\n",
                         seed - first + 1, seeds, allocations, refusals, faults);
    }
    if (seeds >= 100) { // the programs do what they are for
        CHECK(allocations > seeds * 100);
        CHECK(reuses > allocations / 4);
        CHECK(refusals > 0);
        CHECK(faults > 0);
#ifdef WEIR_FREE_THREADS // where threads run as they like, how often memory moves is chance: 19 to 43 times in 200 programs
        CHECK(moves > 0);
#else
        CHECK(moves > seeds / 10);
#endif
        CHECK(launches > seeds);
        CHECK(pauses > seeds / 4);
    }
}

#ifndef WEIR_FREE_THREADS // under the thread sanitizer threads run as they like
TEST_CASE("simulation: a seed says everything") {
    for (simulation::contestant const& each : simulation::contestants())
        for (std::uint64_t seed : {3u, 4u}) {
            simulation::options what;
            what.seed = seed;
            what.pool = &each;
            what.keeps_log = true;
            what.operations = 200;
            CAPTURE(std::string(each.name));
            CAPTURE(seed);
            std::string const once = simulation::run(what).log;
            std::string const twice = simulation::run(what).log;
            CHECK(once.size() > 10000);
            CHECK((once == twice));
            what.seed += 100;
            CHECK((simulation::run(what).log != once));
        }
}
#endif

#endif
