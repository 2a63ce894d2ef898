// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Findings about CUDA's own objects: handles, devices, host functions, gates, pinned and stream-ordered
// memory, graphs, virtual memory. Pools are in reports.cpp.

#include "reports.hpp"

#include <cstring>
#include <cuda.h>

using namespace reporting;

namespace {

cudaGraph_t end_capture(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    return graph;
}

// A graph with a block of its own.
void launch_and_destroy(stage& on) {
    REQUIRE(cudaStreamBeginCapture(on.a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    on.allocate(on.a);
    on.write(on.a);
    on.free(on.a);
    cudaGraph_t const graph = end_capture(on.a);
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, on.a) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
}

} // namespace

TEST_CASE("reports: handles after their end") {
    finds(finding::destroyed_handle, [](stage& on) {
        CHECK(cudaStreamDestroy(on.a) == cudaSuccess);
        CHECK(cudaStreamQuery(on.a) == cudaErrorInvalidResourceHandle);
    });
    finds(finding::destroyed_handle, [](stage& on) {
        CHECK(cudaEventDestroy(on.event) == cudaSuccess);
        CHECK(cudaEventRecord(on.event, on.a) == cudaErrorInvalidResourceHandle);
    });
}

TEST_CASE("reports: another device's memory") {
    sim::world world(sim::config{}.with_devices(2));
    cudaStream_t stream = nullptr;
    void* p = nullptr;
    CHECK(cudaStreamCreate(&stream) == cudaSuccess);
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CHECK(cudaMalloc(&p, 256) == cudaSuccess);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    CHECK(sim::launch(stream, {}, {{p, 256}}) == cudaSuccess);
    CHECK(sim::reports(finding::wrong_device).size() == 1);
    sim::clear_reports();
    CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess);
    CHECK(sim::launch(stream, {}, {{p, 256}}) == cudaSuccess);
    CHECK(sim::reports().empty());
    world.forgive();
}

TEST_CASE("reports: a host function that calls CUDA") {
    finds(finding::host_access, [](stage& on) {
        CHECK(cudaLaunchHostFunc(
                  on.a, [](void*) { static_cast<void>(cudaFree(nullptr)); }, nullptr) == cudaSuccess);
        sim::drain();
    });
}

TEST_CASE("reports: a user object that is never released, and one whose function calls CUDA") {
    sim::world world;
    cudaUserObject_t object = nullptr;
    CHECK(cudaUserObjectCreate(&object, nullptr, [](void*) {}, 1, cudaUserObjectNoDestructorSync) == cudaSuccess);
    cudaUserObject_t calls = nullptr;
    CHECK(cudaUserObjectCreate(&calls, nullptr, [](void*) { static_cast<void>(cudaFree(nullptr)); }, 1,
                               cudaUserObjectNoDestructorSync) == cudaSuccess);
    CHECK(cudaUserObjectRelease(calls, 1) == cudaSuccess);
    for (int turns = 0; turns < 1000 && sim::reports(finding::host_access).empty(); ++turns)
        CHECK(cudaStreamQuery(nullptr) == cudaSuccess);
    CHECK(sim::reports(finding::host_access).size() == 1);
    bool found = false;
    for (sim::report const& each : world.finish())
        found |= each.kind == finding::leak && each.sentence == "a user object was never released";
    CHECK(found);
}

TEST_CASE("reports: a reference to a user object that is given away twice") {
    finds(finding::bad_free, [](stage&) {
        cudaUserObject_t object = nullptr;
        CHECK(cudaUserObjectCreate(&object, nullptr, [](void*) {}, 1, cudaUserObjectNoDestructorSync) == cudaSuccess);
        CHECK(cudaUserObjectRelease(object, 1) == cudaSuccess);
        CHECK(cudaUserObjectRelease(object, 1) == cudaErrorInvalidValue);
    });
}

TEST_CASE("reports: a wait that nothing can end") {
    sim::config settings;
    settings.watchdog_seconds = 0;
    sim::world world(settings);
    sim::gate gate;
    CHECK(gate.close(nullptr) == cudaSuccess);
    CHECK(cudaStreamSynchronize(nullptr) == cudaErrorLaunchTimeout);
    CHECK(sim::reports(finding::deadlock).size() == 1);
    gate.open();
    world.forgive();
}

TEST_CASE("reports: the host writes pinned memory that a copy reads") {
    for (bool const waits : {false, true}) {
        sim::world world(sim::config{}.late());
        cudaStream_t stream = nullptr;
        void* host = nullptr;
        void* device = nullptr;
        CHECK(cudaStreamCreate(&stream) == cudaSuccess);
        CHECK(cudaMallocHost(&host, 4096) == cudaSuccess);
        CHECK(cudaMalloc(&device, 4096) == cudaSuccess);
        sim::note_host_write(host, 4096);
        std::memset(host, 1, 4096);
        CHECK(cudaMemcpyAsync(device, host, 4096, cudaMemcpyHostToDevice, stream) == cudaSuccess);
        if (waits)
            CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        sim::note_host_write(host, 1);
        CHECK(sim::reports(finding::use_in_flight).size() == (waits ? 0 : 1));
        world.forgive();
    }
}

TEST_CASE("reports: stream-ordered memory of the driver") {
    finds(finding::use_in_flight, [](stage& on) {
        void* q = nullptr;
        CHECK(cudaMallocAsync(&q, 256, on.a) == cudaSuccess);
        CHECK(sim::launch(on.b, {}, {{q, 256}}) == cudaSuccess);
    });
    finds(finding::use_after_free, [](stage& on) {
        void* q = nullptr;
        CHECK(cudaMallocAsync(&q, 256, on.a) == cudaSuccess);
        CHECK(cudaFreeAsync(q, on.a) == cudaSuccess);
        CHECK(sim::launch(on.a, {}, {{q, 256}}) == cudaSuccess);
    });
}

TEST_CASE("reports: bytes freed in a capture are the graph's until it dies") {
    finds(finding::graph_conflict, [](stage& on) {
        REQUIRE(cudaStreamBeginCapture(on.a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        on.allocate(on.a);
        on.write(on.a);
        on.free(on.a);
        on.allocate(on.a); // inside it they may be had again
        on.free(on.a);
        cudaGraph_t const graph = end_capture(on.a);
        on.allocate(on.b);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    });
    finds_nothing([](stage& on) {
        REQUIRE(cudaStreamBeginCapture(on.a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        on.allocate(on.a);
        on.write(on.a);
        on.free(on.a);
        cudaGraph_t const graph = end_capture(on.a);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        on.allocate(on.b);
        on.write(on.b);
    });
}

TEST_CASE("reports: a graph launched over bytes that are another's by now") {
    finds(finding::graph_conflict, [](stage& on) {
        on.allocate(on.a);
        REQUIRE(cudaStreamBeginCapture(on.a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        on.write(on.a);
        cudaGraph_t const graph = end_capture(on.a);
        cudaGraphExec_t exec = nullptr;
        CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
        CHECK(cudaGraphLaunch(exec, on.a) == cudaSuccess);
        on.free(on.a);
        on.allocate(on.a);
        CHECK(cudaGraphLaunch(exec, on.a) == cudaSuccess);
    });
}

TEST_CASE("reports: a graph that is gone and still runs is work like any other") {
    finds_nothing([](stage& on) {
        launch_and_destroy(on);
        on.allocate(on.a);
    });
    finds(finding::reuse_in_flight, [](stage& on) {
        launch_and_destroy(on);
        on.allocate(on.b);
    });
}

TEST_CASE("reports: branches of a capture that are not joined before reuse") {
    finds(finding::reuse_in_flight, [](stage& on) {
        REQUIRE(cudaStreamBeginCapture(on.a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        on.order(on.a, on.b);
        on.allocate(on.b);
        on.write(on.b);
        on.free(on.b);
        on.allocate(on.a);
    });
}

TEST_CASE("reports: a graph's launch is a use like any other") {
    finds(finding::use_in_flight, [](stage& on) {
        REQUIRE(cudaStreamBeginCapture(on.a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        on.write(on.a);
        cudaGraph_t const graph = end_capture(on.a);
        cudaGraphExec_t exec = nullptr;
        CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
        CHECK(cudaGraphLaunch(exec, on.a) == cudaSuccess);
        on.read(on.b);
    });
}

namespace {

template <class Function>
Function* driver_function(char const* name) {
    void* function = nullptr;
    REQUIRE(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault) == cudaSuccess);
    return reinterpret_cast<Function*>(function);
}

} // namespace

TEST_CASE("reports: virtual memory that is taken away in flight, and that is never given back") {
    constexpr std::size_t step = std::size_t(2) << 20;
    for (bool const waits : {false, true}) {
        sim::world world(sim::config{}.late());
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUmemAccessDesc access{};
        access.location = properties.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        CUdeviceptr at = 0;
        CUmemGenericAllocationHandle handle{};
        CHECK(driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&at, step, 0, 0, 0) ==
              CUDA_SUCCESS);
        CHECK(driver_function<decltype(cuMemCreate)>("cuMemCreate")(&handle, step, &properties, 0) ==
              CUDA_SUCCESS);
        CHECK(driver_function<decltype(cuMemMap)>("cuMemMap")(at, step, 0, handle, 0) == CUDA_SUCCESS);
        auto* const memory = reinterpret_cast<void*>(at);
        CHECK(sim::launch(nullptr, {}, {{memory, 256}}) == cudaSuccess);
        CHECK(sim::reports(finding::use_before_allocation).size() == 1); // mapped, but to nobody's use yet
        CHECK(driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess")(at, step, &access, 1) ==
              CUDA_SUCCESS);
        CHECK(sim::launch(nullptr, {}, {{memory, 256}}) == cudaSuccess);
        if (waits)
            CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(driver_function<decltype(cuMemUnmap)>("cuMemUnmap")(at, step) == CUDA_SUCCESS);
        CHECK(sim::reports(finding::use_in_flight).size() == (waits ? 0 : 1));
        CHECK(sim::leaks().size() == 2);
        CHECK(driver_function<decltype(cuMemRelease)>("cuMemRelease")(handle) == CUDA_SUCCESS);
        CHECK(driver_function<decltype(cuMemAddressFree)>("cuMemAddressFree")(at, step) == CUDA_SUCCESS);
        CHECK(sim::leaks().empty());
        world.forgive();
    }
}

TEST_CASE("reports: devices that do not reach each other's memory let nobody in") {
    sim::world const world(sim::config{}.with_devices(2).without_peers());
    int able = -1;
    CHECK(cudaDeviceCanAccessPeer(&able, 0, 1) == cudaSuccess);
    CHECK(able == 0);
    CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessUnsupported);
    cudaMemPool_t pool = nullptr;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    for (int const device : {0, 1}) {
        access.location.id = device;
        CHECK((cudaMemPoolSetAccess(pool, &access, 1) == cudaSuccess) == (device == 0));
    }
    constexpr std::size_t step = std::size_t(2) << 20;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle{};
    CHECK(driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&at, step, 0, 0, 0) == CUDA_SUCCESS);
    CHECK(driver_function<decltype(cuMemCreate)>("cuMemCreate")(&handle, step, &properties, 0) == CUDA_SUCCESS);
    CHECK(driver_function<decltype(cuMemMap)>("cuMemMap")(at, step, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(driver_function<decltype(cuMemRelease)>("cuMemRelease")(handle) == CUDA_SUCCESS);
    for (int const device : {0, 1}) {
        CUmemAccessDesc mapped{};
        mapped.location = properties.location;
        mapped.location.id = device;
        mapped.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        CHECK((driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess")(at, step, &mapped, 1) == CUDA_SUCCESS) == (device == 0));
    }
    CHECK(driver_function<decltype(cuMemUnmap)>("cuMemUnmap")(at, step) == CUDA_SUCCESS);
    CHECK(driver_function<decltype(cuMemAddressFree)>("cuMemAddressFree")(at, step) == CUDA_SUCCESS);
}

TEST_CASE("reports: mapped memory that is not open to the device of a kernel, a fill, a copy or a graph") {
    constexpr std::size_t step = std::size_t(2) << 20;
    sim::world world(sim::config{}.with_devices(3));
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    auto* const set_access = driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess");
    auto const access_of = [&](int device, CUmemAccess_flags flags) {
        CUmemAccessDesc access{};
        access.location = properties.location;
        access.location.id = device;
        access.flags = flags;
        return access;
    };
    auto const give = [&](CUdeviceptr where, int device, CUmemAccess_flags flags) {
        CUmemAccessDesc const access = access_of(device, flags);
        return set_access(where, step, &access, 1);
    };
    CUdeviceptr at = 0;
    CHECK(driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&at, 2 * step, 0, 0, 0) ==
          CUDA_SUCCESS);
    auto const map = [&](CUdeviceptr where) {
        CUmemGenericAllocationHandle handle{};
        CHECK(driver_function<decltype(cuMemCreate)>("cuMemCreate")(&handle, step, &properties, 0) == CUDA_SUCCESS);
        CHECK(driver_function<decltype(cuMemMap)>("cuMemMap")(where, step, 0, handle, 0) == CUDA_SUCCESS);
        CHECK(driver_function<decltype(cuMemRelease)>("cuMemRelease")(handle) == CUDA_SUCCESS);
    };
    map(at);
    map(at + step);
    CUmemAccessDesc const first_two[] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                                         access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    CHECK(set_access(at, step, first_two, 2) == CUDA_SUCCESS);
    CHECK(give(at + step, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_SUCCESS);
    auto* const memory = reinterpret_cast<char*>(at);
    cudaStream_t streams[3] = {};
    for (int device : {2, 1, 0}) {
        CHECK(cudaSetDevice(device) == cudaSuccess);
        CHECK(cudaDeviceEnablePeerAccess(device == 0 ? 1 : 0, 0) == cudaSuccess); // is of cudaMalloc's memory
        CHECK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking) == cudaSuccess);
    }
    auto const wrong = [&] {
        for (cudaStream_t each : streams)
            CHECK(cudaStreamSynchronize(each) == cudaSuccess);
        std::size_t const found = sim::reports(finding::wrong_device).size();
        CHECK(sim::reports().size() == found);
        sim::clear_reports();
        return found;
    };
    CHECK(sim::launch(streams[0], {{memory, 2 * step}}, {}) == cudaSuccess);
    CHECK(sim::launch(streams[1], {{memory, step}}, {}) == cudaSuccess);
    CHECK(wrong() == 0);
    CHECK(sim::launch(streams[2], {{memory, 1}}, {}) == cudaSuccess);
    CHECK(sim::reports().back().sentence.find(" of device 2 uses memory at ") != std::string::npos);
    CHECK(sim::reports().back().sentence.find(" with no access to that device enabled") != std::string::npos);
    CHECK(wrong() == 1);
    CHECK(sim::launch(streams[1], {}, {{memory + step - 1, 2}}) == cudaSuccess); // the second map is not open
    CHECK(wrong() == 1);
    CHECK(cudaMemsetAsync(memory, 1, 8, streams[2]) == cudaSuccess);
    CHECK(wrong() == 1);
    CHECK(cudaMemcpyAsync(memory, memory + step, 8, cudaMemcpyDefault, streams[1]) == cudaSuccess);
    CHECK(wrong() == 1);
    CHECK(cudaMemcpyPeerAsync(memory, 0, memory + step, 0, 8, streams[2]) == cudaSuccess); // reaches it by its device
    CHECK(wrong() == 0);

    CHECK(cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(sim::launch(streams[1], {}, {{memory, 8}}) == cudaSuccess);
    cudaGraph_t const graph = end_capture(streams[1]);
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, streams[0]) == cudaSuccess); // each node runs on its own device
    CHECK(wrong() == 0);
    CHECK(give(at, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_SUCCESS);
    CHECK(cudaGraphLaunch(exec, streams[0]) == cudaSuccess);
    CHECK(wrong() == 1);
    CHECK(sim::launch(streams[0], {}, {{memory, 8}}) == cudaSuccess); // kept its access
    CHECK(wrong() == 0);

    // All of a list or nothing.
    CUmemAccessDesc const with_unknown[] = {first_two[1], access_of(3, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    CHECK(set_access(at, step, with_unknown, 2) == CUDA_ERROR_INVALID_VALUE);
    CHECK(sim::launch(streams[1], {}, {{memory, 8}}) == cudaSuccess);
    CHECK(wrong() == 1);
    // Access is of the mapping, and ends with it.
    auto* const unmap = driver_function<decltype(cuMemUnmap)>("cuMemUnmap");
    CHECK(unmap(at, 2 * step) == CUDA_SUCCESS);
    map(at);
    CHECK(give(at, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_SUCCESS);
    CHECK(sim::launch(streams[0], {}, {{memory, 8}}) == cudaSuccess); // not even its own device
    CHECK(wrong() == 1);
    CHECK(unmap(at, step) == CUDA_SUCCESS);
    world.forgive();
}

namespace {

// Addresses behind which there is memory, now and then.
struct mapping {
    static constexpr std::size_t bytes = std::size_t(2) << 20;
    mapping() {
        CHECK(driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&at, bytes, 0, 0, 0) == CUDA_SUCCESS);
        fill();
    }
    mapping(mapping const&) = delete;
    mapping& operator=(mapping const&) = delete;
    ~mapping() {
        empty();
        CHECK(driver_function<decltype(cuMemAddressFree)>("cuMemAddressFree")(at, bytes) == CUDA_SUCCESS);
    }
    void fill() const {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUmemAccessDesc access{};
        access.location = properties.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        CUmemGenericAllocationHandle handle{};
        CHECK(driver_function<decltype(cuMemCreate)>("cuMemCreate")(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
        CHECK(driver_function<decltype(cuMemMap)>("cuMemMap")(at, bytes, 0, handle, 0) == CUDA_SUCCESS);
        CHECK(driver_function<decltype(cuMemRelease)>("cuMemRelease")(handle) == CUDA_SUCCESS);
        CHECK(driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess")(at, bytes, &access, 1) == CUDA_SUCCESS);
    }
    void empty() const { CHECK(driver_function<decltype(cuMemUnmap)>("cuMemUnmap")(at, bytes) == CUDA_SUCCESS); }
    char* p() const { return reinterpret_cast<char*>(at); }

    CUdeviceptr at = 0;
};

} // namespace

TEST_CASE("reports: a block outlives the memory behind its addresses") {
    finds(finding::handed_out_twice, [](stage& on) {
        mapping const memory;
        sim::note_allocate(memory.p(), 256, on.a);
        memory.empty();
        memory.fill();
        CHECK(sim::launch(on.a, {}, {{memory.p(), 256}}) == cudaSuccess);
        CHECK(cudaStreamSynchronize(on.a) == cudaSuccess);
        sim::note_allocate(memory.p() + 128, 256, on.a);
    });
    finds(finding::use_after_free, [](stage& on) {
        mapping const memory;
        sim::note_allocate(memory.p(), 256, on.a);
        memory.empty();
        CHECK(sim::launch(on.a, {}, {{memory.p(), 256}}) == cudaSuccess);
    });
    finds(finding::bad_free, [](stage& on) {
        mapping const memory;
        sim::note_allocate(memory.p(), 256, on.a);
        memory.empty();
        sim::note_free(memory.p(), 128, on.a);
    });
    finds_nothing([](stage& on) {
        mapping const memory;
        sim::note_allocate(memory.p(), 256, on.a);
        memory.empty();
        sim::note_free(memory.p(), 256, on.a);
        memory.fill();
        sim::note_allocate(memory.p(), 512, on.b);
    });
}

TEST_CASE("reports: a pool may copy what it has not handed out") {
    static char host[512];
    finds_nothing([](stage& on) {
        on.allocate(on.a, 4096);
        sim::housekeeping const of_pool;
        CHECK(cudaMemcpyAsync(host, on.p, sizeof host, cudaMemcpyDeviceToHost, on.a) == cudaSuccess);
    });
    finds(finding::out_of_bounds, [](stage& on) {
        on.allocate(on.a, 4096);
        CHECK(cudaMemcpyAsync(host, on.p, sizeof host, cudaMemcpyDeviceToHost, on.a) == cudaSuccess);
    });
    finds(finding::use_in_flight, [](stage& on) { // but not what is in use
        on.write(on.b);
        sim::housekeeping const of_pool;
        CHECK(cudaMemcpyAsync(host, on.p, sizeof host, cudaMemcpyDeviceToHost, on.a) == cudaSuccess);
    });
}

TEST_CASE("reports: sentences name what collides") {
    stage on(sim::config{}.late());
    on.write(on.a);
    on.write(on.b);
    REQUIRE(sim::reports().size() == 1);
    std::string const sentence = sim::reports()[0].sentence;
    for (char const* const part :
         {"kernel on stream 3", "writes 256 bytes at device 0 + 0x0", "operation 1 of stream 2"})
        CHECK(sentence.find(part) != std::string::npos);
}

TEST_CASE("reports: what a graph's last launch allocated, and nobody frees after the graph's end, is still held") {
    stage on(sim::config{});
    std::size_t const before = sim::leaks().size();
    void* p = nullptr;
    CHECK(cudaStreamBeginCapture(on.a, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(cudaMallocAsync(&p, 256, on.a) == cudaSuccess);
    cudaGraph_t const graph = end_capture(on.a);
    cudaGraphExec_t runs = nullptr;
    CHECK(cudaGraphInstantiate(&runs, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch) == cudaSuccess);
    for (int round = 0; round < 2; ++round)
        CHECK(cudaGraphLaunch(runs, on.a) == cudaSuccess);
    CHECK(cudaStreamSynchronize(on.a) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(runs) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(sim::leaks().size() == before + 1);
    CHECK(cudaFree(p) == cudaSuccess);
    CHECK(sim::leaks().size() == before);
}

TEST_CASE("reports: a function that is not modelled, by its name, in both forms of its streams") {
    finds(finding::not_modelled, [](stage& on) {
        cudaGraphNode_t node = nullptr;
        CHECK(cudaGraphAddEmptyNode(&node, nullptr, nullptr, 0) == cudaErrorNotSupported);
        CHECK(cudaGetLastError() == cudaErrorNotSupported);
        cudaMemcpy3DParms copy{};
        CHECK(cudaMemcpy3DAsync(&copy, on.a) == cudaErrorNotSupported);
        CHECK(sim::reports()[0].sentence.find("cudaGraphAddEmptyNode") == 0);
    }, 2);
}

TEST_CASE("reports: memory that is freed while an importer holds it") {
    finds(finding::bad_free, [](stage& on) {
        cudaMemPoolProps properties{};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.handleTypes = cudaMemHandleTypeFabric;
        cudaMemPool_t pool = nullptr;
        cudaMemPool_t imported = nullptr;
        cudaMemFabricHandle_t handle{};
        cudaMemPoolPtrExportData data{};
        void* p = nullptr;
        void* q = nullptr;
        CHECK(cudaMemPoolCreate(&pool, &properties) == cudaSuccess);
        CHECK(cudaMemPoolExportToShareableHandle(&handle, pool, cudaMemHandleTypeFabric, 0) == cudaSuccess);
        CHECK(cudaMemPoolImportFromShareableHandle(&imported, &handle, cudaMemHandleTypeFabric, 0) == cudaSuccess);
        CHECK(cudaMallocFromPoolAsync(&p, 256, imported, on.a) == cudaErrorInvalidValue); // it hands nothing out
        CHECK(cudaMallocFromPoolAsync(&p, 256, pool, on.a) == cudaSuccess);
        CHECK(cudaMemPoolExportPointer(&data, p) == cudaSuccess);
        CHECK(cudaMemPoolImportPointer(&q, imported, &data) == cudaSuccess);
        CHECK(cudaFreeAsync(p, on.a) == cudaSuccess);
        CHECK(cudaFreeAsync(q, on.a) == cudaSuccess);
        CHECK(cudaMemPoolDestroy(imported) == cudaSuccess);
        CHECK(cudaMemPoolDestroy(pool) == cudaSuccess);
    });
}
