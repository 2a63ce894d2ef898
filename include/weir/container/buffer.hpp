// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do untyped bytes of a pool get an owner?
//
// 'device_buffer' for memory that kernels use, 'pinned_buffer' for memory that the host uses and copy engines
// read at full speed: workspaces, packets, anything whose layout is somebody else's business. Twins: they
// differ in who copies. The device buffer's copies are enqueued on its stream; the pinned buffer's are made
// by the host at once.
//
//     weir::device_buffer workspace(pool, stream, bytes);
//     solve<<<grid, block, 0, stream>>>(workspace.data(), workspace.size());   // freed behind the kernel
//
// invariant: new bytes are not initialised; an empty buffer may hold no memory; a moved-from one is empty.
// invariant: a member that throws leaves the buffer as it was.
// order:     see 'pooled'. Device: memory is valid on the buffer's stream, others order themselves after it.
//            Pinned: memory is valid at once; work in flight that writes the buffer is not waited for, so
//            finish it ('synchronize(buffer.stream())') before the host reads, and before the buffer grows.
// cost:      an allocation each growth; nothing else that a pointer and a size would not cost.
// not for:   elements with a type: see vector.

#include <cstddef>
#include <weir/base/memory_space.hpp>
#include <weir/container/owned/pooled.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace detail {

/// What the twins share. Sizes in bytes. Members that may grow the buffer throw what the pool's 'allocate'
/// throws; members that copy throw cuda_error, and usage_error for a null address, and where a stream that must wait or be
/// waited for is captured into another graph or none.
template <memory_space Space>
class buffer : public detail::pooled<Space> {
public:
    /// An empty buffer that holds no memory. `stream`: not the host (usage_error).
    buffer(pool_ref<Space> pool, stream_ref stream) : buffer(pool, stream, 0) {}

    /// `bytes` bytes, not initialised, aligned as the pool aligns (256 bytes for device pools, less over slabs of smaller
    /// blocks).
    buffer(pool_ref<Space> pool, stream_ref stream, std::size_t bytes)
        : detail::pooled<Space>(pool, stream, bytes, 1) {}

    /// A copy of `bytes` bytes at `source`; see 'assign'.
    buffer(pool_ref<Space> pool, stream_ref stream, void const* source, std::size_t bytes)
        : buffer(pool, stream, 0) {
        assign(source, bytes);
    }

    /// A copy of another container, of any pool and stream; see 'assign'.
    template <memory_space Other>
    buffer(pool_ref<Space> pool, stream_ref stream, detail::pooled<Other> const& source) : buffer(pool, stream, 0) {
        assign(source);
    }

    /// The first byte; null where no memory is held. Valid until the buffer grows, shrinks to fit or ends, or, a device buffer,
    /// is assigned a part of itself or another stream's container.
    void* data() noexcept { return this->bytes_.data(); }
    void const* data() const noexcept { return this->bytes_.data(); }

    /// Bytes in use.
    std::size_t size() const noexcept { return this->bytes_.size(); }
    std::size_t size_bytes() const noexcept { return size(); }
    bool empty() const noexcept { return size() == 0; }

    /// Bytes that it can hold without asking the pool.
    std::size_t capacity() const noexcept { return this->bytes_.capacity(); }

    /// Makes the capacity at least `bytes`, exactly that if it grows; the contents move along.
    void reserve(std::size_t bytes) { this->bytes_.reserve(bytes); }

    /// Makes the size `bytes`; bytes that are new are not initialised. The capacity grows to exactly that, or
    /// stays.
    void resize(std::size_t bytes) { this->bytes_.resize(bytes); }

    /// Makes the size 0 and keeps the memory.
    void clear() noexcept { this->bytes_.clear(); }

    /// Gives the memory beyond the size back; an empty buffer then holds none.
    void shrink_to_fit() { this->bytes_.shrink_to_fit(); }

    /// The contents become the `bytes` bytes at `source`: host or device memory for a device buffer, host
    /// memory for a pinned one; it may lie in this buffer. A device buffer's copy runs on its stream, and a
    /// source in pinned memory must not change until then; CUDA reads pageable sources before the call
    /// returns, unless a graph is captured. A pinned buffer's is made by the host before the call returns,
    /// and waits for no work on any stream.
    void assign(void const* source, std::size_t bytes) { this->bytes_.assign(source, bytes); }

    /// The same from another container. A device buffer's copy runs after the work on that one's stream so far, and
    /// before what that stream does next. A pinned buffer's is made at once and waits for no stream: first finish the
    /// work that writes the source ('synchronize(source.stream())').
    template <memory_space Other>
    void assign(detail::pooled<Other> const& source) {
        this->bytes_.assign(source.bytes());
    }

    /// As 'assign', behind the contents. Grows by half at least, so that many appends cost little each.
    void append(void const* source, std::size_t bytes) { this->bytes_.append(source, bytes); }
    template <memory_space Other>
    void append(detail::pooled<Other> const& source) {
        this->bytes_.append(source.bytes());
    }

protected:
    buffer(buffer&&) noexcept = default;
    buffer& operator=(buffer&&) noexcept = default;
    ~buffer() = default;
};

} // namespace detail

/// Untyped memory that kernels use, of a device, managed or pinned pool.
class device_buffer : public detail::buffer<memory_space::device> {
public:
    using detail::buffer<memory_space::device>::buffer;

    /// Overwrites the contents with zero bytes, on the stream.
    void zero_async() { bytes_.zero(); }

    /// Enqueues a copy of the contents to `target`, host or device memory, which must live until the stream
    /// has done it. A pageable target makes CUDA block.
    void copy_to_async(void* target) const { bytes_.read(0, target, size()); }

    /// Copies the contents to `target` and waits for the stream. Throws usage_error while the stream is
    /// captured.
    void copy_to_sync(void* target) const { bytes_.read_sync(0, target, size()); }
};

/// Untyped memory that the host and copy engines use, of a pinned or managed pool.
class pinned_buffer : public detail::buffer<memory_space::pinned> {
public:
    using detail::buffer<memory_space::pinned>::buffer;

    /// Overwrites the contents with zero bytes, at once.
    void zero() { bytes_.zero(); }
};

} // namespace v0
} // namespace weir
