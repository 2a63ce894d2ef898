// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What owns untyped bytes that grow and never move?
//
// 'stable_buffer' is to device_buffer what stable_vector is to device_vector: its address stays the same from the making to the
// end, whatever it grows to.
//
//     weir::stable_buffer arena(pages, stream, 4 * weir::GiB);          // addresses for 4 GiB, and no memory yet
//     void* const more = arena.append(bytes);
//
// invariant: added bytes are not initialised. A buffer that was moved from is empty.
// order:     as stable_vector.
// cost:      as stable_vector.
// not for:   elements with a type: see stable_vector.

#include <cstddef>
#include <type_traits>
#include <weir/container/owned/pooled.hpp>
#include <weir/container/owned/owner.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/stable/mapped/mapped_bytes.hpp>
#include <weir/stable/page_pool.hpp>

namespace weir {
inline namespace v0 {

/// Untyped memory that kernels use, at one address. Sizes are in bytes. Members that may grow throw what stable_vector's do.
class stable_buffer : public stable::detail::mapped_bytes {
public:
    /// An empty buffer. `max_bytes`: the most that it can hold, rounded up to pages; 0: as much as the device has, or as the
    /// pool's limit admits. Throws usage_error if `stream` is the host; out_of_memory if the process has not so many addresses
    /// left; cuda_error; std::bad_alloc.
    stable_buffer(stable::page_pool const& pool, stream_ref stream, std::size_t max_bytes = 0)
        : stable::detail::mapped_bytes(pool, stream, max_bytes) {}
    /// Refused: the stream in front of the pool.
    template <class Stream, class = container::detail::if_turned<Stream, stable::page_pool>>
    stable_buffer(Stream const& stream, stable::page_pool const& pool, std::size_t = 0) : stable_buffer(pool, stream) {
        container::detail::refuse_turned<Stream>();
    }
    stable_buffer(stable_buffer&&) noexcept = default;
    stable_buffer& operator=(stable_buffer&&) noexcept = default;
    stable_buffer(stable_buffer const&) = delete; // weir: make another one and 'append(buffer)'
    stable_buffer& operator=(stable_buffer const&) = delete; // weir: copy the bytes with 'buffer.assign(other)'

    /// The address of the first byte, from the making to the end; null for a buffer that was moved from.
    void* data() noexcept { return block_.data; }
    void const* data() const noexcept { return block_.data; }
    /// The size, in bytes.
    std::size_t size() const noexcept { return size_bytes(); }
    /// The bytes that have memory behind them.
    std::size_t capacity() const noexcept { return capacity_bytes(); }

    /// Makes the capacity at least `bytes`.
    void reserve(std::size_t bytes) { reserve_bytes(bytes); }
    /// Makes the size `bytes`. Added bytes are not initialised; the capacity never shrinks.
    void resize(std::size_t bytes) { resize_bytes(bytes); }
    /// Adds `bytes` bytes, not initialised. Returns the first one's address.
    void* append(std::size_t bytes) { return append_bytes(bytes); }
    /// Adds a copy of the `bytes` bytes at `source`, which may lie in this buffer; see stable_vector.
    void append(void const* source, std::size_t bytes) { append_copy(source, bytes); }
    /// The same from a container, whose stream's work so far comes before the copy, and later work after it.
    template <class Owner, class = std::enable_if_t<container::detail::is_owner<Owner>>>
    void append(Owner const& source) {
        append_copy(container::detail::source_of(source, this->placed()));
    }
    /// Replaces the contents; otherwise as 'append'. See stable_vector.
    void assign(void const* source, std::size_t bytes) { assign_copy(source, bytes); }
    template <class Owner, class = std::enable_if_t<container::detail::is_owner<Owner>>>
    void assign(Owner const& source) {
        assign_copy(container::detail::source_of(source, this->placed()));
    }
    /// Takes the last `bytes` bytes away, and gives pages back that are not needed then. Throws usage_error if there are fewer,
    /// and std::bad_alloc; then nothing has changed.
    void shrink(std::size_t bytes) {
        if (bytes > size())
            throw usage_error("weir: a stable buffer of " + base::count_text(size(), " byte") + " cannot shrink by " +
                              base::number_text(bytes));
        shrink_bytes(bytes);
    }

    /// Overwrites the contents with zero bytes, on the stream. Does not block.
    void zero_async() { zero_bytes(); }
    /// Enqueues a copy of the contents to `target`; see device_buffer.
    void copy_to_async(void* target) const { read(0, target, size()); }
    /// Copies the contents to `target` and blocks until the stream has done it. Throws usage_error while the stream is
    /// captured.
    void copy_to_sync(void* target) const { read_sync(0, target, size()); }
};

} // namespace v0
} // namespace weir
