// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does 'replay --advice' find what saves memory, and does a run that follows it save that?
//
// WEIR_ADVICE_TRACES=FOLDER follows what it says of each trace there, too, and prints a table.

#include "../../examples/replay/advice.hpp"
#include "../../examples/replay/contender.hpp"
#include "../../examples/replay/own_parts.hpp"
#include "../../examples/replay/program.hpp"
#include "../../examples/replay/recorded_trace.hpp"
#include "../../examples/replay/trace.hpp"
#include "followed_run.hpp"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace {

using replay::advice_kind;
using weir::trace::event_kind;

constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB;

/// A recording that is written by hand.
class script {
public:
    script& at(std::uint64_t us) { return us_ = us, *this; }
    script& on(std::uint64_t stream) { return stream_ = stream, *this; }
    script& by(std::uint32_t thread) { return thread_ = thread, *this; }
    script& begin(std::string const& part) { return add(event_kind::begin_scope, 0, 0, maker_.frame(0, "", part, 0)); }
    script& end(std::string const& part) { return add(event_kind::end_scope, 0, 0, maker_.frame(0, "", part, 0)); }
    script& allocate(std::uint64_t block, std::uint64_t bytes, std::string const& function = "f") {
        return add(event_kind::allocate, block, bytes, function.empty() ? 0 : maker_.frame(0, "a.cpp", function, 1));
    }
    script& free(std::uint64_t block) { return add(event_kind::free, block, 0, 0); }
    replay::trace read() {
        auto const whole = std::make_shared<replay::program>(maker_.made());
        replay::trace out = replay::trace_of(*whole, "script");
        out.of = whole;
        out.name = "script";
        return out;
    }

private:
    script& add(event_kind kind, std::uint64_t block, std::uint64_t bytes, std::uint32_t site) {
        weir::trace::event one;
        one.kind = kind;
        one.ticks = us_ * 1000;
        one.address = (block + 1) << 40;
        one.bytes = bytes;
        one.stream = maker_.stream(stream_);
        one.thread = maker_.thread(thread_);
        one.source = maker_.source("pool", 0);
        one.site = site;
        maker_.add(one);
        return *this;
    }

    replay::program_maker maker_;
    std::uint64_t us_ = 0, stream_ = 16;
    std::uint32_t thread_ = 1;
};

#ifdef WEIR_SIMULATED_CUDA
/// Blocks of one size in each step, which end as they began, and before the step does; a few that stay.
replay::trace steps(std::size_t blocks, std::uint64_t bytes, std::uint64_t idle_us = 0) {
    script s;
    for (std::uint64_t i = 0; i < 4; ++i)
        s.allocate(100'000 + i, 2 * MiB, "weights");
    std::uint64_t us = 0;
    for (int step = 0; step < 4; ++step, us += idle_us) {
        s.at(us).begin("step");
        for (std::uint64_t i = 0; i < blocks; ++i)
            s.at(++us).allocate(i, bytes, i % 3 == 0 ? "forward" : "backward");
        for (std::uint64_t i = 0; i < blocks; ++i)
            s.at(++us).free(i);
        s.at(++us).end("step");
    }
    return s.at(us + 1).allocate(200'000, 1000, "last").read();
}

replay::advices advise(replay::trace const& of, std::size_t limit_bytes = replay::no_limit) {
    return replay::advise(replay::contenders()[0], of, limit_bytes, [](std::string const&, double) {});
}

replay::advice const* first_of(replay::advices const& found, advice_kind kind) {
    for (replay::advice const& each : found.worth_it)
        if (each.kind == kind)
            return &each;
    return nullptr;
}

bool any_has(std::vector<std::string> const& texts, std::string const& part) {
    return std::any_of(texts.begin(), texts.end(), [&](std::string const& each) { return each.find(part) != std::string::npos; });
}

struct check_of_run {
    double said, was; // bytes saved
    std::uint64_t refused;
};
/// What an advice says that it saves, and what a run that follows it does; none: it cannot be followed here.
std::optional<check_of_run> followed(replay::trace const& of, replay::advice const& what, simulated_cuda::config const& when = {}) {
    auto const on_a_device = [&](auto const& run) {
        simulated_cuda::world const device(when);
        return run();
    };
    advice_tests::held const before = on_a_device([&] { return advice_tests::run_with<advice_tests::device_pool>(of); });
    std::optional<advice_tests::held> const after = on_a_device([&] { return advice_tests::follow(of, what); });
    if (!after)
        return {};
    return check_of_run{static_cast<double>(what.saved_bytes),
                        what.is_of_mean ? before.mean_bytes - after->mean_bytes
                                        : static_cast<double>(before.peak_bytes) - static_cast<double>(after->peak_bytes),
                        after->refused};
}
#endif

} // namespace

TEST_CASE("advice: what a price is") {
    struct {
        replay::replayed then;
        char const* price;
    } const cases[] = {
        {{0, 0, 10, 2, 0}, "no more calls or waits"},
        {{9, 9, 11, 2, 0}, "1 more driver call"},
        {{0, 0, 12, 3, 2000}, "2 more driver calls, 1 more call that waits and 2,000 more waits of a stream for another"},
        {{0, 0, 9, 0, 0}, "no more calls or waits, and 1 fewer driver call and 2 fewer calls that wait"},
        {{0, 0, 9, 4, 0}, "2 more calls that wait, and 1 fewer driver call"},
    };
    for (auto const& each : cases)
        CHECK(replay::price_of(each.then, {0, 0, 10, 2, 0}) == each.price);
}

TEST_CASE("advice: it is told with saving and price, and what was not tried with a reason") {
    replay::advices found;
    found.pool = "device_pool";
    found.now = {100 * MiB, 50 * MiB, 10, 0, 0};
    found.replays = 1;
    found.tried = {"weir::a", "weir::b"};
    found.untried = {"It <b> was not tried"};
    std::string const nothing = replay::as_text(found);
    CHECK(nothing.find("device_pool, which holds 100.0 MiB at the peak and 50.0 MiB on average; each was tried, in 1 replay\n") != std::string::npos);
    CHECK(nothing.find("Nothing that was tried saves 2 % and 1 MiB: weir::a and weir::b.\n") != std::string::npos);
    CHECK(nothing.find("It <b> was not tried.\n") != std::string::npos);
    replay::trace of;
    of.name = "x<y";
    CHECK(replay::as_card(found, of).find("<table>") == std::string::npos);

    found.worth_it = {{advice_kind::frames, "frames for a<b>", {90 * MiB, 50 * MiB, 12, 0, 0}, 10 * MiB, false},
                      {advice_kind::part_end, "trim", {100 * MiB, 45 * MiB, 12, 0, 0}, 5 * MiB, true}};
    std::string const text = replay::as_text(found), card = replay::as_card(found, of);
    CHECK(text.find("    saves 10.0 MiB at the peak (10.0 %), for 2 more driver calls: frames for a<b>\n") != std::string::npos);
    CHECK(text.find("    saves 5.00 MiB on average (10.0 %), for 2 more driver calls: trim\n") != std::string::npos);
    CHECK(text.find("Nothing") == std::string::npos);
    CHECK(card.find("x&lt;y") != std::string::npos);
    CHECK(card.find("frames for a&lt;b&gt;</th><td data-name=\"saves\">10.0 MiB") != std::string::npos);
    CHECK(card.find("It &lt;b&gt; was not tried.") != std::string::npos);
    CHECK(card.find("<b>") == std::string::npos);
}

TEST_CASE("own_parts: call sites whose blocks could be a frame_pool's") {
    struct {
        char const* what;
        replay::trace of;
        std::vector<std::string> expected; // part: sites
    } const cases[] = {
        {"all end in the part", script().begin("p").allocate(1, 5).allocate(2, 5).free(1).free(2).end("p").allocate(3, 5, "g").read(),
         {"p: a.cpp:1, f", ": a.cpp:1, g"}},
        {"one outlives the part", script().begin("p").allocate(1, 5).allocate(2, 5).free(1).end("p").free(2).read(), {}},
        {"one begins before it", script().allocate(1, 5).begin("p").allocate(2, 5).free(1).free(2).end("p").read(), {}},
        {"one is of another stream", script().begin("p").allocate(1, 5).on(17).allocate(2, 5).free(1).free(2).end("p").read(), {}},
        {"one is freed by another thread", script().begin("p").allocate(1, 5).allocate(2, 5).by(2).free(1).by(1).free(2).end("p").read(), {}},
        {"the part is another thread's", script().begin("p").by(2).allocate(1, 5).allocate(2, 5).free(1).free(2).by(1).end("p").read(), {}},
        {"a stack", script().allocate(1, 5).allocate(2, 9, "g").free(2).free(1).read(), {": a.cpp:1, g, a.cpp:1, f"}},
        {"a stack that never ends", script().allocate(1, 5).allocate(2, 5).free(2).read(), {": a.cpp:1, f"}},
        {"no stack together", script().allocate(1, 5).allocate(2, 9, "g").free(1).free(2).read(), {": a.cpp:1, g"}},
        {"no stack", script().allocate(1, 5).allocate(2, 5).free(1).free(2).read(), {}},
        {"no call sites", script().allocate(1, 5, "").free(1).read(), {}},
    };
    for (auto const& each : cases) {
        CAPTURE(each.what);
        std::vector<std::string> seen;
        for (replay::frame_sites const& one : replay::frames_in(each.of, 9)) {
            std::string sites;
            for (std::string const& site : one.sites)
                sites += (sites.empty() ? "" : ", ") + site;
            seen.push_back(one.part + ": " + sites);
            CHECK(std::count(one.blocks.begin(), one.blocks.end(), true) >= 1);
            CHECK(one.borders.empty() == one.part.empty());
        }
        std::sort(seen.begin(), seen.end());
        std::vector<std::string> expected = each.expected;
        std::sort(expected.begin(), expected.end());
        CHECK(seen == expected);
    }
}

TEST_CASE("own_parts: sizes that make up much of the peak, and blocks that are nearly as large") {
    script s;
    std::uint64_t block = 0;
    for (int i = 0; i < 30; ++i)
        for (std::uint64_t const bytes : {33 * KiB, 33 * KiB - 700, 8 * KiB, 3 * MiB})
            s.allocate(++block, bytes);
    std::vector<replay::one_size> const found = replay::sizes_in(s.read(), 3);
    REQUIRE(found.size() == 0); // what is larger than a MiB is most of the peak
    script t;
    for (int i = 0; i < 30; ++i)
        for (std::uint64_t const bytes : {33 * KiB, 33 * KiB - 700, 8 * KiB, std::uint64_t{100}})
            t.allocate(++block, bytes);
    std::vector<replay::one_size> const small = replay::sizes_in(t.read(), 3);
    REQUIRE(small.size() == 2);
    CHECK(small[0].slab_bytes == 33 * KiB);
    CHECK(small[0].peak_bytes == 30 * (66 * KiB - 700));
    CHECK(std::count(small[0].blocks.begin(), small[0].blocks.end(), true) == 60);
    CHECK(small[1].slab_bytes == 8 * KiB);
}

TEST_CASE("own_parts: the parts at whose ends most is free come first") {
    replay::trace const of = script().begin("all").begin("a").allocate(1, 4 * MiB).end("a").begin("b").free(1).end("b")
                                 .begin("none").end("none").end("all").allocate(2, 1).read();
    std::vector<replay::part_ends> const found = replay::ends_in(of, {4 * MiB, 4 * MiB, 4 * MiB}, 2);
    REQUIRE(found.size() == 2); // 'none' has no event
    CHECK(found[0].part == "all");
    CHECK(found[1].part == "b");
    REQUIRE(found[1].borders.size() == 2);
    CHECK(found[1].borders[0].event == 1);
    CHECK(found[1].borders[1].event == 2);
    CHECK(found[1].borders[1].is_end);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("advice: a run that follows it saves what it says, within 5 %") {
    struct {
        char const* what;
        replay::trace of;
        advice_kind kind;
        double least_share; // of what is held, that is saved
    } const cases[] = {
        {"small blocks that fill their classes badly", steps(4000, 33 * KiB), advice_kind::slab, 0.02},
        {"the same in a frame", steps(3900, 33 * KiB), advice_kind::frames, 0.05},
        {"a program that rests between its steps", steps(40, 3 * MiB, 5000), advice_kind::part_end, 0.1},
        {"a program of one chunk and a little", steps(11, 3 * MiB), advice_kind::limit, 0.1},
    };
    for (auto const& each : cases) {
        CAPTURE(each.what);
        simulated_cuda::world const device;
        replay::advices const found = advise(each.of);
        CAPTURE(replay::as_text(found));
        replay::advice const* const wanted = first_of(found, each.kind);
        CHECK(wanted != nullptr);
        if (!wanted)
            continue;
        CHECK(static_cast<double>(wanted->saved_bytes) >= each.least_share * static_cast<double>(found.before(*wanted)));
        CHECK(found.replays <= replay::most_replays);
        CHECK(std::is_sorted(found.worth_it.begin(), found.worth_it.end(),
                             [](replay::advice const& a, replay::advice const& b) { return a.saved_bytes > b.saved_bytes; }));
        std::size_t runs = 0;
        for (replay::advice const& one : found.worth_it) {
            CAPTURE(one.what);
            CHECK(one.saved_bytes >= MiB);
            if (auto const run = followed(each.of, one)) {
                CHECK(run->was == doctest::Approx(run->said).epsilon(0.05));
                CHECK(run->refused == 0);
                ++runs;
            }
        }
        CHECK(runs != 0);
    }
}

TEST_CASE("advice: nothing is told where nothing saves, and what could not be tried has a sentence") {
    simulated_cuda::world const device;
    std::string rows = "op,id,bytes,stream,t_us\n";
    for (int i = 0; i < 8; ++i)
        rows += "a," + std::to_string(i) + ",4194304,0," + std::to_string(i) + "\n";
    replay::trace const of = replay::parse_trace(rows, "a.csv");
    double last = 0;
    replay::advices const found = replay::advise(replay::contenders()[0], of, 32 * MiB, [&](std::string const&, double part) {
        CHECK(part >= last);
        last = part;
    });
    CHECK(last == 1);
    CHECK(found.worth_it.empty());
    CHECK(replay::as_text(found).find("Nothing that was tried saves") != std::string::npos);
    for (char const* const each : {"weir::compact_device_pool", "weir::promised_device_pool", "limits"})
        CHECK(any_has(found.tried, each));
    for (char const* const each : {"frame_pool was not tried: no call site is known; record", "'settle' and 'trim' were not tried: no part",
                                   "A slab was not tried", "wait_first was not tried: the program has one stream"})
        CHECK(any_has(found.untried, each));

    replay::advices const refused = advise(of, 16 * MiB);
    CHECK(refused.replays == 1);
    CHECK(refused.worth_it.empty());
    CHECK(any_has(refused.untried, "Nothing was tried: device_pool refuses 4 allocations"));
}

TEST_CASE("advice: streams that hoard, where they are busy, and the waits that it costs to stop that") {
    script s;
    for (std::uint64_t block = 0; block < 8; ++block)
        s.on(16 + block % 2).allocate(block, 32 * MiB).free(block);
    replay::trace const of = s.read();
    simulated_cuda::world const device(simulated_cuda::config{}.late());
    replay::advices const found = advise(of);
    CAPTURE(replay::as_text(found));
    CHECK(found.now.stream_waits == 0);
    replay::advice const* const told = first_of(found, advice_kind::wait_first);
    REQUIRE(told != nullptr);
    CHECK(told->saved_bytes >= 30 * MiB);
    CHECK(told->then.stream_waits != 0);
}

TEST_CASE("advice: what it says of the traces in a folder") {
    char const* const folder = std::getenv("WEIR_ADVICE_TRACES");
    if (folder == nullptr)
        return;
    std::vector<std::filesystem::path> paths;
    for (auto const& each : std::filesystem::directory_iterator(folder))
        if (each.path().filename() != "LICENSE")
            paths.push_back(each.path());
    std::sort(paths.begin(), paths.end());
    for (std::filesystem::path const& path : paths) {
        replay::trace const of = replay::read_trace(path.string());
        replay::advices const found = [&] {
            simulated_cuda::world const device;
            return advise(of);
        }();
        std::printf("%s:\n%s", of.name.c_str(), replay::as_text(found).c_str());
        for (replay::advice const& each : found.worth_it) {
            CAPTURE(each.what);
            auto const run = followed(of, each);
            if (!run) {
                std::printf("  not followed: %s\n", each.what.c_str());
                continue;
            }
            auto const busy = followed(of, each, simulated_cuda::config{}.late());
            std::printf("  %s: said %.1f MiB, a run that follows %.1f MiB, one with busy streams %.1f MiB (%llu refused)\n", each.what.c_str(),
                        run->said / MiB, run->was / MiB, busy->was / MiB, static_cast<unsigned long long>(busy->refused));
            CHECK(run->was == doctest::Approx(run->said).epsilon(0.05));
            CHECK(run->refused == 0);
        }
    }
}
#endif
