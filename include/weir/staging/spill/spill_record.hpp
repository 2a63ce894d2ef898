// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is known of one buffer that may be spilled, and who may touch it?
//
// A record belongs to one 'spillable'. It has a lock. Who accesses, moves or ends the buffer holds it; a thread that moves the
// buffer (its mover) holds it until all of that is enqueued, so others who access the buffer wait as long. While a thread moves
// a buffer, code of the user's may run: the function that computes the contents, or a handler of a pool that has no room. That
// may ask about all buffers, spill and end them. So what such members need belongs to the set's lock, and they wait for no
// mover in such code.
//
// invariant: while no thread moves it, place is 'here' if there is a device block, and 'away' if not. The contents are in the
//            device block, in the host block if that is `current`, or in both.
// order:     a thread may take the set's lock while it holds a record's. Under the set's lock it only tries records' locks. A
//            record's lock is held without a mover only where no code of the user's runs.
// cost:      14 ns to lock and unlock a record that nobody else wants.
// not for:   users: see staging/spill.hpp.

#include <cstddef>
#include <cstdint>
#include <weir/base/memory_space.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/staging/spill/access_order.hpp>
#include <weir/staging/victims.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

enum class spill_place : unsigned char {
    away,      // it has no device memory, and counts nothing
    arriving,  // it counts, and a thread brings it in, which waits only for buffers that leave
    computing, // the same, but the user's function runs, which may access others
    here,
    leaving, // it still counts, and a thread takes it out
};

struct spill_record {
    spill_record(pool_ref<memory_space::device> from, std::size_t size, std::size_t aligned)
        : pool(from), bytes(size), alignment(aligned), uses(from.device()), cost(static_cast<double>(size)) {}
    virtual ~spill_record() = default;
    spill_record(spill_record const&) = delete;
    spill_record& operator=(spill_record const&) = delete;

    /// Whether the contents are dropped and computed again.
    virtual bool is_computed() const noexcept { return false; }
    /// Enqueues on `stream` what computes the contents. Throws what the user's function throws.
    virtual void compute(stream_ref, void*) {}

    /// Whether the contents are on the device alone.
    bool needs_copy() const noexcept { return !is_computed() && !is_current; }
    bool needs_host_memory() const noexcept { return needs_copy() && !host; }
    spill_candidate candidate(std::uint64_t now) const noexcept {
        return {bytes, now - last_use, next_use, cost, needs_copy()};
    }

    base::mutex lock;
    pool_ref<memory_space::device> pool;
    std::size_t bytes;
    std::size_t alignment;
    void* device = nullptr;
    void* host = nullptr;
    bool is_current = false; // the host block has the contents
    bool is_orphan = false;  // its owner has ended; the last access, or the mover, ends it. See spill_ledger::leave_to_mover
    bool is_late = false;    // the set has ended before it, and nobody asks it anything any more
    std::size_t live = 0;    // accesses that have not ended
    access_order uses;
    std::uint64_t last_use = 0;

    // These belong to the set's lock.
    std::uint64_t next_use = no_next_use;
    double cost;
    spill_place place = spill_place::away;
    std::uintptr_t mover = 0; // the thread that moves it
    spill_record* before = nullptr;
    spill_record* after = nullptr;
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
