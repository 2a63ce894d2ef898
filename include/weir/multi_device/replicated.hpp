// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do several devices have the same elements, each in its own memory?
//
// A vector a device, of one size. Each device's kernels read their own; what one of them changed, 'broadcast_async' copies to
// the others.
//
//     weir::multi_device::per_device<weir::device_pool> pools;
//     weir::multi_device::device_streams const streams;
//     weir::multi_device::replicated<float> weights(pools, streams, n);
//     weights.assign(host_weights);
//     for (int i = 0; i < weights.devices(); ++i)
//         use<<<grid, block, 0, streams[i]>>>(weights[i].data());          // with device i current
//
// order:     each vector's on its device's stream. A copy to another device comes after the work of both streams so far, and
//            before what either does next.
// cost:      'broadcast_async': a copy to each other device, all from one; see multi_device/route.hpp for the way they take.
// not for:   sums over devices, which take a collective library: NCCL reads and writes 'weights[i].data()'.

#include <cstddef>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/container/vector.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// One thread at a time. `T` must be trivially copyable.
template <class T>
class replicated {
public:
    /// `count` elements on each device, not initialised. `pools[i]` and `streams[i]` are those of device i: a per_device and
    /// device_streams, or what is indexed like them. Throws as device_vector.
    template <class Pools, class Streams>
    replicated(Pools& pools, Streams const& streams, std::size_t count) {
        int const devices = runtime::device_count();
        copies_.reserve(static_cast<std::size_t>(devices));
        for (int i = 0; i < devices; ++i)
            copies_.push_back(device_vector<T>(pools[i], streams[i], count));
    }
    /// Copies of a std::vector, array or span of T, or of a container.
    template <class Pools, class Streams, class Range, class = container::detail::if_holds<Range, T>>
    replicated(Pools& pools, Streams const& streams, Range const& source)
        : replicated(pools, streams, container::detail::size_of(source)) {
        assign(source);
    }

    /// The number of elements on each device.
    std::size_t size() const noexcept { return copies_.empty() ? 0 : copies_[0].size(); }
    int devices() const noexcept { return static_cast<int>(copies_.size()); }

    /// The elements of a device. Leave their number as it is: 'resize' of this object changes it everywhere.
    device_vector<T>& operator[](int device) { return copies_[index_of(device)]; }
    device_vector<T> const& operator[](int device) const { return copies_[index_of(device)]; }

    /// Makes the size `count` on each device; added elements are not initialised. If a device has no room, all keep their size.
    void resize(std::size_t count) {
        for (device_vector<T>& each : copies_)
            each.reserve(count);
        for (device_vector<T>& each : copies_)
            each.resize(count); // which asks no pool any more
    }

    /// Replaces the elements on each device by those of a std::vector, array or span of T, or of a container. See
    /// device_vector's 'assign'. If it throws, some devices may have the new elements.
    template <class Range, class = container::detail::if_holds<Range, T>>
    void assign(Range const& source) {
        for (device_vector<T>& each : copies_)
            each.reserve(container::detail::size_of(source));
        for (device_vector<T>& each : copies_)
            each.assign(source);
    }

    /// Copies the elements of device `from` to all others. Throws usage_error if there is no such device or the vectors' sizes
    /// differ, cuda_error; some devices may have the new elements then.
    void broadcast_async(int from) {
        std::size_t const at = index_of(from);
        for (device_vector<T> const& each : copies_)
            if (each.size() != copies_[at].size())
                throw usage_error("weir: the copies of a multi_device::replicated have different sizes, " +
                                  base::number_text(each.size()) + " and " + base::number_text(copies_[at].size()) +
                                  " elements; resize the whole object instead of one device's vector");
        for (device_vector<T>& each : copies_)
            if (&each != &copies_[at])
                each.assign(copies_[at]);
    }

    /// Blocks until the streams of all vectors are done. Throws cuda_error.
    void synchronize() const {
        for (device_vector<T> const& each : copies_) {
            runtime::device_scope const there(each.pool().device()); // the stream may be its default stream
            weir::synchronize(each.stream());
        }
    }

    /// Overwrites all elements with zero bytes, on the streams. Does not block.
    void zero_async() {
        for (device_vector<T>& each : copies_)
            each.zero_async();
    }

private:
    static std::size_t index_of(int device) {
        return static_cast<std::size_t>(runtime::existing_device(device));
    }

    base::growing_array<device_vector<T>> copies_;
};

} // namespace multi_device
} // namespace v0
} // namespace weir
