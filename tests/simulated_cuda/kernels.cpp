// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What becomes of a kernel's launch? No code of nvcc's runs here: every way to launch one answers with an error, leaves it as
// the last one, and says what to do. tests/consume has the same of a file that nvcc compiled.

#include "simulated_cuda/simulated_cuda.hpp"

#include <doctest/doctest.h>
#include <string>
#include <support/standard_error.hpp>

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
        std::string const said = support::standard_error_of([&] {
            for (int turn = 0; turn < 3; ++turn)
                way.make();
        });
        CHECK(cudaPeekAtLastError() == cudaErrorNoKernelImageForDevice);
        CHECK(cudaGetLastError() == cudaErrorNoKernelImageForDevice);
        CHECK(cudaGetLastError() == cudaSuccess);
        CHECK(sim::calls(way.call) == 3);
        CHECK(sim::reports(sim::finding::kernel_launch).size() == 3);
        CHECK(world.finish().size() == 3);
        CHECK(said == "simulated_cuda: " + std::string(way.call) + " (call 1) launches the kernel 'scale(float*)', and the simulated "
                      "device runs no kernels: enqueue what it does with simulated_cuda::launch(stream, reads, writes, body), or "
                      "link CUDA's own runtime and use a GPU\n"); // once for all three
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
    std::string const said = support::standard_error_of(
        [&] { CHECK(cudaLaunchKernel(&unknown, 1, 1, nullptr, 0, nullptr) == cudaErrorNoKernelImageForDevice); });
    CHECK(said.find("launches a kernel, and the simulated device runs no kernels") != std::string::npos);
    world.forgive();
}
