// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A user's program of two translation units. Runs on any machine: with no GPU it prints what weir says then.
#include <weir/weir.hpp>

#include <cstdio>
#include <cstring>

std::size_t in_use_after_a_pair(weir::device_pool& pool);

int main() {
    weir::pool<weir::upstream::host, weir::placement::arena, weir::reuse::immediate> scratch;
    void* words = scratch.allocate_sync(1024);
    std::memset(words, 0, 1024);
    scratch.deallocate_sync(words, 1024);
    try {
        weir::device_pool pool{weir::pool_options{}.name("consumer")};
        std::printf("in use: %zu\n", in_use_after_a_pair(pool));
    } catch (weir::cuda_error const& error) {
        std::printf("%s\n", error.what());
    }
    std::puts("consumed");
}
