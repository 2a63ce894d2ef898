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
#include <initializer_list>
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

using row = std::uint64_t; // key and value, 32 bits each: sorted rows are sorted by key
constexpr std::size_t left_rows = 3 * budget / sizeof(row), right_rows = 2 * budget / sizeof(row);
constexpr std::size_t chunk_rows = budget / 8 / sizeof(row); // three on the device, and what Thrust needs to sort one
constexpr unsigned bucket_bits = 5;
constexpr std::size_t lane_count = 3, threads = budget / 1024;

static_assert(left_rows % chunk_rows == 0 && right_rows % chunk_rows == 0);

struct hash_key {
    __host__ __device__ row operator()(row r) const { return ((r >> 32) * 2654435761u) << 32 | (r & 0xFFFFFFFFu); }
};

struct totals {
    std::uint64_t matches, sum;
};

// Thread j takes every so manyth row of the left side, beginning with the j-th.
struct match {
    row const *left, *right;
    std::size_t left_size, right_size;
    totals* sums;
    __host__ __device__ void operator()(std::size_t j) const {
        for (std::size_t i = j; i < left_size; i += threads) {
            row const wanted = left[i] >> 32;
            std::size_t at = 0;
            for (std::size_t end = right_size; at != end;) {
                std::size_t const middle = at + (end - at) / 2;
                right[middle] >> 32 < wanted ? at = middle + 1 : end = middle;
            }
            for (; at != right_size && right[at] >> 32 == wanted; ++at)
                ++sums[j].matches, sums[j].sum += (left[i] & 0xFFFFFFFFu) * (right[at] & 0xFFFFFFFFu);
        }
    }
};

// A table in pinned memory, and its rows grouped by bucket, chunk by chunk.
struct table {
    table(weir::pinned_pool& pinned, std::size_t size)
        : rows(pinned, cudaStreamPerThread, size), grouped(pinned, cudaStreamPerThread, size) {}
    void group(weir::staging::pinned_ring& ring, weir::device_pool& pool, weir::stream_ref stream) {
        using namespace weir::staging;
        auto const options = streaming_options{}.chunk_bytes(chunk_rows * sizeof(row));
        auto const sort = [&](weir::stream_ref on, auto const& chunk) {
            auto const with = weir::interop::thrust::par_nosync(pool, on);
            thrust::transform(with, chunk.data, chunk.data + chunk.size, chunk.data, hash_key{});
            thrust::sort(with, chunk.data, chunk.data + chunk.size);
        };
        stream_chunks(ring, pool, stream, from_memory(rows.data(), rows.size()), to_memory(grouped.data(), grouped.size()),
                      options, sort);
    }
    // Enqueues the copies of a bucket.
    void gather(row bucket, weir::device_vector<row>& to) const {
        row const smallest = bucket << (64 - bucket_bits), largest = smallest | ~row{0} >> bucket_bits;
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
        : left(pool, make_stream()), right(pool, left.stream()), sums(pool, left.stream(), threads) {
        left.reserve((left_rows >> bucket_bits) * 9 / 8), right.reserve((right_rows >> bucket_bits) * 9 / 8);
        sums.zero_async();
    }
    static cudaStream_t make_stream() {
        cudaStream_t made = nullptr;
        weir::check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        return made; // as long as the program
    }
    weir::device_vector<row> left, right;
    weir::device_vector<totals> sums;
};

totals join(weir::device_pool& pool, table const& left, table const& right) {
    std::vector<lane> lanes;
    while (lanes.size() != lane_count)
        lanes.emplace_back(pool);
    for (row bucket = 0; bucket != row{1} << bucket_bits; ++bucket) {
        lane& here = lanes[bucket % lane_count];
        left.gather(bucket, here.left), right.gather(bucket, here.right);
        auto const stream = here.left.stream();
        thrust::sort(weir::interop::thrust::par_nosync(pool, stream), here.right.begin(), here.right.end());
        match const work{here.left.data(), here.right.data(), here.left.size(), here.right.size(), here.sums.data()};
        thrust::for_each_n(weir::interop::thrust::par_nosync(pool, stream), thrust::make_counting_iterator(std::size_t{0}),
                           threads, work);
    }
    totals all{};
    for (lane const& each : lanes)
        for (totals const& part : each.sums.to_host_sync<std::vector>())
            all.matches += part.matches, all.sum += part.sum;
    return all;
}

template <class Work>
double seconds_of(Work const& work) {
    auto const begin = std::chrono::steady_clock::now();
    work();
    weir::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int main() try {
    weir::stream_ref const stream = cudaStreamPerThread;
    weir::device_pool pool{weir::pool_options{}.name("budget").limit(budget).reserve(budget)};
    weir::pinned_pool pinned;
    weir::staging::pinned_ring ring(pinned);
    table left(pinned, left_rows), right(pinned, right_rows);
    for (table* const each :
         {&left, &right}) // two rows of each key, in no order; the left side has keys that the right has not
        for (std::size_t i = 0, size = each->rows.size(); i != size; ++i) {
            row const place = i * 2654435761u % size;
            each->rows[i] = place / 2 << 32 | place % 1000;
        }
    totals found{}, expected{};
    double const seconds = seconds_of([&] {
        left.group(ring, pool, stream), right.group(ring, pool, stream);
        found = join(pool, left, right);
    });
    for (std::size_t i = 0; i != right_rows; i += 2)
        expected.matches += 4, expected.sum += (i % 1000 + (i + 1) % 1000) * (i % 1000 + (i + 1) % 1000);
    bool const right_answer = found.matches == expected.matches && found.sum == expected.sum;
    std::printf("%zu and %zu MiB: %llu matches, sum %llu, %s; the pool held %zu MiB\n", left_rows * sizeof(row) / weir::MiB,
                right_rows * sizeof(row) / weir::MiB, static_cast<unsigned long long>(found.matches),
                static_cast<unsigned long long>(found.sum), right_answer ? "as it must be" : "which is wrong",
                pool.reserved_bytes() / weir::MiB);
    // All rows travel in and out at once, and then in again: what do plain copies take for it?
    weir::device_vector<row> in(pool, stream, chunk_rows * 2), out(pool, cudaStreamLegacy, chunk_rows * 2);
    auto const copy_in = [&] { in.assign(left.rows.data(), in.size()); };
    double const copies = seconds_of([&] { copy_in(), out.copy_to_async(left.grouped.data()); }) + seconds_of(copy_in);
    double const bound = copies * (left_rows + right_rows) / static_cast<double>(in.size());
    std::printf("%.2f s, %.0f %% of what plain copies reach\n", seconds, 100 * bound / seconds);
    return right_answer ? 0 : 1;
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
