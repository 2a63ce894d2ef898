// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do the tests of staging stand on?
//
// Rings of few, small slots, so that each copy goes round; device memory whose contents can be read; and bytes that tell where
// they belong.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <optional>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <utility>
#include <vector>
#include <weir/runtime/wait.hpp>
#include <weir/staging.hpp>

namespace scene {

using weir::KiB;
using weir::MiB;
using weir::on_host;
using weir::staging::copy_threads;
using weir::staging::full_action;
using weir::staging::pending_copy;
using weir::staging::piece;
using weir::staging::pinned_ring;
using weir::staging::pinned_ring_options;

using octets = std::vector<unsigned char>;
using pinned_pool = support::recording_pool<weir::memory_space::pinned>;

constexpr std::size_t slot_bytes = 4 * KiB;

/// Bytes that differ from their neighbours and, by `seed`, from those of another row.
inline octets counting(std::size_t count, unsigned seed = 0) {
    octets row(count);
    for (std::size_t i = 0; i < count; ++i)
        row[i] = static_cast<unsigned char>((i * 7 + i / 256 * 13 + seed * 31 + 1) & 0xFF);
    return row;
}

/// Small slots, through which all copies of ordinary memory go, in chunks that are not cut further, unless a test says so.
inline pinned_ring_options small(std::size_t slots = 2) {
    return pinned_ring_options{}.slots(slots).slot_bytes(slot_bytes).least_chunk(slot_bytes).leave_to_cuda_from(SIZE_MAX).name("small");
}

/// A pinned pool and a ring over it.
struct ringed {
    explicit ringed(pinned_ring_options const& options = small()) : ring(pool, options) {}
    pinned_pool pool;
    pinned_ring ring;
};

/// Memory of the device.
class memory {
public:
    explicit memory(std::size_t bytes) : bytes_(bytes) {
        weir::check_cuda(cudaMalloc(&p_, bytes != 0 ? bytes : 1), "cudaMalloc");
        weir::check_cuda(cudaMemset(p_, 0xAA, bytes != 0 ? bytes : 1), "cudaMemset");
        weir::synchronize(cudaStreamLegacy); // and not the device: what is under way stays so
    }
    explicit memory(octets const& with) : memory(with.size()) {
        if (!with.empty())
            weir::check_cuda(cudaMemcpy(p_, with.data(), with.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
        weir::synchronize(cudaStreamLegacy);
    }
    memory(memory const&) = delete;
    memory& operator=(memory const&) = delete;
    ~memory() { static_cast<void>(cudaFree(p_)); }

    unsigned char* at(std::size_t offset = 0) const { return static_cast<unsigned char*>(p_) + offset; }
    /// The contents once the stream is done.
    octets contents(weir::stream_ref after) const {
        weir::synchronize(after);
        octets row(bytes_);
        if (bytes_ != 0)
            weir::check_cuda(cudaMemcpy(row.data(), p_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
        return row;
    }

private:
    std::size_t bytes_;
    void* p_ = nullptr;
};

/// A row goes to the device and comes back, and is what it was.
inline void check_round_trip(pinned_ring& ring, weir::stream_ref stream, std::size_t bytes, unsigned seed = 5) {
    octets const row = counting(bytes, seed);
    memory const there(bytes);
    octets source = row;
    weir::staging::copy_to_device_async(ring, stream, there.at(), source.data(), bytes);
    std::fill(source.begin(), source.end(), static_cast<unsigned char>(0xEE)); // it was read
    octets back(bytes, 0xDD);
    weir::staging::copy_to_host_sync(ring, stream, back.data(), there.at(), bytes);
    CHECK(back == row);
    CHECK(there.contents(stream) == row);
}

} // namespace scene
