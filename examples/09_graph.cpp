// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A captured graph and its memory: temporaries belong to the graph for as long as it is launched, and then to the pool again.

#include <cstdio>
#include <cuda_runtime_api.h>
#include <exception>
#include <weir/graph/graph_memory.hpp>
#include <weir/weir.hpp>

void frames(cudaStream_t stream) {
    weir::device_pool pool(weir::pool_options{}.name("frames"));
    weir::device_vector<unsigned char> result(pool, stream, 1 << 20);

    weir::graph_memory memory(pool);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t frame = nullptr;
    weir::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    {
        weir::device_vector<unsigned char> temporary(memory, stream, 1 << 20); // any container, in the graph's memory
        weir::check_cuda(cudaMemsetAsync(temporary.data(), 7, temporary.size(), stream), "cudaMemsetAsync");
        temporary.copy_to_async(result.data());
    }
    weir::check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    weir::check_cuda(cudaGraphInstantiate(&frame, graph, 0), "cudaGraphInstantiate");

    for (int i = 0; i < 3; ++i)
        weir::check_cuda(cudaGraphLaunch(frame, stream), "cudaGraphLaunch");
    std::printf("after three launches the result is %d; the graph holds %zu MiB\n", result.element_sync(0),
                memory.reserved_bytes() >> 20);

    weir::check_cuda(cudaGraphExecDestroy(frame), "cudaGraphExecDestroy");
    weir::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    memory.release(stream); // the stream of the last launch
    std::puts(pool.report().c_str());
}

int main() {
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        frames(stream);
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
