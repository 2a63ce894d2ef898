// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the host learn how much kernels have added to a vector, and make room where it did not suffice?
//
// The end that kernels move on is a number in the device's memory. 'view' sets it to the vector's size, and hands it out with
// the vector's address and capacity. After the launches 'size_sync' reads it: that is how many elements there are, or would be
// if there was room. 'fill_sync' does it all: it launches, makes room where it did not suffice, and launches again.
//
//     weir::stable::append_end<float> end(kept, pool);
//     weir::stable::fill_sync(kept, end, [&](auto view) { keep_large<<<grid, block, 0, stream>>>(xs, n, view); });
//
// invariant: the vector's address stays, so a view's places are good as long as the vector lives and does not shrink.
// order:     on the vector's stream: launch there, or put the launch's stream after it ('order_after') and it after the launch.
//            Either kernels append or the host does: between 'view' and 'size_sync' the vector may not change its size.
// cost:      a copy of 8 bytes for 'view', another and a wait for 'size_sync'.
// not for:   a number of elements that is known before the launch: 'append(count)' and a kernel that fills it.

#include <cstddef>
#include <weir/container/value.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/stable/append_view.hpp>
#include <weir/stable/stable_vector.hpp>

namespace weir {
inline namespace v0 {
namespace stable {

/// The end of a vector while kernels append to it. One thread at a time.
template <class T>
class append_end {
public:
    /// `xs` must outlive this object. `pool`: where the number is, 8 bytes of memory of the vector's device. Throws what the
    /// pool's 'allocate' throws.
    append_end(stable_vector<T>& xs, pool_ref<memory_space::device> pool) : xs_(xs), end_(pool, xs.stream()) {}

    /// What kernels append with, behind the vector's elements and within its capacity. It is for work that comes after this
    /// call in the order of the vector's stream. Throws cuda_error; usage_error while the stream is captured or the vector
    /// sleeps.
    append_view<T> view() {
        xs_.require_awake();
        if (end_.stream() != xs_.stream())
            end_.set_stream(xs_.stream());
        end_.set_async(xs_.size());
        return append_view<T>(xs_.data(), xs_.capacity(), end_.data());
    }

    /// Blocks until the vector's stream is done, and makes the vector's size what kernels have added, as far as there was room.
    /// Returns how many elements there would be if all had found room: if that is more than the capacity, it did not suffice.
    /// Throws cuda_error, and usage_error while the stream is captured; the size has not changed then.
    std::size_t size_sync() {
        std::size_t const wanted = end_.value_sync();
        xs_.resize(wanted < xs_.capacity() ? wanted : xs_.capacity());
        return wanted;
    }

private:
    stable_vector<T>& xs_;
    device_value<unsigned long long> end_;
};

/// Calls launch(view), which enqueues work on the vector's stream that appends, and waits for it. If there was not enough room,
/// it makes the room that was asked for and launches again, from the size that the vector had. The work must add the same
/// number of elements each time, and read nothing that it has written. Returns how often it was launched. Throws what launch()
/// throws, what growing throws, and cuda_error; the size is what it was then.
template <class T, class Launch>
unsigned fill_sync(stable_vector<T>& xs, append_end<T>& end, Launch const& launch) {
    std::size_t const before = xs.size();
    for (unsigned launches = 1;; ++launches) {
        launch(end.view());
        std::size_t const wanted = end.size_sync();
        if (wanted <= xs.capacity())
            return launches;
        xs.resize(before);
        xs.reserve(wanted);
    }
}

} // namespace stable
} // namespace v0
} // namespace weir
