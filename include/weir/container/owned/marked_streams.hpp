// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which other streams use a container's memory, even after the container got another block?
//
// The user tells a container once that another stream uses it, and the container may grow afterwards. So the container keeps
// these marks. It says of each block that it gets that the same streams use it. Some pools can be told; such a pool waits for
// those streams when the block is freed. With another pool, or if the host had no memory to tell the pool, the container's
// own stream is made to wait just before the free.
// invariant: for each block of the container, the pool was told of all marked streams, or the block is freed after their
//            work.
// order:     as stream_mark: a marked stream must live until the container ends, or until a move assignment replaces its
//            memory.
// cost:      none without a mark; with a pool that can be told, one 'used_on' of the pool for each mark and block.
// not for:   blocks without a container: a pool notes those (order/second_uses.hpp).

#include <new>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/swap.hpp>
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
namespace detail {

/// One thread at a time.
class marked_streams {
public:
    /// Marks `user` as a stream that uses the container. `own`: the container's stream. `p`: its block; null if it has none
    /// yet. Throws usage_error while `user` is captured, except if it is captured into the same graph as `own` and the pool
    /// cannot be told; also what the pool's 'used_on' throws; std::bad_alloc.
    template <memory_space Space>
    void add(pool_ref<Space> pool, void* p, order::placed_stream const& own, order::placed_stream const& user) {
        if (user == own && own.is_captured())
            return; // the block is freed in the same graph
        bool const in_graph = !pool.has_used_on() && own.is_captured();
        runtime::device_scope const there(user.device);
        if (in_graph)
            order::detail::require_same_graph(own, runtime::capture_of(user.stream).id);
        order::stream_mark const fresh =
            in_graph ? order::stream_mark::of_captured(user.stream) : order::stream_mark(user.stream);
        if (!marks_)
            marks_ = base::shared<base::growing_array<order::stream_mark>>::make();
        marks_->reserve_more(1);
        if (p && pool.has_used_on())
            pool.used_on(p, user.stream);
        order::add_mark(*marks_, fresh);
    }

    /// Copies the marks to `next`, for the container's next block `p`, and tells the pool. Throws as 'add', but never
    /// std::bad_alloc: if the host has no memory, `next` will free its block as if the pool could not be told. (A throw would
    /// make the caller free the new block, and without host memory that may lose it.)
    template <memory_space Space>
    void carry_to(marked_streams& next, pool_ref<Space> pool, void* p) const {
        next.marks_ = marks_;
        if (!marks_ || !p || !pool.has_used_on())
            return;
        for (order::stream_mark const& each : *marks_) {
            runtime::device_scope const there(each.place());
            order::stream_mark::view const found = each.look();
            if (found.now == order::stream_mark::state::captured)
                order::require_end(each.stream());
            try {
                pool.used_on(p, found.stream);
            } catch (std::bad_alloc const&) {
                next.told_ = false;
            }
        }
    }

    /// The stream to free the block on. If the pool knows all marks, it is `own`. Otherwise `own` is made to wait for the
    /// marked streams. If one of these is being captured, that one is returned, since its graph may use the block at each
    /// launch. If CUDA cannot make `own` wait for some stream, the host waits for the devices; that blocks.
    template <memory_space Space>
    stream_ref end_on(pool_ref<Space> pool, order::placed_stream const& own) const noexcept {
        stream_ref last = own.stream;
        if (!marks_ || (told_ && pool.has_used_on()))
            return last;
        bool told = true;
        for (order::stream_mark const& each : *marks_)
            try {
                bool const in_graph = own.is_captured();
                runtime::device_scope const there(each.place());
                order::stream_mark::view const found =
                    in_graph ? order::stream_mark::view{order::stream_mark::state::open, each.stream(), 0} : each.look();
                if (found.now == order::stream_mark::state::captured)
                    last = found.stream;
                else if (found.now == order::stream_mark::state::unknown)
                    told = false;
                else
                    order_after(own, order::placed_stream(found.stream, each.device()));
            } catch (...) { // CUDA failed, or the stream is in another graph
                told = false;
            }
        if (!told) // where this fails twice the device is lost: nothing runs any more
            base::try_twice([] {
                runtime::wait_for_device(any_device);
                return true;
            });
        return last;
    }

    /// Notes that the work that is enqueued on `user` so far uses the block `p`. If the pool cannot be told, `own` is made to
    /// wait for that work at once. Throws as 'add'.
    template <memory_space Space>
    static void note_last(pool_ref<Space> pool, void* p, order::placed_stream const& own, order::placed_stream const& user) {
        if (user == own)
            return;
        if (pool.has_used_on())
            return pool.last_used_on(p, user.stream);
        if (!runtime::is_legacy(user.stream) && !own.is_captured())
            runtime::require_no_capture(user.stream);
        order_after(own, user);
    }

    void swap(marked_streams& other) noexcept {
        base::swap_values(marks_, other.marks_);
        base::swap_values(told_, other.told_);
    }

private:
    base::shared<base::growing_array<order::stream_mark>> marks_; // null: none. Shared with the next block for a while, so that
                                                                  // no copy is needed
    bool told_ = true; // whether the pool was told of all marks, if it can be told
};

} // namespace detail
} // namespace v0
} // namespace weir
