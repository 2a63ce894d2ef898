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
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/container/owned/element.hpp>
#include <weir/container/owned/pooled.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace detail {
inline void require_element(void const* element) {
    if (!element)
        throw usage_error("weir: this value was moved from and has no element; assign another to it first");
}
} // namespace detail

/// One element that kernels use. The pool may be a device, managed or pinned pool. `T` must be trivially copyable.
/// Constructors throw what the pool's 'allocate' throws, and usage_error if `stream` is the host.
template <class T>
class device_value : public detail::pooled<memory_space::device> {
    static_assert(detail::element<T>::most > 0); // using it makes the compiler check the rules for T

public:
    using value_type = T;

    /// An element that is not initialised.
    device_value(pool_ref<memory_space::device> pool, stream_ref stream)
        : detail::pooled<memory_space::device>(pool, stream, detail::element<T>::bytes_of(1), alignof(T)) {}

    /// An element that gets `value`, written on the stream.
    device_value(pool_ref<memory_space::device> pool, stream_ref stream, T const& value)
        : device_value(pool, stream) {
        set_async(value);
    }

    /// A copy of another value, of any pool and stream. It runs after the work that is enqueued on the source's stream so
    /// far, and before later work there. Throws usage_error if the source was moved from.
    device_value(pool_ref<memory_space::device> pool, stream_ref stream, device_value const& source)
        : detail::pooled<memory_space::device>(pool, stream, 0, alignof(T)) {
        source.require_element();
        bytes_.assign(source.bytes_);
    }

    /// The element's address; null if the value was moved from.
    T* data() noexcept { return reinterpret_cast<T*>(bytes_.data()); }
    T const* data() const noexcept { return reinterpret_cast<T const*>(bytes_.data()); }

    /// Overwrites the element, on the stream. Throws cuda_error; usage_error if the value was moved from or the stream is
    /// being captured.
    void set_async(T const& value) {
        require_element();
        T const here = value; // a copy on the stack: `value` itself may be in pinned memory, which CUDA would read only later
        bytes_.write_now(0, detail::element<T>::address_of(here), sizeof(T));
    }

    /// Overwrites the element with zero bytes, on the stream. Throws cuda_error; usage_error if the value was moved from.
    void zero_async() {
        require_element();
        bytes_.zero();
    }

    /// The element, read after blocking until the stream is done. Throws as 'set_async'.
    T value_sync() const {
        require_element();
        alignas(T) std::byte raw[sizeof(T)];
        bytes_.read_sync(0, raw, sizeof(T));
        return *reinterpret_cast<T const*>(raw);
    }

    /// Enqueues a copy of the element to `target`, host or device memory, which must live until the stream has made the copy.
    /// Throws cuda_error; usage_error for a null address, or if the value was moved from.
    void copy_to_async(T* target) const {
        require_element();
        bytes_.read(0, target, sizeof(T));
    }

private:
    void require_element() const { detail::require_element(data()); }
};

/// One element that the host and copy engines use. The pool may be a pinned or managed pool. `T` must be trivially copyable.
/// Constructors throw what the pool's 'allocate' throws, and usage_error if `stream` is the host.
template <class T>
class pinned_value : public detail::pooled<memory_space::pinned> {
    static_assert(detail::element<T>::most > 0); // using it makes the compiler check the rules for T

public:
    using value_type = T;

    /// An element that is not initialised.
    pinned_value(pool_ref<memory_space::pinned> pool, stream_ref stream)
        : detail::pooled<memory_space::pinned>(pool, stream, detail::element<T>::bytes_of(1), alignof(T)) {}

    /// An element that gets `value`, written by the host at once.
    pinned_value(pool_ref<memory_space::pinned> pool, stream_ref stream, T const& value)
        : pinned_value(pool, stream) {
        bytes_.write(0, detail::element<T>::address_of(value), sizeof(T));
    }

    /// A copy of another value, of any pool, made by the host at once: first finish the work that writes the source
    /// ('synchronize(source.stream())'). Throws usage_error if the source was moved from.
    pinned_value(pool_ref<memory_space::pinned> pool, stream_ref stream, pinned_value const& source)
        : pinned_value(pool, stream) {
        detail::require_element(source.data());
        bytes_.write(0, source.data(), sizeof(T));
    }

    /// The element's address; null if the value was moved from.
    T* data() noexcept { return reinterpret_cast<T*>(bytes_.data()); }
    T const* data() const noexcept { return reinterpret_cast<T const*>(bytes_.data()); }

    /// The element. The value must not have been moved from.
    T& operator*() noexcept { return *data(); }
    T const& operator*() const noexcept { return *data(); }
    T* operator->() noexcept { return data(); }
    T const* operator->() const noexcept { return data(); }
};

} // namespace v0
} // namespace weir
