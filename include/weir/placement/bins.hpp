// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// bins: small blocks in a few nanoseconds.
//
// Sizes are rounded up to one of eight classes an octave (from one power of two to the next). A class takes its blocks from
// slabs: runs of at most 64 equal blocks, with one 64-bit word that says which blocks are free here. This is Bonwick's slab
// allocator (1994), with its bookkeeping in host memory. A slab has a power of two of bytes and starts at a multiple of its
// size, so masking a block's offset gives the slab, and a hash finds its record. A slab that this object never saw gets a
// record when one of its blocks is given back here. That is how blocks move between siblings, placements whose blocks may
// mix. A slab whose blocks are all free here is whole. A class keeps one whole slab; others become raw bytes, which any class
// may cut anew and which 'surrender' gives back.
//
// Blocks come from one slab until it is used up (bins/slab_lists.hpp). To look for the fullest slab then would not leave fewer
// in use, neither on traces nor when live blocks shrink to a tenth.
//
// invariant: a record's bits are the blocks that are free here.
// order:     none; an object belongs to one lock.
// cost:      take: a bit scan; give: a multiplication and at most one look-up; a new slab: O(raw pieces). About 80 host bytes
//            a slab, that is 1 to 5 a block.
// not for:   blocks above 4,096 times MinimumBytes: rounded() is 0. Raw pieces do not join: put by_size over it if sizes
//            change.

#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/swap.hpp>
#include <weir/fwd.hpp>
#include <weir/placement/bins/piece_list.hpp>
#include <weir/placement/bins/slab_classes.hpp>
#include <weir/placement/bins/slab_lists.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement {

/// Placement of small blocks in size classes that are multiples of MinimumBytes. Not thread-safe. Movable, not copyable; a
/// moved-from object may only be assigned to or destroyed. Members that may allocate host memory throw std::bad_alloc before
/// any change.
template <std::size_t MinimumBytes>
class bins {
    static_assert(base::is_power_of_two(MinimumBytes) && MinimumBytes >= 16 && MinimumBytes <= 64 * KiB,
                  "weir: bins' MinimumBytes must be a power of two from 16 to 65536, as in 'bins<256>'");
    using classes = placement::detail::slab_classes<MinimumBytes>;

public:
    /// Every block starts at a multiple of this and occupies a multiple of it.
    static constexpr std::size_t granularity = MinimumBytes;
    /// The largest block that it serves.
    static constexpr std::size_t largest_block_bytes = classes::largest_block_bytes;

    bins() = default;
    bins(bins&& other) noexcept = default;
    bins& operator=(bins&& other) noexcept = default;

    /// Bytes that take(bytes, alignment) occupies, at most an eighth more than asked from 8 * MinimumBytes on. 0 if the size
    /// is 0 or too large to be served.
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t alignment) noexcept {
        std::size_t const wanted = at_least(bytes, alignment);
        return base::align_up(wanted, classes::grain(wanted));
    }

    /// The power of two that sizes are rounded up to: rounded(bytes, granularity) is the next multiple of it.
    static constexpr std::size_t grain(std::size_t bytes) noexcept { return classes::grain(bytes); }

    /// Bytes of the slab that take(bytes, alignment) cuts its block from. The slab must start at a multiple of its size.
    static constexpr std::size_t refill(std::size_t bytes, std::size_t alignment) noexcept {
        std::size_t const block = rounded(bytes, alignment);
        return block == 0 ? 0 : classes::slab_bytes(classes::class_of(block));
    }

    /// The bytes that a fresh range at any multiple of 'base_alignment' needs so that take(bytes, alignment) succeeds in it.
    static constexpr std::size_t needs(std::size_t bytes, std::size_t alignment,
                                       std::size_t base_alignment) noexcept {
        return base::with_slack(refill(bytes, alignment), refill(bytes, alignment), base_alignment);
    }

    /// A free block of rounded(bytes, alignment) at a multiple of 'alignment' (a power of two), or range{}.
    base::range take(std::size_t bytes, std::size_t alignment) {
        base::range block = take_at_hand(bytes, alignment);
        if (!block && slabs_.any_whole()) {
            make_room_to_shed();
            shed();
            block = take_at_hand(bytes, alignment);
        }
        return block;
    }

    /// The same, but does not touch the whole slabs that other classes keep.
    base::range take_at_hand(std::size_t bytes, std::size_t alignment) {
        std::size_t const wanted = at_least(bytes, alignment);
        if (wanted == 0)
            return {};
        unsigned const in = classes::class_of(wanted);
        index_type const s = slabs_.first(in) != 0 ? slabs_.first(in) : another_slab(in);
        if (s == 0)
            return {};
        base::range const taken = slabs_.take(s);
        free_bytes_ -= taken.bytes;
        return taken;
    }

    /// Frees a block that this object or a sibling took.
    void give(base::range block) {
        unsigned const in = classes::class_of(block.bytes);
        std::size_t const base = base::align_down(block.offset, classes::slab_bytes_of(in));
        index_type s = slabs_.first(in);
        if (s == 0 || slabs_[s].base != base) {
            s = slabs_.record_of(base, in);
            raw_.reserve(slabs_.capacity()); // if this throws, a sleeping record stays, which does no harm
        }
        merge(s, in, std::uint64_t{1} << classes::block_index(in, block.offset - base), block.bytes);
    }

    /// Makes a fresh range free for any class. Bytes at its ends that are no whole smallest slab stay unused.
    void add(base::range fresh) {
        base::range const inside = base::inward(fresh, classes::smallest_slab_bytes);
        raw_.add(inside, slabs_.capacity());
        free_bytes_ += inside.bytes;
    }

    /// Removes exactly 'wanted' if all of it is free here, else returns false. Bytes that 'add' left unused count as free.
    /// O(raw pieces).
    bool remove(base::range wanted) {
        base::range const inside = base::inward(wanted, classes::smallest_slab_bytes);
        shed();
        bool const taken = raw_.take_all(inside);
        free_bytes_ -= taken ? inside.bytes : 0;
        return taken;
    }

    /// An empty placement whose blocks may mix with this one's.
    bins sibling() const { return bins(); }

    /// Absorbs a sibling: all its free bytes move here.
    void absorb(bins& other) {
        if (&other == this || other.free_bytes_ == 0)
            return;
        bool const fewer = slabs_.size() + raw_.size() < other.slabs_.size() + other.raw_.size(); // the smaller set moves
        bins& to = fewer ? other : *this;
        bins& few = fewer ? *this : other;
        to.reserve(few.slabs_.size());
        to.raw_.reserve(to.slabs_.capacity() + few.raw_.size() + classes::count);
        few.shed();
        if (fewer)
            base::swap_values(*this, other); // records of slabs without free blocks go along, which does no harm
        other.surrender([this](base::range piece) {
            raw_.put(piece);
            free_bytes_ += piece.bytes;
        });
        for (placement::detail::slab_table::record const& from : other.slabs_)
            if (from.free != 0)
                merge(slabs_.record_of(from.base, from.in), from.in, from.free,
                      base::count_bits(from.free) * classes::block_bytes(from.in));
        other = bins();
    }

    /// Lends free bytes: removes a slab here that lets take(bytes, alignment) succeed when it is added to an empty sibling.
    base::range lend(std::size_t bytes, std::size_t alignment) {
        std::size_t const wanted = refill(bytes, alignment);
        base::range piece = wanted == 0 ? base::range{} : raw_.take(wanted, slabs_.capacity());
        if (!piece && wanted != 0 && slabs_.any_whole()) {
            make_room_to_shed();
            shed();
            piece = raw_.take(wanted, slabs_.capacity());
        }
        free_bytes_ -= piece.bytes;
        return piece;
    }

    /// Makes room so that adding one slab and taking a block from it do not throw.
    void prepare() {
        reserve(1);
        raw_.reserve(slabs_.capacity() + placement::detail::piece_list::most_pieces + 1);
    }

    /// Gives the raw pieces, which no class needs, away: calls take_over(range) for each. If that throws, the piece stays
    /// here.
    template <class TakeOver>
    void surrender(TakeOver&& take_over) {
        while (!raw_.empty()) {
            base::range const piece = raw_.back();
            take_over(piece);
            raw_.drop_back();
            free_bytes_ -= piece.bytes;
        }
    }

    /// The same, also for the whole slabs that classes keep. Returns whether there was anything.
    template <class TakeOver>
    bool surrender_kept(TakeOver&& take_over) {
        bool const any = shed() || !raw_.empty();
        surrender(take_over);
        return any;
    }

    /// The same for the free blocks of each slab for which wanted(one of them) says so. Call surrender_kept first. O(slabs).
    template <class Wanted, class TakeOver>
    void surrender_blocks(Wanted&& wanted, TakeOver&& take_over) {
        for (unsigned in = 0; in < classes::count; ++in)
            for (index_type s = slabs_.first(in), next = 0; s != 0; s = next) {
                next = slabs_.after(s);
                if (wanted(slabs_.first_free(s)))
                    for (unsigned left = base::count_bits(slabs_[s].free); left != 0; --left) {
                        take_over(slabs_.first_free(s));
                        free_bytes_ -= slabs_.take(s).bytes;
                    }
            }
    }

    /// Free bytes here, in blocks and in raw pieces. The rest of a slab behind its last block counts as neither.
    std::size_t free_bytes() const noexcept { return free_bytes_; }

    /// The largest block that a take can get now. O(raw pieces + classes).
    std::size_t largest() const noexcept {
        std::size_t piece = raw_.largest();
        for (unsigned in = 0; in < classes::count; ++in)
            piece = slabs_.keeps_whole(in) && classes::slab_bytes(in) > piece ? classes::slab_bytes(in) : piece;
        for (unsigned in = classes::count; in-- > 0;)
            if (slabs_.first(in) != 0 || classes::slab_bytes(in) <= piece)
                return classes::block_bytes(in);
        return 0;
    }

    /// Host bytes that the records of slabs hold.
    std::size_t bookkeeping_bytes() const noexcept {
        return slabs_.bookkeeping_bytes() + raw_.bookkeeping_bytes();
    }

private:
    using index_type = placement::detail::slab_table::index_type;

    // The size to ask the classes for, so that the block is aligned; 0 if it is too large. A class is aligned as far as all
    // sizes that it serves.
    static constexpr std::size_t at_least(std::size_t bytes, std::size_t alignment) noexcept {
        std::size_t const size = base::align_up(bytes, alignment > granularity ? alignment : granularity);
        return size > largest_block_bytes ? 0 : size;
    }

    // Makes room for 'more' records, each of which may become a raw piece, so that later steps cannot throw.
    void reserve(std::size_t more) {
        slabs_.reserve(more);
        raw_.reserve(slabs_.capacity());
    }

    // Notes that blocks became free.
    void merge(index_type s, unsigned in, std::uint64_t blocks, std::size_t bytes) noexcept {
        free_bytes_ += bytes;
        if (base::range const surplus = slabs_.give(s, blocks))
            put_slab(surplus, in);
    }
    // Makes a slab that left the table raw bytes.
    void put_slab(base::range slab, unsigned in) noexcept {
        raw_.put(slab);
        free_bytes_ += classes::tail_bytes(in);
    }

    // The list of the class is empty. Cuts a slab from raw bytes to start it again; 0 if there are not enough.
    index_type another_slab(unsigned in) {
        reserve(1);
        base::range const piece = raw_.take(classes::slab_bytes(in), slabs_.capacity());
        if (!piece)
            return 0;
        index_type const s = slabs_.record_of(piece.offset, in);
        slabs_.start(s);
        free_bytes_ -= classes::tail_bytes(in);
        return s;
    }

    // So that a piece can be taken behind 'shed', and nothing throws that has changed something.
    void make_room_to_shed() {
        raw_.reserve(slabs_.capacity() + classes::count + placement::detail::piece_list::most_pieces);
    }
    // Makes all whole slabs raw bytes. Returns whether there was one.
    bool shed() noexcept {
        bool const any = slabs_.any_whole();
        slabs_.drop_wholes([this](base::range slab, unsigned in) { put_slab(slab, in); });
        return any;
    }

    placement::detail::slab_lists<MinimumBytes> slabs_;
    placement::detail::piece_list raw_;
    std::size_t free_bytes_ = 0;
};

} // namespace placement
} // namespace v0
} // namespace weir
