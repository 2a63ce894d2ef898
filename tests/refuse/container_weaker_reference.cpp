// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a reference to this kind of pool promises less than the container needs; make the container's
// reference from the pool itself
#include <weir/container/vector.hpp>

#ifdef REJECT
void upload(weir::device_vector<int> const& from, cudaStream_t stream) {
    weir::pinned_vector<int> xs(from.pool(), stream);
}
#else
void upload(weir::pinned_vector<int> const& from, cudaStream_t stream) {
    weir::device_vector<int> xs(from.pool(), stream);
}
#endif
