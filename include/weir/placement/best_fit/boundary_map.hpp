// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// boundary_map: which free range starts or ends at this address?
//
// Knuth's boundary tags (TAOCP 2.5, algorithm C) let a freed block find its free neighbours in constant time. They lie in the
// memory itself, which the host cannot reach on a device. So here the tags lie in host memory: a hash map from an address and
// a side (start or end) to the index of a range. A free range has two tags; a block in use has none.
//
// Six tags share a bucket of 32 bytes. It has six marks, which are 7 bits of a hash each and are all compared at once in one
// word, and six indices. The address is not stored. If a mark agrees, the map asks its owner, who knows the range, whether
// the address agrees too. A bucket that is full sends further tags on to the next bucket and counts them. So erasing leaves
// no tombstone, and a search ends at the first bucket that has sent nothing on. As a rule nothing here loops or branches.
// That saves more than fewer instructions would, because a wrong branch prediction costs as much as twenty of them.
//
// invariant: a tag is in its home bucket, or each bucket from its home to the one before its own counts it as sent on; at
//            most half of the places are taken. Indices are below 2^31 and not 0.
// order:     none; a map belongs to one lock.
// cost:      one cache line a call as a rule; 11 to 21 bytes a tag; growth doubles the map.
// not for:   users that do not know the address of an index: address_map stores its keys.

#include <weir/base/growing_array.hpp>
#include <weir/base/size.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Tags of the boundaries of ranges. Not thread-safe. Only 'reserve' allocates; if it throws std::bad_alloc, the map is
/// unchanged. Call it with at least 1 before anything else.
class boundary_map {
public:
    using index_type = std::uint32_t;

    /// The side of the range that the address is at.
    enum class side : std::uint32_t { start = 0, end = 1 };

    /// Makes room for 'tags' tags in all. address_of(index, side) must return the address of a tag that is here.
    template <class AddressOf>
    void reserve(std::size_t tags, AddressOf&& address_of) {
        if (tags > room_)
            grow(tags, address_of);
    }

    /// The index of the range whose side 'which' is at 'address'; 0 if there is none. is_there(index) must say whether that
    /// range has this side at 'address'.
    template <class IsThere>
    index_type find(std::size_t address, side which, IsThere&& is_there) const noexcept {
        std::uint64_t const hash = hash_of(address);
        for (std::size_t at = home(hash);; at = next(at)) {
            bucket const& b = buckets_[at];
            for (std::uint64_t same = places_of(b.marks, mark_of(hash, which)); same != 0; same &= same - 1) {
                std::uint32_t const entry = b.entries[base::lowest_bit(same) / 8];
                if ((entry & 1) == static_cast<std::uint32_t>(which) && is_there(entry >> 1))
                    return entry >> 1;
            }
            if (b.marks < one_sent_on)
                return 0;
        }
    }

    /// Adds a tag for one side of range 'index'. Room must be reserved.
    void insert(std::size_t address, side which, index_type index) noexcept {
        std::uint64_t const hash = hash_of(address);
        std::size_t at = home(hash);
        std::uint64_t spare = ~buckets_[at].marks & every_taken;
        while (spare == 0) {
            buckets_[at].marks += one_sent_on;
            at = next(at);
            spare = ~buckets_[at].marks & every_taken;
        }
        unsigned const shift = base::lowest_bit(spare) & ~7u;
        buckets_[at].marks |= mark_of(hash, which) << shift;
        buckets_[at].entries[shift / 8] = entry_of(index, which);
        ++size_;
    }

    /// Removes the tag of one side of range 'index'. The tag must be here.
    void erase(std::size_t address, side which, index_type index) noexcept {
        std::uint64_t const hash = hash_of(address);
        std::size_t at = home(hash);
        for (;; at = next(at)) {
            unsigned const shift = shift_of(buckets_[at], hash, which, index);
            if (shift != absent) {
                buckets_[at].marks &= ~(std::uint64_t{0xFF} << shift);
                --size_;
                return;
            }
            buckets_[at].marks -= one_sent_on;
        }
    }

    /// Makes the tag of a side of range 'from', which must be here, a tag of range 'to'.
    void reassign(std::size_t address, side which, index_type from, index_type to) noexcept {
        std::uint64_t const hash = hash_of(address);
        std::size_t at = home(hash);
        unsigned shift = shift_of(buckets_[at], hash, which, from);
        while (shift == absent) {
            at = next(at);
            shift = shift_of(buckets_[at], hash, which, from);
        }
        buckets_[at].entries[shift / 8] = entry_of(to, which);
    }

    /// Starts to bring the bucket for 'address' into the cache.
    void prefetch(std::size_t address) const noexcept {
        __builtin_prefetch(&buckets_[home(hash_of(address))]);
    }

    /// The number of tags.
    std::size_t size() const noexcept { return size_; }

    /// Host bytes that the map holds.
    std::size_t bookkeeping_bytes() const noexcept { return buckets_.capacity() * sizeof(bucket); }

private:
    static constexpr unsigned places = 6;

    struct bucket {
        std::uint64_t marks = 0; // six bytes, 0 where a place is free; the upper 16 bits count the tags sent on
        std::uint32_t entries[places] = {};
    };

    static constexpr std::uint64_t every_byte = 0x0000010101010101u;
    static constexpr std::uint64_t every_taken = 0x0000808080808080u;
    static constexpr std::uint64_t one_sent_on = std::uint64_t{1} << 48;
    static constexpr unsigned absent = 64;

    static std::uint64_t hash_of(std::size_t address) noexcept { return address * 0x9E3779B97F4A7C15u; }

    // Each side uses other bits of the hash, so two ranges that touch have different marks.
    static std::uint64_t mark_of(std::uint64_t hash, side which) noexcept {
        return 0x80 | (hash >> (which == side::end ? 24 : 16) & 0x7F);
    }

    static std::uint32_t entry_of(index_type index, side which) noexcept {
        return index << 1 | static_cast<std::uint32_t>(which);
    }

    // Sets the top bit of each byte of 'marks' that equals 'mark'. The byte above a real match may be set by mistake.
    static std::uint64_t places_of(std::uint64_t marks, std::uint64_t mark) noexcept {
        std::uint64_t const x = marks ^ mark * every_byte;
        return (x - every_byte) & ~x & every_taken;
    }

    static unsigned shift_of(bucket const& b, std::uint64_t hash, side which, index_type index) noexcept {
        for (std::uint64_t same = places_of(b.marks, mark_of(hash, which)); same != 0; same &= same - 1)
            if (b.entries[base::lowest_bit(same) / 8] == entry_of(index, which))
                return base::lowest_bit(same) & ~7u;
        return absent;
    }

    std::size_t home(std::uint64_t hash) const noexcept { return static_cast<std::size_t>(hash >> shift_); }
    std::size_t next(std::size_t at) const noexcept { return (at + 1) & mask_; }

    template <class AddressOf>
    void grow(std::size_t tags, AddressOf&& address_of) {
        std::size_t count = buckets_.empty() ? 4 : buckets_.size();
        while (count * (places / 2) < tags)
            count *= 2;
        base::growing_array<bucket> old(count);
        old.swap(buckets_);
        mask_ = count - 1;
        shift_ = 64 - base::floor_log2(count);
        room_ = count * (places / 2);
        size_ = 0;
        for (bucket const& b : old)
            for (unsigned place = 0; place < places; ++place)
                if ((b.marks >> (place * 8) & 0x80) != 0) {
                    side const which = static_cast<side>(b.entries[place] & 1);
                    index_type const index = b.entries[place] >> 1;
                    insert(address_of(index, which), which, index);
                }
    }

    base::growing_array<bucket> buckets_;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
    std::size_t mask_ = 0;
    unsigned shift_ = 0;
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
