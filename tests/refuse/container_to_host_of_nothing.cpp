// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: say into what: 'xs.to_host_sync<std::vector>()'
#include <weir/container/vector.hpp>

template <class T>
struct list {
    explicit list(std::size_t);
    T* data();
};

void read(weir::device_vector<int> const& xs) {
#ifdef REJECT
    xs.to_host_sync();
#else
    static_cast<void>(xs.to_host_sync<list>());
#endif
}
