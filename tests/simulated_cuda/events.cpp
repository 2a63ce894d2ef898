// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cudaEvent*. An event is a snapshot: the stream and the number of the operation that was last recorded into
// it, and the clock there; so it outlives stream and handle, and a wait keeps the snapshot of its moment.

#include "calls.hpp"

namespace simulated_device::inside {

namespace {

cudaError_t create(world_state& world, cudaEvent_t* out, unsigned flags) {
    constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (out == nullptr || (flags & ~known) != 0)
        return cudaErrorInvalidValue;
    if ((flags & cudaEventInterprocess) != 0 && (flags & cudaEventDisableTiming) == 0)
        return cudaErrorInvalidValue;
    world.live_events.push_back(std::make_unique<event_record>());
    event_record& event = *world.live_events.back();
    event.place = world.live_events.size() - 1;
    event.id = ++world.events_made;
    event.flags = flags;
    event.device = current_device(world);
    event.handle = take_event_handle();
    event.handle->record = &event;
    *out = event.handle;
    return cudaSuccess;
}

cudaError_t record(world_state& world, null_stream null, cudaEvent_t event_handle, cudaStream_t handle,
                   unsigned flags, char const* who) {
    stream_record* const stream = find_stream(world, handle, null, who);
    event_record* const event = find_event(world, event_handle, who);
    if (stream == nullptr || event == nullptr)
        return cudaErrorInvalidResourceHandle;
    if (flags > cudaEventRecordExternal)
        return cudaErrorInvalidValue;
    if (event->device != stream->device)
        return cudaErrorInvalidResourceHandle;
    if (cudaError_t const error = refuse_implicit(world, *stream))
        return error;
    if (stream->capture && stream->capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (stream->capture && flags == cudaEventRecordExternal) {
        graph_node node;
        node.type = cudaGraphNodeTypeEventRecord;
        node.what = "event record";
        node.event = event;
        capture_node(world, *stream, std::move(node));
        return cudaSuccess;
    }
    if (stream->capture) {
        event->capture = stream->capture;
        event->frontier = stream->frontier;
        return cudaSuccess;
    }
    if (flags == cudaEventRecordExternal)
        return cudaErrorIllegalState;
    operation work;
    work.what = "event record";
    std::uint64_t const number = enqueue(world, *stream, std::move(work));
    event->capture.reset();
    event->stream = stream;
    event->number = number;
    event->clock = stream->clock;
    return cudaSuccess;
}

cudaError_t cudaEventRecord_on(null_stream null, cudaEvent_t event, cudaStream_t stream) {
    static call_site site{"cudaEventRecord"};
    return api(site, [&](world_state& world) { return record(world, null, event, stream, 0, site.name); });
}

cudaError_t cudaEventRecordWithFlags_on(null_stream null, cudaEvent_t event, cudaStream_t stream,
                                        unsigned flags) {
    static call_site site{"cudaEventRecordWithFlags"};
    return api(site,
               [&](world_state& world) { return record(world, null, event, stream, flags, site.name); });
}

/// Asking or waiting for an event of a capture breaks that capture.
cudaError_t refuse_captured(world_state& world, event_record& event) {
    if (event.capture) {
        if (event.capture->active)
            invalidate(world, *event.capture);
        return cudaErrorCapturedEvent;
    }
    return unsafe_call(world);
}

} // namespace

} // namespace simulated_device::inside

using namespace simulated_device::inside;

SIMULATED_CUDA_EXPORT(cudaEventRecord, _ptsz, (cudaEvent_t event, cudaStream_t stream), event, stream)
SIMULATED_CUDA_EXPORT(cudaEventRecordWithFlags, _ptsz,
                      (cudaEvent_t event, cudaStream_t stream, unsigned flags), event, stream, flags)

extern "C" cudaError_t cudaEventCreate(cudaEvent_t* event) {
    static call_site site{"cudaEventCreate"};
    return api(site, [&](world_state& world) { return create(world, event, 0); });
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    static call_site site{"cudaEventCreateWithFlags"};
    return api(site, [&](world_state& world) { return create(world, event, flags); });
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t handle) {
    static call_site site{"cudaEventQuery"};
    return api(site, [&](world_state& world) -> cudaError_t {
        event_record* const event = find_event(world, handle, site.name);
        if (event == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (cudaError_t const error = refuse_captured(world, *event))
            return error;
        if (event->stream == nullptr)
            return cudaSuccess;
        if (event->stream->done < event->number) {
            note_fruitless_query(world);
            if (event->stream->done < event->number)
                return cudaErrorNotReady;
        }
        world.host.join(event->clock);
        return lost(world, event->device);
    });
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    static call_site site{"cudaEventSynchronize"};
    return api(site, [&](world_state& world) -> cudaError_t {
        event_record* const event = find_event(world, handle, site.name);
        if (event == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (cudaError_t const error = refuse_captured(world, *event))
            return error;
        if (event->stream == nullptr)
            return cudaSuccess;
        vector_clock const clock = event->clock;
        int const device = event->device;
        if (!wait_until(world, *event->stream, event->number, site.name))
            return cudaErrorLaunchTimeout;
        world.host.join(clock);
        trim_pools(world, device);
        return lost(world, device);
    });
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    static call_site site{"cudaEventDestroy"};
    return api(site, [&](world_state& world) -> cudaError_t {
        event_record* const event = find_event(world, handle, site.name);
        if (event == nullptr)
            return cudaErrorInvalidResourceHandle;
        give_handle(handle);
        std::size_t const place = event->place;
        world.live_events[place].swap(world.live_events.back());
        world.live_events[place]->place = place;
        world.live_events.pop_back();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    static call_site site{"cudaEventElapsedTime"};
    return api(site, [&](world_state& world) -> cudaError_t {
        event_record* const from = find_event(world, start, site.name);
        event_record* const to = find_event(world, end, site.name);
        if (from == nullptr || to == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (milliseconds == nullptr)
            return cudaErrorInvalidValue;
        if (((from->flags | to->flags) & cudaEventDisableTiming) != 0 || from->stream == nullptr ||
            to->stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (from->stream->done < from->number || to->stream->done < to->number)
            return cudaErrorNotReady;
        *milliseconds = 0.0f;
        return cudaSuccess;
    });
}
