// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A program that uses weir itself, and two libraries that do, each with other options.
#include <weir/weir.hpp>

#include <cstdio>
#include <new>

extern "C" void debug(char const* name);
extern "C" void release(char const* name);

int main() {
    weir::host_pool pool{weir::pool_options{}.name("program")};
    void* const p = pool.allocate_sync(1000);
    for (auto const each : {debug, release})
        try {
            each(each == debug ? "debug" : "release");
        } catch (std::bad_alloc const& refused) {
            std::printf("program: %s\n", refused.what());
        }
    pool.deallocate_sync(p, 1000);
    std::printf("program: %zu bytes in use\n", pool.in_use_bytes());
}
