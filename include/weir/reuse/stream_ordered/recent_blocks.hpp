// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which of the blocks freed a moment ago has just this size?
//
// A program frees what it will ask for again: the same sizes, in a loop. This is a small store of fixed size for the blocks
// that were freed last. It is hashed by size, and the newest block of a size is found first. It neither splits nor joins
// blocks, nor allocates, so a hit costs a few instructions and leaves the placement behind it untouched. When the store is
// full, its owner drains it into that placement.
//
// invariant: there are at most Capacity blocks. Each is on the chain of its size's bucket, the newest first.
// cost:      put and take: a few instructions; take walks one chain. The store has Capacity * 17 + 272 bytes.
// not for:   a best fit: it answers for one exact size.

#include <cstddef>
#include <cstdint>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// One thread at a time. Nothing here throws.
template <unsigned Capacity>
class recent_blocks {
    static_assert(Capacity >= 1 && Capacity <= 64, "weir: recent_blocks holds 1 to 64 blocks");

public:
    recent_blocks() noexcept { keep(0); }

    /// Keeps a block. False: the store is full, and nothing changed.
    bool put(base::range block) noexcept {
        if (spare_ == 0)
            return false;
        unsigned const at = base::lowest_bit(spare_);
        spare_ &= spare_ - 1;
        blocks_[at] = block;
        link(at);
        return true;
    }

    /// The newest block of exactly `bytes` bytes at a multiple of `alignment`; an empty range if there is none.
    base::range take(std::size_t bytes, std::size_t alignment) noexcept {
        for (std::uint8_t* link = &heads_[bucket_of(bytes)]; *link != none; link = &next_[*link]) {
            std::uint8_t const at = *link;
            base::range const found = blocks_[at];
            if (found.bytes == bytes && (found.offset & (alignment - 1)) == 0) {
                *link = next_[at];
                spare_ |= std::uint64_t{1} << at;
                bytes_ -= bytes;
                return found;
            }
        }
        return base::range{};
    }

    /// Hands every block to `sink(range)` and forgets it. If the sink throws, the blocks that it has not taken stay.
    template <class Sink>
    void drain(Sink&& sink) {
        struct remainder {
            recent_blocks& store;
            std::uint64_t places;
            ~remainder() { store.keep(places); }
        } left{*this, every_place & ~spare_};
        // This walks the places and not the chains: the processor would guess the end of each chain wrong.
        for (; left.places != 0; left.places &= left.places - 1)
            sink(base::in_registers(blocks_[base::lowest_bit(left.places)]));
    }

    /// Sum of the blocks' bytes.
    std::size_t bytes() const noexcept { return bytes_; }
    bool empty() const noexcept { return spare_ == every_place; }

private:
    static constexpr std::uint64_t every_place = ~std::uint64_t{0} >> (64 - Capacity);
    static constexpr std::uint8_t none = 255;
    static constexpr unsigned buckets = 256; // many more than blocks, so that a size that is not here is mostly seen at once

    void link(unsigned at) noexcept {
        std::uint8_t& head = heads_[bucket_of(blocks_[at].bytes)];
        next_[at] = head;
        head = static_cast<std::uint8_t>(at);
        bytes_ += blocks_[at].bytes;
    }

    // Forgets all but the blocks at `places`.
    void keep(std::uint64_t places) noexcept {
        for (std::uint8_t& head : heads_)
            head = none;
        spare_ = every_place & ~places;
        bytes_ = 0;
        for (; places != 0; places &= places - 1)
            link(base::lowest_bit(places));
    }

    // Sizes are multiples of some power of two, so their low bits are zero. The product's high bits depend on all bits.
    static unsigned bucket_of(std::size_t bytes) noexcept {
        return static_cast<unsigned>((static_cast<std::uint64_t>(bytes) * 0x9E3779B97F4A7C15u) >> 56);
    }
    static_assert(buckets == 1u << (64 - 56), "the shift selects a bucket");

    std::uint8_t heads_[buckets];
    std::uint64_t spare_; // a bit for each place without a block
    std::size_t bytes_;
    std::uint8_t next_[Capacity];
    alignas(16) base::range blocks_[Capacity]; // each lies in one cache line
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
