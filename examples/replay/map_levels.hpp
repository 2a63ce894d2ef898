// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks does a picture of millions have to draw?
//
// A level is a grid over time and addresses, each twice as fine in both as the one before. A block belongs to the first level
// where it covers a cell that no block before it covers; the largest come first. Whoever looks at a whole recording draws the
// first level, in which at most so many blocks are as the grid has cells, and misses nothing that a cell would show; who looks
// closer draws more levels, of a smaller part.
//
// invariant: each level's cells that any block covers are covered by a block of that level or of one before it.
// cost:      some 100 ns a block and level; a bit a cell of the finest grid, 16 MiB.
// not for:   looking closer than the finest grid: behind it the largest blocks come first.

#include "lives.hpp"
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace replay {

struct map_levels {
    std::vector<std::size_t> blocks; ///< in the order in which they are drawn
    std::vector<std::size_t> ends;   ///< how many of them the levels up to each one have
};

/// Where blocks lie in a grid: bits, a row of them an address step.
class map_grid {
public:
    static constexpr std::size_t columns = 1024, rows = 512; ///< of level 0

    map_grid(std::size_t level, std::uint64_t end_us, std::uint64_t bytes)
        : columns_(columns << level), rows_(rows << level), end_us_(end_us + 1), bytes_(bytes), cells_(columns_ * rows_ / 64, 0) {}

    /// Covers the block's cells; whether one of them was free.
    bool cover(life const& block, std::uint64_t address) {
        std::size_t const left = cell(block.begin_us, end_us_, columns_), right = cell(block.end_us, end_us_, columns_);
        std::size_t const low = cell(address, bytes_, rows_), high = cell(address + std::max<std::uint64_t>(block.bytes, 1) - 1, bytes_, rows_);
        bool is_new = false;
        for (std::size_t row = low; row <= high; ++row)
            for (std::size_t word = left / 64; word <= right / 64; ++word) {
                std::uint64_t mask = ~std::uint64_t{0};
                mask &= word == left / 64 ? ~std::uint64_t{0} << left % 64 : mask;
                mask &= word == right / 64 ? ~std::uint64_t{0} >> (63 - right % 64) : mask;
                std::uint64_t& cells = cells_[row * (columns_ / 64) + word];
                is_new = is_new || (mask & ~cells) != 0;
                cells |= mask;
            }
        return is_new;
    }

private:
    static std::size_t cell(std::uint64_t at, std::uint64_t end, std::size_t count) {
        double const part = static_cast<double>(at) / static_cast<double>(std::max<std::uint64_t>(end, 1));
        return std::min(count - 1, static_cast<std::size_t>(part * static_cast<double>(count)));
    }

    std::size_t columns_, rows_;
    std::uint64_t end_us_, bytes_;
    std::vector<std::uint64_t> cells_;
};

/// At most `most` blocks. `address` says where a life lies, of `bytes` bytes.
template <class Address>
map_levels levels_of(std::vector<life> const& lives, Address const& address, std::uint64_t end_us, std::uint64_t bytes, std::size_t most) {
    constexpr std::size_t levels = 5;
    std::vector<std::size_t> rest(lives.size());
    for (std::size_t i = 0; i < rest.size(); ++i)
        rest[i] = i;
    auto const area = [&](std::size_t at) {
        return static_cast<double>(lives[at].bytes) * static_cast<double>(lives[at].end_us - lives[at].begin_us + 1);
    };
    std::stable_sort(rest.begin(), rest.end(), [&](std::size_t a, std::size_t b) { return area(a) > area(b); });
    map_levels out;
    for (std::size_t level = 0; level < levels && !rest.empty() && out.blocks.size() < most; ++level) {
        map_grid grid(level, end_us, bytes);
        for (std::size_t const each : out.blocks)
            grid.cover(lives[each], address(lives[each].address));
        rest.erase(std::remove_if(rest.begin(), rest.end(),
                                  [&](std::size_t each) {
                                      if (!grid.cover(lives[each], address(lives[each].address)))
                                          return false;
                                      out.blocks.push_back(each);
                                      return true;
                                  }),
                   rest.end());
        out.blocks.resize(std::min(out.blocks.size(), most));
        out.ends.push_back(out.blocks.size());
    }
    rest.resize(std::min(rest.size(), most - out.blocks.size()));
    out.blocks.insert(out.blocks.end(), rest.begin(), rest.end());
    out.ends.push_back(out.blocks.size());
    return out;
}

} // namespace replay
