// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What must link but cannot run: the registration calls that nvcc puts into every object, and launches of
// real kernels, which answer that there is no code for this device and say what to do. Host code of Thrust and CUB links
// against these.

#include "calls.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <map>

namespace simulated_cuda::inside {

namespace {

cudaError_t no_code(call_site& site) {
    return api(site, [](world_state&) { return cudaErrorNoKernelImageForDevice; });
}

/// The mangled names of the kernels that were registered, by their functions on the host. World's lock held. Never destroyed:
/// kernels come before the first static object of a program and go after the last.
std::map<void const*, std::string>& kernel_names() {
    static auto& names = *new std::map<void const*, std::string>;
    return names;
}

/// "the kernel 'scale(float*)'", or "a kernel" of one that nobody registered.
std::string name_of_kernel(void const* function) {
    auto const known = kernel_names().find(function);
    if (known == kernel_names().end())
        return "a kernel";
    char* const plain = abi::__cxa_demangle(known->second.c_str(), nullptr, nullptr, nullptr);
    std::string const name = plain != nullptr ? plain : known->second;
    std::free(plain);
    return "the kernel '" + name + "'";
}

/// Every launch is reported. The first is also written to stderr at once: '<<<>>>' returns nothing, and a program that was
/// written for a GPU asks for no reports.
cudaError_t refuse_launch(call_site& site, void const* function) {
    return api(site, [&](world_state& world) {
        std::string const sentence = std::string(site.name) + " (call " + std::to_string(world.step) + ") launches " +
                                     name_of_kernel(function) +
                                     ", and the simulated device runs no kernels: enqueue what it does with "
                                     "simulated_cuda::launch(stream, reads, writes, body), or link CUDA's own runtime and use a GPU";
        auto const is_launch = [](report const& one) { return one.kind == finding::kernel_launch; };
        if (std::none_of(world.reports.begin(), world.reports.end(), is_launch))
            std::fprintf(stderr, "simulated_cuda: %s\n", sentence.c_str());
        world.complain(finding::kernel_launch, sentence);
        return cudaErrorNoKernelImageForDevice;
    });
}

cudaError_t cudaLaunchKernel_on(null_stream, void const* function, dim3, dim3, void**, std::size_t, cudaStream_t) {
    static call_site site{"cudaLaunchKernel"};
    return refuse_launch(site, function);
}

cudaError_t cudaLaunchCooperativeKernel_on(null_stream, void const* function, dim3, dim3, void**, std::size_t, cudaStream_t) {
    static call_site site{"cudaLaunchCooperativeKernel"};
    return refuse_launch(site, function);
}

cudaError_t cudaLaunchKernelExC_on(null_stream, cudaLaunchConfig_t const*, void const* function, void**) {
    static call_site site{"cudaLaunchKernelExC"};
    return refuse_launch(site, function);
}

} // namespace

} // namespace simulated_cuda::inside

using namespace simulated_cuda::inside;

SIMULATED_CUDA_EXPORT(cudaLaunchKernel, _ptsz,
                      (void const* function, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                       cudaStream_t stream),
                      function, grid, block, arguments, shared, stream)
SIMULATED_CUDA_EXPORT(cudaLaunchCooperativeKernel, _ptsz,
                      (void const* function, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                       cudaStream_t stream),
                      function, grid, block, arguments, shared, stream)
SIMULATED_CUDA_EXPORT(cudaLaunchKernelExC, _ptsz,
                      (cudaLaunchConfig_t const* launch, void const* function, void** arguments), launch,
                      function, arguments)

extern "C" cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void const*) {
    static call_site site{"cudaFuncGetAttributes"};
    return no_code(site);
}

extern "C" cudaError_t cudaFuncSetAttribute(void const*, cudaFuncAttribute, int) {
    static call_site site{"cudaFuncSetAttribute"};
    return no_code(site);
}

extern "C" cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int*, void const*, int, std::size_t) {
    static call_site site{"cudaOccupancyMaxActiveBlocksPerMultiprocessor"};
    return no_code(site);
}

extern "C" cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int*, void const*, int,
                                                                              std::size_t, unsigned) {
    static call_site site{"cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"};
    return no_code(site);
}

namespace {

struct pushed_launch {
    dim3 grid;
    dim3 block;
    std::size_t shared = 0;
    void* stream = nullptr;
};

thread_local pushed_launch pushed;
void* module_handle = nullptr;

} // namespace

extern "C" void** __cudaRegisterFatBinary(void*) {
    return &module_handle;
}
extern "C" void __cudaRegisterFatBinaryEnd(void**) {}
extern "C" void __cudaUnregisterFatBinary(void**) {}
extern "C" char __cudaInitModule(void**) {
    return 1;
}
extern "C" void __cudaRegisterFunction(void**, char const* function, char*, char const* name, int, uint3*, uint3*, dim3*,
                                       dim3*, int*) {
    std::lock_guard<std::mutex> const lock(world_mutex());
    kernel_names()[function] = name;
}
extern "C" void __cudaRegisterVar(void**, char*, char*, char const*, int, std::size_t, int, int) {}
extern "C" void __cudaRegisterManagedVar(void**, void**, char*, char const*, int, std::size_t, int, int) {}

extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
    pushed = {grid, block, shared, stream};
    return 0;
}

extern "C" cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared,
                                                  void* stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *static_cast<void**>(stream) = pushed.stream;
    return cudaSuccess;
}

extern "C" cudaError_t __cudaGetKernel(void** kernel, void const* function) {
    *kernel = const_cast<void*>(function); // the launch says what is wrong
    return cudaSuccess;
}

// What '<<<>>>' becomes: the same call under names of nvcc's own.
SIMULATED_CUDA_EXPORT_AS(__cudaLaunchKernel, cudaLaunchKernel_on, __cudaLaunchKernel_ptsz,
                         (void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared, cudaStream_t stream),
                         kernel, grid, block, arguments, shared, stream)
