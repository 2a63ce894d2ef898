// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which other streams use a container's memory, and who waits for them before a block is freed?
//
// The user tells a container once that another stream uses it; the container may take larger blocks afterwards. So this list
// of streams belongs to the container and not to a block. Some pools can be told who uses a block. Such a pool is told of the
// whole list for each new block, and waits for those streams itself when the block is freed. If the pool cannot be told, or
// if the host had no memory for that, the container's own stream is made to wait for the listed streams just before the free.
//
// invariant: a block is freed after the work on all listed streams, either by the pool or by the container's stream.
// order:     as stream_mark: a listed stream must live until the container ends, or until a move assignment replaces its
//            memory.
// cost:      none while the list is empty; otherwise one 'used_on' of the pool, or one wait, for each listed stream and block.
// not for:   blocks without a container: a pool notes those (order/second_uses.hpp).

#include <new>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/order_after.hpp>
#include <weir/order/stream_mark.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace container::detail {

/// The list of one container. One thread at a time. `own`, in each member: the container's own stream.
class marked_streams {
    using any_pool_ref = pool_ref<memory_space::device>; // names the pools of pinned containers as well

public:
    /// Lists `user`, and tells the pool that it uses the block `p`. `p` is null if the container has no block yet. Throws
    /// usage_error while `user` is captured, except if it is captured into the same graph as `own` and the pool cannot be
    /// told; also what the pool's 'used_on' throws; std::bad_alloc. Nothing is listed then.
    void add(any_pool_ref pool, void* p, order::placed_stream const& own, order::placed_stream const& user) {
        list(own, user, pool.has_used_on(), [&] {
            if (p && pool.has_used_on())
                pool.used_on(p, user.stream);
        });
    }
    /// The same for a container whose memory comes from no such pool: only 'make_wait' looks at the list.
    void add(order::placed_stream const& own, order::placed_stream const& user) {
        list(own, user, false, [] {});
    }

    /// Tells the pool that all listed streams use the new block `p`. Whether the pool knows all of them now: not if it cannot
    /// be told, or if the host has no memory for that. Throws what the pool's 'used_on' throws except std::bad_alloc, and
    /// usage_error while a listed stream is captured.
    bool tell(any_pool_ref pool, void* p) const {
        if (!pool.has_used_on())
            return marks_.empty();
        bool knows_all = true;
        for (order::stream_mark const& each : marks_) {
            runtime::device_scope const there(each.place());
            order::stream_mark::view const found = each.look();
            if (found.now == order::stream_mark::state::captured)
                order::require_end(found.stream);
            try {
                pool.used_on(p, found.stream);
            } catch (std::bad_alloc const&) { // a throw would make the caller free the block, which may take memory, too
                knows_all = false;
            }
        }
        return knows_all;
    }

    /// Makes `own` wait for the listed streams. The answer is the stream to free a block on: `own`, or a listed stream that is
    /// being captured, since its graph may use the block at each launch. If several graphs may, it is the host: no stream will
    /// do, and the block must stay handed out. If CUDA cannot make `own` wait for some stream, the host waits for the devices
    /// instead; that blocks.
    stream_ref make_wait(order::placed_stream const& own) const noexcept {
        freeing how{own.stream};
        bool waits_for_all = true;
        if (!marks_.empty() && may_be_captured(own))
            how.add_graph_of(own.stream);
        for (order::stream_mark const& each : marks_)
            if (!base::try_twice([&] { return make_wait(own, each, how); })) { // or the stream is in another graph
                waits_for_all = false;
                if (each.may_be_captured())
                    how.add_graph_of(each.stream());
            }
        if (!waits_for_all) // where this fails twice the device is lost: nothing runs any more
            base::try_twice([] {
                runtime::wait_for_device(any_device);
                return true;
            });
        return how.on;
    }

private:
    // Lists `user`, and calls tell() before that can be seen. `waits_elsewhere`: whether who is told waits, and not `own`.
    template <class Tell>
    void list(order::placed_stream const& own, order::placed_stream const& user, bool waits_elsewhere, Tell const& tell) {
        bool const own_in_graph = own.is_in_graph();
        if (user == own && own_in_graph)
            return; // the block is freed in the same graph
        bool const in_graph = !waits_elsewhere && own_in_graph;
        runtime::device_scope const there(user.device);
        if (in_graph)
            order::detail::require_same_graph(own, runtime::capture_of(user.stream).id);
        order::stream_mark const fresh =
            in_graph ? order::stream_mark::of_captured(user.stream) : order::stream_mark(user.stream);
        marks_.reserve_more(1); // so that nothing can fail once the pool was told
        tell();
        order::add_mark(marks_, fresh);
    }

    // Where a block is freed: not on a stream outside a graph that uses it.
    struct freeing {
        stream_ref on;
        bool in_graph = false;
        unsigned long long capture = 0; // if `in_graph`

        void add_graph_of(stream_ref stream) noexcept {
            unsigned long long const now = runtime::capture_if_known(stream).id;
            bool const another = in_graph && now != capture;
            // Of a graph that is not known, the pool finds as little as this does.
            on = another || on.is_host() ? stream_ref(on_host) : stream;
            capture = now;
            in_graph = true;
        }
    };

    static bool may_be_captured(order::placed_stream const& own) noexcept {
        bool may = !runtime::is_legacy(own.stream);
        base::try_twice([&] { return may = own.is_in_graph(), true; });
        return may;
    }

    // The same for one listed stream. False if nobody knows where its work ends.
    static bool make_wait(order::placed_stream const& own, order::stream_mark const& marked, freeing& how) {
        bool const in_graph = own.is_in_graph(); // then the listed streams are of the same graph: no look at them is allowed
        runtime::device_scope const there(marked.place());
        using state = order::stream_mark::state;
        order::stream_mark::view const found =
            in_graph ? order::stream_mark::view{state::open, marked.stream(), 0} : marked.look();
        if (found.now == state::captured)
            how.add_graph_of(found.stream);
        if (found.now == state::open)
            order_after(own, order::placed_stream(found.stream, marked.device()));
        return found.now != state::unknown;
    }

    base::growing_array<order::stream_mark> marks_;
};

} // namespace container::detail
} // namespace v0
} // namespace weir
