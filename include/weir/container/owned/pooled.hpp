// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do all containers have in common: a block of a pool, the stream that it is freed on, and who else uses it?
//
// A container remembers the pool that its block came from and the stream that it is freed on. It may take another block of
// the same pool, and then frees the first one. Other streams that use the container are announced once, whatever block it has
// by then. 'stream', 'set_stream' and 'used_on' are documented only here. Buffer, vector and value derive from this class
// through 'contents', which copies bytes into the block and out of it.
//
// invariant: the pool and the stream are always there, also in a container that was moved from, which is empty.
// invariant: size <= capacity; a block is held if and only if capacity > 0.
// order:     a container's memory goes back to its pool at the point that its stream has reached then: work that was enqueued
//            there before may use the memory, and later work may not. So the stream must outlive the container. A default
//            stream means that of the memory's device. If the memory lies on no device (managed, pinned), it means that of
//            the device that was current when the container was put on the stream. The default stream of another device is a
//            different stream: announce it with 'used_on'.
// cost:      an allocation and a free for each block; 112 bytes of the host for the container itself.
// not for:   use from several threads at a time. cudaStreamPerThread names the calling thread's stream, so a container on it
//            must stay with its thread. A stream of another device than the memory's, unless the memory is open to that
//            device.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <type_traits>
#include <utility>
#include <weir/base/call_site.hpp>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/container/owned/marked_streams.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_life.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace container::detail {

// If what should be the pool is a stream, and what should be the stream is none.
template <class Stream, class Pool>
using if_turned = std::enable_if_t<runtime::detail::names_a_stream<Stream> && std::is_class_v<Pool> &&
                                   !runtime::detail::names_a_stream<Pool>>;
template <class Stream>
constexpr void refuse_turned() noexcept {
    static_assert(sizeof(Stream) == 0,
                  "weir: a container takes its pool first, and the stream behind it: '(pool, stream, ...)'");
}

/// The base class of containers whose memory can be used where `Space` says. Not copyable. A move takes memory, pool and
/// stream along. What a move assignment replaces is freed on its own stream.
template <memory_space Space>
class pooled {
public:
    /// Where the memory can be used.
    static constexpr memory_space space = Space;

    /// The pool that the memory came from and goes back to. The pool must outlive the container.
    pool_ref<Space> pool() const noexcept { return pool_; }

    /// The stream that the container's own work is enqueued on, and that it is freed on.
    stream_ref stream() const noexcept { return stream_.stream; }

    /// The same stream, together with its device if it is a default stream. A default stream's name alone, which 'stream'
    /// returns, means that of whichever device is current. For 'order_after'.
    order::placed_stream const& placed() const noexcept { return stream_; }

    /// Changes to `stream`, which is made to wait for the work that is enqueued on the present stream so far. So the new
    /// stream sees all of that work's results. A container without memory orders nothing. The former stream is like any other
    /// then: later work there that uses the container has to be announced ('used_on'). Waits at most for room in a full queue.
    /// Throws cuda_error; usage_error for the host; usage_error if the container holds memory and `stream` is being captured
    /// while the present stream is not. If it throws, the stream is unchanged.
    void set_stream(stream_ref stream) {
        if (stream.is_host())
            throw usage_error("weir: a container cannot move from a stream to 'on_host', which nothing makes wait; "
                              "name another stream");
        order::placed_stream const later = placed(pool_, stream);
        if (block_.data)
            order_after(later, stream_);
        stream_ = later;
        if (block_.data)
            pool_.in_container(block_.data, stream);
    }

    /// Says that work on another stream uses the container. Each later free of its memory, when it grows and when it ends,
    /// waits for all work that was enqueued on `stream` by then. One call is enough, before or after the launches. It orders
    /// only the end of the memory's life and nothing else.
    ///
    /// If the pool can be told of other streams, it is told. Otherwise the container's own stream waits at the free. `stream`
    /// must live until the container ends. If `stream` is captured later, the container's end counts as a free on a captured
    /// stream, and the container cannot grow while `stream` is captured. If several graphs use a block of a pool that cannot be
    /// told, it stays handed out. Waits at most for room in a full queue. Throws usage_error if `stream` is being captured
    /// (except in a graph_memory, if both streams belong to one capture); cuda_error; std::bad_alloc.
    void used_on(stream_ref stream) {
        if (stream.is_host())
            return; // whose uses are over when it frees
        users_.add(pool_, block_.data, stream_, order::placed_stream::now(stream));
        block_.pool_knows_users &= pool_.has_used_on();
    }

    /// The same for the present memory only, and for the work that is enqueued on `stream` so far. Call it after the last
    /// launch there, in place of 'used_on', and again after each later one. The stream may end then. If the pool cannot be
    /// told, the container's own stream waits for that work at once.
    void last_used_on(stream_ref stream) {
        if (!block_.data || stream.is_host())
            return;
        order::placed_stream const user = order::placed_stream::now(stream);
        if (user == stream_)
            return;
        if (pool_.has_used_on())
            return pool_.last_used_on(block_.data, stream);
        if (!runtime::is_legacy(stream) && !stream_.is_in_graph())
            runtime::require_no_capture(stream);
        order_after(stream_, user);
    }

protected:
    /// Memory of the pool. Its first `size` bytes are the container's contents.
    struct block {
        std::byte* data = nullptr;
        std::size_t size = 0;
        std::size_t capacity = 0;
        bool pool_knows_users = true; ///< whether the pool waits for all of 'users_' when the block is freed
        resource::detail::shared_pool_life life = {}; ///< of the pool, if it keeps such a mark (layer::guard)
    };

    /// A block that the container may take instead of its own. It goes back to the pool at the end of the scope, unless
    /// 'replace_block' was called: then the container's former block does, behind the work that is on the stream by then.
    class spare_block {
    public:
        /// `capacity` bytes, of the container's pool, for its stream and its other users. Throws what the pool's 'allocate'
        /// throws, and usage_error while one of the other users is captured.
        spare_block(pooled const& owner, std::size_t capacity, call_site const& where = call_site::here())
            : spare_block(owner) {
            block_ = owner.take(capacity, where);
            if (block_.data)
                block_.pool_knows_users = owner.users_.tell(owner.pool_, block_.data);
        }
        spare_block(spare_block const&) = delete;
        ~spare_block() { owner_.give(block_); }
        std::byte* data() const noexcept { return block_.data; }

    private:
        friend class pooled;
        explicit spare_block(pooled const& owner) noexcept : owner_(owner) {}

        pooled const& owner_;
        block block_;
    };

    /// `bytes` bytes of `pool`, not initialised, aligned to `alignment` and to the pool's default. Zero bytes hold no block.
    /// Throws what the pool's 'allocate' throws, and usage_error if `stream` is the host.
    pooled(pool_ref<Space> pool, stream_ref stream, std::size_t bytes, std::size_t alignment,
           call_site const& where = call_site::here())
        : pool_(pool), stream_(placed(pool, stream)),
          alignment_(alignment > pool.default_alignment() ? alignment : pool.default_alignment()), block_(take(bytes, where)) {
        block_.size = bytes;
    }
    pooled(pooled&& other) noexcept
        : pool_(other.pool_), stream_(other.stream_), alignment_(other.alignment_),
          users_(std::move(other.users_)),
          block_(std::exchange(other.block_, block())) {}
    pooled& operator=(pooled&& other) noexcept {
        pooled taken(std::move(other));
        base::swap_values(pool_, taken.pool_);
        base::swap_values(stream_, taken.stream_);
        base::swap_values(alignment_, taken.alignment_);
        base::swap_values(block_, taken.block_);
        base::swap_values(users_, taken.users_);
        return *this;
    }
    ~pooled() { give(block_); }

    /// The container's contents become the first `size` bytes of `fresh`.
    void replace_block(spare_block& fresh, std::size_t size) noexcept {
        base::swap_values(block_, fresh.block_);
        block_.size = size;
    }

    /// The number of the device that the memory lies on; any_device if it does not lie on one device alone.
    int device() const { return device_of(pool_); }
    /// The device to make current for calls. CUDA refuses one that mapped memory, or that of a driver_pool, is not open to.
    int home() const { return device() == any_device ? stream_.device : device(); }

private:
    // A default stream is that of the memory's device; if there is none, of the device that is current at this call.
    static order::placed_stream placed(pool_ref<Space> pool, stream_ref stream) {
        if (stream.is_host())
            throw usage_error(
                "weir: a container is freed on a stream, and 'on_host' is none; name the stream whose work uses the container "
                "last, or cudaStreamLegacy");
        int here = device_of(pool);
        if (here == any_device && runtime::is_default_stream(stream) && !runtime::succeeded(cudaGetDevice(&here)))
            here = runtime::current_device(); // try once more, which throws
        return {stream, here};
    }
    static int device_of(pool_ref<Space> pool) { return pool.space() == memory_space::device ? pool.device() : any_device; }

    // The host does not wait for a stream before it writes, so it needs memory that no work uses any more.
    stream_ref life_begins_on() const noexcept {
        if constexpr (base::host_accessible(Space))
            return stream_ref(on_host);
        else
            return stream_.stream;
    }

    block take(std::size_t bytes, call_site const& where) const {
        block fresh;
        if (bytes == 0)
            return fresh;
        runtime::device_scope const here(stream_.device);
        fresh.data = static_cast<std::byte*>(pool_.allocate(life_begins_on(), bytes, alignment_, where));
        fresh.capacity = bytes;
        fresh.life = pool_.in_container(fresh.data, stream_.stream);
        return fresh;
    }

    // A pool without a device takes a default stream for the current device's; other pools take it for both devices'.
    void give(block const& old) const noexcept {
        if (!old.data)
            return;
        if (old.life && old.life->is_over())
            return old.life->tell_of_free(old.data);
        stream_ref const last = old.pool_knows_users ? stream_.stream : users_.make_wait(stream_);
        if (last.is_host())
            return; // several graphs may use it: it stays handed out
        auto const free = [&] {
            pool_.deallocate(last, old.data, old.capacity, alignment_);
            return true;
        };
        if (!base::try_twice([&] {
                runtime::device_scope const here(device() == any_device ? stream_.device : any_device);
                return free();
            }))
            free();
    }

    pool_ref<Space> pool_;
    order::placed_stream stream_;
    std::size_t alignment_;
    marked_streams users_;

protected:
    block block_; // null if there is none
};

} // namespace container::detail
} // namespace v0
} // namespace weir
