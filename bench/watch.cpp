// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: a program of its own, weir-bench-watch; needs weir, the CUDA runtime (or the simulated device) and threads.
//
// What does it cost to be watched? Pairs of 4 KiB on device_pool and promised_device_pool, bare and in layer::watch: while nobody
// watches, and while a thread in weir_top's place asks ten times a second; by one thread, and by 16 on streams of their own.
//
// A round is four short stretches, one behind another in the same thread: bare, watched, watched, bare. Their quotient is one
// comparison: what else a machine does lasts longer than a round, or hits few of them, and a drift falls out. The next round
// begins with the watched one, and the pools are made anew now and then, so that no place in memory favours one of them. A row is
// the median of 'WEIR_BENCH_REPETITIONS' (default 400) rounds, with its quartiles; a stretch has 'WEIR_BENCH_PAIRS' (default 2000)
// pairs a thread. Of so short rounds few see an answer, so each is asked once between two stretches, and that answer's time is the
// row's last figure: ten a second of 10 us are 0.01 %.
//
//     build/release/bench/weir-bench-watch       on the simulated device
//     build/gpu-release/bench/weir-bench-watch   on a GPU

#include "../examples/weir_top/board_view.hpp"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>
#include <weir/layer/watch.hpp>
#include <weir/recipes/device_pool.hpp>
#include <weir/recipes/promised_device_pool.hpp>
#include <weir/runtime/check.hpp>
#include <weir/trace/watch_board.hpp>

namespace {

using clock_type = std::chrono::steady_clock;

std::size_t setting(char const* name, std::size_t usual) {
    char const* const set = std::getenv(name);
    return set ? static_cast<std::size_t>(std::atoll(set)) : usual;
}

double ns_since(clock_type::time_point begin) {
    return std::chrono::duration<double, std::nano>(clock_type::now() - begin).count();
}

/// Wall nanoseconds of so many pairs.
template <class Pool>
[[gnu::noinline]] double stretch(Pool& pool, cudaStream_t stream, std::size_t pairs) {
    auto const begin = clock_type::now();
    for (std::size_t i = 0; i < pairs; ++i)
        pool.deallocate(stream, pool.allocate(stream, 4096), 4096);
    return ns_since(begin);
}

/// Where threads wait for one another, so that all of them are on the same pool.
class meeting {
public:
    explicit meeting(std::size_t threads) : threads_(threads) {}
    void wait() {
        std::size_t const turn = turn_;
        if (++arrived_ == threads_) {
            arrived_ = 0;
            ++turn_;
        } else
            while (turn_ == turn)
                std::this_thread::yield();
    }

private:
    std::size_t const threads_;
    std::atomic<std::size_t> arrived_{0}, turn_{0};
};

struct comparisons {
    std::vector<double> more, bare_ns, answer_us;
    std::uint64_t answers = 0;

    void add(comparisons const& of_thread) {
        more.insert(more.end(), of_thread.more.begin(), of_thread.more.end());
        bare_ns.insert(bare_ns.end(), of_thread.bare_ns.begin(), of_thread.bare_ns.end());
        answer_us.insert(answer_us.end(), of_thread.answer_us.begin(), of_thread.answer_us.end());
    }
};

/// So many rounds on pools of their own.
template <class Pool>
void compare(std::vector<cudaStream_t> const& streams, bool asks, std::size_t rounds, std::size_t pairs, comparisons& all) {
    weir::trace::watch_board board("bench");
    weir_top::board_view view(std::string(board.segment()).substr(1));
    Pool bare;
    weir::layer::watch<Pool> watched(board);
    std::vector<comparisons> seen(streams.size());
    meeting met(streams.size());
    auto const work = [&](std::size_t at) {
        cudaStream_t const stream = streams[at];
        stretch(bare, stream, 1000); // the first ones grow
        stretch(watched, stream, 1000);
        for (std::size_t i = 0; i < rounds; ++i) {
            double ns[2] = {0, 0};
            for (std::size_t step = 0; step < 4; ++step) {
                bool const is_watched = (step == 1 || step == 2) != (i % 2 != 0);
                met.wait();
                ns[is_watched] += is_watched ? stretch(watched, stream, pairs) : stretch(bare, stream, pairs);
            }
            seen[at].more.push_back((ns[1] / ns[0] - 1) * 100);
            seen[at].bare_ns.push_back(ns[0] / static_cast<double>(2 * pairs));
            met.wait();
            if (asks && at == 0) {
                view.ask();
                seen[at].answer_us.push_back(stretch(watched, stream, 1) / 1000);
            }
        }
    };
    std::atomic<bool> done{false};
    std::thread watcher([&] {
        for (; asks && !done; std::this_thread::sleep_for(std::chrono::milliseconds(100)))
            view.ask();
    });
    std::vector<std::thread> crew;
    for (std::size_t at = 1; at < streams.size(); ++at)
        crew.emplace_back(work, at);
    work(0);
    for (std::thread& each : crew)
        each.join();
    done = true;
    watcher.join();
    for (comparisons const& each : seen)
        all.add(each);
    all.answers += view.read().at(0).answers;
    bare.settle();
    watched.settle();
}

double quantile(std::vector<double>& of, std::size_t quarters) {
    std::sort(of.begin(), of.end());
    return of.empty() ? 0 : of[(of.size() - 1) * quarters / 4];
}

template <class Pool>
void row(char const* name, std::size_t threads, bool asks) {
    constexpr std::size_t rounds_each = 20; // of one pair of pools
    std::vector<cudaStream_t> streams(threads);
    for (cudaStream_t& each : streams)
        weir::check_cuda(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    comparisons all;
    std::size_t const rounds = setting("WEIR_BENCH_REPETITIONS", 400), pairs = setting("WEIR_BENCH_PAIRS", 2000);
    for (std::size_t i = 0; i < rounds; i += rounds_each)
        compare<Pool>(streams, asks, std::min(rounds_each, rounds - i), pairs, all);
    for (cudaStream_t const each : streams)
        weir::check_cuda(cudaStreamDestroy(each), "cudaStreamDestroy");
    std::string const what = std::string(name) + ", " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") +
                             (asks ? "weir_top asks" : "nobody asks");
    std::printf("| %-52s | at most 1 | %6.1f | %6.2f (%.2f to %.2f) | %llu | %.1f |\n", what.c_str(), quantile(all.bare_ns, 2),
                quantile(all.more, 2), quantile(all.more, 1), quantile(all.more, 3), static_cast<unsigned long long>(all.answers),
                quantile(all.answer_us, 2));
    std::fflush(stdout);
}

} // namespace

int main() {
    std::printf("| figure | asked, %% more | ns a pair, bare | measured, %% more (quartiles) | answers | us an answer |\n"
                "|---|---|---:|---:|---:|---:|\n");
    for (std::size_t const threads : {std::size_t{1}, std::size_t{16}})
        for (bool const asks : {false, true}) {
            row<weir::device_pool>("device_pool", threads, asks);
            row<weir::promised_device_pool>("promised_device_pool", threads, asks);
        }
    return 0;
}
