// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A sort of four times the device's budget: runs that fit are sorted first, then buckets that take a piece of each run.
//
// Keys in pinned memory cross the link twice each way. First they are cut into runs, and each is sorted. Some keys of the runs,
// chosen at even distances, become splitters: between two of them lie so few keys that they fit. These are together on every
// run, so a bucket is gathered with one copy a run, sorted, and is a part of the result. Each of three streams takes every third
// run or bucket, so that one arrives while another is sorted and a third leaves. Nothing is allocated on the way but Thrust's
// storage, which comes from the pool.
//
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thrust/sort.h>
#include <utility>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/weir.hpp>

using key = unsigned;
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const shown = (simulated_cuda::make_device_memory_visible(true), true); // there, Thrust's device is the host
constexpr std::size_t budget = 4 * weir::MiB;
#else
constexpr std::size_t budget = 256 * weir::MiB;
#endif
constexpr std::size_t key_count = 4 * budget / sizeof(key);
constexpr std::size_t lanes = 3;
constexpr std::size_t run_size = budget / (2 * lanes + 2) / sizeof(key); // a lane has its keys and Thrust's copy of them
constexpr std::size_t runs = key_count / run_size;
constexpr std::size_t sample_step = run_size / 512;
static_assert(key_count % run_size == 0 && run_size % sample_step == 0 && run_size / sample_step > runs);

// A stream with room for a run.
struct lane {
    explicit lane(weir::device_pool& pool) : keys(pool, make_stream()) { keys.reserve(run_size); }
    static cudaStream_t make_stream() {
        cudaStream_t made = nullptr;
        weir::check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        return made; // as long as the program
    }
    void wait() const { weir::synchronize(keys.stream()); }
    weir::device_vector<key> keys;
};

struct piece {
    key const* from;
    std::size_t count;
};

// Enqueues all of it: gathers the pieces on the device, sorts them, and sends them to `to`. How many keys they are.
std::size_t sort_pieces(weir::device_pool& pool, lane& on, std::vector<piece> const& pieces, key* to) {
    on.keys.resize(0);
    for (piece const& each : pieces)
        on.keys.append(each.from, each.count);
    thrust::sort(weir::interop::thrust::par_nosync(pool, on.keys.stream()), on.keys.data(), on.keys.data() + on.keys.size());
    on.keys.copy_to_async(to);
    return on.keys.size();
}

// Where each bucket begins in each run; the last row is where the runs end. Keys that are equal are told apart by their position,
// so that a bucket has room for what lies between two splitters, however often a key occurs.
std::vector<std::vector<std::size_t>> split(key const* sorted_runs) {
    std::vector<std::pair<key, std::size_t>> samples; // with their positions; the last key of each run is one
    for (std::size_t at = sample_step - 1; at < key_count; at += sample_step)
        samples.emplace_back(sorted_runs[at], at);
    std::sort(samples.begin(), samples.end());
    // Beside its samples a bucket has at most sample_step - 1 keys of each run.
    constexpr std::size_t samples_of_bucket = run_size / sample_step - runs;
    std::vector<std::vector<std::size_t>> bounds(1);
    for (std::size_t first = 0; first != key_count; first += run_size)
        bounds[0].push_back(first);
    for (std::size_t next = 0; next != samples.size();) {
        next = std::min(next + samples_of_bucket, samples.size());
        auto const [splitter, position] = samples[next - 1]; // the last key of the bucket
        auto& end = bounds.emplace_back();
        for (std::size_t first = 0; first != key_count; first += run_size) {
            key const *const begin = sorted_runs + first, *const behind = begin + run_size;
            key const* const found = first + run_size <= position ? std::upper_bound(begin, behind, splitter)
                                     : first > position           ? std::lower_bound(begin, behind, splitter)
                                                                  : sorted_runs + position + 1;
            end.push_back(static_cast<std::size_t>(found - sorted_runs));
        }
    }
    return bounds;
}

// How many buckets there were.
std::size_t sort(weir::device_pool& pool, std::vector<lane>& all, key* keys, key* sorted) {
    for (std::size_t run = 0; run != runs; ++run)
        sort_pieces(pool, all[run % lanes], {{keys + run * run_size, run_size}}, keys + run * run_size);
    for (lane const& each : all)
        each.wait(); // the host reads the runs
    auto const bounds = split(keys);
    for (std::size_t bucket = 0; bucket + 1 != bounds.size(); ++bucket) {
        std::vector<piece> pieces;
        for (std::size_t run = 0; run != runs; ++run)
            pieces.push_back({keys + bounds[bucket][run], bounds[bucket + 1][run] - bounds[bucket][run]});
        sorted += sort_pieces(pool, all[bucket % lanes], pieces, sorted);
    }
    for (lane const& each : all)
        each.wait();
    return bounds.size() - 1;
}

template <class Work>
double seconds_of(Work const& work) {
    auto const begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int main() try {
    weir::device_pool pool{weir::pool_options{}.name("budget").limit(budget).reserve(budget)};
    weir::pinned_pool pinned;
    weir::pinned_vector<key> keys(pinned, cudaStreamPerThread, key_count), sorted(pinned, cudaStreamPerThread, key_count);
    for (std::size_t i = 0; i != key_count; ++i) // without the division each number once; with it, three times
        keys[i] = static_cast<key>((i * 2654435761u) % key_count) / 3;
    std::vector<lane> all;
    while (all.size() != lanes)
        all.emplace_back(pool);
    sort_pieces(pool, all[0], {{keys.data(), run_size}}, sorted.data()), all[0].wait(); // loads the kernels
    std::size_t buckets = 0;
    double const seconds = seconds_of([&] { buckets = sort(pool, all, keys.data(), sorted.data()); });
    std::size_t right = 0;
    for (std::size_t i = 0; i != key_count; ++i)
        right += sorted[i] == i / 3;
    std::printf("%zu of %zu keys are right: %zu runs, %zu buckets; the pool held %zu of %zu MiB of keys\n", right, key_count,
                runs, buckets, pool.reserved_bytes() / weir::MiB, key_count * sizeof(key) / weir::MiB);
    constexpr std::size_t copies = 8;
    double const seconds_of_copies = seconds_of([&] { // each way, at once
        for (std::size_t i = 0; i != copies; ++i) {
            all[0].keys.assign(keys.data() + i * run_size, run_size);
            all[1].keys.resize(run_size), all[1].keys.copy_to_async(sorted.data() + i * run_size);
        }
        all[0].wait(), all[1].wait();
    });
    double const link = static_cast<double>(2 * copies * run_size * sizeof(key)) / seconds_of_copies;
    double const reached = static_cast<double>(4 * key_count * sizeof(key)) / seconds; // each key crosses twice each way
    std::printf("%.1f GB/s both ways, %.0f %% of what two copies at once reach\n", reached / 1e9, 100 * reached / link);
    return right == key_count ? 0 : 1;
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
