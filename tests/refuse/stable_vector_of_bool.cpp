// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: std::vector<bool> has no elements to copy to; use 'copy_to_sync' with an array
#include <vector>
#include <weir/stable.hpp>

void read(weir::stable_vector<bool> const& flags, bool* target) {
#ifdef REJECT
    static_cast<void>(target);
    flags.to_host_sync<std::vector>();
#else
    flags.copy_to_sync(target);
#endif
}
