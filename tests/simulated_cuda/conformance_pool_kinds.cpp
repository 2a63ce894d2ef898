// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Pools of pinned and managed memory, and what they give other processes. See conformance.hpp.

#include "conformance_capture.hpp"

#include <fcntl.h>
#include <unistd.h>

using namespace conformance;

namespace {

constexpr std::size_t MiB = std::size_t(1) << 20;

cudaMemPoolProps of(cudaMemAllocationType type, cudaMemLocationType where, int id = 0) {
    cudaMemPoolProps properties{};
    properties.allocType = type;
    properties.location.type = where;
    properties.location.id = id;
    return properties;
}

cudaMemPoolProps exportable() {
    cudaMemPoolProps properties = of(cudaMemAllocationTypePinned, cudaMemLocationTypeDevice);
    properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    return properties;
}

cudaError_t created(cudaMemPoolProps const& properties) {
    cudaMemPool_t handle = nullptr;
    cudaError_t const error = cudaMemPoolCreate(&handle, &properties);
    if (error == cudaSuccess)
        CUDA_OK(cudaMemPoolDestroy(handle));
    static_cast<void>(cudaGetLastError());
    return error;
}

class memory_pool {
public:
    explicit memory_pool(cudaMemPoolProps const& properties) { CUDA_MUST(cudaMemPoolCreate(&handle_, &properties)); }
    ~memory_pool() { CUDA_OK(cudaMemPoolDestroy(handle_)); }
    memory_pool(memory_pool const&) = delete;
    memory_pool& operator=(memory_pool const&) = delete;
    operator cudaMemPool_t() const { return handle_; }
    unsigned char* take(std::size_t bytes, cudaStream_t on) const {
        void* p = nullptr;
        CUDA_MUST(cudaMallocFromPoolAsync(&p, bytes, handle_, on));
        return static_cast<unsigned char*>(p);
    }
    cudaMemAccessFlags access(cudaMemLocationType where, int id = 0) const {
        cudaMemLocation place{};
        place.type = where;
        place.id = id;
        cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
        CUDA_OK(cudaMemPoolGetAccess(&flags, handle_, &place));
        return flags;
    }
    void allow_device() const {
        cudaMemAccessDesc device{};
        device.location.type = cudaMemLocationTypeDevice;
        device.flags = cudaMemAccessFlagsProtReadWrite;
        CUDA_OK(cudaMemPoolSetAccess(handle_, &device, 1));
    }
    std::uint64_t used() const {
        std::uint64_t value = 99;
        CUDA_OK(cudaMemPoolGetAttribute(handle_, cudaMemPoolAttrUsedMemCurrent, &value));
        return value;
    }

private:
    cudaMemPool_t handle_ = nullptr;
};

cudaMemoryType type_of(void const* p) {
    cudaPointerAttributes attributes{};
    CUDA_OK(cudaPointerGetAttributes(&attributes, p));
    return attributes.type;
}

// Memory of a pool is of this kind, and both sides use it in the stream's order.
void both_sides_use(memory_pool const& pool, cudaMemoryType kind) {
    stream work;
    unsigned char* const p = pool.take(1 * MiB, work);
    CHECK(type_of(p) == kind);
    CHECK(pool.used() >= 1 * MiB);
    CUDA_OK(cudaMemsetAsync(p, 5, 1 * MiB, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(p[1 * MiB - 1] == 5);
    p[0] = 6;
    unsigned char first = 0;
    CUDA_OK(cudaMemcpyAsync(&first, p, 1, cudaMemcpyDefault, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(first == 6);
    CHECK(pool.used() == 0);
}

} // namespace

PROBE("a pool on the host is at first the host's alone") {
    for (cudaMemLocationType const where : {cudaMemLocationTypeHost, cudaMemLocationTypeHostNuma}) {
        memory_pool const pool(of(cudaMemAllocationTypePinned, where));
        CHECK(pool.access(cudaMemLocationTypeDevice) == cudaMemAccessFlagsProtNone);
        pool.allow_device();
        CHECK(pool.access(cudaMemLocationTypeDevice) == cudaMemAccessFlagsProtReadWrite);
    }
}

PROBE("memory of a pool on the host is pinned, and both sides use it in the stream's order") {
    for (cudaMemLocationType const where : {cudaMemLocationTypeHost, cudaMemLocationTypeHostNuma}) {
        memory_pool const pool(of(cudaMemAllocationTypePinned, where));
        pool.allow_device();
        both_sides_use(pool, cudaMemoryTypeHost);
    }
}

PROBE("a pool on the host of no NUMA node is not exported") {
    cudaMemPoolProps properties = of(cudaMemAllocationTypePinned, cudaMemLocationTypeHost);
    properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    CUDA_IS(cudaErrorInvalidValue, created(properties));
}

PROBE("no pool is on the nearest NUMA node") {
    CUDA_IS(cudaErrorInvalidValue, created(of(cudaMemAllocationTypePinned, cudaMemLocationTypeHostNumaCurrent)));
}

#if CUDART_VERSION >= 13000
PROBE("memory of a managed pool is managed, and both sides use it") {
    for (cudaMemLocationType const where : {cudaMemLocationTypeNone, cudaMemLocationTypeDevice, cudaMemLocationTypeHost})
        both_sides_use(memory_pool(of(cudaMemAllocationTypeManaged, where)), cudaMemoryTypeManaged);
}

PROBE("a managed pool has no maximum and is not exported") {
    cudaMemPoolProps properties = of(cudaMemAllocationTypeManaged, cudaMemLocationTypeNone);
    properties.maxSize = 64 * MiB;
    CHECK(created(properties) != cudaSuccess);
    properties.maxSize = 0;
    properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    CHECK(created(properties) != cudaSuccess);
}
#endif

PROBE("a pool that was made for it is exported, each time as another descriptor") {
    memory_pool const pool(exportable());
    int one = -1;
    int other = -1;
    CUDA_OK(cudaMemPoolExportToShareableHandle(&one, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    CUDA_OK(cudaMemPoolExportToShareableHandle(&other, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    CHECK(one >= 0);
    CHECK(other >= 0);
    CHECK(one != other);
    CHECK(close(one) == 0);
    CHECK(close(other) == 0);
}

PROBE("a pool that was not made for it is not exported, nor is its memory") {
    stream work;
    memory_pool const pool(of(cudaMemAllocationTypePinned, cudaMemLocationTypeDevice));
    int descriptor = -1;
    CHECK(cudaMemPoolExportToShareableHandle(&descriptor, pool, cudaMemHandleTypePosixFileDescriptor, 0) != cudaSuccess);
    unsigned char* const p = pool.take(1 * MiB, work);
    CUDA_OK(cudaStreamSynchronize(work));
    cudaMemPoolPtrExportData data{};
    CHECK(cudaMemPoolExportPointer(&data, p) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("memory of an exported pool is exported by where it begins") {
    stream work;
    memory_pool const pool(exportable());
    int descriptor = -1;
    CUDA_OK(cudaMemPoolExportToShareableHandle(&descriptor, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    unsigned char* const p = pool.take(1 * MiB, work);
    CUDA_OK(cudaStreamSynchronize(work));
    cudaMemPoolPtrExportData data{};
    CUDA_OK(cudaMemPoolExportPointer(&data, p));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(close(descriptor) == 0);
}

PROBE("no descriptor, no pool") {
    cudaMemPool_t pool = nullptr;
    int const other = open("/dev/null", O_RDONLY);
    for (int const descriptor : {-1, other, 0}) // CUDA takes 0 for null
        CUDA_IS(descriptor == 0 ? cudaErrorInvalidValue : cudaErrorUnknown,
                cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(std::intptr_t{descriptor}),
                                                     cudaMemHandleTypePosixFileDescriptor, 0));
    CHECK(close(other) == 0);
    static_cast<void>(cudaGetLastError());
}

PROBE("a pool is opened to devices that there are") {
    memory_pool const pool(of(cudaMemAllocationTypePinned, cudaMemLocationTypeDevice));
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    for (int const nowhere : {-3, 1000}) {
        access.location.id = nowhere;
        CUDA_IS(cudaErrorInvalidDevice, cudaMemPoolSetAccess(pool, &access, 1));
    }
    static_cast<void>(cudaGetLastError());
}

PROBE("what a captured stream allocates its graph owns, and no pool counts it") {
    stream work;
    memory_pool const pool(of(cudaMemAllocationTypePinned, cudaMemLocationTypeDevice));
    pinned_bytes host(1);
    void* p = nullptr;
    capture graph(work);
    CUDA_OK(cudaMallocFromPoolAsync(&p, 1 * MiB, pool, work));
    CUDA_OK(cudaMemsetAsync(p, 3, 1 * MiB, work));
    CUDA_OK(graph.end());
    CHECK(pool.used() == 0);
    executable runs(graph.graph());
    for (int round = 0; round < 2; ++round) {
        host[0] = 0;
        CUDA_OK(cudaGraphLaunch(runs, work));
        CUDA_OK(cudaMemcpyAsync(host, p, 1, cudaMemcpyDeviceToHost, work));
        CHECK(pool.used() == 0);
        CUDA_OK(cudaFreeAsync(p, work)); // the program's to free, once a launch
        CUDA_OK(cudaStreamSynchronize(work));
        CHECK(host[0] == 3);
    }
}

PROBE("a graph is not launched again before what it allocated is freed") {
    stream work;
    void* p = nullptr;
    capture graph(work);
    CUDA_OK(cudaMallocAsync(&p, 1 * MiB, work));
    CUDA_OK(graph.end());
    executable runs(graph.graph());
    CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(cudaGraphLaunch(runs, work) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("the launch of another graph frees what a graph allocated") {
    stream work;
    void* p = nullptr;
    capture makes(work);
    CUDA_OK(cudaMallocAsync(&p, 1 * MiB, work));
    CUDA_OK(cudaMemsetAsync(p, 3, 1 * MiB, work));
    CUDA_OK(makes.end());
    capture ends(work);
    CUDA_OK(cudaMemsetAsync(p, 4, 1 * MiB, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(ends.end());
    executable first(makes.graph());
    executable second(ends.graph());
    for (int round = 0; round < 2; ++round) {
        CUDA_OK(cudaGraphLaunch(first, work));
        CUDA_OK(cudaGraphLaunch(second, work));
    }
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("a graph frees at each launch what it allocated, where it was told to") {
    stream work;
    void* p = nullptr;
    capture graph(work);
    CUDA_OK(cudaMallocAsync(&p, 1 * MiB, work));
    CUDA_OK(cudaMemsetAsync(p, 3, 1 * MiB, work));
    CUDA_OK(graph.end());
    cudaGraphExec_t runs = nullptr;
    CUDA_MUST(cudaGraphInstantiate(&runs, graph.graph(), cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int round = 0; round < 3; ++round)
        CUDA_OK(cudaGraphLaunch(runs, work));
    CUDA_OK(cudaFreeAsync(p, work)); // of the last launch
    CUDA_OK(cudaStreamSynchronize(work));
    CUDA_OK(cudaGraphExecDestroy(runs));
}

PROBE("a captured stream frees nothing that no graph allocated") {
    stream work;
    memory_pool const pool(of(cudaMemAllocationTypePinned, cudaMemLocationTypeDevice));
    unsigned char* const p = pool.take(1 * MiB, work);
    CUDA_OK(cudaStreamSynchronize(work));
    {
        capture graph(work);
        CHECK(cudaFreeAsync(p, work) != cudaSuccess);
        static_cast<void>(cudaGetLastError());
        static_cast<void>(graph.end());
        static_cast<void>(cudaGetLastError());
    }
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("a capture takes nothing of a pool that can be exported, and goes on") {
    stream work;
    memory_pool const pool(exportable());
    capture graph(work, cudaStreamCaptureModeRelaxed);
    void* p = nullptr;
    CUDA_IS(cudaErrorNotSupported, cudaMallocFromPoolAsync(&p, 256, pool, work));
    CHECK(status_of(work) == cudaStreamCaptureStatusActive);
    CUDA_OK(graph.end());
}
