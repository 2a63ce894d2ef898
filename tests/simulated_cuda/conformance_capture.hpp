// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What the probes of captures and of graphs share: a capture that is over at the end of its scope, an
// executable that is destroyed there, and what a broken capture looks like.
//
// not for: anything but probes: it checks with doctest.

#include "conformance.hpp"

namespace conformance {

/// Begins a capture; at its end the capture is over, whatever happened.
class capture {
public:
    explicit capture(cudaStream_t origin, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal)
        : origin_(origin) {
        CUDA_MUST(cudaStreamBeginCapture(origin, mode));
    }
    ~capture() {
        if (open_)
            static_cast<void>(cudaStreamEndCapture(origin_, &graph_));
        if (graph_ != nullptr)
            CUDA_OK(cudaGraphDestroy(graph_));
        static_cast<void>(cudaGetLastError());
    }
    capture(capture const&) = delete;
    capture& operator=(capture const&) = delete;

    cudaError_t end() {
        open_ = false;
        cudaError_t const error = cudaStreamEndCapture(origin_, &graph_);
        static_cast<void>(cudaGetLastError());
        return error;
    }
    cudaGraph_t graph() const { return graph_; }
    void forget() { graph_ = nullptr; }

private:
    cudaStream_t origin_;
    cudaGraph_t graph_ = nullptr;
    bool open_ = true;
};

class executable {
public:
    explicit executable(cudaGraph_t graph) { CUDA_MUST(cudaGraphInstantiate(&handle_, graph, 0)); }
    ~executable() { CUDA_OK(cudaGraphExecDestroy(handle_)); }
    executable(executable const&) = delete;
    executable& operator=(executable const&) = delete;
    operator cudaGraphExec_t() const { return handle_; }

private:
    cudaGraphExec_t handle_ = nullptr;
};

inline std::size_t nodes_of(cudaGraph_t graph) {
    std::size_t count = 0;
    CUDA_OK(cudaGraphGetNodes(graph, nullptr, &count));
    return count;
}

inline void count_up(void* p) {
    static_cast<std::atomic<int>*>(p)->fetch_add(1);
}

/// The capture on a stream is broken, and its end says so and gives no graph.
inline void is_broken(cudaStream_t stream, capture& broken) {
    CHECK(status_of(stream) == cudaStreamCaptureStatusInvalidated);
    CUDA_IS(cudaErrorStreamCaptureInvalidated, broken.end());
    CHECK(broken.graph() == nullptr);
    CHECK(status_of(stream) == cudaStreamCaptureStatusNone);
}

} // namespace conformance
