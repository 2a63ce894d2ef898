// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which streams use a container's memory, whatever block that is?
//
// A container says once that another stream uses it, and grows afterwards. So the marks are the container's, and each block
// that it gets is said to be used on the same streams. A pool that can be told waits at the block's free. With another pool,
// and where the host had no memory to tell it, the container's own stream is made to wait, just before the free.
//
// invariant: every block of the container was told of, or is freed behind, all streams that are marked.
// order:     as stream_mark's: the streams live until the container's end, or what replaced its memory.
// cost:      none without a mark; with a pool that can be told, as the pool's 'used_on' for each block.
// not for:   blocks without a container: a pool notes those (order/second_uses.hpp).

#include <new>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/swap.hpp>
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
    /// Marks `user` for the container of stream `own`, whose block is `p` (null: none yet). Throws usage_error while `user` is
    /// captured, but into the graph of `own` where the pool cannot be told; what the pool's 'used_on' throws; std::bad_alloc.
    template <memory_space Space>
    void add(pool_ref<Space> pool, void* p, order::placed_stream const& own, order::placed_stream const& user) {
        if (user == own && own.is_captured())
            return; // the free is its graph's
        bool const in_graph = !pool.has_used_on() && own.is_captured();
        runtime::device_guard const there(user.device);
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

    /// Marks the same streams for a container's next block, `p`. Throws as 'add', but never std::bad_alloc: a free without host
    /// memory may lose the block.
    template <memory_space Space>
    void carry_to(marked_streams& next, pool_ref<Space> pool, void* p) const {
        next.marks_ = marks_;
        if (!marks_ || !p || !pool.has_used_on())
            return;
        for (order::stream_mark const& each : *marks_) {
            runtime::device_guard const there(each.place());
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

    /// The stream to free the block on. Where the pool was not told, that is `own`, which is made to wait for the marked
    /// streams, or one of these that is being captured, since its graph may use the block at each launch; blocks on the devices
    /// where nothing can be put after a marked stream.
    template <memory_space Space>
    stream_ref end_on(pool_ref<Space> pool, order::placed_stream const& own) const noexcept {
        stream_ref last = own.stream;
        if (!marks_ || (told_ && pool.has_used_on()))
            return last;
        bool told = true;
        for (order::stream_mark const& each : *marks_)
            try {
                bool const in_graph = own.is_captured();
                runtime::device_guard const there(each.place());
                order::stream_mark::view const found =
                    in_graph ? order::stream_mark::view{order::stream_mark::state::open, each.stream(), 0} : each.look();
                if (found.now == order::stream_mark::state::captured)
                    last = found.stream;
                else if (found.now == order::stream_mark::state::unknown)
                    told = false;
                else
                    order_after(own, order::placed_stream(found.stream, each.device()));
            } catch (...) { // CUDA failed, or it is another graph's
                told = false;
            }
        for (int tries = 0; !told && tries < 2; ++tries)
            try {
                runtime::wait_for_device(any_device);
                told = true;
            } catch (...) { // the device is lost: nothing runs any more
            }
        return last;
    }

    /// Notes that the block `p` is used by what is enqueued on `user` so far, or makes `own` wait for that now. Throws as
    /// 'add'.
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
    base::shared<base::growing_array<order::stream_mark>> marks_; // null: none. With the next block for a while, without a copy
    bool told_ = true; // the pool, of all marks, where it can be
};

} // namespace detail
} // namespace v0
} // namespace weir
