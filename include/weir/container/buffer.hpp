// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What owns untyped bytes of a pool?
//
// 'device_buffer' is for memory that kernels use. 'pinned_buffer' is for memory that the host uses and copy engines read at
// full speed. Both suit workspaces, packets, and anything whose layout somebody else decides. They differ in who copies: a
// device buffer's copies are enqueued on its stream, and a pinned buffer's copies are made by the host at once.
//
//     weir::device_buffer workspace(pool, stream, bytes);
//     solve<<<grid, block, 0, stream>>>(workspace.data(), workspace.size());   // freed behind the kernel
//
// invariant: added bytes are not initialised; an empty buffer may hold no memory; a buffer that was moved from is empty.
// invariant: a member that throws leaves the buffer as it was.
// order:     see 'pooled'. Device: the memory is valid on the buffer's stream; other streams have to be ordered after it.
//            Pinned: the memory is valid at once. The buffer does not wait for work in flight that writes to it, so finish
//            that work ('synchronize(buffer.stream())') before the host reads and before the buffer grows.
// cost:      one allocation each time it grows; otherwise the same as a pointer and a size.
// not for:   elements with a type: see vector.

#include <cstddef>
#include <type_traits>
#include <weir/base/call_site.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/container/owned/growing_bytes.hpp>
#include <weir/container/owned/owner.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace container::detail {

/// What both kinds of buffer share. Sizes are in bytes. Members that may grow the buffer throw what the pool's 'allocate'
/// throws. Members that copy throw cuda_error. They throw usage_error for a null address, and if one of the two streams that
/// have to wait for each other is captured into another graph than the other, or only one is captured.
/// `where`: the line that asks, for layer::record.
template <memory_space Space>
class buffer : public growing_bytes<Space> {
public:
    /// An empty buffer that holds no memory. `stream`: any stream, but not the host (usage_error).
    buffer(pool_ref<Space> pool, stream_ref stream, call_site const& where = call_site::here())
        : buffer(pool, stream, 0, where) {}

    /// `bytes` bytes, not initialised. They are aligned as the pool aligns by default (256 bytes for device pools, less if
    /// the pool's slabs have smaller blocks).
    buffer(pool_ref<Space> pool, stream_ref stream, std::size_t bytes, call_site const& where = call_site::here())
        : growing_bytes<Space>(pool, stream, bytes, 1, where) {}

    /// A copy of `bytes` bytes at `source`; see 'assign'.
    buffer(pool_ref<Space> pool, stream_ref stream, void const* source, std::size_t bytes,
           call_site const& where = call_site::here())
        : buffer(pool, stream, 0, where) {
        assign(source, bytes, where);
    }

    /// A copy of another container, of any pool and stream; see 'assign'.
    template <class Owner, class = std::enable_if_t<is_owner<Owner>>>
    buffer(pool_ref<Space> pool, stream_ref stream, Owner const& source, call_site const& where = call_site::here())
        : buffer(pool, stream, 0, where) {
        assign(source, where);
    }

    /// Refused: the stream in front of the pool.
    template <class Stream, class Pool, class... More, class = if_turned<Stream, Pool>>
    buffer(Stream const& stream, Pool& pool, More const&...) : buffer(pool, stream) {
        refuse_turned<Stream>();
    }

    /// The address of the first byte; null if no memory is held. It stays valid until the buffer grows, shrinks to fit or
    /// ends. For a device buffer it also becomes invalid when a part of the buffer itself, or a container of another stream,
    /// is assigned to it.
    void* data() noexcept { return this->block_.data; }
    void const* data() const noexcept { return this->block_.data; }

    /// The size, in bytes.
    std::size_t size() const noexcept { return this->size_bytes(); }

    /// The bytes that it can hold without asking the pool.
    std::size_t capacity() const noexcept { return this->block_.capacity; }

    /// Makes the capacity at least `bytes`, and exactly that if it grows. The contents are kept.
    void reserve(std::size_t bytes, call_site const& where = call_site::here()) {
        this->reserve_bytes(bytes, where);
    }

    /// Makes the size `bytes`. Added bytes are not initialised. If that is more than the capacity, the capacity becomes
    /// exactly that; otherwise it stays.
    void resize(std::size_t bytes, call_site const& where = call_site::here()) {
        this->resize_bytes(bytes, where);
    }

    /// Replaces the contents by the `bytes` bytes at `source`: host or device memory for a device buffer, host memory for a
    /// pinned one. The source may lie in this buffer. A device buffer's copy runs on its stream. A source in pinned memory
    /// must not change until the copy ran. CUDA reads a pageable source (ordinary host memory) before the call returns,
    /// unless a graph is captured. A pinned buffer's copy is made by the host before the call returns, and waits for no work
    /// on any stream.
    void assign(void const* source, std::size_t bytes, call_site const& where = call_site::here()) {
        this->assign_bytes(source, bytes, where);
    }

    /// Replaces the contents by those of another container. A device buffer's copy runs after all work that is enqueued on
    /// that container's stream so far, and before any later work there. A pinned buffer's copy is made at once and waits for
    /// no stream: first finish the work that writes the source ('synchronize(source.stream())').
    template <class Owner, class = std::enable_if_t<is_owner<Owner>>>
    void assign(Owner const& source, call_site const& where = call_site::here()) {
        this->assign_bytes(source, where);
    }

    /// As 'assign', but adds behind the contents. The capacity grows by at least half, if the pool has room for that, so that
    /// many appends cost little each.
    void append(void const* source, std::size_t bytes, call_site const& where = call_site::here()) {
        this->append_bytes(source, bytes, 1, where);
    }
    template <class Owner, class = std::enable_if_t<is_owner<Owner>>>
    void append(Owner const& source, call_site const& where = call_site::here()) {
        this->append_bytes(source, 1, where);
    }

protected:
    buffer(buffer&&) noexcept = default;
    buffer& operator=(buffer&&) noexcept = default;
    ~buffer() = default;
};

} // namespace container::detail

/// Untyped memory that kernels use. The pool may be a device, managed or pinned pool.
class device_buffer : public container::detail::buffer<memory_space::device> {
public:
    using container::detail::buffer<memory_space::device>::buffer;

    /// Overwrites the contents with zero bytes, on the stream. Does not block.
    void zero_async() { zero_bytes(); }

    /// Enqueues a copy of the contents to `target`, host or device memory, which must live until the stream has made the
    /// copy. If `target` is pageable (ordinary host memory), CUDA blocks.
    void copy_to_async(void* target) const { read(0, target, size()); }

    /// Copies the contents to `target` and blocks until the stream has done it. Throws usage_error while the stream is
    /// captured.
    void copy_to_sync(void* target) const { read_sync(0, target, size()); }
};

/// Untyped memory that the host and copy engines use. The pool may be a pinned or managed pool.
class pinned_buffer : public container::detail::buffer<memory_space::pinned> {
public:
    using container::detail::buffer<memory_space::pinned>::buffer;

    /// Overwrites the contents with zero bytes, by the host, at once.
    void zero() { zero_bytes(); }
};

} // namespace v0
} // namespace weir
