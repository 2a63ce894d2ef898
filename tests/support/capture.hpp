// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Captures a stream into a graph for a while, and tells whether something broke the capture.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

namespace support {

/// The default mode is CUDA's: the strictest, in which calls of any thread can break the capture.
class capture {
public:
    explicit capture(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal)
        : stream_(stream) {
        REQUIRE(cudaStreamBeginCapture(stream_, mode) == cudaSuccess);
    }
    capture(capture const&) = delete;
    capture& operator=(capture const&) = delete;
    ~capture() {
        if (stream_)
            static_cast<void>(unbroken());
    }

    /// Ends the capture and throws the graph away; whether the capture was whole. `nodes`: how many the graph had.
    bool unbroken(std::size_t* nodes = nullptr) {
        cudaGraph_t graph = nullptr;
        cudaError_t const error = cudaStreamEndCapture(stream_, &graph);
        stream_ = nullptr;
        if (graph && nodes)
            CHECK(cudaGraphGetNodes(graph, nullptr, nodes) == cudaSuccess);
        if (graph)
            CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        static_cast<void>(cudaGetLastError());
        return error == cudaSuccess;
    }

private:
    cudaStream_t stream_;
};

} // namespace support
