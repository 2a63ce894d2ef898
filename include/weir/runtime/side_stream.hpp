// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// On which stream does a part do work of its own?
//
// On one that it makes: a non-blocking stream, which waits for no default stream. Copies that shall overlap with the user's
// work run there. Events put them in order with the user's streams.
//
// invariant: the stream lives as long as this object. Work that is on it when it ends still runs.
// cost:      two driver calls; making a stream takes some microseconds.
// not for:   the user's own work: the user brings a stream.

#include <cuda_runtime_api.h>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace runtime {

/// Names its stream as a stream_ref does. Any thread.
class side_stream {
public:
    /// On device number `device` (any_device: the current one). Breaks no capture. Throws cuda_error.
    explicit side_stream(int device) {
        device_scope const there(device);
        capture_mode_scope const relaxed;
        check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    side_stream(side_stream const&) = delete;
    side_stream& operator=(side_stream const&) = delete;
    ~side_stream() {
        if (stream_)
            static_cast<void>(base::try_twice([this] { return succeeded(cudaStreamDestroy(stream_)); }));
    }
    cudaStream_t get() const noexcept { return stream_; }
    /// The stream does not end with this object, since somebody still knows it.
    void keep() noexcept { stream_ = nullptr; }

private:
    cudaStream_t stream_ = nullptr;
};

} // namespace runtime
} // namespace v0
} // namespace weir
