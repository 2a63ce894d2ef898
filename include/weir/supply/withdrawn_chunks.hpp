// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which chunks have no memory while a pool is suspended?
//
// A withdrawn chunk keeps its addresses, but the upstream has taken its memory away, until it is restored. Meanwhile whole
// pages of it that nobody uses can be cut out, so that less has to come back.
//
// invariant: every chunk here is among the chunks that the pool holds.
// order:     one thread at a time.
// cost:      the upstream's calls, and O(chunks).
// not for:   what the chunks contained: see saved_contents.hpp.

#include <cstddef>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// `Chunks`: see held_chunks.hpp.
template <class Chunks>
class withdrawn_chunks {
public:
    /// `held` outlives it.
    explicit withdrawn_chunks(Chunks& held) noexcept : held_(held) {}

    /// Withdraws every chunk. A chunk whose memory the upstream refuses to take away keeps it. Throws std::bad_alloc; then
    /// nothing has changed.
    void withdraw() {
        list_.reserve(held_.size());
        for (base::range const& each : held_.chunks())
            if (held_.withdraw(each))
                list_.push_back(each);
    }

    /// Gives every withdrawn chunk memory again. False: the upstream has no room. Throws what the upstream throws. In both
    /// cases the chunks are withdrawn as before, except those whose memory the upstream refuses to take away again.
    bool restore() {
        std::size_t lacking = list_.size(); // the last ones first
        try {
            while (lacking != 0 && held_.restore(list_[lacking - 1]))
                --lacking;
        } catch (...) {
            withdraw_again(lacking);
            throw;
        }
        if (lacking != 0) {
            withdraw_again(lacking);
            return false;
        }
        list_.clear();
        return true;
    }

    /// What 'restore' will get, in bytes.
    std::size_t bytes() const noexcept {
        std::size_t sum = 0;
        for (base::range const& each : list_)
            sum += each.bytes;
        return sum;
    }

    /// Cuts out wholly free pages while 'restore' would get more than `keep_bytes` bytes. `free`: the pool's free_chunks.
    template <class Free>
    void cut_free_pages(Free const& free, std::size_t keep_bytes) {
        std::size_t left = bytes();
        for (base::range const& unused : free.ranges()) {
            std::size_t start = unused.offset;
            base::range const whole = base::inward(unused, Free::page);
            for (base::range pages = held_.chunks().next_part(whole, whole.offset); pages && left > keep_bytes;
                 pages = held_.chunks().next_part(whole, pages.end())) {
                if (pages.bytes > left - keep_bytes)
                    pages.bytes = base::align_up(left - keep_bytes, Free::page);
                if (!prepare_cut(pages) || !free.try_take(pages, start))
                    continue;
                cut(pages);
                left -= pages.bytes;
                start = pages.end();
            }
        }
    }

    /// Gives the chunks up, addresses and all, as the pool ends; but what the pool left stays left.
    void abandon() noexcept {
        for (base::range const& each : list_)
            if (held_.owns(each.offset) && held_.clear(each))
                held_.cut(each, each);
    }

private:
    // Whether these pages may be cut out; if so, the lists have room for that. Not where their chunk has memory, since CUDA
    // refused to take it away, or where the host has no memory for the lists.
    bool prepare_cut(base::range pages) noexcept {
        try {
            list_.reserve(list_.size() + 1);
        } catch (...) {
            return false;
        }
        base::range const* const chunk = with(pages);
        return chunk && held_.prepare_cut(*chunk);
    }

    void cut(base::range pages) noexcept {
        base::range const* const place = with(pages);
        base::range const chunk = *place;
        list_.erase(list_.begin() + (place - list_.begin()));
        for (base::range const& rest : held_.cut(chunk, pages).sides)
            if (rest)
                list_.push_back(rest);
    }

    // The withdrawn chunk that `pages` lie in; null: none.
    base::range const* with(base::range pages) const noexcept {
        for (base::range const* each = list_.end(); each != list_.begin();)
            if ((--each)->contains(pages))
                return each;
        return nullptr;
    }

    // Those from `first` on have memory again, which this takes away. Where the upstream refuses, the chunk keeps it.
    void withdraw_again(std::size_t first) noexcept {
        for (std::size_t i = list_.size(); i-- > first;)
            if (!held_.withdraw(list_[i]))
                list_.erase(list_.begin() + i);
    }

    Chunks& held_;
    base::growing_array<base::range> list_;
};

} // namespace supply
} // namespace v0
} // namespace weir
