// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A checking tool takes no borders inside of mapped memory.
// expect: weir: the upstream slot of nvtx::checked_chunks takes memory that CUDA allocates: upstream::device, upstream::pinned<> or upstream::managed; compute-sanitizer takes no borders inside of mapped memory
// errors: 1
#include <weir/interop/nvtx/checked_chunks.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/virtual_memory.hpp>

#ifdef REJECT
using memory = weir::upstream::virtual_memory<>;
#else
using memory = weir::upstream::device;
#endif

inline constexpr std::size_t alignment = weir::interop::nvtx::checked_chunks<memory>::alignment;
