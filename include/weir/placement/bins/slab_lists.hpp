// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// slab_lists: which slab does a class take its next block from?
//
// Each class has a list of the slabs with free blocks. Blocks come from the first until it is used up. The next is the used-up
// slab that had a first block back most recently. A class keeps one whole slab (all its blocks are free), which is used after
// the others. A second one leaves the table.
//
// invariant: a record with bits is in its class's list; one without is asleep, that is, it waits for blocks to come back. A
//            class has at most one whole slab.
// order:     none; an object belongs to one lock.
// cost:      O(1), but for 'drop_wholes', which is O(classes).
// not for:   bytes that are no slab of a class: see bins.hpp.

#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/placement/bins/slab_classes.hpp>
#include <weir/placement/bins/slab_table.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// A table of slabs with a list for each class. Not thread-safe.
template <std::size_t UnitBytes>
class slab_lists : public slab_table {
    using classes = slab_classes<UnitBytes>;

public:
    /// The slab that the class takes its next block from, and the slab after another one; 0: there is none.
    index_type first(unsigned in) const noexcept { return kinds_[in].list; }
    index_type after(index_type s) noexcept { return (*this)[s].next; }
    /// Whether any class, and this one, keeps a whole slab.
    bool any_whole() const noexcept { return wholes_ != 0; }
    bool keeps_whole(unsigned in) const noexcept { return kinds_[in].whole != 0; }

    /// The first free block of a slab that has one.
    base::range first_free(index_type s) noexcept {
        record const& of = (*this)[s];
        std::size_t const size = classes::block_bytes_of(of.in);
        return {of.base + base::lowest_bit(of.free) * size, size};
    }

    /// Takes the first free block of a slab that has one.
    base::range take(index_type s) noexcept {
        record& from = (*this)[s];
        if (s == kinds_[from.in].whole)
            set_whole(from.in, 0);
        base::range const block = first_free(s);
        from.free &= from.free - 1;
        if (from.free == 0)
            use_up(s);
        return block;
    }

    /// Notes that blocks became free. If the slab is whole now, and its class keeps one already, it leaves the table: the
    /// answer is its bytes, else an empty range.
    base::range give(index_type s, std::uint64_t blocks) noexcept {
        record& to = (*this)[s];
        kind& k = kinds_[to.in];
        if (to.free == 0) {
            // The slab in use stays first, since it is in the cache. A whole slab does not stay first.
            if (k.list == k.whole)
                push(k.list, s, 0);
            else
                push((*this)[k.list].next, s, k.list);
            woke();
        }
        to.free |= blocks;
        return to.free == classes::all_blocks(to.in) ? make_whole(s) : base::range{};
    }

    /// Starts the empty list of the slab's class with a fresh slab, whose record is asleep.
    void start(index_type s) noexcept {
        unsigned const in = (*this)[s].in;
        (*this)[s].free = classes::all_blocks(in);
        woke();
        push(kinds_[in].list, s, 0);
        set_whole(in, s);
    }

    /// All whole slabs leave the table: calls visit(bytes, class) for each.
    template <class Visit>
    void drop_wholes(Visit const& visit) noexcept {
        for (unsigned in = 0; wholes_ != 0; ++in)
            if (index_type const s = kinds_[in].whole) {
                set_whole(in, 0);
                visit(drop(s), in);
            }
    }

private:
    struct kind {
        index_type list = 0;  // slabs with free blocks; blocks come from the first
        index_type whole = 0; // the whole slab among them, which is used after the others
    };

    void push(index_type& place, index_type s, index_type before) noexcept {
        (*this)[s].previous = before;
        (*this)[s].next = place;
        if (place != 0)
            (*this)[place].previous = s;
        place = s;
    }

    void unlink(index_type s) noexcept {
        record const& from = (*this)[s];
        (from.previous != 0 ? (*this)[from.previous].next : kinds_[from.in].list) = from.next;
        if (from.next != 0)
            (*this)[from.next].previous = from.previous;
    }

    // A slab has no free block left.
    void use_up(index_type s) noexcept {
        unlink(s);
        fell_asleep();
        keep_whole((*this)[s].in);
    }

    // Moves a whole slab behind another slab with free blocks, if there is one, so that it stays whole.
    void keep_whole(unsigned in) noexcept {
        index_type const first = kinds_[in].list;
        if (first == 0 || first != kinds_[in].whole || (*this)[first].next == 0)
            return;
        unlink(first);
        push((*this)[kinds_[in].list].next, first, kinds_[in].list);
    }

    base::range make_whole(index_type s) noexcept {
        unsigned const in = (*this)[s].in;
        base::range surplus;
        if (kinds_[in].whole != 0)
            surplus = drop(s);
        else
            set_whole(in, s);
        keep_whole(in);
        return surplus;
    }

    // Sets the whole slab that the class keeps; 0: none. Exactly one of the old and the new one must be 0.
    void set_whole(unsigned in, index_type s) noexcept {
        kinds_[in].whole = s;
        wholes_ = s != 0 ? wholes_ + 1 : wholes_ - 1;
    }

    base::range drop(index_type s) noexcept {
        base::range const slab{(*this)[s].base, classes::slab_bytes((*this)[s].in)};
        unlink(s);
        retire(s);
        return slab;
    }

    kind kinds_[classes::count];
    unsigned wholes_ = 0; // how many classes keep a whole slab
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
