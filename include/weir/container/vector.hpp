// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do elements of a pool get an owner?
//
// 'device_vector<T>' for elements that kernels use, 'pinned_vector<T>' for elements that the host uses and
// copy engines read at full speed. They are std::vector's shape without its habits: new elements are not
// initialised, copies are made only where pool and stream are named, and nothing waits unless its name ends
// in '_sync'.
//
//     weir::device_vector<float> xs(pool, stream, host_values);          // uploaded on the stream
//     scale<<<grid, block, 0, stream>>>(xs.data(), xs.size());
//     std::vector<float> ys = xs.to_host_sync<std::vector>();
//
// invariant: T is trivially copyable; a moved-from vector is empty and as good as new.
// invariant: a member that throws leaves the vector as it was.
// order:     see 'pooled'. Device: memory is valid on the vector's stream, others order themselves after it.
//            Pinned: memory is valid at once; work in flight that writes the vector is not waited for, so
//            finish it ('synchronize(xs.stream())') before the host reads, and before the vector grows.
// cost:      an allocation each growth; 'resize' and 'reserve' grow to what is asked, 'append' by half.
// not for:   one element: see value; untyped memory: see buffer.

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/container/owned/element.hpp>
#include <weir/container/owned/pooled.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace detail {

// What std::data and std::size answer, whose header costs a tenth of a second.
template <class Range>
constexpr auto data_of(Range const& source) -> decltype(source.data()) {
    return source.data();
}
template <class T, std::size_t Count>
constexpr T const* data_of(T const (&source)[Count]) noexcept {
    return source;
}
template <class Range>
constexpr auto size_of(Range const& source) -> decltype(source.size()) {
    return source.size();
}
template <class T, std::size_t Count>
constexpr std::size_t size_of(T const (&)[Count]) noexcept {
    return Count;
}

// Whether Range has contiguous elements of type T.
template <class Range, class T, class = void>
struct holds : std::false_type {};
template <class Range, class T>
struct holds<Range, T,
             std::void_t<decltype(data_of(std::declval<Range const&>())), decltype(size_of(std::declval<Range const&>()))>>
    : std::is_same<std::remove_cv_t<std::remove_pointer_t<decltype(data_of(std::declval<Range const&>()))>>, T> {};

template <memory_space Space>
std::true_type is_pooled(detail::pooled<Space> const&);
std::false_type is_pooled(...);

/// What the twins share. Sizes in elements unless named '..._bytes'. Members that may grow the vector throw
/// what the pool's 'allocate' throws, and usage_error for more elements than there are addresses; members
/// that copy throw cuda_error, and usage_error for a null address, and where a stream that must wait or be waited for is
/// captured into another graph or none.
template <class T, memory_space Space>
class elements : public detail::pooled<Space> {
    using rules = detail::element<T>;
    static_assert(rules::most > 0); // which makes the compiler look at the rules
    template <class Range>
    using if_range = std::enable_if_t<holds<Range, T>::value>;

public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using pointer = T*;
    using const_pointer = T const*;
    using reference = T&;
    using const_reference = T const&;
    using iterator = T*;
    using const_iterator = T const*;

    /// An empty vector that holds no memory. `stream`: not the host (usage_error).
    elements(pool_ref<Space> pool, stream_ref stream) : elements(pool, stream, std::size_t{0}) {}

    /// `count` elements, not initialised.
    elements(pool_ref<Space> pool, stream_ref stream, std::size_t count)
        : detail::pooled<Space>(pool, stream, rules::bytes_of(count), alignof(T)) {}

    /// A copy of `count` elements at `source`; see 'assign'.
    elements(pool_ref<Space> pool, stream_ref stream, T const* source, std::size_t count)
        : elements(pool, stream, std::size_t{0}) {
        assign(source, count);
    }

    /// A copy of a std::vector, array, span or container of T, of any pool and stream; see 'assign'.
    template <class Range, class = if_range<Range>>
    elements(pool_ref<Space> pool, stream_ref stream, Range const& source)
        : elements(pool, stream, std::size_t{0}) {
        assign(source);
    }
    /// The listed elements, also of one: '{10}' is an element, and no size. Throws usage_error where a device vector's stream
    /// is captured, whose graph would read the list when it is gone.
    elements(pool_ref<Space> pool, stream_ref stream, std::initializer_list<T> source)
        : elements(pool, stream, std::size_t{0}) {
        assign(source);
    }

    /// The first element; null where no memory is held. Valid until the vector grows, shrinks to fit or ends, or, a device
    /// vector, is assigned a part of itself or another stream's container.
    T* data() noexcept { return reinterpret_cast<T*>(this->bytes_.data()); }
    T const* data() const noexcept { return reinterpret_cast<T const*>(this->bytes_.data()); }

    /// Pointers, for Thrust with an execution policy, CUB and kernels; host code may follow a pinned vector's
    /// only.
    T* begin() noexcept { return data(); }
    T* end() noexcept { return data() + size(); }
    T const* begin() const noexcept { return data(); }
    T const* end() const noexcept { return data() + size(); }

    std::size_t size() const noexcept { return this->bytes_.size() / sizeof(T); }
    std::size_t size_bytes() const noexcept { return this->bytes_.size(); }
    bool empty() const noexcept { return this->bytes_.size() == 0; }

    /// Elements that it can hold without asking the pool.
    std::size_t capacity() const noexcept { return this->bytes_.capacity() / sizeof(T); }
    /// The most elements that any vector of T can hold.
    static constexpr std::size_t max_size() noexcept { return rules::most; }

    /// Makes the capacity at least `count`, exactly that if it grows; the contents move along.
    void reserve(std::size_t count) { this->bytes_.reserve(rules::bytes_of(count)); }

    /// Makes the size `count`; elements that are new are not initialised. The capacity grows to exactly that,
    /// or stays.
    void resize(std::size_t count) { this->bytes_.resize(rules::bytes_of(count)); }

    /// Makes the size 0 and keeps the memory.
    void clear() noexcept { this->bytes_.clear(); }

    /// Gives the memory beyond the size back; an empty vector then holds none.
    void shrink_to_fit() { this->bytes_.shrink_to_fit(); }

    /// The contents become the `count` elements at `source`: host or device memory for a device vector, host
    /// memory for a pinned one; it may lie in this vector. A device vector's copy runs on its stream, and a
    /// source in pinned memory must not change until then; CUDA reads pageable sources before the call
    /// returns, unless a graph is captured. A pinned vector's is made by the host before the call returns,
    /// and waits for no work on any stream.
    void assign(T const* source, std::size_t count) { this->bytes_.assign(source, rules::bytes_of(count)); }

    /// The same from a std::vector, array or span of T. From another container, a device vector's copy runs after the
    /// work on that one's stream so far, and before what that stream does next. A pinned vector's is made at once and
    /// waits for no stream: first finish the work that writes the source ('synchronize(source.stream())').
    template <class Range, class = if_range<Range>>
    void assign(Range const& source) {
        if constexpr (decltype(is_pooled(source))::value)
            this->bytes_.assign(source.bytes());
        else
            assign(data_of(source), size_of(source));
    }

    /// The same of a list, but not while a device vector's stream is captured (usage_error).
    void assign(std::initializer_list<T> source) {
        this->bytes_.require_source_lives();
        assign(source.begin(), source.size());
    }

    /// As 'assign', behind the contents. Grows by half at least, so that many appends cost little each, if the pool has room.
    void append(T const* source, std::size_t count) { this->bytes_.append(source, rules::bytes_of(count)); }
    template <class Range, class = if_range<Range>>
    void append(Range const& source) {
        if constexpr (decltype(is_pooled(source))::value)
            this->bytes_.append(source.bytes());
        else
            append(data_of(source), size_of(source));
    }
    void append(std::initializer_list<T> source) {
        this->bytes_.require_source_lives();
        append(source.begin(), source.size());
    }

protected:
    elements(elements&&) noexcept = default;
    elements& operator=(elements&&) noexcept = default;
    ~elements() = default;

    void require_index(std::size_t index) const {
        if (index >= size())
            throw usage_error("weir: there is no element " + base::number_text(index) + " in a vector of " +
                              base::number_text(size()));
    }
};

} // namespace detail

/// Elements that kernels use, of a device, managed or pinned pool. `T` must be trivially copyable.
template <class T>
class device_vector : public detail::elements<T, memory_space::device> {
public:
    using detail::elements<T, memory_space::device>::elements;

    /// Overwrites the element at `index` with `value`, on the stream. Throws usage_error where there is no
    /// such element, and while the stream is captured.
    void set_element_async(std::size_t index, T const& value) {
        this->require_index(index);
        T const here = value; // on the stack: what was referred to may be pinned, and read later
        this->bytes_.write_now(index * sizeof(T), detail::element<T>::address_of(here), sizeof(T));
    }

    /// The element at `index`, after waiting for the stream. Errors as above.
    T element_sync(std::size_t index) const {
        this->require_index(index);
        alignas(T) std::byte raw[sizeof(T)];
        this->bytes_.read_sync(index * sizeof(T), raw, sizeof(T));
        return *reinterpret_cast<T const*>(raw);
    }

    /// The elements in host memory, after waiting for the stream: 'xs.to_host_sync<std::vector>()'. `Container`: made from
    /// a number of elements, which lie together. Throws usage_error while the stream is captured, and std::bad_alloc.
    template <template <class...> class Container>
    Container<T> to_host_sync() const {
        static_assert(!std::is_same_v<T, bool>,
                      "weir: std::vector<bool> has no elements to copy to; use "
                      "'copy_to_sync' with an array, or a vector of unsigned char");
        Container<T> host(this->size());
        this->bytes_.read_sync(0, host.data(), this->size_bytes());
        return host;
    }

    /// Enqueues a copy of the elements to `target`, host or device memory, which must live until the stream
    /// has done it. A pageable target makes CUDA block.
    void copy_to_async(T* target) const { this->bytes_.read(0, target, this->size_bytes()); }

    /// Copies the elements to `target` and waits for the stream. Throws usage_error while the stream is captured.
    void copy_to_sync(T* target) const { this->bytes_.read_sync(0, target, this->size_bytes()); }

    /// Overwrites the elements with zero bytes, on the stream.
    void zero_async() { this->bytes_.zero(); }
};

/// Elements that the host and copy engines use, of a pinned or managed pool. `T` must be trivially copyable.
template <class T>
class pinned_vector : public detail::elements<T, memory_space::pinned> {
public:
    using detail::elements<T, memory_space::pinned>::elements;

    /// The element at `index`, which must be less than size().
    T& operator[](std::size_t index) noexcept { return this->data()[index]; }
    T const& operator[](std::size_t index) const noexcept { return this->data()[index]; }

    /// The element at `index`. Throws usage_error where there is none.
    T& at(std::size_t index) {
        this->require_index(index);
        return this->data()[index];
    }
    T const& at(std::size_t index) const {
        this->require_index(index);
        return this->data()[index];
    }

    /// `value` follows the elements; it may be one of them.
    void push_back(T const& value) { this->append(detail::element<T>::address_of(value), 1); }

    /// Overwrites the elements with zero bytes, at once.
    void zero() { this->bytes_.zero(); }
};

} // namespace v0
} // namespace weir
