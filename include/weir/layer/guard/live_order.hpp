// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which live block lies at an address, or next below it?
//
// A search tree over the blocks of a ledger, by address. It is a treap (Aragon and Seidel, 1989): a heap by a hash of the
// address, which keeps its depth logarithmic whatever the order of addresses. Its links are members of the blocks.
//
// invariant: in the tree are the blocks that were inserted and not removed.
// order:     one thread at a time.
// cost:      O(log n), expected; 8 bytes for a block.
// not for:   two blocks at one address.

#include <cstdint>
#include <weir/base/address_map.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace layer::detail {

/// `Blocks`, of each member: an array of blocks that have an 'address' and, for the tree, 'lower' and 'higher'. Blocks are
/// named by their index.
class live_order {
public:
    static constexpr std::uint32_t none = base::address_map::none;

    template <class Blocks>
    void insert(Blocks& blocks, std::uint32_t fresh) noexcept {
        std::uintptr_t const address = blocks[fresh].address;
        std::uint32_t* at = &root_;
        while (*at != none && weight(blocks[*at].address) >= weight(address))
            at = link(blocks, *at, address);
        std::uint32_t rest = *at; // is split into what is below the address and what is above it
        *at = fresh;
        std::uint32_t* lower = &blocks[fresh].lower;
        std::uint32_t* higher = &blocks[fresh].higher;
        while (rest != none) {
            bool const is_lower = blocks[rest].address < address;
            std::uint32_t*& end = is_lower ? lower : higher;
            *end = rest;
            end = is_lower ? &blocks[rest].higher : &blocks[rest].lower;
            rest = *end;
        }
        *lower = *higher = none;
    }

    /// Removes a block that is in the tree.
    template <class Blocks>
    void remove(Blocks& blocks, std::uint32_t gone) noexcept {
        std::uint32_t* at = &root_;
        while (*at != gone)
            at = link(blocks, *at, blocks[gone].address);
        std::uint32_t lower = blocks[gone].lower, higher = blocks[gone].higher;
        while (lower != none && higher != none) {
            bool const takes_lower = weight(blocks[lower].address) >= weight(blocks[higher].address);
            std::uint32_t& next = takes_lower ? lower : higher;
            *at = next;
            at = takes_lower ? &blocks[next].higher : &blocks[next].lower;
            next = *at;
        }
        *at = lower != none ? lower : higher;
    }

    /// The block with the greatest address that is less than `end`; 'none' if there is none.
    template <class Blocks>
    std::uint32_t last_before(Blocks const& blocks, std::uintptr_t end) const noexcept {
        std::uint32_t last = none;
        for (std::uint32_t at = root_; at != none;) {
            bool const is_before = blocks[at].address < end;
            last = is_before ? at : last;
            at = is_before ? blocks[at].higher : blocks[at].lower;
        }
        return last;
    }

private:
    static std::uint64_t weight(std::uintptr_t address) noexcept {
        std::uint64_t const mixed = (address ^ (address >> 32)) * 0x9E3779B97F4A7C15u; // multiplicative hashing (Knuth 6.4)
        return (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9u;
    }

    template <class Blocks>
    static std::uint32_t* link(Blocks& blocks, std::uint32_t at, std::uintptr_t address) noexcept {
        return address < blocks[at].address ? &blocks[at].lower : &blocks[at].higher;
    }

    std::uint32_t root_ = none;
};

} // namespace layer::detail
} // namespace v0
} // namespace weir
