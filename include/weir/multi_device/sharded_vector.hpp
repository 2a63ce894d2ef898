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
// A shard may grow and shrink like any vector. The elements behind it then have other places in the whole.
//
// invariant: the whole is the shards in the devices' order; it has no other state.
// order:     each shard's on its device's stream. Copies between shards and whatever lies on another stream come after the
//            work of both streams so far, and before what either does next.
// cost:      'reshard': the pieces that change devices travel once, and both the old and the new shards are held until their
//            streams have done that. A shard that keeps its elements is not touched.
// not for:   elements that are dealt out in turn, or by a key: send those with kernels of yours.

#include <cstddef>
#include <initializer_list>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/container/vector.hpp>
#include <weir/fwd.hpp>
#include <weir/order/ordered_copy.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// One thread at a time. `T` must be trivially copyable.
template <class T>
class sharded_vector {
public:
    /// `count` elements, not initialised, in blocks as equal as can be; the first ones have one more where it does not come out
    /// even. `pools[i]` and `streams[i]` are those of device i: a per_device and device_streams, or what is indexed like them.
    /// Throws as device_vector.
    template <class Pools, class Streams>
    sharded_vector(Pools& pools, Streams const& streams, std::size_t count) {
        make(pools, streams, evenly(count, runtime::device_count()));
    }
    /// `sizes[i]` elements on device i; 0 where none are listed. Throws usage_error if there are more sizes than devices.
    template <class Pools, class Streams>
    sharded_vector(Pools& pools, Streams const& streams, std::initializer_list<std::size_t> sizes) {
        make(pools, streams, listed(sizes, runtime::device_count()));
    }

    /// The number of elements of all shards.
    std::size_t size() const noexcept { return first(devices()); }
    int devices() const noexcept { return static_cast<int>(shards_.size()); }

    /// The shard of a device. Throws usage_error if there is no such device.
    device_vector<T>& operator[](int device) { return shards_[static_cast<std::size_t>(runtime::existing_device(device))]; }
    device_vector<T> const& operator[](int device) const {
        return shards_[static_cast<std::size_t>(runtime::existing_device(device))];
    }
    /// Where a device's shard begins in the whole.
    std::size_t first(int device) const noexcept {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(device); ++i)
            sum += shards_[i].size();
        return sum;
    }
    /// The device that has the element at `index` of the whole. Throws usage_error if there is none.
    int device_of(std::size_t index) const {
        for (int i = 0; i < devices(); ++i)
            if (index < first(i + 1))
                return i;
        throw usage_error("weir: there is no element " + base::number_text(index) + " in a multi_device::sharded_vector of " +
                          base::number_text(size()));
    }

    /// Copies the elements of a std::vector, array or span of T, or of a device_vector on any device, to the shards; there are
    /// as many as the whole has. Host memory as in device_vector's 'assign'. Throws usage_error if there are not as many, and
    /// as 'assign'; some shards may have the new elements then.
    template <class Range, class = container::detail::if_holds<Range, T>>
    void scatter(Range const& source) {
        require_size(container::detail::size_of(source), "scatter");
        for (int i = 0; i < devices(); ++i)
            copy_part((*this)[i], source, first(i));
    }

    /// Copies all elements to `target`, which has as many: memory of the host, or a device_vector on any device, in the order
    /// of its stream. Host memory must live until the shards' streams have made the copies; where it is pageable, CUDA blocks.
    /// Throws as scatter.
    template <class Range, class = container::detail::if_holds<Range, T>>
    void gather_async(Range&& target) const {
        require_size(container::detail::size_of(target), "gather");
        for (int i = 0; i < devices(); ++i)
            copy_all((*this)[i], target, first(i));
    }
    /// Copies all elements to the host and blocks until that is done: 'xs.to_host_sync<std::vector>()'. Throws as
    /// device_vector.
    template <template <class...> class Container>
    Container<T> to_host_sync() const {
        Container<T> host(size());
        for (int i = 0; i < devices(); ++i)
            (*this)[i].copy_to_async(host.data() + first(i));
        synchronize();
        return host;
    }

    /// Blocks until the streams of all shards are done. Throws cuda_error.
    void synchronize() const {
        for (device_vector<T> const& each : shards_) {
            runtime::device_scope const there(each.pool().device()); // the stream may be its default stream
            weir::synchronize(each.stream());
        }
    }

    /// Overwrites all elements with zero bytes, on the streams. Does not block.
    void zero_async() {
        for (device_vector<T>& each : shards_)
            each.zero_async();
    }

    /// Moves elements between the devices so that device i has `sizes[i]`; all of them together are as many as before. Does not
    /// block. Throws usage_error if they are not, as device_vector, and as a copy; then the shards are as they were.
    void reshard(std::initializer_list<std::size_t> sizes) { reshard_to(listed(sizes, devices())); }
    /// The same, in blocks as equal as can be.
    void reshard_evenly() { reshard_to(evenly(size(), devices())); }

private:
    // How many elements each device gets.
    static base::growing_array<std::size_t> evenly(std::size_t count, int devices) {
        auto const parts = static_cast<std::size_t>(devices);
        base::growing_array<std::size_t> sizes(parts);
        for (std::size_t i = 0; i < parts; ++i)
            sizes[i] = count / parts + (i < count % parts ? 1 : 0);
        return sizes;
    }
    static base::growing_array<std::size_t> listed(std::initializer_list<std::size_t> list, int devices) {
        auto const parts = static_cast<std::size_t>(devices);
        if (list.size() > parts)
            throw usage_error("weir: a multi_device::sharded_vector was given " + base::count_text(list.size(), " size") +
                              " for " + base::count_text(parts, " device"));
        base::growing_array<std::size_t> sizes(parts);
        for (std::size_t i = 0; i < list.size(); ++i)
            sizes[i] = list.begin()[i];
        return sizes;
    }

    template <class Pools, class Streams>
    void make(Pools& pools, Streams const& streams, base::growing_array<std::size_t> const& sizes) {
        shards_.reserve(sizes.size());
        int device = 0;
        for (std::size_t const count : sizes) {
            shards_.push_back(device_vector<T>(pools[device], streams[device], count));
            ++device;
        }
    }

    void require_size(std::size_t count, char const* what) const {
        if (count != size())
            throw usage_error(text("weir: '") + what + "' copies all " + base::number_text(size()) +
                              " elements of a multi_device::sharded_vector, and the other side has " +
                              base::number_text(count) + "; resize one of them");
    }

    // Copies `count` elements between two vectors, in the order of both streams.
    static void copy(device_vector<T>& to, std::size_t at, device_vector<T> const& from, std::size_t begin, std::size_t count) {
        order::copy_in_order(to.data() + at, place_of(to), to.placed(), from.data() + begin, place_of(from), from.placed(),
                             count * sizeof(T));
    }
    static int place_of(device_vector<T> const& of) {
        return of.pool().space() == memory_space::device ? of.pool().device() : any_device;
    }

    // Fills a shard from the elements of the whole that begin at `begin`.
    static void copy_part(device_vector<T>& shard, device_vector<T> const& source, std::size_t begin) {
        copy(shard, 0, source, begin, shard.size());
    }
    template <class Range>
    static void copy_part(device_vector<T>& shard, Range const& source, std::size_t begin) {
        shard.assign(container::detail::data_of(source) + begin, shard.size());
    }
    static void copy_all(device_vector<T> const& shard, device_vector<T>& target, std::size_t begin) {
        copy(target, begin, shard, 0, shard.size());
    }
    template <class Range>
    static void copy_all(device_vector<T> const& shard, Range& target, std::size_t begin) {
        if (shard.size() != 0)
            shard.copy_to_async(target.data() + begin);
    }

    void reshard_to(base::growing_array<std::size_t> const& sizes) {
        std::size_t sum = 0;
        for (std::size_t const count : sizes)
            sum += count;
        require_size(sum, "reshard");
        base::growing_array<device_vector<T>> after;
        after.reserve(shards_.size());
        std::size_t begin = 0; // of shard i, in the whole
        for (std::size_t i = 0; i < shards_.size(); ++i) {
            bool const stays = begin == first(static_cast<int>(i)) && sizes[i] == shards_[i].size();
            device_vector<T> fresh(shards_[i].pool(), shards_[i].stream(), stays ? 0 : sizes[i]);
            if (!stays)
                fill(fresh, begin);
            begin += sizes[i];
            after.push_back(std::move(fresh));
        }
        for (std::size_t i = 0; i < shards_.size(); ++i)
            if (after[i].size() == sizes[i]) // else it stays
                shards_[i] = std::move(after[i]);
    }

    // Copies the elements of the whole that begin at `begin` from whichever shards have them.
    void fill(device_vector<T>& to, std::size_t begin) const {
        std::size_t const end = begin + to.size();
        std::size_t at = 0;
        for (device_vector<T> const& each : shards_) {
            std::size_t const from = begin > at ? begin : at;
            std::size_t const until = end < at + each.size() ? end : at + each.size();
            if (from < until)
                copy(to, from - begin, each, from - at, until - from);
            at += each.size();
        }
    }

    base::growing_array<device_vector<T>> shards_;
};

} // namespace multi_device
} // namespace v0
} // namespace weir
