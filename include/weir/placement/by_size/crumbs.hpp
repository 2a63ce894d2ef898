// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What becomes of free bytes that are no whole granule?
//
// A granule is the least that a placement keeps free. Where slabs of small blocks are broken up, a granule may lie partly in a
// free block and partly in one that is in use. The free part is a crumb. It waits here until the rest is free too.
//
// invariant: of each granule here some bytes are free and some are not.
// order:     none; an object belongs to one lock.
// cost:      a look-up for each end of a range that lies inside of a granule. 26 to 51 host bytes a granule.
// not for:   blocks: nothing is handed out from here.

#include <weir/base/address_map.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Not thread-safe. Only 'reserve' allocates.
template <std::size_t GranuleBytes>
class crumbs {
public:
    /// Makes room for 'ranges' calls of 'add'. Throws std::bad_alloc before any change.
    void reserve(std::size_t ranges) { free_.reserve(free_.size() + 2 * ranges); }

    /// Frees the bytes of 'r': calls whole(range) at most three times, with whole granules. Room must be reserved.
    template <class TakeOver>
    void add(base::range r, TakeOver const& whole) {
        std::size_t const begin = base::align_up(r.offset, GranuleBytes);
        std::size_t const end = base::align_down(r.end(), GranuleBytes);
        if (begin < end)
            whole(base::range{begin, end - begin});
        if (begin != r.offset)
            add_crumb(begin - GranuleBytes, (begin < r.end() ? begin : r.end()) - r.offset, whole);
        if (end != r.end() && end >= begin)
            add_crumb(end, r.end() - end, whole);
    }

    /// The same for all that lies in 'other'. Room for as many ranges as it has granules must be reserved.
    template <class TakeOver>
    void absorb(crumbs& other, TakeOver const& whole) {
        if (&other == this)
            return;
        other.free_.visit([&](std::uint64_t start, std::uint32_t bytes) { add_crumb(start - 1, bytes, whole); });
        other = crumbs();
    }

    /// How many granules there are, and their free bytes.
    std::size_t size() const noexcept { return free_.size(); }
    std::size_t bytes() const noexcept { return bytes_; }

private:
    template <class TakeOver>
    void add_crumb(std::size_t granule, std::size_t bytes, TakeOver const& whole) {
        std::uint32_t const before = free_.erase(granule | 1); // the map has no key 0
        std::size_t const now = bytes + (before == base::address_map::none ? 0 : before);
        bytes_ += bytes;
        if (now != GranuleBytes) {
            free_.insert(granule | 1, static_cast<std::uint32_t>(now));
            return;
        }
        bytes_ -= now;
        whole(base::range{granule, GranuleBytes});
    }

    base::address_map free_; // a granule's start -> how many of its bytes are free
    std::size_t bytes_ = 0;
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
