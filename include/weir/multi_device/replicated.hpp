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
// invariant: a device's elements stay where they are until the size grows beyond the capacity.
// order:     each vector's on its device's stream. A copy to another device comes after the work of both streams so far, and
//            before what either does next.
// cost:      'broadcast_async': a copy to each other device, all from one; see multi_device/route.hpp for the way they take.
// not for:   sums over devices, which take a collective library: NCCL reads and writes 'weights[i].data()'.

#include <cstddef>
#include <weir/base/error.hpp>
#include <weir/base/text.hpp>
#include <weir/container/vector.hpp>
#include <weir/fwd.hpp>
#include <weir/multi_device/by_device/vectors.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// One thread at a time. `T` must be trivially copyable.
template <class T>
class replicated : public detail::vectors<T> {
    using detail::vectors<T>::all_;

public:
    /// `count` elements on each device, not initialised. `pools[i]` and `streams[i]` are those of device i: a per_device and
    /// device_streams, or what is indexed like them. Throws usage_error if one is another device's, and as device_vector.
    template <class Pools, class Streams>
    replicated(Pools& pools, Streams const& streams, std::size_t count) {
        int const devices = runtime::device_count();
        all_.reserve(static_cast<std::size_t>(devices));
        for (int i = 0; i < devices; ++i)
            this->add(pools, streams, count);
    }
    /// Copies of a std::vector, array or span of T, or of a container.
    template <class Pools, class Streams, class Range, class = container::detail::if_holds<Range, T>>
    replicated(Pools& pools, Streams const& streams, Range const& source)
        : replicated(pools, streams, container::detail::size_of(source)) {
        assign(source);
    }

    /// The number of elements on each device. Leave that of a device's vector, 'xs[i]', as it is: 'resize' of this object
    /// changes it everywhere.
    std::size_t size() const noexcept { return all_.empty() ? 0 : all_[0].size(); }

    /// Makes the size `count` on each device; added elements are not initialised. If a device has no room, all keep their size.
    void resize(std::size_t count) {
        for (device_vector<T>& each : all_)
            each.reserve(count);
        for (device_vector<T>& each : all_)
            each.resize(count); // which asks no pool any more
    }

    /// Replaces the elements on each device by those of a std::vector, array or span of T, or of a container of any device. A
    /// container's work so far comes before the copies, and its later work after them; host memory as in device_vector's
    /// 'assign'. Throws as 'resize', and then nothing has changed; or cuda_error, and then the sizes are the new ones, and the
    /// elements of some devices are not.
    template <class Range, class = container::detail::if_holds<Range, T>>
    void assign(Range const& source) {
        T const* const data = container::detail::data_of(source);
        std::size_t const count = container::detail::size_of(source);
        base::require_not_null(data, count);
        resize(count);
        for (device_vector<T>& each : all_)
            if constexpr (detail::is_placed<Range>::value) {
                if (each.data() != data)
                    this->copy(each.data(), each, data, source, count);
            } else {
                each.assign(data, count);
            }
    }

    /// Copies the elements of device `from` (any_device: of the current one) to all others, in place. Throws usage_error if
    /// there is no such device or the vectors' sizes differ, cuda_error; some devices may have the new elements then.
    void broadcast_async(int from) {
        device_vector<T> const& source = (*this)[from];
        for (device_vector<T> const& each : all_)
            if (each.size() != source.size())
                throw usage_error("weir: the copies of a multi_device::replicated have different sizes, " +
                                  base::number_text(each.size()) + " and " + base::number_text(source.size()) +
                                  " elements; resize the whole object instead of one device's vector");
        for (device_vector<T>& each : all_)
            if (&each != &source)
                this->copy(each.data(), each, source.data(), source, source.size());
    }
};

} // namespace multi_device
} // namespace v0
} // namespace weir
