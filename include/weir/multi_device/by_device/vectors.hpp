// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do containers of several devices have in common: a vector on each device?
//
// The vectors stand in the devices' order. Each is made of the pool and the stream of its device, and works there, whichever
// device is current. sharded_vector and replicated add what the vectors' elements are to one another.
//
// invariant: vector i has memory of device i, or of no device alone (managed, pinned), and a stream of device i.
// order:     each vector's on its stream. A copy between a vector and a container that has a stream comes after the work of
//            both streams so far, and before what either does next.
// cost:      making: a question to CUDA for each stream. A copy between two devices: also four to six of 'last_route'.
// not for:   host memory, which has no stream: the vectors' own 'assign' and 'copy_to_async' copy it.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/container/owned/pooled.hpp>
#include <weir/container/vector.hpp>
#include <weir/fwd.hpp>
#include <weir/multi_device/by_device/copy_route.hpp>
#include <weir/multi_device/by_device/numbers.hpp>
#include <weir/order/ordered_copy.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device::detail {

// Whether a range says on which stream its elements are used, as containers do.
template <class Range, class = void>
struct is_placed : std::false_type {};
template <class Range>
struct is_placed<Range, std::void_t<decltype(std::declval<Range const&>().placed())>> : std::true_type {};

template <class Parts, class = void>
struct has_size : std::false_type {};
template <class Parts>
struct has_size<Parts, std::void_t<decltype(std::declval<Parts&>().size())>> : std::true_type {};

/// What the caller named for a device: 'of[device]'. Throws usage_error if `of` says by 'size()' that there is none.
template <class Parts>
decltype(auto) named_for(int device, Parts& of, char const* what) {
    if constexpr (has_size<Parts>::value) {
        auto const count = static_cast<std::size_t>(of.size());
        if (static_cast<std::size_t>(device) >= count)
            throw usage_error(text("weir: ") + what + " were named for " + base::count_text(count, " device") +
                              ", and CUDA sees more; name one for each, or hide the others (CUDA_VISIBLE_DEVICES)");
        return of[static_cast<decltype(of.size())>(device)];
    } else {
        return of[device];
    }
}

/// A vector that can take another block and stay the same vector: who was named with 'used_on' still is.
template <class T>
class resident : public device_vector<T> {
public:
    using device_vector<T>::device_vector;
    /// A block that the vector may take instead of its own; see 'pooled'.
    using block = typename container::detail::pooled<memory_space::device>::spare_block;

    void take(block& fresh, std::size_t count) noexcept { this->replace_block(fresh, count * sizeof(T)); }
};

/// One thread at a time.
template <class T>
class vectors {
public:
    vectors(vectors&&) noexcept = default;
    vectors& operator=(vectors&&) noexcept = default;
    vectors(vectors const&) = delete; // weir: make another one of the same pools and streams, and copy device by device
    vectors& operator=(vectors const&) = delete; // weir: copy device by device: 'xs[i].assign(ys[i])'

    int devices() const noexcept { return static_cast<int>(all_.size()); }

    /// The vector of a device; any_device: of the current one. Throws usage_error if there is no such device, or this was moved
    /// from; cuda_error.
    device_vector<T>& operator[](int device) { return all_[detail::place_of(device, devices())]; }
    device_vector<T> const& operator[](int device) const { return all_[detail::place_of(device, devices())]; }

    /// Blocks until the streams of all vectors are done, also if one of them fails. Throws cuda_error, and usage_error if one
    /// is captured.
    void synchronize() const {
        detail::visit_all(0, devices(), [this](int i) {
            order::placed_stream const& its = all_[static_cast<std::size_t>(i)].placed();
            runtime::device_scope const there(its.device); // it may be a default stream
            weir::synchronize(its.stream);
        });
    }

    /// The way that the last copy took that this object made from memory of device `from` to memory of device `to`: between two
    /// of its vectors, or one of them and another container. Throws as operator[].
    copy_route last_route(int from, int to) const {
        std::size_t const source = detail::place_of(from, devices()), target = detail::place_of(to, devices());
        return routes_.empty() ? copy_route::no_copy : routes_[source * all_.size() + target];
    }

    /// Overwrites all elements with zero bytes, on the streams. Does not block.
    void zero_async() {
        for (device_vector<T>& each : all_)
            each.zero_async();
    }

protected:
    vectors() noexcept = default;
    ~vectors() = default;

    /// Adds the vector of the next device. Throws usage_error if the pool or the stream is another device's, and as
    /// device_vector.
    template <class Pools, class Streams>
    void add(Pools& pools, Streams const& streams, std::size_t count) {
        int const device = devices();
        runtime::device_scope const there(device); // a default stream on memory of no device is this device's
        pool_ref<memory_space::device> const pool = detail::named_for(device, pools, "pools");
        if (int const of = device_of(pool); of != any_device && of != device)
            throw usage_error("weir: the pool that was named for device " +
                              base::number_text(static_cast<std::size_t>(device)) + " has memory of device " +
                              base::number_text(static_cast<std::size_t>(of)) + "; 'pools[i]' has to be a pool of device i");
        stream_ref const stream = detail::named_for(device, streams, "streams");
        detail::require_stream_of(device, stream);
        all_.push_back(resident<T>(pool, stream, count));
    }

    /// Copies `count` elements between memory of two containers, in the order of both streams. Throws std::bad_alloc before it
    /// copies.
    template <class To, class From>
    void copy(T* to, To const& target, T const* from, From const& source, std::size_t count) const {
        int const here = device_of(target.pool()), there = device_of(source.pool());
        if (routes_.empty())
            routes_.resize(all_.size() * all_.size());
        order::copy_in_order(to, here, target.placed(), from, there, source.placed(), count * sizeof(T));
        if (count != 0 && here != any_device && there != any_device)
            routes_[static_cast<std::size_t>(there) * all_.size() + static_cast<std::size_t>(here)] =
                access_.route_of(to, here, from, there);
    }

    base::growing_array<resident<T>> all_;

private:
    mutable base::growing_array<copy_route> routes_; // from each device to each; nothing before the first copy
    mapped_access access_;

    // The device that a pool's memory lies on; any_device: on none alone.
    static int device_of(pool_ref<memory_space::device> pool) {
        return pool.space() == memory_space::device ? pool.device() : any_device;
    }
    static int device_of(pool_ref<memory_space::pinned>) { return any_device; }
    template <class Pages>
    static int device_of(Pages const& pages) {
        return pages.device();
    }
};

} // namespace multi_device::detail
} // namespace v0
} // namespace weir
