// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Programs that call CUDA: the simulated device under them, each of its calls a step, and its reports as failures.
//
// One system thread stands for several here, and CUDA keeps some things for each thread: the current device, the last
// error, the capture mode, the default stream per thread. So these programs have one device, capture nothing, and name no
// stream per thread; what those need is left to simulated_cuda::run_threads (tests/simulation). A wait for the device
// never hands the turn over: the simulator runs what it waits for.

#include "explore.hpp"

#ifdef WEIR_SIMULATED_CUDA

#include <cstddef>
#include <cuda_runtime_api.h>
#include <simulated_cuda/simulated_cuda.hpp>
#include <utility>
#include <weir/runtime/stream.hpp>

namespace interleavings {

namespace device = simulated_cuda;

/// A stream, until its scope ends or 'again' ends it and begins another: under the same handle, unless another thread
/// was quicker.
class stream {
public:
    stream() { create(); }
    stream(stream const&) = delete;
    stream& operator=(stream const&) = delete;
    ~stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
    void again() {
        require(cudaStreamDestroy(stream_) == cudaSuccess, "a stream cannot be destroyed");
        create();
    }
    operator cudaStream_t() const { return stream_; }

private:
    void create() {
        require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess, "a stream cannot be created");
    }
    cudaStream_t stream_ = nullptr;
};

/// A world costs more than a small program. In short, one preemption will do.
constexpr plan device_plan{2, 10'000};

/// 'explore' in a fresh world each time, whose work runs as late as may be, or, the program's first choice, at once.
template <class Program>
void explore_on_device(Program const& program, plan what = device_plan) {
    if (in_short() && what.preemptions > 1)
        what.preemptions = 1;
    device::reset();
    {
        stream const any;
        static_cast<void>(weir::runtime::id_of(any)); // the driver's functions are looked up once in a process
    }
    device::at_switch_points([] { inside::step("CUDA", nullptr); });
    explore(
        [&program] {
            device::reset(choose(2) == 0 ? device::config{}.late() : device::config{}.eager());
            program();
            device::drain();
            if (std::string const complaints = device::complaints(); !complaints.empty())
                inside::fail(complaints);
        },
        what);
    device::at_switch_points(nullptr);
    device::reset();
}

} // namespace interleavings

#endif
