// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Graphs: what a capture records, and what a launch does. See conformance.hpp.

#include "conformance_capture.hpp"

using namespace conformance;

PROBE("a stream is captured from its begin to its end") {
    stream work;
    CHECK(status_of(work) == cudaStreamCaptureStatusNone);
    capture graph(work);
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
    CHECK(graph.graph() != nullptr);
    CHECK(status_of(work) == cudaStreamCaptureStatusNone);
    CHECK(nodes_of(graph.graph()) == 0);
}

PROBE("what is captured does not run before it is launched") {
    stream work;
    device_bytes memory(64);
    CUDA_OK(cudaMemset(memory, 1, 64));
    CUDA_OK(cudaDeviceSynchronize());
    capture graph(work);
    CUDA_OK(cudaMemsetAsync(memory, 2, 64, work));
    CUDA_OK(graph.end());
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(first_byte(memory) == 1);
    executable runs(graph.graph());
    CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(first_byte(memory) == 2);
}

PROBE("a graph runs as often as it is launched") {
    stream work;
    std::atomic<int> count{0};
    capture graph(work);
    CUDA_OK(cudaLaunchHostFunc(work, count_up, &count));
    CUDA_OK(graph.end());
    executable runs(graph.graph());
    for (int round = 0; round < 3; ++round)
        CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(count.load() == 3);
}

PROBE("an executable outlives its graph") {
    stream work;
    device_bytes memory(64);
    capture graph(work);
    CUDA_OK(cudaMemsetAsync(memory, 3, 64, work));
    CUDA_OK(graph.end());
    executable runs(graph.graph());
    CUDA_OK(cudaGraphDestroy(graph.graph()));
    graph.forget();
    CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(first_byte(memory) == 3);
}

PROBE("a launch takes its place in its stream") {
    stream work;
    device_bytes memory(64);
    pinned_bytes host(2);
    capture graph(work);
    CUDA_OK(cudaMemsetAsync(memory, 4, 64, work));
    CUDA_OK(graph.end());
    executable runs(graph.graph());
    CUDA_OK(cudaMemsetAsync(memory, 1, 64, work));
    CUDA_OK(cudaMemcpyAsync(host, memory, 1, cudaMemcpyDeviceToHost, work));
    CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaMemcpyAsync(&host[1], memory, 1, cudaMemcpyDeviceToHost, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(host[0] == 1);
    CHECK(host[1] == 4);
}

PROBE("nodes have types") {
    stream work;
    device_bytes memory(64);
    capture graph(work);
    CUDA_OK(cudaMemsetAsync(memory, 4, 64, work));
    CUDA_OK(graph.end());
    cudaGraphNode_t node = nullptr;
    std::size_t count = 1;
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    CUDA_OK(cudaGraphGetNodes(graph.graph(), &node, &count));
    CHECK(count == 1);
    CUDA_OK(cudaGraphNodeGetType(node, &type));
    CHECK(type == cudaGraphNodeTypeMemset);
}

PROBE("memory is allocated and freed inside a graph") {
    stream work;
    pinned_bytes host(1);
    capture graph(work);
    void* p = nullptr;
    CUDA_OK(cudaMallocAsync(&p, 4096, work));
    CHECK(p != nullptr);
    CUDA_OK(cudaMemsetAsync(p, 12, 4096, work));
    CUDA_OK(cudaMemcpyAsync(host, p, 1, cudaMemcpyDeviceToHost, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(graph.end());
    CHECK(nodes_of(graph.graph()) == 4);
    executable runs(graph.graph());
    for (int round = 0; round < 2; ++round) {
        host[0] = 0;
        CUDA_OK(cudaGraphLaunch(runs, work));
        CUDA_OK(cudaStreamSynchronize(work));
        CHECK(host[0] == 12);
    }
}

PROBE("an external record is a node, and each launch records") {
    stream work;
    event outside;
    capture graph(work);
    CUDA_OK(cudaEventRecordWithFlags(outside, work, cudaEventRecordExternal));
    CUDA_OK(graph.end());
    CHECK(nodes_of(graph.graph()) == 1);
    executable runs(graph.graph());
    gate closed(work);
    CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(outside));
    static_cast<void>(cudaGetLastError());
    closed.open();
    CUDA_OK(cudaEventSynchronize(outside));
}
