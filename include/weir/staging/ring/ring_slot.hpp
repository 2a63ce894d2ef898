// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is known of one slot of a ring, and who may touch it?
//
// A slot is a piece of pinned memory with a lock. A thread holds the lock while it fills the slot, enqueues the copies out of
// it or into it, and records the event behind them; or while it copies out, by the host, what the device has copied in. It
// never holds it while it waits for the device. What the host has to copy out is written in the slot, so that any thread that
// needs a slot can do it.
//
// invariant: a slot's memory is written only while no copy that is under way uses it: the slot is free, or the bytes lie
//            behind those in use.
// order:     what a thread did to a slot is seen by the next one that holds its lock.
// cost:      14 ns to lock and unlock a slot that nobody else wants.
// not for:   waiting: events are waited for without the lock (pinned_ring.hpp).

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/runtime/event.hpp>
#include <weir/staging/copy_threads.hpp>
#include <weir/staging/ring/piece_cursor.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

enum class slot_use : unsigned char {
    none,     // nothing uses the memory
    copies,   // copies are under way, or were; the event tells
    stranded, // copies may be under way, and no event tells
};

struct ring_slot {
    base::mutex lock; // all but 'passed', which any thread may wait for, and 'user' belongs to the one who holds this
    runtime::event passed;
    std::byte* data = nullptr;
    slot_use use = slot_use::none;
    unsigned long long stream_id = 0; // of the copies
    std::uint64_t ticket = 0;         // tells which of two slots is older
    std::size_t filled_bytes = 0;     // in front, that the copies use
    std::uint64_t copy = 0;           // whose copy to the host this is: pending_copy's number; 0: nobody waits for it
    piece_span out;                   // what the host has to copy out afterwards
    piece own;                        // where `out` points if it is a plain copy
    base::atomic<std::uintptr_t> user{0}; // the thread that holds it and calls a function of the user's; 0: none

    void set_free() noexcept {
        use = slot_use::none;
        filled_bytes = 0;
        copy = 0;
        out = piece_span();
    }
};

/// A slot whose lock is held, or none. Movable.
class held_slot {
public:
    held_slot() noexcept = default;
    /// The slot; none if another thread holds it. Never blocks.
    static held_slot attempt(ring_slot& slot) noexcept { return slot.lock.try_lock() ? held_slot(slot) : held_slot(); }
    /// Blocks while another thread holds the slot, which waits for nothing but the host's work.
    static held_slot wait_for(ring_slot& slot) noexcept {
        slot.lock.lock();
        return held_slot(slot);
    }
    held_slot(held_slot&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    held_slot& operator=(held_slot&& other) noexcept {
        release();
        slot_ = std::exchange(other.slot_, nullptr);
        return *this;
    }
    ~held_slot() { release(); }

    explicit operator bool() const noexcept { return slot_ != nullptr; }
    ring_slot* operator->() const noexcept { return slot_; }
    ring_slot& operator*() const noexcept { return *slot_; }

    void release() noexcept {
        if (slot_)
            std::exchange(slot_, nullptr)->lock.unlock();
    }

private:
    explicit held_slot(ring_slot& slot) noexcept : slot_(&slot) {}

    ring_slot* slot_ = nullptr;
};

/// What the host does with a slot: it copies a chunk into it or out of it, alone or with others. It stays where it is, and its
/// end waits for the others.
class host_work {
public:
    host_work() noexcept = default;
    host_work(host_work const&) = delete;
    host_work& operator=(host_work const&) = delete;
    ~host_work() { finish(); }

    /// Begins with `chunk`, which goes to or comes from the slot's memory `at_bytes` in. `threads`: who helps; null: nobody.
    /// Without them nothing is done before 'finish'.
    void start(held_slot&& in, std::size_t at_bytes, piece_span const& what, direction to, copy_threads* threads) noexcept {
        slot = std::move(in);
        at = at_bytes;
        chunk = what;
        way = to;
        threads_ = threads;
        begun_ = true;
        work_ = shared_work();
        work_.run = [](void* self, std::size_t begin, std::size_t end) { static_cast<host_work*>(self)->copy(begin, end); };
        work_.what = this;
        work_.bytes = chunk.bytes;
        if (threads_)
            threads_->start(work_);
    }
    /// Ends with what was begun, if anything was.
    void finish() noexcept {
        if (!std::exchange(begun_, false))
            return;
        if (threads_)
            threads_->finish(work_);
        else
            copy(0, chunk.bytes);
    }

    held_slot slot;
    std::size_t at = 0;
    piece_span chunk;
    direction way = direction::to_device;

private:
    void copy(std::size_t begin, std::size_t end) noexcept { detail::copy_by_host(chunk, slot->data + at, way, begin, end); }

    copy_threads* threads_ = nullptr;
    shared_work work_;
    bool begun_ = false;
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
