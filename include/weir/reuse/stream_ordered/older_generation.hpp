// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do a stream's bytes go aside, and come back?
//
// Three ways between a stream's set, the set where its bytes are set aside, and the host's set, whose bytes no work uses.
// `Set`: a stream_set; the caller holds the locks of the sets that are named.
//
// invariant: bytes move with the event that stands for them. Where the host's memory runs out in the midst, both sets share it.
// not for:   deciding when: stream_exchange.hpp, and the close of a stream_set.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/reuse/stream_ordered/safe_event.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// For how long does a set make way, with each close, after others wanted its bytes last? Longer each time that they came back
/// for more. One thread at a time.
class patience {
public:
    /// With a close: whether others wanted something since the one before; whether to make way.
    bool lasts(bool is_wanted) noexcept {
        if (is_wanted && calm_closes_ > most_closes_)
            most_closes_ *= 2;
        calm_closes_ = is_wanted ? 0 : calm_closes_ + 1;
        return calm_closes_ <= most_closes_;
    }

private:
    std::uint64_t calm_closes_ = 0; // since others wanted bytes
    std::uint64_t most_closes_ = 64;
};

/// Moves what is covered, and blocks that wait for other streams, aside, if it is much and nothing is there; false: it is not.
template <class Set>
bool set_aside(Set& owner) noexcept {
    if (!owner.aside || !owner.is_much())
        return false;
    base::locked<Set> const there(*owner.aside);
    if (there->covered().free_bytes() != 0 || !there->deferred().empty())
        return false;
    safe_event const spare = there->safe();
    there->safe() = owner.safe();
    there->arrived();
    try {
        there->covered().absorb(owner.covered());
        there->deferred().absorb(owner.deferred());
        owner.safe().release(spare);
    } catch (...) {
    }
    there->update_hint();
    owner.update_hint();
    return true;
}

/// Brings back what is aside, under the later of both events. Throws std::bad_alloc.
template <class Set>
void recall(Set& owner) {
    if (!owner.aside)
        return;
    base::locked<Set> const there(*owner.aside);
    bool const is_empty = there->covered().free_bytes() == 0 && there->deferred().empty();
    if (is_empty || there->safe().device() != owner.safe().device()) // of another stream's life
        return;
    safe_event const spare = owner.safe();
    bool const is_later = !spare.was_reached(); // recorded since; else what was is over
    if (!is_later)
        owner.safe() = there->safe();
    owner.arrived();
    try {
        owner.covered().absorb(there->covered());
        owner.deferred().absorb(there->deferred());
        is_later ? there->safe().settle() : there->safe().release(spare);
    } catch (...) {
        there->update_hint();
        owner.update_hint();
        throw;
    }
    there->update_hint();
    owner.update_hint();
}

/// From so many bytes on a range is left whole at the price of an event.
inline constexpr std::size_t worth_an_event_bytes = 1 * MiB;

/// A block that costs no event: of what is aside of the stream, else of what no work uses. No slab is cut for it, nor a range
/// for a large one, where the `open_bytes` that the stream freed last may do.
template <class Set>
base::range take_at_hand(Set& owner, std::size_t bytes, std::size_t alignment, std::size_t open_bytes) {
    base::range block;
    if constexpr (contract::holds<contract::splinters, std::decay_t<decltype(owner.covered())>>) {
        if (bytes >= worth_an_event_bytes && open_bytes >= bytes)
            return block;
        Set* const places[] = {owner.aside, owner.settled}; // nvcc 13.0 takes no braces in a 'for' here
        for (Set* const each : places)
            if (!block && each && each->hint.may_hold(bytes)) {
                base::locked<Set> const there(*each);
                block = there->covered().take_at_hand(bytes, alignment);
                there->update_hint();
            }
    }
    return block;
}

/// Brings what `donor` covers, and no work uses, to `taker`. Throws std::bad_alloc; then some may be there.
template <class Set>
void settle_into(Set& taker, Set& donor) {
    try {
        taker.covered().absorb(donor.covered());
    } catch (...) {
        taker.update_hint();
        donor.update_hint();
        throw;
    }
    taker.update_hint();
    donor.update_hint();
}

} // namespace reuse::detail
} // namespace v0
} // namespace weir
