// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Through which memory do copies between ordinary host memory and a device go?
//
// Through the slots of a ring: a few pieces of page-locked memory, which are allocated once. To the device, the host copies a
// chunk into a slot, and the stream copies it on while the host fills the next one. To the host, the stream copies into slots,
// and the host copies out of them. Any number of threads share the slots. If all are in use, a copy waits for one, is left to
// CUDA, or is refused, as the options say.
//
// invariant: a slot's memory is written only when no copy under way uses it (slot_table.hpp).
// order:     a chunk's copy is on the caller's stream. The ring itself orders no streams.
// cost:      its slots, 64 MiB unless the options say otherwise. No host memory and no driver allocation after the constructor.
// not for:   several devices: each needs a ring. Write-combined pools, for copies to the host. A stream whose work waits for
//            something that a thread does after it copied through the ring: the thread may be waiting for that work.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/staging/pinned_ring_options.hpp>
#include <weir/staging/pinned_ring/slot_table.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// A ring over any pool of page-locked memory. Any thread may call any member. Not copyable. The pool and the copying threads
/// outlive the ring, and the ring outlives each pending_copy. To copy through it, see staging/copy.hpp.
class pinned_ring {
    using counter = base::atomic<std::uint64_t>;

public:
    /// Allocates the slots from `pool`. Blocks. Throws usage_error for options that cannot be, and for a pool of managed
    /// memory; what the pool's 'allocate' throws (an out_of_memory also names the ring); cuda_error; std::bad_alloc.
    explicit pinned_ring(pool_ref<memory_space::pinned> pool, pinned_ring_options const& options = {})
        : pool_(pool), options_(valid(pool, options)), device_(runtime::existing_device(options.device())),
          slot_bytes_(base::align_up(options.slot_bytes(), 256)), slots_(options.slots(), device_),
          memory_(allocate()) {
        slots_.set_memory(memory_, slot_bytes_);
    }
    /// Refused with a sentence: a pool of pageable memory.
    template <class Pool, class = std::enable_if_t<Pool::space == memory_space::host>>
    explicit pinned_ring(Pool&, pinned_ring_options const& options = {}) : pinned_ring(refused<Pool>(), options) {}
    pinned_ring(pinned_ring const&) = delete;
    pinned_ring& operator=(pinned_ring const&) = delete;
    /// Waits for the copies under way and gives the memory back to the pool. If CUDA cannot say that they are over, the pool
    /// does not get it back and counts it as handed out.
    ~pinned_ring() {
        bool const over = base::try_twice([this] {
            runtime::device_scope const here(device_);
            runtime::capture_mode_scope const relaxed;
            return slots_.wait_for_all();
        });
        if (over)
            pool_.deallocate(on_host, memory_, bytes());
    }

    /// The number of the device to and from which it copies.
    int device() const noexcept { return device_; }
    /// The size of a slot, in bytes.
    std::size_t slot_bytes() const noexcept { return slot_bytes_; }
    pinned_ring_options const& options() const noexcept { return options_; }

    /// What it did so far, and how many slots are in use. Others may go on meanwhile. Does not wait for the device.
    pinned_ring_state state() const noexcept {
        pinned_ring_state now;
        now.slots = slots_.size();
        now.slot_bytes = slot_bytes_;
        now.stranded_slots = slots_.count(detail::slot_use::stranded);
        now.used_slots = now.stranded_slots + slots_.count(detail::slot_use::copies);
        now.staged_chunks = staged_chunks_.load(base::memory_order_relaxed);
        now.staged_bytes = staged_bytes_.load(base::memory_order_relaxed);
        now.direct_bytes = direct_bytes_.load(base::memory_order_relaxed);
        now.waits = waits_.load(base::memory_order_relaxed);
        now.left_to_cuda = left_to_cuda_.load(base::memory_order_relaxed);
        now.refusals = refusals_.load(base::memory_order_relaxed);
        return now;
    }
    /// The same in a line. Throws std::bad_alloc.
    text report() const {
        pinned_ring_state const now = state();
        auto const number = [](std::uint64_t n) { return base::number_text(static_cast<std::size_t>(n)); };
        auto const size = [](std::uint64_t n) { return base::bytes_text(static_cast<std::size_t>(n)); };
        return "ring '" + options_.name() + "': " + base::count_text(now.slots, " slot") + " of " + size(now.slot_bytes) +
               ", " + number(now.used_slots) + " in use, " + number(now.stranded_slots) + " stranded; " +
               size(now.staged_bytes) + " staged in " +
               base::count_text(static_cast<std::size_t>(now.staged_chunks), " chunk") + ", " + size(now.direct_bytes) +
               " copied directly; full: " + number(now.waits) + " waited, " + number(now.left_to_cuda) + " left to CUDA, " +
               number(now.refusals) + " refused";
    }

    // What follows is for staging's own functions.

    /// A slot for the chunk with which a copy begins, or for the event behind a direct copy; see slot_table. Null: the ring is
    /// full, and the copy is to be left to CUDA. Blocks while the ring is full, if the options say so. The caller holds no
    /// slot. Throws out_of_memory if the copy is refused; usage_error in a function of the user's that is called for a slot;
    /// cuda_error.
    detail::held_slot begin(unsigned long long stream_id, std::size_t chunk_bytes, detail::direction way) {
        slots_.require_no_user();
        if (detail::held_slot slot = slots_.try_take(stream_id, chunk_bytes, way))
            return slot;
        if (options_.on_full() == full_action::wait)
            return take(stream_id, chunk_bytes, way);
        if (options_.on_full() == full_action::refuse)
            refuse(chunk_bytes);
        count(left_to_cuda_, 1);
        return {};
    }
    /// A slot for a later chunk. Blocks while the ring is full. The caller holds no slot. Throws usage_error as 'begin';
    /// cuda_error.
    detail::held_slot take(unsigned long long stream_id, std::size_t chunk_bytes, detail::direction way) {
        slots_.require_no_user();
        if (detail::held_slot slot = slots_.try_take(stream_id, chunk_bytes, way))
            return slot;
        count(waits_, 1);
        return slots_.take(stream_id, chunk_bytes, way);
    }
    detail::slot_table& slots() noexcept { return slots_; }
    void count_staged(std::size_t bytes) noexcept {
        count(staged_chunks_, 1);
        count(staged_bytes_, bytes);
    }
    void count_direct(std::size_t bytes) noexcept { count(direct_bytes_, bytes); }

private:
    static pinned_ring_options const& valid(pool_ref<memory_space::pinned> pool, pinned_ring_options const& options) {
        constexpr std::size_t most_slots = 1024;
        if (pool.space() != memory_space::pinned)
            throw usage_error(
                "weir: a ring needs memory that stays where it is, and managed memory moves to whoever touches it; "
                "give the ring a pinned pool");
        if (options.slots() == 0 || options.slots() > most_slots)
            throw usage_error("weir: a ring has 1 to " + base::number_text(most_slots) + " slots; got " +
                              base::number_text(options.slots()));
        if (options.slot_bytes() == 0 || options.slot_bytes() > base::most_addresses / most_slots)
            throw usage_error("weir: a slot of a ring has 1 byte to " + base::bytes_text(base::most_addresses / most_slots) +
                              "; got " + base::exact_bytes_text(options.slot_bytes()));
        return options;
    }
    template <class Pool>
    [[noreturn]] static pool_ref<memory_space::pinned> refused() {
        static_assert(Pool::space != memory_space::host,
                      "weir: a ring needs page-locked memory, between which and the device a stream copies while the host goes "
                      "on, and a host pool's is pageable; give the ring a pinned pool, such as 'weir::pinned_pool'");
        throw usage_error("weir: a ring needs page-locked memory");
    }
    static void count(counter& of, std::uint64_t more) noexcept { of.fetch_add(more, base::memory_order_relaxed); }

    std::size_t bytes() const noexcept { return slot_bytes_ * slots_.size(); }

    std::byte* allocate() {
        try {
            return static_cast<std::byte*>(pool_.allocate(on_host, bytes()));
        } catch (out_of_memory const& error) {
            refusal why = error.refused();
            why.reason = why.reason + "; it is for ring '" + options_.name() + "' with " +
                         base::count_text(slots_.size(), " slot") + " of " + base::bytes_text(slot_bytes_) +
                         ", so fewer or smaller ones need less ('pinned_ring_options::slots', 'slot_bytes')";
            throw out_of_memory(error.asked_bytes(), why);
        }
    }

    [[noreturn, gnu::noinline]] void refuse(std::size_t asked_bytes) {
        count(refusals_, 1);
        memory_report now;
        now.name = options_.name();
        now.in_use_bytes = now.reserved_bytes = now.limit_bytes = bytes();
        throw out_of_memory(asked_bytes,
                            {now, "every slot of the ring is in use; wait for a copy, give the ring more slots, or let it wait "
                                  "('full_action::wait')"},
                            "ring");
    }

    pool_ref<memory_space::pinned> pool_;
    pinned_ring_options options_;
    int device_;
    std::size_t slot_bytes_;
    detail::slot_table slots_;
    std::byte* memory_;
    counter staged_chunks_{0};
    counter staged_bytes_{0};
    counter direct_bytes_{0};
    counter waits_{0};
    counter left_to_cuda_{0};
    counter refusals_{0};
};

} // namespace staging
} // namespace v0
} // namespace weir
