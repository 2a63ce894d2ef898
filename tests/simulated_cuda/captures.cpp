// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Stream capture: which calls it turns into nodes is submit()'s and the streams' business; here are its
// beginning and end, the questions about it, and the rules by which a call breaks it.

#include "calls.hpp"

namespace simulated_device::inside {

std::size_t capture_node(world_state&, stream_record& stream, graph_node node) {
    graph_state& graph = *stream.capture;
    std::size_t const index = graph.nodes.size();
    node.follows = stream.frontier;
    node.ancestors.assign(index, false);
    for (std::size_t const before : node.follows) {
        node.ancestors[before] = true;
        for (std::size_t at = 0; at < graph.nodes[before].ancestors.size(); ++at)
            if (graph.nodes[before].ancestors[at])
                node.ancestors[at] = true;
    }
    graph.nodes.push_back(std::move(node));
    graph.handles.push_back({&graph, index});
    stream.frontier.assign(1, index);
    return index;
}

void invalidate(world_state& world, graph_state& graph) {
    if (!graph.invalid && world.logging())
        world.say("  capture " + std::to_string(graph.id) + " is broken");
    graph.invalid = true;
}

cudaError_t unsafe_call(world_state& world) {
    thread_state& thread = this_thread(world);
    if (thread.capture_mode == cudaStreamCaptureModeRelaxed)
        return cudaSuccess;
    bool refused = false;
    for (auto const& graph : world.captures) {
        bool const own = graph->thread == thread.number;
        bool const forbids = own ? graph->mode != cudaStreamCaptureModeRelaxed
                                 : graph->mode == cudaStreamCaptureModeGlobal &&
                                       thread.capture_mode == cudaStreamCaptureModeGlobal;
        if (!forbids)
            continue;
        invalidate(world, *graph);
        refused = true;
    }
    return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t refuse_while_capturing(world_state& world, int device) {
    bool refused = false;
    for (auto const& graph : world.captures)
        if (graph->device == device) {
            invalidate(world, *graph);
            refused = true;
        }
    return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t refuse_implicit(world_state& world, stream_record& stream) {
    if (stream.kind != stream_kind::legacy || world.captures.empty())
        return cudaSuccess;
    bool refused = false;
    for (auto const& graph : world.captures)
        for (stream_record const* const captured : graph->streams)
            if (captured->device == stream.device && captured->blocking()) {
                invalidate(world, *graph);
                refused = true;
            }
    return refused ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

namespace {

bool blocking_capture(world_state const& world, int device) {
    for (auto const& graph : world.captures)
        for (stream_record const* const captured : graph->streams)
            if (captured->device == device && captured->blocking())
                return true;
    return false;
}

cudaError_t cudaStreamBeginCapture_on(null_stream null, cudaStream_t handle, cudaStreamCaptureMode mode) {
    static call_site site{"cudaStreamBeginCapture"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
            return cudaErrorInvalidValue;
        if (stream->kind == stream_kind::legacy)
            return cudaErrorStreamCaptureUnsupported;
        if (stream->capture)
            return cudaErrorIllegalState;
        auto graph = std::make_shared<graph_state>(world);
        graph->id = world.next_capture++;
        graph->mode = mode;
        graph->thread = this_thread(world).number;
        graph->device = stream->device;
        graph->origin = stream;
        graph->streams.push_back(stream);
        graph->handle = new CUgraph_st{graph};
        stream->capture = graph;
        stream->frontier.clear();
        world.captures.push_back(std::move(graph));
        return cudaSuccess;
    });
}

cudaError_t cudaStreamEndCapture_on(null_stream null, cudaStream_t handle, cudaGraph_t* out) {
    static call_site site{"cudaStreamEndCapture"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (out == nullptr)
            return cudaErrorInvalidValue;
        *out = nullptr;
        if (!stream->capture)
            return cudaErrorIllegalState;
        std::shared_ptr<graph_state> graph = stream->capture;
        if (graph->mode != cudaStreamCaptureModeRelaxed && graph->thread != this_thread(world).number)
            return cudaErrorStreamCaptureWrongThread;
        if (graph->origin != stream) {
            invalidate(world, *graph);
            return cudaErrorStreamCaptureUnmatched;
        }
        bool unjoined = false;
        for (stream_record* const member : graph->streams) {
            for (std::size_t const node : member->frontier)
                unjoined = unjoined || !graph->before(node, stream->frontier);
        }
        for (stream_record* const member : graph->streams) {
            member->capture.reset();
            if (member != stream)
                member->frontier.clear();
        }
        stream->frontier.clear();
        graph->active = false;
        world.captures.erase(std::find(world.captures.begin(), world.captures.end(), graph));
        if (graph->invalid || unjoined) {
            cudaError_t const error =
                graph->invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
            delete graph->handle;
            graph->handle = nullptr;
            return error;
        }
        *out = graph->handle;
        world.graph_handles.insert(graph->handle);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamIsCapturing_on(null_stream null, cudaStream_t handle, cudaStreamCaptureStatus* status) {
    static call_site site{"cudaStreamIsCapturing"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (status == nullptr)
            return cudaErrorInvalidValue;
        if (stream->kind == stream_kind::legacy && blocking_capture(world, stream->device))
            return cudaErrorStreamCaptureImplicit;
        *status = !stream->capture           ? cudaStreamCaptureStatusNone
                  : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                             : cudaStreamCaptureStatusActive;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamGetCaptureInfo_on(null_stream null, cudaStream_t handle,
                                        cudaStreamCaptureStatus* status, unsigned long long* id,
                                        cudaGraph_t* graph_out, cudaGraphNode_t const** dependencies,
                                        cudaGraphEdgeData const** edges, std::size_t* count) {
    static call_site site{"cudaStreamGetCaptureInfo"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (status == nullptr)
            return cudaErrorInvalidValue;
        if (stream->kind == stream_kind::legacy && blocking_capture(world, stream->device))
            return cudaErrorStreamCaptureImplicit;
        *status = cudaStreamCaptureStatusNone;
        if (!stream->capture)
            return cudaSuccess;
        graph_state& graph = *stream->capture;
        *status = graph.invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
        if (graph.invalid)
            return cudaSuccess;
        graph.dependencies.clear();
        for (std::size_t const node : stream->frontier)
            graph.dependencies.push_back(&graph.handles[node]);
        graph.edges.assign(stream->frontier.size(), cudaGraphEdgeData{});
        if (id != nullptr)
            *id = graph.id;
        if (graph_out != nullptr)
            *graph_out = graph.handle;
        if (dependencies != nullptr)
            *dependencies = graph.dependencies.data();
        if (edges != nullptr)
            *edges = graph.edges.data();
        if (count != nullptr)
            *count = stream->frontier.size();
        return cudaSuccess;
    });
}

cudaError_t cudaStreamUpdateCaptureDependencies_on(null_stream null, cudaStream_t handle,
                                                   cudaGraphNode_t* nodes, cudaGraphEdgeData const*,
                                                   std::size_t count, unsigned flags) {
    static call_site site{"cudaStreamUpdateCaptureDependencies"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (!stream->capture || stream->capture->invalid)
            return cudaErrorIllegalState;
        if (flags > cudaStreamSetCaptureDependencies || (nodes == nullptr && count != 0))
            return cudaErrorInvalidValue;
        if (flags == cudaStreamSetCaptureDependencies)
            stream->frontier.clear();
        for (std::size_t at = 0; at < count; ++at) {
            if (nodes[at] == nullptr || nodes[at]->graph != stream->capture.get())
                return cudaErrorInvalidValue;
            stream->frontier.push_back(nodes[at]->index);
        }
        return cudaSuccess;
    });
}

} // namespace

} // namespace simulated_device::inside

using namespace simulated_device::inside;

SIMULATED_CUDA_EXPORT(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, cudaStreamCaptureMode mode),
                      stream, mode)
SIMULATED_CUDA_EXPORT(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t* graph), stream, graph)
SIMULATED_CUDA_EXPORT(cudaStreamIsCapturing, _ptsz, (cudaStream_t stream, cudaStreamCaptureStatus* status),
                      stream, status)
#if CUDART_VERSION >= 13000
SIMULATED_CUDA_EXPORT(cudaStreamGetCaptureInfo, _ptsz,
                      (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                       cudaGraph_t* graph, cudaGraphNode_t const** dependencies,
                       cudaGraphEdgeData const** edges, std::size_t* count),
                      stream, status, id, graph, dependencies, edges, count)
SIMULATED_CUDA_EXPORT(cudaStreamUpdateCaptureDependencies, _ptsz,
                      (cudaStream_t stream, cudaGraphNode_t* nodes, cudaGraphEdgeData const* edges,
                       std::size_t count, unsigned flags),
                      stream, nodes, edges, count, flags)
#else // CUDA 12's functions of these names know no edges
SIMULATED_CUDA_EXPORT_AS(cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_on, cudaStreamGetCaptureInfo_v2_ptsz,
                         (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                          cudaGraph_t* graph, cudaGraphNode_t const** dependencies, std::size_t* count),
                         stream, status, id, graph, dependencies, nullptr, count)
SIMULATED_CUDA_EXPORT_AS(cudaStreamUpdateCaptureDependencies, cudaStreamUpdateCaptureDependencies_on,
                         cudaStreamUpdateCaptureDependencies_ptsz,
                         (cudaStream_t stream, cudaGraphNode_t* nodes, std::size_t count, unsigned flags),
                         stream, nodes, nullptr, count, flags)
#endif

extern "C" cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    static call_site site{"cudaThreadExchangeStreamCaptureMode"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed)
            return cudaErrorInvalidValue;
        std::swap(*mode, this_thread(world).capture_mode);
        return cudaSuccess;
    });
}
