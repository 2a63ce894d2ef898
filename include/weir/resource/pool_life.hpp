// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does the pool of a block still live?
//
// A container may end after its pool, which is its user's mistake. It must not ask the pool then: the pool's members are gone,
// and a look-up in what they were may never end. So a pool that watches its owners (layer::guard) answers 'in_container' with
// this mark. The mark lies outside of the pool and is counted: the pool and each container own it, and whoever ends last
// deletes it.
//
// invariant: no member of a pool that has ended is read.
// order:     what the pool's end did is done before is_over() is true.
// cost:      one small allocation for a pool; 8 bytes in a container, and one atomic addition for each of its blocks.
// not for:   who calls a pool by its address, and has no mark: nobody knows what is at that address after the end.

#include <weir/base/memory_report.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace resource::detail {

/// Whether a pool has ended, and who gets the sentence about what is freed afterwards. Any thread may call any member.
class pool_life {
public:
    using handler = void (*)(char const* sentence);

    /// The pool ends. `told`: gets the sentences from now on.
    void end(handler told) noexcept { told_.store(told, base::memory_order_release); }

    bool is_over() const noexcept { return told_.load(base::memory_order_acquire) != nullptr; }

    /// Says that the block at `p` is freed, after the end.
    void tell_of_free(void* p) const noexcept { tell_of_free(p, told_.load(base::memory_order_acquire)); }

    [[gnu::noinline]] static void tell_of_free(void* p, handler told) noexcept {
        text said;
        try {
            said = "weir: layer::guard: the block at " + base::address_text(p) +
                   " is freed after the end of its pool, with which it went back; free it before, or end its container";
        } catch (...) { // no host memory for the sentence
        }
        told(said.empty() ? "weir: layer::guard: a block is freed after the end of its pool" : said.c_str());
    }

private:
    base::atomic<handler> told_{nullptr}; // null: it lives
};

/// Owned by the pool and by each container that has a block of it; nothing for a pool that has no such mark.
using shared_pool_life = base::shared<pool_life>;

/// Tells `pool`, if it asks, that a container holds the block at `p`, and returns the mark that it answers with, if any. What
/// the pool throws changes nothing: it has not been told then.
template <class Pool>
shared_pool_life in_container(Pool& pool, void* p, stream_ref stream) noexcept {
    shared_pool_life life;
    try {
        if constexpr (contract::returns<shared_pool_life, contract::has_in_container, Pool, stream_ref>)
            life = pool.in_container(p, stream);
        else if constexpr (contract::holds<contract::has_in_container, Pool, stream_ref>)
            pool.in_container(p, stream);
    } catch (...) {
    }
    return life;
}

} // namespace resource::detail
} // namespace v0
} // namespace weir
