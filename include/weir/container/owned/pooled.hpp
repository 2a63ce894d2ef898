// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does every container say of where it lives?
//
// A container remembers the pool that its memory came from and the stream that it is freed on. This base
// holds both, with the bytes, and is the one place where 'stream', 'set_stream' and 'used_on' are documented.
// Buffer, vector and value derive from it, and a container fills itself from another through it.
//
// invariant: the pool and the stream are always there, also in a moved-from container, which is empty.
// order:     a container's memory goes back to its pool at the present end of its stream: work enqueued there
//            before the container's end may use it, whatever is enqueued later may not. So the stream outlives it.
//            A default stream is that of the memory's device, or, where the memory lies on none (managed, pinned), of the one
//            that was current as the container went to it; elsewhere it is another stream, which 'used_on' tells of.
// cost:      that of owned_bytes.
// not for:   use from several threads at a time; cudaStreamPerThread names the calling thread's stream, so a
//            container on it stays with its thread. A stream of another device than the memory's, unless that lets it in.

#include <cstddef>
#include <weir/base/memory_space.hpp>
#include <weir/container/owned/owned_bytes.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// The base of containers whose memory reaches as far as `Space`. Not copyable; a move takes memory, pool and
/// stream along, and what an assignment replaces is freed on its own stream.
template <memory_space Space>
class pooled {
public:
    /// Where the memory can be used.
    static constexpr memory_space space = Space;

    /// The pool that the memory came from and goes back to. It must outlive the container.
    pool_ref<Space> pool() const noexcept { return bytes_.pool(); }

    /// The stream that the container's own work is enqueued on, and that it is freed on.
    stream_ref stream() const noexcept { return bytes_.stream(); }

    /// Goes over to `stream`, which is made to wait for the work on the present stream so far: nothing is
    /// lost or seen half done. Does not block. Throws cuda_error, and usage_error for the host, and for a stream that is
    /// being captured where the container holds memory and its present stream is not; the stream is then what it was.
    void set_stream(stream_ref stream) { bytes_.set_stream(stream); }

    /// Says that work on another stream uses the container, now or later: from now on every free of its memory, where it grows
    /// and at its end, waits for all that is enqueued on `stream` until then. Once is enough, before the launches or after
    /// them. The stream lives until the container's end; a captured one makes that a free on a captured stream, and growth is
    /// refused while it is captured. It orders the end of the memory's life and nothing else. A pool that can be told is told;
    /// with another, this container's own stream waits at the free. Does not block. Throws usage_error for a stream that is
    /// being captured (but in a graph_memory for another one of its capture), cuda_error, std::bad_alloc.
    void used_on(stream_ref stream) { bytes_.used_on(stream); }
    /// The same of what is enqueued on `stream` so far alone, of the present memory: call it after the last launch there, and
    /// again after the next one. The stream may end sooner. With a pool that cannot be told this container's own stream waits
    /// now.
    void last_used_on(stream_ref stream) { bytes_.last_used_on(stream); }

    /// The memory itself, for a container that is filled from this one.
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
