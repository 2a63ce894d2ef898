// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Stream capture: what it forbids, to whom, and what breaks it. See conformance.hpp.

#include "conformance_capture.hpp"

#include <string>

using namespace conformance;

namespace {

cudaError_t allocates(cudaStream_t, cudaEvent_t) {
    void* p = nullptr;
    return cudaMalloc(&p, 256);
}

} // namespace

PROBE("the legacy stream is not captured") {
    CUDA_IS(cudaErrorStreamCaptureUnsupported,
            cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal));
    static_cast<void>(cudaGetLastError());
}

PROBE("a thread's own default stream is captured") {
    capture graph(cudaStreamPerThread);
    CHECK(status_of(cudaStreamPerThread) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
}

PROBE("the end of no capture is an error") {
    stream work;
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(work, &graph) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
    CHECK(graph == nullptr);
}

PROBE("a second begin is an error") {
    stream work;
    capture graph(work);
    CHECK(cudaStreamBeginCapture(work, cudaStreamCaptureModeGlobal) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
}

PROBE("what asks about captured work or waits for it, and what allocates, breaks a capture") {
    struct {
        char const* what;
        cudaError_t answer;
        cudaError_t (*call)(cudaStream_t captured, cudaEvent_t inside);
        cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    } const calls[] = {
        {"asks the stream", cudaErrorStreamCaptureUnsupported, [](cudaStream_t s, cudaEvent_t) { return cudaStreamQuery(s); }},
        {"waits for the stream", cudaErrorStreamCaptureUnsupported,
         [](cudaStream_t s, cudaEvent_t) { return cudaStreamSynchronize(s); }},
        {"waits for the device", cudaErrorStreamCaptureUnsupported,
         [](cudaStream_t, cudaEvent_t) { return cudaDeviceSynchronize(); }},
        {"asks an event", cudaErrorCapturedEvent, [](cudaStream_t, cudaEvent_t e) { return cudaEventQuery(e); }},
        {"waits for an event", cudaErrorCapturedEvent, [](cudaStream_t, cudaEvent_t e) { return cudaEventSynchronize(e); }},
        {"allocates", cudaErrorStreamCaptureUnsupported, &allocates},
        {"allocates", cudaErrorStreamCaptureUnsupported, &allocates, cudaStreamCaptureModeThreadLocal},
    };
    for (auto const& each : calls) {
        CAPTURE(std::string(each.what));
        CAPTURE(static_cast<int>(each.mode));
        stream work;
        event inside;
        capture graph(work, each.mode);
        if (each.answer == cudaErrorCapturedEvent)
            CUDA_OK(cudaEventRecord(inside, work));
        CUDA_IS(each.answer, each.call(work, inside));
        is_broken(work, graph);
    }
}

PROBE("allocating is no harm to a relaxed capture") {
    stream work;
    void* p = nullptr;
    capture graph(work, cudaStreamCaptureModeRelaxed);
    CUDA_OK(cudaMalloc(&p, 256));
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
    CUDA_OK(cudaFree(p));
}

PROBE("a thread of relaxed mode allocates during a global capture of its own") {
    stream work;
    void* p = nullptr;
    capture graph(work, cudaStreamCaptureModeGlobal);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == cudaStreamCaptureModeGlobal);
    CUDA_OK(cudaMalloc(&p, 256));
    CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == cudaStreamCaptureModeRelaxed);
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
    CUDA_OK(cudaFree(p));
}

PROBE("another thread's allocation breaks a global capture") {
    stream work;
    capture graph(work, cudaStreamCaptureModeGlobal);
    cudaError_t elsewhere = cudaSuccess;
    std::thread([&] {
        void* p = nullptr;
        elsewhere = cudaMalloc(&p, 256);
    }).join();
    CUDA_IS(cudaErrorStreamCaptureUnsupported, elsewhere);
    is_broken(work, graph);
}

PROBE("another thread's allocation is no harm to a thread-local capture") {
    stream work;
    void* p = nullptr;
    capture graph(work, cudaStreamCaptureModeThreadLocal);
    cudaError_t elsewhere = cudaErrorUnknown;
    std::thread([&] { elsewhere = cudaMalloc(&p, 256); }).join();
    CUDA_OK(elsewhere);
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
    CUDA_OK(cudaFree(p));
}

PROBE("another thread of relaxed mode allocates during a global capture") {
    stream work;
    void* p = nullptr;
    capture graph(work, cudaStreamCaptureModeGlobal);
    cudaError_t elsewhere = cudaErrorUnknown;
    std::thread([&] {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
        elsewhere = cudaMalloc(&p, 256);
    }).join();
    CUDA_OK(elsewhere);
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
    CUDA_OK(cudaFree(p));
}

PROBE("asking any event breaks a global capture") {
    stream work;
    stream other;
    event outside;
    CUDA_OK(cudaEventRecord(outside, other));
    CUDA_OK(cudaEventSynchronize(outside));
    capture graph(work, cudaStreamCaptureModeGlobal);
    CUDA_IS(cudaErrorStreamCaptureUnsupported, cudaEventQuery(outside));
    is_broken(work, graph);
}

PROBE("a thread of relaxed mode asks events during a capture") {
    stream work;
    stream other;
    event outside;
    CUDA_OK(cudaEventRecord(outside, other));
    CUDA_OK(cudaEventSynchronize(outside));
    capture graph(work, cudaStreamCaptureModeGlobal);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    CUDA_OK(cudaEventQuery(outside));
    CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
}

PROBE("a thread's capture mode begins as global") {
    std::thread([] {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
        CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
        CHECK(mode == cudaStreamCaptureModeGlobal);
    }).join();
}

PROBE("whether a stream is captured may be asked during the capture") {
    stream work;
    capture graph(work);
    for (int i = 0; i < 3; ++i)
        CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
}

PROBE("asking for a captured stream's id breaks its capture") {
    stream work;
    capture graph(work);
    unsigned long long id = 0;
    CUDA_IS(cudaErrorStreamCaptureUnsupported, cudaStreamGetId(work, &id));
    CHECK(status_of(work) == cudaStreamCaptureStatusInvalidated);
    CUDA_IS(cudaErrorStreamCaptureInvalidated, graph.end());
    static_cast<void>(cudaGetLastError());
}

PROBE("asking for a captured stream's flags breaks its capture") {
    stream work;
    capture graph(work);
    unsigned flags = 0;
    CUDA_IS(cudaErrorStreamCaptureUnsupported, cudaStreamGetFlags(work, &flags));
    CUDA_IS(cudaErrorStreamCaptureInvalidated, graph.end());
    static_cast<void>(cudaGetLastError());
}

PROBE("asking for a captured stream's device breaks its capture") {
    stream work;
    capture graph(work);
    int device = 0;
    CUDA_IS(cudaErrorStreamCaptureUnsupported, cudaStreamGetDevice(work, &device));
    CUDA_IS(cudaErrorStreamCaptureInvalidated, graph.end());
    static_cast<void>(cudaGetLastError());
}

PROBE("questions about another stream are no harm to a capture") {
    stream work;
    stream other;
    capture graph(work);
    unsigned long long id = 0;
    int device = 0;
    CUDA_OK(cudaStreamGetId(other, &id));
    CUDA_OK(cudaStreamGetDevice(other, &device));
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
}

PROBE("events are made and destroyed during a capture") {
    stream work;
    capture graph(work);
    { event fresh; }
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
}

PROBE("records on other streams are no harm to a capture") {
    stream work;
    stream other;
    event outside;
    capture graph(work);
    CUDA_OK(cudaEventRecord(outside, other));
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
    CUDA_OK(cudaEventSynchronize(outside));
}

PROBE("a stream that waits for a captured event is captured too") {
    stream work;
    stream side;
    event fork;
    event join;
    device_bytes memory(64);
    capture graph(work);
    CUDA_OK(cudaEventRecord(fork, work));
    CUDA_OK(cudaStreamWaitEvent(side, fork, 0));
    CHECK(status_of(side) == cudaStreamCaptureStatusActive);
    CUDA_OK(cudaMemsetAsync(memory, 6, 64, side));
    CUDA_OK(cudaEventRecord(join, side));
    CUDA_OK(cudaStreamWaitEvent(work, join, 0));
    CUDA_OK(graph.end());
    CHECK(status_of(side) == cudaStreamCaptureStatusNone);
    CHECK(nodes_of(graph.graph()) == 1);
    executable runs(graph.graph());
    CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(first_byte(memory) == 6);
}

PROBE("a capture that was not joined gives no graph") {
    stream work;
    stream side;
    event fork;
    device_bytes memory(64);
    capture graph(work);
    CUDA_OK(cudaEventRecord(fork, work));
    CUDA_OK(cudaStreamWaitEvent(side, fork, 0));
    CUDA_OK(cudaMemsetAsync(memory, 6, 64, side));
    CUDA_IS(cudaErrorStreamCaptureUnjoined, graph.end());
    CHECK(graph.graph() == nullptr);
    CHECK(status_of(work) == cudaStreamCaptureStatusNone);
    CHECK(status_of(side) == cudaStreamCaptureStatusNone);
}

PROBE("waiting inside for work outside breaks a capture") {
    stream work;
    stream other;
    event outside;
    CUDA_OK(cudaEventRecord(outside, other));
    capture graph(work);
    CUDA_IS(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(work, outside, 0));
    is_broken(work, graph);
}

PROBE("a capture is ended by the thread that began it") {
    stream work;
    capture graph(work, cudaStreamCaptureModeThreadLocal);
    cudaError_t elsewhere = cudaSuccess;
    cudaGraph_t none = nullptr;
    std::thread([&] { elsewhere = cudaStreamEndCapture(work, &none); }).join();
    CUDA_IS(cudaErrorStreamCaptureWrongThread, elsewhere);
    CHECK(none == nullptr);
}

PROBE("a relaxed capture is ended by any thread") {
    stream work;
    capture graph(work, cudaStreamCaptureModeRelaxed);
    cudaError_t elsewhere = cudaErrorUnknown;
    std::thread([&] { elsewhere = graph.end(); }).join();
    CUDA_OK(elsewhere);
    CHECK(graph.graph() != nullptr);
}

PROBE("a capture is ended on the stream where it began") {
    stream work;
    stream side;
    event fork;
    capture graph(work);
    CUDA_OK(cudaEventRecord(fork, work));
    CUDA_OK(cudaStreamWaitEvent(side, fork, 0));
    cudaGraph_t none = nullptr;
    CUDA_IS(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(side, &none));
    static_cast<void>(cudaGetLastError());
    CHECK(none == nullptr);
}

PROBE("two captures do not merge") {
    stream one;
    stream other;
    event inside;
    capture first(one);
    capture second(other);
    CUDA_OK(cudaEventRecord(inside, one));
    CUDA_IS(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(other, inside, 0));
    static_cast<void>(cudaGetLastError());
}

PROBE("the legacy stream cannot be used while a blocking stream is captured") {
    stream blocking(cudaStreamDefault);
    device_bytes memory(64);
    capture graph(blocking);
    CUDA_IS(cudaErrorStreamCaptureImplicit, cudaMemsetAsync(memory, 1, 64, cudaStreamLegacy));
    is_broken(blocking, graph);
}

PROBE("asking whether the legacy stream is captured is refused while a blocking stream is") {
    stream blocking(cudaStreamDefault);
    capture graph(blocking);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CUDA_IS(cudaErrorStreamCaptureImplicit, cudaStreamIsCapturing(cudaStreamLegacy, &status));
    static_cast<void>(cudaGetLastError());
    CHECK(status_of(blocking) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
}

PROBE("the legacy stream is used while a stream that does not block is captured") {
    stream free;
    device_bytes memory(64);
    capture graph(free);
    CUDA_OK(cudaMemsetAsync(memory, 1, 64, cudaStreamLegacy));
    CHECK(status_of(cudaStreamLegacy) == cudaStreamCaptureStatusNone);
    CHECK(status_of(free) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
}

namespace {

cudaError_t all_about(cudaStream_t stream, cudaStreamCaptureStatus& status, unsigned long long& id, cudaGraph_t& graph,
                      cudaGraphNode_t const*& nodes, std::size_t& count) {
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, nullptr, &count);
#else // without edges
    return cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &count);
#endif
}

} // namespace

PROBE("a node of a capture tells which nodes it depends on") {
    stream work, side;
    event fork, join;
    device_bytes memory(128);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t inside = nullptr;
    cudaGraphNode_t const* nodes = nullptr;
    std::size_t count = 0;
    auto const last_of = [&](cudaStream_t of) {
        CUDA_OK(all_about(of, status, id, inside, nodes, count));
        CHECK(count == 1);
        return count == 1 ? nodes[0] : nullptr;
    };
    auto const before = [](cudaGraphNode_t node, cudaGraphNode_t* found, std::size_t* most) {
#if CUDART_VERSION >= 13000
        return cudaGraphNodeGetDependencies(node, found, nullptr, most);
#else
        return cudaGraphNodeGetDependencies(node, found, most);
#endif
    };
    capture graph(work);
    CUDA_OK(cudaMemsetAsync(memory, 1, 64, work));
    cudaGraphNode_t const first = last_of(work);
    CUDA_OK(before(first, nullptr, &count));
    CHECK(count == 0);
    CUDA_OK(cudaEventRecord(fork, work));
    CUDA_OK(cudaStreamWaitEvent(side, fork, 0));
    CUDA_OK(cudaMemsetAsync(memory, 2, 64, side));
    cudaGraphNode_t const branch = last_of(side);
    CUDA_OK(cudaMemsetAsync(memory.at(64), 2, 64, work));
    cudaGraphNode_t const beside = last_of(work);
    CUDA_OK(cudaEventRecord(join, side));
    CUDA_OK(cudaStreamWaitEvent(work, join, 0));
    CUDA_OK(cudaMemsetAsync(memory, 3, 128, work));
    cudaGraphNode_t const last = last_of(work);
    CUDA_OK(before(last, nullptr, &count));
    CHECK(count == 2);
    cudaGraphNode_t found[3] = {first, first, first};
    count = 3;
    CUDA_OK(before(last, found, &count));
    CHECK(count == 2);
    CHECK(((found[0] == branch && found[1] == beside) || (found[0] == beside && found[1] == branch)));
    CHECK(found[2] == nullptr);
    count = 1;
    CUDA_OK(before(branch, found, &count));
    CHECK(found[0] == first);
    CUDA_OK(graph.end());
}

PROBE("a capture tells its id, its graph and what comes next") {
    stream work;
    device_bytes memory(64);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    unsigned long long first = 0;
    unsigned long long second = 0;
    CUDA_OK(cudaStreamGetCaptureInfo(work, &status));
    CHECK(status == cudaStreamCaptureStatusNone);
    {
        capture graph(work);
        cudaGraph_t inside = nullptr;
        cudaGraphNode_t const* nodes = nullptr;
        std::size_t count = 9;
        CUDA_OK(all_about(work, status, first, inside, nodes, count));
        CHECK(status == cudaStreamCaptureStatusActive);
        CHECK(inside != nullptr);
        CHECK(count == 0);
        CUDA_OK(cudaMemsetAsync(memory, 1, 64, work));
        CUDA_OK(all_about(work, status, second, inside, nodes, count));
        CHECK(count == 1);
        CHECK(first == second);
        CUDA_OK(graph.end());
    }
    capture graph(work);
    CUDA_OK(cudaStreamGetCaptureInfo(work, &status, &second));
    CHECK(first != second);
    CUDA_OK(graph.end());
}

PROBE("a broken capture takes nothing more") {
    stream work;
    device_bytes memory(64);
    capture graph(work);
    CUDA_IS(cudaErrorStreamCaptureUnsupported, cudaStreamQuery(work));
    CUDA_IS(cudaErrorStreamCaptureInvalidated, cudaMemsetAsync(memory, 1, 64, work));
    is_broken(work, graph);
}

PROBE("after a broken capture the stream works") {
    stream work;
    device_bytes memory(64);
    {
        capture graph(work);
        CUDA_IS(cudaErrorStreamCaptureUnsupported, cudaStreamQuery(work));
    }
    CUDA_OK(cudaMemsetAsync(memory, 21, 64, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(first_byte(memory) == 21);
}

PROBE("an event recorded in a capture is free again once it is recorded outside") {
    stream work;
    event used;
    {
        capture graph(work);
        CUDA_OK(cudaEventRecord(used, work));
        CUDA_OK(graph.end());
    }
    CUDA_OK(cudaEventRecord(used, work));
    CUDA_OK(cudaEventSynchronize(used));
    CUDA_OK(cudaEventQuery(used));
}
