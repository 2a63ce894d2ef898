// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a caller name a stream?
//
// 'stream_ref' takes a cudaStream_t, or anything that is or has one: a type that converts to cudaStream_t, or has '.get()',
// '.stream()' or '.value()' returning one (cuda::stream_ref, RMM's and PyTorch's wrappers). It owns nothing. One value is no
// stream: 'on_host' says that the host itself uses the memory. Memory that is allocated on the host is used by no work in
// flight; a free on the host promises that every use is over.
//
// invariant: copies compare equal. A handle names a stream only while the stream lives (reuse/identity.hpp). A
//            null handle means one default stream or another, depending on whether the file that wrote it was compiled with
//            per-thread default streams. It is turned at once into that stream's name. But the linker keeps only one copy of
//            a function, whichever file it comes from. So each function that turns a handle into a stream_ref is either
//            always inlined, or takes a stream_ref. In a program with both kinds of files, a function of yours that the
//            linker may merge (an inline one, a template such as std::make_unique) must take a stream_ref, too.
//            In such a function 'default_stream' stands for one file's meaning, too.
// cost:      one pointer.
// not for:   owning, creating or destroying streams.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <type_traits>
#include <utility>
#include <weir/base/stand_ins.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/driver_calls.hpp>

namespace weir {
inline namespace v0 {

namespace runtime::detail {
template <class T, class = void>
struct has_get : std::false_type {};
template <class T>
struct has_get<T, std::enable_if_t<std::is_same_v<decltype(std::declval<T const&>().get()), cudaStream_t>>>
    : std::true_type {};
template <class T, class = void>
struct has_stream : std::false_type {};
template <class T>
struct has_stream<T, std::enable_if_t<std::is_same_v<decltype(std::declval<T const&>().stream()), cudaStream_t>>>
    : std::true_type {};
template <class T, class = void>
struct has_value : std::false_type {};
template <class T>
struct has_value<T, std::enable_if_t<std::is_same_v<decltype(std::declval<T const&>().value()), cudaStream_t>>>
    : std::true_type {};

template <class T>
inline constexpr bool is_number = std::is_integral_v<T> || std::is_same_v<T, std::nullptr_t>;
template <class T>
inline constexpr bool names_a_stream =
    !is_number<T> && (std::is_convertible_v<T const&, cudaStream_t> || runtime::detail::has_get<T>::value ||
                      runtime::detail::has_stream<T>::value || runtime::detail::has_value<T>::value);
template <class T>
using if_other_stream = std::enable_if_t<names_a_stream<T> && !std::is_same_v<T, stream_ref>>;
} // namespace runtime::detail

/// The default stream that the including file means: the calling thread's own one if the file is compiled with per-thread
/// default streams (CUDA_API_PER_THREAD_DEFAULT_STREAM), or else the legacy one. Each file has a constant of its own, since
/// files may differ in this.
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
[[maybe_unused]] static cudaStream_t const default_stream = cudaStreamPerThread;
#else
[[maybe_unused]] static cudaStream_t const default_stream = cudaStreamLegacy;
#endif

/// Names a CUDA stream, or the host, and owns nothing. Trivially copyable.
class stream_ref {
public:
    /// From a stream's handle. A null handle is 'default_stream'; that and CUDA's names for the default streams are streams
    /// like others.
    [[gnu::always_inline]] stream_ref(cudaStream_t stream) noexcept : stream_(by_name(stream)) {}

    /// The host: see the head of this file.
    stream_ref(on_host_t) noexcept : stream_(nullptr), is_host_(true) {}

    /// Anything that is or has a cudaStream_t.
    template <class Stream, class = std::enable_if_t<runtime::detail::names_a_stream<Stream>>>
    [[gnu::always_inline]] stream_ref(Stream const& stream) : stream_(by_name(handle_of(stream))) {}

    /// Refused: a reader cannot tell which stream '0', 'nullptr' or 'NULL' means.
    template <class Number, std::enable_if_t<runtime::detail::is_number<Number>, int> = 0>
    stream_ref(Number) noexcept : stream_(nullptr) {
        static_assert(!runtime::detail::is_number<Number>,
                      "weir: '0', 'nullptr', 'NULL' and other numbers do not say which stream they mean; write "
                      "'weir::default_stream', 'cudaStreamLegacy' or 'cudaStreamPerThread', or pass a cudaStream_t, which "
                      "'allocate' takes first and a container behind its pool");
    }

    /// CUDA's handle; for 0, cudaStreamLegacy or cudaStreamPerThread; null if is_host().
    cudaStream_t get() const noexcept { return stream_; }
    /// The same where CUDA asks for a stream: 'kernel<<<grid, block, 0, xs.stream()>>>'. Throws usage_error for the host, since
    /// null would be a default stream.
    operator cudaStream_t() const {
        if (is_host_)
            throw usage_error("weir: the host is no stream of CUDA's; name a stream for work on a device");
        return stream_;
    }
    operator bool() const = delete; // weir: a stream is neither true nor false; ask 'is_host()'
    /// Whether this names the host, not a stream.
    bool is_host() const noexcept { return is_host_; }

    friend bool operator==(stream_ref a, stream_ref b) noexcept {
        return a.stream_ == b.stream_ && a.is_host_ == b.is_host_;
    }
    friend bool operator!=(stream_ref a, stream_ref b) noexcept { return !(a == b); }

private:
    [[gnu::always_inline]] static cudaStream_t by_name(cudaStream_t stream) noexcept {
        return stream ? stream : default_stream;
    }
    template <class Stream>
    static cudaStream_t handle_of(Stream const& stream) {
        if constexpr (std::is_convertible_v<Stream const&, cudaStream_t>)
            return static_cast<cudaStream_t>(stream);
        else if constexpr (runtime::detail::has_get<Stream>::value)
            return stream.get();
        else if constexpr (runtime::detail::has_stream<Stream>::value)
            return stream.stream();
        else
            return stream.value();
    }

    cudaStream_t stream_;
    bool is_host_ = false;
};

// With a handle, or an object that has one, by the stream that it names here.
template <class Stream, class = runtime::detail::if_other_stream<Stream>>
[[gnu::always_inline]] inline bool operator==(stream_ref a, Stream const& b) {
    return a == stream_ref(b);
}
template <class Stream, class = runtime::detail::if_other_stream<Stream>>
[[gnu::always_inline]] inline bool operator==(Stream const& a, stream_ref b) {
    return stream_ref(a) == b;
}
template <class Stream, class = runtime::detail::if_other_stream<Stream>>
[[gnu::always_inline]] inline bool operator!=(stream_ref a, Stream const& b) {
    return a != stream_ref(b);
}
template <class Stream, class = runtime::detail::if_other_stream<Stream>>
[[gnu::always_inline]] inline bool operator!=(Stream const& a, stream_ref b) {
    return stream_ref(a) != b;
}

namespace runtime {

/// The number of the device that `stream` belongs to; for the host, the current device. Breaks the capture of a stream that
/// is being captured, so ask 'is_capturing' first. Throws cuda_error.
inline int device_of(stream_ref stream) {
    int device = 0;
    if (stream.is_host())
        check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    else
        check_cuda(cudaStreamGetDevice(stream.get(), &device), "cudaStreamGetDevice");
    return device;
}

/// The id that CUDA gives to the stream itself. It is unique for the life of the process, while a handle is used again as
/// soon as its stream is destroyed. Breaks the capture of a stream that is being captured, so ask 'is_capturing' first. 22
/// ns; 25 to 36 for a default stream, for which threads may wait for one another. Throws cuda_error.
inline unsigned long long id_of(stream_ref stream) {
    unsigned long long id = 0;
    check_cuda(runtime::detail::query_id(stream.get(), &id), "cudaStreamGetId");
    return id;
}

/// Whether `stream` is one of CUDA's default streams, whose handle is a fixed value. Also true for the host, whose handle is
/// null.
inline bool is_default_stream(stream_ref stream) noexcept {
    return runtime::is_default_handle(stream.get());
}

/// Whether `stream` is the calling thread's own default stream.
inline bool is_per_thread(stream_ref stream) noexcept {
    return stream.get() == cudaStreamPerThread;
}

/// Whether `stream` is the legacy default stream, which cannot be captured.
inline bool is_legacy(stream_ref stream) noexcept {
    return stream.get() == cudaStreamLegacy;
}

} // namespace runtime
} // namespace v0
} // namespace weir
