// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A user's test program, which asks for no report: 'right' makes no mistake, and each other word one.
#include <cstdio>
#include <cstring>
#include <weir/simulated_device.hpp>
#include <weir/weir.hpp>

std::size_t in_use_after_a_pair(weir::device_pool& pool);

int main(int, char** words) {
    weir::device_pool pool;
    simulated_device::watched<weir::device_pool> watched;
    cudaStream_t const stream = nullptr;
    void* const p = watched.allocate(stream, 1000);
    if (std::strcmp(words[1], "beyond") == 0)
        cudaMemsetAsync(p, 0, 1001, stream);
    cudaMemsetAsync(p, 0, 1000, stream);
    watched.deallocate(stream, p, 1000);
    if (std::strcmp(words[1], "after") == 0)
        simulated_device::launch(stream, {{p, 8}}, {});
    std::printf("in use: %zu\n", in_use_after_a_pair(pool));
}
