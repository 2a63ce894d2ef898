// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cudaUserObject*: what graphs own besides memory. The last owner's end calls the object's function, outside of the call
// that was the end: CUDA does so on a thread of its own where a launch was the last owner, so here a later call does.

#include "calls.hpp"

#include <climits>
#include <new>

namespace simulated_device::inside {

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

object_refs::~object_refs() {
    for (auto const& [object, count] : counts) {
        object->past.join(past);
        disown(world, object, count);
    }
}

std::shared_ptr<object_refs> copy_of(object_refs const& refs) {
    auto copy = std::make_shared<object_refs>(refs.world);
    copy->counts = refs.counts;
    for (auto const& [object, count] : refs.counts)
        object->owners += count;
    return copy;
}

void call_destructors(world_state& world, bool all) {
    while (!world.ended_objects.empty() && (all || decide(world, 2) == 0)) {
        ended_object const last = world.ended_objects.front();
        world.ended_objects.pop_front();
        world.ended.join(last.past);
        run_body(world, true, [&] { last.destroy(last.data); });
    }
}

namespace {

bool lives(world_state const& world, cudaUserObject_t object) {
    return world.user_objects.count(object) != 0;
}

/// CUDA throws nothing where the host has no memory.
template <class Body>
cudaError_t if_memory_lasts(Body const& body) {
    try {
        body();
        return cudaSuccess;
    } catch (std::bad_alloc const&) {
        return cudaErrorMemoryAllocation;
    }
}

/// What the graph that a handle names owns, captured or being captured; null: there is none.
object_refs* refs_of(world_state const& world, cudaGraph_t handle) {
    if (world.graph_handles.count(handle) != 0)
        return handle->objects.get();
    for (auto const& capture : world.captures)
        if (handle != nullptr && capture->handle == handle)
            return handle->objects.get();
    return nullptr;
}

/// Whether a call may give so many references of the program's away.
bool gives(world_state& world, cudaUserObject_t object, unsigned count, char const* who) {
    if (count == 0 || count > INT_MAX)
        return false;
    if (lives(world, object) && object->own >= count)
        return true;
    world.complain(finding::bad_free, std::string(who) + " (call " + std::to_string(world.step) +
                                          ") gives away a reference to a user object that the program does not have");
    return false;
}

} // namespace

} // namespace simulated_device::inside

using namespace simulated_device::inside;

extern "C" cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy, unsigned count,
                                            unsigned flags) {
    static call_site site{"cudaUserObjectCreate"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (object == nullptr || destroy == nullptr || count == 0 || flags != cudaUserObjectNoDestructorSync)
            return cudaErrorInvalidValue;
        return if_memory_lasts([&] {
            auto fresh = std::make_unique<CUuserObject_st>(CUuserObject_st{data, destroy, count, count, {}});
            world.user_objects.insert(fresh.get());
            *object = fresh.release();
        });
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
        if (object == nullptr || !gives(world, object, count, site.name))
            return cudaErrorInvalidValue;
        object->own -= count;
        disown(world, object, count);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
    static call_site site{"cudaGraphRetainUserObject"};
    return api(site, [&](world_state& world) -> cudaError_t {
        object_refs* const owner = refs_of(world, graph);
        bool const moves = flags == cudaGraphUserObjectMove;
        if (owner == nullptr || object == nullptr || (flags != 0 && !moves))
            return cudaErrorInvalidValue;
        if (moves ? !gives(world, object, count, site.name) : !lives(world, object) || count == 0 || count > INT_MAX)
            return cudaErrorInvalidValue;
        return if_memory_lasts([&] {
            owner->counts[object] += count;
            object->own -= moves ? count : 0;
            object->owners += moves ? 0 : count;
        });
    });
}

extern "C" cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
    static call_site site{"cudaGraphReleaseUserObject"};
    return api(site, [&](world_state& world) -> cudaError_t {
        object_refs* const owner = refs_of(world, graph);
        if (owner == nullptr || count == 0)
            return cudaErrorInvalidValue;
        auto const held = owner->counts.find(object);
        if (held == owner->counts.end() || held->second < count)
            return cudaErrorInvalidValue;
        if ((held->second -= count) == 0)
            owner->counts.erase(held);
        disown(world, object, count);
        return cudaSuccess;
    });
}
