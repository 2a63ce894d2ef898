// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What a placement may do, kept in the simplest way: a sorted map of live blocks inside the ranges that were added.

#include <cstddef>
#include <doctest/doctest.h>
#include <iterator>
#include <map>
#include <random>
#include <vector>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>

namespace support {

class interval_oracle {
public:
    /// Bytes of a chunk may be taken from now on. A block never straddles two chunks.
    void add(weir::base::range chunk) {
        chunks_[chunk.offset] = chunk.bytes;
        managed_bytes_ += chunk.bytes;
    }
    void remove(weir::base::range chunk) {
        CHECK(live_in(chunk) == 0);
        chunks_.erase(chunk.offset);
        managed_bytes_ -= chunk.bytes;
    }

    /// A block was handed out: it must lie in one chunk, be aligned and overlap no live one.
    void take(weir::base::range block, std::size_t rounded_bytes, std::size_t alignment) {
        CHECK(block.bytes == rounded_bytes);
        CHECK(block.offset % alignment == 0);
        auto const chunk = chunks_.upper_bound(block.offset);
        REQUIRE(chunk != chunks_.begin());
        CHECK(weir::base::range{std::prev(chunk)->first, std::prev(chunk)->second}.contains(block));
        auto const above = index_.lower_bound(block.offset);
        bool const free_above = above == index_.end() || above->first >= block.end();
        bool const free_below = above == index_.begin() || blocks_[std::prev(above)->second].end() <= block.offset;
        REQUIRE(free_above);
        REQUIRE(free_below);
        index_[block.offset] = blocks_.size();
        blocks_.push_back(block);
        live_bytes_ += block.bytes;
    }

    /// A random live block, which is live no longer.
    weir::base::range give(std::mt19937_64& random) { return give_at(random() % blocks_.size()); }
    weir::base::range give_last() { return give_at(blocks_.size() - 1); }

    std::size_t live() const { return blocks_.size(); }
    std::size_t live_bytes() const { return live_bytes_; }
    std::size_t managed_bytes() const { return managed_bytes_; }
    std::vector<weir::base::range> const& blocks() const { return blocks_; }

    std::size_t live_in(weir::base::range chunk) const {
        std::size_t count = 0;
        for (weir::base::range const& block : blocks_)
            count += chunk.overlaps(block);
        return count;
    }

    void end_all() {
        blocks_.clear();
        index_.clear();
        live_bytes_ = 0;
    }

private:
    weir::base::range give_at(std::size_t at) {
        weir::base::range const block = blocks_[at];
        index_.erase(block.offset);
        if (at + 1 != blocks_.size()) {
            blocks_[at] = blocks_.back();
            index_[blocks_[at].offset] = at;
        }
        blocks_.pop_back();
        live_bytes_ -= block.bytes;
        return block;
    }

    std::map<std::size_t, std::size_t> chunks_;
    std::vector<weir::base::range> blocks_;
    std::map<std::size_t, std::size_t> index_; // offset -> place in blocks_
    std::size_t live_bytes_ = 0;
    std::size_t managed_bytes_ = 0;
};

} // namespace support
