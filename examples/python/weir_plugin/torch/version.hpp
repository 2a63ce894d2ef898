// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which PyTorch is this compiled for?
//
// PyTorch's classes grow from one minor version to the next, so a plug-in is for one of them. This is also where the headers of
// c10 come in that the files of this folder share.

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/headeronly/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11
#error "weir: this is for PyTorch 2.11 and later"
#endif

namespace weir_plugin::torch {

namespace caching = c10::CachingDeviceAllocator;
namespace cuda_caching = c10::cuda::CUDACachingAllocator;

using context = std::shared_ptr<c10::GatheredContext>; // where in the program something happened, by PyTorch's own recorder
using action = caching::TraceEntry::Action;
using mempool = c10::MempoolId_t;

} // namespace weir_plugin::torch
