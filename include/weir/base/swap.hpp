// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do two values change places?
//
// As std::swap does, but without checking whether a type may be swapped. That check instantiates a dozen traits for each
// type, in every file that includes weir. It took a twentieth of what weir adds to a compilation.
//
// not for: types whose moves throw.

namespace weir {
inline namespace v0 {
namespace base {

/// `a` gets the value of `b`, and `b` that of `a`. They must be different objects.
template <class T>
void swap_values(T& a, T& b) noexcept {
    T before(static_cast<T&&>(a));
    a = static_cast<T&&>(b);
    b = static_cast<T&&>(before);
}

} // namespace base
} // namespace v0
} // namespace weir
