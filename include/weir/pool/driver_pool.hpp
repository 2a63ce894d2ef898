// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one use the driver's own pools with weir's containers, layers and adaptors?
//
// cudaMallocFromPoolAsync answers all three questions of a pool at once. This class owns such a memory pool and
// speaks weir's contract for it: of device memory (driver_pool), of pinned host memory that every device reaches
// (pinned_driver_pool), or of managed memory (managed_driver_pool, CUDA 13). It keeps memory between synchronisations by
// default (the driver's own default gives it back at each); its other attributes are options.
//
// In a captured stream an allocation becomes a node of the graph, and the block is the graph's: the pool does not count
// it. Each launch allocates it at the same address. Who frees it: the captured stream (then every launch frees it too); or
// the program, once after each launch and behind it; or the launch of another graph that captured the free; or the next
// launch, where the graph was instantiated with cudaGraphInstantiateFlagAutoFreeOnLaunch, and the program after the last
// one. A block that is out when the capture begins is not the graph's: freed in the capture, it is kept until the pool
// ends.
//
// invariant: nothing leaks, and nothing is freed too early: what CUDA refuses to take back is kept (driver_blocks.hpp).
// order:     CUDA's: a block is usable on its stream after the allocation and gone on its stream after the free. The host
//            may touch pinned and managed blocks once the stream has reached the allocation.
// cost:      600 to 800 ns a pair on one thread, more as threads join (bench/results).
// not for:   the hot path: 'device_pool' is several times faster.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/pool/driver_pool/block_origins.hpp>
#include <weir/pool/driver_pool/driver_blocks.hpp>
#include <weir/pool/driver_pool/driver_pool_options.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/resource/resource.hpp>
#include <weir/runtime/cuda_pool.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Any thread may call any member. Of device memory a default stream is that of the pool's device, whichever device is
/// current; else the current device's.
template <memory_space Space>
class driver_pool_of : public resource<driver_pool_of<Space>> {
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
    static constexpr std::size_t default_alignment = detail::block_origins::unit_bytes;

    /// Creates the memory pool. Throws usage_error for options that this kind of memory does not have, cuda_error, also
    /// where the machine has no such pools.
    explicit driver_pool_of(driver_pool_options options)
        : options_(here(std::move(options))), pool_(detail::properties_of(Space, options_)),
          blocks_(pool_.get(), Space, options_.name(), options_.device()) {
        pool_.template set<std::uint64_t>(cudaMemPoolAttrReleaseThreshold, options_.release_threshold_bytes());
        pool_.template set<int>(cudaMemPoolReuseFollowEventDependencies, options_.follow_event_dependencies());
        pool_.template set<int>(cudaMemPoolReuseAllowOpportunistic, options_.allow_opportunistic());
        pool_.template set<int>(cudaMemPoolReuseAllowInternalDependencies, options_.allow_internal_dependencies());
        if (Space == memory_space::pinned)
            pool_.allow_all(); // at first only the host reaches it
    }
    driver_pool_of() : driver_pool_of(driver_pool_options{}) {}
    driver_pool_of(driver_pool_of const&) = delete;
    driver_pool_of& operator=(driver_pool_of const&) = delete;

    /// Blocks that are still out are reported on stderr (driver_pool_options::on_leak); do not use or free them any more.
    /// Blocks on the device where CUDA refused a block before, to give it back: launch no graph that uses it any more.
    ~driver_pool_of() { tell_leaks(options_.name().c_str(), options_.on_leak(), blocks_.count(), 0); }

    /// A block for work enqueued on `stream` from now on; null for zero bytes and when there is no room. On the host,
    /// blocks until the memory is there. In a captured stream it becomes a node of the graph, whose block it is (see the
    /// head of this page). Throws usage_error, also on the legacy stream while a stream is captured that waits for it;
    /// cuda_error; std::bad_alloc.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        return blocks_.allocate(stream, bytes, alignment);
    }

    /// Takes a block back in the order of `stream` (a default stream: the pool's device's and the current device's); on
    /// the host, at once. Null does nothing. Never blocks. In a captured stream the free of a graph's block becomes a node; but
    /// where work on another stream still uses it ('used_on'), which a graph cannot wait for, it stays, as stderr is told.
    /// CUDA refuses there a block from outside, which the graph may use at each launch: it counts as lost_bytes and is
    /// given back when the pool ends. What CUDA refuses for other reasons 'settle' offers it again; but a graph's block
    /// that is freed before a launch or twice after one stays as it is. A block that is freed already or that CUDA did not
    /// hand out is told on stderr and left alone; one in a captured stream is noted like a block from outside until the pool
    /// ends, and must not have become another pool's by then. Another pool's CUDA takes.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        blocks_.deallocate(stream, p, bytes, alignment);
    }

    /// Notes that work on `stream` uses the block that was allocated at `p` (an address inside it is not looked up): its free
    /// waits for all that is enqueued there until then, whenever this is called; once is enough (PyTorch's record_stream). The
    /// stream lives until the free, as the block's own does. cudaStreamPerThread is the calling thread's, which lives on, too;
    /// where another thread frees the block, it waits for all blocking streams of the device. If the stream is captured at the
    /// free, that is a free on a captured stream, and a graph's block stays as it is. Never blocks. Throws usage_error while it
    /// is captured, cuda_error, std::bad_alloc.
    void used_on(void* p, stream_ref stream) { blocks_.used_on(p, stream); }
    /// The same of what is enqueued on `stream` so far alone: call it after the last launch there; then the stream may end.
    void last_used_on(void* p, stream_ref stream) { blocks_.last_used_on(p, stream); }

    /// Gives unused memory back to the device until at most `keep_bytes` are held; returns the bytes given back.
    /// Throws cuda_error.
    std::size_t trim(std::size_t keep_bytes = 0) {
        std::size_t const before = reserved_bytes();
        pool_.trim(keep_bytes);
        std::size_t const after = reserved_bytes();
        return after < before ? before - after : 0; // other threads allocate meanwhile
    }

    /// Blocks until all work on the device is done (on every device where the memory is open to others), so that 'trim' finds
    /// everything that was freed, and offers CUDA again what it refused, but for what a captured stream freed. Breaks the
    /// captures that are under way there, as cudaDeviceSynchronize does. Throws cuda_error.
    void settle() { blocks_.settle(); }

    /// Lets kernels and copies of device number `other` use the pool's memory too. Pinned and managed memory every device
    /// reaches without. Throws usage_error where there is no such device, or it cannot use the pool's memory
    /// (cudaDeviceCanAccessPeer); cuda_error.
    template <memory_space Here = Space, class = std::enable_if_t<Here == memory_space::device>>
    void enable_access_from(int other) {
        pool_.enable_access_from(runtime::existing_peer(other, device()));
        blocks_.open();
    }

    /// What CUDA counts: in use and reserved, now and at most since reset_peaks. Throws cuda_error.
    runtime::cuda_pool_statistics statistics() const { return pool_.statistics(); }
    /// Bytes held from the device, now and at most since reset_peaks. Throws cuda_error.
    std::size_t reserved_bytes() const { return pool_.bytes(cudaMemPoolAttrReservedMemCurrent); }
    std::size_t peak_reserved_bytes() const { return pool_.bytes(cudaMemPoolAttrReservedMemHigh); }
    /// Bytes handed out and not yet freed, now and at most since reset_peaks. Throws cuda_error.
    std::size_t in_use_bytes() const { return pool_.bytes(cudaMemPoolAttrUsedMemCurrent); }
    std::size_t peak_in_use_bytes() const { return pool_.bytes(cudaMemPoolAttrUsedMemHigh); }
    /// The peaks become what is held and out now. Throws cuda_error.
    void reset_peaks() { pool_.reset_peaks(); }

    /// For another process (pool/imported_pool.hpp): a file descriptor of the pool, the caller's to send and to close.
    /// Not of managed memory. Throws usage_error where driver_pool_options::handle_types does not have it, cuda_error.
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
    /// The live block `p`, for a process that has imported the pool. Every importer releases it before it is freed here.
    /// Throws usage_error where 'handle_types' has none, cuda_error, also where the pool itself was not exported before.
    template <memory_space Here = Space, class = std::enable_if_t<Here != memory_space::managed>>
    runtime::exported_block export_block(void* p) const {
        if (options_.handle_types() == 0)
            require_handle_type(cudaMemHandleTypePosixFileDescriptor, "cudaMemHandleTypePosixFileDescriptor");
        void* const begin = blocks_.begin_of(p);
        return runtime::cuda_pool::export_block(begin,
                                                static_cast<std::size_t>(static_cast<char*>(p) - static_cast<char*>(begin)));
    }

    /// The most that it may hold, driver_pool_options::limit, which CUDA rounds up; SIZE_MAX: no limit.
    std::size_t limit_bytes() const noexcept { return options_.limit_bytes(); }
    /// What the options call it.
    text const& name() const noexcept { return options_.name(); }
    /// The device; of pinned and managed memory the one under which it was made.
    int device() const noexcept { return options_.device(); }
    /// CUDA's handle, for calls that weir does not wrap.
    cudaMemPool_t get() const noexcept { return pool_.get(); }

    /// What is known of the pool now; CUDA does not tell the largest free range. Throws cuda_error.
    /// lost_bytes: what captured streams freed and CUDA refused; unsettled_bytes: what CUDA refused elsewhere, as in host
    /// functions, which 'settle' offers again. CUDA counts both as in use.
    memory_report state() const {
        return {options_.name(), in_use_bytes(), reserved_bytes(), limit_bytes(), SIZE_MAX, blocks_.count(), 0,
                blocks_.lost_bytes(), blocks_.refused_bytes()};
    }
    /// Adds the bytes free on the device, as CUDA says. See 'full_state'.
    template <memory_space Here = Space, class = std::enable_if_t<Here == memory_space::device>>
    void examine(memory_report& now) const noexcept {
        now.device_free_bytes = runtime::device_free_bytes(device());
    }
    /// One line: what CUDA counts, now and at most since reset_peaks. Throws cuda_error.
    text report() const {
        runtime::cuda_pool_statistics const now = statistics();
        std::size_t const lost = blocks_.lost_bytes();
        return "pool '" + options_.name() + "' (" + base::name_of(Space) +
               ", the driver's pool): " + base::bytes_text(now.in_use_bytes) + " in use in " +
               base::count_text(blocks_.count(), " block") + ", " + base::bytes_text(now.reserved_bytes) +
               " reserved, at most " + base::bytes_text(now.peak_in_use_bytes) + " and " +
               base::bytes_text(now.peak_reserved_bytes) + ", limit " +
               (limit_bytes() == SIZE_MAX ? text("none") : base::bytes_text(limit_bytes())) +
               (lost == 0 ? text() : ", " + base::bytes_text(lost) + " not handed out again");
    }
    /// Whether such a block could be handed out if no other were. CUDA rounds a limit up to pages of 2 MiB, and is asked how
    /// much memory there is in all. Any thread.
    bool can_hold(std::size_t bytes, std::size_t alignment) const noexcept {
        return detail::block_origins::can_be(bytes, alignment) &&
               base::align_down(bytes + detail::block_origins::padding_for(alignment) - 1, 2 * MiB) < limit_bytes() &&
               bytes + detail::block_origins::padding_for(alignment) <= most_bytes();
    }
    /// Why an allocation of `bytes` bytes finds no room now.
    text refusal(std::size_t bytes, std::size_t alignment) const {
        if (!detail::block_origins::can_be(bytes, alignment))
            return refusal_text(0, 0, SIZE_MAX, 0, base::name_of(Space));
        std::size_t const padding = detail::block_origins::padding_for(alignment);
        return detail::driver_refusal_text(Space, limit_bytes() != SIZE_MAX, bytes + padding, padding);
    }

private:
    // As far as is known. Managed memory may be more than a device has.
    std::size_t most_bytes() const noexcept {
        return Space == memory_space::device   ? runtime::device_total_bytes(options_.device())
               : Space == memory_space::pinned ? runtime::host_total_bytes()
                                               : base::most_addresses;
    }
    static driver_pool_options here(driver_pool_options options) {
        if (options.device() == any_device)
            options.device(runtime::current_device());
        return options;
    }

    void require_handle_type(cudaMemAllocationHandleType type, char const* name) const {
        if ((options_.handle_types() & static_cast<unsigned>(type)) == 0)
            throw usage_error(text("weir: this pool was not made for other processes; set driver_pool_options::handle_types "
                                   "to ") + name);
    }

    driver_pool_options options_;
    runtime::cuda_pool pool_;
    detail::driver_blocks blocks_;
};

} // namespace v0
} // namespace weir
