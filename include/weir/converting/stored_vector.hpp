// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What owns an array of numbers that take fewer bits than what algorithms compute with?
//
// 'stored_vector<float, __half>' is a device_vector of floats in half the memory: its elements are floats to kernels, Thrust
// and the host, and lie in memory as __half. With `Storage` = __nv_fp8_e4m3 or __nv_fp8_e5m2 and a scale, in a quarter. See
// 'converting_view' for what a conversion does.
//
//     weir::stored_vector<float, __half> xs(pool, stream, count);
//     fill<<<grid, block, 0, stream>>>(xs.view());                // in the kernel: view[i] = 0.5f * i;
//     weir::staging::copy_converted_to_host_async(ring, stream, floats.data(), xs.view(), count);
//
// invariant: as for vector. All elements have one scale, which only a change of its own changes.
// order:     see 'pooled': the memory is valid on the vector's stream.
// cost:      as a device_vector<Storage>.
// not for:   elements of an integer type. Numbers that the host fills one by one: see staging/converted_copy.hpp.

#include <cstddef>
#include <weir/base/call_site.hpp>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/container/owned/element.hpp>
#include <weir/container/owned/growing_bytes.hpp>
#include <weir/converting/converting_view.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Elements of type `Element` that kernels use, stored as `Storage`. The pool may be a device, managed or pinned pool. Sizes
/// are in elements. Members that may grow the vector throw what the pool's 'allocate' throws, and usage_error for more elements
/// than there are addresses.
template <class Element, class Storage>
class stored_vector : public container::detail::growing_bytes<memory_space::device> {
    using rules = container::detail::element<Storage>;
    using converted = converting::detail::stored_as<Element, Storage>;
    static_assert(rules::most > 0); // using it makes the compiler check the rules for Storage

public:
    using value_type = Element;
    using storage_type = Storage;
    using view_type = converting_view<Element, Storage>;
    using const_view_type = converting_view<Element, Storage const>;

    /// `count` elements, not initialised, with that scale. Throws usage_error for a scale that is 0 or not finite.
    /// `where`: the line that asks, for layer::record.
    stored_vector(pool_ref<memory_space::device> pool, stream_ref stream, std::size_t count = 0, Element scale = 1,
                  call_site const& where = call_site::here())
        : container::detail::growing_bytes<memory_space::device>(
              pool, stream, (converted::checked_scale(scale), rules::bytes_of(count)), alignof(Storage), where),
          scale_(scale) {}

    /// The stored numbers; null if no memory is held. Valid until the vector grows, shrinks to fit or ends.
    Storage* data() noexcept { return reinterpret_cast<Storage*>(this->block_.data); }
    Storage const* data() const noexcept { return reinterpret_cast<Storage const*>(this->block_.data); }
    std::size_t size() const noexcept { return this->size_bytes() / sizeof(Storage); }
    std::size_t capacity() const noexcept { return this->block_.capacity / sizeof(Storage); }

    /// The elements, for kernels and algorithms: valid as long as 'data'.
    view_type view() { return {data(), size(), scale_}; }
    const_view_type view() const { return {data(), size(), scale_}; }
    /// Refused, as a device_vector's.
    template <class Number = Storage>
    Number* begin() const {
        static_assert(sizeof(Number) == 0,
                      "weir: the host does not reach the numbers of a stored_vector, so it has no iterators; give algorithms "
                      "for the device those of 'xs.view()'");
        return nullptr;
    }
    template <class Number = Storage>
    Number* end() const {
        return begin<Number>();
    }

    /// What one unit of storage is worth.
    Element scale() const noexcept { return scale_; }
    /// Changes the scale and converts nothing: all elements change by that factor. Throws usage_error for 0, and for what is
    /// not finite.
    void set_scale(Element scale) { scale_ = converted::checked_scale(scale); }

    /// As for a device_vector. Added elements are not initialised.
    void reserve(std::size_t count, call_site const& where = call_site::here()) {
        this->reserve_bytes(rules::bytes_of(count), where);
    }
    void resize(std::size_t count, call_site const& where = call_site::here()) {
        this->resize_bytes(rules::bytes_of(count), where);
    }
    /// All elements become zero, on the stream.
    void zero_async() { this->zero_bytes(); }

    /// Overwrites an element, on the stream. Throws usage_error if there is none, and while the stream is captured; cuda_error.
    void set_element_async(std::size_t index, Element value) {
        require_index(index);
        this->write_value(index * sizeof(Storage), converted::storage(value, scale_));
    }
    /// The element at `index`, read after blocking until the stream is done. Throws as above.
    Element element_sync(std::size_t index) const {
        require_index(index);
        return converted::element(this->template value_sync_at<Storage>(index * sizeof(Storage)), scale_);
    }

private:
    void require_index(std::size_t index) const {
        if (index >= size())
            throw usage_error("weir: there is no element " + base::number_text(index) + " in a vector of " +
                              base::number_text(size()));
    }

    Element scale_;
};

} // namespace v0
} // namespace weir
