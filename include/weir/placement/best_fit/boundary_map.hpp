// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// boundary_map: which free range starts or ends at this address?
//
// Knuth's boundary tags (TAOCP 2.5, algorithm C) let a freed block find free neighbours in constant time, but
// stand in the memory itself, which the host cannot reach on a device. Here the tags are out of band: a hash
// from an address and a side to the index of a range. A free range costs two tags; a live block none.
//
// Six tags share a bucket of 32 bytes: six marks of 7 bits of hash, compared all at once in one word, and six
// indices. The address is not stored: its owner knows the range and is asked where a mark agrees. A bucket
// that is full sends tags on to the next one and counts them, so that erasing leaves no tombstone and a
// search ends at the first bucket that has sent nothing on. Nothing here loops or branches as a rule, which
// is worth more than the count of instructions: a wrong guess costs as much as twenty of them.
//
// invariant: a tag is in its home bucket, or every bucket from there to the one before its own counts it;
//            at most half of the places are taken. Indices are below 2^31 and not 0.
// order: none; a map belongs to one lock.
// cost: one cache line a call as a rule; 11 to 21 bytes a tag; growth doubles.
// not for: keys of its own: address_map stores them.

#include <weir/base/growing_array.hpp>
#include <weir/base/size.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Tags of the boundaries of ranges. Not thread-safe. Only 'reserve' allocates; it leaves the map as it was
/// when it throws std::bad_alloc. Call it with at least 1 before anything else.
class boundary_map {
public:
    using index_type = std::uint32_t;

    /// Which side of the range the address is.
    enum class side : std::uint32_t { start = 0, end = 1 };

    /// Makes room for 'tags' in all. address_of(index, side) says where a tag that is here belongs.
    template <class AddressOf>
    void reserve(std::size_t tags, AddressOf&& address_of) {
        if (tags > room_)
            grow(tags, address_of);
    }

    /// The range of whose side 'which' is_there(index) says that it is at 'address'; 0 where there is none.
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

    /// Tags a side of range 'index'; room must be reserved.
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

    /// Takes the tag of a side of range 'index', which must be here, away.
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

    /// Hands the tag of a side of range 'from', which must be here, to range 'to'.
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

    /// Tags here.
    std::size_t size() const noexcept { return size_; }

    /// Host bytes that the map holds.
    std::size_t bookkeeping_bytes() const noexcept { return buckets_.capacity() * sizeof(bucket); }

private:
    static constexpr unsigned places = 6;

    struct bucket {
        std::uint64_t marks = 0; // six bytes, 0 where free; above them, how many tags were sent on
        std::uint32_t entries[places] = {};
    };

    static constexpr std::uint64_t every_byte = 0x0000010101010101u;
    static constexpr std::uint64_t every_taken = 0x0000808080808080u;
    static constexpr std::uint64_t one_sent_on = std::uint64_t{1} << 48;
    static constexpr unsigned absent = 64;

    static std::uint64_t hash_of(std::size_t address) noexcept { return address * 0x9E3779B97F4A7C15u; }

    // The side picks other bits of the hash, so that two ranges that meet have two marks.
    static std::uint64_t mark_of(std::uint64_t hash, side which) noexcept {
        return 0x80 | (hash >> (which == side::end ? 24 : 16) & 0x7F);
    }

    static std::uint32_t entry_of(index_type index, side which) noexcept {
        return index << 1 | static_cast<std::uint32_t>(which);
    }

    // The top bit of each byte of 'marks' that equals 'mark'. A byte above a true one may be named too.
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
