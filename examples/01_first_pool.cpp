// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A first pool: typed device memory, freed on its stream; a limit; an error that says what to do.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>
#include <weir/weir.hpp>

void first_pool(cudaStream_t stream) {
    weir::device_pool pool{weir::pool_options{}.limit(1 * weir::GiB).name("first")};

    std::vector<int> numbers(1000);
    std::iota(numbers.begin(), numbers.end(), 1);
    {
        weir::device_vector<int> xs(pool, stream, numbers); // uploaded on the stream
        weir::device_vector<int> ys(pool, stream, xs);      // copied on the stream
        std::vector<int> const back = ys.to_host_sync<std::vector>();  // waits: its name says so
        std::printf("there and back: 1 + ... + 1000 = %d\n", std::accumulate(back.begin(), back.end(), 0));
        std::puts(pool.report().c_str());
    } // both are freed here, on their stream, without waiting
    std::puts(pool.report().c_str());

    try {
        weir::device_buffer too_much(pool, stream, 2 * weir::GiB);
    } catch (weir::out_of_memory const& error) {
        std::puts(error.what());
    }

    void* const raw = pool.allocate(stream, 4096); // memory without a type
    pool.deallocate(stream, raw, 4096);            // the stream and the size come back
    pool.settle();                                 // waits for all work on the pool's memory
    std::printf("given back to the driver: %zu MiB\n", pool.trim() / weir::MiB);
}

int main() {
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        first_pool(stream);
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
