// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <new>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <utility>
#include <vector>
#include <weir/reuse/stream_ordered/deferred_blocks.hpp>

using weir::reuse::detail::deferred_block;
using weir::reuse::detail::deferred_blocks;
using weir::runtime::event;
using weir::base::growing_array;
using weir::base::range;
using weir::reuse::detail::shared_uses;

namespace {

growing_array<event> uses_on(cudaStream_t user) {
    growing_array<event> list;
    list.push_back(event(0));
    list.back().record(user);
    return list;
}

#ifdef WEIR_SIMULATED_CUDA
struct busy {
    explicit busy(cudaStream_t stream) { weir::check_cuda(gate.close(stream), "gate"); }
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

TEST_CASE("deferred_blocks: takes in another's, beside its own") {
    deferred_blocks mine, others;
    mine.add(range{0x1000, 512}, {}, true, false);
    others.add(range{0x2000, 1024}, {}, true, false);
    others.add(range{0x3000, 2048}, {}, false, false);
    mine.absorb(others);
    CHECK(others.empty());
    CHECK(others.closed_bytes() == 0);
    CHECK(mine.size() == 3);
    CHECK(mine.closed_bytes() == 512 + 1024);
    CHECK(mine.open_bytes() == 2048);
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
    CHECK(blocks.closed_bytes() == 3);
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
            weir::order::stream_answers answers = blocks.ask();
            blocks.take_if([&](deferred_block const& each) {
                sum += each.is_over(answers) ? each.block.bytes : 0;
                return false;
            });
            return sum;
        };
#ifdef WEIR_SIMULATED_CUDA
        CHECK(over() == 1);
        held.gate.open();
#endif
        growing_array<weir::reuse::detail::shared_uses> lists;
        blocks.list_uses(lists);
        CHECK(lists.size() == 1);
        weir::reuse::detail::wait_for(lists);
        CHECK_FALSE(weir::reuse::detail::wait_for(lists));
        CHECK(over() == 3);
    });
}

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
        weir::check_cuda(cudaStreamSynchronize(b), "cudaStreamSynchronize");
        CHECK(cudaStreamQuery(a) == cudaSuccess);
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("deferred_blocks: of many uses that lie in their order, or against it, few are asked about") {
    constexpr std::size_t count = 400;
    for (bool const backwards : {false, true})
        for (std::size_t const passed : {std::size_t{0}, std::size_t{1}, std::size_t{137}, std::size_t{399}, count}) {
            CAPTURE(backwards);
            CAPTURE(passed);
            simulated_cuda::world const world(simulated_cuda::config{}.eager(), support::report_all);
            support::scoped_stream const user;
            weir::order::second_uses uses;
            simulated_cuda::gate gate;
            for (std::size_t i = 0; i != count; ++i) {
                if (i == passed)
                    weir::check_cuda(gate.close(user), "gate");
                uses.add((i + 1) * 0x1000, user);
            }
            deferred_blocks blocks;
            for (std::size_t i = 0; i != count; ++i) {
                std::size_t const at = (backwards ? count - i : i + 1) * 0x1000;
                blocks.add(range{at, 512}, uses.take(at, weir::on_host).events, true, false);
            }
            std::uint64_t const before = simulated_cuda::calls("cudaEventQuery");
            weir::order::stream_answers answers = blocks.ask();
            std::size_t over = 0;
            blocks.take_if([&](deferred_block const& each) {
                bool const is = each.is_over(answers);
                CHECK(is == (each.block.offset <= passed * 0x1000));
                over += is;
                return false;
            });
            CHECK(over == passed);
            CHECK(simulated_cuda::calls("cudaEventQuery") - before <= 10); // 400 < 2^9
            gate.open();
        }
}

#endif
