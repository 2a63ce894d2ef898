// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Memory, pointers, devices and errors: what the simulator says must be what a GPU says. Streams, events,
// captures, graphs, pools and virtual memory are in the files beside this one.

#include "conformance.hpp"

using namespace conformance;

// ---- device memory ----------------------------------------------------------------------------------------

PROBE("device memory is aligned to 256 bytes at least") {
    for (std::size_t const bytes :
         {std::size_t(1), std::size_t(255), std::size_t(4097), std::size_t(3) << 20}) {
        device_bytes memory(bytes);
        CHECK(reinterpret_cast<std::uintptr_t>(static_cast<void*>(memory)) % 256 == 0);
    }
}

PROBE("no bytes are a null pointer and no error") {
    void* p = &p;
    CUDA_OK(cudaMalloc(&p, 0));
    CHECK(p == nullptr);
}

PROBE("more than there is fails, and the next call works" * doctest::test_suite("fills the card")) {
    std::size_t free = 0;
    std::size_t total = 0;
    CUDA_MUST(cudaMemGetInfo(&free, &total));
    void* p = nullptr;
    CUDA_IS(cudaErrorMemoryAllocation, cudaMalloc(&p, total * 2));
    CUDA_IS(cudaErrorMemoryAllocation, cudaGetLastError());
    CUDA_OK(cudaGetLastError());
    device_bytes memory(256);
}

PROBE("an absurd size fails as exhaustion does" * doctest::test_suite("fills the card")) {
    void* p = nullptr;
    CUDA_IS(cudaErrorMemoryAllocation, cudaMalloc(&p, ~std::size_t(0) - 4096));
    static_cast<void>(cudaGetLastError());
}

PROBE("freeing null is nothing") {
    CUDA_OK(cudaFree(nullptr));
}

PROBE("a second free is an invalid value") {
    void* p = nullptr;
    CUDA_MUST(cudaMalloc(&p, 1 << 20));
    CUDA_OK(cudaFree(p));
    CUDA_IS(cudaErrorInvalidValue, cudaFree(p));
    static_cast<void>(cudaGetLastError());
}

PROBE("freeing the host's memory is an invalid value") {
    int local = 0;
    CUDA_IS(cudaErrorInvalidValue, cudaFree(&local));
    static_cast<void>(cudaGetLastError());
}

PROBE("freeing the middle of a block is an invalid value") {
    device_bytes memory(1 << 20);
    CUDA_IS(cudaErrorInvalidValue, cudaFree(memory.at(512)));
    static_cast<void>(cudaGetLastError());
}

PROBE("live blocks do not overlap") {
    std::vector<std::unique_ptr<device_bytes>> blocks;
    for (std::size_t bytes = 100; bytes < 4000000; bytes *= 3)
        blocks.push_back(std::make_unique<device_bytes>(bytes));
    std::size_t bytes = 100;
    for (std::size_t one = 0; one < blocks.size(); ++one, bytes *= 3)
        for (std::size_t other = 0; other < blocks.size(); ++other) {
            char const* const start = blocks[one]->at(0);
            char const* const at = blocks[other]->at(0);
            CHECK((one == other || at < start || at >= start + bytes));
        }
}

PROBE("free memory shrinks by what is allocated" * doctest::test_suite("fills the card")) {
    std::size_t before = 0;
    std::size_t after = 0;
    std::size_t total = 0;
    CUDA_MUST(cudaMemGetInfo(&before, &total));
    CHECK(before <= total);
    {
        device_bytes memory(std::size_t(64) << 20);
        CUDA_MUST(cudaMemGetInfo(&after, &total));
        CHECK(before - after >= std::size_t(64) << 20);
    }
    CUDA_MUST(cudaMemGetInfo(&after, &total));
    CHECK(after >= before);
}

PROBE("freeing waits for work in flight") {
    stream work;
    pinned_bytes host(1);
    void* p = nullptr;
    CUDA_MUST(cudaMalloc(&p, 1 << 20));
    CUDA_OK(cudaMemsetAsync(p, 7, 1 << 20, work));
    CUDA_OK(cudaMemcpyAsync(host, p, 1, cudaMemcpyDeviceToHost, work));
    CUDA_OK(cudaFree(p));
    CHECK(host[0] == 7);
    CUDA_OK(cudaStreamQuery(work));
}

// ---- copies -----------------------------------------------------------------------------------------------

PROBE("bytes come back from the device") {
    std::vector<unsigned char> out(100000);
    std::vector<unsigned char> back(out.size());
    for (std::size_t at = 0; at < out.size(); ++at)
        out[at] = static_cast<unsigned char>(at * 7);
    device_bytes memory(out.size());
    CUDA_OK(cudaMemcpy(memory, out.data(), out.size(), cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy(back.data(), memory, back.size(), cudaMemcpyDeviceToHost));
    CHECK(out == back);
}

PROBE("a copy on the device moves bytes") {
    device_bytes memory(8192);
    CUDA_OK(cudaMemset(memory, 5, 4096));
    CUDA_OK(cudaMemset(memory.at(4096), 6, 4096));
    CUDA_OK(cudaMemcpy(memory.at(4096), memory, 4096, cudaMemcpyDeviceToDevice));
    CHECK(first_byte(memory.at(8191)) == 5);
}

PROBE("the default direction is found from the addresses") {
    unsigned char value = 9;
    unsigned char back = 0;
    device_bytes memory(1);
    CUDA_OK(cudaMemcpy(memory, &value, 1, cudaMemcpyDefault));
    CUDA_OK(cudaMemcpy(&back, memory, 1, cudaMemcpyDefault));
    CHECK(back == 9);
}

PROBE("a host to host copy is one") {
    int const from = 42;
    int to = 0;
    CUDA_OK(cudaMemcpy(&to, &from, sizeof to, cudaMemcpyHostToHost));
    CHECK(to == 42);
}

PROBE("copying no bytes is nothing") {
    device_bytes memory(16);
    int local = 3;
    CUDA_OK(cudaMemcpy(memory, &local, 0, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemsetAsync(memory, 1, 0, nullptr));
}

PROBE("a direction that is none is refused") {
    device_bytes memory(16);
    int local = 3;
    CUDA_IS(cudaErrorInvalidMemcpyDirection, cudaMemcpy(memory, &local, 4, static_cast<cudaMemcpyKind>(7)));
    static_cast<void>(cudaGetLastError());
}

PROBE("a set fills every byte and no other") {
    device_bytes memory(1024);
    CUDA_OK(cudaMemset(memory, 1, 1024));
    CUDA_OK(cudaMemset(memory.at(256), 2, 512));
    std::vector<unsigned char> back(1024);
    CUDA_OK(cudaMemcpy(back.data(), memory, 1024, cudaMemcpyDeviceToHost));
    CHECK(back[255] == 1);
    CHECK(back[256] == 2);
    CHECK(back[767] == 2);
    CHECK(back[768] == 1);
}

PROBE("rows are copied with their pitches") {
    unsigned char const from[12] = {1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0};
    unsigned char back[9] = {};
    void* p = nullptr;
    std::size_t pitch = 0;
    CUDA_MUST(cudaMallocPitch(&p, &pitch, 3, 3));
    CHECK(pitch >= 3);
    CUDA_OK(cudaMemcpy2D(p, pitch, from, 4, 3, 3, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy2D(back, 3, p, pitch, 3, 3, cudaMemcpyDeviceToHost));
    for (unsigned char at = 0; at < 9; ++at)
        CHECK(back[at] == at + 1);
    CUDA_OK(cudaFree(p));
}

PROBE("pageable memory may change after an asynchronous copy from it returned") {
    stream work;
    device_bytes memory(1);
    unsigned char value = 1;
    CUDA_OK(cudaMemcpyAsync(memory, &value, 1, cudaMemcpyHostToDevice, work));
    value = 2;
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(first_byte(memory) == 1);
}

PROBE("an asynchronous copy to pageable memory is over when it returns") {
    stream work;
    device_bytes memory(1);
    unsigned char value = 1;
    CUDA_OK(cudaMemsetAsync(memory, 8, 1, work));
    CUDA_OK(cudaMemcpyAsync(&value, memory, 1, cudaMemcpyDeviceToHost, work));
    CHECK(value == 8);
}

namespace {

cudaError_t copy_list(void** to, void** from, std::size_t* sizes, std::size_t count, cudaStream_t stream) {
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(to, from, sizes, count, &attributes, &first, 1, stream);
#else
    std::size_t failed = 0;
    return cudaMemcpyBatchAsync(to, from, sizes, count, &attributes, &first, 1, &failed, stream);
#endif
}

} // namespace

PROBE("a list of copies is made in the order of its stream") {
    stream work;
    device_bytes memory(4096);
    pinned_bytes host(4096);
    auto* const bytes = static_cast<unsigned char*>(static_cast<void*>(host));
    std::memset(bytes, 7, 2048);
    CUDA_OK(cudaMemsetAsync(memory, 1, 4096, work));
    void* to[] = {memory.at(3072), memory.at(16)};
    void* from[] = {bytes, bytes + 1024};
    std::size_t sizes[] = {1000, 24};
    CUDA_OK(copy_list(to, from, sizes, 2, work));
    CUDA_OK(cudaMemcpyAsync(bytes + 2048, memory.at(3072), 1024, cudaMemcpyDeviceToHost, work));
    CUDA_OK(cudaStreamSynchronize(work));
    CHECK(bytes[2048] == 7);
    CHECK(bytes[2048 + 999] == 7);
    CHECK(bytes[2048 + 1000] == 1);
}

PROBE("the legacy stream takes no list of copies, and the thread's own takes one") {
    device_bytes memory(4096);
    void* to[] = {memory.at(0), memory.at(1024)};
    void* from[] = {memory.at(2048), memory.at(3072)};
    std::size_t sizes[] = {1000, 24};
    CHECK(copy_list(to, from, sizes, 2, cudaStreamLegacy) != cudaSuccess);
    static_cast<void>(cudaGetLastError());
    CUDA_OK(cudaMemset(memory, 0, 4096));
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(copy_list(to, from, sizes, 2, cudaStreamPerThread));
    CUDA_OK(cudaStreamSynchronize(cudaStreamPerThread));
}

// ---- pinned, managed, registered --------------------------------------------------------------------------

PROBE("pinned memory is the host's and the device's at one address") {
    pinned_bytes host(4096);
    void* device = nullptr;
    CUDA_OK(cudaHostGetDevicePointer(&device, host, 0));
    CHECK(device == static_cast<void*>(host));
    host[0] = 3;
    CUDA_OK(cudaMemset(host, 4, 1));
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(host[0] == 4);
}

PROBE("every flag of pinned memory gives memory") {
    for (unsigned const flags : {unsigned(cudaHostAllocDefault), unsigned(cudaHostAllocPortable),
                                 unsigned(cudaHostAllocMapped), unsigned(cudaHostAllocWriteCombined)}) {
        void* p = nullptr;
        CUDA_OK(cudaHostAlloc(&p, 1000, flags));
        CHECK(p != nullptr);
        CUDA_OK(cudaFreeHost(p));
    }
}

PROBE("unknown flags of pinned memory are refused") {
    void* p = nullptr;
    CUDA_IS(cudaErrorInvalidValue, cudaHostAlloc(&p, 1000, 0xff00u));
    static_cast<void>(cudaGetLastError());
}

PROBE("freeing null pinned memory is nothing") {
    CUDA_OK(cudaFreeHost(nullptr));
}

PROBE("freeing pinned memory that is none is an invalid value") {
    static int not_pinned = 0;
    CUDA_IS(cudaErrorInvalidValue, cudaFreeHost(&not_pinned));
    static_cast<void>(cudaGetLastError());
}

PROBE("a second free of pinned memory is an invalid value") {
    void* p = nullptr;
    CUDA_MUST(cudaMallocHost(&p, 4096));
    CUDA_OK(cudaFreeHost(p));
    CUDA_IS(cudaErrorInvalidValue, cudaFreeHost(p));
    static_cast<void>(cudaGetLastError());
}

PROBE("pinned memory tells its flags") {
    void* p = nullptr;
    unsigned flags = 0;
    CUDA_MUST(cudaHostAlloc(&p, 4096, cudaHostAllocWriteCombined));
    CUDA_OK(cudaHostGetFlags(&flags, p));
    CHECK((flags & cudaHostAllocWriteCombined) != 0);
    CUDA_OK(cudaFreeHost(p));
}

PROBE("no managed bytes are no error") {
    void* p = nullptr;
    CUDA_OK(cudaMallocManaged(&p, 0, cudaMemAttachGlobal));
    CUDA_OK(cudaFree(p));
}

PROBE("managed memory is written on either side") {
    void* p = nullptr;
    CUDA_MUST(cudaMallocManaged(&p, 4096, cudaMemAttachGlobal));
    auto* const bytes = static_cast<unsigned char*>(p);
    bytes[0] = 1;
    CUDA_OK(cudaMemset(p, 6, 4096));
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(bytes[0] == 6);
    bytes[0] = 7;
    CHECK(first_byte(p) == 7);
    CUDA_OK(cudaFree(p));
}

PROBE("registered memory is pinned memory until it is unregistered") {
    std::vector<unsigned char> memory(3 * 4096);
    auto* const page = reinterpret_cast<unsigned char*>(
        (reinterpret_cast<std::uintptr_t>(memory.data()) + 4095) / 4096 * 4096);
    cudaPointerAttributes attributes{};
    CUDA_MUST(cudaHostRegister(page, 4096, cudaHostRegisterDefault));
    CUDA_OK(cudaPointerGetAttributes(&attributes, page));
    CHECK(attributes.type == cudaMemoryTypeHost);
    CUDA_OK(cudaHostUnregister(page));
    CUDA_OK(cudaPointerGetAttributes(&attributes, page));
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
}

PROBE("memory is registered once") {
    std::vector<unsigned char> memory(3 * 4096);
    auto* const page = reinterpret_cast<unsigned char*>(
        (reinterpret_cast<std::uintptr_t>(memory.data()) + 4095) / 4096 * 4096);
    CUDA_MUST(cudaHostRegister(page, 4096, cudaHostRegisterDefault));
    CUDA_IS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(page, 4096, cudaHostRegisterDefault));
    static_cast<void>(cudaGetLastError());
    CUDA_OK(cudaHostUnregister(page));
    CUDA_IS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(page));
    static_cast<void>(cudaGetLastError());
}

// ---- pointers ---------------------------------------------------------------------------------------------

PROBE("a device address tells its device, at its start and inside") {
    device_bytes memory(4096);
    for (std::size_t const offset : {std::size_t(0), std::size_t(100)}) {
        cudaPointerAttributes attributes{};
        CUDA_OK(cudaPointerGetAttributes(&attributes, memory.at(offset)));
        CHECK(attributes.type == cudaMemoryTypeDevice);
        CHECK(attributes.device == 0);
        CHECK(attributes.devicePointer == memory.at(offset));
        CHECK(attributes.hostPointer == nullptr);
    }
}

PROBE("a pinned address is the host's") {
    pinned_bytes host(4096);
    cudaPointerAttributes attributes{};
    CUDA_OK(cudaPointerGetAttributes(&attributes, host));
    CHECK(attributes.type == cudaMemoryTypeHost);
    CHECK(attributes.hostPointer == static_cast<void*>(host));
    CHECK(attributes.devicePointer == static_cast<void*>(host));
}

PROBE("a managed address is both's") {
    void* p = nullptr;
    CUDA_MUST(cudaMallocManaged(&p, 4096, cudaMemAttachGlobal));
    cudaPointerAttributes attributes{};
    CUDA_OK(cudaPointerGetAttributes(&attributes, p));
    CHECK(attributes.type == cudaMemoryTypeManaged);
    CHECK(attributes.hostPointer == p);
    CHECK(attributes.devicePointer == p);
    CUDA_OK(cudaFree(p));
}

PROBE("an address of the heap is unregistered, which is no error") {
    auto const heap = std::make_unique<int>(1);
    cudaPointerAttributes attributes{};
    CUDA_OK(cudaPointerGetAttributes(&attributes, heap.get()));
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
}

// ---- devices and errors -----------------------------------------------------------------------------------

PROBE("there is a device, and the first is current") {
    int count = 0;
    int device = -1;
    CUDA_OK(cudaGetDeviceCount(&count));
    CHECK(count >= 1);
    CUDA_OK(cudaGetDevice(&device));
    CHECK(device == 0);
}

PROBE("a device that is not there is refused and changes nothing") {
    int count = 0;
    int device = -1;
    CUDA_OK(cudaGetDeviceCount(&count));
    CUDA_IS(cudaErrorInvalidDevice, cudaSetDevice(count));
    CUDA_IS(cudaErrorInvalidDevice, cudaSetDevice(-1));
    static_cast<void>(cudaGetLastError());
    CUDA_OK(cudaGetDevice(&device));
    CHECK(device == 0);
}

PROBE("the last error is told once, and a look leaves it") {
    CUDA_IS(cudaErrorInvalidDevice, cudaSetDevice(-1));
    CUDA_IS(cudaErrorInvalidDevice, cudaPeekAtLastError());
    CUDA_IS(cudaErrorInvalidDevice, cudaPeekAtLastError());
    CUDA_IS(cudaErrorInvalidDevice, cudaGetLastError());
    CUDA_OK(cudaGetLastError());
}

PROBE("a success leaves the last error as it was") {
    CUDA_IS(cudaErrorInvalidDevice, cudaSetDevice(-1));
    CUDA_OK(cudaFree(nullptr));
    CUDA_IS(cudaErrorInvalidDevice, cudaGetLastError());
}

PROBE("the last error is the thread's own") {
    CUDA_IS(cudaErrorInvalidDevice, cudaSetDevice(-1));
    cudaError_t elsewhere = cudaErrorUnknown;
    std::thread([&] { elsewhere = cudaGetLastError(); }).join();
    CUDA_OK(elsewhere);
    CUDA_IS(cudaErrorInvalidDevice, cudaGetLastError());
}

PROBE("errors have names and texts") {
    CHECK(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
    CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
    CHECK(std::string(cudaGetErrorString(cudaErrorInvalidValue)) == "invalid argument");
    CHECK(std::string(cudaGetErrorString(cudaErrorNotReady)) == "device not ready");
    CHECK(std::string(cudaGetErrorString(cudaSuccess)) == "no error");
}

PROBE("an error that is none is said to be so") {
    CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))) == "unrecognized error code");
    CHECK(std::string(cudaGetErrorString(static_cast<cudaError_t>(12345))) == "unrecognized error code");
}

PROBE("the driver is no older than the runtime") {
    int driver = 0;
    int runtime = 0;
    CUDA_OK(cudaDriverGetVersion(&driver));
    CUDA_OK(cudaRuntimeGetVersion(&runtime));
    CHECK(runtime == CUDART_VERSION);
    CHECK(driver >= runtime / 1000 * 1000);
}

PROBE("attributes say what a pool must know") {
    int value = 0;
    CUDA_OK(cudaDeviceGetAttribute(&value, cudaDevAttrUnifiedAddressing, 0));
    CHECK(value == 1);
    CUDA_OK(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 0));
    CHECK(value == 1);
    CUDA_OK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
    CHECK(value == 32);
    CUDA_OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    CHECK(value > 0);
    CUDA_IS(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1000));
    static_cast<void>(cudaGetLastError());
}

PROBE("properties agree with attributes") {
    cudaDeviceProp properties;
    int value = 0;
    CUDA_OK(cudaGetDeviceProperties(&properties, 0));
    CHECK(properties.totalGlobalMem > 0);
    CUDA_OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    CHECK(properties.multiProcessorCount == value);
    CUDA_OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(properties.major == value);
}
