// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one reach memory that another process allocated?
//
// The other process (the exporter) makes a driver_pool with handle types, exports the pool once, and then each block that it
// shares. This process (the importer) imports the pool, and then block by block. That maps the same bytes at an address of this
// process's own.
//
//     exporter: driver_pool pool(options); int fd = pool.export_descriptor();   // to be sent over a Unix socket
//               exported_block block = pool.export_block(p);                    // plain bytes
//     importer: imported_pool theirs(fd); void* q = theirs.acquire(block);
//
// invariant: what is acquired is mapped until it is released, also when this object has ended.
// order:     the exporter's allocation must be over before the bytes are used here, and every importer must release a block
//            before the exporter frees it. The processes tell one another, by CUDA's interprocess events or on the host.
// cost:      driver calls that map memory: import once, and keep.
// not for:   allocating: CUDA refuses that on imported pools.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/cuda_pool.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/give_back.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// A pool of another process. Any thread may call any member.
class imported_pool {
public:
    /// Imports from a file descriptor that driver_pool::export_descriptor made and the other process sent. The descriptor stays
    /// the caller's, who may close it after this call. Throws cuda_error.
    explicit imported_pool(int descriptor)
        : pool_(import(reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                       cudaMemHandleTypePosixFileDescriptor)) {}
    /// Imports from a fabric handle. Throws cuda_error.
    explicit imported_pool(cudaMemFabricHandle_t handle) : pool_(import(&handle, cudaMemHandleTypeFabric)) {}

    /// Lets kernels and copies of device number `device` use the memory; its own device may from the start. Throws usage_error
    /// if there is no such device, cuda_error also if that device cannot use the memory.
    void enable_access_from(int device) { pool_.enable_access_from(runtime::existing_device(device)); }

    /// Maps the exporter's block and returns its address in this process. Does not wait. Throws cuda_error, also for a block of
    /// another pool or one that the exporter has freed.
    void* acquire(runtime::exported_block const& block) {
        cudaMemPoolPtrExportData data = block.data; // CUDA does not promise to leave it as it is
        void* begin = nullptr;
        runtime::capture_mode_scope const relaxed;
        check_cuda(cudaMemPoolImportPointer(&begin, pool_.get(), &data), "cudaMemPoolImportPointer");
        return begin;
    }

    /// Gives back the address `p` that `acquire` returned, in the order of `stream`. On the host it gives it back at once,
    /// which waits for the device. Null does nothing. False: CUDA refused, as it does on a stream that is being captured, and
    /// `p` is still the caller's.
    bool release(stream_ref stream, void* p) noexcept {
        if (!p)
            return true;
        if (stream.is_host())
            return runtime::gave_back([&] { return cudaFree(p); });
        return runtime::capture_state_of(stream) == runtime::capture_state::none &&
               runtime::gave_back([&] { return cudaFreeAsync(p, stream.get()); });
    }

    /// CUDA's handle, for calls that weir does not wrap.
    cudaMemPool_t get() const noexcept { return pool_.get(); }

private:
    static cudaMemPool_t import(void* handle, cudaMemAllocationHandleType type) {
        cudaMemPool_t pool = nullptr;
        runtime::capture_mode_scope const relaxed;
        char const* const call = "cudaMemPoolImportFromShareableHandle";
        cudaError_t const error = cudaMemPoolImportFromShareableHandle(&pool, handle, type, 0);
        if (error == cudaErrorInvalidValue || error == cudaErrorUnknown) // the latter of a descriptor that is no pool's
            runtime::detail::fail_with(
                "the handle names no pool of a living process; pass the descriptor that was received from the "
                "exporter, not the number that it has there, or what export_fabric returned there",
                error, call);
        check_cuda(error, call);
        return pool;
    }

    runtime::cuda_pool pool_;
};

} // namespace v0
} // namespace weir
