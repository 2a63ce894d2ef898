// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one use the driver's own pool with weir's containers, layers and adaptors?
//
// cudaMallocFromPoolAsync answers all three questions of a pool at once. This class owns such a memory pool and
// speaks weir's contract for it. It keeps memory between synchronisations by default (the driver's own default
// gives it back at each); its other attributes are options.
//
// invariant: a block that CUDA refuses to take back is kept, and offered again once the device is idle, so that
//            nothing leaks and nothing is freed too early.
// order:     CUDA's: a block is usable on its stream after the allocation and gone on its stream after the free.
// cost:      about 500 ns a pair on one thread, more as threads join.
// not for:   the hot path: 'device_pool' is several times faster.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <string>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/mutex.hpp>
#include <weir/base/pool_options.hpp>
#include <weir/base/resource.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/device_guard.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/second_uses.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// What CUDA lets one set on a memory pool.
struct driver_pool_options {
    std::string name = "driver";
    int ordinal = any_device; ///< the device; any_device: the one that is current when the pool is made
    std::size_t release_threshold_bytes = SIZE_MAX; ///< kept over a synchronisation
    std::size_t maximum_bytes = 0;                ///< the most it may hold, which CUDA rounds up; 0: no limit
    bool follow_event_dependencies = true;        ///< reuse across streams that events order
    bool allow_opportunistic = true;              ///< reuse across streams once the free has run
    bool allow_internal_dependencies = true;      ///< reuse across streams by making one wait
    leak_action on_leak = leak_action::report;    ///< what happens when it ends with live blocks
};

/// Any thread may call any member.
class driver_pool : public resource<driver_pool> {
public:
    static constexpr memory_space space = memory_space::device;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = 256;

    /// Creates the memory pool. Throws cuda_error, also where the device has no memory pools.
    explicit driver_pool(driver_pool_options options = {}) : options_(std::move(options)) {
        if (options_.ordinal == any_device)
            options_.ordinal = current_device();
        cudaMemPoolProps properties{};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.location.id = options_.ordinal;
        properties.maxSize = options_.maximum_bytes;
        capture_mode_guard const relaxed;
        check(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
        try {
            set<std::uint64_t>(cudaMemPoolAttrReleaseThreshold, options_.release_threshold_bytes);
            set<int>(cudaMemPoolReuseFollowEventDependencies, options_.follow_event_dependencies);
            set<int>(cudaMemPoolReuseAllowOpportunistic, options_.allow_opportunistic);
            set<int>(cudaMemPoolReuseAllowInternalDependencies, options_.allow_internal_dependencies);
            device_guard const guard(options_.ordinal);
            check(cudaStreamCreateWithFlags(&host_stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        } catch (...) {
            static_cast<void>(succeeded(cudaMemPoolDestroy(pool_)));
            throw;
        }
    }
    driver_pool(driver_pool const&) = delete;
    driver_pool& operator=(driver_pool const&) = delete;

    /// Blocks that are still out are reported on stderr (driver_pool_options::on_leak) and stay usable, as CUDA documents
    /// for cudaMemPoolDestroy. Blocks on the device only where CUDA refused to take a block back before.
    ~driver_pool() {
        tell_leaks(options_.name, options_.on_leak, live_blocks_.load(std::memory_order_relaxed), 0);
        for (int tries = 0; tries < 2 && !kept_.empty(); ++tries) {
            try {
                settle();
            } catch (...) { // where it fails twice the device is lost, or a graph is captured: CUDA takes nothing back
            }
        }
        if (!destroy())
            static_cast<void>(destroy());
    }

    /// A block for work enqueued on `stream` from now on; null for zero bytes and when there is no room. On the
    /// host, blocks until the memory is there. In a captured stream it becomes a node of the graph. Throws
    /// usage_error, cuda_error.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = default_alignment) {
        if (!is_power_of_two(alignment))
            throw usage_error("weir: an alignment must be a power of two; got " + std::to_string(alignment));
        std::size_t const padding = alignment > default_alignment ? alignment : 0;
        if (bytes == 0 || add_overflows(bytes, padding))
            return nullptr;
        capture_mode_guard const relaxed;
        void* block = nullptr;
        cudaStream_t const on = stream.is_host() ? host_stream_ : stream.get();
        if (out_of_room(cudaMallocFromPoolAsync(&block, bytes + padding, pool_, on), "cudaMallocFromPoolAsync"))
            return nullptr;
        try {
            if (stream.is_host())
                check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
            if (padding != 0)
                block = align(block, alignment);
        } catch (...) {
            if (!succeeded(cudaFreeAsync(block, on)))
                keep(refused{block, {}});
            throw;
        }
        live_blocks_.fetch_add(1, std::memory_order_relaxed);
        return block;
    }

    /// Takes a block back in the order of `stream`; on the host, at once. Null does nothing. Never blocks. What CUDA
    /// refuses, such as a block from outside a graph freed while the graph is captured, 'settle' offers it again.
    void deallocate(stream_ref stream, void* p, std::size_t, std::size_t alignment = default_alignment) noexcept {
        if (!p)
            return;
        growing_array<event> uses = uses_.take(reinterpret_cast<std::uintptr_t>(p));
        void* const block = alignment > default_alignment ? unalign(p) : p;
        cudaStream_t const on = stream.is_host() ? host_stream_ : stream.get();
        live_blocks_.fetch_sub(1, std::memory_order_relaxed);
        try {
            capture_mode_guard const relaxed;
            bool const waits = uses.empty() || !is_capturing(on); // an event from outside would break the capture
            for (event const& each : uses)
                if (waits)
                    each.make_wait(on);
            if (waits && succeeded(cudaFreeAsync(block, on)))
                return;
        } catch (...) { // some use may be in flight that the free could not be made to wait for
        }
        keep(refused{block, std::move(uses)});
    }

    /// Notes that work enqueued on `stream` so far uses the block `p`: its free waits for that work. Never blocks.
    /// Throws usage_error for a stream that is being captured, cuda_error, std::bad_alloc.
    void used_on(void* p, stream_ref stream) {
        if (p && !stream.is_host())
            uses_.add(reinterpret_cast<std::uintptr_t>(p), stream);
    }

    /// Gives unused memory back to the device until at most `keep_bytes` are held; returns the bytes given back.
    /// Throws cuda_error.
    std::size_t trim(std::size_t keep_bytes = 0) {
        capture_mode_guard const relaxed;
        std::size_t const before = reserved_bytes();
        check(cudaMemPoolTrimTo(pool_, keep_bytes), "cudaMemPoolTrimTo");
        std::size_t const after = reserved_bytes();
        return after < before ? before - after : 0; // other threads allocate meanwhile
    }

    /// Blocks until all work on the device is done, so that 'trim' finds everything that was freed. Breaks the captures
    /// that are under way on the device, as cudaDeviceSynchronize does. Throws cuda_error.
    void settle() {
        growing_array<refused> kept;
        {
            lock_guard<mutex> const lock(mutex_);
            kept.swap(kept_);
        }
        try {
            device_guard const guard(options_.ordinal);
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            for (refused const& each : kept)
                for (event const& passed : each.uses)
                    passed.synchronize(); // on a stream of another device
        } catch (...) {
            for (refused& each : kept)
                keep(std::move(each));
            throw;
        }
        bool offered = false;
        for (refused& each : kept) {
            if (succeeded(cudaFreeAsync(each.block, host_stream_)))
                offered = true;
            else
                keep(std::move(each));
        }
        if (offered) // so that the memory is there for 'trim'
            check(cudaStreamSynchronize(host_stream_), "cudaStreamSynchronize");
    }

    /// Bytes held from the device, now and at most since reset_peaks. Throws cuda_error.
    std::size_t reserved_bytes() const { return attribute(cudaMemPoolAttrReservedMemCurrent); }
    std::size_t peak_reserved_bytes() const { return attribute(cudaMemPoolAttrReservedMemHigh); }
    /// Bytes handed out and not yet freed, now and at most since reset_peaks. Throws cuda_error.
    std::size_t in_use_bytes() const { return attribute(cudaMemPoolAttrUsedMemCurrent); }
    std::size_t peak_in_use_bytes() const { return attribute(cudaMemPoolAttrUsedMemHigh); }
    /// The peaks become what is held and out now. Throws cuda_error.
    void reset_peaks() {
        capture_mode_guard const relaxed;
        set<std::uint64_t>(cudaMemPoolAttrReservedMemHigh, 0);
        set<std::uint64_t>(cudaMemPoolAttrUsedMemHigh, 0);
    }

    std::size_t limit_bytes() const noexcept {
        return options_.maximum_bytes == 0 ? SIZE_MAX : options_.maximum_bytes;
    }
    std::string const& name() const noexcept { return options_.name; }
    int device() const noexcept { return options_.ordinal; }
    /// CUDA's handle, for calls that weir does not wrap.
    cudaMemPool_t get() const noexcept { return pool_; }

    /// What is known of the pool now; CUDA does not tell the largest free range. Throws cuda_error.
    memory_report facts() const {
        return memory_report{options_.name, in_use_bytes(), reserved_bytes(), limit_bytes(), 0,
                             live_blocks_.load(std::memory_order_relaxed), 0};
    }
    std::string report() const { return report_text(facts(), "device, the driver's pool"); }
    std::string refusal(std::size_t bytes, std::size_t) const {
        return "CUDA's memory pool found no " + std::to_string(bytes) +
               " bytes within its maximum and the device's memory; free something or raise maximum_bytes";
    }

private:
    // A block that CUDA did not take back, and what must have run before it may.
    struct refused {
        void* block;
        growing_array<event> uses;
    };

    template <class Value>
    void set(cudaMemPoolAttr attribute, Value value) {
        check(cudaMemPoolSetAttribute(pool_, attribute, &value), "cudaMemPoolSetAttribute");
    }
    std::size_t attribute(cudaMemPoolAttr which) const {
        capture_mode_guard const relaxed;
        std::uint64_t value = 0;
        check(cudaMemPoolGetAttribute(pool_, which, &value), "cudaMemPoolGetAttribute");
        return static_cast<std::size_t>(value);
    }

    // False: CUDA did not let it try.
    bool destroy() noexcept {
        try {
            capture_mode_guard const relaxed;
            static_cast<void>(succeeded(cudaStreamDestroy(host_stream_)));
            static_cast<void>(succeeded(cudaMemPoolDestroy(pool_)));
            return true;
        } catch (...) {
            return false;
        }
    }

    // CUDA aligns to 256 bytes. A block that needs more starts inside a larger one; how far is kept in units of 256.
    void* align(void* block, std::size_t alignment) {
        auto const address = reinterpret_cast<std::uintptr_t>(block);
        std::uintptr_t const aligned = align_up(address, alignment);
        lock_guard<mutex> const lock(mutex_);
        padded_.insert(aligned, static_cast<std::uint32_t>((aligned - address) / default_alignment));
        return reinterpret_cast<void*>(aligned);
    }
    void* unalign(void* p) noexcept {
        auto const aligned = reinterpret_cast<std::uintptr_t>(p);
        lock_guard<mutex> const lock(mutex_);
        std::uint32_t const units = padded_.erase(aligned);
        return units == address_map::none ? p : reinterpret_cast<void*>(aligned - units * default_alignment);
    }

    void keep(refused block) noexcept {
        try {
            lock_guard<mutex> const lock(mutex_);
            kept_.push_back(std::move(block));
        } catch (...) { // neither CUDA nor the host can take it
        }
    }

    driver_pool_options options_;
    cudaMemPool_t pool_ = nullptr;
    cudaStream_t host_stream_ = nullptr; // orders what is allocated and freed on the host
    std::atomic<std::size_t> live_blocks_{0};
    second_uses uses_;
    mutex mutex_;
    address_map padded_;
    growing_array<refused> kept_;
};

} // namespace v0
} // namespace weir
