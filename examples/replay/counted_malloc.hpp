// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do the pools that call cudaMalloc themselves come to be counted?
//
// They call these two instead: the same calls, entered in a ledger, which may refuse in the driver's place.
//
// cost:      a few nanoseconds on top of the call's.

#include "ledger.hpp"
#include <cuda_runtime_api.h>

namespace replay {

/// cudaMalloc; cudaErrorMemoryAllocation also where the ledger's limit is reached.
inline cudaError_t counted_malloc(ledger& book, void** p, std::size_t bytes) {
    *p = nullptr;
    if (!book.admits(bytes))
        return cudaErrorMemoryAllocation;
    cudaError_t const error = cudaMalloc(p, bytes);
    book.asked(bytes, *p != nullptr && error == cudaSuccess);
    return error;
}

/// cudaFree of `bytes` that counted_malloc gave.
inline cudaError_t counted_free(ledger& book, void* p, std::size_t bytes) {
    if (p)
        book.gave_back(bytes);
    return cudaFree(p);
}

} // namespace replay
