// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cudaMemPool* and the pools of a device: making, destroying, asking and setting. What pools do is in
// memory_pools.cpp.

#include "calls.hpp"

using namespace simulated_device::inside;

namespace {

constexpr int numa_nodes = 1;

/// What pool these properties ask for, by the rules in the manual's page on cudaMemPoolCreate.
cudaError_t judge(world_state& world, cudaMemPoolProps const& asked, pool_kind& kind, int& device) {
    bool const on_device = asked.location.type == cudaMemLocationTypeDevice;
    bool const on_node = asked.location.type == cudaMemLocationTypeHostNuma;
    bool const on_host = asked.location.type == cudaMemLocationTypeHost;
    int const exports = cudaMemHandleTypePosixFileDescriptor | cudaMemHandleTypeFabric;
    device = on_device ? asked.location.id : current_device(world);
    if (on_device && (device < 0 || static_cast<std::size_t>(device) >= world.devices.size()))
        return cudaErrorInvalidDevice;
    if ((on_node && (asked.location.id < 0 || asked.location.id >= numa_nodes)) || (asked.handleTypes & ~exports) != 0)
        return cudaErrorInvalidValue;
#if CUDART_VERSION >= 13000
    if (asked.allocType == cudaMemAllocationTypeManaged) {
        kind = pool_kind::managed;
        bool const located = on_device || on_node || on_host || asked.location.type == cudaMemLocationTypeNone;
        return located && asked.handleTypes == 0 && asked.maxSize == 0 ? cudaSuccess : cudaErrorInvalidValue;
    }
#endif
    if (asked.allocType != cudaMemAllocationTypePinned || !(on_device || on_node || on_host) ||
        (on_host && asked.handleTypes != 0))
        return cudaErrorInvalidValue;
    kind = on_device ? pool_kind::device : pool_kind::host;
    return cudaSuccess;
}

} // namespace

extern "C" cudaError_t cudaMemPoolCreate(cudaMemPool_t* out, cudaMemPoolProps const* properties) {
    static call_site site{"cudaMemPoolCreate"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        if (out == nullptr || properties == nullptr)
            return cudaErrorInvalidValue;
        pool_kind kind = pool_kind::device;
        int device = 0;
        if (cudaError_t const error = judge(world, *properties, kind, device))
            return error;
        world.pools.push_back(std::make_unique<pool_record>());
        pool_record& pool = *world.pools.back();
        pool.kind = kind;
        pool.device = device;
        pool.location = properties->location;
        pool.id = world.next_pool++;
        pool.handle_types = properties->handleTypes;
        pool.maximum = properties->maxSize;
        if (kind == pool_kind::device)
            pool.accessible[device] = cudaMemAccessFlagsProtReadWrite;
        pool.handle = new CUmemPoolHandle_st{&pool};
        *out = pool.handle;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
    static call_site site{"cudaMemPoolDestroy"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        pool_record* const pool = find_pool(world, handle, site.name);
        if (pool == nullptr || pool->is_default)
            return cudaErrorInvalidValue;
        pool->destroyed = true;
        device_state& device = world.devices[static_cast<std::size_t>(pool->device)];
        if (device.current_pool == pool)
            device.current_pool = device.default_pool;
        for (auto& [place, pools] : world.places)
            if (pools.current == pool)
                pools.current = pools.given;
        if (pool->live == 0) {
            for (auto& [at, block] : pool->free)
                block.stream = nullptr; // nobody can ask for these bytes before the frees are over
            give_back_chunks(world, *pool, 0);
        }
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, std::size_t keep) {
    static call_site site{"cudaMemPoolTrimTo"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        pool_record* const pool = find_pool(world, handle, site.name);
        if (pool == nullptr)
            return cudaErrorInvalidValue;
        give_back_chunks(world, *pool, keep);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
    static call_site site{"cudaMemPoolSetAttribute"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        pool_record* const pool = find_pool(world, handle, site.name);
        if (pool == nullptr || value == nullptr)
            return cudaErrorInvalidValue;
        switch (attribute) {
        case cudaMemPoolReuseFollowEventDependencies:
            pool->follow_events = *static_cast<int*>(value);
            return cudaSuccess;
        case cudaMemPoolReuseAllowOpportunistic:
            pool->opportunistic = *static_cast<int*>(value);
            return cudaSuccess;
        case cudaMemPoolReuseAllowInternalDependencies:
            pool->internal = *static_cast<int*>(value);
            return cudaSuccess;
        case cudaMemPoolAttrReleaseThreshold:
            pool->threshold = *static_cast<std::uint64_t*>(value);
            return cudaSuccess;
        case cudaMemPoolAttrReservedMemHigh:
            if (*static_cast<std::uint64_t*>(value) != 0)
                return cudaErrorInvalidValue;
            pool->reserved_high = pool->reserved;
            return cudaSuccess;
        case cudaMemPoolAttrUsedMemHigh:
            if (*static_cast<std::uint64_t*>(value) != 0)
                return cudaErrorInvalidValue;
            pool->used_high = pool->used;
            return cudaSuccess;
        default:
            return cudaErrorInvalidValue;
        }
    });
}

extern "C" cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
    static call_site site{"cudaMemPoolGetAttribute"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        pool_record const* const pool = find_pool(world, handle, site.name);
        if (pool == nullptr || value == nullptr)
            return cudaErrorInvalidValue;
        auto* const wide = static_cast<std::uint64_t*>(value);
        auto* const narrow = static_cast<int*>(value);
        switch (attribute) {
        case cudaMemPoolReuseFollowEventDependencies:
            *narrow = pool->follow_events;
            return cudaSuccess;
        case cudaMemPoolReuseAllowOpportunistic:
            *narrow = pool->opportunistic;
            return cudaSuccess;
        case cudaMemPoolReuseAllowInternalDependencies:
            *narrow = pool->internal;
            return cudaSuccess;
        case cudaMemPoolAttrReleaseThreshold:
            *wide = pool->threshold;
            return cudaSuccess;
        case cudaMemPoolAttrReservedMemCurrent:
            *wide = pool->reserved;
            return cudaSuccess;
        case cudaMemPoolAttrReservedMemHigh:
            *wide = pool->reserved_high;
            return cudaSuccess;
        case cudaMemPoolAttrUsedMemCurrent:
            *wide = pool->used;
            return cudaSuccess;
        case cudaMemPoolAttrUsedMemHigh:
            *wide = pool->used_high;
            return cudaSuccess;
        default:
            return cudaErrorInvalidValue;
        }
    });
}

extern "C" cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, cudaMemAccessDesc const* list,
                                            std::size_t count) {
    static call_site site{"cudaMemPoolSetAccess"};
    return api(site, [&](world_state& world) -> cudaError_t {
        pool_record* const pool = find_pool(world, handle, site.name);
        if (pool == nullptr || (list == nullptr && count != 0))
            return cudaErrorInvalidValue;
        for (std::size_t at = 0; at < count; ++at) {
            int const device = list[at].location.id;
            if (list[at].location.type != cudaMemLocationTypeDevice)
                return cudaErrorInvalidValue;
            if (device < 0 || static_cast<std::size_t>(device) >= world.devices.size())
                return cudaErrorInvalidDevice;
            if (pool->kind == pool_kind::device && device != pool->device && !world.settings.peers &&
                list[at].flags != cudaMemAccessFlagsProtNone)
                return cudaErrorInvalidDevice; // which code a card without peers gives was not seen
            if (pool->kind == pool_kind::device && device == pool->device && list[at].flags != cudaMemAccessFlagsProtReadWrite)
                return cudaErrorInvalidValue;
        }
        for (std::size_t at = 0; at < count; ++at)
            pool->accessible[list[at].location.id] = list[at].flags;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t handle,
                                            cudaMemLocation* location) {
    static call_site site{"cudaMemPoolGetAccess"};
    return api(site, [&](world_state& world) -> cudaError_t {
        pool_record const* const pool = find_pool(world, handle, site.name);
        if (pool == nullptr || flags == nullptr || location == nullptr)
            return cudaErrorInvalidValue;
        bool const of_host = location->type == cudaMemLocationTypeHost || location->type == cudaMemLocationTypeHostNuma;
        if (of_host || pool->kind == pool_kind::managed) {
            *flags = of_host && pool->kind == pool_kind::device ? cudaMemAccessFlagsProtNone
                                                                : cudaMemAccessFlagsProtReadWrite;
            return cudaSuccess;
        }
        auto const it = pool->accessible.find(location->id);
        *flags = it != pool->accessible.end() ? it->second : cudaMemAccessFlagsProtNone;
        return cudaSuccess;
    });
}

namespace {

cudaError_t tell_pool(call_site& site, cudaMemPool_t* out, int device, pool_record* device_state::*which) {
    return api(site, [&](world_state& world) -> cudaError_t {
        if (out == nullptr)
            return cudaErrorInvalidValue;
        if (device < 0 || static_cast<std::size_t>(device) >= world.devices.size())
            return cudaErrorInvalidDevice;
        *out = (world.devices[static_cast<std::size_t>(device)].*which)->handle;
        return cudaSuccess;
    });
}

} // namespace

extern "C" cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    static call_site site{"cudaDeviceGetDefaultMemPool"};
    return tell_pool(site, pool, device, &device_state::default_pool);
}

extern "C" cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
    static call_site site{"cudaDeviceGetMemPool"};
    return tell_pool(site, pool, device, &device_state::current_pool);
}

extern "C" cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t handle) {
    static call_site site{"cudaDeviceSetMemPool"};
    return api(site, [&](world_state& world) -> cudaError_t {
        pool_record* const pool = find_pool(world, handle, site.name);
        if (device < 0 || static_cast<std::size_t>(device) >= world.devices.size())
            return cudaErrorInvalidDevice;
        if (pool == nullptr || pool->device != device || pool->kind != pool_kind::device || pool->source != 0)
            return cudaErrorInvalidValue;
        world.devices[static_cast<std::size_t>(device)].current_pool = pool;
        return cudaSuccess;
    });
}

#if CUDART_VERSION >= 13000

namespace {

bool same_place(cudaMemLocation const& a, cudaMemLocation const& b) {
    bool const numbered = a.type == cudaMemLocationTypeDevice || a.type == cudaMemLocationTypeHostNuma;
    return a.type == b.type && (!numbered || a.id == b.id);
}

/// Calls use(given, current) with a reference to each of a place's pools. The default pool is made when it is first asked for.
template <class Use>
cudaError_t at_place(world_state& world, cudaMemLocation const* location, cudaMemAllocationType type, Use&& use) {
    if (location == nullptr)
        return cudaErrorInvalidValue;
    cudaMemPoolProps asked{};
    asked.allocType = type;
    asked.location = *location;
    pool_kind kind = pool_kind::device;
    int device = 0;
    if (cudaError_t const error = judge(world, asked, kind, device))
        return error;
    if (kind == pool_kind::device)
        return use(world.devices[static_cast<std::size_t>(device)].default_pool,
                   world.devices[static_cast<std::size_t>(device)].current_pool);
    bool const numbered = location->type == cudaMemLocationTypeDevice || location->type == cudaMemLocationTypeHostNuma;
    place_pools& there = world.places[{static_cast<int>(type), static_cast<int>(location->type), numbered ? location->id : 0}];
    if (there.given == nullptr) {
        world.pools.push_back(std::make_unique<pool_record>());
        pool_record& pool = *world.pools.back();
        pool.kind = kind;
        pool.device = device;
        pool.location = *location;
        pool.is_default = true;
        pool.id = world.next_pool++;
        pool.handle = new CUmemPoolHandle_st{&pool};
        there = {&pool, &pool};
    }
    return use(there.given, there.current);
}

} // namespace

extern "C" cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* out, cudaMemLocation* location, cudaMemAllocationType type) {
    static call_site site{"cudaMemGetDefaultMemPool"};
    return api(site, [&](world_state& world) -> cudaError_t {
        return at_place(world, location, type, [&](pool_record* given, pool_record*) {
            return out != nullptr ? (*out = given->handle, cudaSuccess) : cudaErrorInvalidValue;
        });
    });
}

extern "C" cudaError_t cudaMemGetMemPool(cudaMemPool_t* out, cudaMemLocation* location, cudaMemAllocationType type) {
    static call_site site{"cudaMemGetMemPool"};
    return api(site, [&](world_state& world) -> cudaError_t {
        return at_place(world, location, type, [&](pool_record*, pool_record* current) {
            return out != nullptr ? (*out = current->handle, cudaSuccess) : cudaErrorInvalidValue;
        });
    });
}

extern "C" cudaError_t cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t handle) {
    static call_site site{"cudaMemSetMemPool"};
    return api(site, [&](world_state& world) -> cudaError_t {
        pool_record* const pool = find_pool(world, handle, site.name);
        return at_place(world, location, type, [&](pool_record* given, pool_record*& current) {
            if (pool == nullptr || pool->kind != given->kind || pool->source != 0 || !same_place(pool->location, *location))
                return cudaErrorInvalidValue;
            current = pool;
            return cudaSuccess;
        });
    });
}

#endif

namespace {

/// The attribute of what graphs hold of a device's memory, or null. The marks are the sum of the pools' own, which may be more
/// than the device ever had.
std::uint64_t pool_record::* graph_attribute(cudaGraphMemAttributeType attribute) {
    switch (attribute) {
    case cudaGraphMemAttrUsedMemCurrent:
        return &pool_record::used;
    case cudaGraphMemAttrUsedMemHigh:
        return &pool_record::used_high;
    case cudaGraphMemAttrReservedMemCurrent:
        return &pool_record::reserved;
    case cudaGraphMemAttrReservedMemHigh:
        return &pool_record::reserved_high;
    }
    return nullptr;
}

/// Calls visit() with each pool of what graphs hold of a device's memory.
template <class Visit>
cudaError_t visit_graph_memory(world_state& world, int device, Visit&& visit) {
    if (device < 0 || static_cast<std::size_t>(device) >= world.devices.size())
        return cudaErrorInvalidDevice;
    for (auto const& pool : world.pools)
        if (pool->device == device && pool->graphs && pool->kind == pool_kind::device)
            visit(*pool->graphs);
    return cudaSuccess;
}

} // namespace

extern "C" cudaError_t cudaDeviceGraphMemTrim(int device) {
    static call_site site{"cudaDeviceGraphMemTrim"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        return visit_graph_memory(world, device, [&](pool_record& graphs) {
            for (auto& [at, block] : graphs.free)
                if (block.stream != nullptr && block.stream->done >= block.number)
                    block.stream = nullptr; // unlike a pool's, without a wait that the host made
            give_back_chunks(world, graphs, 0);
        });
    });
}

extern "C" cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
    static call_site site{"cudaDeviceGetGraphMemAttribute"};
    return api(site, [&](world_state& world) -> cudaError_t {
        auto const member = graph_attribute(attribute);
        if (member == nullptr || value == nullptr)
            return cudaErrorInvalidValue;
        std::uint64_t sum = 0;
        cudaError_t const error = visit_graph_memory(world, device, [&](pool_record& graphs) { sum += graphs.*member; });
        *static_cast<std::uint64_t*>(value) = sum;
        return error;
    });
}

extern "C" cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
    static call_site site{"cudaDeviceSetGraphMemAttribute"};
    return api(site, [&](world_state& world) -> cudaError_t {
        bool const of_used = attribute == cudaGraphMemAttrUsedMemHigh;
        if (!(of_used || attribute == cudaGraphMemAttrReservedMemHigh) || value == nullptr ||
            *static_cast<std::uint64_t*>(value) != 0)
            return cudaErrorInvalidValue;
        return visit_graph_memory(world, device, [&](pool_record& graphs) {
            of_used ? graphs.used_high = graphs.used : graphs.reserved_high = graphs.reserved;
        });
    });
}
