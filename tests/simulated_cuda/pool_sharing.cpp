// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cudaMemPoolExport* and cudaMemPoolImport*, for importers in the same process: a descriptor is one of the system's, whose
// file names the pool. What is imported has addresses of its own, behind which are the exporter's bytes.

#include "calls.hpp"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace simulated_device::inside;

namespace {

/// What an export says, in the bytes of a descriptor's file, a fabric handle or a pointer's data.
struct exported {
    char mark[8] = {'w', 'e', 'i', 'r', 'p', 'o', 'o', 'l'};
    std::uint64_t pool = 0;
    std::uint64_t at = 0;
    std::uint64_t number = 0;

    bool genuine() const { return std::memcmp(mark, exported{}.mark, sizeof mark) == 0; }
};

pool_record* pool_of(world_state& world, std::uint64_t id) {
    for (auto const& pool : world.pools)
        if (pool->id == id && pool->source == 0)
            return pool.get();
    return nullptr;
}

bool one_type(cudaMemAllocationHandleType type) {
    return type == cudaMemHandleTypePosixFileDescriptor || type == cudaMemHandleTypeFabric;
}

} // namespace

extern "C" cudaError_t cudaMemPoolExportToShareableHandle(void* out, cudaMemPool_t handle,
                                                          cudaMemAllocationHandleType type, unsigned flags) {
    static call_site site{"cudaMemPoolExportToShareableHandle"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        pool_record* const pool = find_pool(world, handle, site.name);
        if (out == nullptr || pool == nullptr || flags != 0 || !one_type(type) || (pool->handle_types & type) == 0)
            return cudaErrorInvalidValue;
        exported what;
        what.pool = pool->id;
        pool->exported = true;
        if (type == cudaMemHandleTypeFabric) {
            std::memset(out, 0, sizeof(cudaMemFabricHandle_t));
            std::memcpy(out, &what, sizeof what);
            return cudaSuccess;
        }
        int const descriptor = memfd_create("simulated memory pool", MFD_CLOEXEC);
        if (descriptor < 0)
            return cudaErrorOperatingSystem;
        if (write(descriptor, &what, sizeof what) != static_cast<ssize_t>(sizeof what)) {
            close(descriptor);
            return cudaErrorOperatingSystem;
        }
        *static_cast<int*>(out) = descriptor;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t* out, void* handle,
                                                            cudaMemAllocationHandleType type, unsigned flags) {
    static call_site site{"cudaMemPoolImportFromShareableHandle"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        if (out == nullptr || flags != 0 || !one_type(type))
            return cudaErrorInvalidValue;
        exported what;
        what.mark[0] = 0;
        if (handle == nullptr) // also descriptor 0
            return cudaErrorInvalidValue;
        if (type == cudaMemHandleTypeFabric) {
            std::memcpy(static_cast<void*>(&what), handle, sizeof what);
        } else { // the descriptor itself, as if it were a pointer
            auto const descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(handle));
            if (pread(descriptor, &what, sizeof what, 0) != static_cast<ssize_t>(sizeof what))
                return cudaErrorUnknown;
        }
        pool_record const* const source = what.genuine() ? pool_of(world, what.pool) : nullptr;
        if (source == nullptr)
            return cudaErrorInvalidValue;
        world.pools.push_back(std::make_unique<pool_record>());
        pool_record& pool = *world.pools.back();
        pool.kind = source->kind;
        pool.device = source->device;
        pool.id = world.next_pool++;
        pool.source = source->id;
        if (pool.kind == pool_kind::device)
            pool.accessible[pool.device] = cudaMemAccessFlagsProtReadWrite;
        pool.handle = new CUmemPoolHandle_st{&pool};
        *out = pool.handle;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemPoolExportPointer(cudaMemPoolPtrExportData* out, void* p) {
    static call_site site{"cudaMemPoolExportPointer"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        auto const at = reinterpret_cast<std::uintptr_t>(p);
        auto const it = world.allocations.find(at);
        if (out == nullptr || it == world.allocations.end() || it->second.kind != memory_kind::pooled ||
            !it->second.pool->exported)
            return cudaErrorInvalidValue; // also where the pool itself was not exported before (seen on an H200)
        exported what;
        what.pool = it->second.pool->id;
        what.at = at;
        what.number = it->second.number;
        *out = cudaMemPoolPtrExportData{};
        std::memcpy(out, &what, sizeof what);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemPoolImportPointer(void** out, cudaMemPool_t handle, cudaMemPoolPtrExportData* data) {
    static call_site site{"cudaMemPoolImportPointer"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        pool_record* const pool = find_pool(world, handle, site.name);
        if (out == nullptr || data == nullptr || pool == nullptr || pool->source == 0)
            return cudaErrorInvalidValue;
        exported what;
        std::memcpy(static_cast<void*>(&what), data, sizeof what);
        auto const it = world.allocations.find(what.at);
        if (!what.genuine() || what.pool != pool->source || it == world.allocations.end() ||
            it->second.number != what.number)
            return cudaErrorInvalidValue;
        std::size_t const bytes = it->second.bytes;
        std::uintptr_t const at = world.devices[static_cast<std::size_t>(pool->device)].space->take(bytes);
        if (at == 0)
            return cudaErrorMemoryAllocation;
        allocation& memory = world.allocations[at];
        memory = allocation{};
        memory.bytes = bytes;
        memory.kind = memory_kind::imported;
        memory.device = pool->device;
        memory.pool = pool;
        memory.source = what.at;
        memory.number = ++world.allocation_count;
        world.knowledge.born(world, at, bytes);
        *out = reinterpret_cast<void*>(at);
        return cudaSuccess;
    });
}
