// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which work uses a buffer that may be spilled, and what must the next user wait for?
//
// Each stream that accesses the buffer is listed. An access for writing comes after all of them and replaces them, since who
// waits for it has waited for them. An access for reading comes after those that wrote. Nothing is recorded while one stream
// goes on using the buffer: where its work ends is asked only when somebody else has to wait for it. That waits for too much if
// the stream has gone on to other buffers since; so while buffers leave, the end of each access is recorded. It always is for
// a thread's own default stream, whose name means nothing to other threads.
//
// Nothing is recorded on a stream that is being captured by then, or on the legacy stream while a blocking stream is: it would
// become a part of that graph. Whoever has to wait for such a use during the capture waits for the device; and also later, if
// the use was on a thread's own default stream.
//
// The copy that brought the buffer to the device, or away from it, is told by the event 'moved'.
//
// invariant: whoever waited for all that is listed, and for 'moved' where that is pending, comes after all uses that are over.
// order:     what an access does on its stream before it ends is covered. A listed stream must live.
// cost:      nothing for the stream that used it last; otherwise a question and an event for each stream to wait for, 1 us.
// not for:   blocks of pools: those have order/second_uses.hpp. Several threads: the buffer's lock is held.

#include <cstddef>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

/// One thread at a time. Members that make a stream wait need the set's device as the current one.
class access_order {
public:
    /// `device`: the number of the one that the buffer's pool has its memory on; any_device if that is no single one.
    explicit access_order(int device) noexcept
        : device_(device), asks_device_(device != any_device && runtime::may_have_several_devices()) {}

    /// The copy that moved the buffer last, to the device or away from it. No event: it was never moved.
    runtime::event moved;

    /// Throws usage_error unless the buffer can be put in order with the work of `stream`; cuda_error.
    void require_ordered(order::placed_stream const& stream) const {
        if (stream.stream.is_host())
            throw usage_error("weir: a buffer that may be spilled is accessed by the work of a stream, and 'on_host' is none; "
                              "name the stream, and copy from there");
        if (stream.is_captured())
            throw usage_error("weir: a buffer that may be spilled cannot come to a stream that is being captured into a graph "
                              "(the graph would keep its address; use a container for what graphs use), nor to the legacy "
                              "default stream while a blocking stream is captured");
        if (!asks_device_ || runtime::is_default_stream(stream.stream))
            return;
        int const its = runtime::device_of(stream.stream);
        if (its != device_)
            throw usage_error("weir: the stream belongs to device " + base::number_text(static_cast<std::size_t>(its)) +
                              " and the buffer's pool to device " + base::number_text(static_cast<std::size_t>(device_)) +
                              "; name a stream of the pool's device");
    }

    /// Whether `stream` may go on with nothing to wait for. Notes that it does.
    bool goes_on(order::placed_stream const& stream, bool writes) noexcept {
        use* const own = find(stream);
        if (!own || !own->sees_writes || (writes && uses_.size() != 1))
            return false;
        own->wrote |= writes;
        is_pending_ &= !writes;
        return true;
    }

    /// Makes `stream` wait for what it must, and lists it. `live`: the accesses that have not ended, this one included. If the
    /// stream is a thread's own, `end` becomes the event that 'end' is to record. Throws usage_error while the stream is
    /// captured, or is the host, or another device's; cuda_error; std::bad_alloc. What is listed then is what it was.
    void begin(order::placed_stream const& stream, bool writes, std::size_t live, int device, runtime::event& end) {
        require_ordered(stream);
        uses_.reserve_more(live + 1); // so that no end fails
        bool const by_event = runtime::is_per_thread(stream.stream);
        runtime::event so_far, at_end;
        if (by_event) {
            so_far = runtime::event(device);
            at_end = runtime::event(device);
        }
        bool const alone = writes || by_event;
        use* own = find(stream);
        for (use const& each : uses_)
            if (&each != own && (alone || each.wrote))
                wait(stream, each);
        if (is_pending_)
            moved.make_wait(stream.stream);
        if (by_event)
            so_far.record(stream.stream);
        if (alone) {
            if (own && !by_event)
                so_far = std::move(own->passed); // to be used again
            uses_.clear();
            own = nullptr;
            is_pending_ = false;
        }
        if (!own) {
            uses_.push_back(use{stream, std::move(so_far), by_event, by_event, false, true});
            own = &uses_.back();
        }
        own->is_passed_last = by_event;
        own->sees_writes = true;
        own->wrote |= alone;
        end = std::move(at_end);
    }

    /// An access has ended. `at_end`: the event that 'begin' made, if it made one: it is recorded. `records`: so is the end of
    /// any access, since others may soon wait for its work but not for what the stream does next. If CUDA fails they wait for
    /// more.
    void end(order::placed_stream const& stream, bool wrote, runtime::event&& at_end, bool records) noexcept {
        bool const by_event = static_cast<bool>(at_end);
        use* own = by_event ? nullptr : find(stream);
        if (!own) {
            uses_.push_back(use{stream, std::move(at_end), by_event, false, false, false}); // there is room: see 'begin'
            own = &uses_.back();
        }
        if (wrote || by_event) {
            own->wrote = true;
            for (use& each : uses_)
                each.sees_writes = each.sees_writes && &each == own;
        }
        own->is_passed_last = (by_event || records) && base::try_twice([&] { return record(*own); });
    }

    /// Makes `stream` wait for all uses. Blocks until the device has done its work if no event tells of one: see the head.
    /// Throws cuda_error.
    void join(order::placed_stream const& stream) const {
        for (use const& each : uses_)
            wait(stream, each);
        if (is_pending_)
            moved.make_wait(stream.stream);
    }

    /// The owner has ended while accesses go on: from here on the listed streams may end, too.
    void forget_names() noexcept {
        for (use& each : uses_) {
            if (!each.is_passed_last && !each.is_by_event)
                each.is_passed_last = base::try_twice([&] { return record(each); });
            each.is_by_event = true;
        }
    }

    /// Makes room for one 'add_reader'. Throws std::bad_alloc.
    void reserve() { uses_.reserve_more(1); }
    /// Lists a stream that reads and has waited for whatever it must.
    void add_reader(order::placed_stream const& stream) noexcept {
        if (!find(stream))
            uses_.push_back(use{stream, runtime::event(), false, false, false, true});
    }

    /// The buffer is on its way to the device: 'moved' tells when it is there.
    void set_pending() noexcept { is_pending_ = true; }
    /// Nothing uses the buffer any more.
    void clear() noexcept {
        uses_.clear();
        is_pending_ = false;
    }

    /// The only stream whose work uses the buffer; null if there are others, or none, or if it is being captured. Throws
    /// cuda_error.
    order::placed_stream const* sole_stream() const {
        bool const is_sole = uses_.size() == 1 && !uses_[0].is_by_event && !is_pending_;
        return is_sole && !uses_[0].stream.is_captured() ? &uses_[0].stream : nullptr;
    }

private:
    struct use {
        order::placed_stream stream;
        runtime::event passed;
        bool is_by_event;    // only 'passed' tells of the use: the stream's name says nothing
        bool is_passed_last; // 'passed' was recorded behind the last access of the stream that has ended
        bool wrote;
        bool sees_writes; // the stream has waited for all that was written
    };

    use* find(order::placed_stream const& stream) noexcept {
        for (use& each : uses_)
            if (each.stream == stream && !each.is_by_event)
                return &each;
        return nullptr;
    }
    // Records the end of the stream's last access. False if it is being captured.
    static bool record(use& of) {
        if (of.stream.is_captured())
            return false;
        runtime::device_scope const there(of.stream.device);
        if (!of.passed)
            of.passed = runtime::event(runtime::device_of(of.stream.stream));
        of.passed.record(of.stream.stream);
        return true;
    }
    // A stream that is being captured by now cannot be waited for: the wait would be part of its graph.
    void wait(order::placed_stream const& later, use const& earlier) const {
        if (earlier.is_passed_last)
            earlier.passed.make_wait(later.stream);
        else if (earlier.is_by_event || earlier.stream.is_captured())
            runtime::wait_for_device(device_);
        else
            order_after(later, earlier.stream);
    }

    int device_;
    bool asks_device_; // whether a stream may be another device's
    base::growing_array<use> uses_;
    bool is_pending_ = false; // 'moved' is an arrival that not every listed stream has waited for
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
