// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Managed memory: prefetches, advice, discards. See conformance.hpp.

#include "conformance_capture.hpp"

#if CUDART_VERSION < 13000 // where the functions that take a location have other names
#define cudaMemPrefetchAsync cudaMemPrefetchAsync_v2
#define cudaMemAdvise cudaMemAdvise_v2
#endif

using namespace conformance;

namespace {

constexpr std::size_t MiB = std::size_t(1) << 20;

class managed_bytes {
public:
    managed_bytes() {
        CUDA_MUST(cudaMallocManaged(&at_, bytes));
        std::memset(at_, 1, bytes);
    }
    ~managed_bytes() { CUDA_OK(cudaFree(at_)); }
    managed_bytes(managed_bytes const&) = delete;
    managed_bytes& operator=(managed_bytes const&) = delete;
    operator void*() const { return at_; }
    unsigned char& operator[](std::size_t index) const { return static_cast<unsigned char*>(at_)[index]; }
    int ask(cudaMemRangeAttribute attribute, std::size_t from = 0, std::size_t count = bytes) const {
        int answer = -99;
        CUDA_OK(cudaMemRangeGetAttribute(&answer, sizeof answer, attribute, &(*this)[from], count));
        return answer;
    }
    static constexpr std::size_t bytes = 4 * MiB;

private:
    void* at_ = nullptr;
};

cudaMemLocation at(cudaMemLocationType type, int id = 0) {
    cudaMemLocation place{};
    place.type = type;
    place.id = id;
    return place;
}

constexpr cudaMemLocationType on_device = cudaMemLocationTypeDevice;
constexpr cudaMemLocationType on_host = cudaMemLocationTypeHost;

} // namespace

PROBE("a prefetch says where it went and changes nothing") {
    stream work;
    managed_bytes memory;
    CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation) == cudaInvalidDeviceId);
    CUDA_OK(cudaMemPrefetchAsync(memory, memory.bytes, at(on_device), 0, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation) == 0);
    CUDA_OK(cudaMemPrefetchAsync(memory, 2 * MiB, at(on_host), 0, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation, 0, 2 * MiB) == cudaCpuDeviceId);
    CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation, 2 * MiB, 2 * MiB) == 0);
    CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation) == cudaInvalidDeviceId); // not one for all
    CHECK(memory[0] == 1);
    CHECK(memory[memory.bytes - 1] == 1);
}

PROBE("a prefetch takes the legacy stream, a NUMA node, and the nearest one") {
    managed_bytes memory;
    CUDA_OK(cudaMemPrefetchAsync(memory, memory.bytes, at(cudaMemLocationTypeHostNuma), 0, cudaStreamLegacy));
    CUDA_OK(cudaMemPrefetchAsync(memory, memory.bytes, at(cudaMemLocationTypeHostNumaCurrent), 0, cudaStreamLegacy));
    CUDA_OK(cudaDeviceSynchronize());
}

PROBE("a prefetch takes managed memory alone, and places that there are") {
    stream work;
    device_bytes memory(1 * MiB);
    managed_bytes managed;
    CHECK(cudaMemPrefetchAsync(memory, 1 * MiB, at(on_host), 0, work) != cudaSuccess);
    CHECK(cudaMemPrefetchAsync(managed, 0, at(on_host), 0, work) != cudaSuccess);
    CHECK(cudaMemPrefetchAsync(managed, managed.bytes, at(on_device, 12345), 0, work) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
}

PROBE("a captured stream prefetches nothing") {
    stream work;
    managed_bytes memory;
    capture graph(work);
    CHECK(cudaMemPrefetchAsync(memory, memory.bytes, at(on_host), 0, work) != cudaSuccess);
    static_cast<void>(graph.end());
    static_cast<void>(cudaGetLastError());
}

PROBE("advice is remembered for its bytes, until its opposite") {
    managed_bytes memory;
    CUDA_OK(cudaMemAdvise(memory, 2 * MiB, cudaMemAdviseSetReadMostly, at(on_host)));
    CHECK(memory.ask(cudaMemRangeAttributeReadMostly, 0, 2 * MiB) == 1);
    CHECK(memory.ask(cudaMemRangeAttributeReadMostly) == 0);
    CUDA_OK(cudaMemAdvise(memory, memory.bytes, cudaMemAdviseUnsetReadMostly, at(on_host)));
    CHECK(memory.ask(cudaMemRangeAttributeReadMostly, 0, 2 * MiB) == 0);
    CHECK(memory.ask(cudaMemRangeAttributePreferredLocation) == cudaInvalidDeviceId);
    CUDA_OK(cudaMemAdvise(memory, memory.bytes, cudaMemAdviseSetPreferredLocation, at(on_device)));
    CHECK(memory.ask(cudaMemRangeAttributePreferredLocation) == 0);
    CUDA_OK(cudaMemAdvise(memory, memory.bytes, cudaMemAdviseSetPreferredLocation, at(on_host)));
    CHECK(memory.ask(cudaMemRangeAttributePreferredLocation) == cudaCpuDeviceId);
    CUDA_OK(cudaMemAdvise(memory, memory.bytes, cudaMemAdviseUnsetPreferredLocation, at(on_host)));
    CHECK(memory.ask(cudaMemRangeAttributePreferredLocation) == cudaInvalidDeviceId);
    CUDA_OK(cudaMemAdvise(memory, memory.bytes, cudaMemAdviseSetAccessedBy, at(on_device)));
    CHECK(memory.ask(cudaMemRangeAttributeAccessedBy) == 0);
    CUDA_OK(cudaMemAdvise(memory, memory.bytes, cudaMemAdviseUnsetAccessedBy, at(on_device)));
    CHECK(memory.ask(cudaMemRangeAttributeAccessedBy) == cudaInvalidDeviceId);
}

PROBE("advice is for managed memory and places that there are") {
    device_bytes memory(1 * MiB);
    managed_bytes managed;
    CHECK(cudaMemAdvise(memory, 1 * MiB, cudaMemAdviseSetReadMostly, at(on_host)) != cudaSuccess);
    CHECK(cudaMemAdvise(managed, managed.bytes, cudaMemAdviseSetPreferredLocation, at(on_device, 12345)) != cudaSuccess);
    CHECK(cudaMemAdvise(managed, managed.bytes, cudaMemAdviseSetAccessedBy, at(cudaMemLocationTypeHostNuma)) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
}

#if CUDART_VERSION >= 13000
PROBE("a captured stream discards nothing") {
    stream work;
    managed_bytes memory;
    void* p = memory;
    std::size_t bytes = memory.bytes;
    capture graph(work);
    CHECK(cudaMemDiscardBatchAsync(&p, &bytes, 1, 0, work) != cudaSuccess);
    static_cast<void>(graph.end());
    static_cast<void>(cudaGetLastError());
}

PROBE("what is discarded is written again, and what lies beside it stays") {
    stream work;
    managed_bytes memory;
    void* ranges[] = {memory};
    std::size_t sizes[] = {2 * MiB};
    CUDA_OK(cudaMemDiscardBatchAsync(ranges, sizes, 1, 0, work));
    CUDA_OK(cudaMemsetAsync(memory, 7, 1 * MiB, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(memory[0] == 7);
    CHECK(memory[1 * MiB - 1] == 7);
    CHECK(memory[2 * MiB] == 1);
    CHECK(memory[memory.bytes - 1] == 1);
}

PROBE("a discard with a prefetch goes where it was told") {
    stream work;
    managed_bytes memory;
    void* ranges[] = {memory, &memory[2 * MiB]};
    std::size_t sizes[] = {2 * MiB, 2 * MiB};
    cudaMemLocation places[] = {at(on_device), at(on_host)};
    std::size_t first[] = {0, 1};
    CUDA_OK(cudaMemDiscardAndPrefetchBatchAsync(ranges, sizes, 2, places, first, 2, 0, work));
    CUDA_OK(cudaMemsetAsync(memory, 7, memory.bytes, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation, 0, 2 * MiB) == 0);
    CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation, 2 * MiB, 2 * MiB) == cudaCpuDeviceId);
    CHECK(memory[0] == 7);
    CHECK(memory[memory.bytes - 1] == 7);
}

PROBE("a discard takes managed memory, and no legacy stream") {
    stream work;
    device_bytes memory(1 * MiB);
    managed_bytes managed;
    void* ranges[] = {memory};
    std::size_t sizes[] = {1 * MiB};
    CHECK(cudaMemDiscardBatchAsync(ranges, sizes, 1, 0, work) != cudaSuccess);
    ranges[0] = managed;
    CHECK(cudaMemDiscardBatchAsync(ranges, sizes, 1, 0, cudaStreamLegacy) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
}
#endif
