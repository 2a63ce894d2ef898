// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The test's side: worlds, work, a pool's notes, faults, the explorer. See weir/simulated_device.hpp.

#include "calls.hpp"

#include <cstdio>
#include <cstdlib>

namespace simulated_device {

using namespace inside;

namespace {

std::vector<report> leaks_of(world_state& world) {
    std::vector<report> all;
    auto const leak = [&](std::string sentence) { all.push_back({finding::leak, std::move(sentence)}); };
    for (auto const& [at, memory] : world.allocations) {
        static constexpr char const* kinds[] = {"cudaMalloc",       "cudaHostAlloc",   "cudaMallocManaged",
                                                "cudaHostRegister", "cudaMallocAsync", "cuMemMap",
                                                "cudaMemPoolImportPointer"};
        if (!memory.graph.expired())
            continue; // the graph's, while it lives
        leak("the driver still holds " + std::to_string(memory.bytes) + " bytes of " +
             kinds[static_cast<std::size_t>(memory.kind)] + " at " +
             name_of_address(world, reinterpret_cast<void const*>(at)));
    }
    for (auto const& stream : world.streams)
        if (stream->kind == stream_kind::created && !stream->destroyed)
            leak(name_of(*stream) + " was never destroyed");
    for (auto const& event : world.live_events)
        leak("event " + std::to_string(event->id) + " was never destroyed");
    for (auto const& pool : world.pools)
        if (!pool->is_default && !pool->destroyed)
            leak("a memory pool of device " + std::to_string(pool->device) + " was never destroyed");
    for (std::string& sentence : virtual_leaks(world))
        leak(std::move(sentence));
    if (!world.graph_handles.empty())
        leak(std::to_string(world.graph_handles.size()) + " graphs were never destroyed");
    for (cudaUserObject_t const object : world.user_objects)
        if (object->own != 0)
            leak("a user object was never released");
    if (!world.exec_handles.empty())
        leak(std::to_string(world.exec_handles.size()) + " executable graphs were never destroyed");
    return all;
}

void run_all(world_state& world) {
    while (run_some(world, 1) != 0) {
    }
}

stream_record* find(world_state& world, stream_name stream, char const* who) {
    return find_stream(world, stream.get(), null_stream::legacy, who, stream.device()); // a name is not null
}

viewpoint next_on(world_state& world, stream_name stream, vector_clock& clock, char const* what) {
    viewpoint from;
    from.what = what;
    from.stream = find(world, stream, what);
    if (from.stream != nullptr) {
        clock = next_clock(world, *from.stream);
        from.number = from.stream->last;
        if (from.stream->capture) {
            from.capture = from.stream->capture.get();
            from.frontier = &from.stream->frontier;
        }
    } else {
        clock = world.host;
    }
    from.clock = &clock;
    return from;
}

viewpoint on_host(world_state& world, char const* what) {
    viewpoint from;
    from.what = what;
    from.clock = &world.host;
    return from;
}

cudaError_t launch_with(stream_name stream, std::vector<bytes> const& reads,
                        std::vector<bytes> const& writes, std::function<void()> body, char const* name,
                        cudaError_t failure) {
    static call_site site{"launch", true, false};
    return api(site, [&](world_state& world) {
        return submit_kernel(world, find(world, stream, name), reads, writes, std::move(body), name, failure);
    });
}

} // namespace

cudaError_t inside::submit_kernel(world_state& world, stream_record* stream, std::vector<bytes> const& reads,
                                  std::vector<bytes> const& writes, std::function<void()> body, char const* name, cudaError_t failure) {
    if (stream == nullptr)
        return cudaErrorInvalidResourceHandle;
    auto const check_device = [&](bytes const& range) {
        allocation const* const memory = find_allocation(world, range.at);
        bool const of_host_pool = memory != nullptr && memory->pool != nullptr && memory->pool->kind == pool_kind::host;
        if (memory == nullptr || (memory->device == stream->device && !of_host_pool) ||
            (memory->pool != nullptr && memory->pool->kind == pool_kind::managed) ||
            (memory->kind != memory_kind::device && memory->kind != memory_kind::pooled))
            return;
        if (memory->pool != nullptr && memory->pool->accessible.count(stream->device) != 0 &&
            memory->pool->accessible.at(stream->device) != cudaMemAccessFlagsProtNone)
            return;
        if (of_host_pool || world.devices[static_cast<std::size_t>(stream->device)].peers.count(memory->device) == 0)
            complain_of_access(world, std::string(name) + " on " + name_of(*stream), stream->device, range.at);
    };
    for (bytes const& range : reads)
        check_device(range);
    for (bytes const& range : writes)
        check_device(range);
    operation work;
    work.what = name;
    work.foreign = true;
    work.body = std::move(body);
    work.failure = failure;
    return submit(world, *stream, cudaGraphNodeTypeKernel, std::move(work), reads, writes);
}

void reset(config const& configuration) {
    std::lock_guard<std::mutex> const lock(world_mutex());
    replace_world(configuration);
}

config const& configuration() {
    locked scope;
    return scope.world.settings;
}

std::vector<report> reports() {
    locked scope;
    return scope.world.reports;
}

std::vector<report> reports(finding kind) {
    locked scope;
    std::vector<report> some;
    for (report const& one : scope.world.reports)
        if (one.kind == kind)
            some.push_back(one);
    return some;
}

void clear_reports() {
    locked scope;
    scope.world.reports.clear();
    scope.world.dealt_with = 0;
}

void fail_at_exit(bool fails) {
    locked scope;
    fail_at_end(fails);
}

std::vector<report> leaks() {
    locked scope;
    return leaks_of(scope.world);
}

std::string complaints() {
    locked scope;
    std::string text;
    for (report const& one : scope.world.reports)
        text += one.sentence + '\n';
    for (report const& one : leaks_of(scope.world))
        text += one.sentence + '\n';
    return text;
}

std::string log() {
    locked scope;
    return scope.world.log;
}

void log(std::string const& line) {
    locked scope;
    if (scope.world.logging())
        scope.world.say(line);
}

world::world(config const& configuration, std::function<void(std::vector<report> const&)> handler)
    : handler_(std::move(handler)) {
    reset(configuration);
}

std::vector<report> world::finish() {
    finished_ = true;
    drain();
    locked scope;
    call_destructors(scope.world, true);
    std::vector<report> all = scope.world.reports;
    scope.world.deal_with_reports();
    for (report& one : leaks_of(scope.world))
        all.push_back(std::move(one));
    return all;
}

world::~world() {
    if (finished_) {
        locked scope;
        scope.world.deal_with_reports();
        return;
    }
    auto const all = finish();
    if (handler_) {
        handler_(all);
    } else if (!all.empty()) {
        for (report const& one : all)
            std::fprintf(stderr, "simulated device: %s\n", one.sentence.c_str());
        std::abort();
    }
}

cudaError_t launch(stream_name stream, std::initializer_list<bytes> reads,
                   std::initializer_list<bytes> writes, std::function<void()> body, char const* name) {
    return launch_with(stream, reads, writes, std::move(body), name, cudaSuccess);
}

cudaError_t launch(stream_name stream, std::vector<bytes> const& reads, std::vector<bytes> const& writes,
                   std::function<void()> body, char const* name) {
    return launch_with(stream, reads, writes, std::move(body), name, cudaSuccess);
}

cudaError_t launch_failing(stream_name stream, cudaError_t error) {
    return launch_with(stream, {}, {}, {}, "failing kernel", error);
}

gate::gate() {
    locked scope;
    name_ = scope.world.next_gate++;
    scope.world.closed_gates.insert(name_);
}

cudaError_t gate::close(stream_name on) {
    static call_site site{"gate::close", true, false};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find(world, on, "a gate");
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (stream->capture)
            return cudaErrorStreamCaptureUnsupported;
        operation work;
        work.what = "gate";
        work.gate = name_;
        return submit(world, *stream, cudaGraphNodeTypeEmpty, std::move(work), {}, {});
    });
}

void gate::open() {
    {
        locked scope;
        scope.world.closed_gates.erase(name_);
        if (!scope.thread.in_host_function)
            settle_eagerly(scope.world);
        wake_waiters();
    }
    switch_point();
}

void* backing(void const* device_address) {
    locked scope;
    mark_written(scope.world, device_address);
    return bytes_of(scope.world, device_address);
}

int device_of(void const* p) {
    locked scope;
    allocation const* const memory = find_allocation(scope.world, p);
    bool const on_device = memory != nullptr && (memory->kind == memory_kind::device || memory->kind == memory_kind::mapped ||
                                                 memory->kind == memory_kind::imported ||
                                                 (memory->kind == memory_kind::pooled && memory->pool->kind == pool_kind::device));
    return on_device ? memory->device : no_device;
}

void make_device_memory_visible(bool visible) {
    locked scope;
    scope.world.settings.device_memory_visible = visible;
    for (device_state& device : scope.world.devices)
        device.space->memory_region.protect(visible ? access::open : access::closed);
}

void drain() {
    locked scope;
    run_all(scope.world);
}

std::size_t run(std::size_t count) {
    locked scope;
    return run_some(scope.world, count);
}

std::size_t pending() {
    locked scope;
    std::size_t total = 0;
    for (stream_record const* const stream : scope.world.active)
        total += stream->queue.size() + (stream->running ? 1 : 0);
    return total;
}

void note_allocate(void const* p, std::size_t count, stream_name stream) {
    switch_point();
    locked scope;
    vector_clock clock;
    viewpoint const from = next_on(scope.world, stream, clock, "a pool");
    scope.world.knowledge.hand_out(scope.world, p, count, from);
}

void note_allocate_host(void const* p, std::size_t count) {
    switch_point();
    locked scope;
    scope.world.knowledge.hand_out(scope.world, p, count, on_host(scope.world, "a pool"));
}

void note_free(void const* p, std::size_t count, stream_name stream, bool strictly) {
    locked scope;
    vector_clock clock;
    viewpoint const from = next_on(scope.world, stream, clock, "a user");
    scope.world.knowledge.take_back(scope.world, p, count, from, strictly && scope.world.settings.strict);
}

void note_checked_free(void const* p, std::size_t count, stream_name stream) {
    locked scope;
    vector_clock clock;
    viewpoint const from = next_on(scope.world, stream, clock, "a user");
    if (from.stream != nullptr)
        scope.world.knowledge.expect_used_before(scope.world, p, count, from);
    scope.world.knowledge.take_back(scope.world, p, count, from, scope.world.settings.strict);
}

void note_used_on(void const* p, stream_name on) {
    locked scope;
    stream_record* const stream = find(scope.world, on, "a use");
    if (life* const block = stream != nullptr ? scope.world.knowledge.block_at(p) : nullptr)
        block->used_on.push_back(stream);
}

void note_last_used_on(void const* p, stream_name on) {
    locked scope;
    stream_record* const stream = find(scope.world, on, "a use");
    if (life* const block = stream != nullptr ? scope.world.knowledge.block_at(p) : nullptr)
        block->last_uses.join(next_clock(scope.world, *stream));
}

void note_ends() {
    locked scope;
    scope.world.host.join(scope.world.ended);
    host_steps(scope.world);
}

void note_free_host(void const* p, std::size_t count) {
    locked scope;
    scope.world.knowledge.take_back(scope.world, p, count, on_host(scope.world, "a user"), true);
}

housekeeping::housekeeping() {
    locked scope;
    ++scope.thread.housekeeping;
}

housekeeping::~housekeeping() {
    locked scope;
    --scope.thread.housekeeping;
}

void note_host_read(void const* p, std::size_t count) {
    locked scope;
    scope.world.knowledge.use(scope.world, p, count, false, on_host(scope.world, "a read"));
}

void note_host_write(void const* p, std::size_t count) {
    locked scope;
    host_steps(scope.world);
    scope.world.knowledge.use(scope.world, p, count, true, on_host(scope.world, "a write"));
}

void fail_call(std::uint64_t k, cudaError_t error, lasting how) {
    locked scope;
    scope.world.faults.push_back({"", scope.world.calls + k, error, how});
}

void fail_call(char const* function, std::uint64_t k, cudaError_t error, lasting how) {
    locked scope;
    scope.world.faults.push_back({function, calls_of(scope.world, function) + k, error, how});
}

bool in_cuda_call() noexcept {
    return call_under_way::depth != 0;
}

void clear_faults() {
    locked scope;
    scope.world.faults.clear();
}

std::uint64_t calls() {
    locked scope;
    return scope.world.calls;
}

std::uint64_t calls(char const* function) {
    locked scope;
    return calls_of(scope.world, function);
}

std::uint64_t failed_calls() {
    locked scope;
    return scope.world.failed_calls;
}

std::vector<bytes> registered() {
    locked scope;
    std::vector<bytes> all;
    for (auto const& [at, memory] : scope.world.allocations)
        if (memory.kind == memory_kind::registered)
            all.push_back({reinterpret_cast<void const*>(at), memory.bytes});
    return all;
}

void inject_sticky(cudaError_t error, int device) {
    locked scope;
    scope.world.devices.at(static_cast<std::size_t>(device)).sticky = error;
}

std::size_t choose(std::size_t n) {
    locked scope;
    return decide(scope.world, n);
}

std::uint64_t explore(config const& configuration, std::uint64_t bound, std::function<void()> const& body) {
    config settings = configuration;
    settings.mode = schedule::exhaustive;
    std::vector<std::size_t> script;
    for (std::uint64_t ran = 0; ran < bound;) {
        {
            std::lock_guard<std::mutex> const lock(world_mutex());
            replace_world(settings);
            the_world().script = script;
        }
        body();
        drain();
        ++ran;
        locked scope;
        if (!scope.world.reports.empty())
            return ran;
        // The next sequence: the last choice that has another answer takes it, and all behind it start over.
        script = scope.world.script;
        script.resize(scope.world.script_at);
        auto const& sizes = scope.world.script_sizes;
        while (!script.empty() && script.back() + 1 == sizes[script.size() - 1])
            script.pop_back();
        if (script.empty())
            return ran;
        ++script.back();
    }
    return bound;
}

} // namespace simulated_device
