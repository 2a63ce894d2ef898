// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which stream does a call of the simulated device mean?
//
// The one whose handle it is given, and for a null handle the default stream that the calling file means. Each device has
// default streams of its own: the current device's is meant, unless the name says otherwise.
//
// cost: none.

#include <cuda_runtime_api.h>

#include <type_traits>

namespace simulated_device {

/// A stream as CUDA's functions take it, or what converts to one. Null is the default stream that the calling file means: the
/// thread's own one if the file is compiled with per-thread default streams (CUDA_API_PER_THREAD_DEFAULT_STREAM), or else the
/// legacy one. The linker keeps one copy of a function that it may merge, such as an inline one: pass a name there, not null.
class stream_name {
public:
    [[gnu::always_inline]] stream_name(cudaStream_t stream) : handle_(stream != nullptr ? stream : usual()) {}
    template <class Stream,
              class = std::enable_if_t<std::is_class_v<Stream> && std::is_convertible_v<Stream const&, cudaStream_t>>>
    [[gnu::always_inline]] stream_name(Stream const& stream) : stream_name(static_cast<cudaStream_t>(stream)) {}
    /// The same stream; a default stream is that of device number `device`, whichever is current. Negative: the current one's.
    stream_name(stream_name stream, int device) : handle_(stream.handle_), device_(device) {}
    /// Not null.
    cudaStream_t get() const { return handle_; }
    int device() const { return device_; }

private:
    [[gnu::always_inline]] static cudaStream_t usual() {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
        return cudaStreamPerThread;
#else
        return cudaStreamLegacy;
#endif
    }

    cudaStream_t handle_;
    int device_ = -1;
};

} // namespace simulated_device
