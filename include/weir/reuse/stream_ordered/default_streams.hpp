// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which stream does the name of a default stream mean, in this thread and at this moment?
//
// cudaStreamLegacy means one stream of each context, and cudaStreamPerThread means one of each thread and context. CUDA tells
// them apart by an id, but it takes a lock of the context to look at such a name: 25 to 36 ns for one thread, and 16 threads
// wait for one another (50 ns of wall time a call). So this asks for the context, which takes no lock. That is all that the
// legacy stream needs. For its own default stream a thread remembers the last context and the id that CUDA gave there. This
// is CUDA's answer, and nothing that weir counts: every library of a process finds the same.
//
// invariant: streams that live at the same time have different keys; a thread that ended never shares a key with a later one.
// cost:      12 ns; the first call of a thread in a context asks for the id.
// not for:   other streams, whose handle is enough together with their id (identity.hpp).

#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// The lowest bits of a key tell what it is made of: a created stream's handle, which is an address, has zeros there.
inline constexpr std::uint64_t key_of_context = 1;
inline constexpr std::uint64_t key_of_id = 2;
inline constexpr std::uint64_t key_kinds = 7;

/// Whether the key is that of a default stream.
inline bool is_default_key(std::uint64_t key) noexcept {
    return (key & key_kinds) != 0;
}

/// A number for the stream itself, by its id. Throws usage_error while it is captured, cuda_error.
inline std::uint64_t key_by_id(stream_ref stream) {
    runtime::require_no_capture(stream); // the question for the id would break the capture
    return static_cast<std::uint64_t>(runtime::id_of(stream)) << 3 | key_of_id;
}

/// A nonzero number by which to look up what is known of the default stream that `stream` names. Throws usage_error for a
/// thread's own stream that is captured when its id is asked for, cuda_error.
inline std::uint64_t key_of_default(stream_ref stream) {
    void* context = runtime::detail::current_context();
    if (!context) { // the first call of a thread makes it
        check_cuda(cudaSetDevice(runtime::current_device()), "cudaSetDevice");
        context = runtime::detail::current_context();
    }
    if (!context)
        return reuse::detail::key_by_id(stream);
    if (runtime::is_legacy(stream))
        return reinterpret_cast<std::uintptr_t>(context) | key_of_context;
    struct answer {
        void* context;
        std::uint64_t key;
    };
    static thread_local answer last{nullptr, 0};
    if (last.context != context)
        last = answer{context, reuse::detail::key_by_id(stream)};
    return last.key;
}

} // namespace reuse::detail
} // namespace v0
} // namespace weir
