// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: copy it with 'device_vector<T>(xs.pool(), xs.stream(), xs)'
#include <weir/container/vector.hpp>

weir::device_vector<int> copy(weir::device_vector<int>& from, cudaStream_t stream) {
#ifdef REJECT
    static_cast<void>(stream);
    return weir::device_vector<int>(from);
#else
    return weir::device_vector<int>(from.pool(), stream, from);
#endif
}
