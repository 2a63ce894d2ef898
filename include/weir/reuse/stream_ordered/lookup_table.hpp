// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do many threads find an object by a number without a lock?
//
// This is an open-addressing table of pairs of a key and a pointer. A reader needs two acquiring loads. The owner lets one
// writer in at a time. A key's pointer may change. To grow, a writer builds a larger table beside the old one and publishes
// it. Since a reader may still be in the old one, that lives until the end; all old tables together are smaller than the
// newest. If most keys have no pointer, a writer drops those instead of growing.
//
// invariant: a reader finds a key's pointer as of some moment during its call. The object may serve another key by then, so
//            the caller locks it and checks its key. While keys are dropped, a reader may find nothing.
// cost:      find: one multiplication and usually one cache line. A slot has 16 bytes, and at most half of the slots are in
//            use.
// not for:   owning the objects, nor for a key that is 0.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/threads/atomic.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

template <class Value>
class lookup_table {
public:
    lookup_table() { grow(16); }
    lookup_table(lookup_table const&) = delete;
    lookup_table& operator=(lookup_table const&) = delete;
    ~lookup_table() {
        for (table* each = newest_; each;)
            delete std::exchange(each, each->older);
    }

    /// The pointer of `key`, or null. Any thread, at any time. Never blocks. While a writer drops keys, the answer may also
    /// be null, or another key's pointer. So who gets null or the wrong object asks again under the writers' lock.
    [[gnu::always_inline]] Value* find(std::uint64_t key) const noexcept {
        table const& now = *current_.load(base::memory_order_acquire);
        slot const& found = place_of(now, key);
        return found.key.load(base::memory_order_acquire) == key ? found.value.load(base::memory_order_acquire)
                                                                : nullptr;
    }

    /// Makes room for one more key, so that the next 'assign' does not throw. One thread at a time. Throws
    /// std::bad_alloc before any change.
    void reserve_one() {
        if ((used_ + 1) * 2 <= newest_->mask)
            return;
        std::size_t live = 0;
        for (std::size_t at = 0; at <= newest_->mask; ++at)
            live += newest_->places[at].value.load(base::memory_order_relaxed) != nullptr;
        if (live * 4 <= newest_->mask)
            drop_dead(live);
        else
            grow((newest_->mask + 1) * 2);
    }

    /// Gives `key` the pointer `value` (null: none). One thread at a time. Throws as 'reserve_one'.
    void assign(std::uint64_t key, Value* value) {
        reserve_one();
        slot& place = place_of(*newest_, key);
        place.value.store(value, base::memory_order_release);
        if (place.key.load(base::memory_order_relaxed) == 0) {
            place.key.store(key, base::memory_order_release);
            ++used_;
        }
    }

    /// Host bytes that the tables hold. One thread at a time.
    std::size_t bookkeeping_bytes() const noexcept {
        std::size_t sum = 0;
        for (table const* each = newest_; each; each = each->older)
            sum += sizeof(table) + (each->mask + 1) * sizeof(slot);
        return sum;
    }

private:
    struct slot {
        base::atomic<std::uint64_t> key{0};
        base::atomic<Value*> value{nullptr};
    };
    struct table {
        table(std::size_t count, table* before) : places(new slot[count]), mask(count - 1), older(before) {}
        table(table const&) = delete;
        table& operator=(table const&) = delete;
        ~table() { delete[] places; }
        slot* places;
        std::size_t mask; // the number of slots, a power of two, less one
        table* older;
    };

    template <class Table>
    [[gnu::always_inline]] static auto& place_of(Table& in, std::uint64_t key) noexcept {
        std::size_t at = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & in.mask;
        for (;; at = (at + 1) & in.mask) {
            std::uint64_t const here = in.places[at].key.load(base::memory_order_acquire);
            if (here == key || here == 0)
                return in.places[at];
        }
    }

    // Drops the keys whose pointer is null, within the table. It builds no smaller one, since readers may be in any table
    // that there ever was, so none could be freed.
    void drop_dead(std::size_t live) {
        struct entry {
            std::uint64_t key;
            Value* value;
        };
        base::growing_array<entry> kept;
        kept.reserve(live);
        for (std::size_t at = 0; at <= newest_->mask; ++at) {
            slot& each = newest_->places[at];
            if (Value* const value = each.value.load(base::memory_order_relaxed))
                kept.push_back(entry{each.key.load(base::memory_order_relaxed), value});
        }
        for (std::size_t at = 0; at <= newest_->mask; ++at) {
            newest_->places[at].key.store(0, base::memory_order_relaxed);
            newest_->places[at].value.store(nullptr, base::memory_order_relaxed);
        }
        used_ = 0;
        for (entry const& each : kept)
            assign(each.key, each.value);
    }

    void grow(std::size_t count) {
        auto* const next = new table(count, newest_);
        std::size_t used = 0;
        if (newest_) {
            for (std::size_t at = 0; at <= newest_->mask; ++at) {
                slot const& old = newest_->places[at];
                Value* const value = old.value.load(base::memory_order_relaxed);
                if (value) { // a key without a pointer is left behind
                    slot& place = place_of(*next, old.key.load(base::memory_order_relaxed));
                    place.key.store(old.key.load(base::memory_order_relaxed), base::memory_order_relaxed);
                    place.value.store(value, base::memory_order_relaxed);
                    ++used;
                }
            }
        }
        used_ = used;
        newest_ = next;
        current_.store(next, base::memory_order_release);
    }

    base::atomic<table const*> current_{nullptr};
    table* newest_ = nullptr; // the same table, for the writer
    std::size_t used_ = 0;    // keys in the newest table
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
