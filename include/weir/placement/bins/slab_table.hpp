// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// slab_table: what is known about the slab at this address?
//
// A record has one 64-bit word that says which blocks of a slab are free here. The table finds a record by hashing the slab's
// start and class. If a block of an unknown slab comes back, the table makes a record, since blocks move between tables. A
// record without bits says nothing: its blocks are in use or free elsewhere, and its slab may even have been cut anew for
// another class. It is kept nevertheless, and called asleep, because blocks of the slab usually come back. When the table would
// have to grow and more than half of its records are asleep, it forgets those instead.
//
// invariant: a start and a class have at most one record; 'asleep_' counts the records without bits. (A slab that was broken up
//            may have blocks here while a part of it is cut anew for another class.)
// order:     none; a table belongs to one lock.
// cost:      operator[]: nothing; record_of: one look-up; 60 to 85 host bytes a record.
// not for:   order among records: the user keeps lists of them, with 'next' and 'previous'.

#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Records of slabs by index; index 0 means 'none'. Not thread-safe. 'reserve' and 'record_of' throw
/// std::bad_alloc before any change.
class slab_table {
public:
    using index_type = base::address_map::value_type;

    struct record {
        std::size_t base = 0;
        std::uint64_t free = 0; ///< a bit for each block that is free here
        index_type next = 0;
        index_type previous = 0;
        unsigned in = spare; ///< the size class
    };

    record& operator[](index_type s) noexcept { return records_[s]; }

    /// Makes room for 'more' records.
    void reserve(std::size_t more) {
        if (records_.empty())
            records_.resize(1); // index 0 means 'none'
        if (lacks(more) && asleep_ > records_.size() / 2)
            forget_sleepers();
        if (lacks(more))
            records_.reserve(records_.size() + (more > records_.size() / 2 ? more : records_.size() / 2));
        by_start_.reserve(by_start_.size() + more);
    }

    /// The record of the slab that starts at 'base', with class 'in'. If there was none, the new one is asleep.
    index_type record_of(std::size_t base, unsigned in) {
        index_type s = by_start_.find(key_of(base, in));
        if (s == base::address_map::none) {
            reserve(1);
            s = spare_;
            if (s != 0) {
                spare_ = records_[s].next;
                --spares_;
            } else {
                s = static_cast<index_type>(records_.size());
                records_.push_back({});
            }
            records_[s].base = base;
            records_[s].in = in;
            by_start_.insert(key_of(base, in), s);
            ++asleep_;
        }
        return s;
    }

    /// Forgets a record that is not asleep.
    void retire(index_type s) noexcept {
        by_start_.erase(key_of(records_[s].base, records_[s].in));
        records_[s] = record();
        records_[s].next = spare_;
        spare_ = s;
        ++spares_;
    }

    /// The user calls these when it gave a record its first bits, or took its last bit away.
    void woke() noexcept { --asleep_; }
    void fell_asleep() noexcept { ++asleep_; }

    /// The number of records, sleeping and spare ones included, and how many there is room for.
    std::size_t size() const noexcept { return records_.size(); }
    std::size_t capacity() const noexcept { return records_.capacity(); }
    record const* begin() const noexcept { return records_.data(); }
    record const* end() const noexcept { return records_.data() + records_.size(); }

    /// Host bytes that the table holds.
    std::size_t bookkeeping_bytes() const noexcept {
        return records_.capacity() * sizeof(record) + by_start_.bookkeeping_bytes();
    }

private:
    static constexpr unsigned spare = UINT32_MAX;

    // The map has no key 0. Slabs start at multiples of 1,024 at least, and there are fewer classes than that.
    static std::uint64_t key_of(std::size_t base, unsigned in) noexcept { return base + in + 1; }

    bool lacks(std::size_t more) const noexcept {
        return spares_ + (records_.capacity() - records_.size()) < more;
    }

    void forget_sleepers() noexcept {
        for (index_type s = 1; s < records_.size(); ++s)
            if (records_[s].free == 0 && records_[s].in != spare)
                retire(s);
        asleep_ = 0;
    }

    base::growing_array<record> records_;
    base::address_map by_start_;
    index_type spare_ = 0;
    std::size_t spares_ = 0;
    std::size_t asleep_ = 0;
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
