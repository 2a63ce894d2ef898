// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is mapped memory made as, so that others can have it too?
//
// CUDA must be told when memory is made: whether it can be exported to other processes and hosts, and whether network cards may
// read and write it. A library that registers memory (NCCL's windows, a network card's driver) refuses what was made as
// something else, or copies through buffers of its own. What stands here under 'wished' is left out on a device that lacks it,
// and upstream::virtual_memory says what it got.
//
// cost:      none: these are constants.
// not for:   memory of cudaMalloc, which cudaIpcGetMemHandle exports.

#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// Numbers of upstream::virtual_memory: memory of this process. Derive from it to change some.
struct virtual_memory_tuning {
    /// How a chunk can be exported: bits of CUmemAllocationHandleType; 0: not at all. A device that lacks one refuses.
    static constexpr unsigned handle_types = 0;
    /// Bits of the same, where the device has them. Asked for together and left out together.
    static constexpr unsigned wished_handle_types = 0;
    /// Whether network cards may read and write the memory, where device and driver can have that (gpuDirectRDMACapable).
    static constexpr bool wished_rdma = false;
    /// Whether pages are as large as CUDA recommends for speed; else as small as it allows. Chunks are multiples of 2 MiB
    /// either way: a device whose pages do not fit in these counts as one that cannot map memory.
    static constexpr bool recommended_pages = false;
    /// Whether no other device maps the memory ('enable_access_from' does not compile): each that did would make launches and
    /// chunks slower. Say so where a library reaches the memory in its own way.
    static constexpr bool own_device_alone = false;
};

/// Memory that can be exported: `HandleTypes` are bits of CUmemAllocationHandleType (1: a file's descriptor).
template <unsigned HandleTypes>
struct exported_memory : virtual_memory_tuning {
    static constexpr unsigned handle_types = HandleTypes;
};

/// Memory that NCCL's windows and network cards can register. Each chunk is one handle of the driver's.
struct registered_memory : virtual_memory_tuning {
    static constexpr unsigned handle_types = 1;        // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: processes of this host
    static constexpr unsigned wished_handle_types = 8; // CU_MEM_HANDLE_TYPE_FABRIC: other hosts of an NVLink domain
    static constexpr bool wished_rdma = true;
    static constexpr bool recommended_pages = true;
    static constexpr bool own_device_alone = true;
};

} // namespace upstream
} // namespace v0
} // namespace weir
