// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool give all its memory up, and get it back at the same addresses?
//
// The beginning waits for all work, gives wholly free chunks back, copies away the contents that are to be kept, and takes the
// rest of the memory from behind its addresses. The end puts fresh memory there and copies the contents back.
//
// invariant: a call that fails leaves the blocks as they were: with their memory, or suspended.
// order:     'begin' waits for all work on every device. No work may use the memory until the end.
// cost:      two driver calls a chunk each way, and the copies (saved_contents.hpp).
// not for:   allocations meanwhile: the pool refuses them.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/text.hpp>
#include <weir/pool/pool/saved_contents.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// One thread at a time. `Supply`: that of supply.hpp; one that can suspend, if any member is called.
template <class Supply, class Rule>
class suspension {
public:
    /// `from` and `over` outlive it.
    suspension(Supply& from, Rule& over) noexcept : supply_(from), rule_(over) {}

    /// Begins the suspension of the pool `name` of device number `device`. Calls `trim()`, which gives wholly free chunks back.
    /// If `keep` is given, it calls list(save), which calls save(range) for each range of memory whose contents are copied to
    /// `keep`. Returns the bytes that went back. Throws usage_error if the device cannot map memory or the pool is suspended;
    /// cuda_error; std::bad_alloc; what `list` and the allocations of `keep` throw.
    template <class Trim, class List>
    std::size_t begin(text const& name, int device, Trim const& trim, pool_ref<memory_space::host> const* keep,
                      List const& list) {
        if (!supply_.suspends())
            throw usage_error("weir: this device cannot map memory, so pool '" + name +
                              "' cannot be suspended: it would lose the addresses of its blocks");
        if (supply_.suspended())
            throw usage_error("weir: pool '" + name + "' is suspended already; call 'resume' first");
        std::size_t const before = supply_.held().bytes();
        supply_.suspended(true);
        try {
            runtime::wait_for_device(any_device); // a copy between devices may read this one on another's stream
            rule_.settle(); // locks every set: who takes later sees that the pool is suspended
            trim();
            base::shared<saved_contents> fresh;
            if (keep) {
                fresh = base::shared<saved_contents>::make(*keep, device);
                list([&](base::range each) { fresh->save(each); });
                fresh->finish();
            }
            supply_.withdraw();
            saved_ = std::move(fresh);
        } catch (...) {
            supply_.suspended(false);
            throw;
        }
        return before - supply_.held().bytes();
    }

    /// Throws usage_error if not all of the block lies in memory of the pool `name`.
    void require_held(live_block const& block, text const& name) const {
        if (!supply_.held().chunks().covers(base::range{reinterpret_cast<std::uintptr_t>(block.address), block.bytes}))
            throw usage_error("weir: " + base::count_text(block.bytes, " byte") + " at " + base::address_text(block.address) +
                              " cannot be saved: they are not all in pool '" + name + "'; name blocks of this pool");
    }

    /// Ends the suspension; false: the device has no room. Throws cuda_error.
    bool try_end() {
        if (!supply_.restore())
            return false;
        if (saved_) {
            try {
                saved_->restore(supply_.held().chunks());
            } catch (...) {
                if (saved_->idle()) // else the memory stays for the next call
                    supply_.withdraw();
                throw;
            }
            saved_ = base::shared<saved_contents>();
        }
        supply_.suspended(false);
        return true;
    }

private:
    Supply& supply_;
    Rule& rule_;
    base::shared<saved_contents> saved_;
};

} // namespace detail
} // namespace v0
} // namespace weir
