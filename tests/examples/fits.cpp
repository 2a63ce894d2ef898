// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does 'replay --fits' find the least limit that serves a trace?

#include "../../examples/replay/fits.hpp"
#include "../../examples/replay/trace.hpp"
#include "followed_run.hpp"
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <string>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

TEST_CASE("fits: yes, no, and within the margin") {
    constexpr std::uint64_t MiB = 1024 * 1024;
    CHECK(replay::fit_text(1000 * MiB, 1020 * MiB) == "yes: it needs 0.98 GiB of 1.00 GiB");
    CHECK(replay::fit_text(1000 * MiB, 1019 * MiB).find("within the margin of 2 %: it needs ") == 0);
    CHECK(replay::fit_text(1000 * MiB, 980 * MiB).find("within the margin") == 0);
    CHECK(replay::fit_text(1000 * MiB, 979 * MiB) == "no: it needs 0.98 GiB of 979.0 MiB, 21.0 MiB too little");
    CHECK(replay::fit_text(0, MiB).find("no: ") == 0);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("fits: the least limit serves, and a page less does not") {
    std::string rows = "op,id,bytes,stream,t_us\n";
    for (int i = 0; i < 200; ++i)
        rows += "a," + std::to_string(i) + "," + std::to_string(100'000 + i * 7001) + "," + std::to_string(i % 3) + "," + std::to_string(i) +
                "\n" + (i >= 40 ? "f," + std::to_string(i - 40) + "," + std::to_string(100'000 + (i - 40) * 7001) + "," +
                                      std::to_string((i - 40) % 3) + "," + std::to_string(i) + "\n"
                                : "");
    replay::trace const t = replay::parse_trace(rows, "a.csv");
    for (std::size_t const which : {0u, 1u}) { // device_pool, compact_device_pool
        replay::contender const& pool = replay::contenders()[which];
        CAPTURE(pool.name);
        simulated_cuda::world const device;
        double last = 0;
        std::uint64_t const least = replay::least_limit(pool, t, [&](double part) {
            CHECK(part >= last);
            last = part;
        });
        CHECK(last == 1);
        CHECK(least >= t.peak_requested_bytes);
        replay::run_options options;
        options.timed = false;
        options.limit_bytes = least;
        CHECK(replay::run(pool, t, options, [](double) {}).failures == 0);
        options.limit_bytes = least - replay::ledger::page_bytes;
        CHECK(replay::run(pool, t, options, [](double) {}).failures != 0);
    }
}

namespace {

/// Checks that what is said serves a run, and 3 % less do not.
void check_within(replay::trace const& of) {
    CAPTURE(of.name);
    for (std::size_t const which : {0u, 1u}) {
        replay::contender const& pool = replay::contenders()[which];
        CAPTURE(pool.name);
        std::uint64_t const least = [&] {
            simulated_cuda::world const device;
            return replay::least_limit(pool, of, [](double) {});
        }();
        CAPTURE(least);
        auto const refused = [&](std::uint64_t limit_bytes) {
            simulated_cuda::world const device;
            auto const options = weir::pool_options{}.limit(static_cast<std::size_t>(limit_bytes));
            return (which == 0 ? advice_tests::run_with<advice_tests::device_pool>(of, options)
                               : advice_tests::run_with<advice_tests::compact_device_pool>(of, options)).refused;
        };
        CHECK(refused(least) == 0);
        CHECK(refused(least - least / 100 * 3) != 0);
    }
}

} // namespace

TEST_CASE("fits: a run needs what it says, within 2 %") {
    check_within(replay::read_trace(WEIR_EXAMPLES_DIR "/data/prefetch_streams.csv.gz"));
    char const* const folder = std::getenv("WEIR_ADVICE_TRACES"); // others, by hand
    if (folder == nullptr)
        return;
    for (auto const& each : std::filesystem::directory_iterator(folder))
        if (each.path().filename() != "LICENSE")
            check_within(replay::read_trace(each.path().string()));
}
#endif
