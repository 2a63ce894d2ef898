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
#include <weir/base/shared.hpp>
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

/// Whether the name means two streams: a default stream is the current device's, and that of `device`. Throws cuda_error.
inline bool means_two(stream_ref stream, int device) {
    return runtime::is_default_stream(stream) && !stream.is_host() && device != any_device &&
           runtime::current_device() != device;
}

/// Calls visit() for each stream that the name means, with its device current. Throws cuda_error, and what `visit` throws.
template <class Visit>
void visit_meant(stream_ref stream, int device, Visit const& visit) {
    visit();
    if (graph::detail::means_two(stream, device)) {
        runtime::device_scope const there(device);
        visit();
    }
}

/// What the host has to wait for, with no lock that a host function may want; nothing where it is null.
using waits = base::shared<last_uses>;

/// One thread at a time.
template <class Placement>
class memory_group {
public:
    static constexpr bool can_share = captured_streams<Placement>::can_share;

    /// Of a pool on `device`. `id`: what its graphs share; 0: there is one graph. Throws std::bad_alloc.
    memory_group(int device, std::uint64_t id) : device_(device), id_(id) {}

    std::uint64_t id() const noexcept { return id_; }
    owner_graphs const& owners() const noexcept { return owners_; }
    held_blocks const& held() const noexcept { return held_; }
    base::usage const& used() const noexcept { return used_; }
    std::size_t largest_bytes() const noexcept { return streams_.largest_bytes(); }
    /// How many graphs share it and were not released.
    std::size_t graphs() const noexcept { return graphs_; }

    /// Whether a release is to come: of a graph that shares it; or, since another one may use it that nobody knows, of all.
    bool awaits_release() const noexcept { return graphs_ != 0 || (owners_.have_another() && used_.blocks == 0); }

    /// The graph of the capture `now` shares it from here on, or nothing but that the former capture is over, and the answer is
    /// what the host has to wait for first: what streams did before they freed blocks outside of captures. Throws cuda_error,
    /// std::bad_alloc.
    waits join(runtime::capture const& now) {
        owners_.own({}); // also if something fails
        if (!outside_->try_make_wait(on_host))
            return outside_;
        streams_.begin();
        owners_.join(now);
        ++graphs_;
        return {};
    }
    /// One of them is gone, or will run no more behind what `stream` did so far.
    void leave(stream_ref stream) noexcept {
        auto const note = [&] { return graph::detail::visit_meant(stream, device_, [&] { outside_->note(stream); }), true; };
        if (stream.is_host() || !base::try_twice(note))
            outside_->note_unknown();
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
        if (runtime::is_legacy(stream) || runtime::capture_state_of(stream) == runtime::capture_state::hindered)
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

    /// Notes that everything is to go back behind what `stream` did so far; with `all_work`, behind all that any device did.
    /// Throws cuda_error.
    void end_behind(stream_ref stream, bool all_work) {
        if (graph::detail::means_two(stream, device_))
            outside_->note(stream); // 'give_back' comes behind the other one
        if (all_work && held_.count() != 0)
            outside_->note_unknown();
    }
    /// Gives everything back to `pool`, behind `stream`, and as 'end_behind' said; or nothing, and the answer is what the host
    /// has to wait for first. Throws cuda_error; nothing goes back then.
    template <class Pool>
    waits give_back(Pool& pool, stream_ref stream) {
        bool const two = graph::detail::means_two(stream, device_);
        runtime::device_scope const of_pool(two ? device_ : any_device);
        if (!outside_->try_make_wait(stream))
            return outside_;
        streams_.clear();
        held_.give_back(pool, stream);
        used_ = base::usage{};
        owners_.forget();
        return {};
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
            return outside_->note(stream), users::noted;
        if (now == runtime::capture_state::hindered || now == runtime::capture_state::broken) // no graph will use it
            return outside_->note_unknown(), users::noted;
        runtime::capture const found = runtime::capture_if_known(stream);
        if (found.id != 0 && owners_.is(found))
            return users::capture;
        if (found.id != 0 && id_ != 0 && owners_.has(found))
            return users::noted;
        return note_unknown_use(stream);
    }
    // The legacy stream is never captured itself; captures only make its calls fail.
    users note_unknown_use(stream_ref stream) noexcept {
        outside_->note_unknown();
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
    waits outside_ = waits::make(); // what streams did before frees outside the captures
    base::usage used_;
    std::size_t graphs_ = 0;
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
