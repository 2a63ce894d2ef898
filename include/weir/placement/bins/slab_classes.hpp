// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// slab_classes: to which sizes are small blocks rounded up, and how large is a slab of them?
//
// The unit is the smallest block. Up to 16 units, each multiple of the unit is a class. Above that, there are eight classes
// from one power of two to the next, so from 8 units on a block is at most an eighth larger than asked. A slab has a power of
// two of bytes and 16 to 64 blocks: at least 64 units, or the least power of two that holds 16 blocks. All of it is known at
// compile time.
//
// invariant: if a power of two divides a size, it also divides the size of the class that serves it. So a request that is
//            rounded up to its alignment gets aligned blocks.
// cost:      class_of: a bit scan and two shifts; block_index: a multiplication.
// not for:   blocks above 4,096 units.

#include <weir/base/size.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// The size classes of blocks that are multiples of UnitBytes, a power of two.
template <std::size_t UnitBytes>
struct slab_classes {
    /// Classes are numbered 0 to count - 1, by rising size.
    static constexpr unsigned count = 80;
    static constexpr std::size_t largest_block_bytes = 4096 * UnitBytes;
    static constexpr std::size_t smallest_slab_bytes = 64 * UnitBytes;

    /// The class that serves 'bytes' bytes, from 1 to largest_block_bytes.
    static constexpr unsigned class_of(std::size_t bytes) noexcept {
        std::size_t const below = (bytes - 1) / UnitBytes;
        unsigned const shift = base::floor_log2(below | 8) - 3;
        return (shift << 3) + static_cast<unsigned>(below >> shift);
    }

    /// The power of two that 'bytes' is rounded up to: the class that serves it is the next multiple.
    static constexpr std::size_t grain(std::size_t bytes) noexcept {
        return UnitBytes << (base::floor_log2((bytes - 1) / UnitBytes | 8) - 3);
    }

    /// Bytes of a block of class 'in'.
    static constexpr std::size_t block_bytes(unsigned in) noexcept {
        return (in < 16 ? in + std::size_t{1} : ((in & 7) + std::size_t{9}) << ((in >> 3) - 1)) * UnitBytes;
    }

    /// Bytes of a slab of class 'in', a power of two.
    static constexpr std::size_t slab_bytes(unsigned in) noexcept {
        std::size_t const wanted = base::power_of_two_above(block_bytes(in) * fewest_blocks);
        return wanted > smallest_slab_bytes ? wanted : smallest_slab_bytes;
    }

    /// The same two from a table, for a class that is known only at run time.
    static std::size_t block_bytes_of(unsigned in) noexcept { return table.block_bytes[in]; }
    static std::size_t slab_bytes_of(unsigned in) noexcept { return table.slab_bytes[in]; }

    /// A bit for each block of a slab of class 'in'.
    static std::uint64_t all_blocks(unsigned in) noexcept { return table.all_blocks[in]; }

    /// Bytes at the end of a slab of class 'in' that belong to no block.
    static std::size_t tail_bytes(unsigned in) noexcept { return table.tail_bytes[in]; }

    /// The index of the block of a slab of class 'in' that starts 'bytes' bytes after the slab's start.
    static unsigned block_index(unsigned in, std::size_t bytes) noexcept {
        // This is exact: a slab has at most 2^16 units, and the reciprocal errs by less than 2^-32 for each.
        return static_cast<unsigned>(bytes / UnitBytes * table.reciprocal[in] >> 32);
    }

    /// What the members above look up. The compiler makes the one table that they share.
    struct table_type {
        std::size_t block_bytes[count] = {};
        std::size_t slab_bytes[count] = {};
        std::uint64_t all_blocks[count] = {};
        std::size_t tail_bytes[count] = {};
        std::uint64_t reciprocal[count] = {}; // 2^32 / units of a block, rounded up
        constexpr table_type() {
            for (unsigned in = 0; in < count; ++in) {
                block_bytes[in] = slab_classes::block_bytes(in);
                slab_bytes[in] = slab_classes::slab_bytes(in);
                std::size_t const blocks = slab_bytes[in] / block_bytes[in];
                all_blocks[in] = ~std::uint64_t{0} >> (64 - blocks);
                tail_bytes[in] = slab_bytes[in] - blocks * block_bytes[in];
                reciprocal[in] = ((std::uint64_t{1} << 32) - 1) / (block_bytes[in] / UnitBytes) + 1;
            }
        }
    };

private:
    static constexpr unsigned fewest_blocks = 16; // with fewer, the tail of a slab would waste more
    static constexpr table_type table{};
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
