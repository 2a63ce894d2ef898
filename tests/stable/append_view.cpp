// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The view under threads of the host; append_end.cpp has it in kernels' stand-ins.

#include <algorithm>
#include <csignal>
#include <stable/scene.hpp>
#include <support/standard_error.hpp>
#include <sys/wait.h>
#include <unistd.h>

using weir::stable::append_view;

static_assert(std::is_trivially_copyable_v<append_view<int>>);

TEST_CASE("append_view: threads get places of their own, side by side, and what found none is counted") {
    constexpr int threads = 4, each = 1000;
    for (std::size_t const room : {std::size_t{threads * each}, std::size_t{1500}, std::size_t{0}}) {
        std::vector<int> row(room, -1);
        unsigned long long end = 0;
        append_view<int> const view(row.data(), row.size(), &end);
        std::vector<std::thread> running;
        std::vector<std::size_t> kept(threads);
        for (int who = 0; who < threads; ++who)
            running.emplace_back([&, who] {
                for (int i = 0; i < each; ++i)
                    kept[static_cast<std::size_t>(who)] += view.push(who * each + i);
            });
        for (std::thread& one : running)
            one.join();
        CHECK(end == threads * each);
        CHECK(std::accumulate(kept.begin(), kept.end(), std::size_t{0}) == room);
        std::sort(row.begin(), row.end());
        CHECK(std::unique(row.begin(), row.end()) == row.end());
        CHECK((row.empty() || row.front() >= 0));
    }
}

TEST_CASE("append_view: the end stays where no more is counted, and never comes round to places that were given out") {
    constexpr unsigned long long full = 1ull << 63, at_once = 1ull << 32;
    struct {
        unsigned long long before;
        unsigned long long counts[3];
        unsigned long long after;
    } const rows[] = {
        {3, {SIZE_MAX, 1, SIZE_MAX}, full},           // three times would be at 2
        {3, {full, full, 4}, full},                   // twice would be at 3
        {full - 1, {at_once, 1, at_once}, full - 1 + at_once},
        {full, {at_once, at_once + 1, 0}, full},
        {3, {at_once, at_once + 1, 5}, 8 + 2 * at_once + 1}, // exact below that
    };
    for (auto const& each : rows) {
        CAPTURE(each.before);
        int row[10] = {};
        unsigned long long end = each.before;
        append_view<int> const view(row, 10, &end);
        for (unsigned long long const count : each.counts)
            CHECK(view.take(count) == nullptr);
        CHECK(end == each.after);
        CHECK(view.take() == nullptr);
    }
}

TEST_CASE("append_view: several places at once are all there or none, and no sum goes round") {
    int row[10] = {};
    unsigned long long end = 3;
    append_view<int> const view(row, 10, &end);
    CHECK(view.data() == row);
    CHECK(view.capacity() == 10);
    CHECK(view.take() == row + 3);
    CHECK(view.take(4) == row + 4);
    CHECK(view.take(3) == nullptr);
    CHECK(end == 11);
    CHECK(view.take(0) == nullptr);
    CHECK(view.take() == nullptr);
    CHECK(end == 12);
}

#ifdef WEIR_SIMULATED_CUDA // a CUDA context does not survive a fork
TEST_CASE("append_view: where the vector is gone there is no room, and debug builds end the program with a sentence") {
    for (std::size_t const count : {1u, 3u}) {
        unsigned long long end = append_view<int>::gone;
        int row[10] = {};
        append_view<int> const view(row, 10, &end);
        int status = 0;
        std::string const said = support::standard_error_of([&] {
            pid_t const child = fork();
            if (child == 0) {
                std::signal(SIGABRT, SIG_DFL);
                _exit(count == 1 ? view.push(1) : view.take(count) != nullptr);
            }
            CHECK(waitpid(child, &status, 0) == child);
        });
        CHECK(WIFSIGNALED(status) == (WEIR_GUARD == 1));
        CHECK((WEIR_GUARD == 1 || status == 0));
        CHECK((said.find("append_view is used after its vector or its append_end has ended") != std::string::npos) == (WEIR_GUARD == 1));
    }
}
#endif
