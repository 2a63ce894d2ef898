// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A join of two columns that do not fit: rows are grouped by hash on their way through the device, then joined bucket by bucket.
//
// 'select count(*), sum(l.value * r.value) from l join r on l.key = r.key'. Each table, in pinned memory, goes through the device
// chunk by chunk. There a key is replaced by its hash, which is one to one, and the chunk is sorted, so that rows of one bucket,
// a range of hashes, lie together. Then each bucket of both is gathered, with one copy a chunk, and joined: the right side is
// sorted, and each row of the left one finds its equals by binary search. Three streams take turns, so that buckets arrive
// while the ones before are joined. Many rows of one key make one bucket large; a bucket that does not fit ends in out_of_memory.
//
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <thrust/binary_search.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/staging.hpp>
#include <weir/weir.hpp>

#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const shown = (simulated_cuda::make_device_memory_visible(true), true); // there, Thrust's device is the host
constexpr std::size_t budget = 8 * weir::MiB;
#else
constexpr std::size_t budget = 256 * weir::MiB;
#endif

using weir::interop::thrust::par_nosync;
using row = std::uint64_t; // key and value, 32 bits each: sorted rows are sorted by key
constexpr std::size_t left_rows = 3 * budget / sizeof(row), right_rows = 2 * budget / sizeof(row);
constexpr std::size_t chunk_rows = budget / 8 / sizeof(row); // several are on the device, and what Thrust needs to sort one
constexpr std::size_t buckets = 32, lane_count = 3, threads = budget / 1024;
constexpr row value_bits = 0xFFFFFFFFu;

struct totals {
    std::size_t matches, sum;
};
struct hash_key {
    __host__ __device__ row operator()(row r) const { return (r >> 32) * 2654435761u << 32 | (r & value_bits); }
};

// Thread j takes the rows j, j + threads, j + 2 * threads, ... of the left side.
struct match {
    row const *left, *right;
    std::size_t left_size, right_size;
    totals* sums;
    __host__ __device__ void operator()(std::size_t j) const {
        for (std::size_t i = j; i < left_size; i += threads) {
            row const key = left[i] >> 32;
            row const *const end = right + right_size, *at = thrust::lower_bound(thrust::seq, right, end, key << 32);
            for (; at != end && *at >> 32 == key; ++at)
                ++sums[j].matches, sums[j].sum += (left[i] & value_bits) * (*at & value_bits);
        }
    }
};

cudaStream_t new_stream() {
    cudaStream_t made;
    weir::check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return made; // stays until the program ends
}

// A table in pinned memory, and its rows grouped by bucket, chunk by chunk.
struct table {
    table(weir::pinned_pool& pinned, std::size_t size)
        : rows(pinned, cudaStreamPerThread, size), grouped(pinned, cudaStreamPerThread, size) {
        for (std::size_t i = 0; i != size; ++i) { // two rows of each key, in no order
            row const place = i * 2654435761u % size;
            rows[i] = place / 2 << 32 | place % 1000;
        }
    }
    void group(weir::staging::pinned_ring& ring, weir::device_pool& pool, weir::stream_ref stream) {
        using namespace weir::staging;
        auto const options = streaming_options{}.chunk_bytes(chunk_rows * sizeof(row));
        auto const sort = [&](weir::stream_ref on, auto const& chunk) {
            thrust::transform(par_nosync(pool, on), chunk.data, chunk.data + chunk.size, chunk.data, hash_key{});
            thrust::sort(par_nosync(pool, on), chunk.data, chunk.data + chunk.size);
        };
        auto const from = from_memory(rows.data(), rows.size());
        stream_chunks(ring, pool, stream, from, to_memory(grouped.data(), grouped.size()), options, sort);
    }
    // Enqueues the copies of a bucket.
    void gather(row bucket, weir::device_vector<row>& to) const {
        row const width = ~row{0} / buckets + 1, smallest = bucket * width, largest = smallest + (width - 1);
        to.resize(0);
        for (std::size_t first = 0; first != grouped.size(); first += chunk_rows) {
            row const *const begin = grouped.data() + first, *const end = begin + chunk_rows;
            row const* const here = std::lower_bound(begin, end, smallest);
            to.append(here, static_cast<std::size_t>(std::upper_bound(here, end, largest) - here));
        }
    }
    weir::pinned_vector<row> rows, grouped;
};

// A stream with room for a bucket of both sides, and what it has found.
struct lane {
    explicit lane(weir::device_pool& pool)
        : left(pool, new_stream()), right(pool, left.stream()), sums(pool, left.stream(), threads) {
        left.reserve(left_rows / buckets * 9 / 8), right.reserve(right_rows / buckets * 9 / 8), sums.zero_async();
    }
    weir::device_vector<row> left, right;
    weir::device_vector<totals> sums;
};

totals join(weir::device_pool& pool, table const& left, table const& right) {
    std::vector<lane> lanes;
    while (lanes.size() != lane_count)
        lanes.emplace_back(pool);
    for (row bucket = 0; bucket != buckets; ++bucket) {
        lane& here = lanes[bucket % lane_count];
        left.gather(bucket, here.left), right.gather(bucket, here.right);
        weir::stream_ref const on = here.left.stream();
        thrust::sort(par_nosync(pool, on), here.right.data(), here.right.data() + here.right.size());
        match const work{here.left.data(), here.right.data(), here.left.size(), here.right.size(), here.sums.data()};
        thrust::for_each_n(par_nosync(pool, on), thrust::make_counting_iterator(std::size_t{0}), threads, work);
    }
    totals all{};
    for (lane const& each : lanes)
        for (totals const& part : each.sums.to_host_sync<std::vector>())
            all.matches += part.matches, all.sum += part.sum;
    return all;
}

int main() try {
    weir::stream_ref const stream = new_stream();
    weir::device_pool pool{weir::pool_options{}.name("budget").limit(budget).reserve(budget)};
    weir::pinned_pool pinned;
    weir::staging::pinned_ring ring(pinned);
    table left(pinned, left_rows), right(pinned, right_rows);
    auto const seconds_of = [](auto const& work) {
        auto const begin = std::chrono::steady_clock::now();
        work(), weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    totals found{}, expected{};
    double seconds = 0;
    for (int time = 0; time != 2; ++time) // the first time loads the kernels
        seconds = seconds_of([&] {
            left.group(ring, pool, stream), right.group(ring, pool, stream);
            found = join(pool, left, right);
        });
    for (std::size_t i = 0; i != right_rows; i += 2) // the left side has these keys, and others
        expected.matches += 4, expected.sum += (2 * (i % 1000) + 1) * (2 * (i % 1000) + 1); // of two rows a side
    bool const is_right = found.matches == expected.matches && found.sum == expected.sum;
    std::printf("%zu and %zu rows: %zu matches, sum %zu, %s; the pool held %zu of %zu MiB\n", left_rows, right_rows,
                found.matches, found.sum, is_right ? "as it must be" : "which is wrong", pool.reserved_bytes() / weir::MiB,
                5 * budget / weir::MiB);
    // All rows travel in and out at once, and then in again: what do plain copies take for it?
    weir::device_vector<row> in(pool, stream, chunk_rows * 2), out(pool, new_stream(), chunk_rows * 2);
    auto const copy_in = [&] { in.assign(left.rows.data(), in.size()); };
    double const copies = seconds_of([&] { copy_in(), out.copy_to_async(left.grouped.data()); }) + seconds_of(copy_in);
    double const bound = copies * (left_rows + right_rows) / static_cast<double>(in.size());
    std::printf("%.2f s, %.0f %% of what plain copies reach\n", seconds, 100 * bound / seconds);
    return is_right ? 0 : 1;
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
