// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a pinned container is filled by the host, which cannot read a device container; use the
// device container's 'copy_to_async' with the pinned container's 'data()'
#include <weir/container/vector.hpp>

void fill(weir::pinned_vector<int>& to, weir::device_vector<int> const& from) {
#ifdef REJECT
    to.assign(from);
#else
    to.resize(from.size());
    from.copy_to_async(to.data());
#endif
}
