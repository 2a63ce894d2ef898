// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: a program of its own, weir-bench-stable; needs weir, the CUDA runtime and gather_kernel.cu (or the simulated device), and no
// Google Benchmark.
//
// What does memory cost that grows and never moves, and memory that sleeps? A row a figure: what was measured, what is asked
// for, and whether it holds. The program ends with 1 if one does not hold. On the simulated device it is small, and shows only
// that nothing fails: its times are nothing to hold.
//
//     append        'append(1)' within committed pages; that it makes no driver call is held by tests/stable
//     commit_ahead  64 MiB with pages of 64 and of 2 MiB: pages that are made, that are moved, that are still there
//     decode        32 caches grow by a token a step and are gathered whole: time with cudaMalloc's over time with pages
//     owners        16 vectors change sizes and owners for 1,000 rounds: the limit that sufficed over what lives, and the time
//                   beside vectors that double
//     sleep         6 GiB: the first time, the next times, and back
//     leak          free memory after 1,000 sleeps and wakes beside that after the first ten

#include "gather_kernel.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>
#include <weir/stable.hpp>
#include <weir/weir.hpp>

namespace {

using clock_type = std::chrono::steady_clock;
using weir::check_cuda;
using weir::GiB;
using weir::KiB;
using weir::MiB;
using weir::stable_buffer;
using weir::stable::contents;
using weir::stable::page_pool;
using weir::stable::page_pool_options;
using weir_bench::most_sequences;

#ifdef WEIR_BENCH_SIMULATED
constexpr bool is_real = false;
constexpr int repetitions = 1;
constexpr std::size_t appends = 1000, page_rounds = 2, first_token = 64, steps = 4, owner_rounds = 20, owner_bytes = 8 * MiB;
constexpr std::size_t sleeping_bytes = 24 * MiB, sleeps = 20;
#else
constexpr bool is_real = true;
constexpr int repetitions = 5;
constexpr std::size_t appends = 1'000'000, page_rounds = 32, first_token = 1792, steps = 256, owner_rounds = 1000;
constexpr std::size_t owner_bytes = 1 * GiB, sleeping_bytes = 6 * GiB, sleeps = 1000;
#endif

bool all_hold = true;

void print(std::string const& figure, double measured, char const* unit, double asked, bool at_most) {
    bool const holds = at_most ? measured <= asked : measured >= asked;
    all_hold = all_hold && (holds || !is_real);
    std::printf("%-44s %10.3f %-8s %s %8.3f  %s\n", figure.c_str(), measured, unit, at_most ? "<=" : ">=", asked,
                !is_real ? "not timed here" : holds ? "holds" : "DOES NOT HOLD");
    std::fflush(stdout);
}
void print(std::string const& figure, double measured, char const* unit) {
    std::printf("%-44s %10.3f %-8s\n", figure.c_str(), measured, unit);
}

double seconds_since(clock_type::time_point begin) {
    return std::chrono::duration<double>(clock_type::now() - begin).count();
}
template <class Call>
double seconds_of(Call const& call) {
    auto const begin = clock_type::now();
    call();
    return seconds_since(begin);
}
double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

page_pool_options pages_of(std::size_t bytes) {
    return page_pool_options{}.page_bytes(bytes);
}

void append(cudaStream_t stream) {
    page_pool pool(pages_of(16 * MiB));
    weir::stable_vector<float> xs(pool, stream, appends);
    xs.reserve(appends);
    std::vector<double> ns;
    for (int i = 0; i < repetitions; ++i) {
        xs.clear();
        float* volatile last = nullptr;
        ns.push_back(1e9 * seconds_of([&] {
                         for (std::size_t n = 0; n < appends; ++n)
                             last = xs.append(1);
                     }) /
                     static_cast<double>(appends));
    }
    print("append(1) within committed pages", median(ns), "ns", 5, true);
}

void commit_ahead(cudaStream_t stream, std::size_t page) {
    constexpr std::size_t step = 64 * MiB;
    page_pool pool(pages_of(page));
    std::vector<double> made, there, moved;
    {
        stable_buffer xs(pool, stream, page_rounds * step);
        auto const grow = [&](stable_buffer& to, std::vector<double>& us) {
            for (std::size_t i = 0; i < page_rounds; ++i) {
                us.push_back(1e6 * seconds_of([&] { to.commit_ahead(step); }));
                to.append(step);
            }
        };
        grow(xs, made);
        xs.shrink(xs.size());
        weir::synchronize(stream);
        grow(xs, there);
        xs.shrink(xs.size());
        weir::synchronize(stream);
        stable_buffer ys(pool, stream, page_rounds * step);
        grow(ys, moved);
    }
    std::string const pages = "commit 64 MiB ahead, pages of " + std::to_string(page / MiB) + " MiB ";
    auto const row = [&](char const* what, std::vector<double> const& us) {
        page == step ? print(pages + what, median(us), "us", 60, true) : print(pages + what, median(us), "us");
    };
    row("made", made);
    row("moved", moved);
    print(pages + "there", median(there), "us");
}

constexpr std::size_t token_bytes = 32 * KiB, most_tokens = first_token + 2 * most_sequences + steps;

class whole_cache {
public:
    explicit whole_cache(std::size_t tokens) : bytes_(tokens * token_bytes) {
        check_cuda(cudaMalloc(&data_, most_tokens * token_bytes), "cudaMalloc");
    }
    whole_cache(whole_cache const&) = delete;
    ~whole_cache() { static_cast<void>(cudaFree(data_)); }
    void add_token() { bytes_ += token_bytes; }
    void look_ahead() {}
    void* data() { return data_; }
    std::size_t size() const { return bytes_; }

private:
    void* data_ = nullptr;
    std::size_t bytes_;
};

class growing_cache {
public:
    growing_cache(std::size_t tokens, page_pool const& pool, cudaStream_t stream) : memory_(pool, stream, most_tokens * token_bytes) {
        memory_.append(tokens * token_bytes);
    }
    void add_token() { memory_.append(token_bytes); }
    void look_ahead() { memory_.commit_ahead(token_bytes); }
    void* data() { return memory_.data(); }
    std::size_t size() const { return memory_.size(); }

private:
    stable_buffer memory_;
};

// Seconds of the steps. Sequences begin at different lengths, so that they do not all need a page in the same step.
template <class Cache, class... From>
double decode(cudaStream_t stream, float* sum, From const&... from) {
    std::deque<Cache> all;
    for (std::size_t i = 0; i < most_sequences; ++i)
        all.emplace_back(first_token + 2 * i, from...);
    for (Cache& each : all)
        check_cuda(cudaMemsetAsync(each.data(), 0, each.size(), stream), "cudaMemsetAsync");
    weir::synchronize(stream);
    return seconds_of([&] {
        for (std::size_t step = 0; step < steps; ++step) {
            weir_bench::caches table{};
            for (std::size_t i = 0; i < most_sequences; ++i) {
                all[i].add_token();
                table.data[i] = all[i].data();
                table.bytes[i] = all[i].size();
            }
            check_cuda(weir_bench::launch_gather(stream, table, token_bytes, sum), "launch of a kernel");
            for (Cache& each : all) // while the kernel runs
                each.look_ahead();
            weir::synchronize(stream);
        }
    });
}

void decode_loop(cudaStream_t stream) {
    weir::device_pool blocks;
    weir::device_value<float> sum(blocks, stream, 0.0f);
    std::vector<std::size_t> const sizes = {2 * MiB, 16 * MiB, 64 * MiB};
    std::vector<double> whole;
    std::vector<std::vector<double>> growing(sizes.size());
    for (int i = 0; i < repetitions; ++i) {
        whole.push_back(decode<whole_cache>(stream, sum.data()));
        for (std::size_t at = 0; at < sizes.size(); ++at) {
            page_pool pool(pages_of(sizes[at]));
            growing[at].push_back(decode<growing_cache>(stream, sum.data(), pool, stream));
        }
    }
    print("decode step, caches allocated whole", 1e6 * median(whole) / steps, "us");
    for (std::size_t at = 0; at < sizes.size(); ++at)
        print("decode with pages of " + std::to_string(sizes[at] / MiB) + " MiB, of whole", 100 * median(whole) / median(growing[at]),
              "%", 99, false);
}

// Who gets which size in which round, the same for both ways. A vector of a new owner begins empty.
struct change {
    std::size_t who, bytes;
    bool ends;
};
std::vector<change> changes() {
    std::mt19937_64 random(1);
    std::vector<change> all;
    for (std::size_t i = 0; i < owner_rounds; ++i)
        all.push_back({random() % 16, owner_bytes / 4 + random() % (owner_bytes * 3 / 4), random() % 4 == 0});
    return all;
}
std::size_t most_that_lives(std::vector<change> const& all) {
    std::size_t lives[16] = {}, sum = 0, most = 0;
    for (change const& each : all) {
        sum += each.bytes - lives[each.who];
        lives[each.who] = each.bytes;
        most = std::max(most, sum);
    }
    return most;
}

void owners(cudaStream_t stream, std::size_t page, bool is_asked) {
    std::vector<change> const all = changes();
    std::size_t const lives = most_that_lives(all);
    std::size_t const limit = is_real ? lives / 100 * 102 : lives + 16 * page;
    auto const write = [&](void* data, std::size_t from, std::size_t to) {
        if (to > from)
            check_cuda(cudaMemsetAsync(static_cast<char*>(data) + from, 1, to - from, stream), "cudaMemsetAsync");
    };
    std::size_t most_held = 0;
    double const stable = seconds_of([&] {
        page_pool pool(pages_of(page).limit(limit));
        std::vector<std::unique_ptr<stable_buffer>> vectors(16);
        for (change const& each : all) {
            auto& xs = vectors[each.who];
            if (each.ends)
                xs.reset();
            if (!xs)
                xs = std::make_unique<stable_buffer>(pool, stream, owner_bytes);
            std::size_t const before = xs->size();
            if (each.bytes < before)
                xs->shrink(before - each.bytes);
            else
                xs->resize(each.bytes);
            write(xs->data(), before, xs->size());
            most_held = std::max(most_held, pool.reserved_bytes());
        }
        weir::synchronize(stream);
    });
    std::size_t doubling_held = 0;
    double const doubling = seconds_of([&] {
        weir::device_pool pool;
        std::vector<std::unique_ptr<weir::device_buffer>> vectors(16);
        std::size_t sizes[16] = {};
        for (change const& each : all) {
            auto& xs = vectors[each.who];
            if (each.ends)
                xs.reset(), sizes[each.who] = 0;
            if (!xs || xs->size() < each.bytes) {
                std::size_t const doubled = xs ? 2 * xs->size() : 0;
                auto larger = std::make_unique<weir::device_buffer>(pool, stream, std::max(doubled, each.bytes));
                if (sizes[each.who] != 0)
                    check_cuda(cudaMemcpyAsync(larger->data(), xs->data(), sizes[each.who], cudaMemcpyDeviceToDevice, stream),
                               "cudaMemcpyAsync");
                xs = std::move(larger);
            }
            write(xs->data(), sizes[each.who], each.bytes);
            sizes[each.who] = each.bytes;
            doubling_held = std::max(doubling_held, pool.reserved_bytes());
        }
        weir::synchronize(stream);
    });
    auto const of_living = [&](std::size_t bytes) { return static_cast<double>(bytes) / static_cast<double>(lives); };
    if (is_asked) {
        print("owners: peak of stable vectors, of what lives", of_living(most_held), "", 1.02, true);
        print("owners: peak of doubling vectors", of_living(doubling_held), "");
        print("owners: time, of doubling vectors'", stable / doubling, "", 1, true);
    } else {
        print("owners: peak, pages of " + std::to_string(page / MiB) + " MiB", of_living(most_held), "");
        print("owners: time, pages of " + std::to_string(page / MiB) + " MiB", stable / doubling, "");
    }
}

// Bytes a second of a plain copy to the device from page-locked memory.
double link_speed(cudaStream_t stream, void* device, void* host, std::size_t bytes) {
    std::vector<double> seconds;
    for (int i = 0; i < 5; ++i)
        seconds.push_back(seconds_of([&] {
            check_cuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
            weir::synchronize(stream);
        }));
    return static_cast<double>(bytes) / *std::min_element(seconds.begin(), seconds.end());
}

void sleep(cudaStream_t stream) {
    weir::pinned_pool keep; // of registered memory, of which there is none yet
    page_pool pool(pages_of(16 * MiB));
    weir::stable::sleep_group sleepers(keep);
    std::deque<stable_buffer> weights;
    for (int i = 0; i < 24; ++i) {
        weights.emplace_back(pool, stream, sleeping_bytes / 24);
        weights.back().append(sleeping_bytes / 24);
        weights.back().zero_async();
        sleepers.join("weights", weights.back());
    }
    weir::synchronize(stream);
    std::size_t const block = sleeping_bytes / 24;
    auto const suspend = [&](contents how) { return seconds_of([&] { sleepers.suspend("weights", how); }); };
    auto const resume = [&] { return seconds_of([&] { sleepers.resume("weights"); }); };
    print("sleep of 6 GiB, the first time", suspend(contents::save), "s", 0.6, true);
    print("wake of 6 GiB, the first time", resume(), "s");
    print("sleep of 6 GiB, again", suspend(contents::save), "s", 0.2, true);
    pool.trim(); // others have the pages meanwhile
    double const woke = resume();
    print("wake of 6 GiB, pages made anew", woke, "s", 0.2, true);
    suspend(contents::constant);
    double const restored = resume();
    std::size_t const before = keep.in_use_bytes();
    print("sleep of 6 GiB, unchanged", suspend(contents::constant), "s");
    print("bytes copied for it", static_cast<double>(keep.in_use_bytes() - before), "bytes", 0, true);
    resume();
    weir::pinned_buffer host(keep, stream, block);
    double const link = link_speed(stream, weights[0].data(), host.data(), block);
    print("the link", link / 1e9, "GB/s");
    print("restore, of the link", 100 * static_cast<double>(sleeping_bytes) / restored / link, "%", 90, false);
}

// The first time again, into a pool whose pages `threads` threads touch; weir::pinned_pool has 4.
void first_sleep(cudaStream_t stream, unsigned threads) {
    weir::recipes::pinned::parts keep(weir::upstream::registered_host{}.threads(threads));
    page_pool pool(pages_of(16 * MiB));
    weir::stable::sleep_group sleepers(keep);
    stable_buffer weights(pool, stream, sleeping_bytes);
    weights.append(sleeping_bytes);
    weights.zero_async();
    sleepers.join("weights", weights);
    weir::synchronize(stream);
    print("the first time, one buffer, " + std::to_string(threads) + " threads",
          seconds_of([&] { sleepers.suspend("weights"); }), "s");
}

std::size_t free_bytes() {
    std::size_t now = 0, all = 0;
    check_cuda(cudaMemGetInfo(&now, &all), "cudaMemGetInfo");
    return now;
}

void leak(cudaStream_t stream) {
    weir::pinned_pool keep;
    page_pool pool(pages_of(2 * MiB));
    weir::stable::sleep_group sleepers(keep);
    stable_buffer weights(pool, stream, 64 * MiB), cache(pool, stream, 64 * MiB);
    sleepers.join("weights", weights);
    sleepers.join("cache", cache);
    weights.append(32 * MiB);
    std::size_t after_ten = 0;
    for (std::size_t i = 0; i < sleeps; ++i) {
        cache.append(1 + i * 7919 % (16 * MiB));
        sleepers.suspend("weights", contents::constant);
        sleepers.suspend("cache", i % 2 == 0 ? contents::drop : contents::save);
        pool.trim();
        if (i == 9)
            after_ten = free_bytes();
        else if (i + 1 == sleeps)
            print("free memory lost in 1,000 sleeps and wakes", static_cast<double>(after_ten) - static_cast<double>(free_bytes()),
                  "bytes", 0, true);
        sleepers.resume("weights");
        sleepers.resume("cache");
        cache.shrink(cache.size());
    }
}

} // namespace

int main() try {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    auto const begin = clock_type::now();
    std::printf("%-44s %10s %-8s    %8s\n", "figure", "measured", "", "asked");
    append(stream);
    commit_ahead(stream, 64 * MiB);
    commit_ahead(stream, 2 * MiB);
    decode_loop(stream);
    owners(stream, 16 * MiB, true); // the pool's own choice
    if (is_real)
        owners(stream, 2 * MiB, false);
    sleep(stream);
    first_sleep(stream, 4);
    first_sleep(stream, 16);
    leak(stream);
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    std::printf("%.0f s\n", seconds_since(begin));
    return all_hold ? 0 : 1;
} catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
