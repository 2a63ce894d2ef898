// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do the parts that record write to?
//
// To one recorder, which outlives them: several pools, their slots and the program's scopes may share it, so that their events
// stand in one order of time. It has a ring of events, the names that they mention, and a switch. It is off at first, and then
// costs a load and a branch a call. What it holds is written to a file by trace/recording_file.hpp, when the program says so:
// the recorder has no thread.
//
// invariant: a recorder never fails a call of the pool. What finds no room is lost and counted.
// order:     by time (trace/clock.hpp). The free of a block is written before the pool sees it, an allocation after the pool
//            handed the block out. So the events of one address are in their order, whichever threads caused them.
// cost:      on: 25 to 65 ns a call, by the host. 52 bytes of host memory an event of the ring, from the first 'start' on.
// not for:   what the device does, and when. A pool that takes its memory from the blocks of another one: give it a recorder of
//            its own, since both count the same bytes, and a reader takes blocks at one address for one.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/fwd.hpp>
#include <weir/trace/clock.hpp>
#include <weir/trace/recorded_event.hpp>
#include <weir/trace/event_ring.hpp>
#include <weir/trace/largest_holders.hpp>
#include <weir/trace/name_table.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// A pool whose events are recorded.
struct source {
    text name;                          ///< as its options gave it
    int device = any_device;            ///< the number of its device
    memory_space space = memory_space::host;
    std::uint64_t limit_bytes = UINT64_MAX; ///< when recording began; UINT64_MAX: none, or not known
};

/// Which allocations and frees are written down. A block is judged by its size, so that its free is judged as its allocation
/// was. A free without an allocation, as after a filter by stream, is a block that was there before to readers.
struct event_filter {
    static constexpr std::uint64_t any_stream = UINT64_MAX;

    std::size_t least_bytes = 0;
    std::size_t most_bytes = SIZE_MAX;
    std::uint64_t stream = any_stream; ///< CUDA's handle: of the allocations only those there, and frees on any stream
};

/// Any thread may call any member.
class recorder {
public:
    static constexpr std::size_t usual_events = 1024 * 1024;

    /// Off, and without memory. `events`: how many the ring has room for; see 'lost'.
    explicit recorder(std::size_t events = usual_events) noexcept : events_(events) {}
    recorder(recorder const&) = delete; // weir: a recorder is neither copied nor moved: what it records refers to it
    recorder& operator=(recorder const&) = delete;

    /// Writes events down from now on; gets memory for the ring at the first call. Throws std::bad_alloc, and is then off.
    void start() {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (!ring_) {
            base::shared<event_ring> const ring = base::shared<event_ring>::make(events_);
            holders_ = base::shared<largest_holders>::make(ring->capacity());
            ring_ = ring;
            begun_ = trace::now(ring_->time());
            writes_to_.store(&*ring_, base::memory_order_release);
        }
        is_on_.store(true, base::memory_order_release);
    }
    /// Writes nothing down from now on, but for calls that are under way and the ends of scopes that are open. Keeps what it
    /// holds.
    void stop() noexcept { is_on_.store(false, base::memory_order_release); }
    /// Whether events are written down.
    bool is_on() const noexcept { return is_on_.load(base::memory_order_relaxed); }

    /// From now on only allocations and frees that `which` admits are written down.
    void set_filter(event_filter const& which) noexcept {
        least_bytes_.store(which.least_bytes, base::memory_order_relaxed);
        most_bytes_.store(which.most_bytes, base::memory_order_relaxed);
        stream_.store(which.stream, base::memory_order_relaxed);
    }

    /// Writes `one` down, with the time and the thread's number, if the recorder is on and the filter admits it.
    void write(event const& one) noexcept {
        write(one, [](event&) {});
    }
    /// The same, and calls complete(event) before, for what is found out only of an event that is going to be written.
    template <class Complete>
    void write(event one, Complete const& complete) noexcept {
        event_ring* const ring = is_on() ? writes_to_.load(base::memory_order_acquire) : nullptr;
        if (!ring || !admits(one))
            return;
        complete(one);
        ring->write(one);
    }
    /// The same for the end of what began while the recorder was on: also if it is off by now, or the beginning would reach to
    /// the end of the recording.
    void write_end(event const& one) noexcept {
        if (event_ring* const ring = writes_to_.load(base::memory_order_acquire))
            ring->write(one);
    }

    /// The number of a new source. Throws std::bad_alloc.
    std::uint16_t add(source of) {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (sources_.size() < most_sources)
            sources_.push_back(std::move(of));
        return static_cast<std::uint16_t>(sources_.size() - 1); // the last one stands for all that follow
    }
    /// How many sources there are: they have the numbers 0 to sources() - 1.
    std::size_t sources() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return sources_.size();
    }
    source source_of(std::size_t number) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return sources_[number];
    }

    /// The names of call sites and scopes.
    name_table& names() noexcept { return names_; }

    /// How many events were lost so far, because the ring had no room for them.
    std::uint64_t lost() const noexcept {
        event_ring const* const ring = writes_to_.load(base::memory_order_acquire);
        return ring ? ring->lost() : 0;
    }
    /// Calls use(holders), a largest_holders: the lines that hold most of the memory of a source, as far as the ring knows. Not
    /// called if the recorder is off. Allocates nothing.
    template <class Use>
    void visit_holders(std::uint16_t source, Use const& use) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (!is_on())
            return;
        holders_->look(*ring_, source);
        use(*holders_);
    }
    /// The ring; null before the first 'start'.
    event_ring* ring() noexcept { return writes_to_.load(base::memory_order_acquire); }
    /// The host memory that it got for that, and for what 'visit_holders' needs; 0 before the first 'start'.
    std::size_t memory_bytes() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return ring_ ? ring_->capacity() * sizeof(event) + holders_->memory_bytes() : 0;
    }
    /// When the first 'start' was.
    moment begun() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return begun_;
    }

private:
    static constexpr std::size_t most_sources = 65536;

    bool admits(event const& one) const noexcept {
        if (one.kind > event_kind::refuse) // neither an allocation nor a free
            return true;
        return one.bytes >= least_bytes_.load(base::memory_order_relaxed) &&
               one.bytes <= most_bytes_.load(base::memory_order_relaxed) &&
               (one.kind == event_kind::free || is_wanted(one.stream));
    }
    bool is_wanted(std::uint64_t stream) const noexcept {
        std::uint64_t const only = stream_.load(base::memory_order_relaxed);
        return only == event_filter::any_stream || only == stream;
    }

    std::size_t const events_;
    base::atomic<bool> is_on_{false};
    base::atomic<event_ring*> writes_to_{nullptr};
    base::atomic<std::size_t> least_bytes_{0};
    base::atomic<std::size_t> most_bytes_{SIZE_MAX};
    base::atomic<std::uint64_t> stream_{event_filter::any_stream};
    name_table names_;
    mutable base::mutex mutex_;
    base::shared<event_ring> ring_;
    base::shared<largest_holders> holders_;
    base::growing_array<source> sources_;
    moment begun_;
};

} // namespace trace
} // namespace v0
} // namespace weir
