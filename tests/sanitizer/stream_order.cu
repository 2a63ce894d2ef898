// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A right program on CUDA's own pools, by weir::driver_pool and by CCCL's cuda::mr: blocks go from stream to stream, in order.
// run.sh runs it under 'compute-sanitizer --track-stream-ordered-races all', which must find nothing.

#include <cstdio>
#include <cuda_runtime.h>
#include <exception>
#include <random>
#include <vector>
#include <weir/interop/cuda_mr.hpp>
#include <weir/weir.hpp>

namespace {

__global__ void fill(char* p, std::size_t bytes) {
    for (std::size_t each = threadIdx.x; each < bytes; each += blockDim.x)
        p[each] = 1;
}

struct block {
    void* p;
    std::size_t bytes, stream;
};

// Blocks of `allocate(stream, bytes)`, written on their streams and, where that is told, on others, and freed in any order.
template <class Allocate, class Used, class Free>
void campaign(std::vector<cudaStream_t> const& streams, Allocate const& allocate, Used const& used, Free const& free) {
    std::mt19937 random(41);
    std::vector<block> live;
    for (int step = 0; step != 400; ++step)
        if (live.empty() || random() % 2 == 0) {
            std::size_t const bytes = 1 + random() % 100'000, stream = random() % streams.size();
            live.push_back({allocate(streams[stream], bytes), bytes, stream});
            fill<<<1, 64, 0, streams[stream]>>>(static_cast<char*>(live.back().p), bytes);
        } else {
            std::size_t const at = random() % live.size();
            if (random() % 4 == 0)
                used(live[at].p, live[at].bytes, streams[live[at].stream], streams[random() % streams.size()]);
            free(streams[live[at].stream], live[at].p, live[at].bytes);
            live[at] = live.back();
            live.pop_back();
        }
    for (block const& each : live)
        free(streams[each.stream], each.p, each.bytes);
    weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void after(cudaStream_t before, cudaStream_t stream) {
    cudaEvent_t reached = nullptr;
    weir::check_cuda(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    weir::check_cuda(cudaEventRecord(reached, before), "cudaEventRecord");
    weir::check_cuda(cudaStreamWaitEvent(stream, reached), "cudaStreamWaitEvent");
    weir::check_cuda(cudaEventDestroy(reached), "cudaEventDestroy");
}

} // namespace

int main() {
    try {
        std::vector<cudaStream_t> streams(3);
        for (cudaStream_t& each : streams)
            weir::check_cuda(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        weir::driver_pool pool;
        campaign(
            streams, [&](cudaStream_t stream, std::size_t bytes) { return pool.allocate(stream, bytes); },
            [&](void* p, std::size_t bytes, cudaStream_t own, cudaStream_t other) {
                after(own, other);
                fill<<<1, 64, 0, other>>>(static_cast<char*>(p), bytes);
                pool.used_on(p, other);
            },
            [&](cudaStream_t stream, void* p, std::size_t bytes) { pool.deallocate(stream, p, bytes); });
        auto mr = weir::interop::cuda_mr::resource(pool);
        campaign(
            streams, [&](cudaStream_t stream, std::size_t bytes) { return mr.allocate(cuda::stream_ref(stream), bytes, 16); },
            [&](void* p, std::size_t bytes, cudaStream_t own, cudaStream_t other) { // ordered by hand: cuda::mr knows one stream
                after(own, other);
                fill<<<1, 64, 0, other>>>(static_cast<char*>(p), bytes);
                after(other, own);
            },
            [&](cudaStream_t on, void* p, std::size_t bytes) { mr.deallocate(cuda::stream_ref(on), p, bytes, 16); });
        for (cudaStream_t each : streams)
            weir::check_cuda(cudaStreamDestroy(each), "cudaStreamDestroy");
        std::puts("800 steps");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
