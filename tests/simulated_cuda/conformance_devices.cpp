// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The driver's virtual memory, and several devices. See conformance.hpp.

#include "conformance.hpp"
#include "conformance_capture.hpp"

#include <cuda.h>
#include <thread>
#include <vector>

using namespace conformance;

namespace {

constexpr std::size_t MiB = std::size_t(1) << 20;

} // namespace

namespace {

template <class Function>
Function* driver_function(char const* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    CUDA_OK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess);
    REQUIRE(function != nullptr);
    return reinterpret_cast<Function*>(function);
}

struct virtual_functions {
    decltype(cuMemAddressReserve)* reserve =
        driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
    decltype(cuMemAddressFree)* unreserve = driver_function<decltype(cuMemAddressFree)>("cuMemAddressFree");
    decltype(cuMemCreate)* create = driver_function<decltype(cuMemCreate)>("cuMemCreate");
    decltype(cuMemRelease)* release = driver_function<decltype(cuMemRelease)>("cuMemRelease");
    decltype(cuMemRetainAllocationHandle)* retain =
        driver_function<decltype(cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle");
    decltype(cuMemGetAllocationPropertiesFromHandle)* properties_of =
        driver_function<decltype(cuMemGetAllocationPropertiesFromHandle)>("cuMemGetAllocationPropertiesFromHandle");
    decltype(cuMemMap)* map = driver_function<decltype(cuMemMap)>("cuMemMap");
    decltype(cuMemUnmap)* unmap = driver_function<decltype(cuMemUnmap)>("cuMemUnmap");
    decltype(cuMemSetAccess)* set_access = driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess");
    decltype(cuMemGetAccess)* get_access = driver_function<decltype(cuMemGetAccess)>("cuMemGetAccess");
    decltype(cuMemGetAllocationGranularity)* granularity =
        driver_function<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");

    CUmemAllocationProp properties{};
    CUmemAccessDesc access{};
    std::size_t step = 0;

    virtual_functions() {
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location = properties.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        CHECK(granularity(&step, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
    }

    CUmemAccessDesc access_of(int device, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) const {
        CUmemAccessDesc one = access;
        one.location.id = device;
        one.flags = flags;
        return one;
    }
    bool open_to(int device, CUdeviceptr at) const {
        CUmemLocation const location = access_of(device).location;
        unsigned long long flags = ~0ull;
        CHECK(get_access(&flags, &location, at) == CUDA_SUCCESS);
        CHECK((flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    void map_fresh(CUdeviceptr at) const {
        CUmemGenericAllocationHandle handle{};
        REQUIRE(create(&handle, step, &properties, 0) == CUDA_SUCCESS);
        REQUIRE(map(at, step, 0, handle, 0) == CUDA_SUCCESS);
        REQUIRE(release(handle) == CUDA_SUCCESS);
    }
};

bool two_peers() {
    int able = 0;
    if (two_devices())
        CUDA_OK(cudaDeviceCanAccessPeer(&able, 1, 0));
    return able != 0;
}

} // namespace

PROBE("virtual memory comes in steps of 2 MiB") {
    virtual_functions driver;
    CHECK(driver.step == 2 * MiB);
    CUmemGenericAllocationHandle handle{};
    CHECK(driver.create(&handle, driver.step + 4096, &driver.properties, 0) == CUDA_ERROR_INVALID_VALUE);
}

PROBE("memory of cudaMalloc has no handle, and is said to be closed to the other device, which copies it all the same") {
    virtual_functions driver;
    void* plain = nullptr;
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaMalloc(&plain, 4096));
    CUmemGenericAllocationHandle handle{};
    CHECK(driver.retain(&handle, plain) == CUDA_ERROR_INVALID_VALUE);
    if (two_peers())
        CHECK(!driver.open_to(1, reinterpret_cast<CUdeviceptr>(plain)));
    CUDA_OK(cudaFree(plain));
}

PROBE("a driver function that is none is said to be so") {
    void* function = &function;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;
    CUDA_OK(
        cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &function, 12000, cudaEnableDefault, &found));
    CHECK(found == cudaDriverEntryPointSymbolNotFound);
    CHECK(function == nullptr);
}

PROBE("a device has no context before it is made current for the first time") {
    auto* const state_of = driver_function<decltype(cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState");
    int devices = 0;
    CUDA_OK(cudaGetDeviceCount(&devices));
    CUDA_OK(cudaSetDevice(0));
    for (int each = 0; each < devices; ++each) {
        unsigned flags = 0;
        int before = -1;
        int after = -1;
        CHECK(state_of(each, &flags, &before) == CUDA_SUCCESS);
        CHECK((before == 1 || each != 0)); // probes may have used the others
        CUDA_OK(cudaSetDevice(each));
        CHECK(state_of(each, &flags, &after) == CUDA_SUCCESS);
        CHECK(after == 1);
    }
    CUDA_OK(cudaSetDevice(0));
    unsigned flags = 0;
    int active = 0;
    CHECK(state_of(devices, &flags, &active) == CUDA_ERROR_INVALID_DEVICE);
}

PROBE("memory is mapped at reserved addresses, and used") {
    virtual_functions driver;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle first{};
    CUmemGenericAllocationHandle second{};
    REQUIRE(driver.reserve(&at, 4 * driver.step, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(driver.create(&first, driver.step, &driver.properties, 0) == CUDA_SUCCESS);
    REQUIRE(driver.create(&second, driver.step, &driver.properties, 0) == CUDA_SUCCESS);
    CHECK(driver.map(at, driver.step, 0, first, 0) == CUDA_SUCCESS);
    CHECK(driver.map(at + driver.step, driver.step, 0, second, 0) == CUDA_SUCCESS);
    CHECK(driver.set_access(at, 2 * driver.step, &driver.access, 1) == CUDA_SUCCESS);
    auto* const memory = reinterpret_cast<char*>(at);
    CUDA_OK(cudaMemset(memory, 1, driver.step));
    CUDA_OK(cudaMemset(memory + driver.step, 2, driver.step));
    CHECK(first_byte(memory + driver.step - 1) == 1);
    CHECK(first_byte(memory + driver.step) == 2);
    CHECK(driver.unmap(at, 2 * driver.step) == CUDA_SUCCESS);
    CHECK(driver.release(first) == CUDA_SUCCESS);
    CHECK(driver.release(second) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, 4 * driver.step) == CUDA_SUCCESS);
}

PROBE("the memory behind an address can be named, and mapped at another as well") {
    virtual_functions driver;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle made{};
    CUmemGenericAllocationHandle named{};
    REQUIRE(driver.reserve(&at, 4 * driver.step, 0, 0, 0) == CUDA_SUCCESS);
    auto* const memory = reinterpret_cast<char*>(at);
    CHECK(driver.retain(&named, memory) == CUDA_ERROR_INVALID_VALUE); // there is none
    REQUIRE(driver.create(&made, 2 * driver.step, &driver.properties, 0) == CUDA_SUCCESS);
    REQUIRE(driver.map(at, 2 * driver.step, 0, made, 0) == CUDA_SUCCESS);
    REQUIRE(driver.set_access(at, 2 * driver.step, &driver.access, 1) == CUDA_SUCCESS);
    CHECK(driver.release(made) == CUDA_SUCCESS);
    CHECK(driver.retain(&named, memory + driver.step + 7) == CUDA_SUCCESS); // any of its bytes
    CHECK(named == made);
    CHECK(driver.map(at + 2 * driver.step, 2 * driver.step, 0, named, 0) == CUDA_SUCCESS);
    CHECK(driver.release(named) == CUDA_SUCCESS);
    CHECK(driver.set_access(at + 2 * driver.step, 2 * driver.step, &driver.access, 1) == CUDA_SUCCESS);
    CUDA_OK(cudaMemset(memory, 3, driver.step));
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(first_byte(memory + 2 * driver.step) == 3);
    CHECK(driver.unmap(at, 2 * driver.step) == CUDA_SUCCESS);
    CHECK(first_byte(memory + 2 * driver.step) == 3);
    CHECK(driver.unmap(at + 2 * driver.step, 2 * driver.step) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, 4 * driver.step) == CUDA_SUCCESS);
}

PROBE("memory tells as what it may be exported") {
    virtual_functions driver;
    for (CUmemAllocationHandleType const types : {CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) {
        driver.properties.requestedHandleTypes = types;
        CUmemGenericAllocationHandle memory = 0;
        REQUIRE(driver.create(&memory, driver.step, &driver.properties, 0) == CUDA_SUCCESS);
        CUmemAllocationProp told{};
        CHECK(driver.properties_of(&told, memory) == CUDA_SUCCESS);
        CHECK(told.requestedHandleTypes == types);
        CHECK(told.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
        CHECK(told.location.id == 0);
        CHECK(driver.release(memory) == CUDA_SUCCESS);
    }
}

PROBE("fills and copies go across maps that lie side by side, and not beyond them") {
    virtual_functions driver;
    CUdeviceptr at = 0;
    REQUIRE(driver.reserve(&at, 4 * driver.step, 0, 0, 0) == CUDA_SUCCESS);
    for (CUdeviceptr each : {at, at + driver.step, at + 2 * driver.step}) {
        CUmemGenericAllocationHandle handle{};
        REQUIRE(driver.create(&handle, driver.step, &driver.properties, 0) == CUDA_SUCCESS);
        REQUIRE(driver.map(each, driver.step, 0, handle, 0) == CUDA_SUCCESS);
        REQUIRE(driver.release(handle) == CUDA_SUCCESS);
        REQUIRE(driver.set_access(each, driver.step, &driver.access, 1) == CUDA_SUCCESS);
    }
    auto* const memory = reinterpret_cast<char*>(at);
    std::size_t const half = driver.step / 2;
    CUDA_OK(cudaMemset(memory + half, 5, 2 * driver.step));
    CHECK(first_byte(memory + 2 * driver.step) == 5);
    std::vector<char> there(2 * driver.step, 6);
    CUDA_OK(cudaMemcpy(memory + half, there.data(), there.size(), cudaMemcpyDefault));
    CUDA_OK(cudaMemcpy(there.data(), memory + half, there.size(), cudaMemcpyDeviceToHost));
    CHECK(there.back() == 6);
    CHECK(cudaMemset(memory + half, 5, 3 * driver.step) == cudaErrorInvalidValue);
    static_cast<void>(cudaGetLastError());
    CHECK(driver.unmap(at, 3 * driver.step) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, 4 * driver.step) == CUDA_SUCCESS);
}

PROBE("mapping neither fails during a capture nor breaks it") {
    virtual_functions driver;
    CUdeviceptr at = 0;
    REQUIRE(driver.reserve(&at, driver.step, 0, 0, 0) == CUDA_SUCCESS);
    auto const there_and_back = [&] {
        CUmemGenericAllocationHandle handle{};
        CHECK(driver.create(&handle, driver.step, &driver.properties, 0) == CUDA_SUCCESS);
        CHECK(driver.map(at, driver.step, 0, handle, 0) == CUDA_SUCCESS);
        CHECK(driver.release(handle) == CUDA_SUCCESS);
        CHECK(driver.set_access(at, driver.step, &driver.access, 1) == CUDA_SUCCESS);
        CHECK(driver.retain(&handle, reinterpret_cast<void*>(at)) == CUDA_SUCCESS);
        CHECK(driver.release(handle) == CUDA_SUCCESS);
        CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
    };
    cudaStream_t stream = nullptr;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    there_and_back();
    std::thread(there_and_back).join();
    cudaGraph_t graph = nullptr;
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
    CHECK(driver.unreserve(at, driver.step) == CUDA_SUCCESS);
}

PROBE("memory mapped elsewhere keeps its bytes") {
    virtual_functions driver;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle{};
    REQUIRE(driver.reserve(&at, 2 * driver.step, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(driver.create(&handle, driver.step, &driver.properties, 0) == CUDA_SUCCESS);
    REQUIRE(driver.map(at, driver.step, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(driver.set_access(at, driver.step, &driver.access, 1) == CUDA_SUCCESS);
    CUDA_OK(cudaMemset(reinterpret_cast<void*>(at), 17, driver.step));
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
    CHECK(driver.map(at + driver.step, driver.step, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(driver.set_access(at + driver.step, driver.step, &driver.access, 1) == CUDA_SUCCESS);
    CHECK(driver.release(handle) == CUDA_SUCCESS); // a map keeps it alive
    CHECK(first_byte(reinterpret_cast<void*>(at + driver.step)) == 17);
    CHECK(driver.unmap(at + driver.step, driver.step) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, 2 * driver.step) == CUDA_SUCCESS);
}

PROBE("a graph uses whatever memory is mapped behind its addresses when it runs, and unmapping nothing is no error") {
    virtual_functions driver;
    CUdeviceptr at = 0;
    REQUIRE(driver.reserve(&at, driver.step, 0, 0, 0) == CUDA_SUCCESS);
    auto const map_fresh = [&] {
        CUmemGenericAllocationHandle handle{};
        REQUIRE(driver.create(&handle, driver.step, &driver.properties, 0) == CUDA_SUCCESS);
        REQUIRE(driver.map(at, driver.step, 0, handle, 0) == CUDA_SUCCESS);
        REQUIRE(driver.release(handle) == CUDA_SUCCESS);
        REQUIRE(driver.set_access(at, driver.step, &driver.access, 1) == CUDA_SUCCESS);
    };
    map_fresh();
    auto* const memory = reinterpret_cast<char*>(at);
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t launchable = nullptr;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA_OK(cudaMemsetAsync(memory, 23, driver.step, stream));
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&launchable, graph, 0));
    for (int i = 0; i < 3; ++i) {
        CUDA_OK(cudaMemset(memory, 1, driver.step));
        CUDA_OK(cudaDeviceSynchronize());
        CUDA_OK(cudaGraphLaunch(launchable, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        CHECK(first_byte(memory + driver.step - 1) == 23);
        CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
        CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
        map_fresh();
    }
    CUDA_OK(cudaGraphExecDestroy(launchable));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
    CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, driver.step) == CUDA_SUCCESS);
}

PROBE("addresses are mapped once") {
    virtual_functions driver;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle{};
    REQUIRE(driver.reserve(&at, driver.step, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(driver.create(&handle, driver.step, &driver.properties, 0) == CUDA_SUCCESS);
    CHECK(driver.map(at, driver.step, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(driver.map(at, driver.step, 0, handle, 0) != CUDA_SUCCESS);
    CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
    CHECK(driver.release(handle) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, driver.step) == CUDA_SUCCESS);
}

PROBE("mapped memory is open to nobody at first, and to no device that there is not") {
    virtual_functions driver;
    CUdeviceptr at = 0;
    int devices = 0;
    CUDA_OK(cudaGetDeviceCount(&devices));
    REQUIRE(driver.reserve(&at, driver.step, 0, 0, 0) == CUDA_SUCCESS);
    CHECK(driver.set_access(at, driver.step, &driver.access, 1) == CUDA_ERROR_INVALID_VALUE); // nothing is mapped
    driver.map_fresh(at);
    CHECK_FALSE(driver.open_to(0, at));
    CUmemAccessDesc const unknown = driver.access_of(devices);
    CHECK(driver.set_access(at, driver.step, &unknown, 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(driver.set_access(at, driver.step, &driver.access, 1) == CUDA_SUCCESS);
    CHECK(driver.open_to(0, at));
    CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
    driver.map_fresh(at);
    CHECK_FALSE(driver.open_to(0, at)); // access went with the mapping
    CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, driver.step) == CUDA_SUCCESS);
}

// ---- several devices --------------------------------------------------------------------------------------

PROBE("a thread begins with the first device") {
    if (!two_devices())
        return;
    CUDA_OK(cudaSetDevice(1));
    int elsewhere = -1;
    std::thread([&] { static_cast<void>(cudaGetDevice(&elsewhere)); }).join();
    CHECK(elsewhere == 0);
    int here = -1;
    CUDA_OK(cudaGetDevice(&here));
    CHECK(here == 1);
    CUDA_OK(cudaSetDevice(0));
}

PROBE("memory and streams belong to the device that was current") {
    if (!two_devices())
        return;
    CUDA_OK(cudaSetDevice(1));
    {
        device_bytes memory(4096);
        stream work;
        CUDA_OK(cudaSetDevice(0));
        cudaPointerAttributes attributes{};
        CUDA_OK(cudaPointerGetAttributes(&attributes, memory));
        CHECK(attributes.device == 1);
        int device = -1;
        CUDA_OK(cudaStreamGetDevice(work, &device));
        CHECK(device == 1);
    }
    CUDA_OK(cudaSetDevice(0));
}

PROBE("an event is recorded on streams of its own device alone") {
    if (!two_devices())
        return;
    event here;
    CUDA_OK(cudaSetDevice(1));
    {
        stream there;
        CUDA_IS(cudaErrorInvalidResourceHandle, cudaEventRecord(here, there));
        static_cast<void>(cudaGetLastError());
    }
    CUDA_OK(cudaSetDevice(0));
}

PROBE("an event of another device is refused on a captured stream, too, which breaks no capture") {
    if (!two_devices())
        return;
    event here;
    CUDA_OK(cudaSetDevice(1));
    {
        stream there;
        event of_it;
        CUDA_OK(cudaStreamBeginCapture(there, cudaStreamCaptureModeThreadLocal));
        CUDA_IS(cudaErrorInvalidResourceHandle, cudaEventRecord(here, there));
        static_cast<void>(cudaGetLastError());
        CUDA_OK(cudaEventRecord(of_it, there));
        cudaGraph_t graph = nullptr;
        CUDA_OK(cudaStreamEndCapture(there, &graph));
        CUDA_OK(cudaGraphDestroy(graph));
    }
    CUDA_OK(cudaSetDevice(0));
}

PROBE("a stream waits for an event of another device") {
    if (!two_devices())
        return;
    stream here;
    event handed;
    CUDA_OK(cudaSetDevice(1));
    {
        stream there;
        event done;
        gate closed(here);
        CUDA_OK(cudaEventRecord(handed, here));
        CUDA_OK(cudaStreamWaitEvent(there, handed, 0));
        CUDA_OK(cudaEventRecord(done, there));
        CUDA_IS(cudaErrorNotReady, cudaEventQuery(done));
        static_cast<void>(cudaGetLastError());
        closed.open();
        CUDA_OK(cudaEventSynchronize(done));
    }
    CUDA_OK(cudaSetDevice(0));
}

PROBE("each device has a legacy stream") {
    if (!two_devices())
        return;
    gate closed(cudaStreamLegacy);
    unsigned long long here = 0;
    unsigned long long there = 0;
    CUDA_OK(cudaStreamGetId(cudaStreamLegacy, &here));
    CUDA_OK(cudaSetDevice(1));
    CUDA_OK(cudaStreamGetId(cudaStreamLegacy, &there));
    CHECK(here != there);
    CUDA_OK(cudaStreamSynchronize(cudaStreamLegacy));
    CUDA_OK(cudaSetDevice(0));
}

PROBE("bytes go from device to device") {
    if (!two_devices())
        return;
    stream work;
    device_bytes here(4096);
    CUDA_OK(cudaMemset(here, 55, 4096));
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaSetDevice(1));
    {
        device_bytes there(4096);
        CUDA_OK(cudaMemcpyPeerAsync(there, 1, here, 0, 4096, work));
        CUDA_OK(cudaStreamSynchronize(work));
        CHECK(first_byte(there) == 55);
    }
    CUDA_OK(cudaSetDevice(0));
}

PROBE("mapped memory is open to each device that was named, and a later call changes only those that it names") {
    if (!two_peers())
        return;
    virtual_functions driver;
    CUdeviceptr at = 0;
    REQUIRE(driver.reserve(&at, driver.step, 0, 0, 0) == CUDA_SUCCESS);
    driver.map_fresh(at);
    CHECK(driver.set_access(at, driver.step, &driver.access, 1) == CUDA_SUCCESS);
    CHECK(driver.open_to(0, at));
    CHECK_FALSE(driver.open_to(1, at));
    CUmemAccessDesc const there = driver.access_of(1);
    CHECK(driver.set_access(at, driver.step, &there, 1) == CUDA_SUCCESS);
    CHECK(driver.open_to(0, at));
    CHECK(driver.open_to(1, at));
    CUmemAccessDesc const no_more = driver.access_of(1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK(driver.set_access(at, driver.step, &no_more, 1) == CUDA_SUCCESS);
    CHECK(driver.open_to(0, at));
    CHECK_FALSE(driver.open_to(1, at));
    CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, driver.step) == CUDA_SUCCESS);
}

PROBE("a device uses mapped memory of another that is open to it, and is let in anew where the memory is mapped anew") {
    if (!two_peers())
        return;
    virtual_functions driver;
    CUmemAccessDesc const both[] = {driver.access_of(0), driver.access_of(1)};
    CUdeviceptr at = 0;
    REQUIRE(driver.reserve(&at, 2 * driver.step, 0, 0, 0) == CUDA_SUCCESS);
    driver.map_fresh(at);
    CHECK(driver.set_access(at, driver.step, both, 2) == CUDA_SUCCESS);
    CUDA_OK(cudaSetDevice(1));
    {
        stream there;
        CUDA_OK(cudaMemsetAsync(reinterpret_cast<void*>(at), 31, driver.step, there));
        CUDA_OK(cudaStreamSynchronize(there));
        // The same memory at other addresses: what it was open to there is of no account.
        CUmemGenericAllocationHandle named{};
        REQUIRE(driver.retain(&named, reinterpret_cast<void*>(at)) == CUDA_SUCCESS);
        CHECK(driver.map(at + driver.step, driver.step, 0, named, 0) == CUDA_SUCCESS);
        CHECK(driver.release(named) == CUDA_SUCCESS);
        CHECK_FALSE(driver.open_to(1, at + driver.step));
        CHECK(driver.set_access(at + driver.step, driver.step, both, 2) == CUDA_SUCCESS);
        CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
        CHECK(first_byte(reinterpret_cast<void*>(at + driver.step)) == 31);
    }
    CUDA_OK(cudaSetDevice(0));
    CHECK(driver.unmap(at + driver.step, driver.step) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, 2 * driver.step) == CUDA_SUCCESS);
}

PROBE("a copy wants mapped memory, and that of a driver's pool, open to the current device; a fill and a peer's copy do not") {
    if (!two_devices())
        return;
    virtual_functions driver;
    CUdeviceptr at = 0;
    REQUIRE(driver.reserve(&at, driver.step, 0, 0, 0) == CUDA_SUCCESS);
    driver.map_fresh(at);
    CHECK(driver.set_access(at, driver.step, &driver.access, 1) == CUDA_SUCCESS);
    {
        stream here;
        void* pooled = nullptr;
        CUDA_OK(cudaMallocAsync(&pooled, 4096, here));
        CUDA_OK(cudaStreamSynchronize(here));
        device_bytes plain(4096);
        unsigned char host[16] = {};
        CUDA_OK(cudaSetDevice(1));
        device_bytes there(4096);
        for (void* const memory : {reinterpret_cast<void*>(at), pooled}) {
            auto* const other = static_cast<char*>(memory) + 1024;
            CUDA_IS(cudaErrorInvalidValue, cudaMemcpyAsync(memory, host, 16, cudaMemcpyDefault, here));
            CUDA_IS(cudaErrorInvalidValue, cudaMemcpyAsync(host, memory, 16, cudaMemcpyDefault, here));
            CUDA_IS(cudaErrorInvalidValue, cudaMemcpyAsync(memory, other, 16, cudaMemcpyDefault, here));
            CUDA_IS(cudaErrorInvalidValue, cudaMemcpyAsync(there, memory, 16, cudaMemcpyDefault, here));
            CUDA_OK(cudaMemsetAsync(memory, 77, 16, here));
            CUDA_OK(cudaMemcpyPeerAsync(other, 0, memory, 0, 16, here));
            CUDA_OK(cudaMemcpyPeerAsync(there, 1, other, 0, 16, here));
            CUDA_OK(cudaStreamSynchronize(here));
            CHECK(first_byte(there) == 77);
            CUDA_OK(cudaMemset(there, 0, 16));
            CUDA_OK(cudaDeviceSynchronize());
        }
        CUDA_OK(cudaMemcpyAsync(plain, host, 16, cudaMemcpyDefault, here)); // memory of cudaMalloc
        CUDA_OK(cudaStreamSynchronize(here));
        CUDA_OK(cudaSetDevice(0));
        CUDA_OK(cudaFreeAsync(pooled, here));
        CUDA_OK(cudaStreamSynchronize(here));
    }
    CHECK(driver.unmap(at, driver.step) == CUDA_SUCCESS);
    CHECK(driver.unreserve(at, driver.step) == CUDA_SUCCESS);
}

PROBE("a copy from device to device that names them breaks a capture") {
    if (!two_devices())
        return;
    stream work;
    device_bytes here(4096);
    CUDA_OK(cudaSetDevice(1));
    {
        device_bytes there(4096);
        CUDA_OK(cudaSetDevice(0));
        capture graph(work);
        CUDA_IS(cudaErrorStreamCaptureUnsupported, cudaMemcpyPeerAsync(there, 1, here, 0, 4096, work));
        is_broken(work, graph);
        static_cast<void>(cudaGetLastError());
    }
}

PROBE("each device has a default pool") {
    if (!two_devices())
        return;
    cudaMemPool_t one = nullptr;
    cudaMemPool_t other = nullptr;
    CUDA_OK(cudaDeviceGetDefaultMemPool(&one, 0));
    CUDA_OK(cudaDeviceGetDefaultMemPool(&other, 1));
    CHECK(one != other);
}

PROBE("stream-ordered memory is of its stream's device") {
    if (!two_devices())
        return;
    CUDA_OK(cudaSetDevice(1));
    {
        stream there;
        CUDA_OK(cudaSetDevice(0));
        void* p = nullptr;
        CUDA_OK(cudaMallocAsync(&p, 4096, there));
        cudaPointerAttributes attributes{};
        CUDA_OK(cudaPointerGetAttributes(&attributes, p));
        CHECK(attributes.device == 1);
        CUDA_OK(cudaFreeAsync(p, there));
        CUDA_OK(cudaStreamSynchronize(there));
    }
    CUDA_OK(cudaSetDevice(0));
}
