// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a pool try, in which order, where the first try finds no block?
//
// The rungs are those of the list in reuse/stream_ordered.hpp. This class climbs them. It searches what is within reach (rungs
// 1 and 2). It grows (3) and makes the stream wait for what another one freed (4), in the order that the reuse rule wants. At
// last it waits on the host (5) and searches again after each wait. Rungs that a reuse rule does not have are left out.
//
// invariant: a climb that fails leaves the pool's blocks as they were. If the pool can never hold such a block, nobody waits,
//            and no chunk goes back.
// order:     one thread at a time searches and grows; the others find what it got.
// cost:      see the reuse rule and chunk_supply.hpp; at most 16 waits.
// not for:   the first try, which is all that most allocations need.

#include <cstddef>
#include <type_traits>
#include <weir/base/range.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace pools::detail {

/// A pool's rule, which is made with the pool's upstream if it wants to know that (reuse::recorded).
template <class Rule, class Upstream>
Rule rule_over(int device, [[maybe_unused]] Upstream const& memory) {
    if constexpr (std::is_constructible_v<Rule, int, Upstream const&>)
        return Rule(device, memory);
    else
        return Rule(device);
}

/// Tells a pool's limit to its rule, or else to its placement, where they want to know it.
template <class Placement, class Rule>
void tell_limit(Rule& rule, std::size_t limit_bytes) {
    if constexpr (contract::holds<contract::has_borrow, Rule, stream_ref>)
        rule.expect_at_most(limit_bytes);
    else if constexpr (contract::holds<contract::has_is_small, Placement> &&
                       contract::holds<contract::has_visit_usable, Rule, stream_ref, Placement>)
        rule.visit_usable(on_host, [limit_bytes](Placement& all) { all.expect_at_most(limit_bytes); });
}

/// `Lock`: makes sure that one thread at a time grows. `WaitsFirst`: rung 4 comes before rung 3.
template <class Placement, class Rule, class Supply, class Lock, bool WaitsFirst>
class ladder {
public:
    ladder(Rule& over, Supply& from, Lock& growth_lock) noexcept : rule_(over), supply_(from), growth_lock_(growth_lock) {}

    /// A block of `bytes` bytes for work on `stream`, after a first try that found none; an empty range if there is none. A
    /// thread that waits for events holds no lock, so that the others go on. Throws what the rule and the upstream throw.
    base::range climb(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        if (!supply_.can_hold(bytes, alignment))
            return base::range{}; // neither waiting nor giving back would help
        if constexpr (waits)
            rule_.reclaim();
        if constexpr (WaitsFirst) {
            if (base::range const block = search(bytes, alignment, stream, false))
                return block;
            if (base::range const block = rule_.borrow(bytes, alignment, stream))
                return block;
        }
        if (base::range const block = search(bytes, alignment, stream))
            return block;
        if constexpr (borrows)
            if (base::range const block = rule_.borrow(bytes, alignment, stream))
                return block;
        if constexpr (waits)
            return await(bytes, alignment, stream);
        return base::range{};
    }

    /// Gets memory, for no stream in particular, until the pool holds `bytes` bytes; false: there is no room. Throws as
    /// 'climb'.
    bool reserve(std::size_t bytes) {
        base::lock_guard<Lock> const lock(growth_lock_);
        std::size_t const held = supply_.held().bytes();
        if (bytes <= held)
            return true;
        std::size_t const lacking = base::align_up(bytes - held, Supply::page_bytes()); // 0 where it overflows
        return lacking != 0 && supply_.held().has_room(lacking) && !supply_.suspended() &&
               supply_.acquire(rule_, lacking, on_host);
    }

private:
    static constexpr int most_waits = 16; // for one allocation
    static constexpr bool borrows = contract::holds<contract::has_borrow, Rule, stream_ref>;
    static constexpr bool waits = contract::holds<contract::has_wait, Rule>;

    // One wait may not be enough, since other threads free memory meanwhile that is again in flight. But nobody waits for ever.
    base::range await(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        supply_.held().note_wait();
        for (int turn = 0; turn < most_waits; ++turn) {
            // Asked before the search: afterwards another thread may have settled what this search did not find.
            bool const settles = rule_.unsettled_bytes() != 0;
            bool const waited = rule_.wait();
            if (base::range const block = search(bytes, alignment, stream))
                return block;
            if (waited)
                continue;
            if (!settles)
                return base::range{}; // nothing is left to wait for: all free bytes were searched
            rule_.settle();
        }
        return search(bytes, alignment, stream);
    }

    // Searches, and grows if it may, without a wait. One thread at a time: the others find what this one got.
    base::range search(std::size_t bytes, std::size_t alignment, stream_ref stream, bool may_grow = true) {
        base::lock_guard<Lock> const lock(growth_lock_);
        if (supply_.suspended())
            return base::range{};
        base::range block = rule_.take(bytes, alignment, stream);
        if constexpr (borrows) {
            if (!block) {
                rule_.gather(stream, may_grow);
                block = rule_.take(bytes, alignment, stream);
            }
        }
        return block || !may_grow ? block : grow_and_take(bytes, alignment, stream);
    }

    base::range grow_and_take(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        // Another thread that shares the stream may take the new chunk first, or the chunk may start at no page and so have no
        // room for the block: then one more is got.
        std::size_t const before = supply_.held().bytes();
        try {
            for (int tries = 0; tries < 8 && supply_.grow(rule_, bytes, alignment, stream, tries != 0); ++tries)
                if (base::range const block = rule_.take(bytes, alignment, stream))
                    return block;
            if (base::range const block = squeeze(bytes, alignment, stream))
                return block;
        } catch (...) {
            try {
                supply_.give_back(rule_, before);
            } catch (...) { // the chunk stays for the next call
            }
            throw;
        }
        supply_.give_back(rule_, before);
        return base::range{};
    }

    // There is no more memory, and no free range of the size that the placement wants: it may do with less.
    base::range squeeze([[maybe_unused]] std::size_t bytes, [[maybe_unused]] std::size_t alignment,
                        [[maybe_unused]] stream_ref stream) {
        base::range block;
        if constexpr (contract::holds<contract::has_rule_squeeze, Rule, stream_ref>) {
            block = rule_.squeeze(bytes, alignment, stream);
            if (!block && supply_.grow_least(rule_, bytes, alignment, stream))
                block = rule_.squeeze(bytes, alignment, stream);
        }
        return block;
    }

    Rule& rule_;
    Supply& supply_;
    Lock& growth_lock_;
};

} // namespace pools::detail
} // namespace v0
} // namespace weir
