// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a row of pieces go through a ring, chunk by chunk?
//
// To the device: take a slot, let the host fill it, enqueue its copies, put the event behind them, take the next one. With
// helping threads a few slots are filled at once, so that the threads always have work. To the host: enqueue copies into slots
// until none is free, then copy out what has arrived, and go on; what is under way at the end is left to a pending_copy.
//
// A chunk whose pieces lie side by side on the device is one copy. Otherwise its copies are enqueued as a list. Host memory
// that is page-locked already needs no ring: the pieces are copied directly. So is a large piece that comes to the host with
// nobody's help, if the caller blocks in any case: CUDA's own staging is faster there than one thread.
//
// invariant: the event of a slot is recorded after all of its copies, also after those that were enqueued before one failed.
// order:     on the caller's stream, in the order of the calls.
// cost:      a chunk: see slot_table.hpp; a question about the kind of the host memory for each copy or batch.
// not for:   users: see staging/copy.hpp and staging/copy_batch.hpp.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/runtime/batch_copy.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/staging/copy_threads.hpp>
#include <weir/staging/pending_copy.hpp>
#include <weir/staging/pinned_ring.hpp>
#include <weir/staging/ring/piece_cursor.hpp>
#include <weir/staging/ring/ring_slot.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

/// What one call of staging's knows: the stream and its id, and how the row is cut. While it lives, the ring's device is
/// current and the thread breaks no capture.
class ring_call {
public:
    /// Throws usage_error for the host, a captured stream and a stream of another device; cuda_error.
    ring_call(pinned_ring& ring, stream_ref stream, std::size_t bytes)
        : here_(of_stream(ring, stream)), ring_(ring), stream_(stream), id_(checked_id(ring, stream)) {
        copy_threads* const threads = ring.options().threads();
        threads_ = bytes >= ring.options().threads_from_bytes() ? threads : nullptr;
        std::size_t const parts = threads_ ? 2 : ring.slots().size(); // threads meet at the end of each, which costs them time
        std::size_t const share = base::align_up(bytes / parts, 256);
        std::size_t const least = ring.options().least_chunk_bytes();
        std::size_t const of_threads = (threads_ ? threads_->count() + 1 : 1) * pinned_ring_options::thread_chunk_bytes;
        std::size_t const most = of_threads < ring.slot_bytes() ? of_threads : ring.slot_bytes();
        chunk_bytes_ = share < least ? least : share;
        chunk_bytes_ = chunk_bytes_ < most && chunk_bytes_ != 0 ? chunk_bytes_ : most;
    }

    pinned_ring& ring() const noexcept { return ring_; }
    stream_ref stream() const noexcept { return stream_; }
    unsigned long long stream_id() const noexcept { return id_; }
    /// Who helps with this copy; null: nobody.
    copy_threads* threads() const noexcept { return threads_; }
    std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }

    void close(ring_slot& slot) const { ring_.slots().close(slot, stream_, id_); }
    /// The same where an error is to be told already: some of what was to be enqueued may be under way.
    void close_after_failure(ring_slot& slot) const noexcept {
        try {
            close(slot);
        } catch (...) { // the slot is stranded
        }
    }

private:
    // A default stream is that of the ring's device, so that is made current before any question about it.
    static int of_stream(pinned_ring& ring, stream_ref stream) {
        if (stream.is_host())
            throw usage_error("weir: a copy through a ring is made by a stream, and 'on_host' is none; name the stream, or use "
                              "'copy_threads' or memcpy between two pieces of host memory");
        return ring.device();
    }
    static unsigned long long checked_id(pinned_ring& ring, stream_ref stream) {
        if (runtime::is_capturing(stream))
            throw usage_error(
                "weir: a copy through a ring cannot be captured into a graph, which would copy whatever the ring's "
                "memory holds at its launch; copy before the capture, or capture a copy of pinned memory");
        if (!runtime::is_default_stream(stream) && runtime::device_of(stream) != ring.device())
            throw usage_error("weir: the stream belongs to another device than the ring, which copies to and from device " +
                              base::number_text(static_cast<std::size_t>(ring.device())) + "; make a ring for each device");
        return runtime::id_of(stream);
    }

    runtime::device_scope here_;
    runtime::capture_mode_scope relaxed_;
    pinned_ring& ring_;
    stream_ref stream_;
    unsigned long long id_;
    copy_threads* threads_ = nullptr;
    std::size_t chunk_bytes_ = 0;
};

/// Whether copies from and to `p` need no staging: the memory is known to CUDA. Throws cuda_error.
inline bool is_known_to_cuda(void const* p) {
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, p), "cudaPointerGetAttributes");
    return attributes.type != cudaMemoryTypeUnregistered;
}

/// Collects copies and enqueues them on a stream; those that lie side by side become one.
class joined_copies {
public:
    explicit joined_copies(stream_ref stream) noexcept : stream_(stream) {}
    /// Throws cuda_error.
    void add(void* to, void const* from, std::size_t bytes) {
        if (count_ != 0 && detail::moved(to_[count_ - 1], bytes_[count_ - 1]) == to &&
            detail::moved(from_[count_ - 1], bytes_[count_ - 1]) == from) {
            bytes_[count_ - 1] += bytes;
            return;
        }
        if (count_ == most)
            enqueue();
        to_[count_] = to;
        from_[count_] = const_cast<void*>(from); // the list's form before CUDA 13
        bytes_[count_++] = bytes;
    }
    /// Throws cuda_error.
    void enqueue() { runtime::copy_list(stream_, to_, from_, bytes_, std::exchange(count_, 0)); }

private:
    static constexpr std::size_t most = 256;

    stream_ref stream_;
    std::size_t count_ = 0;
    void* to_[most];
    void* from_[most];
    std::size_t bytes_[most];
};

/// Enqueues the copies between a held slot, `at` bytes in, and the device's side of a chunk, and closes the slot. `out`: what
/// the host is to copy out afterwards. Throws cuda_error.
inline void enqueue_chunk(ring_call const& call, ring_slot& slot, std::size_t at, piece_span const& chunk, direction way) {
    joined_copies list(call.stream());
    slot.filled_bytes = base::align_up(at + chunk.bytes, 256);
    try {
        conversion const& how = chunk.how;
        if (how.by_device)
            call.ring().slots().call_user(slot, [&] {
                how.by_device(how.kernel, call.stream(), slot.data + at, chunk.first->from, how.count(chunk.bytes));
            });
        else
            detail::visit_pieces(chunk, 0, chunk.bytes, [&](void* to, void const* from, std::size_t skip, std::size_t bytes) {
                std::byte* const in_slot = slot.data + at + skip;
                way == direction::to_device ? list.add(to, in_slot, bytes) : list.add(in_slot, from, bytes);
            });
        list.enqueue();
    } catch (...) {
        slot.out = {};
        slot.copy = 0;
        call.close_after_failure(slot);
        throw;
    }
    call.close(slot);
    call.ring().count_staged(chunk.bytes);
}

/// Enqueues the pieces as copies of their own, without the ring. Throws cuda_error.
inline void copy_directly(ring_call const& call, piece const* pieces, std::size_t count) {
    joined_copies list(call.stream());
    for (std::size_t i = 0; i != count; ++i)
        if (pieces[i].bytes != 0)
            list.add(pieces[i].to, pieces[i].from, pieces[i].bytes);
    list.enqueue();
}

/// The first piece that has bytes; there is one.
inline piece const& first_of(piece const* pieces) noexcept {
    while (pieces->bytes == 0)
        ++pieces;
    return *pieces;
}

/// A slot for the first chunk, or null: the copy is to be left to CUDA, which converts nothing.
inline held_slot first_slot(ring_call const& call, std::size_t chunk_bytes, direction way, conversion const& how) {
    if (how && call.ring().options().on_full() == full_action::copy_directly)
        return call.ring().take(call.stream_id(), chunk_bytes, way);
    return call.ring().begin(call.stream_id(), chunk_bytes, way);
}

/// See 'copy_to_device_async'.
inline void copy_to_device(pinned_ring& ring, stream_ref stream, piece const* pieces, std::size_t count,
                           conversion const& how = {}) {
    std::size_t const bytes = detail::bytes_of(pieces, count);
    if (bytes == 0)
        return;
    ring_call const call(ring, stream, bytes);
    if (!how && detail::is_known_to_cuda(detail::first_of(pieces).from)) {
        detail::copy_directly(call, pieces, count);
        ring.count_direct(bytes);
        return;
    }
    constexpr std::size_t most = 4;
    host_work filling[most];
    std::size_t begun = 0;
    std::size_t sent = 0;
    auto const send = [&] {
        host_work& oldest = filling[sent++ % most];
        oldest.finish();
        held_slot const slot = std::move(oldest.slot);
        detail::enqueue_chunk(call, *slot, oldest.at, oldest.chunk, direction::to_device);
    };
    std::size_t const ahead = call.threads() && ring.slots().size() > 1 ? ring.slots().size() < 2 * most ? 2 : most : 1;
    piece_cursor cursor(pieces, count);
    std::size_t const most_bytes = how.chunk_bytes(call.chunk_bytes());
    for (piece_span chunk = cursor.next(most_bytes); chunk.bytes != 0; chunk = cursor.next(most_bytes)) {
        chunk.how = how;
        held_slot slot;
        while (begun != sent && !(slot = ring.slots().try_take(call.stream_id(), chunk.bytes, direction::to_device)))
            send(); // nobody waits for a slot while holding one
        if (!slot)
            slot = begun == 0 ? detail::first_slot(call, chunk.bytes, direction::to_device, how)
                              : ring.take(call.stream_id(), chunk.bytes, direction::to_device);
        if (!slot)
            return detail::copy_directly(call, pieces, count);
        std::size_t const at = slot->filled_bytes;
        filling[begun++ % most].start(std::move(slot), at, chunk, direction::to_device, call.threads());
        if (begun - sent == ahead)
            send();
    }
    while (sent != begun)
        send();
}

/// Where kernels write what `to` names: page-locked memory that is mapped. Null: it is ordinary memory, or the host converts,
/// so that the ring is needed. Throws cuda_error.
inline void* reached_by_kernels(conversion const& how, void* to) {
    cudaPointerAttributes attributes{};
    if (how.by_device)
        check_cuda(cudaPointerGetAttributes(&attributes, to), "cudaPointerGetAttributes");
    return attributes.type == cudaMemoryTypeUnregistered ? nullptr : attributes.devicePointer;
}

/// Until when a list of pieces stays.
enum class pieces_stay : unsigned char {
    in_the_call, // there is one
    until_waited_for,
};

/// See 'copy_to_host_async'. `waits`: the caller waits for what is returned at once.
inline pending_copy copy_to_host(pinned_ring& ring, stream_ref stream, piece const* pieces, std::size_t count, pieces_stay stay,
                                 bool waits, conversion const& how = {}) {
    std::size_t const bytes = detail::bytes_of(pieces, count);
    if (bytes == 0)
        return {};
    ring_call const call(ring, stream, bytes);
    pending_copy pending(ring, call.threads());
    void* const whole_target = how ? detail::reached_by_kernels(how, pieces->to) : nullptr;
    if (how ? whole_target != nullptr : detail::is_known_to_cuda(detail::first_of(pieces).to)) {
        auto const enqueue = [&] {
            if (how)
                how.by_device(how.kernel, stream, whole_target, pieces->from, how.count(bytes));
            else
                detail::copy_directly(call, pieces, count);
        };
        held_slot const slot = ring.begin(call.stream_id(), bytes, direction::to_host); // for its event
        if (!slot) {
            enqueue();
            ring.count_direct(bytes);
            synchronize(stream);
            return {};
        }
        slot->copy = pending.number();
        try {
            if (how)
                ring.slots().call_user(*slot, enqueue);
            else
                enqueue();
        } catch (...) {
            call.close_after_failure(*slot);
            throw;
        }
        call.close(*slot);
        ring.count_direct(bytes);
        return pending;
    }
    // CUDA's copy to ordinary memory blocks; so does this one where it is larger than the ring.
    bool const blocks = waits || bytes > ring.slot_bytes() * ring.slots().size();
    if (!how && count == 1 && !call.threads() && blocks && bytes >= ring.options().leave_to_cuda_from_bytes()) {
        detail::copy_directly(call, pieces, count);
        ring.count_direct(bytes);
        return {};
    }
    piece_cursor cursor(pieces, count);
    bool begins = true;
    std::size_t const most_bytes = how.chunk_bytes(call.chunk_bytes());
    for (piece_span chunk = cursor.next(most_bytes); chunk.bytes != 0; chunk = cursor.next(most_bytes)) {
        held_slot slot;
        if (begins && !(slot = detail::first_slot(call, chunk.bytes, direction::to_host, how))) {
            detail::copy_directly(call, pieces, count);
            return {};
        }
        while (!slot && !(slot = ring.slots().try_take(call.stream_id(), chunk.bytes, direction::to_host)) &&
               ring.slots().finish_some(pending.number(), call.threads())) {
        }
        if (!slot)
            slot = ring.take(call.stream_id(), chunk.bytes, direction::to_host);
        begins = false;
        if (stay == pieces_stay::in_the_call) {
            piece const& whole = *chunk.first;
            slot->own = {detail::moved(whole.to, how.on_host_side(chunk.skip_bytes)),
                         detail::moved(whole.from, how.on_device_side(chunk.skip_bytes)), chunk.bytes};
            chunk = {&slot->own, 0, chunk.bytes, how};
        }
        slot->copy = pending.number();
        slot->out = chunk;
        detail::enqueue_chunk(call, *slot, 0, chunk, direction::to_host);
    }
    return pending;
}

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
