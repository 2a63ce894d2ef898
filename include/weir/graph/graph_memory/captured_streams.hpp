// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which bytes may each stream of a capture have?
//
// Bytes that a stream freed in a capture are free for nodes that run behind that free. Mostly those are the stream's own later
// ones, so each stream has a placement of its own, and the end that it had as it freed last. A stream that lacks room gets some
// from another whose end it has waited for; so joined branches reuse each other's bytes. A stream that comes behind its own
// earlier end no more, because it was sent elsewhere in its graph, leaves its placement there, to whoever does.
//
// Graphs that share their memory never run at the same time. So bytes that are free as a capture begins are free for all of its
// streams, whoever freed them before. They lie in a placement of their own, from which each stream takes what it lacks.
//
// invariant: bytes that were freed in a capture reach only a stream that is behind the 'end' of their placement, which covers
//            all that was freed into it. A stream is a name: where threads share one, each is asked where it is.
// cost:      O(streams) a look-up; a capture has a handful. A block from a placement with bytes that were freed in the capture:
//            a question to CUDA, and one for each node that was captured since; one for each node that comes before, at most,
//            where a stream lacks room and others have some.
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

    /// Adds a chunk that was in no graph's use. Throws std::bad_alloc before any change.
    void add(stream_ref stream, base::range chunk) {
        branch_past past(stream);
        of(stream, past).free->add(chunk);
    }

    /// A block for what the capture's `stream` captures behind its present end; none if there is no room. Throws std::bad_alloc
    /// before any change.
    base::range take(stream_ref stream, std::size_t bytes, std::size_t alignment) {
        branch_past past(stream);
        entry& own = of(stream, past);
        base::range block = own.free->take(bytes, alignment);
        if constexpr (can_share) {
            if (!block && unused_)
                block = unused_->take(bytes, alignment);
            for (entry const& each : streams_)
                if (!block && &each != &own && each.free->free_bytes() >= bytes && past.has(each.end))
                    block = each.free->take(bytes, alignment);
            if (!block && absorb_joined(own, past, bytes))
                block = own.free->take(bytes, alignment);
        }
        return block;
    }

    /// Takes back a block that `stream` frees in the capture, where its end is `now`, which is known. Throws std::bad_alloc
    /// before any change.
    void give(stream_ref stream, base::range block, branch_end now) {
        branch_past past(now);
        branch_end seen(now);
        entry& own = of(stream, past);
        own.free->give(block);
        own.end = std::move(now);
        own.seen = std::move(seen);
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
        cudaStream_t stream = nullptr; // null: nobody's any more
        Placement* free = nullptr;
        branch_end end = {};  // a stream behind it may have what is free here
        branch_end seen = {}; // where its stream was when it last came behind 'end'
    };

    // The free bytes of `stream`, whose past is `past`: it may have them.
    entry& of(stream_ref stream, branch_past& past) {
        for (entry& each : streams_)
            if (each.stream == stream.get()) {
                if (past.has(each.seen) || past.has(each.end)) {
                    if (!each.end.nodes().empty())
                        each.seen = past.end();
                    return each;
                }
                each.stream = nullptr;
            }
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

    // Gets all that streams freed that `own` is behind, where that makes up `bytes`: neighbours join. Whether it did.
    bool absorb_joined(entry& own, branch_past& past, std::size_t bytes) {
        std::size_t sum = 0;
        for (entry const& each : streams_)
            sum += past.has(each.end) ? each.free->free_bytes() : 0;
        if (sum < bytes || sum == own.free->free_bytes() || !past.end().is_known())
            return false;
        own.seen = past.end();
        own.end = own.seen; // before: it has to cover what comes from others
        for (entry const& each : streams_)
            if (&each != &own && past.has(each.end))
                own.free->absorb(*each.free);
        return true;
    }

    base::growing_array<entry> streams_;
    Placement* unused_ = nullptr;      // free before the capture began; null: the memory is one capture's
    Placement* freed_later_ = nullptr; // for the next capture
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
