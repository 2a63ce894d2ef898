// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What owns a single element of a pool?
//
// 'device_value<T>' is for the result of a reduction, a counter that kernels add to, or a flag. 'pinned_value<T>' is its
// counterpart in host memory: a copy engine or a kernel leaves a result there for the host to read.
//
//     weir::device_value<int> count(pool, stream, 0);
//     tally<<<grid, block, 0, stream>>>(xs.data(), xs.size(), count.data());
//     int const n = count.value_sync();
//
// invariant: T is trivially copyable; a value has an element until it is moved from, and none afterwards.
// order:     see 'pooled'. Device: the element is set and read in the order of its stream. Pinned: the host accesses the
//            element at once, so first finish work in flight that uses it ('synchronize(value.stream())').
// cost:      one block of the pool for each value. The smallest block has the pool's grain (256 bytes and more for recipes of
//            device memory).
// not for:   many elements: see vector.

#include <cstddef>
#include <weir/base/call_site.hpp>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/container/owned/contents.hpp>
#include <weir/container/owned/element.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace container::detail {

/// What both kinds of value share. Constructors throw what the pool's 'allocate' throws, and usage_error if `stream` is the
/// host. `where`: the line that asks, for layer::record.
template <class T, memory_space Space>
class one_element : public contents<Space> {
    static_assert(element<T>::most > 0); // using it makes the compiler check the rules for T

public:
    using value_type = T;

    /// An element that is not initialised.
    one_element(pool_ref<Space> pool, stream_ref stream, call_site const& where = call_site::here())
        : contents<Space>(pool, stream, sizeof(T), alignof(T), where) {}

    /// An element that gets `value`. A device value is written on the stream, a pinned one by the host at once.
    one_element(pool_ref<Space> pool, stream_ref stream, T const& value, call_site const& where = call_site::here())
        : one_element(pool, stream, where) {
        this->write_value(0, value);
    }

    /// A copy of another value, of any pool and stream. A device value's copy runs after the work that is enqueued on the
    /// source's stream so far, and before later work there. A pinned value's copy is made by the host at once: first finish
    /// the work that writes the source ('synchronize(source.stream())'). Throws usage_error if the source was moved from.
    one_element(pool_ref<Space> pool, stream_ref stream, one_element const& source,
                call_site const& where = call_site::here())
        : contents<Space>(pool, stream, (source.require_element(), sizeof(T)), alignof(T), where) {
        this->copy_in_order(data(), contents_source(source));
    }

    /// Refused: the stream in front of the pool.
    template <class Stream, class Pool, class... More, class = if_turned<Stream, Pool>>
    one_element(Stream const& stream, Pool& pool, More const&...) : one_element(pool, stream) {
        refuse_turned<Stream>();
    }

    /// The element's address; null if the value was moved from.
    T* data() noexcept { return reinterpret_cast<T*>(this->block_.data); }
    T const* data() const noexcept { return reinterpret_cast<T const*>(this->block_.data); }

protected:
    one_element(one_element&&) noexcept = default;
    one_element& operator=(one_element&&) noexcept = default;
    ~one_element() = default;

    void require_element() const {
        if (!data())
            throw usage_error("weir: this value was moved from and has no element; assign another to it first");
    }
};

} // namespace container::detail

/// One element that kernels use. The pool may be a device, managed or pinned pool. `T` must be trivially copyable.
template <class T>
class device_value : public container::detail::one_element<T, memory_space::device> {
public:
    using container::detail::one_element<T, memory_space::device>::one_element;

    /// Overwrites the element, on the stream. Throws cuda_error; usage_error if the value was moved from or the stream is
    /// being captured.
    void set_async(T const& value) {
        this->require_element();
        this->write_value(0, value);
    }

    /// Overwrites the element with zero bytes, on the stream. Throws cuda_error; usage_error if the value was moved from.
    void zero_async() {
        this->require_element();
        this->zero_bytes();
    }

    /// The element, read after blocking until the stream is done. Throws as 'set_async'.
    T value_sync() const {
        this->require_element();
        return this->template value_sync_at<T>(0);
    }

    /// Enqueues a copy of the element to `target`, host or device memory, which must live until the stream has made the copy.
    /// Throws cuda_error; usage_error for a null address, or if the value was moved from.
    void copy_to_async(T* target) const {
        this->require_element();
        this->read(0, target, sizeof(T));
    }
};

/// One element that the host and copy engines use. The pool may be a pinned or managed pool. `T` must be trivially copyable.
template <class T>
class pinned_value : public container::detail::one_element<T, memory_space::pinned> {
public:
    using container::detail::one_element<T, memory_space::pinned>::one_element;

    /// The element. The value must not have been moved from.
    T& operator*() noexcept { return *this->data(); }
    T const& operator*() const noexcept { return *this->data(); }
    T* operator->() noexcept { return this->data(); }
    T const* operator->() const noexcept { return this->data(); }
};

// 'device_value x(pool, stream, 5)' is a value of int.
template <class T>
device_value(pool_ref<memory_space::device>, stream_ref, T const&) -> device_value<T>;
template <class T>
device_value(pool_ref<memory_space::device>, stream_ref, device_value<T> const&) -> device_value<T>;
template <class T>
pinned_value(pool_ref<memory_space::pinned>, stream_ref, T const&) -> pinned_value<T>;
template <class T>
pinned_value(pool_ref<memory_space::pinned>, stream_ref, pinned_value<T> const&) -> pinned_value<T>;

} // namespace v0
} // namespace weir
