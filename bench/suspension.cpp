// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// How long does a pool of 16 GiB take to give its memory up, and to get it back? Nanoseconds for all of it, of a pool with
// 16 blocks of 1 GiB. 'discard' saves nothing; 'pinned' copies what the blocks hold to a pinned pool and back, whose memory
// is page-locked already. The counter percent_of_link says how much of what plain copies of 1 GiB reach that is.
//
// 'trim_by_page' is of 16 GiB in blocks of 1 MiB, of which one of a hundred, at random, is live: 'suspend', 'trim' and
// 'resume' together. percent_of_pages says how many of the wholly free pages of 2 MiB went back, percent_at_once how many a
// 'trim' before it gave.

#include "harness.hpp"

#include <cstdint>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>
#include <weir/recipes.hpp>

namespace weir_bench {

namespace {

// Nanoseconds that the link takes for a byte, by plain copies.
double link_ns(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
    own_stream const stream;
    double best = 0;
    for (int i = 0; i < 4; ++i) {
        clock::time_point const start = clock::now();
        weir::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
        stream.drain();
        double const ns = std::chrono::duration<double, std::nano>(clock::now() - start).count() / static_cast<double>(bytes);
        best = i == 0 || ns < best ? ns : best;
    }
    return best;
}

// What is measured of a pool that suspends.
template <class Measure>
class of_those_that_suspend {
public:
    explicit of_those_that_suspend(Measure measure) : measure_(measure) {}

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State& state) const {
        if constexpr ((Pool::able & suspends) != 0)
            return measure_.template of<Pool>(state);
        else
            throw std::logic_error("this pool does not suspend, and is not asked");
    }

private:
    Measure measure_;
};

class up_and_back {
public:
    up_and_back(bool is_the_way_back_timed, bool saves) : is_the_way_back_timed_(is_the_way_back_timed), saves_(saves) {}

    template <class Pool>
    double of(benchmark::State& state) const {
        static weir::pinned_pool keep; // locked once, and kept
        std::size_t const block_bytes = count(std::size_t{1} << 30, std::size_t{4} << 20);
        std::size_t const blocks_in_all = 16;
        own_stream const stream;
        Pool pool;
        std::vector<void*> blocks(blocks_in_all);
        for (void*& p : blocks) {
            p = pool.allocate(stream, block_bytes);
            weir::check_cuda(cudaMemsetAsync(p, 1, block_bytes, stream), "cudaMemsetAsync");
        }
        stream.drain();
        double ns_a_byte = 0;
        if (saves_) {
            void* const host = keep.allocate_sync(block_bytes);
            ns_a_byte = is_the_way_back_timed_ ? link_ns(blocks[0], host, block_bytes, cudaMemcpyHostToDevice)
                                              : link_ns(host, blocks[0], block_bytes, cudaMemcpyDeviceToHost);
            keep.deallocate_sync(host, block_bytes);
            pool.inner().suspend(keep); // locks what is not yet
            pool.inner().resume();
        }
        clock::time_point const start = clock::now();
        if (saves_)
            pool.inner().suspend(keep);
        else
            pool.inner().suspend();
        clock::time_point const given = clock::now();
        pool.inner().resume();
        clock::time_point const back = clock::now();
        for (void* p : blocks)
            pool.deallocate(stream, p, block_bytes);
        stream.drain();
        double const ns =
            std::chrono::duration<double, std::nano>(is_the_way_back_timed_ ? back - given : given - start).count();
        if (is_smoke())
            keep.trim();
        if (saves_)
            state.counters["percent_of_link"] = 100 * ns_a_byte * static_cast<double>(block_bytes * blocks_in_all) / ns;
        return ns;
    }

private:
    bool is_the_way_back_timed_;
    bool saves_;
};

class by_page {
public:
    template <class Pool>
    double of(benchmark::State& state) const {
        std::size_t const page = std::size_t{2} << 20;
        static weir::pinned_pool keep;
        std::size_t const block_bytes = std::size_t{1} << 20;
        own_stream const stream;
        Pool pool;
        std::vector<void*> all(count(std::size_t{16} << 10, 64)), live;
        for (void*& p : all)
            p = pool.allocate(stream, block_bytes);
        std::mt19937_64 draw(1);
        std::set<std::uintptr_t> pages;
        for (void* p : all)
            if (draw() % 100 == 0) {
                live.push_back(p);
                pages.insert(reinterpret_cast<std::uintptr_t>(p) / page);
                pages.insert((reinterpret_cast<std::uintptr_t>(p) + block_bytes - 1) / page);
            } else {
                pool.deallocate(stream, p, block_bytes);
            }
        stream.drain();
        pool.inner().settle();
        std::size_t const before = pool.inner().reserved_bytes();
        std::size_t const needed = pages.size() * page;
        pool.inner().trim();
        auto const percent = [&] {
            return 100 * static_cast<double>(before - pool.inner().reserved_bytes()) / static_cast<double>(before - needed);
        };
        state.counters["percent_at_once"] = percent();
        clock::time_point const start = clock::now();
        pool.inner().suspend(keep);
        pool.inner().trim();
        pool.inner().resume();
        double const ns = std::chrono::duration<double, std::nano>(clock::now() - start).count();
        state.counters["percent_of_pages"] = percent();
        for (void* p : live)
            pool.deallocate(stream, p, block_bytes);
        stream.drain();
        if (is_smoke())
            keep.trim();
        return ns;
    }
};

} // namespace

void suspension() {
    ask("suspension/discard_16_GiB", suspends, of_those_that_suspend(up_and_back{false, false}));
    ask("suspension/resume_16_GiB", suspends, of_those_that_suspend(up_and_back{true, false}));
    ask("suspension/save_16_GiB_pinned", suspends, of_those_that_suspend(up_and_back{false, true}));
    ask("suspension/restore_16_GiB_pinned", suspends, of_those_that_suspend(up_and_back{true, true}));
    ask("suspension/trim_by_page_16_GiB", suspends, of_those_that_suspend(by_page{}));
}

} // namespace weir_bench
