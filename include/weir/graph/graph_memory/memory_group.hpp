// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What memory does a graph have, or do graphs that never run at the same time have together?
//
// Blocks of the pool, which streams of the captures cut into blocks of their own. Each free asks who may use the block's bytes
// until when: only the capture under way, which may have them again; work outside of it, for which the next capture and the
// pool wait; or graphs that nobody knows.
//
// invariant: no byte goes to anyone else before 'give_back'. What a stream frees in a capture is that stream's, or goes to one
//            that runs behind it, until the capture ends; then it is a later capture's.
// order:     as in the graphs. The next capture begins when what streams did before frees outside of captures is done.
// cost:      O(chunks) a look-up.
// not for:   finding the group of a capture or of a block: see graph_memory.hpp.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/range.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/base/usage.hpp>
#include <weir/graph/graph_memory/branch_end.hpp>
#include <weir/graph/graph_memory/captured_streams.hpp>
#include <weir/graph/graph_memory/held_blocks.hpp>
#include <weir/graph/graph_memory/last_uses.hpp>
#include <weir/graph/graph_memory/owner_graphs.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// Calls visit() for each stream that the name means: a default stream means the current device's and, made current here, that
/// of `device`. Throws cuda_error, and what `visit` throws.
template <class Visit>
void visit_meant(stream_ref stream, int device, Visit const& visit) {
    visit();
    if (runtime::is_default_stream(stream) && !stream.is_host() && device != any_device &&
        runtime::current_device() != device) {
        runtime::device_scope const there(device);
        visit();
    }
}

/// One thread at a time.
template <class Placement>
class memory_group {
public:
    static constexpr bool can_share = captured_streams<Placement>::can_share;

    /// Of a pool on `device`. `id`: what its graphs share; 0: there is one graph.
    memory_group(int device, std::uint64_t id) noexcept : device_(device), id_(id) {}

    std::uint64_t id() const noexcept { return id_; }
    owner_graphs const& owners() const noexcept { return owners_; }
    held_blocks const& held() const noexcept { return held_; }
    base::usage const& used() const noexcept { return used_; }
    std::size_t largest_bytes() const noexcept { return streams_.largest_bytes(); }
    /// How many graphs share it and were not released.
    std::size_t graphs() const noexcept { return graphs_; }

    /// The graph of the capture `now` shares it from here on. Waits on the host for what streams did before they freed blocks
    /// outside of captures. Throws cuda_error, std::bad_alloc.
    void join(runtime::capture const& now) {
        outside_.make_wait(on_host);
        owners_.own({}); // the former capture is over, also if something fails
        streams_.begin();
        owners_.join(now);
        ++graphs_;
    }
    /// One of them is gone, or will run no more behind what `stream` did so far.
    void leave(stream_ref stream) noexcept {
        if (stream.is_host())
            outside_.note_unknown();
        outside_.note(stream);
        --graphs_;
    }

    /// A block for `now`, the capture of `stream`. The free bytes of that stream get the chunk `fresh` first, if there is one.
    base::range take(runtime::capture const& now, stream_ref stream, std::size_t bytes, std::size_t alignment,
                     held_block& fresh) {
        owners_.require(now);
        owners_.watch(now); // before anything of the graph's is held
        if (fresh.p) {
            held_.reserve();
            streams_.add(stream, fresh.bytes_of());
            held_.add_chunk(std::exchange(fresh, {}));
        }
        base::range const block = streams_.take(stream, bytes, alignment);
        if (block) {
            owners_.own(now);
            used_.took(block);
        }
        return block;
    }

    /// Takes back a block of a chunk.
    void take_back(stream_ref stream, base::range block) noexcept {
        used_.gave(block);
        used_.not_below_zero();
        users const last = note_uses(stream);
        try {
            branch_end now;
            if (last == users::capture)
                graph::detail::visit_meant(stream, device_, [&] { now.add(stream); });
            if (last == users::capture && now.is_known())
                streams_.give(stream, block, std::move(now));
            else if (last != users::unknown && id_ != 0)
                streams_.give_to_next(block);
        } catch (...) { // no host memory, or CUDA fails: the bytes stay unused until the release
        }
    }

    /// Keeps a block of the pool that a captured stream frees, since the graph may use it at each launch. False: the pool takes
    /// it back, and if another graph may use it, keeps it from others.
    bool adopt(stream_ref stream, held_block block) noexcept {
        if (runtime::is_legacy(stream))
            return false;
        try {
            held_.reserve();
        } catch (...) { // the host has no memory
            return false;
        }
        bool owned = false;
        bool const answered = base::try_twice([&] {
            graph::detail::visit_meant(stream, device_, [&] {
                runtime::capture const now = runtime::capture_of(stream);
                if (id_ != 0)
                    owned |= now.id != 0 && owners_.has(now);
                if (id_ != 0 || !owners_.may_be(now))
                    return;
                owners_.own(now);
                owned = true;
                owners_.watch(now); // where it fails, a later call does
            });
            return true;
        });
        if (answered && !owned)
            return false;
        held_.adopt(block);
        note_uses(stream);
        return true;
    }

    /// Gives everything back to `pool`, behind what `stream` did so far, or all devices with `after_all_work`. Throws
    /// cuda_error; nothing goes back then.
    template <class Pool>
    void give_back(Pool& pool, stream_ref stream, bool after_all_work) {
        if (after_all_work && held_.count() != 0)
            outside_.note_unknown();
        outside_.make_wait(stream); // before anything goes back
        streams_.clear();
        held_.give_back(pool, stream);
        used_ = base::usage{};
        owners_.forget();
    }

private:
    // Who may use what was freed: the capture under way; work that was noted, or graphs of captures that are over; others.
    enum class users { capture, noted, unknown };

    users note_uses(stream_ref stream) noexcept {
        users last = users::capture;
        if (!base::try_twice([&] {
                return graph::detail::visit_meant(stream, device_,
                                                  [&] {
                                                      users const one = note_use(stream);
                                                      last = one > last ? one : last;
                                                  }),
                       true;
            }))
            last = note_unknown_use(stream);
        return last;
    }
    users note_use(stream_ref stream) noexcept {
        runtime::capture_state const now = runtime::capture_state_of(stream);
        if (now == runtime::capture_state::none)
            return outside_.note(stream), users::noted;
        if (runtime::may_be_captured(now)) {
            runtime::capture const found = runtime::capture_if_known(stream);
            if (found.id != 0 && owners_.is(found))
                return users::capture;
            if (found.id != 0 && id_ != 0 && owners_.has(found))
                return users::noted;
        }
        return note_unknown_use(stream);
    }
    // The legacy stream is never captured itself; captures only make its calls fail.
    users note_unknown_use(stream_ref stream) noexcept {
        outside_.note_unknown();
        if (runtime::is_legacy(stream))
            return users::noted;
        owners_.note_another();
        return users::unknown;
    }

    int device_;
    std::uint64_t id_;
    owner_graphs owners_;
    held_blocks held_;
    captured_streams<Placement> streams_;
    last_uses outside_; // what streams did before frees outside the captures
    base::usage used_;
    std::size_t graphs_ = 0;
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
