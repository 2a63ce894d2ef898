// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// slab: blocks of one size.
//
// Ranges are cut into equal blocks from the front. A block that comes back goes on a stack and is the next to be handed out,
// while it is still in the caches. Nothing is searched, split or joined.
//
// invariant: every block starts at a multiple of the largest power of two that divides BlockBytes.
// order:     the block that was freed last is handed out first.
// cost:      take and give O(1), 8 host bytes for each free block; remove O(free blocks).
// not for:   sizes that differ: see bins.

#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>

#include <cstddef>

namespace weir {
inline namespace v0 {
namespace placement {

/// Placement of blocks of BlockBytes bytes. Not thread-safe. Movable, not copyable. Members that allocate host memory throw
/// std::bad_alloc before any change.
template <std::size_t BlockBytes>
class slab {
    static_assert(BlockBytes > 0, "weir: placement::slab needs blocks of at least one byte");

public:
    slab() = default;
    slab(slab&& other) noexcept = default;
    slab& operator=(slab&& other) noexcept = default;

    /// Every block starts at a multiple of this.
    static constexpr std::size_t granularity = base::natural_alignment(BlockBytes);

    /// BlockBytes. 0 if 'bytes' is 0 or more than a block has, or if blocks are not aligned to 'alignment'.
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t alignment) noexcept {
        return bytes == 0 || bytes > BlockBytes || alignment > granularity ? 0 : BlockBytes;
    }

    /// The bytes that a fresh range at any multiple of 'base_alignment' needs so that take(bytes, alignment) succeeds in it.
    static constexpr std::size_t needs(std::size_t bytes, std::size_t alignment,
                                       std::size_t base_alignment) noexcept {
        return base::with_slack(rounded(bytes, alignment), granularity, base_alignment);
    }

    /// A block, or range{}.
    base::range take(std::size_t bytes, std::size_t alignment) noexcept {
        if (rounded(bytes, alignment) == 0)
            return {};
        if (!freed_.empty()) {
            std::size_t const offset = freed_.back();
            freed_.pop_back();
            return {offset, BlockBytes};
        }
        if (uncut_.empty())
            return {};
        base::range& rest = uncut_.back();
        base::range const block{rest.offset, BlockBytes};
        rest = {rest.offset + BlockBytes, rest.bytes - BlockBytes};
        uncut_bytes_ -= BlockBytes;
        if (!rest)
            uncut_.pop_back();
        return block;
    }

    /// Frees a block that this object or a sibling took. The list of free blocks may have to grow; if that throws
    /// std::bad_alloc, the block is not free.
    void give(base::range block) { freed_.push_back(block.offset); }

    /// Cuts whole blocks out of a fresh range. Bytes that are left over at its ends stay unused.
    void add(base::range fresh) {
        std::size_t const start = base::align_up(fresh.offset, granularity);
        if (start < fresh.offset || start > fresh.end())
            return;
        std::size_t const bytes = (fresh.end() - start) / BlockBytes * BlockBytes;
        if (bytes == 0)
            return;
        uncut_.push_back({start, bytes});
        uncut_bytes_ += bytes;
    }

    /// Removes 'wanted', a range that was added, if all its blocks are free here or it has room for no block; else returns
    /// false.
    bool remove(base::range wanted) noexcept {
        std::size_t const start = base::align_up(wanted.offset, granularity);
        std::size_t const blocks = start > wanted.end() ? 0 : (wanted.end() - start) / BlockBytes;
        std::size_t found = 0;
        for (std::size_t const offset : freed_)
            found += wanted.contains(offset);
        for (base::range const& rest : uncut_)
            found += wanted.contains(rest) ? rest.bytes / BlockBytes : 0;
        if (found != blocks)
            return false;
        std::size_t kept = 0;
        for (std::size_t const offset : freed_)
            if (!wanted.contains(offset))
                freed_[kept++] = offset;
        freed_.resize(kept);
        kept = 0;
        for (base::range const rest : uncut_) {
            if (wanted.contains(rest))
                uncut_bytes_ -= rest.bytes;
            else
                uncut_[kept++] = rest;
        }
        uncut_.resize(kept);
        return true;
    }

    /// An empty placement whose blocks may mix with this one's.
    slab sibling() const { return slab(); }

    /// Absorbs a sibling: all its free bytes move here.
    void absorb(slab& other) {
        if (&other == this)
            return;
        freed_.reserve(freed_.size() + other.freed_.size());
        uncut_.reserve(uncut_.size() + other.uncut_.size());
        for (std::size_t const offset : other.freed_)
            freed_.push_back(offset);
        for (base::range const rest : other.uncut_)
            uncut_.push_back(rest);
        uncut_bytes_ += other.uncut_bytes_;
        other = slab();
    }

    /// Lends a block to a sibling. As take, since one block is all that a sibling needs.
    base::range lend(std::size_t bytes, std::size_t alignment) {
        uncut_.reserve_more(1); // so that adding it again needs no memory
        return take(bytes, alignment);
    }

    /// Free bytes here.
    std::size_t free_bytes() const noexcept { return freed_.size() * BlockBytes + uncut_bytes_; }

    /// BlockBytes, or 0 where no block is free.
    std::size_t largest() const noexcept { return free_bytes() == 0 ? 0 : BlockBytes; }

private:
    base::growing_array<std::size_t> freed_; // blocks that came back, the last one on top
    base::growing_array<base::range> uncut_;       // whole blocks that were never handed out
    std::size_t uncut_bytes_ = 0;
};

} // namespace placement
} // namespace v0
} // namespace weir
