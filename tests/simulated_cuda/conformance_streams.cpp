// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Streams: handles, ids, order, the legacy and the per-thread default stream. See conformance.hpp.

#include "conformance.hpp"

#include <set>
#include <thread>

using namespace conformance;

PROBE("streams have handles and ids of their own") {
    stream one;
    stream other;
    unsigned long long first = 0;
    unsigned long long second = 0;
    unsigned long long again = 0;
    CHECK(static_cast<cudaStream_t>(one) != static_cast<cudaStream_t>(other));
    CUDA_OK(cudaStreamGetId(one, &first));
    CUDA_OK(cudaStreamGetId(other, &second));
    CUDA_OK(cudaStreamGetId(one, &again));
    CHECK(first != second);
    CHECK(first == again);
}

PROBE("an id is never used again") {
    std::vector<unsigned long long> ids;
    for (int round = 0; round < 20; ++round) {
        stream work;
        unsigned long long id = 0;
        CUDA_OK(cudaStreamGetId(work, &id));
        for (unsigned long long const other : ids)
            CHECK(other != id);
        ids.push_back(id);
    }
}

PROBE("a handle comes back at once, while the old stream's work goes on") {
    device_bytes memory(16);
    CUDA_OK(cudaMemset(memory, 0, 16));
    CUDA_OK(cudaDeviceSynchronize());
    stream old;
    event done;
    unsigned long long first = 0;
    unsigned long long second = 0;
    CUDA_OK(cudaStreamGetId(old, &first));
    cudaStream_t const handle = old;
    gate closed(old);
    CUDA_OK(cudaMemsetAsync(memory, 5, 16, old));
    CUDA_OK(cudaEventRecord(done, old));
    old.destroy();
    stream fresh;
    CHECK(static_cast<cudaStream_t>(fresh) == handle);
    CUDA_OK(cudaStreamGetId(fresh, &second));
    CHECK(first != second);
    CUDA_OK(cudaStreamQuery(fresh));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
    static_cast<void>(cudaGetLastError());
    closed.open();
    CUDA_OK(cudaEventSynchronize(done));
    CHECK(first_byte(memory) == 5);
}

PROBE("the default streams have ids") {
    unsigned long long null = 0;
    unsigned long long legacy = 0;
    unsigned long long own = 0;
    CUDA_OK(cudaStreamGetId(nullptr, &null));
    CUDA_OK(cudaStreamGetId(cudaStreamLegacy, &legacy));
    CUDA_OK(cudaStreamGetId(cudaStreamPerThread, &own));
    CHECK(null == legacy);
    CHECK(own != legacy);
}

PROBE("no two threads' default streams have one id, not even where the first thread is gone") {
    std::set<unsigned long long> ids;
    for (int i = 0; i < 4; ++i) {
        unsigned long long id = 0;
        cudaError_t error = cudaErrorUnknown;
        std::thread([&] {
            error = cudaSetDevice(0);
            if (error == cudaSuccess)
                error = cudaStreamGetId(cudaStreamPerThread, &id);
        }).join();
        CUDA_OK(error);
        CHECK(ids.insert(id).second);
    }
}

PROBE("flags of streams are told") {
    stream blocking(cudaStreamDefault);
    stream free(cudaStreamNonBlocking);
    unsigned flags = 9;
    CUDA_OK(cudaStreamGetFlags(blocking, &flags));
    CHECK(flags == cudaStreamDefault);
    CUDA_OK(cudaStreamGetFlags(free, &flags));
    CHECK(flags == cudaStreamNonBlocking);
}

PROBE("unknown flags of a stream are refused") {
    cudaStream_t handle = nullptr;
    CUDA_IS(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&handle, 0xf0u));
    static_cast<void>(cudaGetLastError());
}

PROBE("priorities are told, and clamped to their range") {
    int least = 0;
    int greatest = 0;
    int priority = 1;
    CUDA_OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(least >= greatest);
    for (int const wanted : {least, greatest, greatest - 100}) {
        cudaStream_t handle = nullptr;
        CUDA_MUST(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, wanted));
        CUDA_OK(cudaStreamGetPriority(handle, &priority));
        CHECK(priority == (wanted < greatest ? greatest : wanted));
        CUDA_OK(cudaStreamDestroy(handle));
    }
}

PROBE("a stream knows its device") {
    stream work;
    int device = -1;
    CUDA_OK(cudaStreamGetDevice(work, &device));
    CHECK(device == 0);
}

PROBE("a stream without work is ready") {
    stream work;
    CUDA_OK(cudaStreamQuery(work));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("a stream with work in flight is not ready, and then is") {
    stream work;
    gate closed(work);
    CUDA_IS(cudaErrorNotReady, cudaStreamQuery(work));
    static_cast<void>(cudaGetLastError());
    closed.open();
    CUDA_OK(cudaStreamSynchronize(work));
    CUDA_OK(cudaStreamQuery(work));
}

PROBE("not being ready is an answer and no last error") {
    stream work;
    gate closed(work);
    CUDA_IS(cudaErrorNotReady, cudaStreamQuery(work));
    CUDA_OK(cudaGetLastError());
}

PROBE("work of one stream runs in order") {
    stream work;
    device_bytes memory(4096);
    pinned_bytes host(2);
    for (int value = 1; value < 20; ++value)
        CUDA_OK(cudaMemsetAsync(memory, value, 4096, work));
    CUDA_OK(cudaMemcpyAsync(host, memory, 1, cudaMemcpyDeviceToHost, work));
    CUDA_OK(cudaMemsetAsync(memory, 77, 4096, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(host[0] == 19);
}

PROBE("two streams that do not block are independent") {
    stream one;
    stream other;
    event done;
    gate closed(one);
    CUDA_OK(cudaEventRecord(done, other));
    CUDA_OK(wait_by_asking(done));
    CUDA_OK(cudaStreamSynchronize(other));
}

PROBE("two blocking streams are independent") {
    stream one(cudaStreamDefault);
    stream other(cudaStreamDefault);
    gate closed(one);
    CUDA_OK(cudaStreamSynchronize(other));
}

PROBE("a blocking stream waits for the legacy stream") {
    stream blocking(cudaStreamDefault);
    event done;
    gate closed(cudaStreamLegacy);
    CUDA_OK(cudaEventRecord(done, blocking));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
    static_cast<void>(cudaGetLastError());
    closed.open();
    CUDA_OK(cudaEventSynchronize(done));
}

PROBE("a stream that does not block passes the legacy stream") {
    stream free;
    event done;
    gate closed(cudaStreamLegacy);
    CUDA_OK(cudaEventRecord(done, free));
    CUDA_OK(wait_by_asking(done));
}

PROBE("the legacy stream waits for blocking streams") {
    stream blocking(cudaStreamDefault);
    event done;
    gate closed(blocking);
    CUDA_OK(cudaEventRecord(done, cudaStreamLegacy));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
    static_cast<void>(cudaGetLastError());
    closed.open();
    CUDA_OK(cudaEventSynchronize(done));
}

PROBE("the legacy stream passes streams that do not block") {
    stream free;
    event done;
    gate closed(free);
    CUDA_OK(cudaEventRecord(done, cudaStreamLegacy));
    CUDA_OK(wait_by_asking(done));
}

PROBE("one blocking stream reaches another through the legacy stream") {
    stream one(cudaStreamDefault);
    stream other(cudaStreamDefault);
    event between;
    event done;
    gate closed(one);
    CUDA_OK(cudaEventRecord(between, cudaStreamLegacy));
    CUDA_OK(cudaEventRecord(done, other));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
    static_cast<void>(cudaGetLastError());
    closed.open();
    CUDA_OK(cudaEventSynchronize(done));
}

PROBE("a thread's own default stream waits for the legacy stream") {
    event done;
    gate closed(cudaStreamLegacy);
    CUDA_OK(cudaEventRecord(done, cudaStreamPerThread));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
    static_cast<void>(cudaGetLastError());
    closed.open();
    CUDA_OK(cudaEventSynchronize(done));
}

PROBE("a thread's own default stream passes blocking streams") {
    stream blocking(cudaStreamDefault);
    event done;
    gate closed(blocking);
    CUDA_OK(cudaEventRecord(done, cudaStreamPerThread));
    CUDA_OK(wait_by_asking(done));
}

PROBE("threads' own default streams are independent") {
    gate closed(cudaStreamPerThread);
    cudaError_t elsewhere = cudaErrorUnknown;
    std::thread([&] { elsewhere = cudaStreamSynchronize(cudaStreamPerThread); }).join();
    CUDA_OK(elsewhere);
    CUDA_IS(cudaErrorNotReady, cudaStreamQuery(cudaStreamPerThread));
    static_cast<void>(cudaGetLastError());
}

PROBE("waiting for the device waits for every stream") {
    stream blocking(cudaStreamDefault);
    stream free;
    device_bytes memory(64);
    CUDA_OK(cudaMemsetAsync(memory, 1, 32, blocking));
    CUDA_OK(cudaMemsetAsync(memory.at(32), 2, 32, free));
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaStreamQuery(blocking));
    CUDA_OK(cudaStreamQuery(free));
    CUDA_OK(cudaStreamQuery(cudaStreamLegacy));
}
