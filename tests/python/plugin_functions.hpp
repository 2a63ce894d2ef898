// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// The plug-in's functions (examples/python/weir_plugin/plugin.cpp), for programs that call them as PyTorch does.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <functional>
#include <utility>

using pool_id = std::pair<unsigned long long, unsigned long long>;
using stream_filter = std::function<bool(cudaStream_t)>;

extern "C" {
int weir_configure(std::size_t limit, char const* name);
char const* weir_error();
void* weir_allocate(std::size_t bytes, int device, cudaStream_t stream);
void* weir_try_allocate_sync(std::size_t bytes, int device, cudaStream_t stream);
void weir_deallocate(void* p, std::size_t bytes, int device, cudaStream_t stream);
void weir_record_stream(void* p, cudaStream_t stream);
void weir_empty_cache();
void weir_set_memory_fraction(double fraction, int device);
void weir_begin_capture(int device, pool_id id, stream_filter filter);
void weir_end_capture(int device, pool_id id);
void weir_release_capture(int device, pool_id id);
int weir_state(int device, unsigned long long* figures);
int weir_reset_peak(int device);
int weir_trim(int device, std::size_t keep, unsigned long long* given);
int weir_suspend(int device, int keep, unsigned long long* given);
int weir_resume(int device);
}

/// What weir_state writes.
struct figures {
    unsigned long long requested, peak_requested, in_use, reserved, peak_reserved, limit, blocks, chunks, lost, total;
};
