// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do several owners share one object?
//
// A counted pointer: the last owner that goes away destroys the object. It does what std::shared_ptr does for an object made
// with make_shared, without casts, weak owners or deleters. It also does without <memory>, which costs a fifth of a second of
// compile time in every file that includes weir.
//
// invariant: the count is the number of owners.
// order:     everything that an owner did to the object happens before its destruction.
// cost:      one allocation for the object; a copy is one atomic addition.
// not for:   owners that own each other in a cycle: they would never be destroyed.

#include <cstddef>
#include <utility>
#include <weir/base/threads/atomic.hpp>

namespace weir {
inline namespace v0 {
namespace base {

/// An owner of a T, or of nothing. Copying never throws. Several threads may use different owners of one object.
template <class T>
class shared {
public:
    /// Owns nothing.
    shared() noexcept = default;
    shared(shared const& other) noexcept : held_(other.held_) {
        if (held_)
            held_->owners.fetch_add(1, memory_order_relaxed);
    }
    shared(shared&& other) noexcept : held_(other.held_) { other.held_ = nullptr; }
    // Not by value: clang++ 14 does not destroy a parameter that 'x = {}' makes in a template.
    shared& operator=(shared&& other) noexcept {
        shared taken(std::move(other));
        counted* const before = held_;
        held_ = taken.held_;
        taken.held_ = before;
        return *this;
    }
    shared& operator=(shared const& other) noexcept { return *this = shared(other); }
    ~shared() {
        if (held_ && held_->owners.fetch_sub(1, memory_order_acq_rel) == 1)
            delete held_;
    }

    /// A new T made of `arguments`. Throws std::bad_alloc and what T's constructor throws.
    template <class... Arguments>
    static shared make(Arguments&&... arguments) {
        shared fresh;
        fresh.held_ = new counted(std::forward<Arguments>(arguments)...);
        return fresh;
    }

    explicit operator bool() const noexcept { return held_ != nullptr; }
    T& operator*() const noexcept { return held_->object; }
    T* operator->() const noexcept { return &held_->object; }
    friend bool operator==(shared const& a, shared const& b) noexcept { return a.held_ == b.held_; }
    friend bool operator!=(shared const& a, shared const& b) noexcept { return a.held_ != b.held_; }

private:
    struct counted {
        template <class... Arguments>
        explicit counted(Arguments&&... arguments) : object(std::forward<Arguments>(arguments)...) {}
        T object;
        atomic<std::size_t> owners{1};
    };

    counted* held_ = nullptr;
};

} // namespace base
} // namespace v0
} // namespace weir
