// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Kernels: the registration calls that nvcc puts into every object, and launches. A kernel runs as the host function that a
// test registered for it (kernels.hpp); the launch of another answers that there is no code for this device, and is reported.

#include "calls.hpp"

#include <weir/simulated_device/kernels.hpp>

#include <cstdlib>
#include <cxxabi.h>
#include <map>

namespace simulated_device::inside {

namespace {

/// What is known of a kernel, by its function on the host.
struct kernel_record {
    std::string name; ///< empty: nobody said it
    detail::stand_in stand_in;
};

/// World's lock held. Never destroyed: kernels come before the first static object of a program and go after the last. No
/// record is ever taken out, and names stay: operations refer to them.
std::map<void const*, kernel_record>& kernels() {
    static auto& all = *new std::map<void const*, kernel_record>;
    return all;
}

void name_kernel(void const* function, char const* name) {
    kernel_record& known = kernels()[function];
    if (!known.name.empty())
        return;
    char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, nullptr);
    known.name = plain != nullptr ? plain : name;
    std::free(plain);
}

/// What stands in for a kernel; empty where nothing does.
kernel_record const* find_stand_in(void const* function) {
    std::lock_guard<std::mutex> const lock(world_mutex());
    auto const known = kernels().find(function);
    return known != kernels().end() && known->second.stand_in ? &known->second : nullptr;
}

cudaError_t refuse_launch(world_state& world, call_site const& site, void const* function) {
    auto const known = kernels().find(function);
    bool const named = known != kernels().end() && !known->second.name.empty();
    world.complain(finding::kernel_launch, std::string(site.name) + " (call " + std::to_string(world.step) + ") launches " +
                                               (named ? "the kernel '" + known->second.name + "'" : "a kernel") +
                                               ", for which nothing stands in, so it did not run: register a host function with "
                                               "simulated_device::on_launch(kernel, function, uses)");
    return cudaErrorNoKernelImageForDevice;
}

bool is_possible(launch_shape const& shape) {
    auto const product = [](dim3 const& size) { return std::uint64_t{size.x} * size.y * size.z; };
    return product(shape.grid) != 0 && product(shape.block) != 0 && product(shape.block) <= 1024;
}

cudaError_t launch_kernel(call_site& site, null_stream null, void const* function, launch_shape shape, void** arguments) {
    kernel_record const* const known = find_stand_in(function);
    detail::prepared_launch ready;
    if (known != nullptr && is_possible(shape))
        ready = known->stand_in(shape, arguments); // the test's code: no lock is held
    return api(site, [&](world_state& world) {
        if (known == nullptr)
            return refuse_launch(world, site, function);
        if (!is_possible(shape))
            return cudaErrorInvalidConfiguration;
        return submit_kernel(world, find_stream(world, shape.stream, null, site.name), ready.of.all_reads(), ready.of.all_writes(),
                             std::move(ready.body), known->name.empty() ? "kernel" : known->name.c_str());
    });
}

cudaError_t cudaLaunchKernel_on(null_stream null, void const* function, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                                cudaStream_t stream) {
    static call_site site{"cudaLaunchKernel"};
    return launch_kernel(site, null, function, {grid, block, shared, stream}, arguments);
}

cudaError_t cudaLaunchCooperativeKernel_on(null_stream null, void const* function, dim3 grid, dim3 block, void** arguments,
                                           std::size_t shared, cudaStream_t stream) {
    static call_site site{"cudaLaunchCooperativeKernel"};
    return launch_kernel(site, null, function, {grid, block, shared, stream}, arguments);
}

cudaError_t cudaLaunchKernelExC_on(null_stream null, cudaLaunchConfig_t const* how, void const* function, void** arguments) {
    static call_site site{"cudaLaunchKernelExC"};
    return launch_kernel(site, null, function, {how->gridDim, how->blockDim, how->dynamicSmemBytes, how->stream}, arguments);
}

/// What a program asks of a kernel before it launches it: of one that has a stand-in, whatever lets it go on.
template <class Answer>
cudaError_t ask_of(call_site& site, void const* function, Answer&& answer) {
    bool const known = find_stand_in(function) != nullptr;
    return api(site, [&](world_state&) {
        if (!known)
            return cudaErrorNoKernelImageForDevice;
        answer();
        return cudaSuccess;
    });
}

} // namespace

} // namespace simulated_device::inside

void simulated_device::detail::register_stand_in(void const* kernel, stand_in function, char const* name) {
    std::lock_guard<std::mutex> const lock(inside::world_mutex());
    if (name != nullptr)
        inside::name_kernel(kernel, name);
    inside::kernels()[kernel].stand_in = std::move(function);
}

using namespace simulated_device::inside;

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

extern "C" cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void const* function) {
    static call_site site{"cudaFuncGetAttributes"};
    return ask_of(site, function, [&] {
        *attributes = {};
        attributes->maxThreadsPerBlock = 1024;
    });
}

extern "C" cudaError_t cudaFuncSetAttribute(void const* function, cudaFuncAttribute, int) {
    static call_site site{"cudaFuncSetAttribute"};
    return ask_of(site, function, [] {});
}

extern "C" cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void const* function, int, std::size_t) {
    static call_site site{"cudaOccupancyMaxActiveBlocksPerMultiprocessor"};
    return ask_of(site, function, [&] { *blocks = 1; });
}

extern "C" cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void const* function, int, std::size_t,
                                                                              unsigned) {
    static call_site site{"cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"};
    return ask_of(site, function, [&] { *blocks = 1; });
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
    name_kernel(function, name);
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
