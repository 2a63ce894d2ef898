// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a pool hold of the driver, how often did it ask, and how often did it make anybody wait?
//
// Every pool but CUDA's is measured in the same place, where it asks the driver for memory or gives it back,
// and by the same rule. The driver maps device memory in pages of 2 MiB: a request of 2 MiB or more has pages
// of its own, smaller ones share pages in steps of 512 bytes (seen on an H200 with cudaMemGetInfo). We count
// the shared pages as if they were packed without a hole, so nobody is charged more than the device lost.
//
// invariant: reserved_bytes() is a multiple of 2 MiB, and zero when all that was acquired is released.
// cost:      a few instructions a call; a cudaMalloc takes some 20,000 ns.
// not for:   cudaMallocAsync: there CUDA itself says what its pool holds.

#include <cstddef>
#include <cstdint>
#include <weir/base/size.hpp>

namespace replay {

inline constexpr std::size_t no_limit = static_cast<std::size_t>(-1);

/// What a call does.
struct call_kind {
    bool is_about_memory; ///< it asks the driver for memory, or gives some back
    bool waits;           ///< the device or the host may have to stand still for it
    bool orders_streams = false; ///< a stream waits for another one's work
};
inline constexpr call_kind memory_call{true, false};         // cuMemCreate, cudaFreeAsync, ...
inline constexpr call_kind waiting_memory_call{true, true};  // cudaMalloc, cudaFree, cudaHostAlloc, ...
inline constexpr call_kind wait_alone{false, true};          // cudaStreamSynchronize, ...
inline constexpr call_kind stream_wait{false, false, true};  // cudaStreamWaitEvent

class ledger {
public:
    static constexpr std::size_t page_bytes = 2 * weir::MiB;
    static constexpr std::size_t shared_below_bytes = 2 * weir::MiB;
    static constexpr std::size_t shared_step_bytes = 512;

    /// Bytes of the driver's memory that a request of `bytes` takes, for itself.
    static constexpr std::size_t taken_by(std::size_t bytes) noexcept {
        return weir::base::align_up(bytes, bytes < shared_below_bytes ? shared_step_bytes : page_bytes);
    }

    explicit ledger(std::size_t limit_bytes = no_limit) : limit_bytes_(limit_bytes) {}

    /// Whether a request of `bytes` stays within the limit. Counts the request if it does not: it was made.
    bool admits(std::size_t bytes) noexcept {
        bool const fits = bytes <= limit_bytes_ && reserved_with(bytes) <= limit_bytes_;
        if (!fits)
            called(waiting_memory_call);
        return fits;
    }

    /// cudaMalloc was asked for `bytes` and gave them or not: a call.
    void asked(std::size_t bytes, bool got_them) noexcept {
        called(waiting_memory_call);
        if (got_them)
            got(bytes);
    }

    /// `bytes` of cudaMalloc's went back by cudaFree: a call.
    void gave_back(std::size_t bytes) noexcept {
        called(waiting_memory_call);
        lost(bytes);
    }

    /// The same apart, where calls and bytes are seen in two places.
    void called(call_kind kind) noexcept {
        calls_ += kind.is_about_memory;
        waiting_calls_ += kind.waits;
        stream_waits_ += kind.orders_streams;
    }
    void got(std::size_t bytes) noexcept { count_for(bytes) += taken_by(bytes); }
    void lost(std::size_t bytes) noexcept { count_for(bytes) -= taken_by(bytes); }

    /// Bytes held from the driver now, in whole pages.
    std::size_t reserved_bytes() const noexcept {
        return own_bytes_ + weir::base::align_up(shared_bytes_, page_bytes);
    }

    /// How often the driver was asked for memory or given some back.
    std::uint64_t calls() const noexcept { return calls_; }

    /// How often a call was made for which the device or the host may have to stand still.
    std::uint64_t waiting_calls() const noexcept { return waiting_calls_; }

    /// How often a stream was made to wait for another one; of weir's pools alone.
    std::uint64_t stream_waits() const noexcept { return stream_waits_; }

private:
    std::size_t& count_for(std::size_t bytes) noexcept {
        return bytes < shared_below_bytes ? shared_bytes_ : own_bytes_;
    }
    std::size_t reserved_with(std::size_t bytes) const noexcept {
        ledger after = *this;
        after.count_for(bytes) += taken_by(bytes);
        return after.reserved_bytes();
    }

    std::size_t limit_bytes_;
    std::size_t own_bytes_ = 0;    // pages that one request has to itself
    std::size_t shared_bytes_ = 0; // small requests
    std::uint64_t calls_ = 0;
    std::uint64_t waiting_calls_ = 0;
    std::uint64_t stream_waits_ = 0;
};

} // namespace replay
