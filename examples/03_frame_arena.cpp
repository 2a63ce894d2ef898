// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A frame loop on an arena: allocation is an addition, and a scope ends a frame's blocks at once.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <cstdio>
#include <exception>
#include <weir/weir.hpp>

void frames(cudaStream_t stream) {
    weir::frame_pool pool{weir::pool_options{}.name("frame")};

    void* const scene = pool.allocate(stream, 4 * weir::MiB); // lives as long as the pool
    weir::check_cuda(cudaMemsetAsync(scene, 0, 4 * weir::MiB, stream), "cudaMemsetAsync");

    for (std::size_t frame = 0; frame < 4; ++frame) {
        weir::scope const whole_frame(pool);
        std::size_t const particles = 10000 * (frame + 1);
        void* const positions = pool.allocate(stream, particles * 16);
        weir::check_cuda(cudaMemsetAsync(positions, 0, particles * 16, stream), "cudaMemsetAsync");
        {
            weir::scope const sorting(pool); // scopes nest
            void* const keys = pool.allocate(stream, particles * 8);
            weir::check_cuda(cudaMemsetAsync(keys, 0, particles * 8, stream), "cudaMemsetAsync");
            std::printf("frame %zu, while sorting: %4zu KiB in use\n", frame,
                        pool.in_use_bytes() / weir::KiB);
        } // the keys are gone; what comes next on the same stream may have their bytes
        void* const pixels = pool.allocate(stream, 1 * weir::MiB);
        weir::check_cuda(cudaMemsetAsync(pixels, 0, 1 * weir::MiB, stream), "cudaMemsetAsync");
        std::printf("frame %zu, at its end:    %4zu KiB in use\n", frame, pool.in_use_bytes() / weir::KiB);
    } // everything of this frame is gone; its stream orders it before the next frame's work

    std::printf("after the loop: %zu KiB in use, and the driver was asked %zu time for %zu MiB\n",
                pool.in_use_bytes() / weir::KiB, pool.state().chunks, pool.reserved_bytes() / weir::MiB);
    pool.clear(); // the scene too
}

int main() {
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        frames(stream);
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
