// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Events, and host functions and callbacks. See conformance.hpp.

#include "conformance.hpp"

using namespace conformance;

PROBE("an event that was never recorded is over") {
    event never;
    CUDA_OK(cudaEventQuery(never));
    CUDA_OK(cudaEventSynchronize(never));
}

PROBE("waiting on a stream for an event that was never recorded is nothing") {
    stream work;
    event never;
    CUDA_OK(cudaStreamWaitEvent(work, never, 0));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("an event is not over before the work in front of it") {
    stream work;
    event done;
    gate closed(work);
    CUDA_OK(cudaEventRecord(done, work));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
    static_cast<void>(cudaGetLastError());
    closed.open();
    CUDA_OK(cudaEventSynchronize(done));
    CUDA_OK(cudaEventQuery(done));
}

PROBE("an event does not wait for work behind it") {
    stream work;
    event done;
    CUDA_OK(cudaEventRecord(done, work));
    gate closed(work);
    CUDA_OK(wait_by_asking(done));
}

PROBE("a stream that waits for an event waits for the work in front of it") {
    stream one;
    stream other;
    event between;
    event done;
    device_bytes memory(64);
    pinned_bytes host(1);
    CUDA_OK(cudaMemset(memory, 0, 64));
    CUDA_OK(cudaDeviceSynchronize());
    {
        gate closed(one);
        CUDA_OK(cudaMemsetAsync(memory, 9, 64, one));
        CUDA_OK(cudaEventRecord(between, one));
        CUDA_OK(cudaStreamWaitEvent(other, between, 0));
        CUDA_OK(cudaMemcpyAsync(host, memory, 1, cudaMemcpyDeviceToHost, other));
        CUDA_OK(cudaEventRecord(done, other));
        CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
        static_cast<void>(cudaGetLastError());
    }
    CUDA_OK(cudaEventSynchronize(done));
    CHECK(host[0] == 9);
}

PROBE("a wait keeps the record of its moment") {
    stream one;
    stream other;
    stream third;
    event moved;
    event done;
    CUDA_OK(cudaEventRecord(moved, one));
    CUDA_OK(cudaStreamWaitEvent(other, moved, 0));
    gate closed(third);
    CUDA_OK(cudaEventRecord(moved, third));
    CUDA_OK(cudaEventRecord(done, other));
    CUDA_OK(wait_by_asking(done));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(moved));
    static_cast<void>(cudaGetLastError());
}

PROBE("a second record is the one that counts") {
    stream one;
    stream other;
    event moved;
    gate closed(one);
    CUDA_OK(cudaEventRecord(moved, one));
    CUDA_OK(cudaEventRecord(moved, other));
    CUDA_OK(wait_by_asking(moved));
}

PROBE("an event destroyed in flight still holds those that wait for it") {
    stream one;
    stream other;
    event done;
    {
        gate closed(one);
        {
            event between;
            CUDA_OK(cudaEventRecord(between, one));
            CUDA_OK(cudaStreamWaitEvent(other, between, 0));
        }
        CUDA_OK(cudaEventRecord(done, other));
        CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
        static_cast<void>(cudaGetLastError());
    }
    CUDA_OK(cudaEventSynchronize(done));
}

PROBE("an event outlives the stream that it was recorded on") {
    event done;
    stream work;
    gate closed(work);
    CUDA_OK(cudaEventRecord(done, work));
    work.destroy();
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
    static_cast<void>(cudaGetLastError());
    stream other;
    CUDA_OK(cudaStreamWaitEvent(other, done, 0));
    closed.open();
    CUDA_OK(cudaStreamSynchronize(other));
    CUDA_OK(cudaEventQuery(done));
}

PROBE("waiting for an event of one's own stream changes nothing") {
    stream work;
    event own;
    CUDA_OK(cudaEventRecord(own, work));
    CUDA_OK(cudaStreamWaitEvent(work, own, 0));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("an event covers what its stream waited for") {
    stream first;
    stream second;
    event a;
    event b;
    gate closed(first);
    CUDA_OK(cudaEventRecord(a, first));
    CUDA_OK(cudaStreamWaitEvent(second, a, 0));
    CUDA_OK(cudaEventRecord(b, second));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(b));
    static_cast<void>(cudaGetLastError());
    closed.open();
    CUDA_OK(cudaEventSynchronize(b));
    CUDA_OK(cudaEventQuery(a));
}

PROBE("unknown flags of an event are refused") {
    cudaEvent_t handle = nullptr;
    CUDA_IS(cudaErrorInvalidValue, cudaEventCreateWithFlags(&handle, 0xf0u));
    CUDA_IS(cudaErrorInvalidValue, cudaEventCreateWithFlags(&handle, cudaEventInterprocess));
    static_cast<void>(cudaGetLastError());
}

PROBE("events with timing measure no negative times") {
    stream work;
    event start(cudaEventDefault);
    event end(cudaEventDefault);
    float milliseconds = -1;
    CUDA_OK(cudaEventRecord(start, work));
    CUDA_OK(cudaEventRecord(end, work));
    CUDA_OK(cudaEventSynchronize(end));
    CUDA_OK(cudaEventElapsedTime(&milliseconds, start, end));
    CHECK(milliseconds >= 0);
}

PROBE("events without timing measure nothing") {
    stream work;
    event start;
    event end;
    float milliseconds = -1;
    CUDA_OK(cudaEventRecord(start, work));
    CUDA_OK(cudaEventRecord(end, work));
    CUDA_OK(cudaEventSynchronize(end));
    CUDA_IS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, start, end));
    static_cast<void>(cudaGetLastError());
}

PROBE("events that were never recorded measure nothing") {
    event start(cudaEventDefault);
    event end(cudaEventDefault);
    float milliseconds = -1;
    CUDA_IS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, start, end));
    static_cast<void>(cudaGetLastError());
}

PROBE("a time is not ready while its events are not") {
    stream work;
    event start(cudaEventDefault);
    event end(cudaEventDefault);
    float milliseconds = -1;
    CUDA_OK(cudaEventRecord(start, work));
    gate closed(work);
    CUDA_OK(cudaEventRecord(end, work));
    CUDA_IS(cudaErrorNotReady, cudaEventElapsedTime(&milliseconds, start, end));
    static_cast<void>(cudaGetLastError());
}

PROBE("a record with no flags is a record") {
    stream work;
    event done;
    gate closed(work);
    CUDA_OK(cudaEventRecordWithFlags(done, work, cudaEventRecordDefault));
    CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
    static_cast<void>(cudaGetLastError());
}

// ---- host functions ---------------------------------------------------------------------------------------

namespace {

struct note {
    std::atomic<int>* clock;
    int at = -1;
};

void stamp(void* p) {
    auto* const one = static_cast<note*>(p);
    one->at = one->clock->fetch_add(1);
}

} // namespace

PROBE("host functions run in the order of their stream") {
    stream work;
    std::atomic<int> clock{0};
    note first{&clock};
    note second{&clock};
    CUDA_OK(cudaLaunchHostFunc(work, stamp, &first));
    CUDA_OK(cudaLaunchHostFunc(work, stamp, &second));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(first.at == 0);
    CHECK(second.at == 1);
}

PROBE("a host function does not run before the work in front of it") {
    stream work;
    std::atomic<int> clock{0};
    note one{&clock};
    gate closed(work);
    CUDA_OK(cudaLaunchHostFunc(work, stamp, &one));
    CUDA_IS(cudaErrorNotReady, cudaStreamQuery(work));
    static_cast<void>(cudaGetLastError());
    CHECK(clock.load() == 0);
    closed.open();
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(one.at == 0);
}

namespace {

struct copied {
    unsigned char const* from;
    int seen = -1;
};

void look(void* p) {
    auto* const one = static_cast<copied*>(p);
    one->seen = *one->from;
}

void told(cudaStream_t from, cudaError_t status, void* p) {
    auto* const seen = static_cast<std::pair<cudaStream_t, cudaError_t>*>(p);
    *seen = {from, status};
}

} // namespace

PROBE("a host function sees what was copied before it") {
    stream work;
    device_bytes memory(1);
    pinned_bytes host(1);
    copied one{&host[0]};
    CUDA_OK(cudaMemsetAsync(memory, 33, 1, work));
    CUDA_OK(cudaMemcpyAsync(host, memory, 1, cudaMemcpyDeviceToHost, work));
    CUDA_OK(cudaLaunchHostFunc(work, look, &one));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(one.seen == 33);
}

PROBE("a callback is told its stream and that all is well") {
    stream work;
    std::pair<cudaStream_t, cudaError_t> seen{nullptr, cudaErrorUnknown};
    CUDA_OK(cudaStreamAddCallback(work, told, &seen, 0));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(seen.first == static_cast<cudaStream_t>(work));
    CUDA_OK(seen.second);
}
