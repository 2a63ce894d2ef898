// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cudaUserObject*: what graphs own besides memory. The last owner's end calls the object's function, outside of the call
// that was the end: CUDA does so on a thread of its own where a launch was the last owner, so here a later call does.

#include "calls.hpp"

namespace simulated_cuda::inside {

void disown(world_state& world, cudaUserObject_t object, unsigned count) {
    if ((object->owners -= count) != 0)
        return;
    world.user_objects.erase(object);
    if (world.ending)
        object->destroy(object->data);
    else
        world.ended_objects.push_back({object->data, object->destroy, object->past});
    delete object;
}

void call_destructors(world_state& world) {
    while (!world.ended_objects.empty() && decide(world, 2) == 0) {
        ended_object const last = world.ended_objects.front();
        world.ended_objects.pop_front();
        world.host.join(last.past); // whoever sees what the function does knows
        run_body(world, true, [&] { last.destroy(last.data); });
    }
}

namespace {

bool lives(world_state const& world, cudaUserObject_t object) {
    return world.user_objects.count(object) != 0;
}

/// The graph that a handle names, captured or being captured; null: none.
graph_state* find_graph(world_state const& world, cudaGraph_t handle) {
    if (world.graph_handles.count(handle) != 0)
        return handle->state.get();
    for (auto const& capture : world.captures)
        if (handle != nullptr && capture->handle == handle)
            return capture.get();
    return nullptr;
}

} // namespace

} // namespace simulated_cuda::inside

using namespace simulated_cuda::inside;

extern "C" cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy, unsigned count,
                                            unsigned flags) {
    static call_site site{"cudaUserObjectCreate"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (object == nullptr || destroy == nullptr || count == 0 || flags != cudaUserObjectNoDestructorSync)
            return cudaErrorInvalidValue;
        *object = new CUuserObject_st{data, destroy, count, count, {}};
        world.user_objects.insert(*object);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
    static call_site site{"cudaUserObjectRetain"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (!lives(world, object) || count == 0)
            return cudaErrorInvalidValue;
        object->own += count;
        object->owners += count;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
    static call_site site{"cudaUserObjectRelease"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (!lives(world, object) || count == 0 || object->own < count)
            return cudaErrorInvalidValue;
        object->own -= count;
        disown(world, object, count);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
    static call_site site{"cudaGraphRetainUserObject"};
    return api(site, [&](world_state& world) -> cudaError_t {
        graph_state* const owner = find_graph(world, graph);
        bool const moves = flags == cudaGraphUserObjectMove;
        if (owner == nullptr || !lives(world, object) || count == 0 || (flags != 0 && !moves) || (moves && object->own < count))
            return cudaErrorInvalidValue;
        object->own -= moves ? count : 0;
        object->owners += moves ? 0 : count;
        owner->objects[object] += count;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
    static call_site site{"cudaGraphReleaseUserObject"};
    return api(site, [&](world_state& world) -> cudaError_t {
        graph_state* const owner = find_graph(world, graph);
        if (owner == nullptr || count == 0)
            return cudaErrorInvalidValue;
        auto const held = owner->objects.find(object);
        if (held == owner->objects.end() || held->second < count)
            return cudaErrorInvalidValue;
        if ((held->second -= count) == 0)
            owner->objects.erase(held);
        disown(world, object, count);
        return cudaSuccess;
    });
}
