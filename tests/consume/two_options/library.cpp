// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A shared library that uses weir inside, with options of its own. LIBRARY is the name of the one function that it shows.
#include <weir/weir.hpp>

#include <cstdio>

namespace {
int wrong_frees = 0;
}

// Prints which options its code follows, and ends with an exception that is its own.
extern "C" [[gnu::visibility("default")]] void LIBRARY(char const* name) {
    weir::host_pool pool{weir::pool_options{}.name(name).limit(weir::MiB)};
#if WEIR_GUARD
    pool.on_violation([](char const*) { ++wrong_frees; });
#endif
    void* const p = pool.allocate_sync(1000);
    pool.deallocate_sync(p, 1001); // which costs as much; only a guard minds
    std::printf("%s: %d wrong frees, %zu bytes in use, null is %s\n", name, wrong_frees, pool.in_use_bytes(),
                weir::stream_ref(cudaStream_t{}).get() == cudaStreamPerThread ? "per thread" : "legacy");
    try {
        static_cast<void>(pool.allocate_sync(2 * weir::MiB));
    } catch (weir::out_of_memory const& refused) {
        std::printf("%s: refused %zu bytes\n", name, refused.asked_bytes());
        throw;
    }
}
