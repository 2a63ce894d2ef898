// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one use the driver's own pools with weir's containers, layers and adaptors?
//
// CUDA's memory pools (cudaMallocFromPoolAsync) do alone what an upstream, a placement and a reuse rule do in weir's. This
// class owns one and speaks weir's contract for it. There is one of device memory (driver_pool), one of pinned host memory that
// every device reaches (pinned_driver_pool), and one of managed memory (managed_driver_pool, CUDA 13). By default it keeps
// memory when a stream or device is synchronised; the driver's own default gives it back each time.
//
// In a captured stream an allocation becomes a node of the graph, and the block belongs to the graph: the pool does not count
// it. Each launch allocates it at the same address. It is freed by the captured stream in the same capture, and then by every
// launch; or once after each launch, behind it, by the program or by the launch of another graph that captured the free; or by
// the next launch, if the graph was instantiated with cudaGraphInstantiateFlagAutoFreeOnLaunch, and by the program after the
// last.
//
// A block that was handed out before the capture, and is freed by a captured stream, is lost, since the graph may use it at
// each launch: it goes back when the pool ends. So is a block that CUDA refuses to take back even when no device has work.
//
// invariant: nothing is freed too early, and what is lost is not handed out (driver_pool/driver_blocks.hpp).
// order:     CUDA's: a block is usable on its stream after the allocation and gone on its stream after the free. The host may
//            touch pinned and managed blocks once the stream has reached the allocation.
// cost:      600 to 800 ns an allocation and its free on one thread, more as threads join (bench/results).
// not for:   the hot path: 'device_pool' is several times faster. Nor for alignments beyond CUDA's own 256 bytes, which
//            'device_pool', 'pinned_pool' and 'managed_pool' have. Nor for finding wrong frees: layer::guard does.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/driver/driver_pool/driver_blocks.hpp>
#include <weir/driver/driver_pool_options.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/cuda_pool.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Any thread may call any member. For device memory a default stream means that of the pool's device, whichever device is
/// current. For pinned and managed memory it means that of the current device.
template <memory_space Space>
class driver_pool_of : public resource::pool_base<driver_pool_of<Space>> {
    static_assert(Space != memory_space::host,
                  "weir: driver_pool_of: CUDA has pools of device, pinned and managed memory; for plain host memory use "
                  "host_pool");
#if CUDART_VERSION < 13000
    static_assert(Space != memory_space::managed,
                  "weir: driver_pool_of: CUDA has pools of managed memory since 13.0; build with that toolkit, or use "
                  "managed_pool");
#endif

public:
    static constexpr memory_space space = Space;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = true;
    static constexpr bool streams_may_end = true;
    static constexpr std::size_t default_alignment = driver::detail::driver_blocks::alignment;

    /// Creates the memory pool. Throws usage_error for options that this kind of memory does not have, and for a device that is
    /// not there; out_of_memory if there is no room for what is to be reserved; cuda_error, also if the machine has no such
    /// pools; std::bad_alloc.
    explicit driver_pool_of(driver_pool_options options)
        : options_(here(std::move(options))),
          pool_(driver::detail::properties_of(Space, options_),
                ("there are no such memory pools here; use " + text(driver::detail::own_pool_of(Space))).c_str()),
          blocks_(pool_, Space, options_) {
        pool_.template set<std::uint64_t>(cudaMemPoolAttrReleaseThreshold, options_.release_threshold_bytes());
        pool_.template set<int>(cudaMemPoolReuseFollowEventDependencies, options_.follow_event_dependencies());
        pool_.template set<int>(cudaMemPoolReuseAllowOpportunistic, options_.allow_opportunistic());
        pool_.template set<int>(cudaMemPoolReuseAllowInternalDependencies, options_.allow_internal_dependencies());
        if (Space == memory_space::pinned)
            pool_.allow_all(); // at first only the host reaches it
        if (options_.reserve_bytes() != 0)
            reserve(options_.reserve_bytes());
    }
    driver_pool_of() : driver_pool_of(driver_pool_options{}) {}
    driver_pool_of(driver_pool_of const&) = delete;
    driver_pool_of& operator=(driver_pool_of const&) = delete;

    /// Blocks that are still handed out are reported on stderr (driver_pool_options::on_leak); do not use or free them any
    /// more. If blocks are lost, this waits for the devices and gives them back: launch no graph that uses them any more.
    ~driver_pool_of() { resource::tell_leaks(options_.name().c_str(), options_.on_leak(), blocks_.count(), 0); }

    /// A block for work enqueued on `stream` from now on; null for zero bytes, for an alignment of more than 256 bytes, which
    /// CUDA's pools do not have, and if there is no room. If there can be room ('can_hold'), it first waits for the work that
    /// may use what was freed (on every device, if the memory is open to others), and gives back what the pool does not use and
    /// what CUDA keeps for graphs; that breaks no capture. If `stream` is the host, blocks until the memory is there. In a
    /// captured stream the allocation becomes a node of the graph, which owns the block (see the head of this file). Throws
    /// usage_error, also on the legacy stream while a stream is captured that waits for it; cuda_error; std::bad_alloc.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        return blocks_.allocate(stream, bytes, alignment);
    }

    /// Takes a block back in the order of `stream`; if that is the host, at once. A default stream means two: the pool's
    /// device's and the current device's. Null does nothing. Waits at most for room in a full queue, as a launch does; but for
    /// all devices if CUDA refuses the free, and on the legacy stream while a stream is captured that waits for it.
    ///
    /// In a captured stream the free of a graph's block becomes a node; it first waits for the work on other streams that uses
    /// the block ('used_on'). A block from outside the graph counts as lost_bytes, and goes back when the pool ends, even if it
    /// was no block any more. So does what CUDA refuses to take back, as in a host function. But a graph's block that is freed
    /// before a launch, twice after one, or while a graph is captured on another stream that was marked for it, stays as it is.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t = default_alignment) noexcept {
        blocks_.deallocate(stream, p, bytes);
    }
    using resource::pool_base<driver_pool_of>::deallocate;

    /// As pool::used_on: the free waits for all that is enqueued on `stream` before it. If `stream` is being captured at the
    /// free, that counts as a free on a captured stream, and a graph's block stays as it is.
    void used_on(void* p, stream_ref stream) {
        runtime::naming(*this, [&] { blocks_.used_on(p, stream); });
    }
    /// As pool::last_used_on: the free waits for what is enqueued on `stream` so far, and the stream may end then.
    void last_used_on(void* p, stream_ref stream) {
        runtime::naming(*this, [&] { blocks_.last_used_on(p, stream); });
    }

    /// Gets memory ahead of need, until the pool holds at least `bytes` bytes; 'trim' gives it back like other memory. CUDA
    /// gets memory only for a block, so one is allocated beside those in use, and freed. Where the release threshold is lower
    /// than what the pool holds then, it is raised to that. Blocks. Throws out_of_memory if there is no room, and otherwise as
    /// 'allocate'; the blocks that are handed out are as before.
    void reserve(std::size_t bytes) {
        base::lock_guard<base::mutex> const lock(reserve_mutex_); // otherwise one call could lower the threshold of another
        auto const keep = [&] { // CUDA gives memory back in large pieces: only what is held keeps it for certain
            std::size_t const held = reserved_bytes();
            if (held > pool_.bytes(cudaMemPoolAttrReleaseThreshold))
                pool_.template set<std::uint64_t>(cudaMemPoolAttrReleaseThreshold, held);
        };
        std::size_t const in_use = in_use_bytes();
        if (bytes <= in_use || bytes <= reserved_bytes())
            return keep();
        if (!blocks_.hold_for_a_while(bytes - in_use, keep))
            throw out_of_memory(bytes, refused(bytes, 1));
    }

    /// Gives unused memory back to the device until at most `keep_bytes` are held; returns the bytes given back. Throws
    /// cuda_error.
    std::size_t trim(std::size_t keep_bytes = 0) { return pool_.trim(keep_bytes); }

    /// Blocks until all work on the device is done (on every device, if the memory is open to others). Then 'trim' finds
    /// everything that was freed. Breaks the captures that are under way on those devices, as cudaDeviceSynchronize does.
    /// Throws cuda_error.
    void settle() { blocks_.settle(); }

    /// Lets kernels and copies of device number `other` use the pool's memory too. Pinned and managed memory needs no such
    /// call: every device reaches it. Throws usage_error if there is no such device, or it cannot use the pool's memory
    /// (cudaDeviceCanAccessPeer); cuda_error.
    template <memory_space Here = Space, class = std::enable_if_t<Here == memory_space::device>>
    void enable_access_from(int other) {
        pool_.enable_access_from(runtime::existing_peer(other, device()));
        blocks_.open();
    }

    /// Bytes that graphs hold of the device's memory for blocks that captured streams allocated, and that CUDA keeps for the
    /// graphs to come: of all graphs of the process, from whichever pool, and in no pool's figures. Throws cuda_error.
    template <memory_space Here = Space, class = std::enable_if_t<Here == memory_space::device>>
    std::size_t graph_memory_bytes() const { return runtime::graph_memory_bytes(device()); }
    /// Gives those of them back that no graph needs which is under way or enqueued; returns the bytes given back. Throws
    /// cuda_error.
    template <memory_space Here = Space, class = std::enable_if_t<Here == memory_space::device>>
    std::size_t trim_graph_memory() { return runtime::trim_graph_memory(device()); }

    /// What CUDA counts: bytes in use and reserved, at present and at most since reset_peaks. Throws cuda_error.
    runtime::cuda_pool_statistics statistics() const { return pool_.statistics(); }
    /// Bytes held from the device, at present and at most since reset_peaks. Throws cuda_error.
    std::size_t reserved_bytes() const { return pool_.bytes(cudaMemPoolAttrReservedMemCurrent); }
    std::size_t peak_reserved_bytes() const { return pool_.bytes(cudaMemPoolAttrReservedMemHigh); }
    /// Bytes handed out and not yet freed, at present and at most since reset_peaks. Throws cuda_error.
    std::size_t in_use_bytes() const { return pool_.bytes(cudaMemPoolAttrUsedMemCurrent); }
    std::size_t peak_in_use_bytes() const { return pool_.bytes(cudaMemPoolAttrUsedMemHigh); }
    /// The peaks become what is reserved and in use at present. Throws cuda_error.
    void reset_peaks() { pool_.reset_peaks(); }

    /// Exports the pool to another process (driver/imported_pool.hpp), as a file descriptor, which the caller sends and closes.
    /// Throws usage_error if driver_pool_options::handle_types does not include descriptors, cuda_error.
    template <memory_space Here = Space, class = std::enable_if_t<Here != memory_space::managed>>
    int export_descriptor() const {
        require_handle_type(cudaMemHandleTypePosixFileDescriptor, "cudaMemHandleTypePosixFileDescriptor");
        return pool_.export_descriptor();
    }
    /// The same as a fabric handle: plain bytes, also for processes on other machines of one NVLink fabric.
    template <memory_space Here = Space, class = std::enable_if_t<Here != memory_space::managed>>
    cudaMemFabricHandle_t export_fabric() const {
        require_handle_type(cudaMemHandleTypeFabric, "cudaMemHandleTypeFabric");
        return pool_.export_fabric();
    }
    /// Exports the live block `p` to a process that has imported the pool. Every importer releases the block before it is freed
    /// here. Throws usage_error if 'handle_types' has none, cuda_error also if the pool itself was not exported before.
    template <memory_space Here = Space, class = std::enable_if_t<Here != memory_space::managed>>
    runtime::exported_block export_block(void* p) const {
        if (options_.handle_types() == 0)
            require_handle_type(cudaMemHandleTypePosixFileDescriptor, "cudaMemHandleTypePosixFileDescriptor");
        return runtime::cuda_pool::export_block(p);
    }

    /// The most bytes that it may hold (driver_pool_options::limit), which CUDA rounds up; SIZE_MAX: no limit.
    std::size_t limit_bytes() const noexcept { return options_.limit_bytes(); }
    /// What the options call it, and what they say of its end.
    text const& name() const noexcept { return options_.name(); }
    leak_action on_leak() const noexcept { return options_.on_leak(); }
    /// The device; of pinned and managed memory the one under which it was made.
    int device() const noexcept { return options_.device(); }
    /// CUDA's handle, for calls that weir does not wrap.
    cudaMemPool_t get() const noexcept { return pool_.get(); }

    /// What is known of the pool at present; CUDA does not tell the largest free range. lost_bytes: see 'deallocate'; CUDA
    /// counts them as in use. Throws cuda_error.
    memory_report state() const {
        return {options_.name(), in_use_bytes(), reserved_bytes(), limit_bytes(), SIZE_MAX, blocks_.count(), 0,
                blocks_.lost_bytes()};
    }
    /// Adds what takes longer to find out: the bytes that CUDA says are free on the device. See 'full_state'.
    void examine(memory_report& now) const noexcept {
        if (Space == memory_space::device)
            now.device_free_bytes = runtime::device_free_bytes(device());
    }
    /// One line: what CUDA counts, at present and at most since reset_peaks. Throws cuda_error.
    text report() const {
        runtime::cuda_pool_statistics const now = statistics();
        return "pool '" + options_.name() + "' (" + base::name_of(Space) +
               ", the driver's pool): " + base::bytes_text(now.in_use_bytes) + " in use in " +
               base::count_text(blocks_.count(), " block") + ", " + base::bytes_text(now.reserved_bytes) +
               " reserved, at most " + base::bytes_text(now.peak_in_use_bytes) + " and " +
               base::bytes_text(now.peak_reserved_bytes) + ", limit " +
               (limit_bytes() == SIZE_MAX ? "none" : base::bytes_text(limit_bytes())) +
               (blocks_.lost_bytes() == 0 ? "" : ", " + base::bytes_text(blocks_.lost_bytes()) + " not handed out again");
    }
    /// Whether a block of that size and alignment could be handed out if no other were: none of more than 256 bytes' alignment.
    /// Takes into account that CUDA rounds a limit up to pages of 2 MiB. Asks CUDA how much memory there is in all. Any thread.
    bool can_hold(std::size_t bytes, std::size_t alignment = default_alignment) const noexcept {
        return alignment <= default_alignment && driver::detail::driver_can_hold(Space, options_, bytes);
    }
    /// Why an allocation of `bytes` bytes finds no room now. Throws cuda_error.
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        if (alignment > default_alignment)
            return {this->full_state(), "CUDA's memory pools align blocks to 256 bytes; for an alignment of " +
                                            base::number_text(alignment) + " use " + driver::detail::own_pool_of(Space)};
        return {this->full_state(), driver::detail::driver_refusal_text(Space, options_, bytes, reserved_bytes())};
    }

private:
    static driver_pool_options here(driver_pool_options options) {
        options.device(runtime::existing_device(options.device()));
        return options;
    }

    void require_handle_type(cudaMemAllocationHandleType type, char const* name) const {
        if ((options_.handle_types() & static_cast<unsigned>(type)) == 0)
            throw usage_error(text("weir: this pool was not made for other processes; set driver_pool_options::handle_types "
                                   "to ") + name);
    }

    driver_pool_options options_;
    base::mutex reserve_mutex_;
    runtime::cuda_pool pool_;
    driver::detail::driver_blocks blocks_;
};

} // namespace v0
} // namespace weir
