// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cudaStream*, host functions and callbacks. A stream's handle is free for reuse the moment it is destroyed;
// its work goes on, and its id is never used again.

#include "calls.hpp"

namespace simulated_device::inside {

namespace {

cudaError_t create(world_state& world, cudaStream_t* out, unsigned flags, int priority) {
    if (out == nullptr || (flags & ~unsigned(cudaStreamNonBlocking)) != 0)
        return cudaErrorInvalidValue;
    stream_record& stream = make_stream(world, current_device(world), flags,
                                        std::min(0, std::max(-5, priority)), stream_kind::created);
    stream.handle = take_stream_handle();
    stream.handle->record = &stream;
    *out = stream.handle;
    return cudaSuccess;
}

/// Calls that ask or wait for a stream break its capture.
cudaError_t refuse_captured(world_state& world, stream_record& stream) {
    if (cudaError_t const error = refuse_implicit(world, stream))
        return error;
    if (!stream.capture)
        return cudaSuccess;
    invalidate(world, *stream.capture);
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaStreamQuery_on(null_stream null, cudaStream_t handle) {
    static call_site site{"cudaStreamQuery"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (cudaError_t const error = refuse_captured(world, *stream))
            return error;
        if (cudaError_t const error = unsafe_call(world))
            return error;
        if (stream->done < stream->last) {
            note_fruitless_query(world);
            if (stream->done < stream->last)
                return cudaErrorNotReady;
        }
        host_joins(world, *stream);
        return lost(world, stream->device);
    });
}

cudaError_t cudaStreamSynchronize_on(null_stream null, cudaStream_t handle) {
    static call_site site{"cudaStreamSynchronize"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (cudaError_t const error = refuse_captured(world, *stream))
            return error;
        if (cudaError_t const error = unsafe_call(world))
            return error;
        // On the legacy stream the wait is an operation like any other: blocking streams come before it.
        if (stream->kind == stream_kind::legacy) {
            operation nothing;
            nothing.what = "synchronise";
            enqueue(world, *stream, std::move(nothing));
        }
        vector_clock const clock = stream->clock;
        if (!wait_until(world, *stream, stream->last, site.name))
            return cudaErrorLaunchTimeout;
        world.host.join(clock);
        trim_pools(world, stream->device);
        return lost(world, stream->device);
    });
}

cudaError_t cudaStreamWaitEvent_on(null_stream null, cudaStream_t handle, cudaEvent_t event_handle,
                                   unsigned flags) {
    static call_site site{"cudaStreamWaitEvent"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        event_record* const event = find_event(world, event_handle, site.name);
        if (stream == nullptr || event == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (flags > cudaEventWaitExternal)
            return cudaErrorInvalidValue;
        if (cudaError_t const error = refuse_implicit(world, *stream))
            return error;
        if (stream->capture && stream->capture->invalid)
            return cudaErrorStreamCaptureInvalidated;
        if (stream->capture && flags == cudaEventWaitExternal) {
            graph_node node;
            node.type = cudaGraphNodeTypeWaitEvent;
            node.what = "event wait";
            node.event = event;
            capture_node(world, *stream, std::move(node));
            return cudaSuccess;
        }
        if (event->capture && event->capture->active) {
            if (event->capture->invalid)
                return cudaErrorStreamCaptureInvalidated;
            if (stream->capture && stream->capture != event->capture) {
                invalidate(world, *event->capture);
                invalidate(world, *stream->capture);
                return cudaErrorStreamCaptureMerge;
            }
            if (stream->kind == stream_kind::legacy) {
                invalidate(world, *event->capture);
                return cudaErrorStreamCaptureImplicit;
            }
            if (!stream->capture) {
                stream->capture = event->capture;
                stream->frontier.clear();
                event->capture->streams.push_back(stream);
            }
            for (std::size_t const node : event->frontier)
                if (!stream->capture->before(node, stream->frontier))
                    stream->frontier.push_back(node);
            return cudaSuccess;
        }
        if (stream->capture) {
            invalidate(world, *stream->capture);
            return cudaErrorStreamCaptureIsolation;
        }
        if (event->capture)
            return cudaErrorCapturedEvent;
        if (event->stream == nullptr)
            return cudaSuccess;
        operation work;
        work.what = "event wait";
        order_after(world, *stream, event->stream, event->number, event->clock, work.waits);
        if (!work.waits.empty() || stream->kind == stream_kind::legacy)
            enqueue(world, *stream, std::move(work));
        return cudaSuccess;
    });
}

cudaError_t cudaLaunchHostFunc_on(null_stream null, cudaStream_t handle, cudaHostFn_t function,
                                  void* argument) {
    static call_site site{"cudaLaunchHostFunc"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (function == nullptr)
            return cudaErrorInvalidValue;
        operation work;
        work.what = "host function";
        work.foreign = true;
        work.body = [function, argument] { function(argument); };
        return submit(world, *stream, cudaGraphNodeTypeHost, std::move(work), {}, {});
    });
}

cudaError_t cudaStreamAddCallback_on(null_stream null, cudaStream_t handle, cudaStreamCallback_t function,
                                     void* argument, unsigned flags) {
    static call_site site{"cudaStreamAddCallback"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (function == nullptr || flags != 0)
            return cudaErrorInvalidValue;
        if (stream->capture) {
            invalidate(world, *stream->capture);
            return cudaErrorStreamCaptureUnsupported;
        }
        operation work;
        work.what = "callback";
        work.foreign = true;
        work.body = [function, argument, handle] { function(handle, cudaSuccess, argument); };
        return submit(world, *stream, cudaGraphNodeTypeHost, std::move(work), {}, {});
    });
}

/// Even these questions break the capture of the stream that is asked (seen on an H200, CUDA 13.0).
template <class Answer>
cudaError_t tell(call_site& site, null_stream null, cudaStream_t handle, void const* out,
                 Answer const& answer) {
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (out == nullptr)
            return cudaErrorInvalidValue;
        if (stream->capture) {
            invalidate(world, *stream->capture);
            return cudaErrorStreamCaptureUnsupported;
        }
        answer(*stream);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamGetId_on(null_stream null, cudaStream_t handle, unsigned long long* id) {
    static call_site site{"cudaStreamGetId"};
    return tell(site, null, handle, id, [id](stream_record const& stream) { *id = stream.id; });
}

cudaError_t cudaStreamGetDevice_on(null_stream null, cudaStream_t handle, int* device) {
    static call_site site{"cudaStreamGetDevice"};
    return tell(site, null, handle, device,
                [device](stream_record const& stream) { *device = stream.device; });
}

cudaError_t cudaStreamGetFlags_on(null_stream null, cudaStream_t handle, unsigned* flags) {
    static call_site site{"cudaStreamGetFlags"};
    return tell(site, null, handle, flags, [flags](stream_record const& stream) { *flags = stream.flags; });
}

cudaError_t cudaStreamGetPriority_on(null_stream null, cudaStream_t handle, int* priority) {
    static call_site site{"cudaStreamGetPriority"};
    return tell(site, null, handle, priority,
                [priority](stream_record const& stream) { *priority = stream.priority; });
}

cudaError_t cudaStreamAttachMemAsync_on(null_stream null, cudaStream_t handle, void* p, std::size_t,
                                        unsigned) {
    static call_site site{"cudaStreamAttachMemAsync"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (find_stream(world, handle, null, site.name) == nullptr)
            return cudaErrorInvalidResourceHandle;
        allocation const* const memory = find_allocation(world, p);
        return memory != nullptr && memory->kind == memory_kind::managed ? cudaSuccess
                                                                         : cudaErrorInvalidValue;
    });
}

} // namespace

} // namespace simulated_device::inside

using namespace simulated_device::inside;

SIMULATED_CUDA_EXPORT(cudaStreamQuery, _ptsz, (cudaStream_t stream), stream)
SIMULATED_CUDA_EXPORT(cudaStreamSynchronize, _ptsz, (cudaStream_t stream), stream)
SIMULATED_CUDA_EXPORT(cudaStreamWaitEvent, _ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
                      stream, event, flags)
SIMULATED_CUDA_EXPORT(cudaLaunchHostFunc, _ptsz, (cudaStream_t stream, cudaHostFn_t function, void* argument),
                      stream, function, argument)
SIMULATED_CUDA_EXPORT(cudaStreamAddCallback, _ptsz,
                      (cudaStream_t stream, cudaStreamCallback_t callback, void* argument, unsigned flags),
                      stream, callback, argument, flags)
SIMULATED_CUDA_EXPORT(cudaStreamGetId, _ptsz, (cudaStream_t stream, unsigned long long* id), stream, id)
SIMULATED_CUDA_EXPORT(cudaStreamGetDevice, _ptsz, (cudaStream_t stream, int* device), stream, device)
SIMULATED_CUDA_EXPORT(cudaStreamGetFlags, _ptsz, (cudaStream_t stream, unsigned* flags), stream, flags)
SIMULATED_CUDA_EXPORT(cudaStreamGetPriority, _ptsz, (cudaStream_t stream, int* priority), stream, priority)
SIMULATED_CUDA_EXPORT(cudaStreamAttachMemAsync, _ptsz,
                      (cudaStream_t stream, void* p, std::size_t bytes, unsigned flags), stream, p, bytes,
                      flags)

extern "C" cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    static call_site site{"cudaStreamCreate"};
    return api(site, [&](world_state& world) { return create(world, stream, 0, 0); });
}

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    static call_site site{"cudaStreamCreateWithFlags"};
    return api(site, [&](world_state& world) { return create(world, stream, flags, 0); });
}

extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    static call_site site{"cudaStreamCreateWithPriority"};
    return api(site, [&](world_state& world) { return create(world, stream, flags, priority); });
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    static call_site site{"cudaStreamDestroy"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
            return cudaErrorInvalidResourceHandle;
        stream_record* const stream = find_stream(world, handle, null_stream::legacy, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (stream->capture) {
            invalidate(world, *stream->capture);
            return cudaErrorStreamCaptureUnsupported;
        }
        stream->destroyed = true;
        stream->handle = nullptr;
        give_handle(handle);
        return cudaSuccess;
    });
}
