// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What becomes of a call that fails where nobody could repeat it later?
//
// A destructor that gives something back to CUDA holds the last name of it: if the call fails, the thing leaks. Some failures
// pass at once (another thread's capture got in the way, or a test made one call fail), so such a call is made again, once.
//
// not for: calls whose caller can be told; those report the failure, and the caller decides.

namespace weir {
inline namespace v0 {
namespace base {

/// Makes the call, and makes it again if it answered false or threw. Whether it succeeded in the end. `call`: answers a bool.
template <class Call>
bool try_twice(Call const& call) noexcept {
    for (int tries = 0; tries != 2; ++tries)
        try {
            if (call())
                return true;
        } catch (...) { // as if it had answered false
        }
    return false;
}

} // namespace base
} // namespace v0
} // namespace weir
