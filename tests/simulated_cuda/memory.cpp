// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Memory that is allocated and freed at once: device, pinned, managed, and host memory made known. Freeing
// waits for the device, as CUDA's does; sizes are counted in 2 MiB pages of a device.

#include "calls.hpp"

namespace simulated_device::inside {

namespace {

constexpr std::size_t host_page = 4096;

std::size_t host_rounded(std::size_t bytes) {
    return (bytes + host_page - 1) / host_page * host_page;
}

void* add(world_state& world, std::uintptr_t at, std::size_t bytes, memory_kind kind, unsigned flags) {
    allocation& memory = world.allocations[at];
    memory = allocation{};
    memory.bytes = bytes;
    memory.kind = kind;
    memory.device = current_device(world);
    memory.flags = flags;
    memory.number = ++world.allocation_count;
    world.knowledge.born(world, at, bytes);
    auto* const p = reinterpret_cast<void*>(at);
    if (world.logging())
        world.say("  " + std::to_string(bytes) + " bytes at " + name_of_address(world, p));
    return p;
}

cudaError_t allocate_device(world_state& world, void** out, std::size_t bytes) {
    if (out == nullptr)
        return cudaErrorInvalidValue;
    if (cudaError_t const error = unsafe_call(world))
        return error;
    *out = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    device_space& space = *world.devices[static_cast<std::size_t>(current_device(world))].space;
    std::uintptr_t const at = space.take(bytes);
    if (at == 0)
        return cudaErrorMemoryAllocation;
    *out = add(world, at, bytes, memory_kind::device, 0);
    return cudaSuccess;
}

cudaError_t allocate_host(world_state& world, void** out, std::size_t bytes, unsigned flags,
                          memory_kind kind) {
    if (out == nullptr)
        return cudaErrorInvalidValue;
    if (cudaError_t const error = unsafe_call(world))
        return error;
    *out = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    std::size_t const limit = world.settings.pinned_bytes;
    if (bytes > limit || host_rounded(bytes) > limit - std::min(limit, world.host_used))
        return cudaErrorMemoryAllocation;
    std::size_t const offset = world.host_region->pages.take(host_rounded(bytes), host_page);
    if (offset == offset_ranges::npos)
        return cudaErrorMemoryAllocation;
    world.host_used += host_rounded(bytes);
    std::uintptr_t const at = world.host_region->base() + offset;
    world.host_region->protect(at, bytes, access::open);
    *out = add(world, at, bytes, kind, flags);
    return cudaSuccess;
}

/// The allocation that begins at p and is of one of these kinds.
allocation* exact(world_state& world, void const* p, memory_kind one, memory_kind other) {
    auto const it = world.allocations.find(reinterpret_cast<std::uintptr_t>(p));
    return it != world.allocations.end() && (it->second.kind == one || it->second.kind == other) ? &it->second
                                                                                                 : nullptr;
}

} // namespace

allocation* find_allocation(world_state& world, void const* p, std::uintptr_t* base) {
    auto const at = reinterpret_cast<std::uintptr_t>(p);
    auto it = world.allocations.upper_bound(at);
    if (it == world.allocations.begin())
        return nullptr;
    --it;
    if (at - it->first >= it->second.bytes)
        return nullptr;
    if (base != nullptr)
        *base = it->first;
    return &it->second;
}

char* bytes_of(world_state& world, void const* p) {
    std::uintptr_t base = 0;
    if (allocation const* const memory = find_allocation(world, p, &base); memory && memory->kind == memory_kind::imported)
        p = reinterpret_cast<void const*>(memory->source + (reinterpret_cast<std::uintptr_t>(p) - base));
    for (device_state const& device : world.devices)
        if (device.space->memory_region.contains(p))
            return device.space->memory_region.backing(p);
    if (world.virtual_region && world.virtual_region->contains(p))
        return world.virtual_region->backing(p);
    return static_cast<char*>(const_cast<void*>(p));
}

void mark_written(world_state& world, void const* p) {
    if (allocation* const memory = find_allocation(world, p))
        memory->written = true;
}

void complain_of_access(world_state& world, std::string const& who, int device, void const* p) {
    world.complain(finding::wrong_device, who + " of device " + std::to_string(device) + " uses memory at " +
                                              name_of_address(world, p) +
                                              " with no access to that device enabled");
}

void expect_opened(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const& from) {
    if (from.device == no_device)
        return;
    std::uintptr_t base = 0;
    for (std::uintptr_t const end = at + bytes; at < end;) { // maps side by side
        auto* const p = reinterpret_cast<void*>(at);
        allocation const* const memory = find_allocation(world, p, &base);
        if (memory == nullptr || memory->kind != memory_kind::mapped)
            return;
        if (memory->opened_to.count(from.device) == 0)
            return complain_of_access(world, describe(world, from), from.device, p);
        at = base + memory->bytes;
    }
}

void destroy_allocation(world_state& world, std::uintptr_t at, char const* how) {
    auto const it = world.allocations.find(at);
    allocation const memory = it->second;
    world.allocations.erase(it);
    world.knowledge.died(world, at, memory.bytes, how);
    bool const visible = world.settings.device_memory_visible;
    switch (memory.kind) {
    case memory_kind::device:
    case memory_kind::imported: // addresses of its own
        world.devices[static_cast<std::size_t>(memory.device)].space->give(at, memory.bytes,
                                                                           memory.written || visible);
        break;
    case memory_kind::pinned:
    case memory_kind::managed:
        world.host_region->discard(at, host_rounded(memory.bytes));
        world.host_region->protect(at, memory.bytes, access::closed);
        world.host_region->pages.give(at - world.host_region->base(), host_rounded(memory.bytes));
        world.host_used -= host_rounded(memory.bytes);
        break;
    case memory_kind::pooled:
        release_pooled(world, memory, at);
        break;
    case memory_kind::registered:
        world.host_used -= host_rounded(memory.bytes);
        break;
    case memory_kind::mapped:
        break;
    }
}

} // namespace simulated_device::inside

using namespace simulated_device::inside;

extern "C" cudaError_t cudaMalloc(void** p, std::size_t bytes) {
    static call_site site{"cudaMalloc"};
    return api(site, [&](world_state& world) { return allocate_device(world, p, bytes); });
}

extern "C" cudaError_t cudaMallocPitch(void** p, std::size_t* pitch, std::size_t width, std::size_t height) {
    static call_site site{"cudaMallocPitch"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (pitch == nullptr)
            return cudaErrorInvalidValue;
        *pitch = (width + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
        if (height != 0 && *pitch > ~std::size_t(0) / height)
            return cudaErrorMemoryAllocation;
        return allocate_device(world, p, *pitch * height);
    });
}

extern "C" cudaError_t cudaFree(void* p) {
    static call_site site{"cudaFree"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        if (p == nullptr)
            return cudaSuccess;
        auto const it = world.allocations.find(reinterpret_cast<std::uintptr_t>(p));
        if (it == world.allocations.end())
            return cudaErrorInvalidValue;
        allocation const memory = it->second;
        if (memory.kind == memory_kind::pooled || memory.kind == memory_kind::imported)
            return free_pooled(world, p, nullptr);
        if (memory.kind != memory_kind::device && memory.kind != memory_kind::managed)
            return cudaErrorInvalidValue;
        if (!wait_for_device(world, memory.device, site.name))
            return cudaErrorLaunchTimeout;
        destroy_allocation(world, reinterpret_cast<std::uintptr_t>(p), "cudaFree");
        return lost(world, memory.device);
    });
}

extern "C" cudaError_t cudaMallocHost(void** p, std::size_t bytes) {
    static call_site site{"cudaMallocHost"};
    return api(site, [&](world_state& world) {
        return allocate_host(world, p, bytes, cudaHostAllocDefault, memory_kind::pinned);
    });
}

extern "C" cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned flags) {
    static call_site site{"cudaHostAlloc"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if ((flags & ~unsigned(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined)) !=
            0)
            return cudaErrorInvalidValue;
        return allocate_host(world, p, bytes, flags, memory_kind::pinned);
    });
}

extern "C" cudaError_t cudaMallocManaged(void** p, std::size_t bytes, unsigned flags) {
    static call_site site{"cudaMallocManaged"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (p == nullptr || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
            return cudaErrorInvalidValue;
        if (bytes == 0) {
            *p = nullptr;
            return cudaSuccess;
        }
        return allocate_host(world, p, bytes, flags, memory_kind::managed);
    });
}

extern "C" cudaError_t cudaFreeHost(void* p) {
    static call_site site{"cudaFreeHost"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        if (p == nullptr)
            return cudaSuccess;
        if (exact(world, p, memory_kind::pinned, memory_kind::pinned) == nullptr)
            return cudaErrorInvalidValue;
        for (int device = 0; device < static_cast<int>(world.devices.size()); ++device)
            if (!wait_for_device(world, device, site.name))
                return cudaErrorLaunchTimeout;
        destroy_allocation(world, reinterpret_cast<std::uintptr_t>(p), "cudaFreeHost");
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned flags) {
    static call_site site{"cudaHostRegister"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (p == nullptr || bytes == 0)
            return cudaErrorInvalidValue;
        if (find_allocation(world, p) != nullptr)
            return cudaErrorHostMemoryAlreadyRegistered;
        if (host_rounded(bytes) > world.settings.pinned_bytes - std::min(world.settings.pinned_bytes, world.host_used))
            return cudaErrorMemoryAllocation;
        world.host_used += host_rounded(bytes);
        add(world, reinterpret_cast<std::uintptr_t>(p), bytes, memory_kind::registered, flags);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaHostUnregister(void* p) {
    static call_site site{"cudaHostUnregister"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (p == nullptr)
            return cudaErrorInvalidValue;
        if (exact(world, p, memory_kind::registered, memory_kind::registered) == nullptr)
            return cudaErrorHostMemoryNotRegistered;
        destroy_allocation(world, reinterpret_cast<std::uintptr_t>(p), "cudaHostUnregister");
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaHostGetDevicePointer(void** device, void* p, unsigned flags) {
    static call_site site{"cudaHostGetDevicePointer"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (device == nullptr || flags != 0)
            return cudaErrorInvalidValue;
        allocation const* const memory = find_allocation(world, p);
        if (memory == nullptr ||
            (memory->kind != memory_kind::pinned && memory->kind != memory_kind::registered))
            return cudaErrorInvalidValue;
        *device = p;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaHostGetFlags(unsigned* flags, void* p) {
    static call_site site{"cudaHostGetFlags"};
    return api(site, [&](world_state& world) -> cudaError_t {
        allocation const* const memory = find_allocation(world, p);
        if (flags == nullptr || memory == nullptr ||
            (memory->kind != memory_kind::pinned && memory->kind != memory_kind::registered))
            return cudaErrorInvalidValue;
        *flags =
            memory->flags | cudaHostAllocMapped | cudaHostAllocPortable; // unified addressing makes them so
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    static call_site site{"cudaMemGetInfo"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (free == nullptr || total == nullptr)
            return cudaErrorInvalidValue;
        device_space const& space = *world.devices[static_cast<std::size_t>(current_device(world))].space;
        *total = space.memory();
        *free = space.memory() - space.used();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* p) {
    static call_site site{"cudaPointerGetAttributes"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (attributes == nullptr || p == nullptr)
            return cudaErrorInvalidValue;
        *attributes = cudaPointerAttributes{};
        auto* const address = const_cast<void*>(p);
        allocation const* const memory = find_allocation(world, p);
        if (memory == nullptr) {
            attributes->type = cudaMemoryTypeUnregistered;
            attributes->device = -2; // cudaInvalidDeviceId
            attributes->hostPointer = address;
            return cudaSuccess;
        }
        attributes->device = memory->device;
        attributes->devicePointer = address;
        switch (memory->kind) {
        case memory_kind::pinned:
        case memory_kind::registered:
            attributes->type = cudaMemoryTypeHost;
            attributes->hostPointer = address;
            break;
        case memory_kind::managed:
            attributes->type = cudaMemoryTypeManaged;
            attributes->hostPointer = address;
            break;
        case memory_kind::pooled:
            attributes->type = memory->pool->kind == pool_kind::device ? cudaMemoryTypeDevice
                               : memory->pool->kind == pool_kind::host ? cudaMemoryTypeHost
                                                                       : cudaMemoryTypeManaged;
            if (memory->pool->kind != pool_kind::device)
                attributes->hostPointer = address;
            break;
        case memory_kind::device:
        case memory_kind::mapped:
        case memory_kind::imported:
            attributes->type = cudaMemoryTypeDevice;
            break;
        }
        return cudaSuccess;
    });
}
