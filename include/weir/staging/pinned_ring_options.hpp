// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What may a user choose about a ring, and what does a ring tell about itself?
//
// How many slots it has and how large they are, which threads help it, and what happens when all slots are in use. The
// defaults need no tuning. Options are set in a chain: pinned_ring_options{}.slots(16).name("loader").
//
// cost:      a text and a few words, copied once.
// not for:   the kind of memory: that is the pool's.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// What a copy does if every slot of the ring is in use as it begins. Once it has begun, it waits. A copy to page-locked memory
/// needs a slot, too, for its event.
enum class full_action : unsigned char {
    wait,          ///< blocks until the oldest copy has run: of its own stream if there is one, or of any
    copy_directly, ///< is left to CUDA's own staging, which may block; to page-locked memory: blocks until it has run
    refuse         ///< throws out_of_memory; nothing has been enqueued then
};

/// What a pinned_ring is told when it is made: its slots, the threads that help, and what happens if all slots are in use.
class pinned_ring_options {
public:
    /// The most of a chunk that one thread copies, in bytes: what it writes is still in its caches when the device reads it.
    static constexpr std::size_t thread_chunk_bytes = 1 * MiB;

    /// How many slots there are, 8 by default; 1 to 1024. More: more copies under way, and more threads without waiting.
    pinned_ring_options& slots(std::size_t count) noexcept { return slots_ = count, *this; }
    /// The size of a slot in bytes, 8 MiB by default; rounded up to 256. More: threads that copy together meet less often.
    /// Less: less memory. A copy is cut into chunks of a slot, but of at most 1 MiB for each thread that copies.
    pinned_ring_options& slot_bytes(std::size_t bytes) noexcept { return slot_bytes_ = bytes, *this; }
    /// The least part, in bytes, into which a copy is cut so that its parts overlap; 256 KiB by default.
    pinned_ring_options& least_chunk(std::size_t bytes) noexcept { return least_chunk_bytes_ = bytes, *this; }
    /// Threads that help with copies of `from_bytes` bytes or more, 1 MiB by default. They outlive the ring. Without this the
    /// calling thread copies alone.
    pinned_ring_options& threads(copy_threads& helpers, std::size_t from_bytes = 1 * MiB) noexcept {
        return threads_ = &helpers, threads_from_bytes_ = from_bytes, *this;
    }
    /// Copies of one piece to the host, of `bytes` bytes or more, with which no thread helps and for which the caller blocks in
    /// any case: these are left to CUDA, whose own staging is faster than one thread. 1 MiB by default; SIZE_MAX: none.
    pinned_ring_options& leave_to_cuda_from(std::size_t bytes) noexcept { return leave_to_cuda_bytes_ = bytes, *this; }
    /// What happens if every slot is in use; `wait` by default.
    pinned_ring_options& on_full(full_action action) noexcept { return on_full_ = action, *this; }
    /// The number of the device to and from which the ring copies; any_device, the default: the device that is current when the
    /// ring is made.
    pinned_ring_options& device(int number) noexcept { return device_ = number, *this; }
    /// The ring's name in reports and errors; 'ring' by default.
    pinned_ring_options& name(text name) { return name_ = std::move(name), *this; }

    std::size_t slots() const noexcept { return slots_; }
    std::size_t slot_bytes() const noexcept { return slot_bytes_; }
    std::size_t least_chunk_bytes() const noexcept { return least_chunk_bytes_; }
    copy_threads* threads() const noexcept { return threads_; }
    /// The least bytes of a copy in which 'threads' help.
    std::size_t threads_from_bytes() const noexcept { return threads_from_bytes_; }
    std::size_t leave_to_cuda_from_bytes() const noexcept { return leave_to_cuda_bytes_; }
    full_action on_full() const noexcept { return on_full_; }
    int device() const noexcept { return device_; }
    text const& name() const noexcept { return name_; }

private:
    std::size_t slots_ = 8;
    std::size_t slot_bytes_ = 8 * MiB;
    std::size_t least_chunk_bytes_ = 256 * KiB;
    copy_threads* threads_ = nullptr;
    std::size_t threads_from_bytes_ = 1 * MiB;
    std::size_t leave_to_cuda_bytes_ = 1 * MiB;
    full_action on_full_ = full_action::wait;
    int device_ = any_device;
    text name_ = "ring";
};

/// What a ring tells about itself. The counts begin with the ring; a chunk is the part of a copy that goes through one slot.
struct pinned_ring_state {
    std::size_t slots = 0;
    std::size_t slot_bytes = 0;
    std::size_t used_slots = 0;     ///< of which a copy is under way or was not yet looked after
    std::size_t stranded_slots = 0; ///< whose copy may be under way for ever: CUDA could say nothing about it
    std::uint64_t staged_chunks = 0;
    std::uint64_t staged_bytes = 0;
    std::uint64_t direct_bytes = 0; ///< of copies without a slot: page-locked host memory, and what CUDA copies faster alone
    std::uint64_t waits = 0;        ///< chunks that found the ring full and waited for a copy
    std::uint64_t left_to_cuda = 0; ///< copies that found it full and were left to CUDA
    std::uint64_t refusals = 0;     ///< copies that found it full and were refused
};

} // namespace staging
} // namespace v0
} // namespace weir
