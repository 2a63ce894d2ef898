// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A graph that a test captures and launches, and the work that its nodes do.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <weir/runtime/check.hpp>

namespace support {

// A captured graph and what launches it.
class recording {
public:
    explicit recording(cudaStream_t stream) : stream_(stream) {
        weir::check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    }
    recording(recording const&) = delete;
    recording& operator=(recording const&) = delete;
    ~recording() {
        if (launchable_)
            static_cast<void>(cudaGraphExecDestroy(launchable_));
        if (graph_)
            static_cast<void>(cudaGraphDestroy(graph_));
    }
    void end() {
        weir::check_cuda(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");
        weir::check_cuda(cudaGraphInstantiate(&launchable_, graph_, 0), "cudaGraphInstantiate");
    }
    // Ends in vain.
    void spoil() {
        static_cast<void>(cudaStreamSynchronize(stream_));
        CHECK(cudaStreamEndCapture(stream_, &graph_) == cudaErrorStreamCaptureInvalidated);
        static_cast<void>(cudaGetLastError());
    }
    void launch(cudaStream_t stream) const { weir::check_cuda(cudaGraphLaunch(launchable_, stream), "cudaGraphLaunch"); }
    cudaGraph_t graph() const { return graph_; }

private:
    cudaStream_t stream_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t launchable_ = nullptr;
};

inline void fill(void* p, int value, std::size_t bytes, cudaStream_t s) {
    weir::check_cuda(cudaMemsetAsync(p, value, bytes, s), "cudaMemsetAsync");
}
inline void copy(void* to, void const* from, std::size_t bytes, cudaStream_t s) {
    weir::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, s), "cudaMemcpyAsync");
}
inline int first_byte(void const* p) {
    unsigned char byte = 0;
    weir::check_cuda(cudaMemcpy(&byte, p, 1, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return byte;
}
inline void drain(cudaStream_t s) {
    weir::check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}

} // namespace support
