// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// On which stream does CUDA's pool allocate and free for the host?
//
// CUDA's pools know streams only. So what happens on the host goes through a stream of the pool's own, which nobody else uses.
// It is made when it is first needed.
//
// order:     none with any other stream.
// cost:      a call that makes the stream, once; after that a lock.
// not for:   work of the program.

#include <cuda_runtime_api.h>
#include <weir/base/threads/mutex.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace driver::detail {

/// Any thread may call any member.
class host_stream {
public:
    /// Of device number `device`.
    explicit host_stream(int device) noexcept : device_(device) {}
    host_stream(host_stream const&) = delete;
    host_stream& operator=(host_stream const&) = delete;
    ~host_stream() {
        if (stream_)
            static_cast<void>(runtime::succeeded(cudaStreamDestroy(stream_)));
    }

    /// The stream. Throws cuda_error.
    cudaStream_t get() {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (!stream_) {
            runtime::device_scope const current(device_);
            check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        }
        return stream_;
    }

    /// Whether `stream` is this one, which nobody captures. Never blocks.
    bool is(cudaStream_t stream) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return stream_ && stream_ == stream;
    }

private:
    int device_;
    mutable base::mutex mutex_;
    cudaStream_t stream_ = nullptr;
};

} // namespace driver::detail
} // namespace v0
} // namespace weir
