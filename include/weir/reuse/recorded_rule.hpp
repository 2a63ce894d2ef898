// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When did a pool hand memory from one stream to another, and when did the host have to wait for that?
//
// The slot wraps a reuse rule and writes down what its callers cannot see: each block that a stream gets although another one
// had freed it, each time that all memory which no work uses is brought together for a stream, and each time that the host
// waits before the pool goes on. It writes to the recorder of the pool's upstream, in
// that one's name.
//
//     weir::pool<weir::upstream::recorded<weir::upstream::virtual_memory<>>, my_placement,
//                weir::reuse::recorded<weir::reuse::stream_ordered<>>> pool(recorded_memory);
//     weir::recorded_device_pool pool(tape); // device_pool, with both, and the layer
//
// invariant: the wrapped rule sees the same calls, whether the recorder is on or off.
// order:     a block that changes streams is written before layer::record writes its allocation, a wait when it is over.
// cost:      off: a load and a branch where memory changes streams or the host waits, and nothing elsewhere.
// not for:   waits of the rule itself within 'take' and 'reclaim'. Rules that have no streams of their own for what is free
//            (after_event, immediate) hand nothing over; of them the waits alone are written.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/range.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/trace/recorded_event.hpp>
#include <weir/trace/recorder.hpp>

namespace weir {
inline namespace v0 {
namespace reuse {

/// `Rule`, whose hand-overs and waits are written to a recorder.
template <class Rule>
struct recorded : Rule {
    template <class Placement>
    class over;
};

/// It has the wrapped one's members; who may call them is as there.
template <class Rule>
template <class Placement>
class recorded<Rule>::over : public Rule::template over<Placement> {
    using wrapped = typename Rule::template over<Placement>;
    using kind = trace::event_kind;
    template <class R>
    using told_take = decltype(std::declval<R&>().take(0, 0, on_host, std::declval<void (*)(base::range, bool)>()));
    static constexpr bool tells = contract::holds<told_take, wrapped>;

public:
    /// It writes nothing.
    explicit over(int device) : wrapped(device) {}
    /// It writes to the recorder of `memory`, the pool's upstream.
    template <class Upstream>
    over(int device, Upstream const& memory) : wrapped(device) {
        static_assert(contract::holds<recorder_of, Upstream>,
                      "weir: reuse::recorded writes to the recorder of its pool's upstream, and this upstream has none; use "
                      "'weir::upstream::recorded<...>'");
        if constexpr (contract::holds<recorder_of, Upstream>) {
            recorder_ = &memory.recorder();
            source_ = memory.source();
        }
    }

    base::range take(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        if constexpr (tells)
            return wrapped::take(bytes, alignment, stream, handed_over(stream));
        else
            return wrapped::take(bytes, alignment, stream);
    }
    template <class R = wrapped, class = std::enable_if_t<contract::holds<contract::has_borrow, R, stream_ref>>>
    base::range borrow(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        auto const borrows = [&] {
            if constexpr (tells)
                return wrapped::borrow(bytes, alignment, stream, handed_over(stream));
            else
                return wrapped::borrow(bytes, alignment, stream);
        };
        return stream.is_host() ? timed(borrows) : borrows(); // no stream waits in the host's place
    }
    template <class R = wrapped>
    auto gather(stream_ref stream, bool grows = false) -> decltype(std::declval<R&>().gather(stream, grows)) {
        wrapped::gather(stream, grows);
        note(kind::hand_over, stream, 0, 0, trace::hand_over_order::none);
    }
    template <class R = wrapped>
    auto wait() -> decltype(std::declval<R&>().wait()) {
        return timed([&] { return wrapped::wait(); });
    }
    void settle() {
        timed([&] { return wrapped::settle(), true; });
    }

private:
    template <class U>
    using recorder_of = decltype(std::declval<U const&>().recorder(), std::declval<U const&>().source());

    auto handed_over(stream_ref stream) noexcept {
        return [this, stream](base::range block, bool waits) {
            note(kind::hand_over, stream, block.offset, block.bytes,
                 waits ? trace::hand_over_order::wait : trace::hand_over_order::none);
        };
    }

    // What `waits` returns; if that is true, what it took is written.
    template <class Waits>
    auto timed(Waits const& waits) {
        trace::event_ring const* const ring = recorder_ && recorder_->is_on() ? recorder_->ring() : nullptr;
        if (!ring)
            return waits();
        std::uint64_t const before = ring->time().ticks();
        auto const answer = waits();
        if (answer)
            note(kind::wait, on_host, 0, ring->time().ticks() - before);
        return answer;
    }
    void note(kind what, stream_ref stream, std::uint64_t address, std::uint64_t bytes,
              trace::hand_over_order order = {}) const noexcept {
        if (!recorder_)
            return;
        trace::event one;
        one.kind = what;
        one.address = address;
        one.bytes = bytes;
        one.stream = reinterpret_cast<std::uintptr_t>(stream.get());
        one.source = source_;
        one.log2_alignment = static_cast<std::uint8_t>(order);
        recorder_->write(one);
    }

    trace::recorder* recorder_ = nullptr;
    std::uint16_t source_ = 0;
};

} // namespace reuse
} // namespace v0
} // namespace weir
