// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does every container do with its bytes, whatever they mean?
//
// 'owned_bytes' is a block of a pool with a size, a capacity and a stream. It can grow, be copied, move to another stream,
// and go back to its pool on its stream. Buffer, vector and value add types on top. There are two kinds. If the host cannot
// reach the memory, everything is enqueued on the stream. If it can (pinned), the host reads and writes at once: a fresh
// block is one that no work in flight uses, the host makes the copies, and the stream orders only the block's free, because
// copy engines may still read it.
//
// invariant: size <= capacity; a block is held if and only if capacity > 0.
// invariant: a member that throws leaves contents, size and capacity as they were.
// order:     what this class enqueues is on its stream. A copy from a block of another stream runs after that stream's work
//            so far and before its later work. A copy that the host makes (pinned) is done when the call returns, and waits
//            for no stream.
// cost:      growing copies the contents once; appending grows by half, so n appended bytes cost O(n) copies.
// not for:   elements that are not trivially copyable.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <new>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/text.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/container/owned/marked_streams.hpp>
#include <weir/container/owned/ordered_copy.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/resource/resource.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// Bytes of a pool, owned. Movable, not copyable. One thread at a time. Members block the host only in these cases: their
/// name ends in '_sync'; pinned memory is allocated and must wait for work in flight; CUDA stages a copy from or to memory
/// that is not page-locked; or a copy failed half way, and its end is awaited.
template <memory_space Space>
class owned_bytes {
    static constexpr bool by_host = base::host_accessible(Space);

public:
    /// `bytes` bytes of `pool`, not initialised, aligned to `alignment` and to the pool's default. Zero bytes hold no block.
    /// Throws what the pool's 'allocate' throws, and usage_error if `stream` is the host.
    owned_bytes(pool_ref<Space> pool, stream_ref stream, std::size_t bytes, std::size_t alignment)
        : owned_bytes(pool, placed(pool, stream), bytes, alignment) {}
    /// Takes the block. `other` is empty afterwards, and keeps its pool and stream.
    owned_bytes(owned_bytes&& other) noexcept
        : pool_(other.pool_), stream_(other.stream_), alignment_(other.alignment_),
          data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
          capacity_(std::exchange(other.capacity_, 0)), users_(std::move(other.users_)) {}
    /// Frees its own block on its own stream, then takes the other's block, pool and stream.
    owned_bytes& operator=(owned_bytes&& other) noexcept {
        owned_bytes taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~owned_bytes() {
        if (data_)
            give_back();
    }

    std::byte* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::size_t capacity() const noexcept { return capacity_; }
    pool_ref<Space> pool() const noexcept { return pool_; }
    stream_ref stream() const noexcept { return stream_.stream; }
    /// The stream, together with its device if it is a default stream.
    order::placed_stream placed() const noexcept { return stream_; }

    void swap(owned_bytes& other) noexcept {
        base::swap_values(pool_, other.pool_);
        base::swap_values(stream_, other.stream_);
        base::swap_values(alignment_, other.alignment_);
        base::swap_values(data_, other.data_);
        base::swap_values(size_, other.size_);
        base::swap_values(capacity_, other.capacity_);
        users_.swap(other.users_);
    }

    /// Changes to `stream`, which is made to wait for the present stream's work so far. Throws cuda_error, and usage_error
    /// for the host.
    void set_stream(stream_ref stream) {
        if (stream.is_host())
            throw usage_error(
                "weir: a container cannot move from a stream to 'on_host', which nothing makes wait; "
                "name another stream");
        order::placed_stream const later = placed(pool_, stream);
        if (data_)
            order_after(later, stream_);
        stream_ = later;
    }

    /// Each later free of a block waits for all work that was enqueued on `stream` by then. The pool does that if it can be
    /// told; else the container's own stream waits at the free. Throws what the pool's 'used_on' throws or usage_error (a
    /// captured stream, except for two of one capture if the pool cannot be told); cuda_error; std::bad_alloc.
    void used_on(stream_ref stream) {
        if (!stream.is_host())
            users_.add(pool_, data_, stream_, order::placed_stream::now(stream));
    }
    /// The free of the present block waits for the work enqueued on `stream` so far. Otherwise the same.
    void last_used_on(stream_ref stream) {
        if (data_ && !stream.is_host())
            marked_streams::note_last(pool_, data_, stream_, order::placed_stream::now(stream));
    }

    /// Makes the capacity at least `bytes`, and exactly that if it grows.
    void reserve(std::size_t bytes) {
        if (bytes > capacity_)
            reallocate(bytes);
    }
    /// Makes the size `bytes`; added bytes are not initialised. If it grows, then to exactly that; the block never shrinks.
    void resize(std::size_t bytes) {
        reserve(bytes);
        size_ = bytes;
    }
    /// Makes the size 0 and keeps the block.
    void clear() noexcept { size_ = 0; }
    /// Gives the memory beyond the size back, by taking a smaller block or none.
    void shrink_to_fit() {
        if (capacity_ != size_)
            reallocate(size_);
    }

    /// The `bytes` bytes at `source`, which may lie in this block, become the contents. Here and below, the copy is enqueued
    /// on the stream; if the host reaches the memory, the host makes it at once.
    void assign(void const* source, std::size_t bytes) { splice(0, source, bytes, stream_); }
    /// Adds the `bytes` bytes at `source`, which may lie in this block, behind the contents.
    void append(void const* source, std::size_t bytes) { splice(size_, source, bytes, stream_); }

    /// The same from another container's bytes. An enqueued copy runs after that container's stream's work so far and before
    /// its later work; a copy by the host is made at once, and waits for nothing.
    template <memory_space Other>
    void assign(owned_bytes<Other> const& source) {
        require_reach<Other>();
        splice(0, source.data(), source.size(), source.placed(), source.device());
    }
    template <memory_space Other>
    void append(owned_bytes<Other> const& source) {
        require_reach<Other>();
        splice(size_, source.data(), source.size(), source.placed(), source.device());
    }

    /// Overwrites `bytes` bytes from `offset` on, which must lie within the size.
    void write(std::size_t offset, void const* source, std::size_t bytes) {
        copy(data_ + offset, source, bytes);
    }

    /// As 'write', from a variable that may end after the call: CUDA reads pageable memory before it returns. In a capture it
    /// would keep the address, so this throws usage_error then.
    void write_now(std::size_t offset, void const* source, std::size_t bytes) {
        require_source_lives();
        write(offset, source, bytes);
    }

    /// Throws usage_error if a copy would be captured, as its source may end before the graph.
    void require_source_lives() const {
        if constexpr (!by_host)
            refuse_capture(
                "keeps the address of the value, which does not live that long; copy from memory that "
                "outlives the graph");
    }

    /// Enqueues a copy of `bytes` bytes from `offset` on to `target`.
    void read(std::size_t offset, void* target, std::size_t bytes) const {
        require_not_null(target, bytes);
        copy(target, data_ + offset, bytes);
    }

    /// As 'read', then blocks until the stream is done. Throws cuda_error, and usage_error while the stream is captured.
    void read_sync(std::size_t offset, void* target, std::size_t bytes) const {
        refuse_capture("cannot be waited for; read after the graph has run");
        runtime::device_scope const here(home()); // the stream may be this device's default stream
        read(offset, target, bytes);
        synchronize(stream_.stream);
    }

    /// Overwrites the contents with zero bytes.
    void zero() {
        if (size_ == 0)
            return;
        if constexpr (by_host) {
            std::memset(data_, 0, size_);
        } else {
            runtime::device_scope const here(home());
            check(cudaMemsetAsync(data_, 0, size_, stream_.stream.get()), "cudaMemsetAsync");
        }
    }

    /// The number of the device that the memory lies on; any_device if it does not lie on one device alone.
    int device() const { return device_of(pool_); }

private:
    owned_bytes(pool_ref<Space> pool, order::placed_stream const& stream, std::size_t bytes, std::size_t alignment)
        : pool_(pool), stream_(stream),
          alignment_(alignment > pool.default_alignment() ? alignment : pool.default_alignment()) {
        if (bytes == 0)
            return;
        runtime::device_scope const here(stream_.device);
        data_ = static_cast<std::byte*>(pool_.allocate(life_begins_on(), bytes, alignment_));
        size_ = capacity_ = bytes;
    }

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
    // The device to make current for calls. CUDA refuses one that mapped memory, or that of a driver_pool, is not open to.
    int home() const { return device() == any_device ? stream_.device : device(); }

    // A pool without a device takes a default stream for the current device's; other pools take it for both devices'.
    void give_back() noexcept {
        stream_ref const last = users_.end_on(pool_, stream_);
        auto const free = [&] {
            pool_.deallocate(last, data_, capacity_, alignment_);
            return true;
        };
        if (!base::try_twice([&] {
                runtime::device_scope const here(device() == any_device ? stream_.device : any_device);
                return free();
            }))
            free();
    }

    // The host does not wait for a stream before it writes, so it needs memory that no work uses any more.
    stream_ref life_begins_on() const noexcept {
        if constexpr (by_host)
            return stream_ref(on_host);
        else
            return stream_.stream;
    }

    template <memory_space Other>
    static constexpr void require_reach() {
        static_assert(
            !by_host || base::host_accessible(Other),
            "weir: a pinned container is filled by the host, which cannot read a device container; use the "
            "device container's 'copy_to_async' with the pinned container's 'data()'");
    }

    void refuse_capture(char const* why) const {
        if (stream_.is_captured())
            throw usage_error(
                text("weir: the container's stream is being captured into a graph, which ") + why);
    }

    void copy(void* to, void const* from, std::size_t bytes) const {
        if (bytes == 0)
            return;
        if constexpr (by_host) {
            std::memmove(to, from, bytes);
        } else {
            runtime::device_scope const here(home());
            check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.stream.get()), "cudaMemcpyAsync",
                  if_no_such_memory);
        }
    }

    void copy_in_order(void* to, void const* from, std::size_t bytes, order::placed_stream const& by, int there) const {
        if constexpr (by_host)
            copy(to, from, bytes);
        else
            weir::detail::copy_in_order(to, device(), stream_, from, there, by, bytes);
    }

    void reallocate(std::size_t capacity) {
        owned_bytes other(pool_, stream_, capacity, alignment_);
        users_.carry_to(other.users_, pool_, other.data_);
        other.copy(other.data_, data_, size_);
        other.size_ = size_;
        swap(other); // 'other' frees the old block at its end, after the copy
    }

    // A block of `wanted` bytes if the pool has room, else of `needed` bytes.
    owned_bytes with_capacity(std::size_t wanted, std::size_t needed) const {
        try {
            if (wanted > needed)
                return owned_bytes(pool_, stream_, wanted, alignment_);
        } catch (std::bad_alloc const&) {
        }
        return owned_bytes(pool_, stream_, needed, alignment_);
    }

    // The contents become their first `kept` bytes (none or all), followed by `bytes` bytes at `source`. These lie on device
    // `there`, and `by` works with them.
    void splice(std::size_t kept, void const* source, std::size_t bytes, order::placed_stream const& by,
                int there = any_device) {
        require_not_null(source, bytes);
        if (base::add_overflows(kept, bytes))
            throw usage_error(
                "weir: the bytes to append do not fit the address space beside those that are there");
        std::size_t const needed = kept + bytes;
        bool const there_already = bytes == 0 || (source == data_ && kept == 0 && bytes <= size_);
        if (there_already || (needed <= capacity_ && (kept == size_ || overwrites(source, by)))) {
            if (!there_already)
                copy_in_order(data_ + kept, source, bytes, by, there);
            size_ = needed;
            return;
        }
        std::size_t const half_more = capacity_ + capacity_ / 2;
        std::size_t const least = kept != 0 ? half_more : capacity_;
        owned_bytes other = with_capacity(least, needed);
        users_.carry_to(other.users_, pool_, other.data_);
        other.copy(other.data_, data_, kept);
        other.copy_in_order(other.data_ + kept, source, bytes, by, there);
        other.size_ = needed;
        swap(other);
    }

    // Whether the contents may be overwritten in place: nothing after the copy can fail, and the source is elsewhere.
    bool overwrites(void const* source, order::placed_stream const& by) const noexcept {
        return by_host || (by == stream_ && !holds(source));
    }

    bool holds(void const* p) const noexcept {
        return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(data_) < capacity_;
    }

    pool_ref<Space> pool_;
    order::placed_stream stream_;
    std::size_t alignment_;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;     // the contents, in bytes
    std::size_t capacity_ = 0; // the block, in bytes
    marked_streams users_;
};

} // namespace detail
} // namespace v0
} // namespace weir
