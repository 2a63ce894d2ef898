// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two models that share one card: while one works, the other's memory waits in pinned memory, at the same addresses.

#include <cstdio>
#include <cuda_runtime_api.h>
#include <exception>
#include <vector>
#include <weir/weir.hpp>

struct model {
    weir::device_pool pool;
    weir::device_vector<int> weights;

    model(char const* name, cudaStream_t stream, int value)
        : pool(weir::pool_options{}.name(name)), weights(pool, stream, std::vector<int>(64 << 20, value)) {}
};

void take_turns(cudaStream_t stream) {
    weir::pinned_pool keep;
    model first("first", stream, 1);
    int const* const address = first.weights.data();
    first.pool.suspend(keep); // waits for the device; all 256 MiB are free for others now
    std::puts(first.pool.report().c_str());

    model second("second", stream, 2);
    second.pool.suspend(keep);
    first.pool.resume(); // pointers and captured graphs are good again
    std::puts(first.pool.report().c_str());
    std::puts(second.pool.report().c_str());

    bool const same = first.weights.data() == address && first.weights.element_sync(12345678) == 1;
    std::printf("the first model's weights are %s\n", same ? "where and what they were" : "lost");
    second.pool.resume();
}

int main() {
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        take_turns(stream);
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
