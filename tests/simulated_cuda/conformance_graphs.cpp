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

// ---- memory that a launch leaves to the program -----------------------------------------------------------

namespace {

/// A graph that allocates memory and fills it, and leaves the free to the program.
class allocating_graph {
public:
    allocating_graph(cudaStream_t work, std::size_t bytes) : graph_(work) {
        CUDA_OK(cudaMallocAsync(&memory, bytes, work));
        CUDA_OK(cudaMemsetAsync(memory, 12, bytes, work));
        CUDA_OK(graph_.end());
        CUDA_MUST(cudaGraphInstantiate(&runs_, graph_.graph(), 0));
    }
    ~allocating_graph() { CUDA_OK(cudaGraphExecDestroy(runs_)); }
    void launch(cudaStream_t work) { CUDA_OK(cudaGraphLaunch(runs_, work)); }
    void* memory = nullptr;

private:
    capture graph_;
    cudaGraphExec_t runs_ = nullptr;
};

std::uint64_t graph_bytes(cudaGraphMemAttributeType attribute) {
    std::uint64_t value = 0;
    CUDA_OK(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

} // namespace

PROBE("a graph ends while its launch, a reader of its memory and the free are enqueued") {
    stream work;
    pinned_bytes host(1);
    device_bytes busy(64 << 20);
    {
        allocating_graph graph(work, 4096);
        for (int ahead = 0; ahead < many_fills; ++ahead)
            CUDA_OK(cudaMemsetAsync(busy, 1, 64 << 20, work));
        graph.launch(work);
        CUDA_OK(cudaMemcpyAsync(host, graph.memory, 1, cudaMemcpyDeviceToHost, work));
        CUDA_OK(cudaFreeAsync(graph.memory, work));
    }
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(host[0] == 12);
}

PROBE("a graph's end frees nothing: what a launch left is read and freed afterwards") {
    stream work;
    void* left[3] = {};
    for (void*& each : left) {
        allocating_graph graph(work, 4096);
        graph.launch(work);
        each = graph.memory;
    }
    CUDA_OK(cudaStreamSynchronize(work));
    for (void* const each : left)
        CHECK(first_byte(each) == 12);
    CUDA_OK(cudaFreeAsync(left[0], work));
    CUDA_OK(cudaFree(left[1]));
    capture frees(work);
    CUDA_OK(cudaFreeAsync(left[2], work));
    CUDA_OK(frees.end());
    executable runs(frees.graph());
    CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("what graphs hold of a device's memory is counted for the device, and goes back when it is trimmed") {
    std::uint64_t const bytes = std::uint64_t(64) << 20;
    CUDA_OK(cudaDeviceGraphMemTrim(0));
    std::uint64_t const before = graph_bytes(cudaGraphMemAttrReservedMemCurrent);
    {
        stream work;
        allocating_graph graph(work, bytes);
        graph.launch(work);
        CUDA_OK(cudaStreamSynchronize(work));
        CHECK(graph_bytes(cudaGraphMemAttrReservedMemCurrent) >= before + bytes);
        CHECK(graph_bytes(cudaGraphMemAttrReservedMemHigh) >= before + bytes);
        CHECK(graph_bytes(cudaGraphMemAttrUsedMemCurrent) >= bytes);
        CHECK(graph_bytes(cudaGraphMemAttrUsedMemHigh) >= bytes);
        CUDA_OK(cudaFreeAsync(graph.memory, work));
        CUDA_OK(cudaStreamSynchronize(work));
    }
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaDeviceGraphMemTrim(0));
    CHECK(graph_bytes(cudaGraphMemAttrReservedMemCurrent) == before);
    std::uint64_t zero = 0;
    CUDA_OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &zero));
    CHECK(graph_bytes(cudaGraphMemAttrReservedMemHigh) < before + bytes);
    CUDA_OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
    CHECK(graph_bytes(cudaGraphMemAttrUsedMemHigh) < before + bytes);
    CUDA_IS(cudaErrorInvalidDevice, cudaDeviceGetGraphMemAttribute(1000, cudaGraphMemAttrUsedMemHigh, &zero));
    CUDA_IS(cudaErrorInvalidDevice, cudaDeviceSetGraphMemAttribute(1000, cudaGraphMemAttrUsedMemHigh, &zero));
    CHECK(cudaDeviceGraphMemTrim(1000) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
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

// ---- user objects -----------------------------------------------------------------------------------------

namespace {

/// A user object that a graph owns and that counts its ends.
void give_object(cudaGraph_t graph, std::atomic<int>& ends) {
    cudaUserObject_t object = nullptr;
    CUDA_MUST(cudaUserObjectCreate(&object, &ends, count_up, 1, cudaUserObjectNoDestructorSync));
    CUDA_OK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
}

cudaGraph_t graph_under_capture(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    CUDA_OK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph));
    return graph;
}

/// It has not ended, however long one asks.
void is_kept(std::atomic<int> const& ends) {
    stream other;
    for (int turns = 0; turns < 1000; ++turns)
        CUDA_OK(cudaStreamQuery(other));
    CHECK(ends.load() == 0);
}

/// The function of an object may be called some time after its last owner's end.
void wait_for_end(std::atomic<int> const& ends) {
    stream other;
    for (int turns = 0; turns < 1'000'000 && ends.load() == 0; ++turns)
        CUDA_OK(cudaStreamQuery(other));
    CHECK(ends.load() == 1);
}

} // namespace

PROBE("a graph takes a user object while it is captured, in every mode, and keeps it until it goes") {
    for (cudaStreamCaptureMode const mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
        stream work;
        std::atomic<int> ends{0};
        {
            capture graph(work, mode);
            give_object(graph_under_capture(work), ends);
            CHECK(status_of(work) == cudaStreamCaptureStatusActive);
            CUDA_OK(graph.end());
            CUDA_OK(cudaDeviceSynchronize());
            is_kept(ends);
        }
        wait_for_end(ends);
    }
}

PROBE("an executable keeps the user objects of its graph") {
    stream work;
    device_bytes memory(64);
    std::atomic<int> ends{0};
    {
        capture graph(work);
        CUDA_OK(cudaMemsetAsync(memory, 3, 64, work));
        give_object(graph_under_capture(work), ends);
        CUDA_OK(graph.end());
        executable runs(graph.graph());
        CUDA_OK(cudaGraphDestroy(graph.graph()));
        graph.forget();
        CUDA_OK(cudaGraphLaunch(runs, work));
        CUDA_OK(cudaStreamSynchronize(work));
        is_kept(ends);
    }
    wait_for_end(ends);
}

PROBE("a launch under way keeps the user objects of its graph") {
    stream work;
    device_bytes memory(64 << 20);
    std::atomic<int> ends{0};
    capture graph(work);
    CUDA_OK(cudaMemsetAsync(memory, 3, 64 << 20, work));
    give_object(graph_under_capture(work), ends);
    CUDA_OK(graph.end());
    cudaGraphExec_t runs = nullptr;
    CUDA_MUST(cudaGraphInstantiate(&runs, graph.graph(), 0));
    CUDA_OK(cudaGraphDestroy(graph.graph()));
    graph.forget();
    // Work of the device, and no gate: the function of an object may be called by the thread that calls host functions.
    for (int ahead = 0; ahead < many_fills; ++ahead)
        CUDA_OK(cudaMemsetAsync(memory, 1, 64 << 20, work));
    CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaGraphExecDestroy(runs));
    bool over = false;
    for (int turns = 0; turns < 1'000'000 && !over; ++turns) {
        bool const ended = ends.load() != 0;
        over = cudaStreamQuery(work) == cudaSuccess; // asked after: it was over then as well
        static_cast<void>(cudaGetLastError());
        CHECK((over || !ended));
    }
    CUDA_OK(cudaStreamSynchronize(work));
    wait_for_end(ends);
}

PROBE("a clone keeps the user objects of its graph") {
    stream work;
    std::atomic<int> ends{0};
    cudaGraph_t clone = nullptr;
    {
        capture graph(work);
        give_object(graph_under_capture(work), ends);
        CUDA_OK(graph.end());
        CUDA_OK(cudaGraphClone(&clone, graph.graph()));
    }
    is_kept(ends);
    CUDA_OK(cudaGraphDestroy(clone));
    wait_for_end(ends);
}

PROBE("an executable that is updated keeps the user objects of the new graph, and those of the old one no more") {
    stream work;
    device_bytes memory(64);
    std::atomic<int> old_ends{0}, new_ends{0};
    {
        capture first(work);
        CUDA_OK(cudaMemsetAsync(memory, 3, 64, work));
        give_object(graph_under_capture(work), old_ends);
        CUDA_OK(first.end());
        executable runs(first.graph());
        {
            capture second(work);
            CUDA_OK(cudaMemsetAsync(memory, 4, 64, work));
            give_object(graph_under_capture(work), new_ends);
            CUDA_OK(second.end());
            cudaGraphExecUpdateResultInfo result = {};
            CUDA_OK(cudaGraphExecUpdate(runs, second.graph(), &result));
            CHECK(result.result == cudaGraphExecUpdateSuccess);
        }
        CUDA_OK(cudaGraphDestroy(first.graph()));
        first.forget();
        wait_for_end(old_ends);
        is_kept(new_ends);
        CUDA_OK(cudaGraphLaunch(runs, work));
        CUDA_OK(cudaStreamSynchronize(work));
        CHECK(first_byte(memory) == 4);
    }
    wait_for_end(new_ends);
}

PROBE("an executable has references to user objects of its own") {
    stream work;
    std::atomic<int> ends{0}, late_ends{0};
    cudaUserObject_t object = nullptr;
    CUDA_MUST(cudaUserObjectCreate(&object, &ends, count_up, 1, cudaUserObjectNoDestructorSync));
    {
        capture graph(work);
        CUDA_OK(graph.end());
        CUDA_OK(cudaGraphRetainUserObject(graph.graph(), object, 1, cudaGraphUserObjectMove));
        executable runs(graph.graph());
        CUDA_OK(cudaGraphReleaseUserObject(graph.graph(), object, 1));
        is_kept(ends);
        give_object(graph.graph(), late_ends); // which the executable knows nothing of
        CUDA_OK(cudaGraphDestroy(graph.graph()));
        graph.forget();
        wait_for_end(late_ends);
        CHECK(ends.load() == 0);
    }
    wait_for_end(ends);
}

PROBE("the user objects of a broken capture end with it") {
    stream work;
    std::atomic<int> ends{0};
    capture graph(work);
    give_object(graph_under_capture(work), ends);
    CHECK(cudaStreamSynchronize(work) != cudaSuccess);
    is_broken(work, graph);
    wait_for_end(ends);
}

PROBE("any stream of a capture names its graph") {
    stream work, other;
    event fork, join;
    capture graph(work);
    CUDA_OK(cudaEventRecord(fork, work));
    CUDA_OK(cudaStreamWaitEvent(other, fork, 0));
    cudaGraph_t const under = graph_under_capture(other);
    CHECK(under == graph_under_capture(work));
    CUDA_OK(cudaEventRecord(join, other));
    CUDA_OK(cudaStreamWaitEvent(work, join, 0));
    CUDA_OK(graph.end());
    CHECK(under == graph.graph());
}

PROBE("a user object counts its owners") {
    std::atomic<int> ends{0};
    cudaUserObject_t object = nullptr;
    CUDA_OK(cudaUserObjectCreate(&object, &ends, count_up, 1, cudaUserObjectNoDestructorSync));
    CUDA_OK(cudaUserObjectRetain(object, 2));
    CUDA_OK(cudaUserObjectRelease(object, 2));
    cudaGraph_t graph = nullptr;
    CUDA_OK(cudaGraphCreate(&graph, 0));
    CUDA_OK(cudaGraphRetainUserObject(graph, object, 2, 0));
    CUDA_OK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    CUDA_OK(cudaGraphReleaseUserObject(graph, object, 2));
    is_kept(ends);
    CUDA_OK(cudaGraphReleaseUserObject(graph, object, 1));
    wait_for_end(ends);
    CUDA_OK(cudaGraphDestroy(graph));
}

PROBE("calls with user objects refuse what is none") {
    std::atomic<int> ends{0};
    cudaUserObject_t object = nullptr;
    unsigned const flags = cudaUserObjectNoDestructorSync;
    CUDA_IS(cudaErrorInvalidValue, cudaUserObjectCreate(nullptr, &ends, count_up, 1, flags));
    CUDA_IS(cudaErrorInvalidValue, cudaUserObjectCreate(&object, &ends, nullptr, 1, flags));
    CUDA_IS(cudaErrorInvalidValue, cudaUserObjectCreate(&object, &ends, count_up, 0, flags));
    CUDA_IS(cudaErrorInvalidValue, cudaUserObjectCreate(&object, &ends, count_up, 1, 0));
    CUDA_OK(cudaUserObjectCreate(&object, &ends, count_up, 1, flags));
    cudaGraph_t graph = nullptr;
    CUDA_OK(cudaGraphCreate(&graph, 0));
    CUDA_IS(cudaErrorInvalidValue, cudaGraphRetainUserObject(nullptr, object, 1, cudaGraphUserObjectMove));
    CUDA_IS(cudaErrorInvalidValue, cudaGraphRetainUserObject(graph, nullptr, 1, cudaGraphUserObjectMove));
    CUDA_IS(cudaErrorInvalidValue, cudaGraphRetainUserObject(graph, object, 0, cudaGraphUserObjectMove));
    CUDA_IS(cudaErrorInvalidValue, cudaGraphRetainUserObject(graph, object, 1, 7));
    CUDA_OK(cudaUserObjectRelease(object, 1));
    wait_for_end(ends);
    CUDA_OK(cudaGraphDestroy(graph));
}
