// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The frame of every call: lock, count, fault, refusal, schedule, last error, log. See calls.hpp.

#include "calls.hpp"

#include <cstring>

namespace simulated_device::inside {

namespace {

call_site* sites = nullptr;

/// The fault that strikes this call, if one does. A fault that has struck once is gone.
cudaError_t struck(world_state& world, call_site const& site) {
    for (auto it = world.faults.begin(); it != world.faults.end(); ++it) {
        std::uint64_t const count = it->function.empty() ? world.calls : site.count;
        if (!it->function.empty() && it->function != site.name)
            continue;
        bool const strikes = it->how == lasting::once ? count == it->at : count >= it->at;
        if (!strikes)
            continue;
        cudaError_t const error = it->error;
        if (it->how == lasting::once)
            world.faults.erase(it);
        ++world.failed_calls;
        return error;
    }
    return cudaSuccess;
}

} // namespace

locked::locked() : locked(std::unique_lock<std::mutex>(world_mutex()), the_world()) {}

locked::locked(std::unique_lock<std::mutex> lock, world_state& state)
    : world(state), thread(this_thread(state)), lock_(std::move(lock)), outer_(thread.lock) {
    thread.lock = &lock_;
}

locked::~locked() {
    thread.lock = outer_;
}

cudaError_t begin_call(locked& scope, call_site& site) {
    world_state& world = scope.world;
    if (!scope.thread.in_host_function)
        call_destructors(world);
    if (!site.known) {
        site.known = true;
        site.next = sites;
        sites = &site;
    }
    if (site.generation != world.generation) {
        site.generation = world.generation;
        site.count = 0;
    }
    ++world.step;
    if (site.counted) {
        ++world.calls;
        ++site.count;
    }
    if (scope.thread.in_host_function) {
        world.complain(finding::host_access,
                       std::string(site.name) + " was called from inside a host function");
        return cudaErrorNotPermitted;
    }
    if (world.settings.driver_version < CUDART_VERSION / 1000 * 1000 && site.sticky_matters)
        return cudaErrorInsufficientDriver;
    if (world.devices.empty() && site.sticky_matters)
        return cudaErrorNoDevice;
    schedule_turn(world);
    if (site.counted && !world.faults.empty())
        if (cudaError_t const error = struck(world, site))
            return error;
    if (!site.sticky_matters)
        return cudaSuccess;
    world.devices[static_cast<std::size_t>(scope.thread.device)].ready = true;
    return lost(world, scope.thread.device);
}

cudaError_t end_call(locked& scope, call_site& site, cudaError_t error) {
    bool const of_the_driver = std::strncmp(site.name, "cuda", 4) != 0; // the record is the runtime's
    if (error != cudaSuccess && error != cudaErrorNotReady && !of_the_driver) { // not being ready is an answer, no error
        scope.thread.error_before = scope.thread.last_error;
        scope.thread.last_error = error;
    }
    world_state& world = scope.world;
    if (world.logging())
        world.say(std::to_string(world.step) + " T" + std::to_string(scope.thread.number) + " " + site.name +
                  " " + cudaGetErrorName(error));
    return error;
}

int not_modelled(char const* function) {
    locked scope;
    scope.world.complain(finding::not_modelled, std::string(function) + " was called, which the simulated device does not model");
    scope.thread.error_before = scope.thread.last_error;
    return scope.thread.last_error = cudaErrorNotSupported;
}

cudaError_t lost(world_state& world, int device) {
    return device >= 0 && static_cast<std::size_t>(device) < world.devices.size()
               ? world.devices[static_cast<std::size_t>(device)].sticky
               : cudaSuccess;
}

int current_device(world_state& world) {
    return this_thread(world).device;
}

stream_record* find_stream(world_state& world, cudaStream_t handle, null_stream null, char const* who, int of) {
    auto const device = static_cast<std::size_t>(of == no_device ? current_device(world) : of);
    if (handle == nullptr)
        handle = null == null_stream::legacy ? cudaStreamLegacy : cudaStreamPerThread;
    if (handle == cudaStreamLegacy)
        return world.devices[device].legacy;
    if (handle == cudaStreamPerThread) {
        stream_record*& own = this_thread(world).own_streams[device];
        if (own == nullptr)
            own = &make_stream(world, static_cast<int>(device), 0, 0, stream_kind::per_thread);
        return own;
    }
    if (is_handle(handle) && handle->record != nullptr)
        return handle->record;
    world.complain(finding::destroyed_handle,
                   std::string(who) + " (call " + std::to_string(world.step) + ") was given " +
                       (is_handle(handle) ? "a stream that was destroyed" : "a handle that is no stream"));
    return nullptr;
}

event_record* find_event(world_state& world, cudaEvent_t handle, char const* who) {
    if (handle == nullptr)
        return nullptr;
    if (is_handle(handle) && handle->record != nullptr)
        return handle->record;
    world.complain(finding::destroyed_handle,
                   std::string(who) + " (call " + std::to_string(world.step) + ") was given " +
                       (is_handle(handle) ? "an event that was destroyed" : "a handle that is no event"));
    return nullptr;
}

cudaError_t submit(world_state& world, stream_record& stream, cudaGraphNodeType type, operation work,
                   std::vector<bytes> const& reads, std::vector<bytes> const& writes, std::uint64_t* number) {
    if (cudaError_t const error = lost(world, stream.device))
        return error;
    if (cudaError_t const error = refuse_implicit(world, stream))
        return error;
    if (!stream.capture) {
        std::uint64_t const given = enqueue(world, stream, std::move(work), reads, writes);
        if (number != nullptr)
            *number = given;
        return cudaSuccess;
    }
    if (stream.capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    std::shared_ptr<graph_state> const graph = stream.capture;
    std::vector<std::size_t> const follows = stream.frontier;
    graph_node node;
    node.type = type;
    node.what = work.what;
    node.foreign = work.foreign;
    node.body = std::move(work.body);
    node.failure = work.failure;
    viewpoint from;
    from.stream = &stream;
    from.capture = graph.get();
    from.frontier = &follows;
    from.what = work.what;
    from.device = work.by_peers ? no_device : stream.device;
    from.node = capture_node(world, stream, std::move(node));
    for (bytes const& range : reads)
        world.knowledge.use(world, range.at, range.count, false, from);
    for (bytes const& range : writes)
        world.knowledge.use(world, range.at, range.count, true, from);
    return cudaSuccess;
}

std::uint64_t calls_of(world_state const& world, char const* function) {
    std::uint64_t total = 0;
    for (call_site const* site = sites; site != nullptr; site = site->next)
        if (site->generation == world.generation && std::string(site->name) == function)
            total += site->count;
    return total;
}

} // namespace simulated_device::inside
