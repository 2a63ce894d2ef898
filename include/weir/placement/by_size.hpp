// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// by_size: small blocks one way, large ones another.
//
// A placement that is quick for small blocks wastes too much memory on large ones, and the reverse. This one routes blocks by
// size. The small part lives inside the large part: the large part places the slabs that the small part cuts into blocks, and
// gets each slab back when all its blocks are free. So both share the same bytes, and nobody has to decide beforehand how
// many each gets.
//
// A block that comes back carries only its rounded size, so the size tells which part it belongs to. Hence the size of a block
// of the large part is rounded to more than the threshold, even for a small block that needs an alignment above it.
//
// Where memory is short, a slab for a single block may be too much to ask, and bytes that lie free in slabs of other sizes are
// missing. 'squeeze' takes a small block from the large part by itself then, or breaks the slabs up and takes it from their
// free bytes. Such blocks are loose, and a set that all siblings share knows where they go (by_size/loose_blocks.hpp).
//
// invariant: rounded() <= ThresholdBytes exactly for the blocks of the small part and for loose ones. Bytes from add() enter
//            through the large part, so it alone deals with fences (addresses that free ranges do not join across) and with
//            joining.
// order:     none; an object belongs to one lock.
// cost:      one comparison, then what the part costs.
// not for:   a small part that does not live on slabs; a large part that is itself a by_size, since it would get slabs back
//            in pieces.

#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/placement/by_size/crumbs.hpp>
#include <weir/placement/by_size/loose_blocks.hpp>
#include <weir/placement/by_size/required_parts.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace weir {
inline namespace v0 {
namespace placement {

/// Placement of blocks of at most ThresholdBytes in Small, and of larger ones in Large. Not thread-safe. Movable, not
/// copyable. Members that may allocate host memory throw std::bad_alloc; no bytes are lost then.
template <std::size_t ThresholdBytes, class Small, class Large>
class by_size {
    static_assert(base::is_power_of_two(ThresholdBytes),
                  "weir: by_size's ThresholdBytes must be a power of two, as in "
                  "'by_size<64 * KiB, bins<>, best_fit<>>'");
    static_assert(detail::require_parts<Small, Large>());

    static constexpr std::size_t enlarged(std::size_t bytes) noexcept {
        return bytes <= ThresholdBytes && bytes != 0 ? ThresholdBytes + 1 : bytes;
    }

public:
    static_assert(
        !detail::is_fed_by_slabs<Small>() || Small::rounded(ThresholdBytes, 1) == ThresholdBytes,
        "weir: by_size's Small part must serve blocks of exactly ThresholdBytes; lower the threshold or "
        "raise the part's largest block");

    static_assert(
        !detail::is_fed_by_slabs<Small>() || Small::refill(1, 1) % Large::granularity == 0,
        "weir: by_size's Large part keeps the slabs of the Small part, so its granularity divides the smallest of them; "
        "lower it, or raise the Small part's smallest block");

    /// Every block starts at a multiple of this.
    static constexpr std::size_t granularity =
        Small::granularity < Large::granularity ? Small::granularity : Large::granularity;

    by_size() = default;

    /// Whether such a block is cut from a slab.
    static constexpr bool is_small(std::size_t bytes, std::size_t alignment) noexcept {
        return bytes <= ThresholdBytes && alignment <= ThresholdBytes;
    }

    /// Bytes that take(bytes, alignment) occupies; 0 if the size is 0 or does not fit std::size_t.
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t alignment) noexcept {
        if (alignment > granularity)
            return is_small(bytes, alignment) ? Small::rounded(bytes, alignment)
                                              : Large::rounded(enlarged(bytes), alignment);
        // Which part serves a block cannot be predicted, and a wrong branch prediction costs as much as all of this.
        return base::align_up(bytes, base::choose(bytes <= ThresholdBytes, Small::grain(bytes), Large::grain(bytes)));
    }

    /// The bytes that a fresh range at any multiple of 'base_alignment' needs so that take(bytes, alignment) succeeds in it.
    static constexpr std::size_t needs(std::size_t bytes, std::size_t alignment,
                                       std::size_t base_alignment) noexcept {
        if (!is_small(bytes, alignment))
            return Large::needs(enlarged(bytes), alignment, base_alignment);
        std::size_t const slab = Small::refill(bytes, alignment);
        return Large::needs(slab, slab, base_alignment);
    }

    /// The same for squeeze(bytes, alignment), which cuts no slab.
    static constexpr std::size_t squeeze_needs(std::size_t bytes, std::size_t alignment,
                                               std::size_t base_alignment) noexcept {
        return is_small(bytes, alignment) ? Large::needs(Small::rounded(bytes, alignment), alignment, base_alignment)
                                          : needs(bytes, alignment, base_alignment);
    }

    /// A free block of rounded(bytes, alignment) at a multiple of 'alignment' (a power of two), or range{}.
    base::range take(std::size_t bytes, std::size_t alignment) {
        if (is_small(bytes, alignment)) {
            base::range block = small_.take_at_hand(bytes, alignment);
            if (!block && bytes != 0)
                block = take_from_fresh_slab(bytes, alignment);
            return block;
        }
        return take_large(enlarged(bytes), alignment);
    }

    /// The same, but no new slab is cut for a small block: it must come from a slab that serves its size already.
    base::range take_at_hand(std::size_t bytes, std::size_t alignment) {
        return is_small(bytes, alignment) ? small_.take_at_hand(bytes, alignment) : large_.take(enlarged(bytes), alignment);
    }

    /// Frees a block that this object or a sibling took.
    void give(base::range block) {
        if (block.bytes > ThresholdBytes)
            return large_.give(block);
        if (loose_->any())
            return give_small_or_loose(block);
        give_small(block);
    }

    /// As take, where memory is short: fails only if no free range has room for the block. What lies free in slabs counts as
    /// free ranges. It breaks these slabs up, so later calls are slower. O(slabs).
    base::range squeeze(std::size_t bytes, std::size_t alignment) {
        base::range block = take_without_slab(bytes, alignment);
        if (block || bytes == 0)
            return block;
        break_slabs_up();
        return take_without_slab(bytes, alignment);
    }

    /// This object and its siblings will get at most 'bytes' bytes. No slab is more than a small share of that, since it may
    /// hold a single block. Call it first.
    void expect_at_most(std::size_t bytes) noexcept { loose_->most_slab_bytes(bytes / slabs_of_a_limit); }

    /// Makes a fresh range free.
    void add(base::range fresh) { large_.add(fresh); }

    /// Removes exactly 'wanted' if all of it is free here, else returns false. Removes the fence at its start.
    bool remove(base::range wanted) {
        if (large_.remove(wanted))
            return true;
        return return_all() && large_.remove(wanted);
    }
    /// The same in O(1), but 'wanted' must lie in the large part's free range that starts at 'start'.
    bool remove(base::range wanted, std::size_t start) { return large_.remove(wanted, start); }

    /// How many bytes of the large part's free memory end at 'offset', and how many start there. O(1).
    std::size_t free_before(std::size_t offset) const noexcept { return large_.free_before(offset); }
    std::size_t free_after(std::size_t offset) const noexcept { return large_.free_after(offset); }

    /// Calls visit(range) for the large part's free ranges of at least 'least' bytes, the smallest first. Before that, the
    /// small part gives the large part the whole slabs that it keeps.
    template <class Visit>
    void for_each_free(std::size_t least, Visit&& visit) {
        return_all();
        large_.for_each_free(least, visit);
    }

    /// Makes the start of 'chunk' a fence: no free range joins across it after this call, here and in every sibling. Call it
    /// before add.
    void fence(base::range chunk) { large_.fence(chunk); }

    /// An empty placement whose blocks may mix with this one's.
    by_size sibling() const { return by_size(small_.sibling(), large_.sibling(), loose_); }

    /// Absorbs a sibling: all its free bytes move here.
    void absorb(by_size& other) {
        small_.absorb(other.small_);
        large_.absorb(other.large_);
        crumbs_.reserve(other.crumbs_.size());
        large_.reserve(other.crumbs_.size());
        crumbs_.absorb(other.crumbs_, into_large());
        parts_of_broken_slabs_ = parts_of_broken_slabs_ || loose_->any();
        return_surplus();
    }

    /// Lends free bytes to a sibling: removes a range here that lets take(bytes, alignment) succeed when it is added to an
    /// empty sibling. For a small block that is up to eight whole slabs side by side, since a sibling that needs one usually
    /// needs the next soon; for one that has no slab, as much or less, but never just the block.
    base::range lend(std::size_t bytes, std::size_t alignment) {
        if (!is_small(bytes, alignment))
            return lend_large(enlarged(bytes), alignment);
        std::size_t const slab = Small::refill(bytes, alignment);
        bool const cuts = cuts_slab(slab, bytes, alignment);
        std::size_t const most = most_lent_slabs * (cuts ? slab : loose_->most_slab_bytes());
        std::size_t const least = cuts ? slab : 2 * Small::rounded(bytes, alignment);
        base::range stock;
        for (std::size_t wanted = most; !stock && wanted != 0 && wanted >= least; wanted /= 2)
            stock = lend_large(wanted, cuts ? slab : alignment);
        return stock;
    }

    /// Free bytes here.
    std::size_t free_bytes() const noexcept { return small_.free_bytes() + large_.free_bytes() + crumbs_.bytes(); }

    /// Bytes of the largest block that a take, or else 'squeeze', can surely get now.
    std::size_t largest() const noexcept {
        std::size_t const most = large_.largest() > small_.largest() ? large_.largest() : small_.largest();
        return most > ThresholdBytes || most == 0 ? most : base::align_down(most, Small::grain(most));
    }

    /// The splinters: free bytes in the small part's slabs. Each piece can serve blocks of only one size.
    std::size_t splinter_bytes() const noexcept { return small_.free_bytes(); }

    /// Host bytes that the parts' records hold.
    std::size_t bookkeeping_bytes() const noexcept {
        return small_.bookkeeping_bytes() + large_.bookkeeping_bytes();
    }

private:
    static constexpr std::size_t slabs_of_a_limit = 16 * KiB; // a slab is no larger than the limit divided by this
    static constexpr std::size_t most_lent_slabs = 8; // with 8 slabs, handing a block over costs a quarter less than with 1

    by_size(Small&& small_part, Large&& large_part, base::shared<detail::loose_blocks> const& loose)
        : small_(std::move(small_part)), large_(std::move(large_part)), loose_(loose) {}

    auto into_large() noexcept {
        return [this](base::range slab) { large_.give(slab); };
    }

    // Gives slabs that no class needs back to the large part, where they join. If the host has no memory for that, they wait
    // for the next time: the block that was given is freed already, and the call must not look as if it was refused.
    void return_surplus() noexcept {
        try {
            small_.surrender(into_large());
        } catch (std::bad_alloc const&) {
        }
    }

    void give_small(base::range block) {
        small_.give(block);
        return_surplus();
    }
    // Not inlined, so that the usual path saves no registers.
    [[gnu::noinline]] void give_small_or_loose(base::range block) {
        if (!loose_->contains(block.offset))
            return give_small(block);
        reserve_bytes(1);
        crumbs_.add(block, into_large());
        loose_->erase(block.offset); // now, since its bytes are this object's
    }

    // Makes room for so many ranges of bytes that go to the large part.
    void reserve_bytes(std::size_t ranges) {
        crumbs_.reserve(ranges);
        large_.reserve(3 * ranges);
    }

    // Whether such a block gets a slab of 'slab' bytes, if there is room. A loose block takes whole granules; where that costs
    // a quarter of it or more, it gets one in any case.
    bool cuts_slab(std::size_t slab, std::size_t bytes, std::size_t alignment) const noexcept {
        std::size_t const size = Small::rounded(bytes, alignment);
        return slab <= loose_->most_slab_bytes() || base::align_up(size, Large::granularity) - size >= size / 4;
    }

    base::range take_without_slab(std::size_t bytes, std::size_t alignment) {
        if (!is_small(bytes, alignment))
            return large_.take(enlarged(bytes), alignment);
        std::size_t const size = Small::rounded(bytes, alignment);
        crumbs_.reserve(1);
        base::range const found = large_.lend(size, alignment); // not 'take', so that it may go back without memory
        if (!found)
            return found;
        try {
            loose_->insert(found.offset);
        } catch (...) {
            large_.give(found);
            throw;
        }
        if (found.bytes != size)
            crumbs_.add({found.offset + size, found.bytes - size}, into_large());
        return {found.offset, size};
    }

    // Gives the large part what is free of slabs.
    void break_slabs_up() {
        small_.surrender_kept(into_large());
        parts_of_broken_slabs_ = true; // until it is through
        small_.surrender_blocks([](base::range) { return true; }, [this](base::range block) { give_up(block); });
        parts_of_broken_slabs_ = false;
    }
    // Gives the large part what no slab needs: whole slabs, and free blocks of slabs that were broken up. Returns whether there
    // may have been any.
    bool return_all() {
        bool const any = small_.surrender_kept(into_large()) || parts_of_broken_slabs_;
        if (parts_of_broken_slabs_)
            small_.surrender_blocks([this](base::range block) { return loose_->contains(block.offset); },
                                    [this](base::range block) { give_up(block); });
        parts_of_broken_slabs_ = false;
        return any;
    }
    // Gives the large part a free block of a slab. The slab's other blocks are loose from now on. If the block is loose itself,
    // that was done already, here or by a sibling.
    // Throws before any change.
    void give_up(base::range block) {
        reserve_bytes(2);
        if (!loose_->contains(block.offset)) {
            std::size_t const slab_bytes = Small::refill(block.bytes, 1);
            std::size_t const start = base::align_down(block.offset, slab_bytes);
            std::size_t const blocks = slab_bytes / block.bytes;
            loose_->insert(start, block.bytes, blocks, block.offset);
            crumbs_.add({start + blocks * block.bytes, slab_bytes - blocks * block.bytes}, into_large());
        }
        crumbs_.add(block, into_large());
        loose_->erase(block.offset);
    }

    base::range take_large(std::size_t bytes, std::size_t alignment) {
        base::range block = large_.take(bytes, alignment);
        if (!block && small_.surrender_kept(into_large()))
            block = large_.take(bytes, alignment);
        return block;
    }
    // The same, but the bytes can be added again at once without memory.
    base::range lend_large(std::size_t bytes, std::size_t alignment) {
        base::range const stock = large_.lend(bytes, alignment);
        return stock || !small_.surrender_kept(into_large()) ? stock : large_.lend(bytes, alignment);
    }

    base::range take_from_fresh_slab(std::size_t bytes, std::size_t alignment) {
        std::size_t const wanted = Small::refill(bytes, alignment);
        if (!cuts_slab(wanted, bytes, alignment))
            return take_without_slab(bytes, alignment);
        small_.prepare();
        base::range const slab = take_large(wanted, wanted);
        if (!slab)
            return {};
        small_.add(slab);
        return small_.take_at_hand(bytes, alignment);
    }

    Small small_;
    Large large_;
    detail::crumbs<Large::granularity> crumbs_;
    base::shared<detail::loose_blocks> loose_ = base::shared<detail::loose_blocks>::make();
    bool parts_of_broken_slabs_ = false; // whether the small part may have free blocks of such slabs
};

} // namespace placement
} // namespace v0
} // namespace weir
