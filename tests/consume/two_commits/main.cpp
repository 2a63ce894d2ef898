// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A program that uses weir itself, and two libraries that do.
#include <weir/weir.hpp>

#include <cstdio>

extern "C" void this_commit();
extern "C" void another_commit();

int main() {
    weir::host_pool pool{weir::pool_options{}.name("program")};
    void* const p = pool.allocate_sync(1000);
    for (auto const each : {this_commit, another_commit})
        each();
    pool.deallocate_sync(p, 1000);
    std::puts(pool.report().c_str());
}
