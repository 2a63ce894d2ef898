// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do two values change places?
//
// As with std::swap, without the question whether a type may be swapped: that question instantiates a dozen traits for
// each type, in every file that includes weir. It took a twentieth of what weir adds to a compilation.
//
// not for: types whose moves throw.

namespace weir {
inline namespace v0 {
namespace base {

/// `a` becomes what `b` was, and the other way round. One of them may not be the other.
template <class T>
void swap_values(T& a, T& b) noexcept {
    T before(static_cast<T&&>(a));
    a = static_cast<T&&>(b);
    b = static_cast<T&&>(before);
}

} // namespace base
} // namespace v0
} // namespace weir
