// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: make another one and 'append(xs)'
#include <weir/stable/stable_vector.hpp>

weir::stable_vector<int> copy(weir::stable_vector<int>& from, cudaStream_t stream) {
#ifdef REJECT
    static_cast<void>(stream);
    return weir::stable_vector<int>(from);
#else
    weir::stable_vector<int> other(from.pool(), stream, from.max_elements());
    other.append(from);
    return other;
#endif
}
