// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The driver's virtual memory: addresses without memory, memory without addresses, and maps between them, in
// steps of 2 MiB; found through cudaGetDriverEntryPointByVersion, as the runtime has no functions for it. The
// same memory may be mapped twice and is then the same bytes.

#include "calls.hpp"

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#undef cuMemAddressReserve
#undef cuMemAddressFree

namespace simulated_device::inside {

namespace {

struct physical_memory {
    int device = 0;
    CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
    bool rdma = false;
    std::size_t bytes = 0;
    std::uintptr_t at = 0; ///< in the device's region: where its bytes are kept
    std::size_t maps = 0;
    std::size_t references = 1; ///< a handle may be named while there are any
};

struct mapping {
    std::size_t bytes = 0;
    std::uint64_t memory = 0;
    bool open = false;
};

struct virtual_state {
    std::uint64_t generation = 0;
    std::map<std::uintptr_t, std::size_t> reserved;
    std::map<std::uint64_t, physical_memory> memory;
    std::map<std::uintptr_t, mapping> maps;
    std::uint64_t next = 1;
};

virtual_state& state_of(world_state& world) {
    static auto* const state = new virtual_state;
    if (state->generation != world.generation) {
        *state = virtual_state{};
        state->generation = world.generation;
    }
    return *state;
}

CUresult driver_error(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return CUDA_SUCCESS;
    case cudaErrorMemoryAllocation:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case cudaErrorInvalidValue:
        return CUDA_ERROR_INVALID_VALUE;
    case cudaErrorInvalidDevice:
        return CUDA_ERROR_INVALID_DEVICE;
    case cudaErrorNotSupported:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return static_cast<CUresult>(error); // the two enumerations agree on the rest that can occur
    }
}

bool whole_pages(std::size_t bytes) {
    return bytes != 0 && bytes % page_bytes == 0;
}

CUresult reserve(CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                 unsigned long long flags) {
    static call_site site{"cuMemAddressReserve"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        if (out == nullptr || !whole_pages(bytes) || flags != 0)
            return cudaErrorInvalidValue;
        if (!world.virtual_region) {
            std::size_t size = world.settings.address_bytes;
            while (size > page_bytes && !addresses_left(3 * size))
                size /= 4;
            world.virtual_region = std::make_unique<region>(size, access::closed, true, 0);
        }
        std::size_t const step = std::max(alignment, page_bytes);
        if ((step & (step - 1)) != 0)
            return cudaErrorInvalidValue;
        std::size_t const offset = world.virtual_region->pages.take(bytes, step);
        if (offset == offset_ranges::npos)
            return cudaErrorMemoryAllocation;
        *out = world.virtual_region->base() + offset;
        state_of(world).reserved[*out] = bytes;
        return cudaSuccess;
    }));
}

CUresult unreserve(CUdeviceptr at, std::size_t bytes) {
    static call_site site{"cuMemAddressFree"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        auto const it = state.reserved.find(at);
        if (it == state.reserved.end() || it->second != bytes)
            return cudaErrorInvalidValue;
        auto const map = state.maps.lower_bound(at);
        if (map != state.maps.end() && map->first < at + bytes)
            return cudaErrorInvalidValue;
        state.reserved.erase(it);
        world.knowledge.forget(at, bytes);
        world.virtual_region->pages.give(at - world.virtual_region->base(), bytes);
        return cudaSuccess;
    }));
}

CUresult create_memory(CUmemGenericAllocationHandle* out, std::size_t bytes, CUmemAllocationProp const* properties,
                unsigned long long flags) {
    static call_site site{"cuMemCreate"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        if (out == nullptr || properties == nullptr || !whole_pages(bytes) || flags != 0 ||
            properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
            properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return cudaErrorInvalidValue;
        int const device = properties->location.id;
        if (device < 0 || static_cast<std::size_t>(device) >= world.devices.size())
            return cudaErrorInvalidDevice;
        if ((properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0)
            return cudaErrorNotPermitted; // as a machine without an NVLink domain does
        std::uintptr_t const at = world.devices[static_cast<std::size_t>(device)].space->take(bytes);
        if (at == 0)
            return cudaErrorMemoryAllocation;
        virtual_state& state = state_of(world);
        physical_memory& memory = state.memory[*out = state.next++];
        memory.device = device;
        memory.handle_types = properties->requestedHandleTypes;
        memory.rdma = properties->allocFlags.gpuDirectRDMACapable != 0;
        memory.bytes = bytes;
        memory.at = at;
        return cudaSuccess;
    }));
}

void drop_if_unused(world_state& world, virtual_state& state, std::uint64_t handle) {
    physical_memory const& memory = state.memory[handle];
    if (memory.references != 0 || memory.maps != 0)
        return;
    world.devices[static_cast<std::size_t>(memory.device)].space->give(memory.at, memory.bytes, true);
    state.memory.erase(handle);
}

CUresult release(CUmemGenericAllocationHandle handle) {
    static call_site site{"cuMemRelease"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        auto const it = state.memory.find(handle);
        if (it == state.memory.end() || it->second.references == 0)
            return cudaErrorInvalidValue;
        --it->second.references;
        drop_if_unused(world, state, handle);
        return cudaSuccess;
    }));
}

CUresult retain(CUmemGenericAllocationHandle* out, void* address) {
    static call_site site{"cuMemRetainAllocationHandle"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        auto const at = reinterpret_cast<std::uintptr_t>(address);
        auto after = state.maps.upper_bound(at);
        if (out == nullptr || after == state.maps.begin() || (--after)->first + after->second.bytes <= at)
            return cudaErrorInvalidValue;
        *out = after->second.memory;
        ++state.memory[*out].references;
        return cudaSuccess;
    }));
}

// A descriptor is a file with the handle in it. Only this process can make memory of it.
CUresult to_descriptor(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                       unsigned long long flags) {
    static call_site site{"cuMemExportToShareableHandle"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        auto const it = state.memory.find(handle);
        if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || it == state.memory.end() ||
            it->second.handle_types != type)
            return cudaErrorInvalidValue;
        int const file = memfd_create("simulated memory", MFD_CLOEXEC);
        if (file < 0 || write(file, &handle, sizeof handle) != static_cast<ssize_t>(sizeof handle))
            return cudaErrorOperatingSystem;
        std::memcpy(out, &file, sizeof file);
        return cudaSuccess;
    }));
}

CUresult from_descriptor(CUmemGenericAllocationHandle* out, void* given, CUmemAllocationHandleType type) {
    static call_site site{"cuMemImportFromShareableHandle"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        CUmemGenericAllocationHandle handle = 0;
        auto const file = static_cast<int>(reinterpret_cast<std::intptr_t>(given));
        if (out == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
            pread(file, &handle, sizeof handle, 0) != static_cast<ssize_t>(sizeof handle) || state.memory.count(handle) == 0)
            return cudaErrorInvalidValue;
        ++state.memory[*out = handle].references;
        return cudaSuccess;
    }));
}

CUresult properties_of(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
    static call_site site{"cuMemGetAllocationPropertiesFromHandle"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        auto const it = state.memory.find(handle);
        if (out == nullptr || it == state.memory.end())
            return cudaErrorInvalidValue;
        *out = CUmemAllocationProp{};
        out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
        out->requestedHandleTypes = it->second.handle_types;
        out->allocFlags.gpuDirectRDMACapable = it->second.rdma ? 1 : 0;
        out->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        out->location.id = it->second.device;
        return cudaSuccess;
    }));
}

CUresult map_memory(CUdeviceptr at, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
    static call_site site{"cuMemMap"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        auto const memory = state.memory.find(handle);
        auto reservation = state.reserved.upper_bound(at);
        if (memory == state.memory.end() || memory->second.references == 0 || reservation == state.reserved.begin())
            return cudaErrorInvalidValue;
        --reservation;
        if (!whole_pages(bytes) || offset != 0 || flags != 0 || bytes != memory->second.bytes ||
            at % page_bytes != 0 || at + bytes > reservation->first + reservation->second)
            return cudaErrorInvalidValue;
        auto const next = state.maps.lower_bound(at);
        if (next != state.maps.end() && next->first < at + bytes)
            return cudaErrorInvalidValue;
        if (next != state.maps.begin() && std::prev(next)->first + std::prev(next)->second.bytes > at)
            return cudaErrorInvalidValue;
        if (state.maps.size() >= world.settings.mappings)
            return cudaErrorMemoryAllocation;
        region const& source =
            world.devices[static_cast<std::size_t>(memory->second.device)].space->memory_region;
        world.virtual_region->show(at, bytes, &source, memory->second.at - source.base(), access::closed);
        state.maps[at] = {bytes, handle, false};
        ++memory->second.maps;
        return cudaSuccess;
    }));
}

/// Mapped bytes are an allocation while any device may use them. The driver does not wait: the program must have.
void close(world_state& world, std::uintptr_t at, mapping& one) {
    if (!one.open)
        return;
    viewpoint from;
    from.clock = &world.host;
    from.what = "an unmapping";
    world.knowledge.expect_over(world, at, one.bytes, from, "takes away");
    world.knowledge.withdrawn(at, one.bytes);
    destroy_allocation(world, at, "cuMemUnmap");
    one.open = false;
}

/// What names a device that there is: access of the host or of a node of it is not modelled.
bool is_device(world_state const& world, CUmemLocation const& location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 &&
           static_cast<std::size_t>(location.id) < world.devices.size();
}

void open_to(world_state& world, int device, std::uintptr_t at, mapping& one, int where) {
    allocation& memory = world.allocations[at];
    if (!one.open) {
        one.open = true;
        memory = allocation{};
        memory.bytes = one.bytes;
        memory.kind = memory_kind::mapped;
        memory.device = where;
        memory.number = ++world.allocation_count;
        world.knowledge.born(world, at, one.bytes);
        world.knowledge.restored(at, one.bytes);
        if (world.settings.device_memory_visible)
            world.virtual_region->protect(at, one.bytes, access::open);
    }
    memory.opened_to.insert(device);
}

void close_to(world_state& world, int device, std::uintptr_t at, mapping& one) {
    if (!one.open)
        return;
    std::set<int>& devices = world.allocations[at].opened_to;
    devices.erase(device);
    if (devices.empty())
        close(world, at, one);
}

CUresult set_access(CUdeviceptr at, std::size_t bytes, CUmemAccessDesc const* list, std::size_t count) {
    static call_site site{"cuMemSetAccess"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        if (list == nullptr || count == 0)
            return cudaErrorInvalidValue;
        std::uintptr_t reached = at;
        for (auto it = state.maps.find(at);
             it != state.maps.end() && it->first == reached && reached < at + bytes; ++it)
            reached += it->second.bytes;
        if (reached != at + bytes)
            return cudaErrorInvalidValue;
        for (std::size_t i = 0; i < count; ++i) { // all of it, or nothing
            if (list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
                return cudaErrorNotSupported; // by the simulator
            if (list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                return cudaErrorInvalidValue;
            if (!is_device(world, list[i].location))
                return cudaErrorInvalidValue;
            for (auto it = state.maps.find(at); it != state.maps.end() && it->first < at + bytes; ++it)
                if (!world.settings.peers && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                    list[i].location.id != state.memory[it->second.memory].device)
                    return cudaErrorInvalidDevice; // which code a card without peers gives was not seen
        }
        for (auto it = state.maps.find(at); it != state.maps.end() && it->first < at + bytes; ++it)
            for (std::size_t i = 0; i < count; ++i)
                if (list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                    open_to(world, list[i].location.id, it->first, it->second, state.memory[it->second.memory].device);
                else
                    close_to(world, list[i].location.id, it->first, it->second);
        return cudaSuccess;
    }));
}

// Of memory that was not mapped it says that no device but the memory's own may use it, whatever copies do.
CUresult get_access(unsigned long long* flags, CUmemLocation const* location, CUdeviceptr at) {
    static call_site site{"cuMemGetAccess"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        auto map = state.maps.upper_bound(at);
        if (flags == nullptr || location == nullptr || !is_device(world, *location))
            return cudaErrorInvalidValue;
        if (map == state.maps.begin() || (--map)->first + map->second.bytes <= at) {
            auto const plain = find_allocation(world, reinterpret_cast<void const*>(at));
            if (plain == nullptr)
                return cudaErrorInvalidValue;
            *flags = plain->device == location->id ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
            return cudaSuccess;
        }
        bool const may = map->second.open && world.allocations[map->first].opened_to.count(location->id) != 0;
        *flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return cudaSuccess;
    }));
}

CUresult unmap(CUdeviceptr at, std::size_t bytes) {
    static call_site site{"cuMemUnmap"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        virtual_state& state = state_of(world);
        auto before = state.maps.upper_bound(at);
        bool const covered = before != state.maps.begin() && (--before)->first + before->second.bytes > at;
        auto const next = state.maps.lower_bound(at);
        bool const nothing = !covered && (next == state.maps.end() || next->first >= at + bytes);
        auto addresses = state.reserved.upper_bound(at);
        bool const ours = addresses != state.reserved.begin() && (--addresses)->first + addresses->second >= at + bytes;
        if (whole_pages(bytes) && nothing && ours)
            return cudaSuccess; // as the driver has it
        std::uintptr_t reached = at;
        for (auto it = state.maps.find(at);
             it != state.maps.end() && it->first == reached && reached < at + bytes; ++it)
            reached += it->second.bytes;
        if (bytes == 0 || reached != at + bytes)
            return cudaErrorInvalidValue;
        for (auto it = state.maps.find(at); it != state.maps.end() && it->first < at + bytes;) {
            close(world, it->first, it->second);
            world.virtual_region->show(it->first, it->second.bytes, nullptr, 0, access::closed);
            std::uint64_t const handle = it->second.memory;
            it = state.maps.erase(it);
            --state.memory[handle].maps;
            drop_if_unused(world, state, handle);
        }
        return cudaSuccess;
    }));
}

CUresult granularity(std::size_t* out, CUmemAllocationProp const* properties,
                     CUmemAllocationGranularity_flags) {
    static call_site site{"cuMemGetAllocationGranularity"};
    return driver_error(api(site, [&](world_state& world) -> cudaError_t {
        if (out == nullptr || properties == nullptr)
            return cudaErrorInvalidValue;
        if (!world.settings.virtual_memory)
            return cudaErrorNotSupported;
        *out = page_bytes;
        return cudaSuccess;
    }));
}

CUresult error_name(CUresult error, char const** text) {
    if (text == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *text = error == CUDA_SUCCESS                 ? "CUDA_SUCCESS"
            : error == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == CUDA_ERROR_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
            : error == CUDA_ERROR_INVALID_DEVICE  ? "CUDA_ERROR_INVALID_DEVICE"
            : error == CUDA_ERROR_NOT_SUPPORTED   ? "CUDA_ERROR_NOT_SUPPORTED"
            : error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                                  : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}

struct entry {
    char const* name;
    void* function;
};

template <class Function>
void* any(Function* function) {
    return reinterpret_cast<void*>(function);
}

// The driver's side of runtime functions. They are counted, failed and logged under the runtime's names, and looking them
// up is no call at all: it happens once in a process, whatever world it is, and a seed must give the same log the first
// time and the second.
CUresult unrecorded(cudaError_t error) { // the thread's record is the runtime's
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        locked scope;
        scope.thread.last_error = scope.thread.error_before;
    }
    return static_cast<CUresult>(error);
}

CUresult stream_id(CUstream stream, unsigned long long* id) { return unrecorded(cudaStreamGetId(stream, id)); }
CUresult stream_capture(CUstream stream, CUstreamCaptureStatus* status) {
    cudaStreamCaptureStatus answer = cudaStreamCaptureStatusNone;
    cudaError_t const error = cudaStreamIsCapturing(stream, &answer);
    *status = static_cast<CUstreamCaptureStatus>(answer);
    return unrecorded(error);
}
CUresult capture_mode(CUstreamCaptureMode* mode) {
    auto exchanged = static_cast<cudaStreamCaptureMode>(*mode);
    cudaError_t const error = cudaThreadExchangeStreamCaptureMode(&exchanged);
    *mode = static_cast<CUstreamCaptureMode>(exchanged);
    return unrecorded(error);
}
CUresult event_record(CUevent event, CUstream stream) { return unrecorded(cudaEventRecord(event, stream)); }
CUresult event_query(CUevent event) { return unrecorded(cudaEventQuery(event)); }
CUresult stream_wait(CUstream stream, CUevent event, unsigned flags) {
    return unrecorded(cudaStreamWaitEvent(stream, event, flags));
}
CUresult pool_allocate(CUdeviceptr* block, std::size_t bytes, CUmemoryPool pool, CUstream stream) {
    void* at = nullptr;
    cudaError_t const error = cudaMallocFromPoolAsync(&at, bytes, pool, stream);
    *block = reinterpret_cast<CUdeviceptr>(at);
    return unrecorded(error);
}
CUresult free_ordered(CUdeviceptr block, CUstream stream) {
    return unrecorded(cudaFreeAsync(reinterpret_cast<void*>(block), stream));
}
CUresult context_state(CUdevice device, unsigned* flags, int* active) {
    locked scope;
    if (flags == nullptr || active == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || static_cast<std::size_t>(device) >= scope.world.devices.size())
        return CUDA_ERROR_INVALID_DEVICE;
    device_state const& state = scope.world.devices[static_cast<std::size_t>(device)];
    *flags = state.flags;
    *active = state.ready;
    return CUDA_SUCCESS;
}

CUresult context_device(CUdevice* device) { return unrecorded(cudaGetDevice(device)); }
// Another number in each world, as a context is never another one's.
CUresult current_context(CUcontext* context) {
    locked scope;
    auto const device = static_cast<std::size_t>(scope.thread.device);
    bool const ready = device < scope.world.devices.size() && scope.world.devices[device].ready;
    *context = reinterpret_cast<CUcontext>(ready ? (scope.world.generation << 16 | (device + 1) << 4) : 0);
    return CUDA_SUCCESS;
}

cudaError_t entry_point(call_site& site, char const* symbol, void** out,
                        cudaDriverEntryPointQueryResult* result) {
    entry const quiet[] = {{"cuStreamGetId", any(stream_id)},
                           {"cuStreamIsCapturing", any(stream_capture)},
                           {"cuThreadExchangeStreamCaptureMode", any(capture_mode)},
                           {"cuEventRecord", any(event_record)},
                           {"cuEventQuery", any(event_query)},
                           {"cuStreamWaitEvent", any(stream_wait)},
                           {"cuMemAllocFromPoolAsync", any(pool_allocate)},
                           {"cuMemFreeAsync", any(free_ordered)},
                           {"cuDevicePrimaryCtxGetState", any(context_state)},
                           {"cuCtxGetDevice", any(context_device)},
                           {"cuCtxGetCurrent", any(current_context)}};
    for (entry const& one : quiet) {
        if (symbol != nullptr && out != nullptr && std::strcmp(one.name, symbol) == 0) {
            *out = one.function;
            if (result != nullptr)
                *result = cudaDriverEntryPointSuccess;
            return cudaSuccess;
        }
    }
    return api(site, [&](world_state&) -> cudaError_t {
        if (symbol == nullptr || out == nullptr)
            return cudaErrorInvalidValue;
        entry const entries[] = {{"cuMemAddressReserve", any(reserve)},
                                 {"cuMemAddressFree", any(unreserve)},
                                 {"cuMemCreate", any(create_memory)},
                                 {"cuMemRelease", any(release)},
                                 {"cuMemRetainAllocationHandle", any(retain)},
                                 {"cuMemGetAllocationPropertiesFromHandle", any(properties_of)},
                                 {"cuMemExportToShareableHandle", any(to_descriptor)},
                                 {"cuMemImportFromShareableHandle", any(from_descriptor)},
                                 {"cuMemMap", any(map_memory)},
                                 {"cuMemUnmap", any(unmap)},
                                 {"cuMemSetAccess", any(set_access)},
                                 {"cuMemGetAccess", any(get_access)},
                                 {"cuMemGetAllocationGranularity", any(granularity)},
                                 {"cuGetErrorName", any(error_name)}};
        *out = nullptr;
        for (entry const& one : entries)
            if (std::strcmp(one.name, symbol) == 0)
                *out = one.function;
        bool const found = *out != nullptr;
        if (result != nullptr)
            *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
        return found || result != nullptr ? cudaSuccess : cudaErrorSymbolNotFound;
    });
}

cudaError_t cudaGetDriverEntryPointByVersion_on(null_stream, char const* symbol, void** out, unsigned,
                                                unsigned long long, cudaDriverEntryPointQueryResult* result) {
    static call_site site{"cudaGetDriverEntryPointByVersion"};
    return entry_point(site, symbol, out, result);
}

cudaError_t cudaGetDriverEntryPoint_on(null_stream, char const* symbol, void** out, unsigned long long,
                                       cudaDriverEntryPointQueryResult* result) {
    static call_site site{"cudaGetDriverEntryPoint"};
    return entry_point(site, symbol, out, result);
}

} // namespace

std::vector<std::string> virtual_leaks(world_state& world) {
    std::vector<std::string> all;
    virtual_state const& state = state_of(world);
    for (auto const& [at, bytes] : state.reserved)
        all.push_back(std::to_string(bytes) + " bytes of addresses at " +
                      name_of_address(world, reinterpret_cast<void const*>(at)) + " are still reserved");
    for (auto const& [handle, memory] : state.memory)
        if (memory.references != 0)
            all.push_back("cuMemCreate's handle " + std::to_string(handle) + " of " +
                          std::to_string(memory.bytes) + " bytes was never released");
    return all;
}

} // namespace simulated_device::inside

SIMULATED_CUDA_EXPORT(cudaGetDriverEntryPointByVersion, _ptsz,
                      (char const* symbol, void** out, unsigned version, unsigned long long flags,
                       cudaDriverEntryPointQueryResult* result),
                      symbol, out, version, flags, result)
SIMULATED_CUDA_EXPORT(cudaGetDriverEntryPoint, _ptsz,
                      (char const* symbol, void** out, unsigned long long flags,
                       cudaDriverEntryPointQueryResult* result),
                      symbol, out, flags, result)
