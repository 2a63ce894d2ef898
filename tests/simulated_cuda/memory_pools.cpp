// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The driver's stream-ordered pools: cudaMallocAsync and its family. A free block remembers where it was
// freed; it is handed out again on that stream, or where the stream's clock covers that point, or where it is
// over, or, last, with a wait put in. Memory comes in chunks of 32 MiB and goes back, beyond the release
// threshold, when the host waits for something. What a captured stream allocates its graph owns: it comes from chunks
// that the pool does not count, and that stay the device's, for other graphs, until cudaDeviceGraphMemTrim.

#include "calls.hpp"

#include <iterator>

namespace simulated_device::inside {

namespace {

constexpr std::size_t chunk_bytes = std::size_t(32) << 20;

std::size_t block_bytes(std::size_t bytes) {
    return round_up(bytes, alignment_bytes);
}

device_space& space_of(world_state& world, pool_record const& pool) {
    return *world.devices[static_cast<std::size_t>(pool.device)].space;
}

/// Bytes that such a pool could have at most.
std::size_t all_memory(world_state& world, pool_record const& pool) {
    return pool.kind == pool_kind::device ? space_of(world, pool).memory() : world.settings.pinned_bytes;
}

/// A chunk's address, or 0.
std::uintptr_t take_chunk(world_state& world, pool_record const& pool, std::size_t bytes) {
    if (pool.kind == pool_kind::device)
        return space_of(world, pool).take(bytes);
    if (bytes > world.settings.pinned_bytes - std::min(world.settings.pinned_bytes, world.host_used))
        return 0;
    std::size_t const offset = world.host_region->pages.take(bytes, page_bytes);
    if (offset == offset_ranges::npos)
        return 0;
    world.host_used += bytes;
    world.host_region->protect(world.host_region->base() + offset, bytes, access::open);
    return world.host_region->base() + offset;
}

void give_chunk(world_state& world, pool_record const& pool, std::uintptr_t at, std::size_t bytes) {
    if (pool.kind == pool_kind::device)
        return space_of(world, pool).give(at, bytes, true);
    world.host_region->discard(at, bytes);
    world.host_region->protect(at, bytes, access::closed);
    world.host_region->pages.give(at - world.host_region->base(), bytes);
    world.host_used -= bytes;
}

/// Where a graph's memory comes from that a pool's properties describe.
pool_record& graph_side(pool_record& pool) {
    if (!pool.graphs) {
        pool.graphs = std::make_unique<pool_record>();
        pool.graphs->kind = pool.kind;
        pool.graphs->device = pool.device;
        pool.graphs->accessible = pool.accessible;
    }
    return *pool.graphs;
}

bool is_over(pool_record::free_block const& block) {
    return block.stream == nullptr || block.stream->done >= block.number;
}

/// What a pool may give back: that the work is over is not enough, CUDA's pools learn of it by some waits only.
bool known(pool_record::free_block const& block) {
    return is_over(block) && (block.stream == nullptr || block.stream->destroyed || block.stream->noticed >= block.number);
}

/// Free neighbours of one chunk become one, if they are `settled`: 'over' or 'known'.
void join(pool_record& pool, bool (*settled)(pool_record::free_block const&)) {
    for (auto it = pool.free.begin(); it != pool.free.end();) {
        if (!settled(it->second)) {
            ++it;
            continue;
        }
        it->second.stream = nullptr;
        auto const next = std::next(it);
        if (next != pool.free.end() && it->first + it->second.bytes == next->first &&
            pool.chunks.count(next->first) == 0 && settled(next->second)) {
            it->second.bytes += next->second.bytes;
            pool.free.erase(next);
        } else {
            ++it;
        }
    }
}

bool grow(world_state& world, pool_record& pool, std::size_t bytes) {
    for (std::size_t const step : {chunk_bytes, page_bytes}) {
        if (bytes > ~std::size_t(0) - step)
            return false;
        std::size_t const size = round_up(bytes, step);
        if (pool.maximum != 0 && pool.reserved + size > round_up(pool.maximum, page_bytes))
            continue;
        std::uintptr_t const at = take_chunk(world, pool, size);
        if (at == 0)
            continue;
        pool.chunks[at] = size;
        pool.free[at].bytes = size;
        pool.reserved += size;
        pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
        return true;
    }
    return false;
}

/// The best free block for what comes next on a stream; 'rank' says by which rule it may be had.
std::map<std::uintptr_t, pool_record::free_block>::iterator
choose_block(pool_record& pool, std::size_t bytes, stream_record const& stream, bool waits) {
    auto best = pool.free.end();
    for (auto it = pool.free.begin(); it != pool.free.end(); ++it) {
        auto const& block = it->second;
        if (block.bytes < bytes)
            continue;
        bool const usable =
            block.stream == nullptr || block.stream == &stream ||
            (pool.follow_events != 0 && stream.clock.of(block.stream->component) >= block.number) ||
            (pool.opportunistic != 0 && is_over(block)) || (waits && pool.internal != 0);
        if (usable && (best == pool.free.end() || block.bytes < best->second.bytes))
            best = it;
    }
    return best;
}

cudaError_t allocate(world_state& world, void** out, std::size_t bytes, pool_record& asked,
                     stream_record& stream) {
    if (out == nullptr || asked.source != 0) // an imported pool hands nothing out
        return cudaErrorInvalidValue;
    *out = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    if (cudaError_t const error = lost(world, stream.device))
        return error;
    if (cudaError_t const error = refuse_implicit(world, stream))
        return error;
    if (stream.capture && stream.capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (!stream.capture)
        if (cudaError_t const error = unsafe_call(world))
            return error;
    if (stream.capture && asked.handle_types != 0)
        return cudaErrorNotSupported; // no allocation of a graph can be exported
    pool_record& pool = stream.capture ? graph_side(asked) : asked;
    if (bytes > all_memory(world, pool))
        return cudaErrorMemoryAllocation;
    std::size_t const size = block_bytes(bytes);
    auto block = choose_block(pool, size, stream, false);
    if (block == pool.free.end()) {
        join(pool, is_over);
        block = choose_block(pool, size, stream, false);
    }
    if (block == pool.free.end() && grow(world, pool, size))
        block = choose_block(pool, size, stream, false);
    if (block == pool.free.end())
        block = choose_block(pool, size, stream, true);
    if (block == pool.free.end())
        return cudaErrorMemoryAllocation;
    std::uintptr_t const at = block->first;
    pool_record::free_block const taken = block->second;
    pool.free.erase(block);
    if (taken.bytes > size) {
        pool_record::free_block& rest = pool.free[at + size];
        rest = taken;
        rest.bytes -= size;
    }
    pool.used += size;
    pool.used_high = std::max(pool.used_high, pool.used);
    ++pool.live;
    allocation& memory = world.allocations[at];
    memory = allocation{};
    memory.bytes = bytes;
    memory.kind = memory_kind::pooled;
    memory.device = pool.device;
    memory.pool = &pool;
    memory.number = ++world.allocation_count;
    *out = reinterpret_cast<void*>(at);
    if (stream.capture) {
        graph_node node;
        node.type = cudaGraphNodeTypeMemAlloc;
        node.what = "allocation";
        node.memory = at;
        node.bytes = bytes;
        memory.of_graph = true;
        memory.graph = stream.capture;
        capture_node(world, stream, std::move(node));
        world.knowledge.born(world, at, bytes);
        return cudaSuccess;
    }
    operation work;
    work.what = "cudaMallocAsync";
    if (taken.stream != nullptr)
        order_after(world, stream, taken.stream, taken.number, taken.clock, work.waits);
    viewpoint from;
    from.number = enqueue(world, stream, std::move(work));
    from.stream = &stream;
    from.clock = &stream.clock;
    from.what = "cudaMallocAsync";
    world.knowledge.born(world, at, bytes, &from);
    if (world.logging())
        world.say("  " + std::to_string(bytes) + " bytes at " + name_of_address(world, *out));
    return cudaSuccess;
}

cudaError_t cudaMallocAsync_on(null_stream null, void** p, std::size_t bytes, cudaStream_t handle) {
    static call_site site{"cudaMallocAsync"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        return allocate(world, p, bytes,
                        *world.devices[static_cast<std::size_t>(stream->device)].current_pool, *stream);
    });
}

cudaError_t cudaMallocFromPoolAsync_on(null_stream null, void** p, std::size_t bytes,
                                       cudaMemPool_t pool_handle, cudaStream_t handle) {
    static call_site site{"cudaMallocFromPoolAsync"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        pool_record* const pool = find_pool(world, pool_handle, site.name);
        return pool != nullptr ? allocate(world, p, bytes, *pool, *stream) : cudaErrorInvalidValue;
    });
}

cudaError_t cudaFreeAsync_on(null_stream null, void* p, cudaStream_t handle) {
    static call_site site{"cudaFreeAsync"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (stream == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (p == nullptr)
            return cudaErrorInvalidValue;
        return free_pooled(world, p, stream);
    });
}

} // namespace

void give_back_chunks(world_state& world, pool_record& pool, std::uint64_t keep) {
    join(pool, known);
    for (auto it = pool.chunks.begin(); it != pool.chunks.end() && pool.reserved > keep;) {
        auto const block = pool.free.find(it->first);
        if (block == pool.free.end() || block->second.bytes != it->second || !known(block->second)) {
            ++it;
            continue;
        }
        give_chunk(world, pool, it->first, it->second);
        pool.reserved -= it->second;
        pool.free.erase(block);
        it = pool.chunks.erase(it);
    }
}

pool_record* find_pool(world_state& world, cudaMemPool_t handle, char const* who) {
    for (auto const& pool : world.pools)
        if (pool->handle == handle && !pool->destroyed)
            return pool.get();
    for (auto const& pool : world.pools)
        if (pool->handle == handle && handle != nullptr)
            world.complain(finding::destroyed_handle,
                           std::string(who) + " was given a memory pool that was destroyed");
    return nullptr;
}

void release_pooled(world_state& world, allocation const& memory, std::uintptr_t at) {
    pool_record& pool = *memory.pool;
    std::size_t const size = block_bytes(memory.bytes);
    pool.used -= size;
    --pool.live;
    pool.free[at].bytes = size;
    if (pool.destroyed && pool.live == 0)
        give_back_chunks(world, pool, 0);
}

void end_pooled(world_state& world, std::uintptr_t at, char const* how, wait last, vector_clock clock) {
    allocation const memory = world.allocations.at(at);
    destroy_allocation(world, at, how);
    if (memory.kind == memory_kind::imported)
        return;
    auto const block = memory.pool->free.find(at);
    if (block == memory.pool->free.end()) // its chunk went as well
        return;
    block->second.stream = last.stream;
    block->second.number = last.number;
    block->second.clock = std::move(clock);
}

void end_graph_memory(world_state& world, std::uintptr_t at, char const* how) {
    allocation const& memory = world.allocations.at(at);
    end_pooled(world, at, how, memory.last, memory.last_clock);
}

cudaError_t free_pooled(world_state& world, void* p, stream_record* stream) {
    auto const at = reinterpret_cast<std::uintptr_t>(p);
    auto const it = world.allocations.find(at);
    if (it == world.allocations.end() ||
        (it->second.kind != memory_kind::pooled && it->second.kind != memory_kind::imported))
        return cudaErrorInvalidValue;
    for (auto const& [other, importer] : world.allocations)
        if (it->second.pool->handle_types != 0 && importer.kind == memory_kind::imported && importer.source == at)
            world.complain(finding::bad_free, "memory at " + name_of_address(world, p) +
                                                  " was freed while an importer still holds it");
    allocation const memory = it->second;
    auto const graph = memory.graph.lock();
    if (stream == nullptr) {
        if (!wait_for_device(world, memory.device, "cudaFree"))
            return cudaErrorLaunchTimeout;
        if (graph)
            it->second.launched = false;
        else
            destroy_allocation(world, at, "cudaFree");
        return lost(world, memory.device);
    }
    if (cudaError_t const error = refuse_implicit(world, *stream))
        return error;
    if (stream->capture) {
        if (stream->capture->invalid)
            return cudaErrorStreamCaptureInvalidated;
        if (!memory.of_graph)
            return cudaErrorInvalidValue;
        graph_node node;
        node.type = cudaGraphNodeTypeMemFree;
        node.what = "free";
        node.memory = at;
        capture_node(world, *stream, std::move(node));
        return cudaSuccess;
    }
    if (cudaError_t const error = unsafe_call(world))
        return error;
    operation work;
    work.what = "cudaFreeAsync";
    std::uint64_t number = 0;
    unsigned& housekeeping = this_thread(world).housekeeping;
    ++housekeeping; // whose blocks it was cut into is its owner's business
    cudaError_t const error =
        submit(world, *stream, cudaGraphNodeTypeMemFree, std::move(work), {}, {{p, memory.bytes}}, &number);
    --housekeeping;
    if (error != cudaSuccess)
        return error;
    if (graph) { // it may make it again at its next launch
        it->second.launched = false;
        it->second.last = {stream, number};
        it->second.last_clock = stream->clock;
        return cudaSuccess;
    }
    end_pooled(world, at, "cudaFreeAsync", {stream, number}, stream->clock);
    return cudaSuccess;
}

void trim_pools(world_state& world, int device) {
    for (auto const& stream : world.streams)
        if (stream->device == device)
            stream->noticed = stream->done;
    for (auto const& pool : world.pools)
        if (pool->device == device && pool->reserved > pool->threshold)
            give_back_chunks(world, *pool, pool->threshold);
}

} // namespace simulated_device::inside

using namespace simulated_device::inside;

SIMULATED_CUDA_EXPORT(cudaMallocAsync, _ptsz, (void** p, std::size_t bytes, cudaStream_t stream), p, bytes,
                      stream)
SIMULATED_CUDA_EXPORT(cudaMallocFromPoolAsync, _ptsz,
                      (void** p, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream), p, bytes, pool,
                      stream)
SIMULATED_CUDA_EXPORT(cudaFreeAsync, _ptsz, (void* p, cudaStream_t stream), p, stream)
