// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How many addresses does a pool reserve, and which of them have no memory behind them?
//
// Memory in two different reservations does not join. So a pool should get all addresses that it will ever need in one
// reservation: eight times as many bytes as its device has, since a chunk that moves leaves its addresses behind. But a
// process may have thousands of pools, and everything in it shares the addresses. So a pool gets that much only while a row
// of sixteen times as many addresses is left. Otherwise it gets 1 GiB, and twice as much each next time. If the process has
// not even that, the pool gets just what it needs.
//
// invariant: what is taken lies in one reservation; no addresses go back to the process before the end.
// order:     one thread at a time; only 'ran_out' may be called by any thread.
// cost:      two to five driver calls for a reservation; other calls O(gaps).
// not for:   the memory behind the addresses: see upstream::virtual_memory.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/upstream/virtual_memory/free_addresses.hpp>
#include <weir/upstream/virtual_memory/memory_map.hpp>

namespace weir {
inline namespace v0 {
namespace upstream::detail {

/// One thread at a time.
class reservations {
public:
    /// `map` must outlive this object.
    explicit reservations(memory_map const& map) noexcept : map_(map) {}
    reservations(reservations const&) = delete;
    reservations& operator=(reservations const&) = delete;
    /// Nothing may be mapped any more.
    ~reservations() {
        for (base::range const& each : all_)
            map_.unreserve(each);
    }

    /// Makes room, so that the next `more` calls of 'give' do not throw. Throws std::bad_alloc.
    void make_room(std::size_t more) { gaps_.reserve(more); }

    /// Takes `bytes` bytes of addresses from the smallest gap that is large enough; an empty range if none is.
    base::range take(std::size_t bytes) noexcept { return gaps_.take(bytes); }

    /// Takes exactly these addresses. They must start where a gap starts, right behind an address of the same reservation.
    /// Returns whether they were free.
    bool take_at(base::range wanted) noexcept {
        return of(base::range{wanted.offset - 1, wanted.bytes}) && gaps_.take_at(wanted);
    }

    /// Takes back addresses that were taken. Call 'make_room' first.
    void give(base::range freed) noexcept {
        if (base::range const* const here = of(freed))
            gaps_.give(freed, *here);
    }

    /// How many bytes of addresses lie between `end`, where something that was taken ends, and the end of its reservation.
    std::size_t behind(std::size_t end) const noexcept {
        base::range const* const here = of(base::range{end - 1, 1});
        return here ? here->end() - end : 0;
    }

    /// Reserves at least `bytes` more bytes of addresses, which 'take' can then find. It uses up the room for one 'give'.
    /// False if the process has not so many. Throws cuda_error and std::bad_alloc; nothing has changed then.
    bool more(std::size_t bytes) {
        all_.reserve(all_.size() + 1);
        gaps_.reserve(1);
        std::size_t const device_bytes = runtime::device_total_bytes(map_.device_number());
        std::size_t const enough =
            device_bytes < base::most_addresses / 128 ? 8 * base::align_up(device_bytes, memory_map::page_bytes) : 0;
        bool done = bytes <= enough && are_left(16 * enough) && add(enough);
        if (!done)
            done = few(bytes);
        ran_out_.store(!done, base::memory_order_relaxed);
        return done;
    }

    /// Whether the last call of 'more' failed. 'forget' resets this to false.
    bool ran_out() const noexcept { return ran_out_.load(base::memory_order_relaxed); }
    void forget() noexcept { ran_out_.store(false, base::memory_order_relaxed); }

private:
    // Used when addresses are scarce. Others in the process need the last addresses too, so this takes no more than the pool
    // soon needs.
    bool few(std::size_t bytes) {
        std::size_t const usual = next_bytes_ > bytes ? next_bytes_ : bytes;
        for (std::size_t const each : {usual, bytes < usual / 4 ? 4 * bytes : bytes, bytes}) {
            if (add(each)) {
                next_bytes_ = each < base::most_addresses / 256 ? 2 * each : each;
                return true;
            }
            if (each == bytes)
                break;
        }
        return false;
    }

    bool add(std::size_t bytes) {
        base::range const addresses = map_.reserve(bytes);
        if (!addresses)
            return false;
        all_.push_back(addresses);
        gaps_.add(addresses);
        return true;
    }

    bool are_left(std::size_t bytes) const {
        base::range const addresses = map_.reserve(bytes);
        if (addresses)
            map_.unreserve(addresses);
        return static_cast<bool>(addresses);
    }

    // The reservation that contains all of `bytes`; null if none does. Two reservations may touch, and a copy must not lie
    // across both.
    base::range const* of(base::range bytes) const noexcept {
        for (base::range const& each : all_)
            if (each.contains(bytes))
                return &each;
        return nullptr;
    }

    memory_map const& map_;
    free_addresses gaps_;
    base::growing_array<base::range> all_;
    std::size_t next_bytes_ = 1 * GiB;
    base::atomic<bool> ran_out_{false};
};

} // namespace upstream::detail
} // namespace v0
} // namespace weir
