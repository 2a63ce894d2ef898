// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which of the blocks freed a moment ago has just this size?
//
// A program frees what it will ask for again: the same sizes, in a loop. This is a small fixed store of the
// blocks freed last, hashed by size, newest first. It neither splits nor joins nor allocates, so a hit costs a
// few instructions and leaves the placement behind it untouched. When it is full its owner drains it there.
//
// invariant: at most Capacity blocks; a block is on the chain of its size's bucket, newest first.
// cost:      put and take a few instructions; take walks one chain. Capacity * 17 + 256 bytes.
// not for:   a best fit: it answers for one exact size.

#include <cstddef>
#include <cstdint>
#include <weir/base/range.hpp>

namespace weir {
inline namespace v0 {

/// One thread at a time. Nothing here throws.
template <unsigned Capacity>
class recent_blocks {
    static_assert(Capacity >= 1 && Capacity <= 254, "weir: recent_blocks holds 1 to 254 blocks");

public:
    recent_blocks() noexcept { forget(); }

    /// Keeps a block; false when full, and nothing changed.
    bool put(range block) noexcept {
        std::uint8_t at = spare_;
        if (at != none)
            spare_ = next_[at];
        else if (opened_ < Capacity)
            at = static_cast<std::uint8_t>(opened_++);
        else
            return false;
        std::uint8_t& head = heads_[bucket_of(block.bytes)];
        blocks_[at] = block;
        next_[at] = head;
        head = at;
        bytes_ += block.bytes;
        return true;
    }

    /// The newest block of exactly `bytes` bytes at a multiple of `alignment`; an empty range if there is none.
    range take(std::size_t bytes, std::size_t alignment) noexcept {
        for (std::uint8_t* link = &heads_[bucket_of(bytes)]; *link != none; link = &next_[*link]) {
            std::uint8_t const at = *link;
            range const found = blocks_[at];
            if (found.bytes == bytes && (found.offset & (alignment - 1)) == 0) {
                *link = next_[at];
                next_[at] = spare_;
                blocks_[at] = range{};
                spare_ = at;
                bytes_ -= bytes;
                return found;
            }
        }
        return range{};
    }

    /// Hands every block to `sink(range)` and forgets it. Where the sink throws, what it has not taken stays.
    template <class Sink>
    void drain(Sink&& sink) {
        struct remainder {
            recent_blocks& store;
            unsigned next = 0;
            ~remainder() { store.keep_from(next); }
        } left{*this};
        // Along the places and not the chains, whose lengths would be a wrong guess each.
        for (; left.next < opened_; ++left.next)
            if (range const block = in_registers(blocks_[left.next]))
                sink(block);
    }

    /// Sum of the blocks' bytes.
    std::size_t bytes() const noexcept { return bytes_; }
    bool empty() const noexcept { return bytes_ == 0; }

private:
    static constexpr std::uint8_t none = 255;
    static constexpr unsigned buckets = 256; // many more than blocks: a size that is not here is seen at once

    // Forgets all but what is at the places from `first` on.
    void keep_from(unsigned first) noexcept {
        unsigned const last = opened_;
        forget();
        for (unsigned at = first; at < last; ++at)
            if (range const block = blocks_[at])
                put(block); // there or before
    }

    void forget() noexcept {
        for (std::uint8_t& head : heads_)
            head = none;
        spare_ = none;
        opened_ = 0;
        bytes_ = 0;
    }

    // Sizes are multiples of some power of two with the low bits zero; the product's high bits depend on all.
    static unsigned bucket_of(std::size_t bytes) noexcept {
        return static_cast<unsigned>((static_cast<std::uint64_t>(bytes) * 0x9E3779B97F4A7C15u) >> 56);
    }
    static_assert(buckets == 1u << (64 - 56), "the shift selects a bucket");

    std::uint8_t heads_[buckets];
    std::uint8_t spare_; // chain of places that were used and are free
    unsigned opened_;    // places not used since the last drain start here
    std::size_t bytes_;
    std::uint8_t next_[Capacity];
    alignas(16) range blocks_[Capacity]; // each in one cache line; no bytes: spare
};

} // namespace v0
} // namespace weir
