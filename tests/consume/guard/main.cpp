// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "pool.hpp"

#include <cstdio>

int main() {
    void* const p = shared_pool.allocate_sync(1000);
    shared_pool.deallocate_sync(p, 1000);
    std::printf("in use: %zu\n", shared_pool.in_use_bytes());
}
