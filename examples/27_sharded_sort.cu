// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Keys on several devices are sorted: each sorts its own, they agree on marks, and each gets the keys between two of the marks.
// The marks come from a sample of all keys, so each device gets about as many as before. It sorts once more what it was sent.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device, with three devices.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <thrust/binary_search.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/sort.h>
#include <utility>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/multi_device.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const three = (simulated_cuda::reset(simulated_cuda::config{}.with_devices(3).visible()), true); // Thrust's is the host
constexpr std::size_t keys_each = 100'000;
#else
constexpr std::size_t keys_each = 64'000'000;
#endif
constexpr std::size_t samples = 1'000; // of each device
using namespace weir::multi_device;
using key = std::uint32_t;

struct make_key {
    key* keys;
    std::size_t first;
    __host__ __device__ void operator()(std::size_t i) const {
        key const x = static_cast<key>(first + i) * 2654435761u;
        keys[i] = x ^ x >> 15;
    }
};
struct pick { // some of them, at equal distances
    key *samples_of, *keys;
    std::size_t size;
    __host__ __device__ void operator()(std::size_t i) const { samples_of[i] = keys[i * size / samples]; }
};

struct clock_of {
    device_streams const& streams;
    std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
    double ms() { // since the last call
        streams.synchronize();
        auto const before = std::exchange(last, std::chrono::steady_clock::now());
        return std::chrono::duration<double, std::milli>(last - before).count();
    }
};

int main() try {
    per_device<weir::device_pool> pools;
    device_streams const streams;
    int const devices = streams.size();
    std::size_t const parts = static_cast<std::size_t>(devices), all = keys_each * parts;
    auto const on_each = [&](auto const& work) { // with the device current, as kernels want it
        for (int d = 0; d != devices; ++d) {
            weir::runtime::device_scope const there(d);
            work(d, weir::interop::thrust::par_nosync(pools[d], streams[d]));
        }
    };
    thrust::counting_iterator<std::size_t> const from_zero(0);
    sharded_vector<key> keys(pools, streams, all), sample(pools, streams, samples * parts);
    double spent[4] = {};
    for (int turn = 0; turn != 2; ++turn) { // the first one warms up
        on_each([&](int d, auto const& on) {
            thrust::for_each_n(on, from_zero, keys[d].size(), make_key{keys[d].data(), keys.first(d)});
        });
        clock_of clock{streams};
        clock.ms(); // from here on
        on_each([&](int d, auto const& on) {
            thrust::sort(on, keys[d].data(), keys[d].data() + keys[d].size());
            thrust::for_each_n(on, from_zero, samples, pick{sample[d].data(), keys[d].data(), keys[d].size()});
        });
        spent[0] = clock.ms();

        std::vector<key> sampled = sample.to_host_sync<std::vector>(), marks; // the keys from a mark on go to the next device
        std::sort(sampled.begin(), sampled.end());
        for (std::size_t part = 1; part < parts; ++part)
            marks.push_back(sampled[part * samples]);
        replicated<key> const marks_of(pools, streams, marks);
        replicated<std::size_t> cuts_of(pools, streams, marks.size());
        on_each([&](int d, auto const& on) {
            thrust::lower_bound(on, keys[d].data(), keys[d].data() + keys[d].size(), marks_of[d].data(),
                                marks_of[d].data() + marks.size(), cuts_of[d].data());
        });
        std::vector<std::vector<std::size_t>> cuts; // where each device's keys for another one begin, and their end
        std::vector<std::size_t> sizes(parts);
        for (int d = 0; d != devices; ++d) {
            cuts.push_back(cuts_of[d].to_host_sync<std::vector>());
            cuts.back().insert(cuts.back().begin(), 0), cuts.back().push_back(keys[d].size());
            for (std::size_t to = 0; to != parts; ++to)
                sizes[to] += cuts.back()[to + 1] - cuts.back()[to];
        }
        sharded_vector<key> sorted(pools, streams, sizes);
        spent[1] = clock.ms();

        std::size_t sent = 0;
        std::vector<std::size_t> filled(parts);
        for (int step = 0; step != devices; ++step) // each device gets from another one at a time
            for (int to = 0; to != devices; ++to) {
                int const from = (to + step) % devices;
                auto const target = static_cast<std::size_t>(to), source = static_cast<std::size_t>(from);
                std::size_t const begin = cuts[source][target], count = cuts[source][target + 1] - begin;
                weir::order_after(streams[to], streams[from]);
                weir::check_cuda(cudaMemcpyPeerAsync(sorted[to].data() + filled[target], to, keys[from].data() + begin, from,
                                                     count * sizeof(key), streams[to]), "cudaMemcpyPeerAsync");
                filled[target] += count, sent += from == to ? 0 : count;
            }
        spent[2] = clock.ms();
        on_each([&](int d, auto const& on) { thrust::sort(on, sorted[d].data(), sorted[d].data() + sorted[d].size()); });
        spent[3] = clock.ms();
        if (turn == 0)
            continue;

        std::printf("%zu keys on %d device%s\n\ndevice   keys before      after   from device 0 it gets them\n", all, devices,
                    devices == 1 ? "" : "s");
        char const* const ways[] = {"nothing", "by a copy within it", "over the link", "through the host", "as CUDA decides"};
        for (int d = 0; d != devices; ++d)
            std::printf("%6d  %12zu %10zu   %s\n", d, keys[d].size(), sorted[d].size(),
                        ways[static_cast<int>(route_of(sorted[d].data(), d, keys[0].data(), 0))]);
        char const* const names[] = {"sort", "agree on marks", "exchange", "sort again"};
        std::printf("\n");
        for (int i = 0; i != 4; ++i)
            std::printf("%-15s %8.2f ms\n", names[i], spent[i]);
        std::printf("exchanged at %.1f GB/s, all devices together\n", static_cast<double>(sent * sizeof(key)) / spent[2] / 1e6);

        auto const before = keys.to_host_sync<std::vector>(), after = sorted.to_host_sync<std::vector>();
        auto const sum = [](auto const& of) { return std::accumulate(of.begin(), of.end(), std::uint64_t{0}); };
        if (!std::is_sorted(after.begin(), after.end()) || sum(before) != sum(after))
            return std::fprintf(stderr, "the keys are not sorted, or are others\n"), 1;
    }
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
