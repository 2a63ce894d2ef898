// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a file get weir's pools with their calls counted?
//
// It includes this header first. Calls about memory, those that wait, and those that make a stream wait are turned to counted
// ones by the preprocessor. So that no other file's weir is mixed up with this one, its inline namespace has another name here.
//
// not for:   a file that needs a header of weir's as other files have it: each header is read once, and here.

#define v0 replay_counted
#include "contender.hpp"
#include "counted_driver.hpp"

#define cudaMalloc(...) ::replay::counted_call(::replay::waiting_memory_call, cudaMalloc(__VA_ARGS__))
#define cudaMallocManaged(...) ::replay::counted_call(::replay::waiting_memory_call, cudaMallocManaged(__VA_ARGS__))
#define cudaFree(...) ::replay::counted_call(::replay::waiting_memory_call, cudaFree(__VA_ARGS__))
#define cudaHostAlloc(...) ::replay::counted_call(::replay::waiting_memory_call, cudaHostAlloc(__VA_ARGS__))
#define cudaFreeHost(...) ::replay::counted_call(::replay::waiting_memory_call, cudaFreeHost(__VA_ARGS__))
#define cudaHostRegister(...) ::replay::counted_call(::replay::waiting_memory_call, cudaHostRegister(__VA_ARGS__))
#define cudaHostUnregister(...) ::replay::counted_call(::replay::waiting_memory_call, cudaHostUnregister(__VA_ARGS__))
#define cudaDeviceSynchronize(...) ::replay::counted_call(::replay::wait_alone, cudaDeviceSynchronize(__VA_ARGS__))
#define cudaStreamSynchronize(...) ::replay::counted_call(::replay::wait_alone, cudaStreamSynchronize(__VA_ARGS__))
#define cudaEventSynchronize(...) ::replay::counted_call(::replay::wait_alone, cudaEventSynchronize(__VA_ARGS__))
#define cudaGetDriverEntryPointByVersion(name, function, version, flags, result)                             \
    ::replay::counted_entry_point(name, function, version, flags, result)
#include "composed_pool.hpp"
#include "counted_upstream.hpp"
#include <weir/weir.hpp>
#undef v0
#undef cudaMalloc
#undef cudaMallocManaged
#undef cudaFree
#undef cudaHostAlloc
#undef cudaFreeHost
#undef cudaHostRegister
#undef cudaHostUnregister
#undef cudaDeviceSynchronize
#undef cudaStreamSynchronize
#undef cudaEventSynchronize
#undef cudaGetDriverEntryPointByVersion
