// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one use the driver's own pools with weir's containers, layers and adaptors?
//
// CUDA's memory pools (cudaMallocFromPoolAsync) do alone what an upstream, a placement and a reuse rule do in weir's. This
// class owns one and speaks weir's contract for it. There is one of device memory (driver_pool), one of pinned host memory that
// every device reaches (pinned_driver_pool), and one of managed memory (managed_driver_pool, CUDA 13). By default it keeps
// memory when a stream or device is synchronised; the driver's own default gives it back each time. Its other attributes are
// options.
//
// In a captured stream an allocation becomes a node of the graph, and the block belongs to the graph: the pool does not count
// it. Each launch allocates it at the same address. One of these frees it:
//   - the captured stream, by a free in the same capture; then every launch frees it too;
//   - the program, once after each launch, ordered behind the launch;
//   - the launch of another graph, which captured the free;
//   - the next launch, if the graph was instantiated with cudaGraphInstantiateFlagAutoFreeOnLaunch; the program then frees it
//     after the last launch.
// A block that was handed out before the capture does not belong to the graph. If a captured stream frees it, it is kept until
// the pool ends.
//
// invariant: nothing leaks, and nothing is freed too early: what CUDA refuses to take back is kept (driver_blocks.hpp).
// order:     CUDA's: a block is usable on its stream after the allocation and gone on its stream after the free. The host may
//            touch pinned and managed blocks once the stream has reached the allocation.
// cost:      600 to 800 ns an allocation and its free on one thread, more as threads join (bench/results).
// not for:   the hot path: 'device_pool' is several times faster.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/driver/driver_pool/block_origins.hpp>
#include <weir/driver/driver_pool/driver_blocks.hpp>
#include <weir/driver/driver_pool_options.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/report_text.hpp>
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
    static constexpr std::size_t default_alignment = driver::detail::block_origins::unit_bytes;

    /// Creates the memory pool. Throws usage_error for options that this kind of memory does not have, and for a device that is
    /// not there; out_of_memory if there is no room for what is to be reserved; cuda_error, also if the machine has no such
    /// pools; std::bad_alloc.
    explicit driver_pool_of(driver_pool_options options)
        : options_(here(std::move(options))),
          pool_(driver::detail::properties_of(Space, options_), driver::detail::instead_of_driver_pool(Space)),
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
    /// more. If CUDA refused to take a block back before, this waits for the device and gives it back: launch no graph that
    /// uses it any more.
    ~driver_pool_of() { resource::tell_leaks(options_.name().c_str(), options_.on_leak(), blocks_.count(), 0); }

    /// A block for work enqueued on `stream` from now on; null for zero bytes and if there is no room. If there can be room
    /// ('can_hold'), it first waits for the work that may use what was freed (on every device, if the memory is open to
    /// others), and gives back what the pool does not use and what CUDA keeps for graphs; that breaks no capture. If `stream`
    /// is the host, blocks until the memory is there. In a captured stream the allocation becomes a node of the graph, which
    /// owns the block (see the head of this file). Throws usage_error, also on the legacy stream while a stream is captured
    /// that waits for it; cuda_error; std::bad_alloc.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        return blocks_.allocate(stream, bytes, alignment);
    }

    /// Takes a block back in the order of `stream`; if that is the host, at once. A default stream means two: the pool's
    /// device's and the current device's. Null does nothing. Waits at
    /// most for room in a full queue, as a launch does.
    ///
    /// In a captured stream:
    ///   - The free of a graph's block becomes a node. But a graph cannot wait for work on another stream: if such work still
    ///     uses the block ('used_on'), the block stays, and stderr says so.
    ///   - CUDA refuses a block from outside the graph, which the graph may use at each launch. The block counts as lost_bytes
    ///     and goes back when the pool ends.
    ///
    /// What CUDA refuses for other reasons is kept, and 'settle' offers it again. But a graph's block that is freed before a
    /// launch, or twice after one, stays as it is.
    ///
    /// A block that is freed already, or that CUDA did not hand out, is told on stderr and left alone. In a captured stream
    /// such a block is noted until the pool ends, like a block from outside the graph; it must not have become another pool's
    /// block by then. CUDA does take back a block of another of its pools.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        blocks_.deallocate(stream, p, bytes, alignment);
    }
    using resource::pool_base<driver_pool_of>::deallocate;

    /// Notes that work on `stream` uses the block that was allocated at `p` (its start: an address inside it is not looked up).
    /// The free waits for all that is enqueued on `stream` before the free, so once is enough, at any time (PyTorch's
    /// record_stream). The stream must live until the free, as the block's own must. cudaStreamPerThread means the calling
    /// thread's stream, and that thread must live on, too; if another thread frees the block, the free waits for all blocking
    /// streams of the device. If `stream` is being captured at the free, that counts as a free on a captured stream, and a
    /// graph's block stays as it is. Waits as deallocate. Throws usage_error while `stream` is captured, cuda_error,
    /// std::bad_alloc.
    void used_on(void* p, stream_ref stream) {
        runtime::naming(*this, [&] { blocks_.used_on(p, stream); });
    }
    /// The same, but only for what is enqueued on `stream` so far: call it after the last launch there; then the stream may
    /// end.
    void last_used_on(void* p, stream_ref stream) {
        runtime::naming(*this, [&] { blocks_.last_used_on(p, stream); });
    }

    /// Gets memory ahead of need, until the pool holds at least `bytes` bytes; 'trim' gives it back like other memory. CUDA
    /// gets memory only for a block, so one is allocated beside those in use, and freed. After that the release threshold keeps
    /// the memory; where it is lower, it is raised to what the pool holds then. Blocks. Throws out_of_memory if there is no
    /// room, and otherwise as 'allocate'; the blocks that are handed out are as before.
    void reserve(std::size_t bytes) {
        base::lock_guard<base::mutex> const lock(reserve_mutex_); // otherwise one call could lower the threshold of another
        std::size_t const in_use = in_use_bytes();
        if (bytes > in_use && bytes > reserved_bytes()) {
            if (!blocks_.hold_for_a_while(bytes - in_use, [&] { keep_at_least(bytes); }))
                throw out_of_memory(bytes, state(), refusal(bytes, 1));
        } else {
            keep_at_least(bytes);
        }
    }

    /// Gives unused memory back to the device until at most `keep_bytes` are held; returns the bytes given back.
    /// Throws cuda_error.
    std::size_t trim(std::size_t keep_bytes = 0) {
        std::size_t const before = reserved_bytes();
        pool_.trim(keep_bytes);
        std::size_t const after = reserved_bytes();
        return after < before ? before - after : 0; // more than before, if other threads allocate meanwhile
    }

    /// Blocks until all work on the device is done (on every device, if the memory is open to others). Then 'trim' finds
    /// everything that was freed. Offers CUDA again what it refused, but for what captured streams freed. Breaks the captures
    /// that are under way on those devices, as cudaDeviceSynchronize does. Throws cuda_error.
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
    std::size_t trim_graph_memory() {
        std::size_t const before = graph_memory_bytes();
        runtime::trim_graph_memory(device());
        std::size_t const after = graph_memory_bytes();
        return after < before ? before - after : 0;
    }

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
    /// Not for managed memory. Throws usage_error if driver_pool_options::handle_types does not include descriptors,
    /// cuda_error.
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
        void* const begin = blocks_.begin_of(p);
        return runtime::cuda_pool::export_block(begin,
                                                static_cast<std::size_t>(static_cast<char*>(p) - static_cast<char*>(begin)));
    }

    /// The most bytes that it may hold (driver_pool_options::limit), which CUDA rounds up; SIZE_MAX: no limit.
    std::size_t limit_bytes() const noexcept { return options_.limit_bytes(); }
    /// What the options call it.
    text const& name() const noexcept { return options_.name(); }
    /// The device; of pinned and managed memory the one under which it was made.
    int device() const noexcept { return options_.device(); }
    /// CUDA's handle, for calls that weir does not wrap.
    cudaMemPool_t get() const noexcept { return pool_.get(); }

    /// What is known of the pool at present; CUDA does not tell the largest free range. lost_bytes: what captured streams freed
    /// and CUDA refused. unsettled_bytes: what CUDA refused elsewhere, as in host functions; 'settle' offers it again. CUDA
    /// counts both as in use. Throws cuda_error.
    memory_report state() const {
        return {options_.name(), in_use_bytes(), reserved_bytes(), limit_bytes(), SIZE_MAX, blocks_.count(), 0,
                blocks_.lost_bytes(), blocks_.refused_bytes()};
    }
    /// Adds what takes longer to find out: the bytes that CUDA says are free on the device. See 'full_state'.
    template <memory_space Here = Space, class = std::enable_if_t<Here == memory_space::device>>
    void examine(memory_report& now) const noexcept {
        now.device_free_bytes = runtime::device_free_bytes(device());
    }
    /// One line: what CUDA counts, at present and at most since reset_peaks. Throws cuda_error.
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
    /// Whether a block of that size and alignment could be handed out if no other were. Takes into account that CUDA rounds a
    /// limit up to pages of 2 MiB. Asks CUDA how much memory there is in all. Any thread.
    bool can_hold(std::size_t bytes, std::size_t alignment = default_alignment) const noexcept {
        return driver::detail::block_origins::can_be(bytes, alignment) &&
               driver::detail::driver_can_hold(Space, options_, bytes + driver::detail::block_origins::padding_for(alignment));
    }
    /// Why an allocation of `bytes` bytes finds no room now. Throws cuda_error.
    text refusal(std::size_t bytes, std::size_t alignment) const {
        if (!driver::detail::block_origins::can_be(bytes, alignment))
            return resource::refusal_text(0, 0, SIZE_MAX, 0, base::name_of(Space));
        std::size_t const padding = driver::detail::block_origins::padding_for(alignment);
        std::size_t const held = reserved_bytes();
        bool const by_limit = limit_bytes() != SIZE_MAX &&
                              bytes + padding <= driver::detail::most_driver_bytes(Space, options_) &&
                              (limit_bytes() < held || bytes + padding > base::align_up(limit_bytes(), 2 * MiB) - held);
        return driver::detail::driver_refusal_text(Space, by_limit, can_hold(bytes, alignment), bytes + padding, padding);
    }

private:
    static driver_pool_options here(driver_pool_options options) {
        options.device(runtime::existing_device(options.device()));
        return options;
    }

    // Synchronising a stream or device leaves the pool at least `bytes` bytes from now on, which it holds. CUDA gives memory
    // back in large pieces, so a threshold below what is held keeps nothing for certain.
    void keep_at_least(std::size_t bytes) {
        std::size_t const threshold = pool_.bytes(cudaMemPoolAttrReleaseThreshold);
        if (threshold >= reserved_bytes())
            return;
        pool_.trim(threshold > bytes ? threshold : bytes); // it would go at the next synchronisation
        if (std::size_t const held = reserved_bytes(); held > threshold)
            pool_.template set<std::uint64_t>(cudaMemPoolAttrReleaseThreshold, held);
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
