// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is a data set processed that is larger than the device?
//
// Chunk by chunk: while one is computed, the next ones arrive, and the results of the last one leave. Compute runs on the
// caller's stream, a chunk after the other and in order, so it may add to what it keeps on the device.
//
//     staging::pinned_ring ring(pinned_pool);
//     weir::device_value<double> sum(pool, stream, 0.0);
//     staging::stream_chunks(ring, pool, stream, staging::from_file<float>("numbers"), [&](auto on, auto const& chunk) {
//         add<<<blocks, threads, 0, on.get()>>>(chunk.data, chunk.size, sum.data());
//     });
//
// Compute works in place: with a sink, the elements that it leaves in the chunk are the results.
//
// invariant: a chunk's memory is written again only after its compute has run and its results have left.
// order:     compute runs after what is on the stream. Sources are read and sinks are filled in order.
// cost:      steady state: no allocation. A chunk: three events at most, and one wait of the host, for memory that is needed
//            again. The depth is what hides that wait.
// not for:   data that fit: a device_vector. Graphs: a captured stream is refused. Results of another size than the source's.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/staging/pending_copy.hpp>
#include <weir/staging/pinned_ring.hpp>
#include <weir/staging/pinned_ring_options.hpp>
#include <weir/staging/ring/piece_cursor.hpp>
#include <weir/staging/ring/staged_copy.hpp>
#include <weir/staging/sources.hpp>
#include <weir/staging/streaming/chunk_memory.hpp>
#include <weir/staging/streaming_options.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// What compute is called with.
template <class T>
struct device_chunk {
    T* data;           ///< memory of the device, valid on the stream that compute is called with
    std::size_t size;  ///< elements
    std::size_t index; ///< 0 for the first chunk
    std::size_t first; ///< the elements before this chunk
};

namespace detail {

/// One call of 'stream_chunks'.
template <class Source, class Sink, class Options>
class chunk_stream {
    using T = typename Source::value_type;
    static_assert(std::is_trivially_copyable_v<T>, "weir: elements travel as bytes; stream a trivially copyable type");
    static_assert(alignof(T) <= alignof(std::max_align_t), "weir: elements of a stream are aligned as ordinary host memory is");
    static_assert(!is_callable_sink<Sink> || std::is_default_constructible_v<T>,
                  "weir: a callable sink gets an array of elements; give the type a default constructor, or stream to memory");
    static_assert(!is_memory_sink<Sink> || takes<Sink, T>, "weir: the sink's elements are of another type than the source's");

    // A chunk on the device, and what is going on with it.
    struct lane {
        runtime::event arrived;  // on the stream of its copies to the device
        runtime::event computed; // on the user's
        base::growing_array<T> held; // what goes to a callable sink; stays until `back` has ended
        pending_copy back;
        device_chunk<T> chunk{};
        bool is_used = false;
        bool is_sent = false; // its results are on their way
    };

public:
    chunk_stream(pinned_ring& ring, pool_ref<memory_space::device> pool, stream_ref stream, Source& source, Sink& sink,
                 Options& options)
        : ring_(ring), stream_(checked(ring, stream, source, sink, options)), source_(source), sink_(sink), options_(options),
          lanes_(options.depth()),
          memory_(pool, stream, ring.device(), options.depth(), wanted_bytes(source, options),
                  options.chunk_bytes() == 0 ? least_bytes : wanted_bytes(source, options)) {
        most_ = memory_.bytes() / sizeof(T);
        now_.total_count = source.count();
        now_.chunk_bytes = most_ * sizeof(T);
        if constexpr (is_callable_source<Source>)
            made_.resize(slot_count() < most_ ? slot_count() : most_);
        for (lane& each : lanes_) {
            each.arrived = runtime::event(ring.device());
            each.computed = runtime::event(ring.device());
            if constexpr (is_callable_sink<Sink>)
                each.held.resize(most_);
        }
    }

    template <class Compute>
    streaming_progress run(Compute& compute) {
        std::size_t next = 0; // the chunk that is read next
        for (;; ++next) {
            lane& here = lane_of(next);
            if (here.is_used)
                finish(here);
            if ((now_.cancelled = options_.is_cancelled()))
                break;
            here.chunk = {reinterpret_cast<T*>(memory_.chunk(next % lanes_.size())), 0, next, read_};
            here.chunk.size = read(here.chunk.data);
            if (here.chunk.size == 0)
                break;
            here.is_used = true;
            here.is_sent = false;
            read_ += here.chunk.size;
            {
                runtime::device_scope const there(ring_.device());
                here.arrived.record(memory_.to_device());
                require_no_capture();
                here.arrived.make_wait(stream_);
                compute(stream_, static_cast<device_chunk<T> const&>(here.chunk));
                require_no_capture();
                here.computed.record(stream_);
            }
            if (next != 0 && lanes_.size() != 1)
                send(lane_of(next - 1)); // a chunk late: the host waits for a full ring only after the next compute is enqueued
        }
        for (std::size_t i = next < lanes_.size() ? 0 : next - lanes_.size(); i != next; ++i)
            if (lane_of(i).is_used)
                finish(lane_of(i));
        memory_.all_copies_are_over();
        return now_;
    }

private:
    static stream_ref checked(pinned_ring& ring, stream_ref stream, Source const& source, Sink const& sink,
                              Options const& options) {
        constexpr std::size_t most_depth = 64;
        if (options.depth() == 0 || options.depth() > most_depth)
            throw usage_error("weir: a stream of chunks has 1 to " + base::number_text(most_depth) +
                              " chunks on the device; got a depth of " + base::number_text(options.depth()));
        if (ring.slot_bytes() < sizeof(T))
            throw usage_error("weir: an element of " + base::number_text(sizeof(T)) +
                              " bytes does not fit a slot of the ring; give the ring larger slots");
        if (options.chunk_bytes() != 0 && options.chunk_bytes() < sizeof(T))
            throw usage_error("weir: a chunk of " + base::number_text(options.chunk_bytes()) +
                              " bytes holds no element; ask for larger chunks");
        if (options.chunk_bytes() > chunk_memory::most_bytes(options.depth()))
            throw usage_error("weir: chunks of " + base::bytes_text(options.chunk_bytes()) +
                              " are together more than can be counted; ask for smaller ones");
        if constexpr (is_memory_sink<Sink>)
            if (source.count() != unknown_count && source.count() > sink.count)
                refuse_sink();
        if (ring.options().on_full() == full_action::refuse)
            throw usage_error("weir: a stream of chunks waits for copies of its own, and this ring refuses instead; use a ring "
                              "whose 'on_full' is full_action::wait");
        ring_call const asked(ring, stream, 0); // for what it refuses
        return stream;
    }
    static constexpr std::size_t least_bytes = sizeof(T) < 64 * KiB ? 64 * KiB : sizeof(T);

    static std::size_t wanted_bytes(Source const& source, Options const& options) {
        constexpr std::size_t by_default = 16 * MiB;
        if (options.chunk_bytes() != 0)
            return options.chunk_bytes();
        // A small source is cut, too, so that its parts overlap.
        std::size_t const share = source.count() / options.depth();
        std::size_t const bytes = share < by_default / sizeof(T) ? (share + 1) * sizeof(T) : by_default;
        return bytes < least_bytes ? least_bytes : bytes;
    }
    [[noreturn]] static void refuse_sink() {
        throw usage_error("weir: the sink is too small for what the source has; give it as many elements");
    }

    // A capture may have begun since the last chunk, by compute or by another thread. What is enqueued would be a part of it.
    void require_no_capture() const {
        if (runtime::is_capturing(stream_))
            throw usage_error("weir: the stream of chunks runs on a stream that is being captured into a graph by now, or on "
                              "the legacy default stream beside the capture of a blocking one; capture when it has ended");
    }

    lane& lane_of(std::size_t chunk) noexcept { return lanes_[chunk % lanes_.size()]; }

    // Enqueues the copies of the next chunk to the device. How many elements it has; 0: the source has ended.
    std::size_t read(T* to) {
        if constexpr (lies_in_memory<Source>) {
            std::size_t const left = source_.count() - read_;
            std::size_t const count = left < most_ ? left : most_;
            piece const whole{to, source_.data() + read_, count * sizeof(T)};
            detail::copy_to_device(ring_, memory_.to_device(), &whole, 1);
            return count;
        } else {
            std::size_t count = 0;
            while (count != most_ && !is_ended_) {
                std::size_t const got = fill(to + count, most_ - count);
                is_ended_ = got == 0;
                count += got;
            }
            return count;
        }
    }

    // What one thread puts into a slot.
    std::size_t slot_count() const noexcept {
        constexpr std::size_t cached = pinned_ring_options::thread_chunk_bytes / sizeof(T);
        std::size_t const whole = ring_.slot_bytes() / sizeof(T);
        return whole < cached || cached == 0 ? whole : cached;
    }

    // Lets the source fill a slot of the ring, and enqueues the copy. How many elements. A callable may wait for whom
    // it likes, also for others who use the ring. So it gets memory of its own, and no slot is held meanwhile.
    std::size_t fill(T* to, std::size_t room) {
        std::size_t const most = room < slot_count() ? room : slot_count();
        if constexpr (is_callable_source<Source>) {
            std::size_t const got = source_.fill(made_.data(), most);
            if (got > most)
                throw usage_error("weir: the source says that it wrote " + base::number_text(got) +
                                  " elements where there is room for " + base::number_text(most) +
                                  "; it may have written beyond its memory");
            piece const whole{to, made_.data(), got * sizeof(T)};
            if (got != 0)
                detail::copy_to_device(ring_, memory_.to_device(), &whole, 1);
            return got;
        } else {
            ring_call const call(ring_, memory_.to_device(), 0);
            held_slot slot = ring_.take(call.stream_id(), most * sizeof(T), detail::direction::to_device);
            std::size_t const at = slot->filled_bytes;
            std::byte* const from = slot->data + at;
            std::size_t const got = source_.fill(reinterpret_cast<T*>(from), most);
            if (got != 0) {
                piece const whole{to, from, got * sizeof(T)};
                detail::enqueue_chunk(call, *slot, at, {&whole, 0, whole.bytes}, detail::direction::to_device);
            }
            return got;
        }
    }

    // Enqueues the copy of a chunk's results, if there is to be one and it was not enqueued.
    void send(lane& of) {
        if constexpr (!is_no_sink<Sink>) {
            if (std::exchange(of.is_sent, true))
                return;
            T* to = nullptr;
            if constexpr (is_memory_sink<Sink>) {
                if (of.chunk.size > sink_.count - of.chunk.first)
                    refuse_sink();
                to = sink_.to + of.chunk.first;
            } else {
                to = of.held.data();
            }
            {
                runtime::device_scope const there(ring_.device());
                of.computed.make_wait(memory_.to_host());
            }
            piece const whole{to, of.chunk.data, of.chunk.size * sizeof(T)};
            // nvcc would warn: it takes an assignment for a copy that nobody waits for.
            static_cast<void>(of.back =
                                  detail::copy_to_host(ring_, memory_.to_host(), &whole, 1, pieces_stay::in_the_call, false));
        }
    }

    // Waits until a chunk is computed and its results have arrived, and hands them on.
    void finish(lane& of) {
        if constexpr (is_no_sink<Sink>) {
            runtime::device_scope const there(ring_.device());
            runtime::capture_mode_scope const relaxed;
            of.computed.synchronize();
        } else {
            send(of);
            of.back.wait();
            if constexpr (!is_memory_sink<Sink>)
                sink_.callable(static_cast<T const*>(of.held.data()), of.chunk.size);
        }
        of.is_used = false;
        ++now_.done_chunks;
        now_.done_count += of.chunk.size;
        options_.tell(now_);
    }

    pinned_ring& ring_;
    stream_ref stream_;
    Source& source_;
    Sink& sink_;
    Options& options_;
    base::growing_array<T> made_; // what a callable source makes
    base::growing_array<lane> lanes_;
    chunk_memory memory_; // goes before the lanes: their copies are over then
    std::size_t most_ = 0; // elements of a chunk
    std::size_t read_ = 0; // elements so far
    bool is_ended_ = false;
    streaming_progress now_;
};

} // namespace detail

/// Streams `source` chunk by chunk through memory of `pool`, which belongs to the ring's device, and calls compute(stream_ref,
/// device_chunk<T> const&) for each, which enqueues its work on that stream; the results go to `sink`. Blocks until all of it
/// is done, or was cancelled. Memory that is page-locked is copied directly, other memory through `ring`. Returns how far it
/// came. One thread; others may use ring and pool meanwhile, also source, compute and sink.
///
/// Throws what source, compute, sink and progress throw; usage_error for a stream that is captured, of another device or
/// 'on_host', for a ring that refuses when it is full, and for options and sinks that cannot be; out_of_memory, which says how
/// much is needed, if the pool has no room for the chunks; cuda_error. The first error wins: then nothing more is read, what
/// was enqueued ends, and the pool gets its memory back. Progress told before how far it came; the sink may hold some of the
/// results.
template <class Source, class Sink, class Progress, class Compute>
streaming_progress stream_chunks(pinned_ring& ring, pool_ref<memory_space::device> pool, stream_ref stream, Source source,
                                 Sink sink, streaming_options<Progress> options, Compute compute) {
    static_assert(std::is_invocable_v<Compute&, stream_ref, device_chunk<typename Source::value_type> const&>,
                  "weir: compute is called as compute(weir::stream_ref, weir::staging::device_chunk<T> const&)");
    detail::chunk_stream<Source, Sink, streaming_options<Progress>> chunks(ring, pool, stream, source, sink, options);
    return chunks.run(compute);
}

/// The same without results, with the default options.
template <class Source, class Compute>
streaming_progress stream_chunks(pinned_ring& ring, pool_ref<memory_space::device> pool, stream_ref stream, Source source,
                                 Compute compute) {
    return staging::stream_chunks(ring, pool, stream, std::move(source), no_sink{}, streaming_options<>{}, std::move(compute));
}
/// The same with results.
template <class Source, class Sink, class Compute>
streaming_progress stream_chunks(pinned_ring& ring, pool_ref<memory_space::device> pool, stream_ref stream, Source source,
                                 Sink sink, Compute compute) {
    return staging::stream_chunks(ring, pool, stream, std::move(source), std::move(sink), streaming_options<>{},
                                  std::move(compute));
}
/// The same without results.
template <class Source, class Progress, class Compute>
streaming_progress stream_chunks(pinned_ring& ring, pool_ref<memory_space::device> pool, stream_ref stream, Source source,
                                 streaming_options<Progress> options, Compute compute) {
    return staging::stream_chunks(ring, pool, stream, std::move(source), no_sink{}, std::move(options), std::move(compute));
}

} // namespace staging
} // namespace v0
} // namespace weir
