// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cudaGraph*: what was captured, made executable and launched. A launch is one operation of its stream: its
// nodes run in the order of their capture, which is one of the orders that their edges allow.

#include "calls.hpp"

namespace simulated_device::inside {

namespace {

/// What a node allocates; null: nothing, or cudaDeviceReset took it.
allocation* memory_of(world_state& world, graph_node const& node) {
    auto const it = world.allocations.find(node.memory);
    return node.type == cudaGraphNodeTypeMemAlloc && it != world.allocations.end() ? &it->second : nullptr;
}

} // namespace

graph_state::~graph_state() {
    if (world.ending)
        return;
    for (graph_node const& node : nodes)
        if (allocation const* const memory = memory_of(world, node); memory && !memory->launched) // else it is the program's
            end_graph_memory(world, node.memory, "the graph's end");
}

namespace {

cudaError_t instantiate(world_state& world, cudaGraphExec_t* out, cudaGraph_t graph,
                        unsigned long long flags) {
    if (out == nullptr || world.graph_handles.count(graph) == 0)
        return cudaErrorInvalidValue;
    *out = new CUgraphExec_st{graph->state, flags, copy_of(*graph->objects)};
    ++graph->state->executables;
    world.exec_handles.insert(*out);
    return cudaSuccess;
}

/// Launched while its stream is captured, a graph becomes one node that does all it does.
cudaError_t nest(world_state& world, stream_record& stream, CUgraphExec_st const& exec, operation work) {
    std::shared_ptr<graph_state> const& graph = exec.state;
    if (cudaError_t const error = submit(world, stream, cudaGraphNodeTypeGraph, std::move(work), {}, {}))
        return error;
    for (captured_use use : graph->uses) {
        use.node = stream.frontier.front();
        stream.capture->uses.push_back(use);
    }
    auto& nested = stream.capture->nested;
    nested.push_back(exec.objects);
    nested.insert(nested.end(), graph->nested.begin(), graph->nested.end());
    return cudaSuccess;
}

/// Whether a launch allocated what nobody has freed since.
bool left_to_program(world_state& world, graph_state const& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](graph_node const& node) {
        allocation const* const memory = memory_of(world, node);
        return memory && memory->launched;
    });
}

/// What a launch does to its memory, in the order of the nodes.
void pass_memory(world_state& world, graph_state const& graph, stream_record& stream, std::uint64_t number) {
    for (graph_node const& node : graph.nodes) {
        auto const it = world.allocations.find(node.memory);
        bool const allocates = node.type == cudaGraphNodeTypeMemAlloc;
        if (it == world.allocations.end() || !(allocates || node.type == cudaGraphNodeTypeMemFree))
            continue;
        it->second.launched = allocates;
        it->second.last = {&stream, number};
        it->second.last_clock = stream.clock;
        if (!allocates && it->second.graph.expired()) // another graph's, which is gone
            end_graph_memory(world, node.memory, "a graph");
    }
}

cudaError_t launch(world_state& world, stream_record& stream, CUgraphExec_st const& exec) {
    std::shared_ptr<graph_state> const& graph = exec.state;
    if (cudaError_t const error = lost(world, stream.device))
        return error;
    if (cudaError_t const error = refuse_implicit(world, stream))
        return error;
    if (left_to_program(world, *graph) && (exec.flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) == 0)
        return cudaErrorInvalidValue;
    operation work;
    work.what = "graph";
    int const device = stream.device;
    work.body = [&world, graph, device, kept = exec.objects] {
        for (graph_node const& node : graph->nodes) {
            cudaError_t& sticky = world.devices[static_cast<std::size_t>(device)].sticky;
            if (sticky == cudaSuccess && node.body)
                run_body(world, node.foreign, node.body);
            if (sticky == cudaSuccess && node.failure != cudaSuccess)
                sticky = node.failure;
        }
    };
    if (stream.capture)
        return nest(world, stream, exec, std::move(work));
    for (graph_node const& node : graph->nodes)
        if (node.type == cudaGraphNodeTypeWaitEvent && node.event->stream != nullptr)
            order_after(world, stream, node.event->stream, node.event->number, node.event->clock, work.waits);
    // The uses are judged at the place that the launch takes in its stream, before it can run.
    vector_clock clock = stream.clock;
    clock.join(world.host);
    if (stream.blocking()) {
        stream_record const& legacy = *world.devices[static_cast<std::size_t>(device)].legacy;
        clock.join(legacy.clock);
    } else if (stream.kind == stream_kind::legacy) {
        for (stream_record const* const other : world.devices[static_cast<std::size_t>(device)].blocking)
            clock.join(other->clock);
    }
    viewpoint from;
    from.stream = &stream;
    from.number = stream.last + 1;
    from.clock = &clock;
    from.what = "a graph";
    for (captured_use const& use : graph->uses)
        world.knowledge.repeat(world, use, from, *graph);
    std::uint64_t const number = enqueue(world, stream, std::move(work));
    exec.objects->past.join(stream.clock);
    for (auto const& inner : graph->nested)
        inner->past.join(stream.clock);
    pass_memory(world, *graph, stream, number);
    for (graph_node const& node : graph->nodes) {
        if (node.type != cudaGraphNodeTypeEventRecord)
            continue;
        node.event->stream = &stream;
        node.event->number = number;
        node.event->clock = stream.clock;
        node.event->capture.reset();
    }
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch_on(null_stream null, cudaGraphExec_t exec, cudaStream_t handle) {
    static call_site site{"cudaGraphLaunch"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (world.exec_handles.count(exec) == 0)
            return cudaErrorInvalidValue;
        return launch(world, *stream, *exec);
    });
}

cudaError_t cudaGraphUpload_on(null_stream null, cudaGraphExec_t exec, cudaStream_t handle) {
    static call_site site{"cudaGraphUpload"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (find_stream(world, handle, null, site.name) == nullptr)
            return cudaErrorInvalidResourceHandle;
        return world.exec_handles.count(exec) != 0 ? cudaSuccess : cudaErrorInvalidValue;
    });
}

cudaError_t cudaGraphInstantiateWithParams_on(null_stream, cudaGraphExec_t* exec, cudaGraph_t graph,
                                              cudaGraphInstantiateParams* parameters) {
    static call_site site{"cudaGraphInstantiateWithParams"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (parameters == nullptr)
            return cudaErrorInvalidValue;
        parameters->result_out = cudaGraphInstantiateSuccess;
        return instantiate(world, exec, graph, parameters->flags);
    });
}

} // namespace

} // namespace simulated_device::inside

using namespace simulated_device::inside;

SIMULATED_CUDA_EXPORT(cudaGraphLaunch, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream), exec, stream)
SIMULATED_CUDA_EXPORT(cudaGraphUpload, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream), exec, stream)
SIMULATED_CUDA_EXPORT(cudaGraphInstantiateWithParams, _ptsz,
                      (cudaGraphExec_t * exec, cudaGraph_t graph, cudaGraphInstantiateParams* parameters),
                      exec, graph, parameters)

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                            unsigned long long flags) {
    static call_site site{"cudaGraphInstantiate"};
    return api(site, [&](world_state& world) { return instantiate(world, exec, graph, flags); });
}

extern "C" cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                     unsigned long long flags) {
    static call_site site{"cudaGraphInstantiateWithFlags"};
    return api(site, [&](world_state& world) { return instantiate(world, exec, graph, flags); });
}

extern "C" cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
    static call_site site{"cudaGraphExecGetFlags"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (flags == nullptr || world.exec_handles.count(exec) == 0)
            return cudaErrorInvalidValue;
        *flags = exec->flags;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
    static call_site site{"cudaGraphCreate"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (graph == nullptr)
            return cudaErrorInvalidValue;
        auto state = std::make_shared<graph_state>(world);
        state->active = false;
        *graph = new CUgraph_st{state};
        state->handle = *graph;
        world.graph_handles.insert(*graph);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
    static call_site site{"cudaGraphGetNodes"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (count == nullptr || world.graph_handles.count(graph) == 0)
            return cudaErrorInvalidValue;
        graph_state& state = *graph->state;
        if (nodes != nullptr)
            for (std::size_t at = 0; at < *count; ++at)
                nodes[at] = at < state.handles.size() ? &state.handles[at] : nullptr;
        if (nodes == nullptr || *count > state.handles.size())
            *count = state.handles.size();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    static call_site site{"cudaGraphNodeGetType"};
    return api(site, [&](world_state&) -> cudaError_t {
        if (node == nullptr || type == nullptr)
            return cudaErrorInvalidValue;
        *type = node->graph->nodes[node->index].type;
        return cudaSuccess;
    });
}

namespace simulated_device::inside {
namespace {

cudaError_t dependencies_of(cudaGraphNode_t node, cudaGraphNode_t* nodes, std::size_t* count) {
    static call_site site{"cudaGraphNodeGetDependencies"};
    return api(site, [&](world_state&) -> cudaError_t {
        if (node == nullptr || count == nullptr)
            return cudaErrorInvalidValue;
        std::vector<std::size_t> const& follows = node->graph->nodes[node->index].follows;
        if (nodes != nullptr)
            for (std::size_t at = 0; at < *count; ++at)
                nodes[at] = at < follows.size() ? &node->graph->handles[follows[at]] : nullptr;
        if (nodes == nullptr || *count > follows.size())
            *count = follows.size();
        return cudaSuccess;
    });
}

} // namespace
} // namespace simulated_device::inside

#if CUDART_VERSION >= 13000
#define WITH_EDGES cudaGraphNodeGetDependencies
#else
#define WITH_EDGES cudaGraphNodeGetDependencies_v2
extern "C" cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, std::size_t* count) {
    return dependencies_of(node, nodes, count);
}
#endif
extern "C" cudaError_t WITH_EDGES(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges, std::size_t* count) {
    if (nodes != nullptr && edges != nullptr && count != nullptr)
        std::fill_n(edges, *count, cudaGraphEdgeData{});
    return dependencies_of(node, nodes, count);
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    static call_site site{"cudaGraphDestroy"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (world.graph_handles.erase(graph) == 0)
            return cudaErrorInvalidValue;
        if (graph->state->handle == graph)
            graph->state->handle = nullptr;
        else
            --graph->state->clones;
        delete graph;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
    static call_site site{"cudaGraphClone"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (clone == nullptr || world.graph_handles.count(graph) == 0)
            return cudaErrorInvalidValue;
        *clone = new CUgraph_st{graph->state, copy_of(*graph->objects)}; // nothing here changes a graph's nodes
        ++graph->state->clones;
        world.graph_handles.insert(*clone);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* result) {
    static call_site site{"cudaGraphExecUpdate"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (result == nullptr || world.exec_handles.count(exec) == 0 || world.graph_handles.count(graph) == 0)
            return cudaErrorInvalidValue;
        auto const& before = exec->state->nodes;
        auto const& after = graph->state->nodes;
        bool const alike = std::equal(before.begin(), before.end(), after.begin(), after.end(),
                                      [](graph_node const& a, graph_node const& b) { return a.type == b.type && a.follows == b.follows; });
        *result = {};
        result->result = alike ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
        if (!alike)
            return cudaErrorGraphExecUpdateFailure;
        --exec->state->executables;
        exec->state = graph->state;
        ++exec->state->executables;
        exec->objects = copy_of(*graph->objects);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    static call_site site{"cudaGraphExecDestroy"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (world.exec_handles.erase(exec) == 0)
            return cudaErrorInvalidValue;
        --exec->state->executables;
        delete exec;
        return cudaSuccess;
    });
}
