// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the host learn how much kernels have added to a vector, and make room where it did not suffice?
//
// The end that kernels move on is a number in the device's memory. 'view' sets it to the vector's size, and hands it out with
// the vector's address and capacity. After the launches 'size_sync' reads it: that is how many elements there are, or would be
// if the view had room for them. 'fill_sync' does it all: it launches, makes room where it did not suffice, and launches again.
//
//     weir::stable::append_end<float> end(kept, pool);
//     weir::stable::fill_sync(kept, end, [&](auto view) { keep_large<<<grid, block, 0, stream>>>(xs, n, view); });
//
// invariant: the vector's address stays, so a view's places are good as long as the vector lives and does not shrink.
// invariant: 'size_sync' counts no element for which the view had no room, whatever room the vector has by then.
// invariant: once the vector is gone, views find no room; in debug builds also once this object is, and they say so (see
//            append_view).
// order:     on the vector's stream: launch there, or put the launch's stream after it ('order_after') and it after the launch.
//            The vector's stream may change at any time ('set_stream'): the number follows it. Either kernels append or the
//            host does: between 'view' and 'size_sync' the vector may get more capacity; its size and its pages stay.
// cost:      a copy of 8 bytes for 'view', another and a wait for 'size_sync'; in debug builds one more at the end.
// not for:   a number of elements that is known before the launch: 'append(count)' and a kernel that fills it.

#include <cstddef>
#include <weir/base/error.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/container/value.hpp>
#include <weir/fwd.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/stable/append_view.hpp>
#include <weir/stable/mapped/view_list.hpp>
#include <weir/stable/stable_vector.hpp>

namespace weir {
inline namespace v0 {
namespace stable {

/// The end of a vector while kernels append to it. One thread at a time.
template <class T>
class append_end final : private detail::view_owner {
public:
    /// `xs` must outlive this object, and may not be moved from: then 'view' and 'size_sync' throw usage_error, and views that
    /// are used find no room. `pool`: where the number is, 8 bytes of memory that the vector's device reaches. Throws what the
    /// pool's 'allocate' throws.
    append_end(stable_vector<T>& xs, pool_ref<memory_space::device> pool) : append_end(xs, pool, on_device_of(xs)) {}
    append_end(append_end&&) noexcept = default;
    /// The number is freed behind the work that is on the vector's stream.
    ~append_end() {
        if (!has_container())
            return;
        if (WEIR_GUARD && room_ != none)
            close();
        else
            base::try_twice([this] { return follow(), true; });
    }

    /// What kernels append with, behind the vector's elements and within its capacity. It is for work that comes after this
    /// call in the order of the vector's stream. Throws cuda_error; usage_error while the stream is captured or the vector
    /// sleeps, and if the vector is gone.
    append_view<T> view() {
        require_vector();
        follow();
        end_.set_async(xs_->size());
        room_ = xs_->capacity();
        return append_view<T>(xs_->data(), room_, end_.data());
    }

    /// Blocks until the vector's stream is done, and makes the vector's size what kernels have added, as far as the view had
    /// room; what a refused 'take(count)' left empty is among that. Returns how many elements there would be if all had found
    /// room: if that is more than the size, it did not suffice. Throws cuda_error; usage_error while the stream is captured,
    /// while the vector sleeps, if there was no 'view', and if the vector is gone; the size has not changed then.
    std::size_t size_sync() {
        require_vector();
        if (room_ == none)
            throw usage_error("weir: an append_end has nothing to read before kernels got a 'view'");
        follow();
        std::size_t const wanted = end_.value_sync();
        xs_->resize(wanted < room_ ? wanted : room_);
        return wanted;
    }

    /// Whether this is the end of `xs`.
    bool is_of(stable_vector<T> const& xs) const noexcept { return has_container() && &xs == xs_; }

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    append_end(stable_vector<T>& xs, pool_ref<memory_space::device> pool, runtime::device_scope const&)
        : detail::view_owner(static_cast<detail::mapped_span&>(xs).views_), xs_(&xs), end_(pool, xs.stream()) {}

    // Memory that lies on no device takes a default stream for that of the current device.
    static runtime::device_scope on_device_of(stable_vector<T> const& xs) { return runtime::device_scope(xs.pool().device()); }

    void require_vector() const {
        if (!has_container())
            throw usage_error("weir: the stable_vector of this append_end has ended, or was moved from; make an append_end "
                              "after its vector, so that it ends first, and another one for a vector that has moved");
        xs_->require_awake();
    }

    void follow() {
        int const device = xs_->pool().device();
        runtime::device_scope const there(device);
        if (end_.placed() != order::placed_stream(xs_->stream(), device))
            end_.set_stream(xs_->stream());
    }

    // From here on no view has room. In a capture, and where CUDA refuses, the views stay as they are.
    void close() noexcept {
        base::try_twice([this] {
            follow();
            return end_.set_async(append_view<T>::gone), true;
        });
    }
    void container_ends() noexcept override {
        if (room_ != none)
            close();
    }

    stable_vector<T>* xs_; // while it has a container
    device_value<unsigned long long> end_;
    std::size_t room_ = none; // of the last view
};

/// Calls launch(view), which enqueues work on the vector's stream that appends, and waits for it. If there was not enough room,
/// it makes the room that was asked for and launches again, from the size that the vector had. The work must add the same
/// number of elements each time, and read nothing that it has written. Returns how often it was launched. Throws what launch()
/// throws, what growing throws, and cuda_error; usage_error if `end` is another vector's; the size is what it was then.
template <class T, class Launch>
unsigned fill_sync(stable_vector<T>& xs, append_end<T>& end, Launch const& launch) {
    if (!end.is_of(xs))
        throw usage_error("weir: 'fill_sync' got one vector and the append_end of another; make an append_end of this one");
    std::size_t const before = xs.size();
    for (unsigned launches = 1;; ++launches) {
        launch(end.view());
        std::size_t const wanted = end.size_sync();
        if (wanted == xs.size())
            return launches;
        xs.resize(before);
        xs.reserve(wanted);
    }
}

} // namespace stable
} // namespace v0
} // namespace weir
