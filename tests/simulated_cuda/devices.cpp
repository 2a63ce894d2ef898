// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Devices: which there are, what they say of themselves, which is current, who may reach whose memory, and
// waiting for all of one.

#include "calls.hpp"

#include <cstdio>
#include <cstring>

namespace simulated_device::inside {

namespace {

bool exists(world_state const& world, int device) {
    return device >= 0 && static_cast<std::size_t>(device) < world.devices.size();
}

constexpr int multiprocessors = 132;

int attribute_of(world_state const& world, cudaDeviceAttr attribute, int device, bool& known) {
    known = true;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
        return 1024;
    case cudaDevAttrMaxBlockDimZ:
        return 64;
    case cudaDevAttrMaxGridDimX:
        return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return 227 << 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return 228 << 10;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return 2048;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
    case cudaDevAttrTotalConstantMemory:
        return 65536;
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrClockRate:
        return 1980000;
    case cudaDevAttrTextureAlignment:
        return 512;
    case cudaDevAttrMultiProcessorCount:
        return multiprocessors;
    case cudaDevAttrL2CacheSize:
        return 60 << 20;
    case cudaDevAttrComputeCapabilityMajor:
        return 9;
    case cudaDevAttrComputeCapabilityMinor:
        return 0;
    case cudaDevAttrAsyncEngineCount:
        return 3;
    case cudaDevAttrPciBusId:
        return 1 + device;
    case cudaDevAttrHostNumaId:
        return 0;
    case cudaDevAttrMemoryPoolSupportedHandleTypes:
        return cudaMemHandleTypePosixFileDescriptor | cudaMemHandleTypeFabric;
    case cudaDevAttrIntegrated:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrComputeMode:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrHostNativeAtomicSupported:
        return 0;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrGlobalL1CacheSupported:
    case cudaDevAttrLocalL1CacheSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrComputePreemptionSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrClusterLaunch:
    case cudaDevAttrMemoryPoolsSupported:
        return 1;
    default:
        break;
    }
    known = attribute > 0 && attribute < cudaDevAttrMax;
    static_cast<void>(world);
    return 0;
}

void describe(world_state const& world, cudaDeviceProp& properties, int device) {
    std::memset(&properties, 0, sizeof properties);
    std::snprintf(properties.name, sizeof properties.name, "simulated device %d", device);
    properties.uuid.bytes[0] = static_cast<char>(device + 1);
    properties.totalGlobalMem = world.settings.memory_bytes;
    properties.sharedMemPerBlock = 48 << 10;
    properties.regsPerBlock = properties.regsPerMultiprocessor = 65536;
    properties.warpSize = 32;
    properties.memPitch = 2147483647;
    properties.maxThreadsPerBlock = 1024;
    properties.maxThreadsDim[0] = properties.maxThreadsDim[1] = 1024;
    properties.maxThreadsDim[2] = 64;
    properties.maxGridSize[0] = 2147483647;
    properties.maxGridSize[1] = properties.maxGridSize[2] = 65535;
    properties.totalConstMem = 65536;
    properties.major = 9;
    properties.textureAlignment = 512;
    properties.texturePitchAlignment = 32;
    properties.multiProcessorCount = multiprocessors;
    properties.canMapHostMemory = properties.concurrentKernels = properties.ECCEnabled = 1;
    properties.pciBusID = 1 + device;
    properties.asyncEngineCount = 3;
    properties.unifiedAddressing = 1;
    properties.memoryBusWidth = 6144;
    properties.l2CacheSize = 60 << 20;
    properties.maxThreadsPerMultiProcessor = 2048;
    properties.streamPrioritiesSupported = 1;
    properties.sharedMemPerMultiprocessor = 228 << 10;
    properties.managedMemory = properties.concurrentManagedAccess = 1;
    properties.computePreemptionSupported = properties.canUseHostPointerForRegisteredMem = 1;
    properties.cooperativeLaunch = properties.hostRegisterSupported = 1;
    properties.sharedMemPerBlockOptin = 227 << 10;
    properties.maxBlocksPerMultiProcessor = 32;
    properties.memoryPoolsSupported = properties.clusterLaunch = 1;
}

} // namespace

} // namespace simulated_device::inside

using namespace simulated_device::inside;

extern "C" cudaError_t cudaGetDeviceCount(int* count) {
    static call_site site{"cudaGetDeviceCount", false};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (count == nullptr)
            return cudaErrorInvalidValue;
        *count = 0;
        if (world.settings.driver_version < CUDART_VERSION / 1000 * 1000)
            return cudaErrorInsufficientDriver;
        *count = static_cast<int>(world.devices.size());
        return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
    });
}

extern "C" cudaError_t cudaGetDevice(int* device) {
    static call_site site{"cudaGetDevice", false};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (device == nullptr)
            return cudaErrorInvalidValue;
        if (world.settings.driver_version < CUDART_VERSION / 1000 * 1000)
            return cudaErrorInsufficientDriver;
        if (world.devices.empty())
            return cudaErrorNoDevice;
        *device = current_device(world);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaSetDevice(int device) {
    static call_site site{"cudaSetDevice", false};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (world.settings.driver_version < CUDART_VERSION / 1000 * 1000)
            return cudaErrorInsufficientDriver;
        if (world.devices.empty())
            return cudaErrorNoDevice;
        if (!exists(world, device))
            return cudaErrorInvalidDevice;
        this_thread(world).device = device;
        world.devices[static_cast<std::size_t>(device)].ready = true;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
    static call_site site{"cudaInitDevice"};
    return api(site, [&](world_state& world) {
        if (!exists(world, device))
            return cudaErrorInvalidDevice;
        world.devices[static_cast<std::size_t>(device)].ready = true;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaSetDeviceFlags(unsigned flags) {
    static call_site site{"cudaSetDeviceFlags"};
    return api(site, [&](world_state& world) -> cudaError_t {
        world.devices[static_cast<std::size_t>(current_device(world))].flags = flags;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGetDeviceFlags(unsigned* flags) {
    static call_site site{"cudaGetDeviceFlags"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (flags == nullptr)
            return cudaErrorInvalidValue;
        *flags = world.devices[static_cast<std::size_t>(current_device(world))].flags;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    static call_site site{"cudaDeviceGetAttribute"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (value == nullptr)
            return cudaErrorInvalidValue;
        if (!exists(world, device))
            return cudaErrorInvalidDevice;
        bool known = false;
        *value = attribute_of(world, attribute, device, known);
        return known ? cudaSuccess : cudaErrorInvalidValue;
    });
}

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    static call_site site{"cudaGetDeviceProperties"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (properties == nullptr)
            return cudaErrorInvalidValue;
        if (!exists(world, device))
            return cudaErrorInvalidDevice;
        describe(world, *properties, device);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    static call_site site{"cudaDeviceGetPCIBusId"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (text == nullptr || length < 13)
            return cudaErrorInvalidValue;
        if (!exists(world, device))
            return cudaErrorInvalidDevice;
        std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                      static_cast<unsigned>(1 + device) & 255u);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    static call_site site{"cudaDeviceGetStreamPriorityRange"};
    return api(site, [&](world_state&) -> cudaError_t {
        if (least != nullptr)
            *least = 0;
        if (greatest != nullptr)
            *greatest = -5;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
    static call_site site{"cudaDeviceGetLimit"};
    return api(site, [&](world_state&) -> cudaError_t {
        if (value == nullptr)
            return cudaErrorInvalidValue;
        *value = limit == cudaLimitMallocHeapSize ? std::size_t(8) << 20 : 1024;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) {
    static call_site site{"cudaDeviceSetLimit"};
    return api(site, [](world_state&) { return cudaSuccess; });
}

extern "C" cudaError_t cudaDeviceSynchronize() {
    static call_site site{"cudaDeviceSynchronize"};
    return api(site, [&](world_state& world) -> cudaError_t {
        int const device = current_device(world);
        if (cudaError_t const error = refuse_while_capturing(world, device))
            return error;
        if (!wait_for_device(world, device, site.name))
            return cudaErrorLaunchTimeout;
        trim_pools(world, device);
        return lost(world, device);
    });
}

extern "C" cudaError_t cudaDeviceReset() {
    static call_site site{"cudaDeviceReset", false};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (world.devices.empty())
            return cudaErrorNoDevice;
        int const device = current_device(world);
        device_state& state = world.devices[static_cast<std::size_t>(device)];
        if (!wait_for_device(world, device, site.name))
            return cudaErrorLaunchTimeout;
        state.sticky = cudaSuccess;
        state.ready = false;
        for (auto it = world.allocations.begin(); it != world.allocations.end();) {
            std::uintptr_t const at = it->first;
            // What is mapped is of no context, and stays until it is unmapped.
            bool const goes = it->second.device == device && it->second.kind != memory_kind::mapped;
            ++it;
            if (goes)
                destroy_allocation(world, at, "cudaDeviceReset");
        }
        for (auto const& stream : world.streams)
            if (stream->device == device && stream->kind == stream_kind::created && !stream->destroyed) {
                stream->destroyed = true;
                give_handle(stream->handle);
                stream->handle = nullptr;
            }
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other) {
    static call_site site{"cudaDeviceCanAccessPeer"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (can == nullptr)
            return cudaErrorInvalidValue;
        if (!exists(world, device) || !exists(world, other))
            return cudaErrorInvalidDevice;
        *can = device != other && world.settings.peers;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags) {
    static call_site site{"cudaDeviceEnablePeerAccess"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (!exists(world, other) || other == current_device(world))
            return cudaErrorInvalidDevice;
        if (flags != 0)
            return cudaErrorInvalidValue;
        if (!world.settings.peers)
            return cudaErrorPeerAccessUnsupported;
        bool const fresh =
            world.devices[static_cast<std::size_t>(current_device(world))].peers.insert(other).second;
        return fresh ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
    });
}

extern "C" cudaError_t cudaDeviceDisablePeerAccess(int other) {
    static call_site site{"cudaDeviceDisablePeerAccess"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (!exists(world, other))
            return cudaErrorInvalidDevice;
        bool const was =
            world.devices[static_cast<std::size_t>(current_device(world))].peers.erase(other) != 0;
        return was ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
    });
}

extern "C" cudaError_t cudaDriverGetVersion(int* version) {
    static call_site site{"cudaDriverGetVersion", false};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (version == nullptr)
            return cudaErrorInvalidValue;
        *version = world.settings.driver_version;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaRuntimeGetVersion(int* version) {
    static call_site site{"cudaRuntimeGetVersion", false};
    return api(site, [&](world_state&) -> cudaError_t {
        if (version == nullptr)
            return cudaErrorInvalidValue;
        *version = CUDART_VERSION;
        return cudaSuccess;
    });
}
