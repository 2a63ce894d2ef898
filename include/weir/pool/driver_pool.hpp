// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one use the driver's own pool with weir's containers, layers and adaptors?
//
// cudaMallocFromPoolAsync answers all three questions of a pool at once. This class owns such a memory pool and
// speaks weir's contract for it. It keeps memory between synchronisations by default (the driver's own default
// gives it back at each); its other attributes are options.
//
// invariant: a block that CUDA refuses to take back is kept, so that nothing leaks and nothing is freed too early: what a
//            captured stream freed until the pool ends, since the graph may use it at each launch; any other until
//            'settle' offers it again.
// order:     CUDA's: a block is usable on its stream after the allocation and gone on its stream after the free.
// cost:      600 to 800 ns a pair on one thread, more as threads join (bench/results).
// not for:   the hot path: 'device_pool' is several times faster.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/atomic.hpp>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/mutex.hpp>
#include <weir/base/pool_options.hpp>
#include <weir/base/report_text.hpp>
#include <weir/base/resource.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/device_guard.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/identity.hpp>
#include <weir/runtime/second_uses.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// What CUDA lets one set on a memory pool.
struct driver_pool_options {
    text name = "driver";
    int ordinal = any_device; ///< the device; any_device: the one that is current when the pool is made
    std::size_t release_threshold_bytes = SIZE_MAX; ///< kept over a synchronisation
    std::size_t maximum_bytes = 0;                ///< the most it may hold, which CUDA rounds up; 0: no limit
    bool follow_event_dependencies = true;        ///< reuse across streams that events order
    bool allow_opportunistic = true;              ///< reuse across streams once the free has run
    bool allow_internal_dependencies = true;      ///< reuse across streams by making one wait
    leak_action on_leak = leak_action::report;    ///< what happens when it ends with live blocks
};

/// Any thread may call any member. A default stream is that of the pool's device, whichever device is current.
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

    /// Blocks that are still out are reported on stderr (driver_pool_options::on_leak); do not use or free them any more.
    /// Blocks on the device where CUDA refused a block before, to give it back: launch no graph that uses it any more.
    ~driver_pool() {
        tell_leaks(options_.name, options_.on_leak, live_blocks_.load(std::memory_order_relaxed), 0);
        for (growing_array<refused>* each : {&refused_, &lost_}) {
            for (int tries = 0; tries < 2 && !each->empty(); ++tries) {
                try {
                    offer(*each);
                } catch (...) { // where it fails twice the device is lost, or a graph is captured: CUDA takes nothing back
                }
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
            throw usage_error("weir: an alignment must be a power of two; got " + number_text(alignment));
        std::size_t const padding = alignment > default_alignment ? alignment : 0;
        if (bytes == 0 || add_overflows(bytes, padding))
            return nullptr;
        cudaStream_t const on = stream.is_host() ? host_stream_ : stream.get();
        capture_mode_guard const relaxed;
        void* block = nullptr;
        if (out_of_room(cudaMallocFromPoolAsync(&block, bytes + padding, pool_, on), "cudaMallocFromPoolAsync"))
            return nullptr;
        try {
            if (stream.is_host())
                check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
            if (padding != 0)
                block = align(block, alignment);
        } catch (...) {
            if (!succeeded(cudaFreeAsync(block, on)))
                keep(refused{block, bytes + padding, {}}, on);
            throw;
        }
        live_blocks_.fetch_add(1, std::memory_order_relaxed);
        return block;
    }

    /// Takes a block back in the order of `stream` (a default stream: the pool's device's and the current device's); on
    /// the host, at once. Null does nothing. Never blocks. In a captured
    /// stream the free of a block from the same graph becomes a node of it. CUDA refuses there a block from outside, which
    /// the graph may use at each launch: it counts as lost_bytes and is given back when the pool ends. What CUDA refuses
    /// for other reasons 'settle' offers it again.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = default_alignment) noexcept {
        if (!p)
            return;
        auto const at = reinterpret_cast<std::uintptr_t>(p);
        growing_array<event> uses; // on other streams
        void* const block = alignment > default_alignment ? unalign(p) : p;
        cudaStream_t const on = stream.is_host() ? host_stream_ : stream.get();
        forget_one();
        try {
            if (ordinal_for(on) != any_device && current_device() != options_.ordinal)
                uses_.add(at, stream); // the current device's stream of that name
            uses = uses_.take(at);
            device_guard const here(ordinal_for(on));
            capture_mode_guard const relaxed;
            bool const waits = uses.empty() || !is_capturing(on); // an event from outside would break the capture
            for (event const& each : uses)
                if (waits)
                    each.make_wait(on);
            if (waits && succeeded(cudaFreeAsync(block, on)))
                return;
        } catch (...) { // some use may be in flight that the free could not be made to wait for
        }
        keep(refused{block, bytes, uses.empty() ? uses_.take(at) : std::move(uses)}, on);
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

    /// Blocks until all work on the device is done, so that 'trim' finds everything that was freed, and offers CUDA again
    /// what it refused, but for what a captured stream freed. Breaks the captures that are under way on the device, as
    /// cudaDeviceSynchronize does. Throws cuda_error.
    void settle() { offer(refused_); }

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
    text const& name() const noexcept { return options_.name; }
    int device() const noexcept { return options_.ordinal; }
    /// CUDA's handle, for calls that weir does not wrap.
    cudaMemPool_t get() const noexcept { return pool_; }

    /// What is known of the pool now; CUDA does not tell the largest free range. Throws cuda_error.
    /// lost_bytes: what captured streams freed and CUDA refused, which CUDA counts as in use.
    memory_report facts() const {
        memory_report now{options_.name, in_use_bytes(), reserved_bytes(), limit_bytes(), 0,
                          live_blocks_.load(std::memory_order_relaxed), 0};
        lock_guard<mutex> const lock(mutex_);
        now.lost_bytes = lost_bytes_;
        return now;
    }
    text report() const { return report_text(facts(), "device, the driver's pool"); }
    text refusal(std::size_t bytes, std::size_t) const {
        return "CUDA's memory pool found no " + number_text(bytes) +
               " bytes within its maximum and the device's memory; free something or raise maximum_bytes";
    }

private:
    // A block that CUDA did not take back, and what must have run before it may.
    struct refused {
        void* block;
        std::size_t bytes;
        growing_array<event> uses;
    };

    // A default stream is the current device's, but a container may end while another device than its own is current.
    int ordinal_for(cudaStream_t on) const noexcept { return is_default_stream(on) ? options_.ordinal : any_device; }

    // Foreign frees do not take the count below zero.
    void forget_one() noexcept {
        std::size_t live = live_blocks_.load(std::memory_order_relaxed);
        while (live != 0 && !live_blocks_.compare_exchange_weak(live, live - 1, std::memory_order_relaxed)) {
        }
    }

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

    // Whether the graph captured on `on` may use what was freed there; the legacy stream is only in a capture's way.
    bool graph_may_use(cudaStream_t on) const noexcept {
        try {
            device_guard const here(ordinal_for(on));
            return is_capturing(on) && !is_legacy(on);
        } catch (...) { // no stream that is captured answers so
            return false;
        }
    }

    void keep(refused block, cudaStream_t freed_on) noexcept {
        if (!graph_may_use(freed_on))
            return put(refused_, std::move(block));
        {
            lock_guard<mutex> const lock(mutex_);
            lost_bytes_ += block.bytes;
        }
        put(lost_, std::move(block));
    }

    void put(growing_array<refused>& list, refused block) noexcept {
        try {
            lock_guard<mutex> const lock(mutex_);
            list.push_back(std::move(block));
        } catch (...) { // neither CUDA nor the host can take it
        }
    }

    // Offers CUDA the blocks of `list` once the device is idle; what it refuses again stays.
    void offer(growing_array<refused>& list) {
        growing_array<refused> offered;
        {
            lock_guard<mutex> const lock(mutex_);
            offered.swap(list);
        }
        try {
            device_guard const guard(options_.ordinal);
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            for (refused const& each : offered)
                for (event const& passed : each.uses)
                    passed.synchronize(); // on a stream of another device
        } catch (...) {
            for (refused& each : offered)
                put(list, std::move(each));
            throw;
        }
        bool taken = false;
        for (refused& each : offered) {
            if (succeeded(cudaFreeAsync(each.block, host_stream_)))
                taken = true;
            else
                put(list, std::move(each));
        }
        if (taken) // so that the memory is there for 'trim'
            check(cudaStreamSynchronize(host_stream_), "cudaStreamSynchronize");
    }

    driver_pool_options options_;
    cudaMemPool_t pool_ = nullptr;
    cudaStream_t host_stream_ = nullptr; // orders what is allocated and freed on the host
    atomic<std::size_t> live_blocks_{0};
    second_uses uses_;
    mutable mutex mutex_;
    address_map padded_;
    growing_array<refused> refused_; // until 'settle'
    growing_array<refused> lost_;    // until the end: what captured streams freed
    std::size_t lost_bytes_ = 0;     // of lost_
};

} // namespace v0
} // namespace weir
