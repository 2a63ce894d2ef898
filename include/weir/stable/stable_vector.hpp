// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What owns an array of elements that grows and never moves?
//
// 'stable_vector<T>' reserves addresses for all elements that it may ever hold, and a page_pool maps memory behind them as it
// grows. So growing copies nothing, and the address of an element stays the same: spans of it, kernels' arguments and captured
// graphs remain valid. Otherwise it is as device_vector: added elements are not initialised, values are copied on the stream,
// and no member waits for a stream unless its name ends in '_sync', or all memory that there is belongs to work under way.
//
//     weir::stable_vector<float> keys(pages, stream, most_tokens);
//     float* const added = keys.append(count);                       // no call of the driver while the page has room
//     project<<<grid, block, 0, stream>>>(tokens, added, count);
//     keys.commit_ahead(64 * weir::MiB);                             // while the kernel runs
//
// invariant: T is trivially copyable; data() does not change; a vector that was moved from is empty.
// invariant: a member that throws leaves the vector as it was; 'assign' may have begun to copy.
// order:     memory that was added is there at once, for work on any stream. What 'shrink' and the end give back is used by
//            nobody else before the work is over that is on the vector's stream by then, or on streams of 'used_on'. So a
//            vector ends before its stream, or 'set_stream' moves it to another one; the page_pool may end before or after.
// cost:      'append(n)' within the capacity: a compare and an addition. Beyond: see page_pool. A vector holds whole pages.
// not for:   many short vectors: see device_vector. Memory that must be cudaMalloc's (see upstream::virtual_memory).

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <weir/base/error.hpp>
#include <weir/base/text.hpp>
#include <weir/container/owned/element.hpp>
#include <weir/container/owned/pooled.hpp>
#include <weir/container/owned/owner.hpp>
#include <weir/container/vector.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/stable/mapped/mapped_bytes.hpp>
#include <weir/stable/page_pool.hpp>

namespace weir {
inline namespace v0 {

/// Elements that kernels use, at one address. `T` must be trivially copyable. Sizes are in elements, except in members named
/// '..._bytes' and in 'commit_ahead' and 'keep_ahead'. Members that may grow throw out_of_memory if the pool's limit or the
/// device has no room, usage_error beyond 'max_elements', cuda_error and std::bad_alloc.
template <class T>
class stable_vector : public stable::detail::mapped_bytes {
    using rules = container::detail::element<T>;
    static_assert(rules::most > 0); // using it makes the compiler check the rules for T

public:
    using value_type = T;
    using size_type = std::size_t;

    /// An empty vector. `max_elements`: the most that it can hold, rounded up to pages; 0: as many as the device has room for,
    /// or as the pool's limit admits. Throws usage_error if `stream` is the host; out_of_memory if the process has not so many
    /// addresses left; cuda_error; std::bad_alloc.
    stable_vector(stable::page_pool const& pool, stream_ref stream, std::size_t max_elements = 0)
        : stable::detail::mapped_bytes(pool, stream, rules::bytes_of(max_elements)) {}
    /// Refused: the stream in front of the pool.
    template <class Stream, class = container::detail::if_turned<Stream, stable::page_pool>>
    stable_vector(Stream const& stream, stable::page_pool const& pool, std::size_t = 0) : stable_vector(pool, stream) {
        container::detail::refuse_turned<Stream>();
    }
    stable_vector(stable_vector&&) noexcept = default;
    stable_vector& operator=(stable_vector&&) noexcept = default;
    stable_vector(stable_vector const&) = delete; // weir: make another one and 'append(xs)'
    stable_vector& operator=(stable_vector const&) = delete; // weir: copy the elements with 'xs.assign(ys)'

    /// The address of the first element, from the making to the end; null for a vector that was moved from. The elements up to
    /// the capacity have memory behind them.
    T* data() noexcept { return reinterpret_cast<T*>(block_.data); }
    T const* data() const noexcept { return reinterpret_cast<T const*>(block_.data); }
    std::size_t size() const noexcept { return size_bytes() / sizeof(T); }
    /// The elements that have memory behind them.
    std::size_t capacity() const noexcept { return capacity_bytes() / sizeof(T); }
    /// The most elements that it can hold.
    std::size_t max_elements() const noexcept { return max_bytes() / sizeof(T); }

    /// Makes the capacity at least `count`.
    void reserve(std::size_t count) { reserve_bytes(rules::bytes_of(count)); }
    /// Makes the size `count`. Added elements are not initialised; the capacity never shrinks.
    void resize(std::size_t count) { resize_bytes(rules::bytes_of(count)); }

    /// Adds `count` elements, not initialised. Returns the first one's address.
    T* append(std::size_t count) { return reinterpret_cast<T*>(append_bytes(rules::bytes_of(count))); }
    /// Adds a copy of the `count` elements at `source`, host or device memory, which may lie in this vector. The copy is made
    /// on the stream. A source in pinned memory must not change until then. CUDA reads ordinary host memory before the call
    /// returns, unless a graph is captured.
    void append(T const* source, std::size_t count) { append_copy(source, rules::bytes_of(count)); }
    /// The same from a std::vector, array or span of T, or from a container, whose stream's work so far comes before the copy,
    /// and later work after it.
    template <class Range, class = container::detail::if_holds<Range, T>>
    void append(Range const& source) {
        if constexpr (container::detail::is_owner<Range>)
            append_copy(container::detail::source_of(source, this->placed()));
        else
            append(container::detail::data_of(source), container::detail::size_of(source));
    }
    /// The same from a list. Throws usage_error while the stream is captured.
    void append(std::initializer_list<T> source) {
        require_source_lives();
        append(source.begin(), source.size());
    }

    /// Replaces the contents; otherwise as 'append'. Throws usage_error for a part of this vector that does not begin at its
    /// first element.
    void assign(T const* source, std::size_t count) { assign_copy(source, rules::bytes_of(count)); }
    template <class Range, class = container::detail::if_holds<Range, T>>
    void assign(Range const& source) {
        if constexpr (container::detail::is_owner<Range>)
            assign_copy(container::detail::source_of(source, this->placed()));
        else
            assign(container::detail::data_of(source), container::detail::size_of(source));
    }
    void assign(std::initializer_list<T> source) {
        require_source_lives();
        assign(source.begin(), source.size());
    }

    /// Takes the last `count` elements away, and gives pages back that are not needed then. Throws usage_error if there are
    /// fewer, and std::bad_alloc; then nothing has changed.
    void shrink(std::size_t count) {
        if (count > size())
            throw usage_error("weir: a stable vector of " + base::count_text(size(), " element") + " cannot shrink by " +
                              base::number_text(count));
        shrink_bytes(count * sizeof(T));
    }

    /// Overwrites the element at `index` with `value`, on the stream. Throws usage_error if there is no such element, and while
    /// the stream is captured; cuda_error.
    void set_element_async(std::size_t index, T const& value) {
        require_index(index);
        write_value(index * sizeof(T), value);
    }
    /// The element at `index`, read after blocking until the stream is done. Throws as above.
    T element_sync(std::size_t index) const {
        require_index(index);
        return this->template value_sync_at<T>(index * sizeof(T));
    }
    /// Copies the elements to host memory and blocks until the stream is done: 'xs.to_host_sync<std::vector>()'. Throws
    /// usage_error while the stream is captured, cuda_error and std::bad_alloc.
    template <template <class...> class Container>
    Container<T> to_host_sync() const {
        static_assert(!std::is_same_v<T, bool>,
                      "weir: std::vector<bool> has no elements to copy to; use "
                      "'copy_to_sync' with an array, or a vector of unsigned char");
        Container<T> host(size());
        read_sync(0, host.data(), size_bytes());
        return host;
    }
    /// Enqueues a copy of the elements to `target`; see device_vector.
    void copy_to_async(T* target) const { read(0, target, size_bytes()); }
    /// Copies the elements to `target` and blocks until the stream has done it. Throws usage_error while the stream is
    /// captured.
    void copy_to_sync(T* target) const { read_sync(0, target, size_bytes()); }
    /// Overwrites the elements with zero bytes, on the stream. Does not block.
    void zero_async() { zero_bytes(); }

    /// Refused: the host does not reach the elements.
    template <class Index = std::size_t>
    T& operator[](Index) const {
        static_assert(sizeof(Index) == 0,
                      "weir: the host does not reach an element of a stable_vector; use 'element_sync(i)' or "
                      "'set_element_async(i, value)', or 'data()' in a kernel");
        return *const_cast<T*>(data());
    }
    /// Refused: it would be a copy of its own for each element.
    template <class Value = T>
    void push_back(Value const&) {
        static_assert(sizeof(Value) == 0,
                      "weir: a stable_vector has no 'push_back', which would enqueue a copy for each element; collect the "
                      "elements on the host and 'append' them at once, or write 'append({x})'");
    }

private:
    void require_index(std::size_t index) const {
        if (index >= size())
            throw usage_error("weir: there is no element " + base::number_text(index) + " in a vector of " +
                              base::number_text(size()));
    }
};

} // namespace v0
} // namespace weir
