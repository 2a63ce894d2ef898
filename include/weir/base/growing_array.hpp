// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the bookkeeping keep any number of things in a row?
//
// An array that doubles its room when it is full. It does for the bookkeeping what std::vector does, at a fraction of the
// compile time. Each std::vector that grows instantiates dozens of allocator traits and relocation functions, in every file
// that includes weir, even if the file makes no pool. Together those took a quarter of a second.
//
// invariant: elements lie in one piece of the host's memory; size() <= capacity().
// order:     none; an array belongs to one thread or one lock.
// cost:      push_back: O(1) on average; insert and erase: O(n) moves.
// not for:   what users pass in or get back: that is std::vector.

#include <cstddef>
#include <new>
#include <utility>

namespace weir {
inline namespace v0 {
namespace base {

/// An array of `T`, whose moves must not throw. A member that has to allocate throws std::bad_alloc before any change. An
/// argument that was moved into such a call is lost then.
template <class T>
class growing_array {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

public:
    growing_array() noexcept = default;
    /// `count` elements, each T().
    explicit growing_array(std::size_t count) : growing_array() { resize(count); }
    growing_array(growing_array const& other) : growing_array() {
        reserve(other.size_);
        for (T const& each : other)
            push_back(each);
    }
    growing_array(growing_array&& other) noexcept
        : first_(other.first_), size_(other.size_), capacity_(other.capacity_) {
        other.first_ = nullptr;
        other.size_ = other.capacity_ = 0;
    }
    growing_array& operator=(growing_array&& other) noexcept { // not by value: see shared
        growing_array taken(std::move(other));
        swap(taken);
        return *this;
    }
    growing_array& operator=(growing_array const& other) { return *this = growing_array(other); }
    ~growing_array() {
        clear();
        operator delete(first_);
    }

    void swap(growing_array& other) noexcept {
        T* const first = first_;
        std::size_t const size = size_;
        std::size_t const capacity = capacity_;
        first_ = other.first_;
        size_ = other.size_;
        capacity_ = other.capacity_;
        other.first_ = first;
        other.size_ = size;
        other.capacity_ = capacity;
    }

    T& operator[](std::size_t at) noexcept { return first_[at]; }
    T const& operator[](std::size_t at) const noexcept { return first_[at]; }
    T& back() noexcept { return first_[size_ - 1]; }
    T const& back() const noexcept { return first_[size_ - 1]; }
    T* data() noexcept { return first_; }
    T const* data() const noexcept { return first_; }
    T* begin() noexcept { return first_; }
    T const* begin() const noexcept { return first_; }
    T* end() noexcept { return first_ + size_; }
    T const* end() const noexcept { return first_ + size_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    /// The number of elements for which there is room.
    std::size_t capacity() const noexcept { return capacity_; }

    /// Makes room for `count` elements in all.
    void reserve(std::size_t count) {
        if (count > capacity_)
            move_to(count);
    }

    /// Makes room for `more` elements beyond the present ones. O(more) on average, however often it is called.
    void reserve_more(std::size_t more) {
        std::size_t const twice = 2 * capacity_;
        if (more > capacity_ - size_)
            move_to(size_ + more > twice ? size_ + more : twice);
    }

    /// Makes the size `count`; added elements are T().
    void resize(std::size_t count) {
        reserve(count);
        while (size_ > count)
            pop_back();
        for (; size_ < count; ++size_)
            new (first_ + size_) T();
    }

    void push_back(T value) {
        make_room();
        new (first_ + size_) T(std::move(value));
        ++size_;
    }

    void pop_back() noexcept { first_[--size_].~T(); }

    void clear() noexcept {
        while (size_ != 0)
            pop_back();
    }

    /// Puts `value` before the element at `at`, and returns a pointer to it.
    T* insert(T* at, T value) {
        std::size_t const index = static_cast<std::size_t>(at - first_);
        if (index == size_) {
            push_back(std::move(value));
            return first_ + index;
        }
        make_room(); // before the last element moves out
        push_back(std::move(back()));
        for (std::size_t i = size_ - 2; i > index; --i)
            first_[i] = std::move(first_[i - 1]);
        first_[index] = std::move(value);
        return first_ + index;
    }

    /// Removes the element at `at`, and returns a pointer to the next one.
    T* erase(T* at) noexcept {
        for (T* each = at; each + 1 != end(); ++each)
            *each = std::move(each[1]);
        pop_back();
        return at;
    }

private:
    void make_room() {
        if (size_ == capacity_)
            move_to(size_ < 4 ? 4 : 2 * size_);
    }

    [[gnu::noinline]] void move_to(std::size_t capacity) {
        static_assert(noexcept(T(std::move(*first_))));
        if (capacity > static_cast<std::size_t>(-1) / sizeof(T))
            throw std::bad_alloc();
        T* const first = static_cast<T*>(operator new(capacity * sizeof(T)));
        for (std::size_t i = 0; i < size_; ++i) {
            new (first + i) T(std::move(first_[i]));
            first_[i].~T();
        }
        operator delete(first_);
        first_ = first;
        capacity_ = capacity;
    }

    T* first_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

} // namespace base
} // namespace v0
} // namespace weir
