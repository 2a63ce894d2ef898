// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When may freed bytes be handed out again, if every rank must find the same bytes at the same call?
//
// What a stream freed is its share: it may have that again at once. Bytes that no work uses are the host's share. Who finds no
// room in either takes from other streams' shares, in the order in which they came, and always makes its stream wait on
// the device for all that the other one was given so far. It does not look whether that is over already, since ranks would
// see different answers. At last all shares become one, where free neighbours join.
//
// A stream waits before it owns the bytes. So an event that is recorded on it later covers the work of those before it, too,
// and no event has to travel with the bytes.
//
// invariant: nothing here asks an event or a clock. Each free byte is in one share.
// order:     an allocation comes after every use of its bytes, for work on its stream.
// cost:      a question whether the stream is captured, and the placement's own. Taking from another stream: an event and a
//            wait, 1 us.
// not for:   streams that end before 'settle': their share is known by the stream's handle.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/order/order_after.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device::detail {

/// One thread at a time.
template <class Placement>
class stream_shares {
public:
    explicit stream_shares(int device) noexcept : device_(device) {}
    stream_shares(stream_shares const&) = delete;
    stream_shares& operator=(stream_shares const&) = delete;
    ~stream_shares() {
        for (share* each : shares_)
            delete each;
    }

    /// The number of a stream, from 0 in the order in which they came here. Throws usage_error for a stream of another device,
    /// for a thread's own default stream, and for a captured one; cuda_error, std::bad_alloc.
    std::uint32_t number_of(stream_ref stream) {
        if (stream.is_host())
            return host;
        runtime::require_no_capture(stream);
        return enter(stream).number;
    }

    /// A block for work on the stream, whose number is known; an empty range if there is no room. Throws cuda_error,
    /// std::bad_alloc; nothing has changed then but whose free bytes are whose.
    base::range take(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        Placement& own = stream.is_host() ? unused_ : known(stream)->free;
        base::range block = own.take(bytes, alignment);
        if (!block && &own != &unused_)
            block = unused_.take(bytes, alignment);
        if (!block)
            block = take_from_others(own, bytes, alignment, stream);
        if (!block)
            block = take_of_all(own, bytes, alignment, stream);
        if (block)
            used_.took(block);
        return block;
    }

    /// Takes back a block whose last use comes before this call in the order of `stream`; `marked`: the address by which other
    /// uses were marked. What a captured stream frees is not handed out again: its graph may use it for ever. Returns the
    /// stream's number. A thread's own default stream is waited for on the host.
    std::uint32_t give(base::range block, std::size_t marked, stream_ref stream) noexcept {
        used_.gave(block);
        used_.not_below_zero();
        order::block_uses uses = second_.take(marked, stream);
        try {
            runtime::device_scope const there(runtime::is_default_stream(stream) ? device_ : any_device);
            if (runtime::may_be_captured(runtime::capture_state_of(stream)) || !uses.are_known())
                return lose(block, host);
            if (stream.is_host() || runtime::is_per_thread(stream)) {
                for (runtime::event const& each : uses.events)
                    each.synchronize();
                synchronize(stream);
                unused_.give(block);
                return host;
            }
            for (runtime::event const& each : uses.events)
                each.make_wait(stream);
            share& own = enter(stream);
            own.free.give(block);
            return own.number;
        } catch (...) { // nobody knows when its uses end
            return lose(block, host);
        }
    }

    /// As in pools: see pool/pool.hpp.
    void used_on(std::size_t marked, stream_ref stream) { second_.mark(marked, stream); }
    void last_used_on(std::size_t marked, stream_ref stream) { second_.add(marked, stream); }

    /// A chunk comes. Throws std::bad_alloc; nothing has changed then.
    void add(base::range chunk) { unused_.add(chunk); }
    /// The chunk that came last goes, of which nobody has had a block.
    void remove(base::range chunk) { unused_.remove(chunk); }

    /// Blocks until no work uses what was freed; then it is all the host's share, and streams may end. Throws cuda_error,
    /// std::bad_alloc.
    void settle() {
        runtime::wait_for_device(any_device);
        for (share* each : shares_)
            unused_.absorb(each->free);
        for (share* each : shares_)
            delete each;
        shares_.clear();
        last_ = nullptr;
        numbers_ = 0;
    }

    base::usage used() const noexcept {
        base::usage now = used_;
        if constexpr (contract::holds<contract::has_largest, Placement>) {
            now.largest_free_bytes = unused_.largest();
            for (share const* each : shares_)
                if (each->free.largest() > now.largest_free_bytes)
                    now.largest_free_bytes = each->free.largest();
        }
        return now;
    }

private:
    static constexpr std::uint32_t host = UINT32_MAX;
    struct share {
        share(stream_ref of, std::uint32_t its_number, Placement&& empty)
            : stream(of), number(its_number), free(std::move(empty)) {}
        stream_ref stream;
        std::uint32_t number;
        Placement free;
    };

    share* known(stream_ref stream) noexcept {
        if (last_ && last_->stream == stream)
            return last_;
        for (share* each : shares_)
            if (each->stream == stream)
                return last_ = each;
        return nullptr;
    }

    share& enter(stream_ref stream) {
        share* const found = known(stream);
        return found ? *found : made(stream);
    }

    [[gnu::noinline]] share& made(stream_ref stream) {
        if (runtime::is_per_thread(stream))
            throw usage_error("weir: a thread's own default stream has no name that other threads could wait by; use a stream "
                              "of cudaStreamCreate's, or cudaStreamLegacy, for memory of a collective pool");
        if (!runtime::is_default_stream(stream) && runtime::device_of(stream) != device_)
            throw usage_error("weir: a collective pool's memory is for streams of its own device; each rank has a pool of its "
                              "own");
        shares_.reserve_more(1);
        shares_.push_back(new share(stream, numbers_, unused_.sibling()));
        ++numbers_; // of a call that failed for lack of host memory nothing stays
        return *(last_ = shares_.back());
    }

    base::range take_from_others(Placement& own, std::size_t bytes, std::size_t alignment, stream_ref stream) {
        for (share* each : shares_) {
            if (&each->free == &own || each->free.free_bytes() == 0 || is_captured(each->stream))
                continue;
            base::range const lent = each->free.lend(bytes, alignment);
            if (!lent)
                continue;
            try {
                wait(stream, each->stream);
            } catch (...) {
                each->free.add(lent); // needs no memory: see 'lend'
                throw;
            }
            own.add(lent);
            return own.take(bytes, alignment);
        }
        return {};
    }

    // Makes all shares the stream's.
    base::range take_of_all(Placement& own, std::size_t bytes, std::size_t alignment, stream_ref stream) {
        for (share* each : shares_) {
            if (&each->free == &own || each->free.free_bytes() == 0 || is_captured(each->stream))
                continue;
            wait(stream, each->stream);
            own.absorb(each->free);
        }
        if (&own != &unused_)
            own.absorb(unused_);
        base::range block = own.take(bytes, alignment);
        if constexpr (contract::holds<contract::has_squeeze, Placement>)
            if (!block)
                block = own.squeeze(bytes, alignment);
        return block;
    }

    bool is_captured(stream_ref stream) const { return order::placed_stream(stream, device_).is_captured(); }

    void wait(stream_ref later, stream_ref earlier) const {
        if (!later.is_host())
            return order_after(order::placed_stream(later, device_), order::placed_stream(earlier, device_));
        runtime::device_scope const there(device_);
        synchronize(earlier);
    }

    std::uint32_t lose(base::range block, std::uint32_t number) noexcept {
        used_.lost_bytes += block.bytes;
        return number;
    }

    Placement unused_; // the host's share
    base::growing_array<share*> shares_;
    share* last_ = nullptr; // the one that was asked for last
    std::uint32_t numbers_ = 0;
    base::usage used_;
    order::second_uses second_;
    int device_;
};

} // namespace multi_device::detail
} // namespace v0
} // namespace weir
