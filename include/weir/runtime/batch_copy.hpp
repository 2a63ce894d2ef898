// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are many copies enqueued at once?
//
// CUDA 12.8 brought cudaMemcpyBatchAsync, which takes a list of copies and enqueues them for less than as many calls of
// cudaMemcpyAsync. CUDA 13 dropped one of its parameters. It does not take the legacy default stream, and an old driver does
// not have it: there, each copy is a call of its own.
//
// order:     the whole list comes after what is on the stream, and before what comes later. The copies of one list are in no
//            order among themselves.
// cost:      one driver call for a list, or one for each copy.
// not for:   captured streams, and copies of which one reads what another writes.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/runtime/check.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace runtime {

namespace detail {
inline constexpr char const* if_not_copied =
    "a source or a target is not live memory of that size, or lies on a device whose memory the current one cannot use; "
    "check both, or open the memory ('enable_access_from')";

// The list as one call; false if there is no such call here.
inline bool try_copy_list(stream_ref stream, void** to, void** from, std::size_t* bytes, std::size_t count) {
    if (runtime::is_legacy(stream))
        return false;
    cudaMemcpyAttributes in_order{};
    in_order.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
#if CUDART_VERSION >= 13000
    cudaError_t const error = cudaMemcpyBatchAsync(to, from, bytes, count, &in_order, &first, 1, stream.get());
#else
    std::size_t failed = 0;
    cudaError_t const error = cudaMemcpyBatchAsync(to, from, bytes, count, &in_order, &first, 1, &failed, stream.get());
#endif
    if (error == cudaErrorNotSupported || error == cudaErrorCallRequiresNewerDriver) {
        detail::take_off_record(error);
        return false;
    }
    check_cuda(error, "cudaMemcpyBatchAsync", if_not_copied);
    return true;
}
} // namespace detail

/// Enqueues `count` copies: of `bytes[i]` bytes, not zero, from `from[i]` to `to[i]`, each host or device memory. Does not
/// block, except for ordinary host memory as cudaMemcpyAsync does. Throws cuda_error; some of the copies may have been
/// enqueued then.
inline void copy_list(stream_ref stream, void** to, void** from, std::size_t* bytes, std::size_t count) {
    if (count > 1 && detail::try_copy_list(stream, to, from, bytes, count))
        return;
    for (std::size_t i = 0; i != count; ++i)
        check_cuda(cudaMemcpyAsync(to[i], from[i], bytes[i], cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync",
              detail::if_not_copied);
}

} // namespace runtime
} // namespace v0
} // namespace weir
