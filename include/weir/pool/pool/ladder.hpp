// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a pool try, in which order, where the first try finds no block?
//
// What others freed and is within reach without a wait; growth; what other streams freed, for which this one waits (these
// two in the order that the reuse rule wants); and at last a wait for what is in flight, a search after each.
//
// invariant: a climb that fails leaves the pool's blocks as they were; for what can never be held nobody waits, and nothing is
//            given back.
// order:     one thread at a time searches and grows; the others find what it got.
// cost:      see the reuse rule and supply.hpp; at most 16 waits.
// not for:   the first try, which most allocations need nothing above.

#include <cstddef>
#include <weir/base/range.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// `Lock`: one thread at a time grows; `WaitsFirst`: a stream waits for another's memory before the pool grows.
template <class Placement, class Rule, class Supply, class Lock, bool WaitsFirst>
class ladder {
public:
    ladder(Rule& over, Supply& from, Lock& growth_lock) noexcept : rule_(over), supply_(from), growth_lock_(growth_lock) {}

    /// A block of so many bytes for work on `stream`, which a first try did not find; an empty range where there is none.
    /// Whoever waits for events holds no lock, so that the others go on. Throws what the rule and the upstream throw.
    base::range climb(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        if (!supply_.can_hold(bytes, alignment))
            return base::range{}; // neither waiting nor giving back would help
        if constexpr (contract::holds<contract::reclaims, Rule>)
            rule_.reclaim();
        if constexpr (WaitsFirst) {
            if (base::range const block = search(bytes, alignment, stream, false))
                return block;
            if (base::range const block = rule_.borrow(bytes, alignment, stream))
                return block;
        }
        if (base::range const block = search(bytes, alignment, stream))
            return block;
        if constexpr (contract::holds<contract::borrows, Rule, stream_ref>) {
            if (base::range const block = rule_.borrow(bytes, alignment, stream))
                return block;
            return await(bytes, alignment, stream);
        }
        return base::range{};
    }

    /// Gets memory until the pool holds so many bytes, for no stream in particular; false: there is no room. Throws as climb.
    bool reserve(std::size_t bytes) {
        base::lock_guard<Lock> const lock(growth_lock_);
        std::size_t const held = supply_.held().bytes();
        if (bytes <= held)
            return true;
        std::size_t const lacking = base::align_up(bytes - held, Supply::page_bytes()); // 0 where it overflows
        return lacking != 0 && lacking <= supply_.held().limit_bytes() - held && !supply_.suspended() &&
               supply_.acquire(rule_, lacking, on_host);
    }

private:
    static constexpr int most_waits = 16; // for one allocation
    static constexpr bool gathers = contract::holds<contract::gathers, Rule, stream_ref>;

    // What other threads free meanwhile may be in flight again, so one wait may not do; but nobody waits for ever.
    base::range await(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        if constexpr (gathers) {
            for (int waits = 0; waits < most_waits; ++waits) {
                bool const waited = rule_.wait();
                if (base::range const block = search(bytes, alignment, stream))
                    return block;
                if (waited)
                    continue;
                if (rule_.unsettled_bytes() == 0)
                    return base::range{}; // all that is free is within reach
                rule_.settle();
            }
        }
        return search(bytes, alignment, stream);
    }

    // What needs no wait. One thread at a time: the others find what this one got.
    base::range search(std::size_t bytes, std::size_t alignment, stream_ref stream, bool may_grow = true) {
        base::lock_guard<Lock> const lock(growth_lock_);
        if (supply_.suspended())
            return base::range{};
        base::range block = rule_.take(bytes, alignment, stream);
        if constexpr (gathers) {
            if (!block) {
                rule_.gather(stream, may_grow);
                block = rule_.take(bytes, alignment, stream);
            }
        }
        return block || !may_grow ? block : grow_and_take(bytes, alignment, stream);
    }

    base::range grow_and_take(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        // Another thread that shares the stream may take the new chunk first, or the chunk starts at no page: then there
        // is one more to get.
        std::size_t const before = supply_.held().bytes();
        try {
            for (int tries = 0; tries < 8 && supply_.grow(rule_, bytes, alignment, stream, tries != 0); ++tries)
                if (base::range const block = rule_.take(bytes, alignment, stream))
                    return block;
        } catch (...) {
            try {
                supply_.give_back(rule_, before);
            } catch (...) { // the chunk is the next call's
            }
            throw;
        }
        supply_.give_back(rule_, before);
        return base::range{};
    }

    Rule& rule_;
    Supply& supply_;
    Lock& growth_lock_;
};

} // namespace detail
} // namespace v0
} // namespace weir
