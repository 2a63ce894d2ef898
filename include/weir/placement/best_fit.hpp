// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// best_fit: ranges of any size, with little waste and in constant time.
//
// The closest fitting free range is split; a freed one joins its free neighbours. The fit is found in lists by
// size (base/size_lists.hpp), the neighbours by out-of-band boundary tags (base/boundary_map.hpp). Only free ranges
// are recorded: a live block costs nothing, and one that was taken from a sibling is given here like any other.
//
// invariant: no two free ranges touch, but at a fence; each has one node, one list and two tags; free_bytes() is
//            the sum of their bytes; take fails only where no free range fits.
// order: none; an object belongs to one lock. The fences alone are shared among siblings, under their own.
// cost: take, give: O(1), four or five cache lines. An alignment above the granularity looks at some ranges that
//       might fit before it takes one that surely does, and at all of them before it fails. 45 to 90 host bytes a
//       free range.
// not for: blocks smaller than the granularity: they are rounded up to it. Put bins in front.

#include <weir/base/boundary_map.hpp>
#include <weir/base/fence_set.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/size_lists.hpp>
#include <weir/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir {
inline namespace v0 {
namespace placement {

/// Placement of any size in multiples of GranularityBytes. Not thread-safe; movable, not copyable; a moved-from
/// object may only be assigned to or destroyed. Members that may allocate host memory throw std::bad_alloc before
/// any change.
template <std::size_t GranularityBytes>
class best_fit {
    static_assert(
        is_power_of_two(GranularityBytes) && GranularityBytes >= 16,
        "weir: best_fit's GranularityBytes must be a power of two of at least 16, as in 'best_fit<512>'");

public:
    /// Every block starts at a multiple of this and occupies a multiple of it.
    static constexpr std::size_t granularity = GranularityBytes;

    best_fit() : best_fit(shared<fence_set>::make()) {}
    best_fit(best_fit&& other) noexcept = default;
    best_fit& operator=(best_fit&& other) noexcept = default;

    /// Bytes that take(bytes, alignment) occupies; 0 where the size is 0 or does not fit std::size_t.
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) noexcept {
        return align_up(bytes, granularity);
    }

    /// Bytes of a fresh range, at any multiple of 'base_alignment', in which take(bytes, alignment) succeeds;
    /// 0 on overflow.
    static constexpr std::size_t needs(std::size_t bytes, std::size_t alignment,
                                       std::size_t base_alignment) noexcept {
        return with_slack(rounded(bytes, alignment), alignment > granularity ? alignment : granularity,
                          base_alignment);
    }

    /// A free range of rounded(bytes, alignment) at a multiple of 'alignment' (a power of two), or range{}.
    range take(std::size_t bytes, std::size_t alignment) {
        std::size_t const size = rounded(bytes, alignment);
        if (size == 0 || size > free_bytes_)
            return {};
        std::size_t const align = alignment > granularity ? alignment : granularity;
        index_type const found = search(size, align);
        if (found == 0)
            return {};
        range const block{align_up(nodes_[found].free.offset, align), size};
        if (block.offset != nodes_[found].free.offset)
            reserve(ranges_ + 1); // what is left before and after makes two ranges
        carve(found, block);
        return block;
    }

    /// Frees a range that this object or a sibling took. Joins it with what is free beside it.
    void give(range block) {
        reserve(ranges_ + 1);
        insert(block);
    }

    /// Makes a fresh range free. Bytes outside whole granules are left unused.
    void add(range fresh) {
        if (range const inside = inward(fresh, granularity))
            give(inside);
    }

    /// Takes out exactly 'wanted' if all of it is free here, and drops the fence at its start; else changes
    /// nothing and answers false. O(1) where a free range or a fence starts there, else O(free ranges).
    bool remove(range wanted) {
        range const inside = inward(wanted, granularity);
        if (!inside || inside.bytes > free_bytes_)
            return false;
        index_type found = tags_.find(inside.offset, side::start,
                                      [&](index_type n) { return nodes_[n].free.offset == inside.offset; });
        if (found == 0 && !fences_->contains(inside.offset)) {
            found = static_cast<index_type>(nodes_.size() - 1);
            while (found != 0 && !nodes_[found].free.contains(inside))
                --found;
        }
        if (found == 0 || !nodes_[found].free.contains(inside))
            return false;
        reserve(ranges_ + 1); // cutting a middle out leaves two ranges
        carve(found, inside);
        fences_->erase(inside.offset);
        return true;
    }

    /// Nothing joins across 'offset' from now on, here and in every sibling. Call it before add.
    void fence(std::size_t offset) { fences_->insert(align_up(offset, granularity)); }

    /// An empty placement whose ranges may mix with this one's.
    best_fit sibling() const { return best_fit(fences_); }

    /// Moves all free bytes of a sibling here.
    void absorb(best_fit& other) {
        if (&other == this || other.ranges_ == 0)
            return;
        if (ranges_ == 0) {
            std::swap(*this, other);
            return;
        }
        reserve(ranges_ + other.ranges_);
        for (node const& n : other.nodes_)
            if (n.free)
                insert(n.free);
        other = other.sibling();
    }

    /// Takes out a range which, added to an empty sibling, lets take(bytes, alignment) succeed there.
    range lend(std::size_t bytes, std::size_t alignment) { return take(bytes, alignment); }

    /// Free bytes here.
    std::size_t free_bytes() const noexcept { return free_bytes_; }

    /// Bytes of the largest free range. O(ranges of its class).
    std::size_t largest() const noexcept {
        unsigned const in = lists_.last_occupied();
        std::size_t bytes = 0;
        for (index_type at = in == size_lists::classes ? 0 : lists_.head(in); at != 0; at = nodes_[at].next)
            bytes = nodes_[at].free.bytes > bytes ? nodes_[at].free.bytes : bytes;
        return bytes;
    }

    /// Free ranges here.
    std::size_t free_ranges() const noexcept { return ranges_; }

    /// Host bytes that the records of free ranges hold.
    std::size_t bookkeeping_bytes() const noexcept {
        return nodes_.capacity() * sizeof(node) + tags_.bookkeeping_bytes() + lists_.bookkeeping_bytes();
    }

private:
    using index_type = boundary_map::index_type;
    using side = boundary_map::side;

    static constexpr unsigned candidates = 8; // ranges looked at in a class whose sizes differ
    static constexpr unsigned few = 16;       // classes searched for a range that happens to be aligned
    static constexpr unsigned all = UINT32_MAX;

    struct node {
        range free; // no bytes: the node is spare
        index_type next;
        index_type previous;
        unsigned in; // class in lists_
    };

    explicit best_fit(shared<fence_set> fences) : fences_(std::move(fences)) {}

    static unsigned class_of(std::size_t bytes) noexcept { return size_lists::class_of(bytes / granularity); }

    // The smallest of the first 'limit' ranges of a class that have room; 0 where none has.
    index_type closest(unsigned in, std::size_t size, std::size_t align, unsigned limit) const noexcept {
        index_type best = 0;
        for (index_type at = lists_.head(in); at != 0 && limit != 0; at = nodes_[at].next, --limit)
            if (has_room(nodes_[at].free, size, align) &&
                (best == 0 || nodes_[at].free.bytes < nodes_[best].free.bytes))
                best = at;
        return best;
    }

    index_type search(std::size_t size, std::size_t align) const noexcept {
        unsigned const floor = class_of(size);
        if (align != granularity)
            return search_aligned(floor, size, align);
        // Any range of a higher class fits, and so does any of a class of one size.
        bool const exact = size_lists::one_size(floor);
        if (!exact)
            if (index_type const found = closest(floor, size, align, candidates))
                return found;
        unsigned const in = lists_.occupied_from(exact ? floor : floor + 1);
        if (in < size_lists::last)
            return lists_.head(in);
        return closest(in == size_lists::last ? in : floor, size, align, all);
    }

    index_type search_aligned(unsigned floor, std::size_t size, std::size_t align) const noexcept {
        // From class 'sure' on a range has room wherever it starts; below, one has to look.
        unsigned const sure = add_overflows(size, align) ? size_lists::classes : class_of(size + align) + 1;
        if (index_type const found = scan(floor, sure, size, align, few, candidates))
            return found;
        unsigned const in = lists_.occupied_from(sure);
        return in != size_lists::classes ? lists_.head(in) : scan(floor, sure, size, align, all, all);
    }

    // The closest range of the first of 'most' classes in [from, to) that has one among its first 'limit'.
    index_type scan(unsigned from, unsigned to, std::size_t size, std::size_t align, unsigned most,
                    unsigned limit) const noexcept {
        for (from = lists_.occupied_from(from); from < to && most != 0;
             from = lists_.occupied_from(from + 1), --most)
            if (index_type const found = closest(from, size, align, limit))
                return found;
        return 0;
    }

    // Room for 'ranges' free ranges, so that what follows cannot throw.
    void reserve(std::size_t ranges) {
        if (ranges > room_)
            grow(ranges);
    }

    void grow(std::size_t ranges) {
        std::size_t const room = ranges > room_ + room_ / 2 ? ranges + 15 : room_ + room_ / 2;
        lists_.prepare();
        nodes_.reserve(room + 1);
        tags_.reserve(2 * room, [this](index_type n, side which) {
            return which == side::start ? nodes_[n].free.offset : nodes_[n].free.end();
        });
        if (nodes_.empty())
            nodes_.push_back({}); // index 0 means 'none'
        room_ = room;
    }

    index_type fresh_node(range r) noexcept {
        index_type const n = spare_ != 0 ? spare_ : static_cast<index_type>(nodes_.size());
        if (spare_ != 0)
            spare_ = nodes_[n].next;
        else
            nodes_.push_back({});
        ++ranges_;
        nodes_[n].free = r;
        return n;
    }

    void retire(index_type n) noexcept {
        nodes_[n].free = {};
        nodes_[n].next = spare_;
        spare_ = n;
        --ranges_;
    }

    // A node that is in its list gets other bytes, and another list only if it must.
    void resize(index_type n, range r) noexcept {
        nodes_[n].free = r;
        unsigned const in = class_of(r.bytes);
        if (in != nodes_[n].in) {
            lists_.unlink(nodes_, n);
            lists_.link(nodes_, n, in);
        }
    }

    // Joins 'r' with its neighbours; the room is there. A neighbour across a fence is no neighbour.
    void insert(range r) noexcept {
        free_bytes_ += r.bytes;
        tags_.prefetch(r.end());
        index_type const left = tags_.find(r.offset, side::end, [&](index_type n) {
            return nodes_[n].free.end() == r.offset && !fences_->contains(r.offset);
        });
        index_type const right = tags_.find(r.end(), side::start, [&](index_type n) {
            return nodes_[n].free.offset == r.end() && !fences_->contains(r.end());
        });
        if (left != 0) {
            range const low = nodes_[left].free;
            tags_.erase(r.offset, side::end, left);
            if (right != 0) {
                range const high = nodes_[right].free;
                tags_.erase(high.offset, side::start, right);
                tags_.reassign(high.end(), side::end, right, left);
                lists_.unlink(nodes_, right);
                retire(right);
                resize(left, {low.offset, low.bytes + r.bytes + high.bytes});
            } else {
                tags_.insert(r.end(), side::end, left);
                resize(left, {low.offset, low.bytes + r.bytes});
            }
        } else if (right != 0) {
            tags_.erase(r.end(), side::start, right);
            tags_.insert(r.offset, side::start, right);
            resize(right, {r.offset, r.bytes + nodes_[right].free.bytes});
        } else {
            index_type const n = fresh_node(r);
            tags_.insert(r.offset, side::start, n);
            tags_.insert(r.end(), side::end, n);
            lists_.link(nodes_, n, class_of(r.bytes));
        }
    }

    // Cuts 'block' out of the free range of node n; what is left before and after stays free.
    void carve(index_type n, range block) noexcept {
        range const whole = nodes_[n].free;
        range const before{whole.offset, block.offset - whole.offset};
        range const after{block.end(), whole.end() - block.end()};
        free_bytes_ -= block.bytes;
        if (!before)
            tags_.erase(whole.offset, side::start, n);
        if (!before && after) {
            tags_.insert(after.offset, side::start, n);
            resize(n, after);
            return;
        }
        if (before && after) {
            index_type const m = fresh_node(after);
            tags_.reassign(whole.end(), side::end, n, m);
            tags_.insert(after.offset, side::start, m);
            lists_.link(nodes_, m, class_of(after.bytes));
        } else {
            tags_.erase(whole.end(), side::end, n);
        }
        if (before) {
            tags_.insert(block.offset, side::end, n);
            resize(n, before);
        } else {
            lists_.unlink(nodes_, n);
            retire(n);
        }
    }

    growing_array<node> nodes_;
    boundary_map tags_;
    size_lists lists_;
    shared<fence_set> fences_;
    index_type spare_ = 0;
    std::size_t ranges_ = 0; // free ranges
    std::size_t room_ = 0;   // free ranges that there is room for
    std::size_t free_bytes_ = 0;
};

} // namespace placement
} // namespace v0
} // namespace weir
