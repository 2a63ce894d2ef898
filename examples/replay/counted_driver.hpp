// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How often do weir's pools really call the driver, and how often do they wait?
//
// Only what makes the calls knows: an upstream may refuse before it asks for anything, or take back what it mapped
// where a later piece found no room. weir calls the runtime, or looks the driver's functions up by name. Where
// calls of the one are turned to counted_call and of the other to counted_entry_point, as in weir_pools.cpp,
// each is entered in a ledger and then made as it was.
//
// cost:      a few nanoseconds on top of the call's.
// not for:   several threads.

#include "ledger.hpp"
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <string_view>

namespace replay {

/// While it lives, calls are entered in `book`. One at a time.
class counted_driver {
public:
    explicit counted_driver(ledger& book) { current = &book; }
    ~counted_driver() { current = nullptr; }
    counted_driver(counted_driver const&) = delete;
    counted_driver& operator=(counted_driver const&) = delete;

    static void called(call_kind kind) noexcept {
        if (current)
            current->called(kind);
    }

private:
    static inline ledger* current = nullptr;
};

/// What a call of the runtime's answered, and that it was made.
inline cudaError_t counted_call(call_kind kind, cudaError_t answer) noexcept {
    counted_driver::called(kind);
    return answer;
}

/// One of the driver's functions with the call counted. Each has a type of its own, by which it is told here.
template <call_kind const& Kind, class... Arguments>
struct counted_function {
    static inline int (*original)(Arguments...) = nullptr;

// Clang's function sanitizer compares types to the letter, and cuda.h, which costs much to compile, has the letters.
#if defined(__clang__)
    __attribute__((no_sanitize("function")))
#endif
    static int
    call(Arguments... arguments) {
        counted_driver::called(Kind);
        return original(arguments...);
    }

    static void* over(void* function) {
        original = reinterpret_cast<int (*)(Arguments...)>(function);
        return reinterpret_cast<void*>(&call);
    }
};

/// `function`, which the driver calls `name`, counted if it is about memory or makes a stream wait; CUdeviceptr and memory
/// handles are 64 bits. No host waits in them (weir's upstream/virtual_memory/memory_map.hpp): who unmaps has to wait first.
inline void* with_count(std::string_view name, void* function) {
    using bits = unsigned long long;
    using bytes = std::size_t;
    if (name == "cuMemCreate")
        return counted_function<memory_call, bits*, bytes, void const*, bits>::over(function);
    if (name == "cuMemMap")
        return counted_function<memory_call, bits, bytes, bytes, bits, bits>::over(function);
    if (name == "cuMemSetAccess")
        return counted_function<memory_call, bits, bytes, void const*, bytes>::over(function);
    if (name == "cuMemRelease")
        return counted_function<memory_call, bits>::over(function);
    if (name == "cuMemUnmap")
        return counted_function<memory_call, bits, bytes>::over(function);
    if (name == "cuMemRetainAllocationHandle")
        return counted_function<memory_call, bits*, void*>::over(function);
    if (name == "cuMemAllocFromPoolAsync")
        return counted_function<memory_call, bits*, bytes, cudaMemPool_t, cudaStream_t>::over(function);
    if (name == "cuMemFreeAsync")
        return counted_function<memory_call, bits, cudaStream_t>::over(function);
    if (name == "cuStreamWaitEvent")
        return counted_function<stream_wait, cudaStream_t, cudaEvent_t, unsigned>::over(function);
    return function;
}

/// cudaGetDriverEntryPointByVersion; answers counted functions.
inline cudaError_t counted_entry_point(char const* name, void** function, unsigned version,
                                       unsigned long long flags, cudaDriverEntryPointQueryResult* result) {
    cudaError_t const error = cudaGetDriverEntryPointByVersion(name, function, version, flags, result);
    if (error == cudaSuccess && *result == cudaDriverEntryPointSuccess)
        *function = with_count(name, *function);
    return error;
}

} // namespace replay
