// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does PyTorch get a block, and give it back?
//
// The pool is asked without the ledger's lock; what it gave is noted afterwards, and a free is noted before the pool has the
// block again. Whoever listens hears of it then: PyTorch's profiler, its sanitizer, its history.
//
// order:     as PyTorch's own: a block is for its stream, and its free comes after the work there, and after that on each
//            stream that was recorded.

#include "out_of_memory.hpp"
#include "snapshot.hpp"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <utility>

namespace weir_plugin::torch {

constexpr std::size_t pool_alignment = counted_pool::default_alignment;

/// The device that is current, as c10 sees it. A machine of one device has no other.
inline int current_device() {
    return several_devices() ? c10::cuda::current_device() : 0;
}

/// The memory of a device, with its private chunks noted.
inline device_memory& memory_of_tensors(int device) {
    static std::atomic<bool> watched[most_devices];
    device_memory& own = memory_of(device, peers::with_memory);
    if (!watched[device].load(std::memory_order_acquire)) {
        own.graphs.watch_chunks([device](pool_id id, weir::base::range chunk, bool came) {
            try {
                ledger_of(device).private_chunk(id, chunk, came);
            } catch (...) { // a snapshot may lack a chunk; that is no failure
            }
        });
        watched[device].store(true, std::memory_order_release);
    }
    return own;
}

[[noreturn]] inline void throw_out_of_memory(device_memory& own, int device, cudaStream_t stream, std::size_t bytes, mempool id,
                                             context const& where, std::uint32_t site, tag_number tag) {
    std::size_t const total = weir::runtime::device_total_bytes(device);
    std::size_t const free = weir::runtime::device_free_bytes(device);
    ledger& of = ledger_of(device);
    auto const [allocated, reserved] =
        of.with_statistics([](statistics const& s) { return std::make_pair(s.allocated_bytes(), s.reserved_bytes()); });
    of.refused(free, bytes, stream, id, where, site);
    c10::Device const named(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(bytes), allocated, reserved, named);
    std::string const said = refusal_text(own, device, bytes, tag);
    observers().tell(device, bytes, std::min(total, own.limit.limit()), free);
    TORCH_CHECK_WITH(OutOfMemoryError, false, said);
    std::terminate(); // not reached
}

/// A block of `bytes` bytes for work on `stream` of `device`; null for none. Throws c10::OutOfMemoryError, and what the pool
/// throws.
inline void* allocate_block(int device, cudaStream_t stream, std::size_t bytes) {
    if (bytes == 0)
        return nullptr;
    device_memory& own = memory_of_tensors(device);
    context const where = history_settings::gather(caching::RecordContext::STATE);
    std::uint32_t const site = tape().is_on() ? tape().site() : 0;
    tag_number const tag = current_tag();
    pool_id id{0, 0};
    void* p = nullptr;
    {
        allocation_scope const scope(where, stream);
        p = take(own, bytes, stream, &id, tag);
        if (!p && !pool_for(own, tag).suspended()) {
            auto const again = [&] {
                ledger_of(device).retried();
                p = take(own, bytes, stream, &id, tag);
                return p != nullptr;
            };
            if (!free_what_others_keep(bytes, device, again) && id == pool_id{0, 0})
                p = own.graphs.borrow(stream, bytes, id);
        }
    }
    if (!p)
        throw_out_of_memory(own, device, stream, bytes, id, where, site, tag);
    bool const is_private = id != pool_id{0, 0};
    std::size_t const taken =
        !is_private ? pool_parts::placement::rounded(bytes, pool_alignment) : private_memory::rounded(bytes);
    tag_number const home = is_private ? 0 : tag;
    ledger::totals now;
    try {
        now = ledger_of(device).allocated({reinterpret_cast<std::size_t>(p), bytes, taken, stream, id, site, home}, where);
    } catch (...) {
        give(own, p, bytes, stream, home);
        throw;
    }
    c10::reportMemoryUsageToProfiler(p, static_cast<std::int64_t>(taken), now.allocated_bytes, now.reserved_bytes,
                                     c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
    if (c10::impl::PyInterpreter const* const trace = c10::impl::GPUTrace::get_trace())
        (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<std::uintptr_t>(p));
    if (tape().is_on())
        tape().flush_if_due();
    return p;
}

/// The device whose block starts at `p`, the current one first; -1: PyTorch has no such block.
template <class Find>
int device_of_block(Find const& find) {
    int const current = several_devices() ? weir::runtime::current_device() : 0;
    if (current < most_devices && find(current))
        return current;
    for (int each = 0; each < most_devices; ++each)
        if (each != current && existing(each) && find(each))
            return each;
    return -1;
}

/// Ends what the ledger knows of the block at `p`, and tells who listens. -1: there is no such block.
inline int end_block(void* p, live_tensor& gone) {
    context const where = history_settings::gather_for_free();
    ledger::totals now;
    int const device = device_of_block([&](int each) { return ledger_of(each).freed(p, where, gone, now); });
    if (device >= 0)
        c10::reportMemoryUsageToProfiler(p, -static_cast<std::int64_t>(gone.bytes), now.allocated_bytes, now.reserved_bytes,
                                         c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
    return device;
}

/// Takes back the block at `p`. A block that PyTorch does not have is told on stderr: this is called by destructors.
inline void free_block(void* p) noexcept {
    if (!p)
        return;
    try {
        if (c10::impl::PyInterpreter const* const trace = c10::impl::GPUTrace::get_trace())
            (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<std::uintptr_t>(p));
        live_tensor gone;
        int const device = end_block(p, gone);
        if (device < 0) {
            std::fprintf(stderr,
                         "weir: PyTorch frees %p, which is no live block of weir's (freed twice, or put back by a checkpoint "
                         "that PyTorch then refused); nothing is freed\n",
                         p);
            return;
        }
        std::optional<weir::runtime::device_scope> there; // if none can be had, a default stream is that of both devices
        weir::base::try_twice([&] { return there.emplace(several_devices() ? device : weir::any_device), true; });
        give(*existing(device), p, gone.requested_bytes, gone.stream, gone.tag);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "weir: a free failed: %s\n", error.what());
    } catch (...) {
        std::fputs("weir: a free failed\n", stderr);
    }
}

/// Work on `stream` uses the block at `p`, too. Throws as used_on.
inline void record_block(void* p, cudaStream_t stream) {
    live_tensor known;
    int const device = device_of_block([&](int each) { return ledger_of(each).find(p, known); });
    if (device < 0 || known.stream == stream)
        return;
    device_memory& own = *existing(device);
    if (!own.graphs.used_on(p, stream))
        own.pool_of(known.tag).used_on(p, stream);
    tape().note(event_kind::used_on, device, p, 0, 0, stream);
}

} // namespace weir_plugin::torch
