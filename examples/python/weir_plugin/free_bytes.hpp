// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which bytes of a private pool are free?
//
// A block is cut from the smallest free range that has room, at the lowest address among equals, and a freed block joins its
// free neighbours. The whole state is two trees, so that it can be copied and assigned back: that is what a checkpoint is.
//
// invariant: both trees hold the same ranges; no two of them touch, unless ranges are taken whole.
// cost:      O(log n) a call, and host memory for each free range.
// not for:   the pool itself: weir::placement has placements that are faster and cannot be copied.

#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <weir/base/range.hpp>

namespace weir_plugin {

/// Copyable. One thread at a time. Members that add a range may throw std::bad_alloc.
class free_bytes {
public:
    /// `bytes` bytes, or with `whole` all of the range that fits most closely; no range if none has room.
    weir::base::range take(std::size_t bytes, bool whole) {
        auto const found = by_size_.lower_bound({bytes, 0});
        if (found == by_size_.end())
            return {};
        auto const [had, at] = *found;
        if (!whole && had != bytes)
            add({at + bytes, had - bytes}); // first, since it may throw
        by_size_.erase(by_size_.find({had, at}));
        by_address_.erase(at);
        return {at, whole ? had : bytes};
    }

    /// Adds a range that is in use nowhere. With `whole` it joins nothing.
    void give(weir::base::range range, bool whole) {
        if (!whole) {
            auto const after = by_address_.find(range.end());
            if (after != by_address_.end())
                range.bytes += drop(after);
            auto before = by_address_.lower_bound(range.offset);
            if (before != by_address_.begin() && (--before)->first + before->second == range.offset) {
                range.offset = before->first;
                range.bytes += drop(before);
            }
        }
        add(range);
    }

    /// Takes over all ranges of `other`.
    void absorb(free_bytes& other, bool whole) {
        for (auto const& [at, bytes] : other.by_address_)
            give({at, bytes}, whole);
        other = free_bytes();
    }

private:
    using ranges = std::map<std::size_t, std::size_t>;

    void add(weir::base::range range) {
        by_address_.emplace(range.offset, range.bytes);
        try {
            by_size_.emplace(range.bytes, range.offset);
        } catch (...) {
            by_address_.erase(range.offset);
            throw;
        }
    }
    std::size_t drop(ranges::iterator gone) {
        std::size_t const bytes = gone->second;
        by_size_.erase({bytes, gone->first});
        by_address_.erase(gone);
        return bytes;
    }

    ranges by_address_;
    std::set<std::pair<std::size_t, std::size_t>> by_size_; // bytes, address
};

} // namespace weir_plugin
