// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What must link but cannot run: the registration calls that nvcc puts into every object, and launches of
// real kernels, which answer that there is no code for this device. Host code of Thrust and CUB links against
// these.

#include "calls.hpp"

namespace simulated_cuda::inside {

namespace {

cudaError_t no_code(call_site& site) {
    return api(site, [](world_state&) { return cudaErrorNoKernelImageForDevice; });
}

cudaError_t cudaLaunchKernel_on(null_stream, void const*, dim3, dim3, void**, std::size_t, cudaStream_t) {
    static call_site site{"cudaLaunchKernel"};
    return no_code(site);
}

cudaError_t cudaLaunchKernelExC_on(null_stream, cudaLaunchConfig_t const*, void const*, void**) {
    static call_site site{"cudaLaunchKernelExC"};
    return no_code(site);
}

} // namespace

} // namespace simulated_cuda::inside

using namespace simulated_cuda::inside;

SIMULATED_CUDA_EXPORT(cudaLaunchKernel, _ptsz,
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
extern "C" void __cudaRegisterFunction(void**, char const*, char*, char const*, int, uint3*, uint3*, dim3*,
                                       dim3*, int*) {}
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

extern "C" cudaError_t __cudaGetKernel(void** kernel, void const*) {
    *kernel = nullptr;
    return cudaSuccess; // the launch says what is wrong
}

extern "C" cudaError_t __cudaLaunchKernel(void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
    static call_site site{"__cudaLaunchKernel"};
    return no_code(site);
}

extern "C" cudaError_t __cudaLaunchKernel_ptsz(void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
    static call_site site{"__cudaLaunchKernel"};
    return no_code(site);
}
