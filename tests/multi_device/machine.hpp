// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What the tests of several devices run on: those of the GPU machine, or three simulated ones.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/fault_sweep.hpp>
#include <support/standard_error.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

struct machine {
    /// `peers`: whether the simulated devices reach each other's memory. `seed`: in which order their work runs; 0: late.
    explicit machine(bool peers = true, std::uint64_t seed = 0)
#ifdef WEIR_SIMULATED_CUDA
        : world(
              [&] {
                  simulated_cuda::config three = simulated_cuda::config{}.late().with_devices(3);
                  three.peers = peers;
                  if (seed != 0)
                      three.random(seed);
                  return three;
              }(),
              [](auto const& reports) {
                  for (simulated_cuda::report const& each : reports)
                      FAIL_CHECK(each.sentence);
              })
#endif
    {
        static_cast<void>(peers), static_cast<void>(seed);
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

/// Makes another device current for a while: the last one, which the calls that are tested have to put up with.
struct elsewhere {
    explicit elsewhere(machine const& on) : device(on.count - 1) { CHECK(cudaSetDevice(device) == cudaSuccess); }
    elsewhere(elsewhere const&) = delete;
    elsewhere& operator=(elsewhere const&) = delete;
    ~elsewhere() {
        int now = -1;
        CHECK(cudaGetDevice(&now) == cudaSuccess);
        CHECK(now == device);
    }
    int device;
};

/// A stream of a device.
class stream_of {
public:
    explicit stream_of(int device, unsigned flags = cudaStreamNonBlocking) {
        int before = 0;
        CHECK(cudaGetDevice(&before) == cudaSuccess);
        CHECK(cudaSetDevice(device) == cudaSuccess);
        CHECK(cudaStreamCreateWithFlags(&stream_, flags) == cudaSuccess);
        CHECK(cudaSetDevice(before) == cudaSuccess);
    }
    stream_of(stream_of const&) = delete;
    stream_of& operator=(stream_of const&) = delete;
    ~stream_of() { CHECK(cudaStreamDestroy(stream_) == cudaSuccess); }
    operator cudaStream_t() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

/// support::fault_sweep on three devices, of which the last is current. Afterwards it is that again, unless CUDA refused twice
/// to go back to it.
template <class Prepare, class Attempt, class Judge>
void sweep_devices(Prepare prepare, Attempt attempt, Judge judge) {
    constexpr int before = 2;
    static_cast<void>(support::standard_error_of([&] { // it says where CUDA refused
        support::fault_sweep(
            [&] {
                auto made = prepare();
                CHECK(cudaSetDevice(before) == cudaSuccess);
                return made;
            },
            attempt,
            [&](auto& made, support::struck const& fault) {
                int now = -1;
                CHECK(cudaGetDevice(&now) == cudaSuccess);
                CHECK((now == before || fault.hit_twice("cudaSetDevice")));
                CHECK(cudaSetDevice(before) == cudaSuccess);
                judge(made, fault);
            },
            support::faults::single, 3);
    }));
}
