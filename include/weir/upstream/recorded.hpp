// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What did a pool get of its upstream, and when did it give it back?
//
// The slot wraps an upstream and writes down each chunk that comes, goes, moves, or loses its memory for a while. With
// layer::record around the pool on the same recorder, a recording says both what was asked for and what was held for it.
//
//     weir::trace::recorder tape;
//     weir::recorded_device_pool pool(tape); // device_pool, with both
//
// invariant: the wrapped upstream sees the same calls, whether the recorder is on or off.
// order:     a chunk that goes back is written before the upstream sees it, one that comes after the upstream handed it out. A
//            chunk that could not go back, or move, is written as one that came again.
// cost:      off: a load and a branch for a driver call.
// not for:   what is done to the memory through the wrapped upstream's copies.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/trace/recorded_event.hpp>
#include <weir/trace/recorder.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

namespace detail {

/// What chunks are acquired and released through; all upstreams can.
template <class Upstream>
class recorded_chunks : public Upstream {
public:
    recorded_chunks(trace::recorder& to, Upstream memory)
        : Upstream(std::move(memory)), recorder_(&to),
          source_(to.add({text("chunks of ") + base::name_of(Upstream::space), contract::device_number_of(this->wrapped()),
                          Upstream::space, UINT64_MAX})) {}

    /// Where the events go, and which source they are of: for reuse::recorded.
    trace::recorder& recorder() const noexcept { return *recorder_; }
    std::uint16_t source() const noexcept { return source_; }

    void* acquire(std::size_t bytes) {
        void* const chunk = Upstream::acquire(bytes);
        if (chunk)
            note(trace::event_kind::grow, chunk, bytes);
        return chunk;
    }
    auto release(void* chunk, std::size_t bytes) noexcept {
        note(trace::event_kind::give_back, chunk, bytes);
        if constexpr (contract::returns<bool, contract::has_release, Upstream>) {
            bool const is_gone = Upstream::release(chunk, bytes);
            if (!is_gone)
                note(trace::event_kind::grow, chunk, bytes);
            return is_gone;
        } else {
            Upstream::release(chunk, bytes);
        }
    }

protected:
    Upstream const& wrapped() const noexcept { return *this; }
    void note(trace::event_kind what, void const* chunk, std::size_t bytes) noexcept {
        trace::event one;
        one.kind = what;
        one.address = reinterpret_cast<std::uintptr_t>(chunk);
        one.bytes = bytes;
        one.source = source_;
        recorder_->write(one);
    }

private:
    trace::recorder* recorder_;
    std::uint16_t source_;
};

/// The same of memory that is mapped.
template <class Upstream>
class recorded_pages : public recorded_chunks<Upstream> {
    using kind = trace::event_kind;

public:
    using recorded_chunks<Upstream>::recorded_chunks;
    using recorded_chunks<Upstream>::acquire;

    void* acquire(std::size_t bytes, std::size_t piece_bytes) {
        void* const chunks = Upstream::acquire(bytes, piece_bytes);
        if (chunks)
            this->note(kind::grow, chunks, bytes);
        return chunks;
    }
    bool extend(void* end, std::size_t bytes, std::size_t piece_bytes) {
        bool const is_longer = Upstream::extend(end, bytes, piece_bytes);
        if (is_longer)
            this->note(kind::extend, end, bytes);
        return is_longer;
    }
    bool move(void* chunk, std::size_t bytes, void* to) noexcept {
        this->note(kind::move_from, chunk, bytes);
        bool const is_there = Upstream::move(chunk, bytes, to);
        this->note(kind::move_to, is_there ? to : chunk, bytes);
        return is_there;
    }
    bool withdraw(void* chunk, std::size_t bytes) noexcept {
        this->note(kind::withdraw, chunk, bytes);
        bool const is_gone = Upstream::withdraw(chunk, bytes);
        if (!is_gone)
            this->note(kind::restore, chunk, bytes);
        return is_gone;
    }
    bool restore(void* chunk, std::size_t bytes) {
        bool const is_back = Upstream::restore(chunk, bytes);
        if (is_back)
            this->note(kind::restore, chunk, bytes);
        return is_back;
    }
};

template <class Upstream>
using recorded_parts = std::conditional_t<contract::holds<contract::has_extends, Upstream>, recorded_pages<Upstream>,
                                          recorded_chunks<Upstream>>;

} // namespace detail

/// `Upstream`, whose chunks are written to a recorder. It has that one's members; who may call them is as there.
template <class Upstream>
class recorded : public detail::recorded_parts<Upstream> {
public:
    /// `to` outlives all copies of this object. Throws std::bad_alloc.
    explicit recorded(trace::recorder& to, Upstream memory = Upstream())
        : detail::recorded_parts<Upstream>(to, std::move(memory)) {}
};

} // namespace upstream
} // namespace v0
} // namespace weir
