// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What owns an array of elements of a pool?
//
// 'device_vector<T>' is for elements that kernels use. 'pinned_vector<T>' is for elements that the host uses and copy engines
// read at full speed. They look like std::vector but behave differently: added elements are not initialised, copies are made
// only where pool and stream are named, and no member waits for a stream unless its name ends in '_sync'.
//
//     weir::device_vector<float> xs(pool, stream, host_values);          // uploaded on the stream
//     scale<<<grid, block, 0, stream>>>(xs.data(), xs.size());
//     std::vector<float> ys = xs.to_host_sync<std::vector>();
//
// invariant: T is trivially copyable; a vector that was moved from is empty and can be used like a new one.
// invariant: a member that throws leaves the vector as it was.
// order:     see 'pooled'. Device: the memory is valid on the vector's stream; other streams have to be ordered after it.
//            Pinned: the memory is valid at once. The vector does not wait for work in flight that writes to it, so finish
//            that work ('synchronize(xs.stream())') before the host reads and before the vector grows.
// cost:      one allocation each time it grows; 'resize' and 'reserve' grow to exactly what is asked for, 'append' by at
//            least half.
// not for:   a single element: see value; untyped memory: see buffer.

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/call_site.hpp>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/container/owned/element.hpp>
#include <weir/container/owned/growing_bytes.hpp>
#include <weir/container/owned/owner.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace container::detail {

/// What both kinds of vector share. Sizes are in elements, except in members named '..._bytes'. Members that may grow the
/// vector throw what the pool's 'allocate' throws, and usage_error for more elements than there are addresses. Members that
/// copy throw cuda_error. They throw usage_error for a null address, and if one of the two streams that have to wait for each
/// other is captured into another graph than the other, or only one is captured. `where`: the line
/// that asks, for layer::record.
template <class T, memory_space Space>
class elements : public growing_bytes<Space> {
    using rules = element<T>;
    static_assert(rules::most > 0); // using it makes the compiler check the rules for T

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

    /// An empty vector that holds no memory. `stream`: any stream, but not the host (usage_error).
    elements(pool_ref<Space> pool, stream_ref stream, call_site const& where = call_site::here())
        : elements(pool, stream, std::size_t{0}, where) {}

    /// `count` elements, not initialised.
    elements(pool_ref<Space> pool, stream_ref stream, std::size_t count, call_site const& where = call_site::here())
        : growing_bytes<Space>(pool, stream, rules::bytes_of(count), alignof(T), where) {}

    /// A copy of `count` elements at `source`; see 'assign'.
    elements(pool_ref<Space> pool, stream_ref stream, T const* source, std::size_t count,
             call_site const& where = call_site::here())
        : elements(pool, stream, std::size_t{0}, where) {
        assign(source, count, where);
    }

    /// A copy of a std::vector, array or span of T, or of a container of T of any pool and stream; see 'assign'.
    template <class Range, class = if_holds<Range, T>>
    elements(pool_ref<Space> pool, stream_ref stream, Range const& source, call_site const& where = call_site::here())
        : elements(pool, stream, std::size_t{0}, where) {
        assign(source, where);
    }
    /// A copy of the listed elements. A list of one is also a list: '{10}' is one element and not a size. Throws usage_error
    /// if a device vector's stream is captured, because the graph would read the list after it ended.
    elements(pool_ref<Space> pool, stream_ref stream, std::initializer_list<T> source,
             call_site const& where = call_site::here())
        : elements(pool, stream, std::size_t{0}, where) {
        assign(source, where);
    }

    /// Refused: the stream in front of the pool.
    template <class Stream, class Pool, class... More, class = if_turned<Stream, Pool>>
    elements(Stream const& stream, Pool& pool, More const&...) : elements(pool, stream) {
        refuse_turned<Stream>();
    }

    /// The address of the first element; null if no memory is held. It stays valid until the vector grows, shrinks to fit or
    /// ends. For a device vector it also becomes invalid when a part of the vector itself, or a container of another stream,
    /// is assigned to it.
    T* data() noexcept { return reinterpret_cast<T*>(this->block_.data); }
    T const* data() const noexcept { return reinterpret_cast<T const*>(this->block_.data); }

    std::size_t size() const noexcept { return this->size_bytes() / sizeof(T); }

    /// The number of elements that it can hold without asking the pool.
    std::size_t capacity() const noexcept { return this->block_.capacity / sizeof(T); }
    /// The most elements that any vector of T can hold.
    static constexpr std::size_t max_size() noexcept { return rules::most; }

    /// Makes the capacity at least `count`, and exactly that if it grows. The contents are kept.
    void reserve(std::size_t count, call_site const& where = call_site::here()) {
        this->reserve_bytes(rules::bytes_of(count), where);
    }

    /// Makes the size `count`. Added elements are not initialised. If that is more than the capacity, the capacity becomes
    /// exactly that; otherwise it stays.
    void resize(std::size_t count, call_site const& where = call_site::here()) {
        this->resize_bytes(rules::bytes_of(count), where);
    }

    /// Replaces the contents by the `count` elements at `source`: host or device memory for a device vector, host memory for
    /// a pinned one. The source may lie in this vector. A device vector's copy runs on its stream. A source in pinned memory
    /// must not change until the copy ran. CUDA reads a pageable source (ordinary host memory) before the call returns,
    /// unless a graph is captured. A pinned vector's copy is made by the host before the call returns, and waits for no work
    /// on any stream.
    void assign(T const* source, std::size_t count, call_site const& where = call_site::here()) {
        this->assign_bytes(source, rules::bytes_of(count), where);
    }

    /// The same from a std::vector, array or span of T, or from another container. From a container, a device vector's copy
    /// runs after all work that is enqueued on that container's stream so far, and before any later work there. A pinned
    /// vector's copy is made at once and waits for no stream: first finish the work that writes the source
    /// ('synchronize(source.stream())').
    template <class Range, class = if_holds<Range, T>>
    void assign(Range const& source, call_site const& where = call_site::here()) {
        if constexpr (is_owner<Range>)
            this->assign_bytes(source, where);
        else
            assign(data_of(source), size_of(source), where);
    }

    /// The same from a list. Throws usage_error while a device vector's stream is captured.
    void assign(std::initializer_list<T> source, call_site const& where = call_site::here()) {
        this->require_source_lives();
        assign(source.begin(), source.size(), where);
    }

    /// As 'assign', but adds behind the contents. The capacity grows by at least half, if the pool has room for that, so that
    /// many appends cost little each.
    void append(T const* source, std::size_t count, call_site const& where = call_site::here()) {
        this->append_bytes(source, rules::bytes_of(count), sizeof(T), where);
    }
    template <class Range, class = if_holds<Range, T>>
    void append(Range const& source, call_site const& where = call_site::here()) {
        if constexpr (is_owner<Range>)
            this->append_bytes(source, sizeof(T), where);
        else
            append(data_of(source), size_of(source), where);
    }
    void append(std::initializer_list<T> source, call_site const& where = call_site::here()) {
        this->require_source_lives();
        append(source.begin(), source.size(), where);
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

} // namespace container::detail

/// Elements that kernels use. The pool may be a device, managed or pinned pool. `T` must be trivially copyable.
template <class T>
class device_vector : public container::detail::elements<T, memory_space::device> {
public:
    using container::detail::elements<T, memory_space::device>::elements;
    device_vector(device_vector&&) noexcept = default;
    device_vector& operator=(device_vector&&) noexcept = default;
    device_vector(device_vector const&) = delete; // weir: copy it with 'device_vector<T>(xs.pool(), xs.stream(), xs)'
    device_vector& operator=(device_vector const&) = delete; // weir: copy the elements with 'xs.assign(ys)'
    using container::detail::elements<T, memory_space::device>::resize;

    /// Refused: added elements are not initialised, since that would take a kernel.
    template <class Count, class Value,
              class = std::enable_if_t<std::is_integral_v<Count> && !std::is_same_v<Value, call_site>>>
    device_vector(pool_ref<memory_space::device> pool, stream_ref stream, Count, Value const&) : device_vector(pool, stream) {
        static_assert(sizeof(Value) == 0,
                      "weir: a device_vector does not fill its elements; make it with a size alone, and fill it with "
                      "'zero_async', thrust::fill or a kernel of yours");
    }
    template <class Value, class = std::enable_if_t<!std::is_same_v<Value, call_site>>>
    void resize(std::size_t, Value const&) {
        static_assert(sizeof(Value) == 0,
                      "weir: a device_vector does not fill added elements; 'resize(n)', and fill them with thrust::fill or a "
                      "kernel of yours");
    }
    /// Refused: the host does not reach the elements, and an iterator would say that it does.
    template <class Element = T>
    Element* begin() const {
        static_assert(sizeof(Element) == 0,
                      "weir: the host does not reach the elements of a device_vector, so it has no iterators; give algorithms "
                      "for the device 'xs.data()' and 'xs.data() + xs.size()', or read 'xs.to_host_sync<std::vector>()'");
        return nullptr;
    }
    template <class Element = T>
    Element* end() const {
        return begin<Element>();
    }
    /// Refused: the host does not reach the elements.
    template <class Index = std::size_t>
    T& operator[](Index) const {
        static_assert(sizeof(Index) == 0,
                      "weir: the host does not reach an element of a device_vector; use 'element_sync(i)' or "
                      "'set_element_async(i, value)', or 'data()' in a kernel");
        return *const_cast<T*>(this->data());
    }
    /// Refused: it would be a copy of its own for each element.
    template <class Value = T>
    void push_back(Value const&) {
        static_assert(sizeof(Value) == 0,
                      "weir: a device_vector has no 'push_back', which would enqueue a copy for each element; collect the "
                      "elements on the host and 'append' them at once, or write 'append({x})'");
    }

    /// Overwrites the element at `index` with `value`, on the stream. Throws usage_error if there is no such element, and
    /// while the stream is captured.
    void set_element_async(std::size_t index, T const& value) {
        this->require_index(index);
        this->write_value(index * sizeof(T), value);
    }

    /// The element at `index`, read after blocking until the stream is done. Throws as above.
    T element_sync(std::size_t index) const {
        this->require_index(index);
        return this->template value_sync_at<T>(index * sizeof(T));
    }

    /// Copies the elements to host memory and blocks until the stream is done: 'xs.to_host_sync<std::vector>()'. `Container`:
    /// can be made from a number of elements and keeps them together in memory. Throws usage_error while the stream is
    /// captured, and std::bad_alloc.
    template <template <class...> class Container>
    Container<T> to_host_sync() const {
        static_assert(!std::is_same_v<T, bool>,
                      "weir: std::vector<bool> has no elements to copy to; use "
                      "'copy_to_sync' with an array, or a vector of unsigned char");
        Container<T> host(this->size());
        this->read_sync(0, host.data(), this->size_bytes());
        return host;
    }
    /// Refused: no header of weir's names a container of the standard library.
    template <class Container = void>
    void to_host_sync() const {
        static_assert(sizeof(Container*) == 0, "weir: say into what: 'xs.to_host_sync<std::vector>()'");
    }

    /// Enqueues a copy of the elements to `target`, host or device memory, which must live until the stream has made the
    /// copy. If `target` is pageable (ordinary host memory), CUDA blocks.
    void copy_to_async(T* target) const { this->read(0, target, this->size_bytes()); }

    /// Copies the elements to `target` and blocks until the stream has done it. Throws usage_error while the stream is
    /// captured.
    void copy_to_sync(T* target) const { this->read_sync(0, target, this->size_bytes()); }

    /// The same into a std::vector, span or container of T. Into one that kernels use, after the work that is enqueued on its
    /// stream so far. Throws usage_error if it has not as many elements.
    template <class Range, class = container::detail::if_holds<Range, T>>
    void copy_to_sync(Range&& target) const {
        if (container::detail::size_of(target) != this->size())
            throw usage_error("weir: " + base::number_text(this->size()) + " elements cannot be copied to " +
                              base::number_text(container::detail::size_of(target)) + "; 'resize' the target first");
        container::detail::wait_for_work_of(target, this->placed());
        copy_to_sync(target.data());
    }

    /// Overwrites the elements with zero bytes, on the stream. Does not block.
    void zero_async() { this->zero_bytes(); }
};

/// Elements that the host and copy engines use. The pool may be a pinned or managed pool. `T` must be trivially copyable.
template <class T>
class pinned_vector : public container::detail::elements<T, memory_space::pinned> {
public:
    using container::detail::elements<T, memory_space::pinned>::elements;
    pinned_vector(pinned_vector&&) noexcept = default;
    pinned_vector& operator=(pinned_vector&&) noexcept = default;
    pinned_vector(pinned_vector const&) = delete; // weir: copy it with 'pinned_vector<T>(xs.pool(), xs.stream(), xs)'
    pinned_vector& operator=(pinned_vector const&) = delete; // weir: copy the elements with 'xs.assign(ys)'
    using container::detail::elements<T, memory_space::pinned>::resize;

    /// `count` elements, each a copy of `value`.
    pinned_vector(pool_ref<memory_space::pinned> pool, stream_ref stream, std::size_t count, T const& value,
                  call_site const& where = call_site::here())
        : pinned_vector(pool, stream) {
        resize(count, value, where);
    }

    /// Makes the size `count`; added elements are copies of `value`, which may be one of the elements.
    void resize(std::size_t count, T const& value, call_site const& where = call_site::here()) {
        T const filling = value;
        std::size_t const before = this->size();
        resize(count, where);
        for (std::size_t i = before; i < count; ++i)
            (*this)[i] = filling;
    }

    T* begin() noexcept { return this->data(); }
    T* end() noexcept { return this->data() + this->size(); }
    T const* begin() const noexcept { return this->data(); }
    T const* end() const noexcept { return this->data() + this->size(); }

    /// The element at `index`, which must be less than size().
    T& operator[](std::size_t index) noexcept { return this->data()[index]; }
    T const& operator[](std::size_t index) const noexcept { return this->data()[index]; }

    /// The element at `index`. Throws usage_error if there is none.
    T& at(std::size_t index) {
        this->require_index(index);
        return this->data()[index];
    }
    T const& at(std::size_t index) const {
        this->require_index(index);
        return this->data()[index];
    }

    /// Adds `value` behind the elements; it may be one of them.
    void push_back(T const& value, call_site const& where = call_site::here()) {
        this->append(container::detail::element<T>::address_of(value), 1, where);
    }

    /// Overwrites the elements with zero bytes, by the host, at once.
    void zero() { this->zero_bytes(); }
};

} // namespace v0
} // namespace weir
