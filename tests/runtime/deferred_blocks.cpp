// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <new>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <utility>
#include <vector>
#include <weir/runtime/deferred_blocks.hpp>

using weir::deferred_block;
using weir::deferred_blocks;
using weir::event;
using weir::growing_array;
using weir::range;
using weir::shared_uses;

namespace {

growing_array<event> uses_on(cudaStream_t user) {
    growing_array<event> list;
    list.push_back(event(0));
    list.back().record(user);
    return list;
}

#ifdef WEIR_SIMULATED_CUDA
struct busy {
    explicit busy(cudaStream_t stream) { weir::check(gate.close(stream), "gate"); }
    ~busy() { gate.open(); }
    simulated_cuda::gate gate;
};
#endif

} // namespace

TEST_CASE("deferred_blocks: counts apart what an event covers and what none does") {
    deferred_blocks blocks;
    CHECK(blocks.empty());
    blocks.add(range{0x1000, 100}, {}, true, false);
    blocks.add(range{0x2000, 20}, {}, false, true);
    blocks.add(range{0x3000, 3}, {}, true, true);
    CHECK(blocks.size() == 3);
    CHECK(blocks.closed_bytes() == 103);
    CHECK(blocks.open_bytes() == 20);
    CHECK_FALSE(blocks.take_if([](deferred_block const&) { return false; }));
    CHECK(blocks.take_if([](deferred_block const& each) { return each.stock; }));
    CHECK(blocks.size() == 1);
    CHECK(blocks.closed_bytes() == 100);
    CHECK(blocks.open_bytes() == 0);
    std::vector<range> seen;
    CHECK(blocks.take_if([&](deferred_block const& each) {
        seen.push_back(each.block);
        return true;
    }));
    CHECK(seen == std::vector<range>{range{0x1000, 100}});
    CHECK(blocks.empty());
    CHECK(blocks.closed_bytes() == 0);
}

TEST_CASE("deferred_blocks: what a visit that throws has not taken stays") {
    deferred_blocks blocks;
    for (std::size_t i = 1; i <= 3; ++i)
        blocks.add(range{i * 0x1000, i}, {}, true, false);
    int left = 2;
    CHECK_THROWS_AS(blocks.take_if([&](deferred_block const&) {
        if (--left == 0)
            throw std::bad_alloc();
        return true;
    }),
                    std::bad_alloc);
    CHECK(blocks.size() == 2);
    CHECK(blocks.closed_bytes() == 2 + 3);
}

TEST_CASE("deferred_blocks: a block is over when the last of its uses is") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        deferred_blocks blocks;
        blocks.add(range{0x1000, 1}, {}, true, false);
        growing_array<event> both = uses_on(a);
#ifdef WEIR_SIMULATED_CUDA
        busy held(b);
#endif
        both.push_back(event(0));
        both.back().record(b);
        blocks.add(range{0x2000, 2}, std::move(both), true, false);
        auto const over = [&] {
            std::size_t sum = 0;
            blocks.take_if([&](deferred_block const& each) {
                sum += each.is_over() ? each.block.bytes : 0;
                return false;
            });
            return sum;
        };
#ifdef WEIR_SIMULATED_CUDA
        CHECK(over() == 1);
        held.gate.open();
#endif
        growing_array<shared_uses> lists;
        blocks.list_uses(lists);
        CHECK(lists.size() == 1);
        weir::wait_for(lists);
        CHECK_FALSE(weir::wait_for(lists));
        CHECK(over() == 3);
    });
}

#ifdef WEIR_SIMULATED_CUDA

namespace {

// Blocks of a byte, each with one use, and how often a visit asks whether one is over.
struct visited : deferred_blocks {
    void add_used(cudaStream_t user, std::uint64_t number) {
        growing_array<event> use = uses_on(user);
        use.back().set_place({user, number});
        add(range{0x1000 * (size() + 1), 1}, std::move(use), true, false);
    }
    // Of blocks in the order in which they came.
    std::vector<bool> over() {
        std::vector<bool> answers;
        weir::late_places late;
        std::uint64_t const before = simulated_cuda::calls("cudaEventQuery");
        take_if([&](deferred_block const& each) {
            answers.push_back(each.is_over(late));
            return false;
        });
        asked = simulated_cuda::calls("cudaEventQuery") - before;
        return answers;
    }
    std::uint64_t asked = 0;
};

} // namespace

TEST_CASE("deferred_blocks: of many that wait for one stream few are asked") {
    simulated_cuda::world const world(simulated_cuda::config{}.eager(), support::report_all);
    support::scoped_stream const a, b;
    visited blocks;
    for (std::uint64_t i = 1; i <= 20; ++i)
        blocks.add_used(a, i);
    busy const held(a);
    for (std::uint64_t i = 21; i <= 100; ++i)
        blocks.add_used(a, i);
    blocks.add_used(b, 101);
    std::vector<bool> expected(20, true);
    expected.resize(100, false);
    expected.push_back(true);
    CHECK(blocks.over() == expected);
    CHECK(blocks.asked == 20 + 1 + 1);
}

TEST_CASE("deferred_blocks: what comes earlier, or nobody knows where, is asked whatever was not reached before") {
    simulated_cuda::world const world(simulated_cuda::config{}.eager(), support::report_all);
    support::scoped_stream const a, b;
    growing_array<event> first = uses_on(a), second = uses_on(a);
    first.back().set_place({a, 1});
    visited blocks;
    busy const held(a);
    blocks.add_used(a, 3);
    blocks.add_used(a, 2);
    blocks.add(range{0x8000, 1}, std::move(first), true, false);
    blocks.add(range{0x9000, 1}, std::move(second), true, false); // says nothing
    blocks.add_used(b, 4);
    blocks.add_used(a, 0);
    blocks.add_used(a, 0);
    CHECK(blocks.over() == std::vector<bool>{false, false, true, true, true, false, false});
    CHECK(blocks.asked == 7);
}

TEST_CASE("deferred_blocks: of more streams than are remembered each event is asked") {
    simulated_cuda::world const world(simulated_cuda::config{}.eager(), support::report_all);
    std::vector<support::scoped_stream> const streams(9);
    std::vector<std::unique_ptr<busy>> held;
    visited blocks;
    for (support::scoped_stream const& each : streams)
        held.push_back(std::make_unique<busy>(each));
    for (std::uint64_t number = 1; number <= 2; ++number)
        for (support::scoped_stream const& each : streams)
            blocks.add_used(each, number);
    CHECK(blocks.over() == std::vector<bool>(18, false));
    CHECK(blocks.asked == 9 + 1);
}

#endif

TEST_CASE("deferred_blocks: a stream is made to wait for the uses") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
#ifdef WEIR_SIMULATED_CUDA
        busy held(a);
#endif
        deferred_blocks blocks;
        blocks.add(range{0x1000, 1}, uses_on(a), true, false);
        blocks.take_if([&](deferred_block const& each) {
            each.make_wait(b);
            return true;
        });
#ifdef WEIR_SIMULATED_CUDA
        CHECK(cudaStreamQuery(b) == cudaErrorNotReady);
        static_cast<void>(cudaGetLastError());
        held.gate.open();
#endif
        weir::check(cudaStreamSynchronize(b), "cudaStreamSynchronize");
        CHECK(cudaStreamQuery(a) == cudaSuccess);
    });
}
