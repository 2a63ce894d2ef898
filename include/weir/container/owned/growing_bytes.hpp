// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a container change its size, and when does it take another block for that?
//
// It takes another block if the present one is too small, and copies the contents over. It also takes another one if the new
// contents lie in the present block, or come from another stream: such a copy may fail after it has begun, and the old
// contents must still be there then. The old block goes back to the pool behind the copies. Buffer and vector add types.
//
// invariant: a member that throws leaves contents, size and capacity as they were.
// order:     as 'contents': the copies and the old block's free are in the order of the container's stream.
// cost:      growing copies the contents once; appending grows by half, so n appended bytes cost O(n) copies.
// not for:   elements that are not trivially copyable.

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <weir/base/call_site.hpp>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/container/owned/contents.hpp>
#include <weir/container/owned/owner.hpp>

namespace weir {
inline namespace v0 {
namespace container::detail {

/// Bytes whose number changes. Members that may take a block throw what the pool's 'allocate' throws; pinned memory is
/// allocated by the host, which may have to wait for work in flight. `where`: the line that asks, for layer::record.
template <memory_space Space>
class growing_bytes : public contents<Space> {
public:
    /// The size, in bytes.
    std::size_t size_bytes() const noexcept { return this->block_.size; }
    bool empty() const noexcept { return this->block_.size == 0; }

    /// Makes the size 0 and keeps the memory.
    void clear() noexcept { this->block_.size = 0; }

    /// Gives the memory beyond the size back; an empty container holds none afterwards.
    void shrink_to_fit(call_site const& where = call_site::here()) {
        if (this->block_.capacity != this->block_.size)
            reallocate(this->block_.size, where);
    }

protected:
    using contents<Space>::contents;

    /// Makes the capacity at least `bytes`, and exactly that if it grows.
    void reserve_bytes(std::size_t bytes, call_site const& where = call_site::here()) {
        if (bytes > this->block_.capacity)
            reallocate(bytes, where);
    }
    /// Makes the size `bytes`; added bytes are not initialised. If it grows, then to exactly that; the block never shrinks.
    void resize_bytes(std::size_t bytes, call_site const& where = call_site::here()) {
        reserve_bytes(bytes, where);
        this->block_.size = bytes;
    }

    /// The `bytes` bytes at `source`, which may lie in this block, become the contents.
    void assign_bytes(void const* source, std::size_t bytes, call_site const& where = call_site::here()) {
        splice(0, {source, bytes, this->placed()}, 0, where);
    }
    /// Adds the `bytes` bytes at `source`, which may lie in this block, behind the contents. If the capacity grows, then by at
    /// least half of its elements of `element_bytes` bytes.
    void append_bytes(void const* source, std::size_t bytes, std::size_t element_bytes = 1,
                      call_site const& where = call_site::here()) {
        splice(this->block_.size, {source, bytes, this->placed()}, half(element_bytes), where);
    }

    /// The same from an owner, in order with the work of its stream.
    template <class Owner, class = std::enable_if_t<is_owner<Owner>>>
    void assign_bytes(Owner const& source, call_site const& where = call_site::here()) {
        splice(0, source_for(source), 0, where);
    }
    template <class Owner, class = std::enable_if_t<is_owner<Owner>>>
    void append_bytes(Owner const& source, std::size_t element_bytes = 1, call_site const& where = call_site::here()) {
        splice(this->block_.size, source_for(source), half(element_bytes), where);
    }

private:
    using spare_block = typename pooled<Space>::spare_block;

    template <class Owner>
    copy_source source_for(Owner const& source) const {
        if constexpr (decltype(is_container(source))::value)
            static_assert(
                !base::host_accessible(Space) || base::host_accessible(Owner::space),
                "weir: a pinned container is filled by the host, which cannot read a device container; use the "
                "device container's 'copy_to_async' with the pinned container's 'data()'");
        return source_of(source, this->placed());
    }

    void reallocate(std::size_t capacity, call_site const& where) {
        spare_block fresh(*this, capacity, where);
        this->copy(fresh.data(), this->block_.data, this->block_.size);
        this->replace_block(fresh, this->block_.size);
    }

    std::size_t half(std::size_t element_bytes) const noexcept {
        std::size_t const elements = this->block_.capacity / element_bytes;
        return (elements - elements / 2) * element_bytes;
    }

    // A block of `wanted` bytes if the pool has room, else of `needed` bytes.
    spare_block with_capacity(std::size_t wanted, std::size_t needed, call_site const& where) const {
        try {
            if (wanted > needed)
                return spare_block(*this, wanted, where);
        } catch (std::bad_alloc const&) {
        }
        return spare_block(*this, needed, where);
    }

    // The contents become their first `kept` bytes (none or all), followed by the source's. A larger block has `more_bytes`
    // more, if the pool has room for that.
    void splice(std::size_t kept, copy_source const& source, std::size_t more_bytes, call_site const& where) {
        base::require_not_null(source.data, source.size);
        if (base::add_overflows(kept, source.size))
            throw usage_error("weir: the bytes to append do not fit the address space beside those that are there");
        std::size_t const needed = kept + source.size, capacity = this->block_.capacity;
        std::byte* const data = this->block_.data;
        bool const there_already =
            source.size == 0 || (source.data == data && kept == 0 && source.size <= this->block_.size);
        if (there_already || (needed <= capacity && (kept == this->block_.size || may_overwrite(source)))) {
            if (!there_already)
                this->copy_in_order(data + kept, source);
            this->block_.size = needed;
            return;
        }
        spare_block fresh = with_capacity(capacity + more_bytes, needed, where);
        this->copy(fresh.data(), data, kept);
        this->copy_in_order(fresh.data() + kept, source);
        this->replace_block(fresh, needed);
    }

    // Whether the contents may be overwritten in place: nothing after the copy can fail, and the source is elsewhere.
    bool may_overwrite(copy_source const& source) const noexcept {
        return base::host_accessible(Space) || (source.user == this->placed() && !holds(source.data));
    }

    bool holds(void const* p) const noexcept {
        return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(this->block_.data) <
               this->block_.capacity;
    }
};

} // namespace container::detail
} // namespace v0
} // namespace weir
