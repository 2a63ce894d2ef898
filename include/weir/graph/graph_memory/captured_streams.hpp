// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which bytes may each stream of a capture have?
//
// A graph runs the nodes of one captured stream in their order. So bytes freed on such a stream are free for its later nodes,
// but not for those of another stream, which may run at the same time. Each stream has a placement of its own. A stream that
// lacks room and has waited for all frees of another one gets what is free there; so joined branches reuse each other's bytes.
//
// Graphs that share their memory never run at the same time. So bytes that are free as a capture begins are free for all of its
// streams, whoever freed them before. They lie in a placement of their own, from which each stream takes what it lacks.
//
// invariant: bytes that one stream freed in a capture reach another one in that capture only behind the first one's 'end',
//            which covers all that it freed or got from others.
// cost:      O(streams) a look-up; a capture has a handful. O(nodes) where a stream lacks room and there are others.
// not for:   streams outside the capture.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/graph/graph_memory/branch_end.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// One thread at a time.
template <class Placement>
class captured_streams {
public:
    /// Whether free bytes can go from one capture, or one stream, to another.
    static constexpr bool can_share = contract::holds<contract::has_sibling, Placement> &&
                                      contract::holds<contract::has_absorb, Placement>;

    captured_streams() = default;
    captured_streams(captured_streams const&) = delete;
    captured_streams& operator=(captured_streams const&) = delete;
    ~captured_streams() { clear(); }

    /// The free bytes of `stream`. Throws std::bad_alloc when it is new.
    Placement& free_of(stream_ref stream) { return *of(stream).free; }

    /// A block for the capture's `stream`; none if there is no room. Throws std::bad_alloc before any change.
    base::range take(stream_ref stream, std::size_t bytes, std::size_t alignment) {
        entry& own = of(stream);
        base::range block = own.free->take(bytes, alignment);
        if constexpr (can_share) {
            if (!block && borrow(own, bytes, alignment))
                block = own.free->take(bytes, alignment);
            if (!block && absorb_joined(own, stream))
                block = own.free->take(bytes, alignment);
        }
        return block;
    }

    /// Takes back a block that `stream` frees in the capture. Throws std::bad_alloc before any change.
    void give(stream_ref stream, base::range block) {
        entry& own = of(stream);
        branch_end now = branch_end::of(stream);
        own.free->give(block);
        own.end = std::move(now);
    }

    /// Another capture begins: all free bytes are free for all of its streams. Throws std::bad_alloc; then no capture may take
    /// any before the next 'begin'.
    void begin() {
        unused_ = unused_ ? unused_ : new Placement();
        freed_later_ = freed_later_ ? freed_later_ : new Placement(unused_->sibling());
        unused_->absorb(*freed_later_);
        for (; !streams_.empty(); streams_.pop_back()) {
            unused_->absorb(*streams_.back().free);
            delete streams_.back().free;
        }
    }
    /// Takes back a block that the capture under way may not have again, for the next one. Call it after the first 'begin'.
    /// Throws std::bad_alloc.
    void give_to_next(base::range block) { freed_later_->give(block); }

    /// The largest free range of any stream; SIZE_MAX: not known.
    std::size_t largest_bytes() const noexcept {
        std::size_t most = contract::holds<contract::has_largest, Placement> ? 0 : SIZE_MAX;
        if constexpr (contract::holds<contract::has_largest, Placement>) {
            for (entry const& each : streams_)
                most = each.free->largest() > most ? each.free->largest() : most;
            if (unused_ && unused_->largest() > most)
                most = unused_->largest();
        }
        return most;
    }

    /// Forgets all streams and what is free on them.
    void clear() noexcept {
        for (entry const& each : streams_)
            delete each.free;
        streams_.clear();
        delete std::exchange(unused_, nullptr);
        delete std::exchange(freed_later_, nullptr);
    }

private:
    struct entry {
        cudaStream_t stream = nullptr;
        Placement* free = nullptr;
        branch_end end = {}; // a stream behind it may have what is free here
    };

    entry& of(stream_ref stream) {
        for (entry& each : streams_)
            if (each.stream == stream.get())
                return each;
        streams_.reserve_more(1);
        streams_.push_back(entry{stream.get(), fresh()});
        return streams_.back();
    }
    Placement* fresh() const {
        if constexpr (can_share) {
            if (unused_)
                return new Placement(unused_->sibling());
            if (!streams_.empty())
                return new Placement(streams_.back().free->sibling());
        }
        return new Placement();
    }

    // Gets what nobody used in this capture. Whether there was room for such a block.
    bool borrow(entry& own, std::size_t bytes, std::size_t alignment) {
        base::range const more = unused_ ? unused_->lend(bytes, alignment) : base::range{};
        try {
            if (more)
                own.free->add(more);
        } catch (...) {
            unused_->add(more); // needs no memory
            throw;
        }
        return bool(more);
    }
    // Gets what streams freed that `stream` has waited for since. Whether there are any.
    bool absorb_joined(entry& own, stream_ref stream) {
        if (streams_.size() == 1)
            return false;
        own.end = branch_end::of(stream); // before: it has to cover what comes from others
        branch_past const past(own.end);
        bool any = false;
        for (entry const& each : streams_)
            if (&each != &own && past.has(each.end)) {
                own.free->absorb(*each.free);
                any = true;
            }
        return any;
    }

    base::growing_array<entry> streams_;
    Placement* unused_ = nullptr;      // free before the capture began; null: the memory is one capture's
    Placement* freed_later_ = nullptr; // for the next capture
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
