// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do numbers that take fewer bits on the device, or on their way, get there and back in one pass?
//
// They pass through a pinned_ring, and what lies in its slots is as stored: half the bytes for float kept as __half. The
// threads that would copy between ordinary memory and a slot convert instead. Where the elements are on the device, a kernel
// converts them as it writes into the slot, or straight into page-locked memory.
//
//     weir::stored_vector<float, __half> xs(pool, stream, floats.size());
//     staging::copy_converted_to_device_async(ring, stream, xs.view(), floats.data(), floats.size());
//     staging::copy_converted_to_host_async(ring, stream, floats.data(), xs.view(), floats.size()).wait();
//     staging::copy_stored_to_host_async(ring, stream, halves_on_the_host, device_floats, count,   // a weir::converting_view
//                                        converting::converting_kernel{}).wait();                     // converting_kernel.cuh
//
// See 'converting_view' for what a conversion does.
//
// order:     as in copy.hpp: after what is on the stream, and before what is enqueued later.
// cost:      as in copy.hpp, for the bytes as stored. The host converts float to half about as fast as it copies (with F16C),
//            and other formats at several GB/s a thread: give the ring threads.
// not for:   elements that lie on the device and are stored there: a kernel with a converting_view.

#include <cstddef>
#include <type_traits>
#include <weir/base/error.hpp>
#include <weir/base/text.hpp>
#include <weir/converting/converting_view.hpp>
#include <weir/converting/host_conversion.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/staging/pending_copy.hpp>
#include <weir/staging/pinned_ring.hpp>
#include <weir/staging/ring/conversion.hpp>
#include <weir/staging/ring/piece_cursor.hpp>
#include <weir/staging/ring/staged_copy.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

template <class Element, class Storage>
conversion conversion_of(Element scale) noexcept {
    static_assert(sizeof(Storage) <= conversion::grain && (sizeof(Storage) & (sizeof(Storage) - 1)) == 0,
                  "weir: a number is stored in a power of two of bytes; pad the type");
    conversion how;
    how.scale = static_cast<double>(scale);
    how.element_bytes = sizeof(Element);
    how.stored_bytes = sizeof(Storage);
    return how;
}

inline void require_as_many(std::size_t viewed, std::size_t count) {
    if (viewed != count)
        throw usage_error("weir: a converted copy has as many elements on both sides; got a view of " +
                          base::number_text(viewed) + " and " + base::number_text(count) +
                          " elements; use 'subview' for a part of a view");
}

} // namespace detail

/// Enqueues a copy of the `count` elements at `from`, host memory, to those of `to`, memory of the ring's device. The host
/// converts them before the call returns, also if they lie in pinned memory: work that writes them there is over before the
/// call. A full ring waits, even if its options say 'copy_directly'. Everything else is as for 'copy_to_device_async'; and it
/// throws usage_error if the view has not `count` elements.
template <class Element, class Storage>
void copy_converted_to_device_async(pinned_ring& ring, stream_ref stream, converting_view<Element, Storage> to,
                                    Element const* from, std::size_t count) {
    static_assert(!std::is_const_v<Storage>, "weir: a view of const numbers cannot be copied to");
    detail::require_as_many(to.size(), count);
    detail::conversion how = detail::conversion_of<Element, Storage>(to.scale());
    how.by_host = [](void* stored, void const* elements, std::size_t part, double scale) {
        converting::detail::store_row(static_cast<Storage*>(stored), static_cast<Element const*>(elements), part,
                          static_cast<Element>(scale));
    };
    piece const whole{to.data(), from, to.size_bytes()};
    detail::copy_to_device(ring, stream, &whole, 1, how);
}

/// Enqueues a copy of the elements of `from`, memory of the ring's device, to the `count` ones at `to`, host memory. The host
/// converts them as they arrive; what it returns does the rest. Everything else is as for 'copy_to_host_async' and above.
template <class Element, class Storage>
pending_copy copy_converted_to_host_async(pinned_ring& ring, stream_ref stream, Element* to,
                                          converting_view<Element, Storage> from, std::size_t count) {
    using stored = std::remove_const_t<Storage>;
    detail::require_as_many(from.size(), count);
    detail::conversion how = detail::conversion_of<Element, stored>(from.scale());
    how.by_host = [](void* elements, void const* numbers, std::size_t part, double scale) {
        converting::detail::load_row(static_cast<Element*>(elements), static_cast<stored const*>(numbers), part,
                         static_cast<Element>(scale));
    };
    piece const whole{to, from.data(), from.size_bytes()};
    return detail::copy_to_host(ring, stream, &whole, 1, detail::pieces_stay::in_the_call, false, how);
}

/// Enqueues a copy of the `count` elements at `from`, memory of the ring's device, to the numbers of `to`, host memory.
/// `convert` is called with a stream, a converting_view of page-locked memory, and an address of elements of the device: it
/// enqueues the kernel that stores as many as the view has, and throws what goes wrong. 'converting_kernel'
/// (converting/converting_kernel.cuh) is such a one; so is a call of thrust::copy. It is called for each chunk before the call
/// returns; once for all if `to` is page-locked. The copy holds a slot of the ring meanwhile. So `convert` may copy through
/// another ring, but must not use this one in any way: a copy through it, and a wait for one, throw usage_error. Everything
/// else is as for 'copy_to_host_async' and above.
template <class Element, class Storage, class Convert>
pending_copy copy_stored_to_host_async(pinned_ring& ring, stream_ref stream, converting_view<Element, Storage> to,
                                       Element const* from, std::size_t count, Convert const& convert) {
    static_assert(!std::is_const_v<Storage>, "weir: a view of const numbers cannot be copied to");
    detail::require_as_many(to.size(), count);
    struct launch {
        Convert const& convert;
        Element scale;
    } const call{convert, to.scale()};
    detail::conversion how = detail::conversion_of<Element, Storage>(to.scale());
    how.kernel = &call;
    how.by_device = [](void const* with, stream_ref on, void* stored, void const* elements, std::size_t part) {
        auto const& it = *static_cast<launch const*>(with);
        it.convert(on, converting_view<Element, Storage>(static_cast<Storage*>(stored), part, it.scale),
                   static_cast<Element const*>(elements));
    };
    piece const whole{to.data(), from, to.size_bytes()};
    return detail::copy_to_host(ring, stream, &whole, 1, detail::pieces_stay::in_the_call, false, how);
}

} // namespace staging
} // namespace v0
} // namespace weir
