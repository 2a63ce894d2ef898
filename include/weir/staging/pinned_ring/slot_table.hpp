// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When may a slot be used again, and what does a thread do while none may?
//
// A slot is free again once the event behind its copies has been reached. A thread takes any slot that nobody holds and that
// is free. If there is none, it looks for one whose copies have run and out of which the host has still to copy: it does that
// itself, whoever was to do it. If there is none either, it waits for the oldest copy of its own stream, which its next copy
// would have to wait for anyway, or, if there is none, for the oldest of all. It holds no slot meanwhile, so others go on with
// whatever becomes free. So nobody ever waits for a thread that waits.
//
// invariant: a slot is reused only if its event was recorded behind its last copy and has been reached, or if the stream or
//            the device was waited for. If nothing can be known, the slot is stranded: it is counted, and it comes back only
//            when no other slot is left and the device could be waited for.
// invariant: a thread that holds a slot takes others only if it gets them at once. In a function of the user's it takes none.
// cost:      to take a slot: a lock, and as a rule one query (112 ns). To close it: an event (148 ns).
// not for:   choosing what to do if all are in use: see pinned_ring.hpp.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/staging/copy_threads.hpp>
#include <weir/staging/pinned_ring_options.hpp>
#include <weir/staging/ring/ring_slot.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

/// Any thread may call any member, in relaxed capture mode and while the table's device is current. `stream_id`: of the stream
/// that will use the slot, or used it.
class slot_table {
public:
    /// `count` slots without memory, for streams of that device. Throws cuda_error, std::bad_alloc.
    slot_table(std::size_t count, int device) : device_(device) {
        slots_.reserve(count);
        for (std::size_t i = 0; i != count; ++i) {
            slots_.push_back(base::shared<ring_slot>::make());
            slots_.back()->passed = runtime::event(device);
        }
    }
    /// Gives the slots their memory. Nobody else uses the table yet.
    void set_memory(std::byte* memory, std::size_t slot_bytes) noexcept {
        slot_bytes_ = slot_bytes;
        constexpr std::size_t cached = pinned_ring_options::thread_chunk_bytes;
        shared_bytes_ = slot_bytes < cached ? slot_bytes : cached;
        for (std::size_t i = 0; i != slots_.size(); ++i)
            slots_[i]->data = memory + i * slot_bytes;
    }

    std::size_t size() const noexcept { return slots_.size(); }

    /// Calls a function of the user's while `slot` is held. Until it returns, the thread may wait for no slot of this table.
    template <class Function>
    void call_user(ring_slot& slot, Function const& function) {
        struct scope {
            scope(slot_table& in, ring_slot& held) noexcept : table(in), slot(held) {
                slot.user.store(base::this_thread(), base::memory_order_relaxed);
                table.users_.fetch_add(1, base::memory_order_relaxed);
            }
            ~scope() {
                table.users_.fetch_sub(1, base::memory_order_relaxed);
                slot.user.store(0, base::memory_order_relaxed);
            }
            slot_table& table;
            ring_slot& slot;
        } const now(*this, slot);
        function();
    }
    /// Throws usage_error within such a function.
    void require_no_user() const {
        if (users_.load(base::memory_order_relaxed) == 0)
            return;
        for (base::shared<ring_slot> const& each : slots_)
            if (each->user.load(base::memory_order_relaxed) == base::this_thread())
                throw usage_error("weir: a function that converts for a copy through a ring holds one of its slots meanwhile; "
                                  "let it copy through another ring, and wait for copies through this one outside");
    }

    /// How many slots are in use in one of two ways: `copies` counts also those that nobody has looked after.
    std::size_t count(slot_use use) const noexcept {
        std::size_t found = 0;
        for (base::shared<ring_slot> const& each : slots_)
            found += held_slot::wait_for(*each)->use == use;
        return found;
    }

    /// A slot that is free, or, for a chunk that goes to the device, one whose copies are of that stream and that has room for
    /// `chunk_bytes` behind them. Null: there is none. Never blocks. Throws cuda_error.
    held_slot try_take(unsigned long long stream_id, std::size_t chunk_bytes, direction way) {
        std::size_t const first = cursor_.load(base::memory_order_relaxed);
        if (way == direction::to_device && chunk_bytes <= shared_bytes_ / 2)
            for (std::size_t i = slots_.size(); i-- != 0;)
                if (held_slot slot = held_slot::attempt(at(first + i)))
                    if (slot->use == slot_use::copies && slot->stream_id == stream_id && slot->copy == 0 &&
                        slot->filled_bytes + chunk_bytes <= shared_bytes_)
                        return slot;
        for (std::size_t i = 0; i != slots_.size(); ++i)
            if (held_slot slot = held_slot::attempt(at(first + i)))
                if (slot->use == slot_use::none || (slot->out.bytes == 0 && has_run(*slot))) {
                    slot->set_free();
                    cursor_.store((first + i + 1) % slots_.size(), base::memory_order_relaxed);
                    return slot;
                }
        return {};
    }

    /// The same, and blocks until there is one. The caller holds no slot. Throws cuda_error.
    held_slot take(unsigned long long stream_id, std::size_t chunk_bytes, direction way) {
        for (;;) {
            if (held_slot slot = try_take(stream_id, chunk_bytes, way))
                return slot;
            for (base::shared<ring_slot> const& each : slots_)
                if (held_slot slot = held_slot::attempt(*each))
                    if (has_run(*slot)) {
                        empty(*slot);
                        return slot;
                    }
            wait_for_oldest(stream_id);
        }
    }

    /// Puts the event behind the copies that were enqueued on `stream` with the slot, which may be released then. If the event
    /// cannot be recorded, waits for the stream. Throws cuda_error if that fails, too: the slot is stranded.
    void close(ring_slot& slot, stream_ref stream, unsigned long long stream_id) {
        slot.use = slot_use::copies;
        slot.stream_id = stream_id;
        slot.ticket = tickets_.fetch_add(1, base::memory_order_relaxed);
        try {
            slot.passed.record(stream);
        } catch (cuda_error const&) {
            try {
                synchronize(stream);
                empty(slot);
                return;
            } catch (...) { // nothing tells
            }
            slot.set_free();
            slot.use = slot_use::stranded;
            throw;
        }
    }

    /// A number for a copy to the host.
    std::uint64_t new_copy() noexcept { return copies_.fetch_add(1, base::memory_order_relaxed); }

    /// Waits for the oldest chunk of that copy that is under way and copies it out; with `threads`, also others that have
    /// arrived. False: there is none. The caller holds no slot. Throws cuda_error; nothing is lost then.
    bool finish_some(std::uint64_t copy, copy_threads* threads) {
        ring_slot* const oldest = oldest_of_copy(copy);
        if (!oldest)
            return false;
        oldest->passed.synchronize();
        constexpr std::size_t most = 4; // so that the threads have the next chunk at hand
        host_work group[most];
        std::size_t begun = 0;
        auto const start = [&](held_slot&& slot) {
            piece_span const out = slot->out;
            group[begun++].start(std::move(slot), 0, out, direction::to_host, threads);
        };
        if (held_slot slot = held_slot::wait_for(*oldest); slot->copy == copy)
            start(std::move(slot));
        for (std::size_t i = 0; threads && i != slots_.size() && begun != most; ++i)
            if (held_slot slot = held_slot::attempt(*slots_[i]))
                if (slot->copy == copy && slot->passed.reached())
                    start(std::move(slot));
        for (std::size_t i = 0; i != begun; ++i) {
            group[i].finish();
            group[i].slot->set_free();
            group[i].slot.release();
        }
        return true;
    }

    /// Nobody waits for that copy any more, and nothing of it is copied out.
    void forget(std::uint64_t copy) noexcept {
        for (base::shared<ring_slot> const& each : slots_)
            if (held_slot const slot = held_slot::wait_for(*each); slot->copy == copy) {
                slot->copy = 0;
                slot->filled_bytes = slot_bytes_;
                slot->out = {};
            }
    }

    /// Waits for all copies. False if CUDA cannot say that they are over. Nobody else uses the table any more.
    bool wait_for_all() noexcept {
        try {
            bool told = true;
            for (base::shared<ring_slot> const& each : slots_)
                if (each->use != slot_use::none)
                    told =
                        each->use == slot_use::copies && runtime::succeeded(cudaEventSynchronize(each->passed.get())) && told;
            if (!told)
                runtime::wait_for_device(device_);
            return true;
        } catch (...) {
            return false;
        }
    }

private:
    ring_slot& at(std::size_t i) const noexcept { return *slots_[i % slots_.size()]; }

    // Whether a held slot had copies, which are over.
    static bool has_run(ring_slot const& slot) { return slot.use == slot_use::copies && slot.passed.reached(); }

    // Copies out what is left in a held slot whose copies are over, and makes it free.
    static void empty(ring_slot& slot) noexcept {
        detail::copy_by_host(slot.out, slot.data, direction::to_host, 0, slot.out.bytes);
        slot.set_free();
    }

    // Waits for something that may make a slot free, unless one has become so.
    void wait_for_oldest(unsigned long long stream_id) {
        ring_slot* oldest = nullptr;
        ring_slot* held = nullptr;
        std::uint64_t ticket = 0;
        bool own = false, any_free = false;
        for (base::shared<ring_slot> const& each : slots_) {
            held_slot const slot = held_slot::attempt(*each);
            any_free = any_free || (slot && slot->use == slot_use::none);
            if (!slot) {
                held = &*each;
            } else if (slot->use == slot_use::copies) {
                bool const same = slot->stream_id == stream_id;
                if (!oldest || (same && !own) || (same == own && slot->ticket < ticket)) {
                    oldest = &*each;
                    ticket = slot->ticket;
                    own = same;
                }
            }
        }
        if (!any_free)
            wait_for(oldest, held);
    }

    // Waits for the copies of one slot, or else for who holds another.
    void wait_for(ring_slot* oldest, ring_slot* held) {
        if (oldest)
            oldest->passed.synchronize();
        else if (held)
            static_cast<void>(held_slot::wait_for(*held));
        else
            free_stranded();
    }

    ring_slot* oldest_of_copy(std::uint64_t copy) const noexcept {
        ring_slot* oldest = nullptr;
        std::uint64_t ticket = 0;
        for (base::shared<ring_slot> const& each : slots_)
            if (held_slot const slot = held_slot::wait_for(*each); slot->copy == copy && (!oldest || slot->ticket < ticket)) {
                oldest = &*each;
                ticket = slot->ticket;
            }
        return oldest;
    }

    void free_stranded() {
        std::uint64_t const before = tickets_.load(base::memory_order_relaxed);
        runtime::wait_for_device(device_);
        for (base::shared<ring_slot> const& each : slots_)
            if (held_slot const slot = held_slot::wait_for(*each); slot->use == slot_use::stranded && slot->ticket < before)
                slot->set_free();
    }

    base::growing_array<base::shared<ring_slot>> slots_;
    int device_;
    std::size_t slot_bytes_ = 0;
    std::size_t shared_bytes_ = 0; // of a slot, that several copies may share
    base::atomic<std::size_t> cursor_{0}; // the slot behind the one taken last: as a rule the oldest
    base::atomic<std::uint64_t> tickets_{1};
    base::atomic<std::uint64_t> copies_{1};
    base::atomic<std::size_t> users_{0}; // threads in functions of the user's that hold a slot
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
