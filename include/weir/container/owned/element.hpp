// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which types may a container hold, and how many bytes are n of them?
//
// Elements are copied between memories as bytes: by copy engines, by cudaMemcpyAsync, or by a kernel that knows nothing of
// constructors. So a container holds only types whose value is copied when their bytes are copied. Other types are refused at
// compile time with a sentence.
//
// invariant: bytes_of(n) == n * sizeof(T), or it throws; it never wraps.
// cost:      one compare.
// not for:   untyped memory, whose size is in bytes anyway.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <weir/base/error.hpp>
#include <weir/base/text.hpp>

namespace weir {
inline namespace v0 {
namespace container::detail {

/// What containers demand of their element type `T`, checked at compile time, and the conversion to bytes.
template <class T>
struct element {
    static_assert(
        std::is_object_v<T> && std::is_same_v<T, std::remove_cv_t<T>>,
        "weir: a container's element is a type of object without const or volatile; make the container, "
        "or the pointer into it, const instead");
    static_assert(!std::is_array_v<T>,
                  "weir: a container's element is no array, because functions cannot take or return one; hold a struct that "
                  "has the array as a member, such as std::array");
    static_assert(
        std::is_trivially_copyable_v<T>,
        "weir: a container's element must be trivially copyable, because elements travel between memories "
        "as bytes and their constructors do not run; hold a plain struct, or an index into host memory");

    /// The most elements that an object can have, by its bytes.
    static constexpr std::size_t most = PTRDIFF_MAX / sizeof(T);

    /// The bytes of `count` elements. Throws usage_error if there cannot be so many.
    static std::size_t bytes_of(std::size_t count) {
        if (count > most)
            refuse(count);
        return count * sizeof(T);
    }

    /// The address of `value`, even if its type overloads operator&.
    static T const* address_of(T const& value) noexcept { return __builtin_addressof(value); }

private:
    [[noreturn]] static void refuse(std::size_t count) {
        throw usage_error("weir: " + base::number_text(count) + " elements of " + base::count_text(sizeof(T), " byte") +
                          " do not fit the address space; ask for at most " + base::number_text(most));
    }
};

} // namespace container::detail
} // namespace v0
} // namespace weir
