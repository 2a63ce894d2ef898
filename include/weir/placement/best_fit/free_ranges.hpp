// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// free_ranges: which bytes are free, and which free ranges do they join?
//
// A set of free ranges. Each has a record (a node), a place in the list of its size (size_lists.hpp), and a tag at either end
// (boundary_map.hpp). With these, a range that is put in finds and joins its neighbours, and a range that is cut shrinks,
// with a few cache lines read. best_fit decides which range to cut.
//
// invariant: no two free ranges touch, except at a fence; each has one node, one list and two tags; bytes() is the sum of
//            all.
// order:     none; an object belongs to one lock. Only the fences are shared among siblings, under a lock of their own.
// cost:      O(1) a call, except 'clear' and 'for_each', which are O(ranges); 45 to 90 host bytes for each free range.
// not for:   bytes that are in use: they cost nothing here.

#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/placement/best_fit/boundary_map.hpp>
#include <weir/placement/best_fit/fence_set.hpp>
#include <weir/placement/best_fit/size_lists.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Free ranges in multiples of Granularity bytes. Not thread-safe. Only 'reserve' allocates.
template <std::size_t Granularity>
class free_ranges {
public:
    using index_type = boundary_map::index_type;

    struct node {
        base::range free; // no bytes: the node is a spare one
        index_type next;
        index_type previous;
        unsigned in; // the size class, an index into lists_
    };

    explicit free_ranges(base::shared<fence_set> fences) : fences_(std::move(fences)) {}

    /// The fences, which all siblings share.
    base::shared<fence_set> const& fences() const noexcept { return fences_; }
    /// The record of a range. Record 0 belongs to no range and is empty.
    node const& operator[](index_type n) const noexcept { return nodes_[n]; }
    /// All records, spare ones included.
    base::growing_array<node> const& nodes() const noexcept { return nodes_; }
    size_lists const& lists() const noexcept { return lists_; }
    /// The size class of a range of 'bytes' bytes.
    static unsigned class_of(std::size_t bytes) noexcept { return size_lists::class_of(bytes / Granularity); }

    /// The number of free ranges, and their bytes in all.
    std::size_t size() const noexcept { return ranges_; }
    std::size_t bytes() const noexcept { return free_bytes_; }

    /// The range that starts at 'offset', and the range that ends there; 0: none.
    index_type starting_at(std::size_t offset) const noexcept {
        return tags_.find(offset, side::start, [&](index_type n) { return nodes_[n].free.offset == offset; });
    }
    index_type ending_at(std::size_t offset) const noexcept {
        return tags_.find(offset, side::end, [&](index_type n) { return nodes_[n].free.end() == offset; });
    }

    /// Bytes of the largest free range. O(ranges of its size class).
    std::size_t largest() const noexcept {
        unsigned const in = lists_.last_occupied();
        std::size_t bytes = 0;
        for (index_type at = in == size_lists::classes ? 0 : lists_.head(in); at != 0; at = nodes_[at].next)
            bytes = nodes_[at].free.bytes > bytes ? nodes_[at].free.bytes : bytes;
        return bytes;
    }

    /// Calls visit(range) for each free range of at least 'least' bytes, nearly in order of size, the smallest first.
    template <class Visit>
    void for_each(std::size_t least, Visit&& visit) const {
        for (unsigned in = lists_.occupied_from(class_of(least)); in < size_lists::classes;
             in = lists_.occupied_from(in + 1))
            for (index_type at = lists_.head(in); at != 0; at = nodes_[at].next)
                if (nodes_[at].free.bytes >= least)
                    visit(nodes_[at].free);
    }

    /// Makes room for 'ranges' free ranges in all, so that later calls do not throw. Throws std::bad_alloc before any change.
    void reserve(std::size_t ranges) {
        if (ranges > room_)
            grow(ranges);
    }

    /// Makes 'r' free and joins it with its free neighbours, but not across a fence. Room must be reserved.
    void insert(base::range r) noexcept {
        r = base::in_registers(r);
        free_bytes_ += r.bytes;
        tags_.prefetch(r.end());
        index_type const left = tags_.find(r.offset, side::end, [&](index_type n) {
            return nodes_[n].free.end() == r.offset && !fences_->contains(r.offset);
        });
        index_type const right = tags_.find(r.end(), side::start, [&](index_type n) {
            return nodes_[n].free.offset == r.end() && !fences_->contains(r.end());
        });
        if (left != 0) {
            base::range const low = nodes_[left].free;
            tags_.erase(r.offset, side::end, left);
            if (right != 0) {
                base::range const high = nodes_[right].free;
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

    /// Cuts 'block' out of the free range of node n. What is left before and after it stays free.
    void carve(index_type n, base::range block) noexcept {
        base::range const whole = nodes_[n].free;
        base::range const before{whole.offset, block.offset - whole.offset};
        base::range const after{block.end(), whole.end() - block.end()};
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

    /// Forgets every range. It keeps its room if that is small, because an emptied set is usually filled again soon.
    void clear() noexcept {
        if (bookkeeping_bytes() > kept_bytes) {
            *this = free_ranges(fences_);
            return;
        }
        for (; nodes_.size() > 1; nodes_.pop_back())
            if (auto const last = static_cast<index_type>(nodes_.size() - 1); nodes_[last].free)
                carve(last, nodes_[last].free);
        spare_ = 0;
    }

    /// Host bytes that the records hold.
    std::size_t bookkeeping_bytes() const noexcept {
        return nodes_.capacity() * sizeof(node) + tags_.bookkeeping_bytes() + lists_.bookkeeping_bytes();
    }

private:
    using side = boundary_map::side;

    static constexpr std::size_t kept_bytes = 32 * KiB; // an empty set keeps at most this: the lists, and the tags of some
                                                        // hundred ranges

    void grow(std::size_t ranges) {
        std::size_t const room = ranges > room_ + room_ / 2 ? ranges + 15 : room_ + room_ / 2;
        lists_.prepare();
        nodes_.reserve(room + 1);
        tags_.reserve(2 * room, [this](index_type n, side end) {
            return end == side::start ? nodes_[n].free.offset : nodes_[n].free.end();
        });
        if (nodes_.empty())
            nodes_.push_back({}); // index 0 means 'none'
        room_ = room;
    }

    index_type fresh_node(base::range r) noexcept {
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

    // Gives a node that is in a list another range. The node changes lists only if its class changed.
    void resize(index_type n, base::range r) noexcept {
        nodes_[n].free = r;
        unsigned const in = class_of(r.bytes);
        if (in != nodes_[n].in) {
            lists_.unlink(nodes_, n);
            lists_.link(nodes_, n, in);
        }
    }

    base::growing_array<node> nodes_;
    boundary_map tags_;
    size_lists lists_;
    base::shared<fence_set> fences_;
    index_type spare_ = 0;
    std::size_t ranges_ = 0; // the number of free ranges
    std::size_t room_ = 0;   // how many free ranges there is room for
    std::size_t free_bytes_ = 0;
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
