// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who owns one of CUDA's memory pools, and how are its attributes read and set?
//
// 'cuda_pool' owns a cudaMemPool_t and destroys it at its own end. Its members are checked CUDA calls: attributes, counts,
// access from other devices, and what may go to other processes. To allocate from the pool or free into it, use CUDA's calls
// with get().
//
// invariant: no call breaks a capture that is under way.
// order:     'trim' gives back only what no work uses. No call waits for work.
// cost:      a driver call of some hundred nanoseconds each.
// not for:   allocation: see driver/driver_pool.hpp.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/base/growing_array.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace runtime {

/// What CUDA counts for a memory pool, in bytes. 'peak': the most since the peaks were reset.
struct cuda_pool_statistics {
    std::size_t in_use_bytes = 0; ///< handed out and not yet freed
    std::size_t peak_in_use_bytes = 0;
    std::size_t reserved_bytes = 0; ///< held from the system
    std::size_t peak_reserved_bytes = 0;
};

/// What another process needs to reach one block of an exported pool. Plain bytes: send them however you like.
struct exported_block {
    cudaMemPoolPtrExportData data{};
};

namespace detail {

// Makes `call`, which throws nothing, in relaxed capture mode; for destructors. If the mode cannot be set, it tries once
// more. Then it makes the call without: nobody could be told, and a thread that cannot set the mode has no capture left to
// break.
template <class Call>
void end_relaxed(Call&& call) noexcept {
    if (!base::try_twice([&] {
            capture_mode_scope const relaxed;
            call();
            return true;
        }))
        call();
}

} // namespace detail

/// Bytes that graphs hold of a device's memory for their own allocations, and that CUDA keeps for the graphs to come. They are
/// the device's and the process's, whichever pool the allocations were captured from. Throws cuda_error.
inline std::size_t graph_memory_bytes(int device) {
    capture_mode_scope const relaxed;
    std::uint64_t value = 0;
    check_cuda(cudaDeviceGetGraphMemAttribute(device, cudaGraphMemAttrReservedMemCurrent, &value),
               "cudaDeviceGetGraphMemAttribute");
    return static_cast<std::size_t>(value);
}
/// Gives back what no graph needs that is under way or enqueued; returns the bytes given back. Throws cuda_error.
inline std::size_t trim_graph_memory(int device) {
    capture_mode_scope const relaxed;
    std::size_t const before = runtime::graph_memory_bytes(device);
    check_cuda(cudaDeviceGraphMemTrim(device), "cudaDeviceGraphMemTrim");
    std::size_t const after = runtime::graph_memory_bytes(device);
    return after < before ? before - after : 0;
}

/// Owns a memory pool. Any thread may call any member; none blocks.
class cuda_pool {
public:
    /// Creates a pool. Throws cuda_error, also if the device has no pools of that kind. `instead`: what to use then, as a
    /// clause.
    explicit cuda_pool(cudaMemPoolProps const& properties, char const* instead = "") {
        capture_mode_scope const relaxed;
        check_cuda(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate",
              "look at 'limit', 'location' (a NUMA node that exists) and 'handle_types'; or there are no such pools "
              "here", instead);
    }
    /// Takes over a pool that exists.
    explicit cuda_pool(cudaMemPool_t owned) noexcept : pool_(owned) {}
    cuda_pool(cuda_pool const&) = delete;
    cuda_pool& operator=(cuda_pool const&) = delete;
    /// Destroys the pool. What is handed out stays valid until it is freed.
    ~cuda_pool() {
        detail::end_relaxed([this] { static_cast<void>(succeeded(cudaMemPoolDestroy(pool_))); });
    }

    /// CUDA's handle, for calls that weir does not wrap.
    cudaMemPool_t get() const noexcept { return pool_; }

    /// Sets an attribute; `Value` is int or std::uint64_t, as CUDA says for each. Throws cuda_error.
    template <class Value>
    void set(cudaMemPoolAttr attribute, Value value) {
        capture_mode_scope const relaxed;
        check_cuda(cudaMemPoolSetAttribute(pool_, attribute, &value), "cudaMemPoolSetAttribute");
    }
    /// The value of an attribute that counts bytes. Throws cuda_error.
    std::size_t bytes(cudaMemPoolAttr attribute) const {
        capture_mode_scope const relaxed;
        std::uint64_t value = 0;
        check_cuda(cudaMemPoolGetAttribute(pool_, attribute, &value), "cudaMemPoolGetAttribute");
        return static_cast<std::size_t>(value);
    }

    /// What CUDA counts. The figures are read one after another, and other threads may allocate in between. Throws
    /// cuda_error.
    cuda_pool_statistics statistics() const {
        cuda_pool_statistics now;
        now.in_use_bytes = bytes(cudaMemPoolAttrUsedMemCurrent);
        now.peak_in_use_bytes = bytes(cudaMemPoolAttrUsedMemHigh);
        now.reserved_bytes = bytes(cudaMemPoolAttrReservedMemCurrent);
        now.peak_reserved_bytes = bytes(cudaMemPoolAttrReservedMemHigh);
        return now;
    }
    /// Sets the peaks to the present figures. Throws cuda_error.
    void reset_peaks() {
        set<std::uint64_t>(cudaMemPoolAttrReservedMemHigh, 0);
        set<std::uint64_t>(cudaMemPoolAttrUsedMemHigh, 0);
    }

    /// Gives unused memory back to the system until at most `keep_bytes` are held; returns the bytes given back. Throws
    /// cuda_error.
    std::size_t trim(std::size_t keep_bytes) {
        capture_mode_scope const relaxed;
        std::size_t const before = bytes(cudaMemPoolAttrReservedMemCurrent);
        check_cuda(cudaMemPoolTrimTo(pool_, keep_bytes), "cudaMemPoolTrimTo");
        std::size_t const after = bytes(cudaMemPoolAttrReservedMemCurrent);
        return after < before ? before - after : 0; // more than before, if other threads allocate meanwhile
    }

    /// Lets kernels and copies of device number `device` use the pool's memory, including what is handed out already. Throws
    /// cuda_error, also if the device cannot reach the memory.
    void enable_access_from(int device) {
        cudaMemAccessDesc const access = access_of(device);
        capture_mode_scope const relaxed;
        check_cuda(cudaMemPoolSetAccess(pool_, &access, 1), "cudaMemPoolSetAccess");
    }
    /// The same for every device of the machine. Throws cuda_error, std::bad_alloc.
    void allow_all() {
        base::growing_array<cudaMemAccessDesc> all;
        for (int each = 0, count = device_count(); each < count; ++each)
            all.push_back(access_of(each));
        capture_mode_scope const relaxed;
        check_cuda(cudaMemPoolSetAccess(pool_, all.data(), all.size()), "cudaMemPoolSetAccess");
    }

    /// Exports the pool as a file descriptor. The caller owns it, and may send it to another process and closes it. Throws
    /// cuda_error, also for a pool that was not made with that handle type.
    int export_descriptor() const {
        int descriptor = -1;
        export_to(&descriptor, cudaMemHandleTypePosixFileDescriptor);
        return descriptor;
    }
    /// Exports the pool as a fabric handle: plain bytes, which are good for processes on other machines of one NVLink fabric,
    /// too.
    cudaMemFabricHandle_t export_fabric() const {
        cudaMemFabricHandle_t handle{};
        export_to(&handle, cudaMemHandleTypeFabric);
        return handle;
    }
    /// Exports the block that begins at `begin`. Throws cuda_error, also if the block's pool cannot be exported.
    static exported_block export_block(void* begin) {
        exported_block block;
        capture_mode_scope const relaxed;
        check_cuda(cudaMemPoolExportPointer(&block.data, begin), "cudaMemPoolExportPointer",
              "export the pool itself first, and pass a live block of it");
        return block;
    }

private:
    static cudaMemAccessDesc access_of(int device) noexcept {
        cudaMemAccessDesc access{};
        access.location.type = cudaMemLocationTypeDevice;
        access.location.id = device;
        access.flags = cudaMemAccessFlagsProtReadWrite;
        return access;
    }
    void export_to(void* handle, cudaMemAllocationHandleType type) const {
        capture_mode_scope const relaxed;
        check_cuda(cudaMemPoolExportToShareableHandle(handle, pool_, type, 0), "cudaMemPoolExportToShareableHandle");
    }

    cudaMemPool_t pool_ = nullptr;
};

} // namespace runtime
} // namespace v0
} // namespace weir
