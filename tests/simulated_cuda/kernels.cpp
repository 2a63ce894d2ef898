// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What becomes of a kernel's launch? A registered host function runs in its place, judged as any work is; without one every
// way to launch it answers with an error, leaves it as the last one, and is reported with the kernel's name. tests/consume has
// the same of a file that nvcc compiled.

#include "simulated_cuda/simulated_cuda.hpp"

#include <doctest/doctest.h>
#include <string>

// What nvcc puts into the files that it compiles.
extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaRegisterFunction(void**, char const*, char*, char const*, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaUnregisterFatBinary(void**);
unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, void*);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*);
cudaError_t __cudaGetKernel(void**, void const*);
cudaError_t __cudaLaunchKernel(void*, dim3, dim3, void**, std::size_t, cudaStream_t);
cudaError_t __cudaLaunchKernel_ptsz(void*, dim3, dim3, void**, std::size_t, cudaStream_t);
cudaError_t cudaLaunchKernel_ptsz(void const*, dim3, dim3, void**, std::size_t, cudaStream_t);
cudaError_t cudaLaunchKernelExC_ptsz(cudaLaunchConfig_t const*, void const*, void**);
cudaError_t cudaLaunchCooperativeKernel_ptsz(void const*, dim3, dim3, void**, std::size_t, cudaStream_t);
}

namespace {

namespace sim = simulated_cuda;
using launch_function = cudaError_t (*)(void*, dim3, dim3, void**, std::size_t, cudaStream_t);

void scale() {} // stands for a kernel on the host's side

// As nvcc translates 'scale<<<1, 32>>>()'; it looks at no answer.
template <launch_function Launch>
void launch_by_brackets() {
    REQUIRE(__cudaPushCallConfiguration(1, 32, 0, nullptr) == 0);
    dim3 grid, block;
    std::size_t shared = 1;
    cudaStream_t stream = cudaStreamLegacy;
    REQUIRE(__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaSuccess);
    CHECK((block.x == 32 && shared == 0 && stream == nullptr));
    void* kernel = nullptr;
    REQUIRE(__cudaGetKernel(&kernel, reinterpret_cast<void const*>(scale)) == cudaSuccess);
    static_cast<void>(Launch(kernel, grid, block, nullptr, shared, stream));
}

template <cudaError_t (*Launch)(void const*, dim3, dim3, void**, std::size_t, cudaStream_t)>
void launch() {
    CHECK(Launch(reinterpret_cast<void const*>(scale), 1, 32, nullptr, 0, nullptr) == cudaErrorNoKernelImageForDevice);
}

template <cudaError_t (*Launch)(cudaLaunchConfig_t const*, void const*, void**)>
void launch_as_configured() {
    cudaLaunchConfig_t const how{};
    CHECK(Launch(&how, reinterpret_cast<void const*>(scale), nullptr) == cudaErrorNoKernelImageForDevice);
}

} // namespace

TEST_CASE("kernels: a launch answers with an error and says what to do, however it is made") {
    void** const binary = __cudaRegisterFatBinary(nullptr);
    __cudaRegisterFunction(binary, reinterpret_cast<char const*>(scale), nullptr, "_Z5scalePf", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(binary);
    struct {
        char const* call;
        void (*make)();
    } const ways[] = {{"cudaLaunchKernel", launch_by_brackets<__cudaLaunchKernel>},
                      {"cudaLaunchKernel", launch_by_brackets<__cudaLaunchKernel_ptsz>},
                      {"cudaLaunchKernel", launch<cudaLaunchKernel>},
                      {"cudaLaunchKernel", launch<cudaLaunchKernel_ptsz>},
                      {"cudaLaunchCooperativeKernel", launch<cudaLaunchCooperativeKernel>},
                      {"cudaLaunchCooperativeKernel", launch<cudaLaunchCooperativeKernel_ptsz>},
                      {"cudaLaunchKernelExC", launch_as_configured<cudaLaunchKernelExC>},
                      {"cudaLaunchKernelExC", launch_as_configured<cudaLaunchKernelExC_ptsz>}};
    for (auto const& way : ways) {
        CAPTURE(way.call);
        sim::world world;
        for (int turn = 0; turn < 3; ++turn)
            way.make();
        CHECK(cudaPeekAtLastError() == cudaErrorNoKernelImageForDevice);
        CHECK(cudaGetLastError() == cudaErrorNoKernelImageForDevice);
        CHECK(cudaGetLastError() == cudaSuccess);
        CHECK(sim::calls(way.call) == 3);
        CHECK(sim::reports(sim::finding::kernel_launch).size() == 3);
        CHECK(sim::reports().front().sentence == std::string(way.call) + " (call 1) launches the kernel 'scale(float*)', for which nothing "
              "stands in, so it did not run: register a host function with simulated_device::on_launch(kernel, function, uses)");
        CHECK(world.finish().size() == 3);
    }
    __cudaUnregisterFatBinary(binary);
}

TEST_CASE("kernels: a launch can be made to fail as any call can, and a kernel that nobody registered has no name") {
    sim::world world;
    sim::fail_call("cudaLaunchKernel", 1, cudaErrorLaunchOutOfResources);
    launch_by_brackets<__cudaLaunchKernel>();
    CHECK(cudaGetLastError() == cudaErrorLaunchOutOfResources);
    CHECK(sim::reports().empty());
    int const unknown = 0;
    CHECK(cudaLaunchKernel(&unknown, 1, 1, nullptr, 0, nullptr) == cudaErrorNoKernelImageForDevice);
    CHECK(sim::reports().back().sentence.find("launches a kernel, for which nothing stands in") != std::string::npos);
    world.forgive();
}

namespace {

// Another kernel on the host's side, with arguments of several kinds.
struct pair {
    int first;
    double second;
};
void add_up(float* sums, float const* values, int count, pair extra) {
    static_cast<void>(sums), static_cast<void>(values), static_cast<void>(count), static_cast<void>(extra);
}
void touch(char*) {}
void raise_flag(int volatile*, int const volatile*, void volatile*) {}

sim::uses uses_of_add_up(float* sums, float const* values, int count, pair) {
    return sim::uses{}.reads(values, count).writes(sums, 1);
}

cudaError_t launch_add_up(cudaStream_t stream, float* sums, float const* values, int count, pair extra, dim3 grid = 1) {
    void* arguments[] = {&sums, &values, &count, &extra};
    return cudaLaunchKernel(reinterpret_cast<void const*>(add_up), grid, 32, arguments, 0, stream);
}

} // namespace

TEST_CASE("kernels: a stand-in computes with a copy of the arguments when the scheduler picks it") {
    sim::on_launch(
        add_up,
        [](sim::launch_shape const& shape, float* sums, float const* values, int count, pair extra) {
            *sums = static_cast<float>(shape.grid.x * shape.block.x) + static_cast<float>(extra.second);
            for (int at = 0; at < count; ++at)
                *sums += values[at];
        },
        uses_of_add_up, "add_up");
    for (sim::config const& settings : {sim::config{}.eager(), sim::config{}.late(), sim::config{}.visible().late()}) {
        sim::world const world(settings);
        float* memory = nullptr;
        REQUIRE(cudaMalloc(reinterpret_cast<void**>(&memory), 5 * sizeof(float)) == cudaSuccess);
        float const values[] = {1, 2, 3, 4};
        REQUIRE(cudaMemcpy(memory, values, sizeof values, cudaMemcpyHostToDevice) == cudaSuccess);
        CHECK(launch_add_up(nullptr, memory + 4, memory, 4, {7, 0.5}, 2) == cudaSuccess);
        CHECK(sim::pending() == (settings.mode == sim::schedule::late ? 1 : 0));
        float sum = 0;
        CHECK(cudaMemcpy(&sum, memory + 4, sizeof sum, cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(sum == 74.5f);
        CHECK(cudaFree(memory) == cudaSuccess);
    }
}

TEST_CASE("kernels: a stand-in takes pointers to volatile as any others") {
    sim::on_launch(
        raise_flag, [](int volatile* flag, int const volatile* to, void volatile*) { *flag = *to; },
        [](int volatile* flag, int const volatile* to, void volatile* more) {
            return sim::uses{}.reads(to, 1).writes(flag, 1).writes(more, 4);
        },
        "raise_flag");
    sim::world const world;
    int* memory = nullptr;
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&memory), 3 * sizeof(int)) == cudaSuccess);
    int value = 7;
    REQUIRE(cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice) == cudaSuccess);
    int volatile* flag = memory + 1;
    int const volatile* to = memory;
    void volatile* more = memory + 2;
    void* arguments[] = {&flag, &to, &more};
    CHECK(cudaLaunchKernel(reinterpret_cast<void const*>(raise_flag), 1, 1, arguments, 0, nullptr) == cudaSuccess);
    CHECK(cudaMemcpy(&value, memory + 1, sizeof value, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(value == 7);
    CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("kernels: what a stand-in's launch uses is judged as any work is") {
    sim::on_launch(add_up, [](float*, float const*, int, pair) {}, uses_of_add_up, "add_up");
    struct {
        sim::finding finds;
        void (*make)(cudaStream_t a, cudaStream_t b, float* memory);
        char const* says;
    } const mistakes[] = {
        {sim::finding::use_in_flight, [](cudaStream_t a, cudaStream_t b, float* memory) {
             CHECK(launch_add_up(a, memory, memory + 8, 4, {}) == cudaSuccess);
             CHECK(launch_add_up(b, memory + 16, memory, 1, {}) == cudaSuccess);
         }, "reads 4 bytes"},
        {sim::finding::out_of_bounds, [](cudaStream_t a, cudaStream_t, float* memory) {
             sim::note_allocate(memory, 32, a); // a pool's block
             CHECK(launch_add_up(a, memory, memory, 9, {}) == cudaSuccess);
             sim::note_free(memory, 32, a);
         }, "reads"},
        {sim::finding::use_after_free, [](cudaStream_t a, cudaStream_t, float* memory) {
             sim::note_allocate(memory, 32, a);
             sim::note_free(memory, 32, a);
             CHECK(launch_add_up(a, memory, memory, 1, {}) == cudaSuccess);
         }, "add_up"},
    };
    for (auto const& mistake : mistakes) {
        CAPTURE(mistake.says);
        sim::world world(sim::config{}.late());
        cudaStream_t a = nullptr;
        cudaStream_t b = nullptr;
        REQUIRE(cudaStreamCreate(&a) == cudaSuccess);
        REQUIRE(cudaStreamCreate(&b) == cudaSuccess);
        float* memory = nullptr;
        REQUIRE(cudaMalloc(reinterpret_cast<void**>(&memory), 4096) == cudaSuccess);
        mistake.make(a, b, memory);
        REQUIRE(!sim::reports().empty());
        CHECK(sim::reports().front().kind == mistake.finds);
        CHECK(sim::reports().front().sentence.find(mistake.says) != std::string::npos);
        world.forgive();
    }
}

TEST_CASE("kernels: a captured stand-in runs at each launch of its graph") {
    static int runs = 0;
    runs = 0;
    sim::on_launch(touch, [](char* p) { runs += *p + 1; }, [](char* p) { return sim::uses{}.writes(p, 1); });
    sim::world const world;
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, 256) == cudaSuccess);
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    void* arguments[] = {&memory};
    CHECK(cudaLaunchKernel(reinterpret_cast<void const*>(touch), 1, 1, arguments, 0, stream) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK(runs == 0);
    for (int turn = 0; turn < 2; ++turn)
        CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(runs == 2);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("kernels: a captured stand-in may work in place, and two that nothing orders may not share bytes") {
    sim::on_launch(touch, [](char* p) { ++*p; }, [](char* p) { return sim::uses{}.reads(p, 128).writes(p + 64, 128).writes(p, 1); });
    for (bool const ordered : {true, false}) {
        CAPTURE(ordered);
        sim::world world(sim::config{}.late());
        void* memory = nullptr;
        REQUIRE(cudaMalloc(&memory, 256) == cudaSuccess);
        REQUIRE(cudaMemset(memory, 0, 256) == cudaSuccess);
        cudaStream_t a = nullptr;
        cudaStream_t b = nullptr;
        REQUIRE(cudaStreamCreate(&a) == cudaSuccess);
        REQUIRE(cudaStreamCreate(&b) == cudaSuccess);
        cudaEvent_t fork = nullptr;
        cudaEvent_t join = nullptr;
        REQUIRE(cudaEventCreate(&fork) == cudaSuccess);
        REQUIRE(cudaEventCreate(&join) == cudaSuccess);
        void* arguments[] = {&memory};
        auto const launch = [&](cudaStream_t stream) {
            CHECK(cudaLaunchKernel(reinterpret_cast<void const*>(touch), 1, 1, arguments, 0, stream) == cudaSuccess);
        };
        REQUIRE(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal) == cudaSuccess);
        CHECK(cudaEventRecord(fork, a) == cudaSuccess);
        launch(a);
        launch(a);
        if (ordered)
            CHECK(cudaEventRecord(fork, a) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(b, fork, 0) == cudaSuccess);
        launch(b);
        CHECK(cudaEventRecord(join, b) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(a, join, 0) == cudaSuccess);
        cudaGraph_t graph = nullptr;
        REQUIRE(cudaStreamEndCapture(a, &graph) == cudaSuccess);
        cudaGraphExec_t exec = nullptr;
        REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
        launch(b);
        CHECK(cudaStreamSynchronize(b) == cudaSuccess);
        for (cudaStream_t const each : {a, a})
            CHECK(cudaGraphLaunch(exec, each) == cudaSuccess);
        char times = 0;
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        CHECK(cudaMemcpy(&times, memory, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(times == 7);
        CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        CHECK(cudaEventDestroy(fork) == cudaSuccess);
        CHECK(cudaEventDestroy(join) == cudaSuccess);
        CHECK(cudaStreamDestroy(a) == cudaSuccess);
        CHECK(cudaStreamDestroy(b) == cudaSuccess);
        CHECK(cudaFree(memory) == cudaSuccess);
        auto const found = world.finish();
        CHECK(found.empty() == ordered);
        for (sim::report const& each : found)
            CHECK_MESSAGE(each.sentence.find("of the same capture before it") != std::string::npos, each.sentence);
    }
}

TEST_CASE("kernels: an impossible shape is refused, and a kernel with a stand-in can be asked about") {
    sim::on_launch(touch, [](char*) {}, [](char* p) { return sim::uses{}.writes(p, 0); });
    sim::world const world;
    void* nothing = nullptr;
    void* arguments[] = {&nothing};
    auto const* const kernel = reinterpret_cast<void const*>(touch);
    CHECK(cudaLaunchKernel(kernel, 1, 1025, arguments, 0, nullptr) == cudaErrorInvalidConfiguration);
    CHECK(cudaLaunchKernel(kernel, 0, 1, arguments, 0, nullptr) == cudaErrorInvalidConfiguration);
    CHECK(cudaLaunchKernel(kernel, 1, 1024, arguments, 0, nullptr) == cudaSuccess);
    cudaFuncAttributes attributes{};
    CHECK(cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess);
    CHECK(attributes.maxThreadsPerBlock == 1024);
    int blocks = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 0) == cudaSuccess);
    CHECK(blocks == 1);
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1) == cudaSuccess);
    int const unknown = 0;
    CHECK(cudaFuncGetAttributes(&attributes, &unknown) == cudaErrorNoKernelImageForDevice);
}
