// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a pinned container is filled by the host, which cannot read a device container
#include <weir/stable.hpp>

void fill(weir::pinned_vector<int>& to, weir::stable_vector<int> const& from) {
#ifdef REJECT
    to.assign(from);
#else
    to.resize(from.size());
    from.copy_to_sync(to.data());
#endif
}
