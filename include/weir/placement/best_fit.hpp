// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// best_fit: ranges of any size, with little waste and in constant time.
//
// A block is cut from the free range that fits most closely, and a freed block joins its free neighbours (free_ranges.hpp).
// Only free ranges are recorded, so a block that is in use costs nothing. A sibling is a placement whose blocks may mix with
// this one's, for example that of another stream: a block may be taken from one sibling and given back to another.
//
// invariant: no two free ranges touch, except at a fence; take fails only if no free range fits. A fence is an address that
//            free ranges do not join across, because a chunk starts there.
// order:     none; an object belongs to one lock. Only the fences are shared among siblings, under a lock of their own.
// cost:      take, give: O(1), four or five cache lines. For an alignment above the granularity, take looks at some ranges
//            that might fit before it takes one that surely does, and at all of them before it fails. 45 to 90 host bytes for
//            each free range.
// not for:   blocks smaller than the granularity: they are rounded up to it. Put bins in front.

#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/swap.hpp>
#include <weir/fwd.hpp>
#include <weir/placement/best_fit/fence_set.hpp>
#include <weir/placement/best_fit/free_ranges.hpp>
#include <weir/placement/best_fit/size_lists.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir {
inline namespace v0 {
namespace placement {

/// Placement of blocks of any size, in multiples of GranularityBytes. Not thread-safe. Movable, not copyable; a moved-from
/// object may only be assigned to or destroyed. Members that may allocate host memory throw std::bad_alloc before any change.
template <std::size_t GranularityBytes>
class best_fit {
    static_assert(
        base::is_power_of_two(GranularityBytes) && GranularityBytes >= 16,
        "weir: best_fit's GranularityBytes must be a power of two of at least 16, as in 'best_fit<512>'");

public:
    /// Every block starts at a multiple of this and occupies a multiple of it.
    static constexpr std::size_t granularity = GranularityBytes;

    best_fit() : best_fit(base::shared<placement::detail::fence_set>::make()) {}
    best_fit(best_fit&& other) noexcept = default;
    best_fit& operator=(best_fit&& other) noexcept = default;

    /// Bytes that take(bytes, alignment) occupies; 0 if the size is 0 or does not fit std::size_t.
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) noexcept {
        return base::align_up(bytes, granularity);
    }

    /// The power of two that sizes are rounded up to: rounded(bytes, granularity) is the next multiple of it.
    static constexpr std::size_t grain(std::size_t) noexcept { return granularity; }

    /// The bytes that a fresh range needs so that take(bytes, alignment) succeeds in it, if it may start at any multiple of
    /// 'base_alignment'; 0 on overflow.
    static constexpr std::size_t needs(std::size_t bytes, std::size_t alignment,
                                       std::size_t base_alignment) noexcept {
        return base::with_slack(rounded(bytes, alignment), alignment > granularity ? alignment : granularity,
                          base_alignment);
    }

    /// A free range of rounded(bytes, alignment) at a multiple of 'alignment' (a power of two), or range{}.
    base::range take(std::size_t bytes, std::size_t alignment) {
        std::size_t const size = rounded(bytes, alignment);
        if (size == 0 || size > free_.bytes())
            return {};
        std::size_t const align = alignment > granularity ? alignment : granularity;
        index_type const found = search(size, align);
        if (found == 0)
            return {};
        base::range const block{base::align_up(free_[found].free.offset, align), size};
        if (block.offset != free_[found].free.offset)
            free_.reserve(free_.size() + 1); // what is left before and after the block makes two ranges
        free_.carve(found, block);
        return block;
    }

    /// Makes room so that 'gives' calls of 'give' do not throw.
    void reserve(std::size_t gives) { free_.reserve(free_.size() + gives); }

    /// Frees a block that this object or a sibling took. It joins the free ranges beside it.
    void give(base::range block) {
        free_.reserve(free_.size() + 1);
        free_.insert(block);
    }

    /// Makes a fresh range free. Bytes at its ends that are no whole granule stay unused.
    void add(base::range fresh) {
        if (base::range const inside = base::inward(fresh, granularity))
            give(inside);
    }

    /// Removes exactly 'wanted' if all of it is free here, and removes the fence at its start. Otherwise changes nothing and
    /// returns false. Bytes that 'add' left unused count as free. O(1) if a free range or a fence starts there, else O(free
    /// ranges).
    bool remove(base::range wanted) {
        base::range const inside = base::inward(wanted, granularity);
        if (!inside || inside.bytes > free_.bytes())
            return !inside;
        index_type found = free_.starting_at(inside.offset);
        if (found == 0 && !free_.fences()->contains(inside.offset)) {
            found = static_cast<index_type>(free_.nodes().size() - 1);
            while (found != 0 && !free_[found].free.contains(inside))
                --found;
        }
        return cut_out(found, inside);
    }
    /// The same in O(1), but 'wanted' must lie in the free range that starts at 'start'.
    bool remove(base::range wanted, std::size_t start) {
        base::range const inside = base::inward(wanted, granularity);
        return inside && free_.size() != 0 && cut_out(free_.starting_at(start), inside);
    }

    /// How many bytes of free memory end at 'offset', and how many start there, if a range that is added at 'offset' would
    /// join them; else 0. O(1).
    std::size_t free_before(std::size_t offset) const noexcept {
        return joins_at(offset) ? free_[free_.ending_at(offset)].free.bytes : 0;
    }
    std::size_t free_after(std::size_t offset) const noexcept {
        return joins_at(offset) ? free_[free_.starting_at(offset)].free.bytes : 0;
    }

    /// Makes the start of 'chunk' a fence: no free range joins across it after this call, here and in every sibling. Call it
    /// before add. A chunk that contains no whole granule gets no fence, because the fence would lie where the next chunk's
    /// may lie.
    void fence(base::range chunk) {
        if (base::range const inside = base::inward(chunk, granularity))
            free_.fences()->insert(inside.offset);
    }

    /// An empty placement whose blocks may mix with this one's.
    best_fit sibling() const { return best_fit(free_.fences()); }

    /// Absorbs a sibling: all its free bytes move here.
    void absorb(best_fit& other) {
        if (&other == this || other.free_.size() == 0)
            return;
        bool const fewer = free_.size() < other.free_.size(); // the smaller set moves
        (fewer ? other : *this).free_.reserve(free_.size() + other.free_.size());
        if (fewer)
            base::swap_values(*this, other);
        for (auto const& n : other.free_.nodes())
            if (n.free)
                free_.insert(n.free);
        other.free_.clear();
    }

    /// Lends free bytes to a sibling: removes a range here that lets take(bytes, alignment) succeed when it is added to an
    /// empty sibling. To add it here again at once needs no memory.
    base::range lend(std::size_t bytes, std::size_t alignment) {
        free_.reserve(free_.size() + 2);
        return take(bytes, alignment);
    }

    /// Free bytes here.
    std::size_t free_bytes() const noexcept { return free_.bytes(); }

    /// Bytes of the largest free range. O(ranges of its size class).
    std::size_t largest() const noexcept { return free_.largest(); }

    /// Calls visit(range) for each free range of at least 'least' bytes, nearly in order of size, the smallest first.
    template <class Visit>
    void for_each_free(std::size_t least, Visit&& visit) const {
        free_.for_each(least, visit);
    }

    /// The number of free ranges.
    std::size_t free_ranges() const noexcept { return free_.size(); }

    /// Host bytes that the records of free ranges hold.
    std::size_t bookkeeping_bytes() const noexcept {
        return free_.bookkeeping_bytes();
    }

private:
    using index_type = placement::detail::boundary_map::index_type;

    static constexpr unsigned candidates = 8; // how many ranges take looks at in a class whose sizes differ
    static constexpr unsigned few = 16;       // how many classes take searches for a range that happens to be aligned
    static constexpr unsigned all = UINT32_MAX;

    static unsigned class_of(std::size_t bytes) noexcept {
        return weir::placement::detail::free_ranges<granularity>::class_of(bytes);
    }

    explicit best_fit(base::shared<placement::detail::fence_set> fences) : free_(std::move(fences)) {}

    // The smallest range with enough room among the first 'limit' ranges of a class; 0 if none has room.
    index_type closest(unsigned in, std::size_t size, std::size_t align, unsigned limit) const noexcept {
        index_type best = 0;
        for (index_type at = free_.lists().head(in); at != 0 && limit != 0; at = free_[at].next, --limit)
            if (base::has_room(free_[at].free, size, align) &&
                (best == 0 || free_[at].free.bytes < free_[best].free.bytes))
                best = at;
        return best;
    }

    index_type search(std::size_t size, std::size_t align) const noexcept {
        unsigned const floor = class_of(size);
        if (align != granularity)
            return search_aligned(floor, size, align);
        // Any range of a higher class fits, and so does any range of a class that has only one size.
        unsigned in = free_.lists().occupied_from(floor);
        if (in == floor && !placement::detail::size_lists::one_size(floor)) {
            if (index_type const found = closest(floor, size, align, candidates))
                return found;
            in = free_.lists().occupied_from(floor + 1);
        }
        if (in < placement::detail::size_lists::last)
            return free_.lists().head(in);
        return closest(in == placement::detail::size_lists::last ? in : floor, size, align, all);
    }

    index_type search_aligned(unsigned floor, std::size_t size, std::size_t align) const noexcept {
        // A range of class 'sure' or above has room wherever it starts. Below that class, each range has to be checked.
        unsigned const sure =
            base::add_overflows(size, align) ? placement::detail::size_lists::classes : class_of(size + align) + 1;
        if (index_type const found = scan(floor, sure, size, align, few, candidates))
            return found;
        unsigned const in = free_.lists().occupied_from(sure);
        return in != placement::detail::size_lists::classes ? free_.lists().head(in) : scan(floor, sure, size, align, all, all);
    }

    // Searches the first 'most' nonempty classes in [from, to), and in each the first 'limit' ranges. Returns the closest fit
    // of the first class that has one.
    index_type scan(unsigned from, unsigned to, std::size_t size, std::size_t align, unsigned most,
                    unsigned limit) const noexcept {
        for (from = free_.lists().occupied_from(from); from < to && most != 0;
             from = free_.lists().occupied_from(from + 1), --most)
            if (index_type const found = closest(from, size, align, limit))
                return found;
        return 0;
    }

    bool joins_at(std::size_t offset) const noexcept {
        return free_.size() != 0 && !free_.fences()->contains(offset);
    }

    bool cut_out(index_type n, base::range inside) {
        if (!free_[n].free.contains(inside)) // node 0, which means 'none', has no bytes
            return false;
        free_.reserve(free_.size() + 1); // cutting out the middle leaves two ranges
        free_.carve(n, inside);
        free_.fences()->erase(inside.offset);
        return true;
    }

    weir::placement::detail::free_ranges<granularity> free_;
};

} // namespace placement
} // namespace v0
} // namespace weir
