// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do all containers have in common: their pool, their stream, and where their memory can be used?
//
// A container remembers the pool that its memory came from and the stream that it is freed on. This base class holds both,
// together with the bytes. 'stream', 'set_stream' and 'used_on' are documented only here. Buffer, vector and value derive
// from it, and a container reads another container through it when it copies from it.
//
// invariant: the pool and the stream are always there, also in a container that was moved from, which is empty.
// order:     a container's memory goes back to its pool at the point that its stream has reached then: work that was enqueued
//            there before may use the memory, and later work may not. So the stream must outlive the container. A default
//            stream means that of the memory's device. If the memory lies on no device (managed, pinned), it means that of
//            the device that was current when the container was put on the stream. The default stream of another device is a
//            different stream: announce it with 'used_on'.
// cost:      that of owned_bytes.
// not for:   use from several threads at a time. cudaStreamPerThread names the calling thread's stream, so a container on it
//            must stay with its thread. A stream of another device than the memory's, unless the memory is open to that
//            device.

#include <cstddef>
#include <weir/base/memory_space.hpp>
#include <weir/container/owned/owned_bytes.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// The base class of containers whose memory can be used where `Space` says. Not copyable. A move takes memory, pool and
/// stream along. What a move assignment replaces is freed on its own stream.
template <memory_space Space>
class pooled {
public:
    /// Where the memory can be used.
    static constexpr memory_space space = Space;

    /// The pool that the memory came from and goes back to. The pool must outlive the container.
    pool_ref<Space> pool() const noexcept { return bytes_.pool(); }

    /// The stream that the container's own work is enqueued on, and that it is freed on.
    stream_ref stream() const noexcept { return bytes_.stream(); }

    /// Changes to `stream`, which is made to wait for the work that is enqueued on the present stream so far. So the new
    /// stream sees all of that work's results. Does not block. Throws cuda_error; usage_error for the host; usage_error if
    /// the container holds memory and `stream` is being captured while the present stream is not. If it throws, the stream is
    /// unchanged.
    void set_stream(stream_ref stream) { bytes_.set_stream(stream); }

    /// Says that work on another stream uses the container. Each later free of its memory, when it grows and when it ends,
    /// waits for all work that was enqueued on `stream` by then. One call is enough, before or after the launches. It orders
    /// only the end of the memory's life and nothing else.
    ///
    /// If the pool can be told of other streams, it is told. Otherwise the container's own stream waits at the free. `stream`
    /// must live until the container ends. If `stream` is captured later, the container's end counts as a free on a captured
    /// stream, and the container cannot grow while `stream` is captured. Does not block. Throws usage_error if `stream` is
    /// being captured (except in a graph_memory, if both streams belong to one capture); cuda_error; std::bad_alloc.
    void used_on(stream_ref stream) { bytes_.used_on(stream); }
    /// The same for the present memory only, and for the work that is enqueued on `stream` so far. Call it after the last
    /// launch there, and again after each later one. The stream may end sooner than the container. If the pool cannot be
    /// told, the container's own stream waits for that work at once.
    void last_used_on(stream_ref stream) { bytes_.last_used_on(stream); }

    /// The memory itself, for another container that copies from it.
    owned_bytes<Space> const& bytes() const noexcept { return bytes_; }

protected:
    pooled(pool_ref<Space> pool, stream_ref stream, std::size_t bytes, std::size_t alignment)
        : bytes_(pool, stream, bytes, alignment) {}
    pooled(pooled&&) noexcept = default;
    pooled& operator=(pooled&&) noexcept = default;
    ~pooled() = default;

    owned_bytes<Space> bytes_;
};

} // namespace detail
} // namespace v0
} // namespace weir
