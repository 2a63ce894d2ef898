// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What other calls do to a global capture that is under way elsewhere. See conformance.hpp.

#include "conformance_capture.hpp"

#include <cstdint>

using namespace conformance;

namespace {

/// What a program does beside a capture: a stream, an event on it, and memory of a pool of the driver's.
struct bystander {
    stream other;
    event passed;
    cudaMemPool_t pool = nullptr;
    void* block = nullptr;
    void* pooled = nullptr;

    bystander() {
        CUDA_MUST(cudaMemPoolCreate(&pool, &properties()));
        CUDA_MUST(cudaMalloc(&block, 1024));
        CUDA_MUST(cudaMallocFromPoolAsync(&pooled, 1024, pool, other));
        CUDA_MUST(cudaEventRecord(passed, other));
        CUDA_MUST(cudaStreamSynchronize(other));
    }
    ~bystander() {
        if (pooled)
            CUDA_OK(cudaFreeAsync(pooled, other));
        CUDA_OK(cudaStreamSynchronize(other));
        CUDA_OK(cudaFree(block));
        CUDA_OK(cudaMemPoolDestroy(pool));
    }
    bystander(bystander const&) = delete;
    bystander& operator=(bystander const&) = delete;

    static cudaMemPoolProps const& properties() {
        static cudaMemPoolProps const made = [] {
            cudaMemPoolProps wanted{};
            wanted.allocType = cudaMemAllocationTypePinned;
            wanted.location.type = cudaMemLocationTypeDevice;
            return wanted;
        }();
        return made;
    }
};

struct aside {
    char const* name;
    cudaError_t (*call)(bystander&);
};

aside const unsafe_calls[] = {
    {"cudaStreamQuery", [](bystander& by) { return cudaStreamQuery(by.other); }},
    {"cudaStreamSynchronize", [](bystander& by) { return cudaStreamSynchronize(by.other); }},
    {"cudaEventQuery", [](bystander& by) { return cudaEventQuery(by.passed); }},
    {"cudaEventSynchronize", [](bystander& by) { return cudaEventSynchronize(by.passed); }},
    {"cudaMallocFromPoolAsync",
     [](bystander& by) {
         void* p = nullptr;
         cudaError_t const error = cudaMallocFromPoolAsync(&p, 1024, by.pool, by.other);
         return error == cudaSuccess ? cudaFreeAsync(p, by.other) : error;
     }},
    {"cudaFreeAsync",
     [](bystander& by) {
         cudaError_t const error = cudaFreeAsync(by.pooled, by.other);
         if (error == cudaSuccess)
             by.pooled = nullptr;
         return error;
     }},
    {"cudaMemPoolGetAttribute",
     [](bystander& by) {
         std::uint64_t bytes = 0;
         return cudaMemPoolGetAttribute(by.pool, cudaMemPoolAttrReservedMemCurrent, &bytes);
     }},
    {"cudaMemPoolSetAttribute",
     [](bystander& by) {
         std::uint64_t bytes = 0;
         return cudaMemPoolSetAttribute(by.pool, cudaMemPoolAttrReleaseThreshold, &bytes);
     }},
    {"cudaMemPoolTrimTo", [](bystander& by) { return cudaMemPoolTrimTo(by.pool, 0); }},
    {"cudaMemPoolCreate", [](bystander&) {
         cudaMemPool_t made = nullptr;
         cudaError_t const error = cudaMemPoolCreate(&made, &bystander::properties());
         return error == cudaSuccess ? cudaMemPoolDestroy(made) : error;
     }}};

aside const harmless_calls[] = {
    {"cudaEventRecord", [](bystander& by) { return cudaEventRecord(by.passed, by.other); }},
    {"cudaStreamWaitEvent", [](bystander& by) { return cudaStreamWaitEvent(by.other, by.passed, 0); }},
    {"cudaMemsetAsync", [](bystander& by) { return cudaMemsetAsync(by.block, 0, 1024, by.other); }},
    {"cudaStreamGetId",
     [](bystander& by) {
         unsigned long long id = 0;
         return cudaStreamGetId(by.other, &id);
     }},
    {"cudaMemGetInfo",
     [](bystander&) {
         std::size_t free_bytes = 0, all_bytes = 0;
         return cudaMemGetInfo(&free_bytes, &all_bytes);
     }},
    {"cudaStreamCreate", [](bystander&) {
         cudaStream_t made = nullptr;
         cudaError_t const error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
         return error == cudaSuccess ? cudaStreamDestroy(made) : error;
     }}};

} // namespace

PROBE("what asks, waits or allocates beside a global capture breaks it") {
    for (aside const& each : unsafe_calls) {
        CAPTURE(each.name);
        stream work;
        bystander by;
        capture graph(work, cudaStreamCaptureModeGlobal);
        CUDA_IS(cudaErrorStreamCaptureUnsupported, each.call(by));
        is_broken(work, graph);
        static_cast<void>(cudaGetLastError());
    }
}

PROBE("a thread of relaxed mode asks, waits and allocates beside a global capture") {
    for (aside const& each : unsafe_calls) {
        CAPTURE(each.name);
        stream work;
        bystander by;
        capture graph(work, cudaStreamCaptureModeGlobal);
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
        CUDA_OK(each.call(by));
        CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
        CHECK(status_of(work) == cudaStreamCaptureStatusActive);
        CUDA_OK(graph.end());
    }
}

PROBE("what only enqueues beside a global capture is no harm to it") {
    for (aside const& each : harmless_calls) {
        CAPTURE(each.name);
        stream work;
        bystander by;
        capture graph(work, cudaStreamCaptureModeGlobal);
        CUDA_OK(each.call(by));
        CHECK(status_of(work) == cudaStreamCaptureStatusActive);
        CUDA_OK(graph.end());
    }
}

PROBE("freeing memory waits for all work on the device, also of a stream that was destroyed, and breaks no capture") {
    for (int const way : {0, 1, 2, 3}) {
        bool const destroyed = way % 2 == 1;
        bool const managed = way / 2 == 1;
        CAPTURE(destroyed);
        CAPTURE(managed);
        stream captured;
        event passed;
        device_bytes memory(std::size_t{64} << 20);
        void* other = nullptr;
        CUDA_MUST(cudaMalloc(&other, 1));
        cudaStream_t work = nullptr;
        CUDA_MUST(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
        for (int turn = 0; turn < many_fills; ++turn)
            CUDA_OK(cudaMemsetAsync(memory, turn, std::size_t{64} << 20, work));
        CUDA_OK(cudaEventRecord(passed, work));
        if (destroyed)
            CUDA_OK(cudaStreamDestroy(work));
        {
            capture graph(captured, cudaStreamCaptureModeGlobal);
            cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
            CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
            if (managed) { // made in the capture, too, as wait_for_device does
                void* byte = nullptr;
                CUDA_OK(cudaMallocManaged(&byte, 1, cudaMemAttachGlobal));
                CUDA_OK(cudaFree(byte));
            } else {
                CUDA_OK(cudaFree(other));
            }
            CUDA_OK(cudaEventQuery(passed));
            CUDA_OK(cudaThreadExchangeStreamCaptureMode(&mode));
            CHECK(status_of(captured) == cudaStreamCaptureStatusActive);
            CUDA_OK(graph.end());
        }
        if (!destroyed)
            CUDA_OK(cudaStreamDestroy(work));
        if (managed)
            CUDA_OK(cudaFree(other));
    }
}
