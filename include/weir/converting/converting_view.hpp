// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do algorithms see numbers that are stored in fewer bits?
//
// A 'converting_view' stands for a row of numbers that lie in memory as `Storage` (__half, __nv_bfloat16, __nv_fp8_e4m3,
// __nv_fp8_e5m2, or any type that converts) and are read and written as `Element` (float). Kernels take it by value and index
// it. Thrust, CUB and the standard algorithms take its iterators. A number is converted where it is touched, in registers.
//
//     weir::converting_view<float, __half> xs(halves.data(), halves.size());
//     scale<<<grid, block, 0, stream>>>(xs);           // in the kernel: xs[i] = 2 * xs[i];
//     thrust::reduce(policy, xs.begin(), xs.end());     // adds floats
//
// An element is its stored number times the view's scale. So 8 bits reach far: with the scale 'largest / 448', an e4m3 holds
// numbers up to `largest`. What does not fit is what the storage type's own conversion makes of it: half and bfloat16 become
// infinite, both fp8 types stay at their largest number (infinities, too), and a NaN stays a NaN.
//
// invariant: what is stored is the quotient by the scale, an Element, rounded to the nearest number of the storage type (even).
// order:     as for a pointer.
// cost:      as a pointer, a size and a scale; a conversion for each access, and a division for each write.
// not for:   integers as storage: the conversion would cut fractions off. Memory of the device on the host.

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/fwd.hpp>

#ifdef __CUDACC__
#define WEIR_HOST_DEVICE __host__ __device__
#else
#define WEIR_HOST_DEVICE
#endif

namespace weir {
inline namespace v0 {
namespace converting {
namespace detail {

/// What is demanded of the two types, checked at compile time, and the two conversions.
template <class Element, class Storage>
struct stored_as {
    static_assert(std::is_floating_point_v<Element>,
                  "weir: elements that are stored in another type are float or double; use one of these as 'Element'");
    static_assert(!std::is_integral_v<Storage>,
                  "weir: an integer as storage would cut the fraction off; store a float type of fewer bits, such as __half or "
                  "__nv_fp8_e4m3 with a scale");
    static_assert(std::is_trivially_copyable_v<Storage>,
                  "weir: stored numbers travel as bytes; store a trivially copyable type");

    WEIR_HOST_DEVICE static Element element(Storage const& stored, Element scale) {
        return static_cast<Element>(stored) * scale;
    }
    WEIR_HOST_DEVICE static Storage storage(Element value, Element scale) { return static_cast<Storage>(value / scale); }

    /// `scale`, unless it is none. Throws usage_error.
    static Element checked_scale(Element scale) {
        if (!(scale > 0 || scale < 0) || scale - scale != 0)
            throw usage_error("weir: a scale is a finite number other than 0, because elements are divided by it where they "
                              "are stored; a row of zeros takes the scale 1");
        return scale;
    }
};

/// Whether numbers have a scale already: those of another view, or of a stored_vector.
template <class Range, class = void>
inline constexpr bool has_scale = false;
template <class Range>
inline constexpr bool has_scale<Range, std::void_t<decltype(std::declval<Range&>().scale())>> = true;

} // namespace detail

/// What an iterator of a converting_view refers to: it converts to the element, and assigning an element stores it. A copy
/// refers to the same number.
template <class Element, class Storage>
class reference {
    using rules = detail::stored_as<Element, std::remove_const_t<Storage>>;

public:
    WEIR_HOST_DEVICE reference(Storage* at, Element scale) : at_(at), scale_(scale) {}
    reference(reference const&) = default;

    WEIR_HOST_DEVICE operator Element() const { return rules::element(*at_, scale_); }
    /// Stores `value`; through a const reference, too, as the reference itself does not change.
    WEIR_HOST_DEVICE reference const& operator=(Element value) const {
        *at_ = rules::storage(value, scale_);
        return *this;
    }
    WEIR_HOST_DEVICE reference& operator=(reference const& other) {
        *at_ = rules::storage(static_cast<Element>(other), scale_);
        return *this;
    }
    WEIR_HOST_DEVICE reference const& operator+=(Element value) const { return *this = *this + value; }
    WEIR_HOST_DEVICE reference const& operator-=(Element value) const { return *this = *this - value; }
    WEIR_HOST_DEVICE reference const& operator*=(Element value) const { return *this = *this * value; }
    WEIR_HOST_DEVICE reference const& operator/=(Element value) const { return *this = *this / value; }

    WEIR_HOST_DEVICE friend void swap(reference a, reference b) {
        Element const kept = a;
        a = static_cast<Element>(b);
        b = kept;
    }

private:
    Storage* at_;
    Element scale_;
};

/// A random access iterator over a converting_view. `Storage` may be const.
template <class Element, class Storage>
class iterator {
public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = Element;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    /// What is read from constant storage is an element of its own.
    using reference = std::conditional_t<std::is_const_v<Storage>, Element, converting::reference<Element, Storage>>;

    WEIR_HOST_DEVICE iterator() : at_(nullptr), scale_(1) {}
    WEIR_HOST_DEVICE iterator(Storage* at, Element scale) : at_(at), scale_(scale) {}
    /// From an iterator that may write.
    template <class Other, class = std::enable_if_t<std::is_same_v<Other const, Storage> && !std::is_same_v<Other, Storage>>>
    WEIR_HOST_DEVICE iterator(iterator<Element, Other> const& other)
        : at_(other.base()), scale_(other.scale()) {}

    WEIR_HOST_DEVICE reference operator*() const { return (*this)[0]; }
    WEIR_HOST_DEVICE reference operator[](std::ptrdiff_t n) const {
        if constexpr (std::is_const_v<Storage>)
            return detail::stored_as<Element, std::remove_const_t<Storage>>::element(at_[n], scale_);
        else
            return {at_ + n, scale_};
    }

    WEIR_HOST_DEVICE iterator& operator++() { return ++at_, *this; }
    WEIR_HOST_DEVICE iterator& operator--() { return --at_, *this; }
    WEIR_HOST_DEVICE iterator operator++(int) { return {at_++, scale_}; }
    WEIR_HOST_DEVICE iterator operator--(int) { return {at_--, scale_}; }
    WEIR_HOST_DEVICE iterator& operator+=(std::ptrdiff_t n) { return at_ += n, *this; }
    WEIR_HOST_DEVICE iterator& operator-=(std::ptrdiff_t n) { return at_ -= n, *this; }

    WEIR_HOST_DEVICE friend iterator operator+(iterator i, std::ptrdiff_t n) { return i += n; }
    WEIR_HOST_DEVICE friend iterator operator+(std::ptrdiff_t n, iterator i) { return i += n; }
    WEIR_HOST_DEVICE friend iterator operator-(iterator i, std::ptrdiff_t n) { return i -= n; }
    WEIR_HOST_DEVICE friend std::ptrdiff_t operator-(iterator a, iterator b) { return a.at_ - b.at_; }
    WEIR_HOST_DEVICE friend bool operator==(iterator a, iterator b) { return a.at_ == b.at_; }
    WEIR_HOST_DEVICE friend bool operator!=(iterator a, iterator b) { return a.at_ != b.at_; }
    WEIR_HOST_DEVICE friend bool operator<(iterator a, iterator b) { return a.at_ < b.at_; }
    WEIR_HOST_DEVICE friend bool operator>(iterator a, iterator b) { return a.at_ > b.at_; }
    WEIR_HOST_DEVICE friend bool operator<=(iterator a, iterator b) { return a.at_ <= b.at_; }
    WEIR_HOST_DEVICE friend bool operator>=(iterator a, iterator b) { return a.at_ >= b.at_; }

    /// The address of the stored number, and the scale.
    WEIR_HOST_DEVICE Storage* base() const { return at_; }
    WEIR_HOST_DEVICE Element scale() const { return scale_; }

private:
    Storage* at_;
    Element scale_;
};

} // namespace converting

/// A row of numbers that somebody else owns. Trivially copyable; may be passed to kernels. `Storage` may be const: then it
/// only reads.
template <class Element, class Storage>
class converting_view {
    using rules = converting::detail::stored_as<Element, std::remove_const_t<Storage>>;

public:
    using element_type = Element;
    using value_type = Element;
    using storage_type = std::remove_const_t<Storage>;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using iterator = converting::iterator<Element, Storage>;
    using reference = typename iterator::reference;

    /// No numbers.
    WEIR_HOST_DEVICE converting_view() : data_(nullptr), size_(0), scale_(1) {}
    /// `count` numbers at `data`. Host only. Throws usage_error for a null address with numbers, and for a scale that is 0 or
    /// not finite.
    converting_view(Storage* data, std::size_t count, Element scale = 1)
        : data_(data), size_(count), scale_(rules::checked_scale(scale)) {
        base::require_not_null(data, count);
    }
    /// The numbers of a container or span of `Storage`, which has no scale of its own. Throws as above.
    template <class Range, class = std::enable_if_t<std::is_convertible_v<decltype(std::declval<Range&>().data()), Storage*> &&
                                                    sizeof(std::declval<Range&>().size()) != 0 &&
                                                    !converting::detail::has_scale<Range>>>
    explicit converting_view(Range& row, Element scale = 1) : converting_view(row.data(), row.size(), scale) {}
    /// From a view that may write.
    template <class Other, class = std::enable_if_t<std::is_same_v<Other const, Storage> && !std::is_same_v<Other, Storage>>>
    WEIR_HOST_DEVICE converting_view(converting_view<Element, Other> const& other)
        : data_(other.data()), size_(other.size()), scale_(other.scale()) {}

    /// The stored numbers.
    WEIR_HOST_DEVICE Storage* data() const { return data_; }
    WEIR_HOST_DEVICE std::size_t size() const { return size_; }
    WEIR_HOST_DEVICE std::size_t size_bytes() const { return size_ * sizeof(Storage); }
    WEIR_HOST_DEVICE bool empty() const { return size_ == 0; }
    /// What one unit of storage is worth.
    WEIR_HOST_DEVICE Element scale() const { return scale_; }

    WEIR_HOST_DEVICE iterator begin() const { return {data_, scale_}; }
    WEIR_HOST_DEVICE iterator end() const { return {data_ + size_, scale_}; }
    /// The element at `index`, which is less than size(). Here `auto x = view[i]` is a reference: name the element's type.
    WEIR_HOST_DEVICE reference operator[](std::size_t index) const { return begin()[static_cast<std::ptrdiff_t>(index)]; }

    /// The `count` numbers from `first` on, which the view has.
    WEIR_HOST_DEVICE converting_view subview(std::size_t first, std::size_t count) const {
        converting_view part = *this;
        part.data_ += first;
        part.size_ = count;
        return part;
    }

private:
    Storage* data_;
    std::size_t size_;
    Element scale_;
};

} // namespace v0
} // namespace weir
