// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do the tests of stable memory stand on?
//
// Pools with pages of 2 MiB, the smallest there are; rows of numbers that tell where they belong; and how often the driver was
// called.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/peers.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <utility>
#include <vector>
#include <weir/runtime/wait.hpp>
#include <weir/stable.hpp>

namespace scene {

using support::scoped_stream;
using weir::check_cuda;
using weir::MiB;
using weir::stable_buffer;
using weir::stable_vector;
using weir::stable::page_pool;
using weir::stable::page_pool_options;

constexpr std::size_t page = 2 * MiB;
constexpr std::size_t ints = page / sizeof(int); // in a page

inline page_pool_options small() {
    return page_pool_options{}.page_bytes(page).name("small");
}

/// `count` numbers from `first` on.
inline std::vector<int> counting(std::size_t count, int first = 0) {
    std::vector<int> row(count);
    std::iota(row.begin(), row.end(), first);
    return row;
}

inline std::size_t in_use(page_pool const& pool) {
    return pool.in_use_bytes() / page;
}
inline std::size_t reserved(page_pool const& pool) {
    return pool.reserved_bytes() / page;
}

/// Work on the stream that writes bytes, which need not have run when this returns.
inline void write(cudaStream_t stream, void* at, std::size_t bytes, int value = 7) {
    check_cuda(cudaMemsetAsync(at, value, bytes, stream), "cudaMemsetAsync");
}

#ifdef WEIR_SIMULATED_CUDA
/// How many calls of that name, or whose names begin so, are in the world's log.
inline std::size_t calls_of(std::string const& name) {
    std::string const log = simulated_cuda::log();
    std::size_t count = 0;
    for (std::size_t at = log.find(" " + name); at != std::string::npos; at = log.find(" " + name, at + 1))
        ++count;
    return count;
}
#endif

} // namespace scene
