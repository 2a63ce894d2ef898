// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which chunks does a pool hold, and does an address lie in one of them?
//
// The list has two arrays of the same ranges, one in order of address and one in order of size. There are few chunks, and they
// change rarely. They are looked up by address, or visited from the largest down. A binary search over flat memory is enough
// for that.
//
// invariant: ranges are disjoint; both arrays hold the same ones; bytes() is their sum.
// cost:      owns: O(log n); add and remove: O(n) moves of 16 bytes.
// not for:   blocks: there can be millions of those.

#include <cstddef>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/swap.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// Brings ranges in order of address, by heapsort (J. W. J. Williams, 1964), which takes no memory. O(n log n).
inline void sort_by_address(base::growing_array<base::range>& ranges) noexcept {
    base::range* const heap = ranges.data();
    auto const sink = [heap](std::size_t at, std::size_t size) {
        for (std::size_t child = 0; (child = 2 * at + 1) < size; at = child) {
            child += child + 1 < size && heap[child].offset < heap[child + 1].offset;
            if (heap[child].offset <= heap[at].offset)
                return;
            base::swap_values(heap[at], heap[child]);
        }
    };
    for (std::size_t at = ranges.size() / 2; at-- > 0;)
        sink(at, ranges.size());
    for (std::size_t size = ranges.size(); size > 1;) {
        base::swap_values(heap[0], heap[--size]);
        sink(0, size);
    }
}

/// One thread at a time.
class chunk_list {
public:
    /// Makes room, so that the next `more` calls of 'add' do not throw. Throws std::bad_alloc.
    void reserve(std::size_t more) {
        by_address_.reserve(by_address_.size() + more);
        by_size_.reserve(by_size_.size() + more);
    }

    /// Adds a chunk, which overlaps no other. 'reserve' was called before.
    void add(base::range chunk) noexcept {
        by_address_.insert(place(by_address_, address_order{}, chunk), chunk);
        by_size_.insert(place(by_size_, size_order{}, chunk), chunk);
    }

    /// Takes out a chunk that is in the list.
    void remove(base::range chunk) noexcept {
        by_address_.erase(place(by_address_, address_order{}, chunk) - 1);
        by_size_.erase(place(by_size_, size_order{}, chunk) - 1);
    }

    /// Whether `offset` lies in a chunk.
    bool owns(std::size_t offset) const noexcept {
        auto const after = place(by_address_, address_order{}, base::range{offset, 0});
        return after != by_address_.begin() && after[-1].contains(offset);
    }

    std::size_t size() const noexcept { return by_size_.size(); }
    /// The i-th chunk in order of size, the smallest first.
    base::range operator[](std::size_t i) const noexcept { return by_size_[i]; }
    /// All chunks, in order of address.
    base::range const* begin() const noexcept { return by_address_.begin(); }
    base::range const* end() const noexcept { return by_address_.end(); }
    /// The first chunk, in order of address, that starts at `offset` or behind it.
    base::range const* from(std::size_t offset) const noexcept {
        return offset == 0 ? begin() : place(by_address_, address_order{}, base::range{offset - 1, 0});
    }

    /// The first part of a chunk that lies in `within` and not before `from`; an empty range where there is none.
    base::range next_part(base::range within, std::size_t from) const noexcept {
        base::range const* chunk = place(by_address_, address_order{}, base::range{from, 0});
        if (chunk != begin() && chunk[-1].end() > from)
            --chunk;
        if (chunk == end() || chunk->offset >= within.end())
            return base::range{};
        std::size_t const start = chunk->offset > from ? chunk->offset : from;
        std::size_t const stop = chunk->end() < within.end() ? chunk->end() : within.end();
        return start < stop ? base::range{start, stop - start} : base::range{};
    }

    /// Whether every byte of `wanted` lies in a chunk.
    bool covers(base::range wanted) const noexcept {
        std::size_t at = wanted.offset;
        while (at < wanted.end()) {
            base::range const part = next_part(wanted, at);
            if (!part || part.offset != at)
                return false;
            at = part.end();
        }
        return wanted.bytes == 0 || at != wanted.offset; // false where `wanted` ends beyond the last address
    }

    /// Visits, in order of address, the parts of these ranges that lie in none of `holes`. The holes are in order of address
    /// too; one may reach across several ranges.
    template <class Visit>
    void for_each_outside(base::growing_array<base::range> const& holes, Visit const& visit) const {
        base::range const* hole = holes.begin();
        for (base::range const& each : by_address_) {
            std::size_t at = each.offset;
            while (at < each.end() && hole != holes.end() && hole->offset < each.end()) {
                if (at < hole->offset)
                    visit(base::range{at, hole->offset - at});
                if (at < hole->end())
                    at = hole->end();
                if (at <= each.end())
                    ++hole; // otherwise the hole goes on in the next range
            }
            if (at < each.end())
                visit(base::range{at, each.end() - at});
        }
    }

private:
    struct address_order {
        bool operator()(base::range a, base::range b) const noexcept { return a.offset < b.offset; }
    };
    struct size_order {
        bool operator()(base::range a, base::range b) const noexcept {
            return a.bytes != b.bytes ? a.bytes < b.bytes : a.offset < b.offset;
        }
    };

    // The place behind the last range that does not come after `wanted`.
    template <class Ranges, class Order>
    static auto place(Ranges& ranges, Order before, base::range wanted) noexcept -> decltype(ranges.begin()) {
        auto first = ranges.begin();
        for (auto count = ranges.end() - first; count > 0;) {
            auto const half = count / 2;
            if (before(wanted, first[half])) {
                count = half;
            } else {
                first += half + 1;
                count -= half + 1;
            }
        }
        return first;
    }

    base::growing_array<base::range> by_address_;
    base::growing_array<base::range> by_size_;
};

} // namespace supply
} // namespace v0
} // namespace weir
