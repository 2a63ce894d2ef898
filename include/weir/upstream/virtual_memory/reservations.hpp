// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How many addresses does a pool reserve, and which of them are free?
//
// What lies in two reservations does not join, so a pool gets all that it will ever need in one: eight times what its device
// has, since chunks that move leave addresses behind. But a process may have thousands of pools, and everything in it shares
// its addresses. So that much is reserved only while sixteen times as many are left in a row; else a pool gets 1 GiB, twice as
// many each time, and where the process has not so many, at last just what it needs.
//
// invariant: what is taken lies in one reservation; nothing goes back to the process before the end.
// order:     one thread at a time; 'ran_out' is for any.
// cost:      two to five calls of the driver a reservation; else O(gaps).
// not for:   memory behind the addresses: see upstream::virtual_memory.

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
    /// `map` outlives it.
    explicit reservations(memory_map const& map) noexcept : map_(map) {}
    reservations(reservations const&) = delete;
    reservations& operator=(reservations const&) = delete;
    /// Nothing is mapped any more.
    ~reservations() {
        for (base::range const& each : all_)
            map_.unreserve(each);
    }

    /// Makes room, so that the next `more` calls of 'give' do not throw. Throws std::bad_alloc.
    void make_room(std::size_t more) { gaps_.reserve(more); }

    /// Addresses of the smallest gap that has as many; an empty range where none has.
    base::range take(std::size_t bytes) noexcept { return gaps_.take(bytes); }

    /// Takes just these, right behind an address of the same reservation, where a gap starts; whether they are free.
    bool take_at(base::range wanted) noexcept {
        return of(base::range{wanted.offset - 1, wanted.bytes}) && gaps_.take_at(wanted);
    }

    /// Takes back what was taken; after 'make_room'.
    void give(base::range freed) noexcept {
        if (base::range const* const here = of(freed))
            gaps_.give(freed, *here);
    }

    /// How many there are from `end`, where something that was taken ends, to the end of its reservation.
    std::size_t behind(std::size_t end) const noexcept {
        base::range const* const here = of(base::range{end - 1, 1});
        return here ? here->end() - end : 0;
    }

    /// Reserves more, `bytes` at least, for 'take'; uses up the room for one 'give'. False: the process has not so many. Throws
    /// cuda_error, std::bad_alloc; nothing has changed then.
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

    /// Whether the last call of 'more' was in vain. 'forget' makes it false.
    bool ran_out() const noexcept { return ran_out_.load(base::memory_order_relaxed); }
    void forget() noexcept { ran_out_.store(false, base::memory_order_relaxed); }

private:
    // The last addresses of the process are for others as well: never more of them than the pool soon needs.
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

    // The one that has them all; null: none. Two may touch, and a copy must not lie across both.
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
