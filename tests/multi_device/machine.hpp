// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What the tests of several devices run on: those of the GPU machine, or three simulated ones.

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

struct machine {
    /// `peers`: whether the simulated devices reach each other's memory.
    explicit machine(bool peers = true)
#ifdef WEIR_SIMULATED_CUDA
        : world(
              [&] {
                  simulated_cuda::config three = simulated_cuda::config{}.late().with_devices(3);
                  three.peers = peers;
                  return three;
              }(),
              [](auto const& reports) {
                  for (simulated_cuda::report const& each : reports)
                      FAIL_CHECK(each.sentence);
              })
#endif
    {
        static_cast<void>(peers);
        CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
        CHECK(cudaSetDevice(0) == cudaSuccess);
    }
    machine(machine const&) = delete;
    machine& operator=(machine const&) = delete;
    ~machine() { CHECK(cudaSetDevice(0) == cudaSuccess); }

#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    int count = 0;
};
