// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The driver's stream-ordered pools. See conformance.hpp.

#include "conformance.hpp"

using namespace conformance;

namespace {

constexpr std::size_t MiB = std::size_t(1) << 20;

class driver_pool {
public:
    explicit driver_pool(std::size_t maximum = 0, int device = 0) {
        cudaMemPoolProps properties{};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.location.id = device;
        properties.maxSize = maximum;
        CUDA_MUST(cudaMemPoolCreate(&handle_, &properties));
    }
    ~driver_pool() { destroy(); }
    driver_pool(driver_pool const&) = delete;
    driver_pool& operator=(driver_pool const&) = delete;
    operator cudaMemPool_t() const { return handle_; }
    void destroy() {
        if (handle_ != nullptr)
            CUDA_OK(cudaMemPoolDestroy(handle_));
        handle_ = nullptr;
    }

    std::uint64_t ask(cudaMemPoolAttr attribute) const {
        std::uint64_t value = 0;
        CUDA_OK(cudaMemPoolGetAttribute(handle_, attribute, &value));
        return value;
    }
    int ask_switch(cudaMemPoolAttr attribute) const {
        int value = -1;
        CUDA_OK(cudaMemPoolGetAttribute(handle_, attribute, &value));
        return value;
    }
    void keep_all() {
        std::uint64_t all = ~std::uint64_t(0);
        CUDA_OK(cudaMemPoolSetAttribute(handle_, cudaMemPoolAttrReleaseThreshold, &all));
    }

private:
    cudaMemPool_t handle_ = nullptr;
};

} // namespace

PROBE("a device's pool is its default pool at first") {
    cudaMemPool_t given = nullptr;
    cudaMemPool_t current = nullptr;
    CUDA_OK(cudaDeviceGetDefaultMemPool(&given, 0));
    CUDA_OK(cudaDeviceGetMemPool(&current, 0));
    CHECK(given != nullptr);
    CHECK(given == current);
}

PROBE("a device takes another pool, and its own back when that one is destroyed") {
    cudaMemPool_t given = nullptr;
    cudaMemPool_t current = nullptr;
    CUDA_OK(cudaDeviceGetDefaultMemPool(&given, 0));
    driver_pool pool;
    CUDA_OK(cudaDeviceSetMemPool(0, pool));
    CUDA_OK(cudaDeviceGetMemPool(&current, 0));
    CHECK(current == static_cast<cudaMemPool_t>(pool));
    pool.destroy();
    CUDA_OK(cudaDeviceGetMemPool(&current, 0));
    CHECK(current == given);
}

PROBE("a default pool is not destroyed") {
    cudaMemPool_t given = nullptr;
    CUDA_OK(cudaDeviceGetDefaultMemPool(&given, 0));
    CHECK(cudaMemPoolDestroy(given) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
}

PROBE("stream-ordered memory is the device's") {
    stream work;
    void* p = nullptr;
    CUDA_MUST(cudaMallocAsync(&p, 1000, work));
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
    cudaPointerAttributes attributes{};
    CUDA_OK(cudaPointerGetAttributes(&attributes, p));
    CHECK(attributes.type == cudaMemoryTypeDevice);
    CHECK(attributes.device == 0);
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("stream-ordered memory is used in its stream's order") {
    stream work;
    pinned_bytes host(1);
    void* p = nullptr;
    CUDA_MUST(cudaMallocAsync(&p, 1000, work));
    CUDA_OK(cudaMemsetAsync(p, 31, 1000, work));
    CUDA_OK(cudaMemcpyAsync(host, p, 1, cudaMemcpyDeviceToHost, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(host[0] == 31);
}

PROBE("allocating in stream order does not wait for the stream") {
    stream work;
    void* warm = nullptr;
    driver_pool pool;
    pool.keep_all();
    CUDA_MUST(cudaMallocFromPoolAsync(&warm, 4096, pool, work));
    CUDA_MUST(cudaFreeAsync(warm, work));
    CUDA_OK(cudaStreamSynchronize(work));
    {
        gate closed(work);
        void* p = nullptr;
        CUDA_OK(cudaMallocFromPoolAsync(&p, 4096, pool, work));
        CUDA_OK(cudaFreeAsync(p, work));
        CUDA_IS(cudaErrorNotReady, cudaStreamQuery(work));
        static_cast<void>(cudaGetLastError());
    }
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("a pool counts what is used and what is reserved") {
    stream work;
    driver_pool pool;
    CHECK(pool.ask(cudaMemPoolAttrUsedMemCurrent) == 0);
    CHECK(pool.ask(cudaMemPoolAttrReservedMemCurrent) == 0);
    void* p = nullptr;
    CUDA_MUST(cudaMallocFromPoolAsync(&p, 5 * MiB, pool, work));
    CHECK(pool.ask(cudaMemPoolAttrUsedMemCurrent) >= 5 * MiB);
    CHECK(pool.ask(cudaMemPoolAttrReservedMemCurrent) >= pool.ask(cudaMemPoolAttrUsedMemCurrent));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(pool.ask(cudaMemPoolAttrUsedMemCurrent) == 0);
    CHECK(pool.ask(cudaMemPoolAttrUsedMemHigh) >= 5 * MiB);
}

PROBE("a pool gives all back at a wait unless told to keep it") {
    stream work;
    driver_pool pool;
    CHECK(pool.ask(cudaMemPoolAttrReleaseThreshold) == 0);
    void* p = nullptr;
    CUDA_MUST(cudaMallocFromPoolAsync(&p, 5 * MiB, pool, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(pool.ask(cudaMemPoolAttrReservedMemCurrent) == 0);
}

PROBE("a pool keeps what its threshold allows, until it is trimmed") {
    stream work;
    driver_pool pool;
    pool.keep_all();
    CHECK(pool.ask(cudaMemPoolAttrReleaseThreshold) == ~std::uint64_t(0));
    void* p = nullptr;
    CUDA_MUST(cudaMallocFromPoolAsync(&p, 5 * MiB, pool, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(pool.ask(cudaMemPoolAttrReservedMemCurrent) >= 5 * MiB);
    CUDA_OK(cudaMemPoolTrimTo(pool, 0));
    CHECK(pool.ask(cudaMemPoolAttrReservedMemCurrent) == 0);
}

PROBE("a pool does not notice that cudaFree waited for the device") {
    stream work;
    driver_pool pool;
    pool.keep_all();
    void* p = nullptr;
    void* byte = nullptr;
    CUDA_MUST(cudaMalloc(&byte, 1));
    CUDA_MUST(cudaMallocFromPoolAsync(&p, 64 * MiB, pool, work));
    CUDA_OK(cudaMemsetAsync(p, 1, 64 * MiB, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaFree(byte));
    CUDA_OK(cudaMemPoolTrimTo(pool, 0));
    CHECK(pool.ask(cudaMemPoolAttrReservedMemCurrent) >= 64 * MiB);
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemPoolTrimTo(pool, 0));
    CHECK(pool.ask(cudaMemPoolAttrReservedMemCurrent) == 0);
}

PROBE("trimming takes nothing that is used") {
    stream work;
    driver_pool pool;
    void* p = nullptr;
    CUDA_MUST(cudaMallocFromPoolAsync(&p, 5 * MiB, pool, work));
    CUDA_OK(cudaMemPoolTrimTo(pool, 0));
    CHECK(pool.ask(cudaMemPoolAttrReservedMemCurrent) >= 5 * MiB);
    CUDA_OK(cudaMemsetAsync(p, 1, 5 * MiB, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("memory freed on a stream is had again there without growth") {
    stream work;
    driver_pool pool;
    pool.keep_all();
    void* p = nullptr;
    CUDA_MUST(cudaMallocFromPoolAsync(&p, 5 * MiB, pool, work));
    std::uint64_t const reserved = pool.ask(cudaMemPoolAttrReservedMemCurrent);
    for (int round = 0; round < 40; ++round) {
        CUDA_OK(cudaFreeAsync(p, work));
        CUDA_OK(cudaMallocFromPoolAsync(&p, 5 * MiB, pool, work));
    }
    CHECK(pool.ask(cudaMemPoolAttrReservedMemCurrent) == reserved);
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("the reuse switches are on, and are set") {
    driver_pool pool;
    for (cudaMemPoolAttr const attribute :
         {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic,
          cudaMemPoolReuseAllowInternalDependencies}) {
        CHECK(pool.ask_switch(attribute) == 1);
        int off = 0;
        CUDA_OK(cudaMemPoolSetAttribute(pool, attribute, &off));
        CHECK(pool.ask_switch(attribute) == 0);
    }
}

PROBE("peaks are reset by zero alone") {
    stream work;
    driver_pool pool;
    void* p = nullptr;
    CUDA_MUST(cudaMallocFromPoolAsync(&p, 5 * MiB, pool, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
    std::uint64_t value = 0;
    CUDA_OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value));
    CHECK(pool.ask(cudaMemPoolAttrUsedMemHigh) == 0);
    value = 4096;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
}

PROBE("a pool of a maximum size refuses more, and goes on") {
    stream work;
    driver_pool pool(32 * MiB);
    void* p = nullptr;
    CUDA_IS(cudaErrorMemoryAllocation, cudaMallocFromPoolAsync(&p, 64 * MiB, pool, work));
    static_cast<void>(cudaGetLastError());
    CUDA_OK(cudaMallocFromPoolAsync(&p, 4 * MiB, pool, work));
    CUDA_OK(cudaFreeAsync(p, work));
    CUDA_OK(cudaStreamSynchronize(work));
}

PROBE("stream-ordered memory is freed by a plain free") {
    stream work;
    void* p = nullptr;
    CUDA_MUST(cudaMallocAsync(&p, 1000, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CUDA_OK(cudaFree(p));
}

PROBE("stream-ordered memory is freed on another stream that was made to wait") {
    stream one;
    stream other;
    event handed;
    void* p = nullptr;
    CUDA_MUST(cudaMallocAsync(&p, 1000, one));
    CUDA_OK(cudaMemsetAsync(p, 1, 1000, one));
    CUDA_OK(cudaEventRecord(handed, one));
    CUDA_OK(cudaStreamWaitEvent(other, handed, 0));
    CUDA_OK(cudaFreeAsync(p, other));
    CUDA_OK(cudaStreamSynchronize(other));
}

PROBE("a pool's own device reads and writes its memory") {
    driver_pool pool;
    cudaMemLocation here{};
    here.type = cudaMemLocationTypeDevice;
    here.id = 0;
    cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
    CUDA_OK(cudaMemPoolGetAccess(&flags, pool, &here));
    CHECK(flags == cudaMemAccessFlagsProtReadWrite);
}

#if CUDART_VERSION >= 13000

PROBE("each place and kind of memory has a default pool, which is its pool at first") {
    struct place {
        cudaMemLocation location;
        cudaMemAllocationType type;
    };
    place const places[] = {{{cudaMemLocationTypeDevice, 0}, cudaMemAllocationTypePinned},
                            {{cudaMemLocationTypeHost, 0}, cudaMemAllocationTypePinned},
                            {{cudaMemLocationTypeHostNuma, 0}, cudaMemAllocationTypePinned},
                            {{cudaMemLocationTypeNone, 0}, cudaMemAllocationTypeManaged}};
    stream work;
    for (place each : places) {
        CAPTURE(static_cast<int>(each.location.type));
        cudaMemPool_t given = nullptr, again = nullptr, current = nullptr;
        CUDA_OK(cudaMemGetDefaultMemPool(&given, &each.location, each.type));
        CUDA_OK(cudaMemGetDefaultMemPool(&again, &each.location, each.type));
        CUDA_OK(cudaMemGetMemPool(&current, &each.location, each.type));
        CHECK((given != nullptr && given == again && given == current));
        void* p = nullptr;
        CUDA_OK(cudaMallocFromPoolAsync(&p, 4096, given, work));
        CUDA_OK(cudaFreeAsync(p, work));
        CUDA_OK(cudaStreamSynchronize(work));
    }
    cudaMemPool_t given = nullptr, of_device = nullptr;
    cudaMemLocation there{cudaMemLocationTypeDevice, 0};
    CUDA_OK(cudaMemGetDefaultMemPool(&given, &there, cudaMemAllocationTypePinned));
    CUDA_OK(cudaDeviceGetDefaultMemPool(&of_device, 0));
    CHECK(given == of_device);
}

PROBE("a pool becomes its place's own, and of no other place and kind") {
    driver_pool mine;
    cudaMemPool_t given = nullptr, current = nullptr;
    cudaMemLocation there{cudaMemLocationTypeDevice, 0};
    cudaMemLocation host{cudaMemLocationTypeHost, 0};
    CUDA_OK(cudaMemGetDefaultMemPool(&given, &there, cudaMemAllocationTypePinned));
    CUDA_OK(cudaMemSetMemPool(&there, cudaMemAllocationTypePinned, mine));
    CUDA_OK(cudaMemGetMemPool(&current, &there, cudaMemAllocationTypePinned));
    CHECK(current == mine);
    CUDA_OK(cudaDeviceGetMemPool(&current, 0));
    CHECK(current == mine);
    CUDA_OK(cudaMemSetMemPool(&there, cudaMemAllocationTypePinned, given));
    CUDA_IS(cudaErrorInvalidValue, cudaMemSetMemPool(&host, cudaMemAllocationTypePinned, mine));
    CUDA_IS(cudaErrorInvalidValue, cudaMemSetMemPool(&there, cudaMemAllocationTypeManaged, mine));
    cudaMemLocation nowhere{cudaMemLocationTypeNone, 0};
    CUDA_IS(cudaErrorInvalidValue, cudaMemGetDefaultMemPool(&current, &nowhere, cudaMemAllocationTypePinned));
    static_cast<void>(cudaGetLastError());
}

#endif
