// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// address_map: which 32-bit index belongs to this address?
//
// Device memory cannot be read by the host, so the records of blocks, chunks and slabs lie in host memory. This map finds a
// record by hashing its address. It is one flat array with open addressing. A slot has 16 bytes, so that a key and its value
// share a cache line. The home of a key is its multiplicative hash; from there the search goes on slot by slot (Knuth, TAOCP
// 6.4). Deletion shifts later entries back (algorithm R there), so no tombstones stay behind and old maps stay quick.
//
// invariant: every slot between a key's home and its place is taken; key 0 marks a free slot; at most 5 of 8 slots are taken.
// order:     none; a map belongs to one lock.
// cost:      find, insert and erase are expected O(1), about one cache line each. An entry takes 26 to 51 bytes. Growth
//            doubles the array.
// not for:   keys that an adversary chooses, or key 0.

#include <weir/base/growing_array.hpp>
#include <weir/base/size.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace base {

/// A hash map from nonzero 64-bit keys (addresses) to 32-bit values (indices). Not thread-safe. Only 'insert'
/// and 'reserve' allocate, and both leave the map as it was when they throw std::bad_alloc.
class address_map {
public:
    using key_type = std::uint64_t;
    using value_type = std::uint32_t;

    /// What 'find' and 'erase' return for a key that is not here. It may not be inserted as a value.
    static constexpr value_type none = UINT32_MAX;

    /// Adds 'key' (not 0, not yet here) with 'value'. Throws std::bad_alloc before any change.
    void insert(key_type key, value_type value) {
        if (size_ >= room_)
            reserve(size_ + 1);
        put(key, value);
        ++size_;
    }

    /// The value of 'key', or 'none'.
    value_type find(key_type key) const noexcept {
        if (size_ == 0)
            return none;
        std::size_t const at = place_of(key);
        return slots_[at].key == 0 ? none : slots_[at].value;
    }

    /// True when 'key' is here.
    bool contains(key_type key) const noexcept { return find(key) != none; }

    /// Sets another value for 'key', which must be here.
    void assign(key_type key, value_type value) noexcept { slots_[place_of(key)].value = value; }

    /// Removes 'key'. Returns the value that it had, or 'none' if it was not here.
    value_type erase(key_type key) noexcept {
        if (size_ == 0)
            return none;
        std::size_t hole = place_of(key);
        if (slots_[hole].key == 0)
            return none;
        value_type const value = slots_[hole].value;
        for (std::size_t at = next(hole); slots_[at].key != 0; at = next(at)) {
            // An entry may move back into the hole unless its home lies after the hole, cyclically.
            if (((at - home(slots_[at].key)) & mask_) >= ((at - hole) & mask_)) {
                slots_[hole] = slots_[at];
                hole = at;
            }
        }
        slots_[hole].key = 0;
        --size_;
        return value;
    }

    /// Calls visit(key, value) for each entry, in no order. The visitor may not change the map.
    template <class Visit>
    void visit(Visit const& visit) const {
        for (slot const& each : slots_)
            if (each.key != 0)
                visit(each.key, each.value);
    }

    /// Makes room for 'entries' in all, so that inserting up to that many does not throw.
    void reserve(std::size_t entries) {
        if (entries <= room_)
            return;
        std::size_t count = slots_.empty() ? 16 : slots_.size();
        while (room_of(count) < entries)
            count *= 2;
        growing_array<slot> old(count);
        old.swap(slots_);
        mask_ = count - 1;
        shift_ = 64 - floor_log2(count);
        room_ = room_of(count);
        for (slot const& s : old)
            if (s.key != 0)
                put(s.key, s.value);
    }

    /// The number of entries.
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

    /// Host bytes that the map holds for its slots.
    std::size_t bookkeeping_bytes() const noexcept { return slots_.capacity() * sizeof(slot); }

private:
    struct slot {
        key_type key = 0;
        value_type value = 0;
    };

    static constexpr std::size_t room_of(std::size_t count) noexcept { return count / 8 * 5; }

    std::size_t next(std::size_t at) const noexcept { return (at + 1) & mask_; }

    // Addresses differ in their middle bits. The multiplication carries those bits to the top.
    std::size_t home(key_type key) const noexcept {
        return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
    }

    // The slot that has the key, or the free slot where it would go.
    std::size_t place_of(key_type key) const noexcept {
        std::size_t at = home(key);
        while (slots_[at].key != key && slots_[at].key != 0)
            at = next(at);
        return at;
    }

    void put(key_type key, value_type value) noexcept {
        std::size_t const at = place_of(key);
        slots_[at].key = key;
        slots_[at].value = value;
    }

    growing_array<slot> slots_;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
    std::size_t mask_ = 0;
    unsigned shift_ = 0;
};

} // namespace base
} // namespace v0
} // namespace weir
