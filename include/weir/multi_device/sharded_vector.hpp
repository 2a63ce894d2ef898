// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does an array lie on several devices, since one has no room for it or since all are to work on it?
//
// Each device has a block of neighbouring elements, its shard, in a vector of its own: device 0 the first ones, the last device
// the last ones. The blocks are as equal as can be, or as you say.
//
//     weir::multi_device::sharded_vector<float> xs(pools, streams, n);
//     xs.scatter(host);
//     for (int i = 0; i < xs.devices(); ++i)
//         work<<<grid, block, 0, streams[i]>>>(xs[i].data(), xs[i].size(), xs.first(i));     // with device i current
//     std::vector<float> const result = xs.to_host_sync<std::vector>();
//
// A shard may grow and shrink like any vector. The elements behind it then have other places in the whole. 'reshard' gives
// shards other memory; who was named with 'used_on' still is.
//
// invariant: the whole is the shards in the devices' order; it has no other state.
// order:     each shard's on its device's stream. Copies between shards and whatever lies on another stream come after the
//            work of both streams so far, and before what either does next.
// cost:      'reshard': the pieces that change devices travel once, and both the old and the new shards are held until their
//            streams have done that. A shard that keeps its elements is not touched.
// not for:   elements that are dealt out in turn, or by a key: send those with kernels of yours.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/container/owned/element.hpp>
#include <weir/container/vector.hpp>
#include <weir/fwd.hpp>
#include <weir/multi_device/by_device/numbers.hpp>
#include <weir/multi_device/by_device/vectors.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// One thread at a time. `T` must be trivially copyable.
template <class T>
class sharded_vector : public detail::vectors<T> {
    using detail::vectors<T>::all_;
    using sizes_of = base::growing_array<std::size_t>;

public:
    /// `count` elements, not initialised, in blocks as equal as can be; the first ones have one more where it does not come out
    /// even. `pools[i]` and `streams[i]` are those of device i: a per_device and device_streams, or what is indexed like them.
    /// Throws usage_error if one is another device's, and as device_vector.
    template <class Pools, class Streams>
    sharded_vector(Pools& pools, Streams const& streams, std::size_t count) {
        make(pools, streams, evenly(count, runtime::device_count()));
    }
    /// `sizes[i]` elements on device i, from a list, or a std::vector, array or span of std::size_t; 0 where none are listed.
    /// Throws usage_error if there are more sizes than devices.
    template <class Pools, class Streams>
    sharded_vector(Pools& pools, Streams const& streams, std::initializer_list<std::size_t> sizes) {
        make(pools, streams, listed(sizes.begin(), sizes.size(), runtime::device_count()));
    }
    template <class Pools, class Streams, class Sizes, class = container::detail::if_holds<Sizes, std::size_t>>
    sharded_vector(Pools& pools, Streams const& streams, Sizes const& sizes) {
        make(pools, streams,
             listed(container::detail::data_of(sizes), container::detail::size_of(sizes), runtime::device_count()));
    }

    /// The number of elements of all shards.
    std::size_t size() const noexcept { return before(all_.size()); }

    /// Where the shard of a device (any_device: of the current one) begins in the whole. Throws as operator[].
    std::size_t first(int device) const { return before(detail::place_of(device, this->devices())); }

    /// The device that has the element at `index` of the whole. Throws usage_error if there is none.
    int device_of(std::size_t index) const {
        std::size_t end = 0;
        for (int i = 0; i < this->devices(); ++i)
            if (index < (end += all_[static_cast<std::size_t>(i)].size()))
                return i;
        throw usage_error("weir: there is no element " + base::number_text(index) + " in a multi_device::sharded_vector of " +
                          base::number_text(size()));
    }

    /// Copies the elements of a std::vector, array or span of T, or of a container of any device, to the shards; there are as
    /// many as the whole has. A container's work so far comes before the copies, and its later work after them; other memory
    /// of the host as in device_vector's 'assign'. Throws usage_error if there are not as many, and cuda_error; some shards may
    /// have the new elements then.
    template <class Range, class = container::detail::if_holds<Range, T>>
    void scatter(Range const& source) {
        require_size(container::detail::size_of(source), "scatter");
        T const* from = container::detail::data_of(source);
        for (device_vector<T>& each : all_) {
            if constexpr (detail::is_placed<Range>::value)
                this->copy(each.data(), each, from, source, each.size());
            else
                each.assign(from, each.size());
            from += each.size();
        }
    }

    /// Copies all elements to `target`, which has as many. A container of any device, or of pinned memory: its stream waits for
    /// the copies, and they for it. Other memory of the host must live until the shards' streams have made the copies
    /// ('synchronize'); where it is pageable, CUDA blocks. Throws as scatter.
    template <class Range, class = container::detail::if_holds<Range, T>>
    void gather_async(Range&& target) const {
        require_size(container::detail::size_of(target), "gather");
        T* to = writable(target);
        for (device_vector<T> const& each : all_) {
            if constexpr (detail::is_placed<Range>::value)
                this->copy(to, target, each.data(), each, each.size());
            else if (!each.empty())
                each.copy_to_async(to);
            to += each.size();
        }
    }
    /// Copies all elements to the host and blocks until that is done: 'xs.to_host_sync<std::vector>()'. Throws as
    /// device_vector.
    template <template <class...> class Container>
    Container<T> to_host_sync() const {
        static_assert(!std::is_same_v<T, bool>,
                      "weir: std::vector<bool> has no elements to copy to; use 'gather_async' with an array, or a vector of "
                      "unsigned char");
        Container<T> host(size());
        T* to = host.data();
        for (device_vector<T> const& each : all_) {
            each.copy_to_sync(to); // which refuses a captured stream before anybody knows the address
            to += each.size();
        }
        return host;
    }

    /// Moves elements between the devices so that device i has `sizes[i]`, listed as for the constructor; all of them together
    /// are as many as before. Does not block. Throws usage_error if they are not, as device_vector, and as a copy; then the
    /// shards are as they were.
    void reshard(std::initializer_list<std::size_t> sizes) { reshard_to(listed(sizes.begin(), sizes.size(), this->devices())); }
    template <class Sizes, class = container::detail::if_holds<Sizes, std::size_t>>
    void reshard(Sizes const& sizes) {
        reshard_to(listed(container::detail::data_of(sizes), container::detail::size_of(sizes), this->devices()));
    }
    /// The same, in blocks as equal as can be.
    void reshard_evenly() { reshard_to(evenly(size(), this->devices())); }

private:
    using spare = typename detail::resident<T>::block;

    // How many elements each device gets.
    static sizes_of evenly(std::size_t count, int devices) {
        auto const parts = static_cast<std::size_t>(devices);
        sizes_of sizes(parts);
        for (std::size_t i = 0; i < parts; ++i)
            sizes[i] = count / parts + (i < count % parts ? 1 : 0);
        return sizes;
    }
    static sizes_of listed(std::size_t const* list, std::size_t count, int devices) {
        auto const parts = static_cast<std::size_t>(devices);
        if (count > parts)
            throw usage_error("weir: a multi_device::sharded_vector was given " + base::count_text(count, " size") +
                              " for " + base::count_text(parts, " device"));
        sizes_of sizes(parts);
        for (std::size_t i = 0; i < count; ++i)
            sizes[i] = list[i];
        return sizes;
    }

    template <class Pools, class Streams>
    void make(Pools& pools, Streams const& streams, sizes_of const& sizes) {
        all_.reserve(sizes.size());
        for (std::size_t const count : sizes)
            this->add(pools, streams, count);
    }

    // The number of elements of the shards before one.
    std::size_t before(std::size_t shard) const noexcept {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < shard; ++i)
            sum += all_[i].size();
        return sum;
    }

    void require_size(std::size_t count, char const* what) const {
        if (count != size())
            throw usage_error(text("weir: '") + what + "' copies all " + base::number_text(size()) +
                              " elements of a multi_device::sharded_vector, and the other side has " +
                              base::number_text(count) + "; resize one of them");
    }

    template <class Range>
    static T* writable(Range& target) {
        return target.data();
    }
    template <std::size_t Count>
    static T* writable(T (&target)[Count]) noexcept {
        return target;
    }

    void reshard_to(sizes_of const& sizes) {
        std::size_t sum = 0;
        for (std::size_t const count : sizes)
            sum = base::add_overflows(sum, count) ? SIZE_MAX : sum + count;
        if (sum != size())
            throw usage_error("weir: 'reshard' moves all " + base::number_text(size()) +
                              " elements of a multi_device::sharded_vector, and the sizes make " + base::number_text(sum) +
                              "; list sizes that make as many");
        base::growing_array<base::shared<spare>> after; // nothing where a shard keeps its elements
        after.reserve(all_.size());
        std::size_t begin = 0; // of the new shard, in the whole
        for (std::size_t i = 0; i < all_.size(); ++i) {
            base::shared<spare> fresh;
            if (begin != before(i) || sizes[i] != all_[i].size()) {
                fresh = base::shared<spare>::make(all_[i], container::detail::element<T>::bytes_of(sizes[i]));
                fill(reinterpret_cast<T*>(fresh->data()), all_[i], begin, sizes[i]);
            }
            begin += sizes[i];
            after.push_back(std::move(fresh));
        }
        for (std::size_t i = 0; i < all_.size(); ++i)
            if (after[i])
                all_[i].take(*after[i], sizes[i]);
    }

    // Copies `count` elements of the whole, which begin at `begin`, to new memory of a shard, from whichever shards have them.
    void fill(T* to, device_vector<T> const& shard, std::size_t begin, std::size_t count) const {
        std::size_t const end = begin + count;
        std::size_t at = 0;
        for (device_vector<T> const& each : all_) {
            std::size_t const from = begin > at ? begin : at;
            std::size_t const until = end < at + each.size() ? end : at + each.size();
            if (from < until)
                this->copy(to + (from - begin), shard, each.data() + (from - at), each, until - from);
            at += each.size();
        }
    }
};

} // namespace multi_device
} // namespace v0
} // namespace weir
