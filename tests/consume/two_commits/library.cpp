// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A shared library that uses weir inside. LIBRARY is the name of the one function that it shows.
#include <weir/weir.hpp>

#include <cstdio>
#include <cstring>

extern "C" [[gnu::visibility("default")]] void LIBRARY() {
    weir::host_pool pool{weir::pool_options{}.name("inside")};
    for (std::size_t bytes : {std::size_t{1000}, std::size_t{100000}}) {
        void* const p = pool.allocate_sync(bytes);
        std::memset(p, 1, bytes);
        pool.deallocate_sync(p, bytes);
    }
    pool.trim();
    std::puts(pool.report().c_str());
}
