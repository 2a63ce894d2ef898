// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The line by hand, of sets without bytes. What a pool makes of it is in tests/reuse/streams_that_end.cpp.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <doctest/doctest.h>
#include <weir/base/threads/atomic.hpp>
#include <weir/reuse/stream_ordered/default_streams.hpp>
#include <weir/reuse/stream_ordered/stream_directory/thread_line.hpp>

namespace {

namespace reuse = weir::reuse::detail;

struct set {
    explicit set(std::uint64_t kind = reuse::key_of_id) : key(8 | kind) {}
    weir::base::atomic<std::uint64_t> key, came_at{0};
    set* next_in_line = nullptr;
    bool is_in_line = false;
    bool is_left = false;
};

class line {
public:
    void come(set& each) {
        sets_.look(++now_, [&](set& left) { return left.is_left = collects; });
        here(each);
        sets_.join(each);
    }
    void here(set& each) { each.came_at.store(now_, weir::base::memory_order_relaxed); }
    bool collects = true;

private:
    reuse::thread_line<set> sets_;
    std::uint64_t now_ = 0;
};

std::size_t kept(std::deque<set> const& sets) {
    std::size_t sum = 0;
    for (set const& each : sets)
        sum += !each.is_left;
    return sum;
}

} // namespace

TEST_CASE("thread_line: of threads that end, sixteen keep their bytes; of threads that stay, all; of both, as many") {
    for (std::size_t const staying : {0u, 1u, 16u, 100u}) {
        CAPTURE(staying);
        line here;
        std::deque<set> stay, end;
        std::size_t most = 0;
        for (std::size_t i = 0; i != 2000; ++i) {
            here.come(i < staying ? stay.emplace_back() : end.emplace_back());
            for (set& each : stay)
                here.here(each);
            if (kept(end) > most)
                most = kept(end);
        }
        CHECK(kept(stay) == staying);
        CHECK(most >= 16);
        CHECK(most <= (staying < 8 ? 17 : 2 * staying + 16));
        CHECK(kept(end) <= (staying < 8 ? 17 : staying + 16));
    }
}

TEST_CASE("thread_line: a set is in line once, comes back to it, and stays while its bytes cannot be had") {
    line here;
    set own;
    std::deque<set> others;
    auto const pass = [&](int count) {
        for (int i = 0; i != count; ++i)
            here.come(others.emplace_back());
    };
    for (int turn = 0; turn != 3; ++turn) {
        here.come(own);
        here.come(own); // in line already
        own.is_left = false;
        here.collects = false;
        pass(40);
        CHECK(own.is_in_line);
        here.collects = true;
        pass(100);
        CHECK(own.is_left);
        CHECK_FALSE(own.is_in_line);
    }
}

TEST_CASE("thread_line: a set that has become a created stream's leaves the line with its bytes, and such a set never joins") {
    line here;
    set own, created(0), legacy(reuse::key_of_context);
    here.come(own);
    here.come(created);
    here.come(legacy);
    CHECK_FALSE(created.is_in_line);
    CHECK_FALSE(legacy.is_in_line);
    own.key.store(8, weir::base::memory_order_relaxed);
    std::deque<set> others;
    for (int i = 0; i != 20; ++i)
        here.come(others.emplace_back());
    CHECK_FALSE(own.is_in_line);
    CHECK_FALSE(own.is_left);
}
