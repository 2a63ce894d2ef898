// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "device.hpp"

#include "trace.hpp"
#include <cuda_runtime_api.h>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace replay {

device_facts open_device() {
    int count = 0;
    cudaError_t const error = cudaGetDeviceCount(&count);
    int driver = 0; // stays 0 where there is no driver at all, for which CUDA has no error of its own
    static_cast<void>(cudaDriverGetVersion(&driver));
    if (error == cudaErrorInsufficientDriver && driver != 0)
        throw bad_input(
            "the NVIDIA driver is older than the CUDA runtime that this program was built with; update "
            "the driver, build with an older toolkit, or use the simulated device: "
            "'WEIR_DEVICE=simulated sh examples/run.sh'");
    if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
        (error == cudaSuccess && count == 0))
        throw bad_input(
            "no GPU is visible; check 'nvidia-smi' and CUDA_VISIBLE_DEVICES, or use the simulated device: "
            "'WEIR_DEVICE=simulated sh examples/run.sh'");
    weir::check_cuda(error, "cudaGetDeviceCount");
    weir::check_cuda(cudaFree(nullptr), "cudaFree");

#ifdef WEIR_SIMULATED_CUDA
    return {"the simulated device", true};
#else
    cudaDeviceProp properties{};
    weir::check_cuda(cudaGetDeviceProperties(&properties, weir::runtime::current_device()), "cudaGetDeviceProperties");
    return {properties.name, false};
#endif
}

std::string complaints() {
#ifdef WEIR_SIMULATED_CUDA
    return simulated_cuda::complaints();
#else
    return {};
#endif
}

} // namespace replay
