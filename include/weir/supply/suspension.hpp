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
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/supply/chunk_list.hpp>
#include <weir/supply/saved_contents.hpp>
#include <weir/supply/withdrawn_chunks.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// One thread at a time. `Supply`: that of chunk_supply.hpp. Members that begin or end a suspension need one that can suspend.
template <class Supply, class Rule>
class suspension {
public:
    /// Of the pool `name`. What is named here outlives it.
    suspension(text const& name, Supply& from, Rule& over) noexcept
        : name_(name), supply_(from), rule_(over), withdrawn_(from.held()) {}
    suspension(suspension const&) = delete;
    suspension& operator=(suspension const&) = delete;
    /// The pool may end suspended.
    ~suspension() {
        if constexpr (Supply::can_suspend)
            withdrawn_.abandon();
    }

    /// Begins the suspension; no contents are kept. Returns the bytes that went back. Throws usage_error if the device cannot
    /// map memory or the pool is suspended; cuda_error; std::bad_alloc.
    std::size_t begin() {
        return begin_saving([] { return base::shared<saved_contents>(); });
    }

    /// The same, but copies the contents of all blocks to `keep`. Throws also what the allocations of `keep` throw.
    std::size_t begin(pool_ref<memory_space::host> keep) {
        return begin_saving([&] { return saved(keep, used_ranges()); });
    }

    /// The same, but the copy stays in `kept.copy` as well. If that is of the same memory already, nothing is copied.
    std::size_t begin(pool_ref<memory_space::host> keep, kept_in const& kept) {
        return begin_saving([&] {
            base::growing_array<base::range> const used = used_ranges();
            if (!kept.copy || !kept.copy->is_of(used))
                kept.copy = saved(keep, used);
            return kept.copy;
        });
    }

    /// The same, but only of the blocks `wanted`. Throws usage_error also if not all of `wanted` lies in the pool.
    template <class Blocks>
    std::size_t begin(pool_ref<memory_space::host> keep, Blocks const& wanted) {
        return begin_saving([&] {
            base::growing_array<base::range> ranges;
            for (live_block const& each : wanted) {
                require_held(each);
                ranges.push_back(base::range{reinterpret_cast<std::uintptr_t>(each.address), each.bytes});
            }
            return saved(keep, ranges);
        });
    }

    /// While the pool is suspended: gives up wholly free pages while the end would get more than `keep_bytes` bytes for them.
    /// Throws cuda_error, std::bad_alloc.
    void trim(std::size_t keep_bytes) {
        if constexpr (Supply::can_suspend) {
            supply_.gather(rule_);
            withdrawn_.cut_free_pages(supply_.free_in(rule_), keep_bytes);
        }
    }

    /// Ends the suspension; false: the device has no room. Throws cuda_error.
    bool try_end() {
        if (!withdrawn_.restore())
            return false;
        if (saved_) {
            try {
                saved_->restore(supply_.held().chunks());
            } catch (...) {
                if (saved_->idle()) // else the memory stays for the next call
                    withdrawn_.withdraw();
                throw;
            }
            saved_ = base::shared<saved_contents>();
        }
        supply_.suspended(false);
        return true;
    }

    /// The bytes that the end will get from the device.
    std::size_t withdrawn_bytes() const noexcept { return withdrawn_.bytes(); }

private:
    static constexpr std::size_t least_unsaved_bytes = 64 * KiB; // smaller free ranges are saved as if in use

    // `save()`: saves what is to be kept.
    template <class Save>
    std::size_t begin_saving(Save const& save) {
        if (!supply_.suspends())
            throw usage_error("weir: this device cannot map memory, so pool '" + name_ +
                              "' cannot be suspended: it would lose the addresses of its blocks");
        if (supply_.suspended())
            throw usage_error("weir: pool '" + name_ + "' is suspended already; call 'resume' first");
        std::size_t const before = supply_.held().bytes();
        supply_.suspended(true);
        try {
            runtime::wait_for_device(any_device); // a copy between devices may read this one on another's stream
            rule_.settle(); // locks every set: who takes later sees that the pool is suspended
            supply_.trim(rule_, 0);
            base::shared<saved_contents> kept = save();
            withdrawn_.withdraw();
            saved_ = std::move(kept);
        } catch (...) {
            supply_.suspended(false);
            throw;
        }
        return before - supply_.held().bytes();
    }

    // What the pool holds, without large free ranges.
    base::growing_array<base::range> used_ranges() const {
        base::growing_array<base::range> unused = supply_.free_in(rule_).ranges(least_unsaved_bytes);
        sort_by_address(unused);
        base::growing_array<base::range> used;
        supply_.held().chunks().for_each_outside(unused, [&](base::range each) { used.push_back(each); });
        return used;
    }

    base::shared<saved_contents> saved(pool_ref<memory_space::host> keep,
                                       base::growing_array<base::range> const& ranges) const {
        auto fresh = base::shared<saved_contents>::make(keep, contract::device_number_of(supply_.held().upstream()));
        for (base::range const& each : ranges)
            fresh->add(each);
        fresh->save();
        fresh->finish();
        return fresh;
    }

    void require_held(live_block const& block) const {
        if (!supply_.held().chunks().covers(base::range{reinterpret_cast<std::uintptr_t>(block.address), block.bytes}))
            throw usage_error("weir: " + base::count_text(block.bytes, " byte") + " at " + base::address_text(block.address) +
                              " cannot be saved: they are not all in pool '" + name_ + "'; name blocks of this pool");
    }

    text const& name_;
    Supply& supply_;
    Rule& rule_;
    withdrawn_chunks<typename Supply::chunks_of> withdrawn_;
    base::shared<saved_contents> saved_;
};

} // namespace supply
} // namespace v0
} // namespace weir
