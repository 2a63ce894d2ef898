// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How can others get the older bytes of a stream that never rests?
//
// A stream's set has one event for all its covered bytes, the bytes that were freed before it (stream_set.hpp). Each new
// record of that event delays all of them. So a set may have an older generation: a second set, in its member 'older', with
// an event of its own. To set bytes aside is to move them there together with the event as it is. Nobody records that event
// again, so it is reached while the stream goes on, and then anyone may take the bytes. This header moves bytes between three
// sets: a stream's set, its older generation, and the host's set, which holds bytes that no work uses.
//
// `Set`: a stream_set. The caller holds the lock of each set that it passes.
//
// invariant: bytes move together with the event that stands for them. If the host's memory runs out in the middle of a move,
//            both sets share that event.
// not for:   deciding when to move bytes: that is stream_exchange.hpp, and 'close' of a stream_set.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/reuse/stream_ordered/safe_event.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Decides for how many closes a set goes on making way, that is, giving up bytes, after others last wanted some. The number
/// doubles each time that they come back for more after it had run out. One thread at a time.
class patience {
public:
    /// Call at each close. `is_wanted`: others have wanted bytes since the close before. Answers whether to make way.
    bool lasts(bool is_wanted) noexcept {
        if (is_wanted && calm_closes_ > most_closes_)
            most_closes_ *= 2;
        calm_closes_ = is_wanted ? 0 : calm_closes_ + 1;
        return calm_closes_ <= most_closes_;
    }

private:
    std::uint64_t calm_closes_ = 0; // closes since others last wanted bytes
    std::uint64_t most_closes_ = 64;
};

/// Moves the covered bytes of `donor`, which no work uses, to `taker`. Throws std::bad_alloc; some bytes may have moved then.
template <class Set>
void move_covered(Set& donor, Set& taker) {
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

/// Moves the covered bytes and the deferred blocks (which wait for other streams) to the older generation. It does so only if
/// they are many bytes and the older generation is empty; false: it did not.
template <class Set>
bool set_aside(Set& owner) noexcept {
    if (!owner.older || !owner.is_much())
        return false;
    base::locked<Set> const there(*owner.older);
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

/// Brings the older generation back into the stream's set, under the later of the two events. Throws std::bad_alloc.
template <class Set>
void recall(Set& owner) {
    if (!owner.older)
        return;
    base::locked<Set> const there(*owner.older);
    bool const is_empty = there->covered().free_bytes() == 0 && there->deferred().empty();
    if (is_empty || there->safe().device() != owner.safe().device()) // another device: left by an earlier stream of this set
        return;
    safe_event const spare = owner.safe();
    bool const is_later = !spare.was_reached(); // the set's event was recorded since; else all that it stood for is over
    if (!is_later)
        owner.safe() = there->safe();
    owner.arrived();
    try {
        owner.covered().absorb(there->covered());
        owner.deferred().absorb(there->deferred());
        if (is_later)
            there->safe().note_reached();
        else
            there->safe().release(spare);
    } catch (...) {
        there->update_hint();
        owner.update_hint();
        throw;
    }
    there->update_hint();
    owner.update_hint();
}

/// From this size on, it is better to pay for an event than to split a free range.
inline constexpr std::size_t worth_an_event_bytes = 1 * MiB;

/// Takes a block that the stream may have at once and without recording an event: from its older generation, else from the
/// host's set. For a small block it cuts no slab. For a large one, of worth_an_event_bytes or more, it splits no range if the
/// `open_bytes`, those that the stream freed since its last event, may be enough: the answer is an empty range then.
template <class Set>
base::range take_at_hand(Set& owner, std::size_t bytes, std::size_t alignment, std::size_t open_bytes) {
    base::range block;
    if constexpr (contract::holds<contract::has_is_small, std::decay_t<decltype(owner.covered())>>) {
        if (bytes >= worth_an_event_bytes && open_bytes >= bytes)
            return block;
        Set* const places[] = {owner.older, owner.host}; // nvcc 13.0 takes no braces in a 'for' here
        for (Set* const each : places)
            if (!block && each && each->hint.may_hold(bytes)) {
                base::locked<Set> const there(*each);
                block = there->covered().take_at_hand(bytes, alignment);
                there->update_hint();
            }
    }
    return block;
}

/// Call before the event of a set is recorded again, which delays all that it stands for. If others want its covered bytes,
/// and they are many, they leave the set: for the host's set if no work uses them, else for the older generation.
template <class Set>
void make_way(Set& owner, patience& closes) noexcept {
    bool const is_wanted = owner.wanted.load(base::memory_order_relaxed);
    if (!closes.lasts(is_wanted) || !owner.is_much())
        return;
    try {
        if (owner.safe().was_reached())
            detail::move_covered(owner, *base::locked<Set>(*owner.host).get());
        else if (!is_wanted || !detail::set_aside(owner))
            return;
        owner.wanted.store(false, base::memory_order_relaxed);
    } catch (...) { // no host memory: they stay
    }
}

} // namespace reuse::detail
} // namespace v0
} // namespace weir
