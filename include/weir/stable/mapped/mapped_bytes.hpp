// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a stable container change its size, and how do values get into it?
//
// It grows where it is: more pages are put behind its addresses, and nothing is copied. Values are a copy on the stream on top
// of that, behind what was there. Pages can be put there before they are needed, while the device works on something else; so
// the growth itself makes no call of the driver. Buffer and vector add types.
//
// invariant: a member that throws leaves size, capacity and pages as they were, and the contents too, except for 'assign',
//            whose copy may have begun.
// order:     growing, shrinking and 'commit_ahead' are the host's, at once; copies are in the order of the container's stream.
// cost:      growing within the capacity: an addition and a compare. Beyond it: 35 to 50 us a page, or less (page_pool).
// not for:   elements that are not trivially copyable.

#include <cstddef>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/container/owned/contents.hpp>
#include <weir/stable/mapped/mapped_span.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

/// Bytes whose number changes and whose address does not. Members that may grow throw out_of_memory if the pool's limit or the
/// device has no room, usage_error beyond 'max_bytes', cuda_error, std::bad_alloc. They wait for the device only if pages that
/// work still uses are all there are.
class mapped_bytes : public container::detail::contents<memory_space::device, mapped_span> {
public:
    /// The size, in bytes.
    std::size_t size_bytes() const noexcept { return this->block_.size; }
    /// The bytes that have memory behind them.
    std::size_t capacity_bytes() const noexcept { return this->block_.capacity; }
    bool empty() const noexcept { return this->block_.size == 0; }

    /// Makes the size 0 and keeps the memory.
    void clear() noexcept { this->block_.size = 0; }

    /// Gives back the pages beyond the size, behind the work that is on the stream. Throws std::bad_alloc; then nothing has
    /// changed.
    void shrink_to_fit() { shrink_bytes(0); }

    /// Puts memory behind the addresses for `bytes` bytes more than the size, or for as many as there can ever be. Call it
    /// while the device works: it is what growing would do later.
    void commit_ahead(std::size_t bytes) { reserve_bytes(ahead(bytes)); }

    /// From now on a member that grows the container also does 'commit_ahead(bytes)' at its end, if less than that is left. If
    /// there is no room for it, or CUDA refuses, that is no error: the growth has succeeded. It is tried again only when the
    /// capacity has changed. 0: no longer.
    void keep_ahead(std::size_t bytes) noexcept {
        ahead_bytes_ = bytes;
        tried_at_ = none;
    }

protected:
    using container::detail::contents<memory_space::device, mapped_span>::contents;

    mapped_bytes(mapped_bytes&&) noexcept = default;
    mapped_bytes& operator=(mapped_bytes&&) noexcept = default;
    ~mapped_bytes() = default;

    /// Makes the capacity at least `bytes`.
    void reserve_bytes(std::size_t bytes) {
        if (bytes > this->block_.capacity)
            this->commit(bytes);
    }

    /// Makes the size `bytes`; added bytes are not initialised. The capacity never shrinks.
    void resize_bytes(std::size_t bytes) {
        reserve_bytes(bytes);
        this->block_.size = bytes;
        look_ahead();
    }

    /// Adds `bytes` bytes behind the contents, not initialised. Returns the first one's address.
    std::byte* append_bytes(std::size_t bytes) {
        std::size_t const before = this->block_.size;
        resize_bytes(sum(before, bytes));
        return this->block_.data + before;
    }

    /// Takes the last `bytes` bytes away, and gives the pages back that are not needed then. Throws as 'shrink_to_fit'.
    void shrink_bytes(std::size_t bytes) {
        this->require_awake();
        std::size_t const left = this->block_.size - bytes;
        if (this->has_pages_beyond(left)) {
            this->give_back_beyond(left, this->spare_record());
            tried_at_ = none;
        }
        this->block_.size = left;
    }

    /// Adds a copy of the `bytes` bytes at `source`, which may lie in this container, behind the contents.
    void append_copy(void const* source, std::size_t bytes) {
        append_copy({source, bytes, this->placed(), any_device});
    }
    /// The same in order with the work of the source's stream.
    void append_copy(container::detail::copy_source const& source) {
        base::require_not_null(source.data, source.size);
        put(this->block_.size, source);
    }

    /// The source's bytes become the contents. It may not lie in this container, unless that changes nothing.
    void assign_copy(container::detail::copy_source const& source) {
        base::require_not_null(source.data, source.size);
        if (source.size != 0 && source.data != this->block_.data) {
            auto const distance = reinterpret_cast<std::size_t>(source.data) - reinterpret_cast<std::size_t>(this->block_.data);
            if (distance < this->block_.capacity)
                throw usage_error("weir: a stable container cannot be assigned a part of itself, since the copy would "
                                  "overwrite its source; copy to another container");
            put(0, source);
        } else {
            resize_bytes(source.size);
        }
    }
    void assign_copy(void const* source, std::size_t bytes) { assign_copy({source, bytes, this->placed(), any_device}); }

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    // The contents become their first `kept` bytes, followed by the source's.
    void put(std::size_t kept, container::detail::copy_source const& source) {
        std::size_t const before = this->block_.capacity;
        std::size_t const size = sum(kept, source.size);
        base::shared<last_use> to_undo;
        if (size > before) {
            to_undo = this->spare_record();
            this->commit(size);
        }
        try {
            this->copy_in_order(this->block_.data + kept, source);
        } catch (...) {
            if (to_undo)
                this->give_back_beyond(before, std::move(to_undo));
            throw;
        }
        this->block_.size = size;
        look_ahead();
    }

    static std::size_t sum(std::size_t a, std::size_t b) {
        if (base::add_overflows(a, b))
            throw usage_error("weir: the bytes to append do not fit the address space beside those that are there");
        return a + b;
    }

    // What was added is there by now, whatever becomes of this.
    void look_ahead() noexcept {
        std::size_t const wanted = ahead(ahead_bytes_);
        if (wanted <= this->block_.capacity || tried_at_ == this->block_.capacity ||
            this->suspended()) // whose size may still become 0
            return;
        try {
            this->commit(wanted);
        } catch (...) {
            tried_at_ = this->block_.capacity;
        }
    }

    // The capacity that leaves `bytes` bytes, if there can be so many.
    std::size_t ahead(std::size_t bytes) const noexcept {
        std::size_t const left = this->max_bytes() - this->block_.size;
        return this->block_.size + (bytes < left ? bytes : left);
    }

    std::size_t ahead_bytes_ = 0;
    std::size_t tried_at_ = none; // the capacity at which there was no room to keep ahead
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
