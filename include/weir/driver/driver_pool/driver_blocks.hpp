// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are blocks taken out of CUDA's pool and given back, so that none is freed too early?
//
// For most blocks CUDA knows all there is to know: an allocation or a free is one call and a count. While no graph owns a block
// and none has uses on other streams, both take this short way, unless the stream is a default stream. An allocation also asks
// whether the stream is captured. A free need not: on a captured stream CUDA refuses whatever is not its graph's.
//
// A free that CUDA refuses is looked at with care, and made again in the stream's order. If that is refused too, or there is
// no order (the legacy stream beside a capture; a use of which no event tells), it waits for all devices and is made on a
// stream of the pool's own. If that fails as well, the block is lost. A block that a graph may use is lost at once.
//
// invariant: a lost block is not handed out as long as the pool lives, and counts in lost_bytes. CUDA gets it back when the
//            pool ends. A graph's own block is never lost: what is refused twice stays the graph's.
// order:     CUDA's: a block is usable on its stream after the allocation and gone on its stream after the free.
// cost:      beside CUDA's own: a question an allocation, and a guard of others' captures a call (runtime/capture.hpp).
// not for:   wrong frees, which layer::guard tells: what CUDA does not know is left alone, and not counted.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/counters.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/driver/driver_pool/graph_blocks.hpp>
#include <weir/driver/driver_pool_options.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/cuda_pool.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/give_back.hpp>
#include <weir/runtime/side_stream.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace driver::detail {

/// Any thread may call any member.
class driver_blocks {
public:
    static constexpr std::size_t alignment = 256; ///< CUDA's, of every block

    /// Blocks of `pool`, which was made with `options` and has memory of `space`: if that is not device memory, work of every
    /// device may use it. Pool and options outlive this object. Throws cuda_error.
    driver_blocks(runtime::cuda_pool& pool, memory_space space, driver_pool_options const& options)
        : pool_(pool.get()), owner_(pool), space_(space), options_(options),
          device_(space == memory_space::device ? options.device() : any_device), users_(device_), host_(options.device()) {}
    driver_blocks(driver_blocks const&) = delete;
    driver_blocks& operator=(driver_blocks const&) = delete;
    /// Gives back what is lost. Waits for all devices for each such block.
    ~driver_blocks() {
        for (void* const each : lost_)
            free_when_idle(each);
    }

    /// See driver_pool_of::try_allocate.
    [[nodiscard]] void* allocate(stream_ref stream, std::size_t bytes, std::size_t aligned_to) {
        cudaStream_t const on = stream.get();
        bool const usual = bytes != 0 && aligned_to <= alignment && base::is_power_of_two(aligned_to) && is_usual(on);
        if (!usual || runtime::is_capturing(on))
            return allocate_with_care(stream, bytes, aligned_to);
        runtime::capture_mode_scope const relaxed;
        void* block = nullptr;
        if (runtime::out_of_room(runtime::detail::allocate_async(&block, bytes, pool_, on), "cudaMallocFromPoolAsync"))
            return allocate_with_care(stream, bytes, aligned_to);
        graphs_.note(block, 0);
        live_blocks_.fetch_add(1, base::memory_order_relaxed);
        return block;
    }

    /// See driver_pool_of::deallocate.
    void deallocate(stream_ref stream, void* p, std::size_t bytes) noexcept {
        if (!p)
            return;
        cudaStream_t const on = stream.get();
        if (!is_usual(on) || !freed(p, on))
            return free_with_care(stream, p, bytes);
        forget_one();
    }

    /// See driver_pool_of::used_on.
    void used_on(void* p, stream_ref stream) {
        if (p && !stream.is_host())
            uses_.mark(reinterpret_cast<std::uintptr_t>(p), stream);
    }
    /// See driver_pool_of::last_used_on.
    void last_used_on(void* p, stream_ref stream) {
        if (p && !stream.is_host())
            uses_.add(reinterpret_cast<std::uintptr_t>(p), stream);
    }

    /// Allocates a block, calls `held()` and frees the block; any stream may get its bytes when this returns. False: no room.
    /// Blocks. Throws as 'allocate', and what `held` throws.
    template <class Held>
    bool hold_for_a_while(std::size_t bytes, Held const& held) {
        // Not by 'allocate' and 'deallocate': a second call would keep the compiler from inlining those where they are hot.
        void* const block = allocate_with_care(on_host, bytes, 1);
        if (!block)
            return false;
        try {
            held();
        } catch (...) {
            free_with_care(on_host, block, bytes);
            throw;
        }
        free_with_care(on_host, block, bytes);
        synchronize(host_.get());
        return true;
    }

    /// See driver_pool_of::settle. Not by 'wait_for_device', which CUDA's pools do not notice: a trim would find nothing.
    void settle() {
        runtime::capture_mode_scope const relaxed; // so that captures on other devices do not break
        runtime::visit_devices(users(), [] { check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); });
    }
    /// Notes that other devices' work may use the memory from now on.
    void open() noexcept { users_.store(any_device, base::memory_order_relaxed); }

    /// Blocks that are handed out, but for those of graphs.
    std::size_t count() const noexcept { return live_blocks_.load(base::memory_order_relaxed); }
    /// Bytes of the blocks that are lost.
    std::size_t lost_bytes() const noexcept { return lost_bytes_.load(base::memory_order_relaxed); }

private:
    // What a free must know: who else uses the block, and whether the stream is captured.
    struct last_look {
        order::block_uses uses;
        runtime::capture_state state;
    };

    // Whether the short way will do. The host's handle is null, as a default stream's is, so the host takes the long way too.
    bool is_usual(cudaStream_t on) const noexcept {
        return !runtime::is_default_handle(on) && graphs_.empty() && !uses_.any();
    }

    [[gnu::noinline]] void* allocate_with_care(stream_ref stream, std::size_t bytes, std::size_t aligned_to) {
        base::require_power_of_two(aligned_to);
        if (bytes == 0 || aligned_to > alignment)
            return nullptr;
        cudaStream_t const on = stream_of(stream);
        runtime::device_scope const current(device_for(on)); // the one whose default stream is meant
        bool const in_graph = runtime::is_capturing(on);
        if (in_graph && runtime::is_legacy(stream))
            throw usage_error("weir: nothing can be allocated on the legacy default stream while a stream is captured that "
                              "waits for it; use another stream");
        std::uint64_t const owner = in_graph ? runtime::capture_of(on).id : 0;
        runtime::capture_mode_scope const relaxed;
        void* block = nullptr;
        auto const found = [&] {
            cudaError_t const answer = runtime::detail::allocate_async(&block, bytes, pool_, on);
            if (in_graph && answer == cudaErrorNotSupported && !runtime::succeeded(answer))
                throw usage_error("weir: CUDA takes no memory of pool '" + options_.name() +
                                  "' into a graph; allocate before the capture, or from a pool without 'handle_types'");
            return !runtime::out_of_room(answer, "cudaMallocFromPoolAsync");
        };
        if (!found() && (in_graph || !driver_can_hold(space_, options_, bytes) || !found_at_last(found)))
            return nullptr;
        try {
            graphs_.note(block, owner);
            if (stream.is_host())
                synchronize(on);
        } catch (...) {
            if (!base::try_twice([&] { return freed(block, on); }) && !in_graph && free_when_idle(block) != cudaSuccess)
                lose(block, bytes);
            throw;
        }
        if (!in_graph)
            live_blocks_.fetch_add(1, base::memory_order_relaxed);
        return block;
    }

    // After a refusal: waits for what was freed and may be in use, which CUDA does not do, and lets its pool notice what is
    // over. Then gives back what lies free in pieces that are too small, and what CUDA keeps for graphs. Breaks no capture.
    template <class Found>
    bool found_at_last(Found const& found) {
        if (owner_.bytes(cudaMemPoolAttrReservedMemCurrent) > owner_.bytes(cudaMemPoolAttrUsedMemCurrent)) {
            runtime::wait_for_device(users());
            synchronize(host_.get());
            if (found())
                return true;
        }
        owner_.trim(0);
        if (device_ != any_device)
            runtime::trim_graph_memory(device_);
        return found();
    }

    // Frees a block behind what is on the stream, and breaks no capture of others. False: CUDA refuses.
    static bool freed(void* block, cudaStream_t on) noexcept {
        return runtime::gave_back([&] { return runtime::detail::free_async(block, on); });
    }

    // Frees a block of which something is known, or on a default stream or the host, or that CUDA did not take at once. A
    // graph's block is freed by its own graph, another one or the program, each time that a launch has allocated it.
    [[gnu::noinline]] void free_with_care(stream_ref stream, void* p, std::size_t bytes) noexcept {
        cudaStream_t const on = stream_of(stream);
        bool const of_graph = graphs_.has(p);
        last_look now = look(p, on);
        bool const stays = now.uses.in_graph || (!of_graph && runtime::may_be_captured(now.state));
        bool is_freed = !stays && freed_in_order(p, on, now);
        if (of_graph && !stays && !is_freed) // which is freed in this order or not at all
            is_freed = freed_in_order(p, on, now);
        if (of_graph && is_freed)
            return graphs_.freed_by(runtime::capture_if_known(on).id, p); // at each launch
        if (of_graph)
            return uses_.put_back(reinterpret_cast<std::uintptr_t>(p), std::move(now.uses)); // for the next try
        cudaError_t answer = is_freed ? cudaSuccess : cudaErrorUnknown;
        if (!is_freed && !stays)
            answer = free_when_idle(p);
        if (answer == cudaErrorInvalidValue)
            return;
        forget_one();
        if (answer != cudaSuccess)
            lose(p, bytes);
    }

    // If `on` is a default stream, and another device than the pool's is current, that device's stream is meant as well: it
    // counts as one that uses the block. If that cannot be noted, a graph may use the block, or no event tells of the use.
    last_look look(void* p, cudaStream_t on) noexcept {
        auto const at = reinterpret_cast<std::uintptr_t>(p);
        bool const of_two = is_of_two_devices(on);
        bool const noted = !of_two || base::try_twice([&] { return uses_.add(at, on), true; });
        last_look now{{}, runtime::is_legacy(on) ? runtime::capture_state::hindered : runtime::capture_state::unknown};
        if (!base::try_twice([&] {
                runtime::device_scope const current(of_two ? device_ : any_device);
                now = {uses_.take(at, on), runtime::capture_state_of(on)};
                return true;
            }))
            now.uses = uses_.take(at, on);
        if (!noted && runtime::may_be_captured(runtime::capture_state_of(on)))
            now.uses.in_graph = true;
        else if (!noted)
            now.uses.untold = true;
        return now;
    }

    // Frees the block behind what is on the stream and behind its uses on others, for which the host waits in a graph's place.
    // False: CUDA refuses, or there is no such order.
    bool freed_in_order(void* p, cudaStream_t on, last_look const& now) noexcept {
        if (now.uses.untold || now.state == runtime::capture_state::hindered)
            return false;
        try {
            runtime::device_scope const current(device_for(on));
            runtime::capture_mode_scope const relaxed;
            for (runtime::event const& each : now.uses.events)
                if (now.state == runtime::capture_state::none)
                    each.make_wait(on);
                else
                    each.synchronize();
            return freed(p, on);
        } catch (...) { // some use may be in flight that the free could not be made to wait for
            return false;
        }
    }

    // Waits until no device has work, and frees the block. CUDA's answer; cudaErrorInvalidValue: it knows no such block.
    cudaError_t free_when_idle(void* p) noexcept {
        cudaError_t answer = cudaErrorUnknown;
        base::try_twice([&] {
            if (runtime::capture_state_of(host_.get()) != runtime::capture_state::none)
                return false; // in a host function, for which the device would wait
            runtime::wait_for_device(any_device);
            runtime::capture_mode_scope const relaxed;
            answer = runtime::detail::free_async(p, host_.get());
            return runtime::succeeded(answer) || answer == cudaErrorInvalidValue;
        });
        return answer;
    }

    // If the host has no memory to note the block, it leaks when the pool ends.
    void lose(void* p, std::size_t bytes) noexcept {
        lost_bytes_.fetch_add(bytes, base::memory_order_relaxed);
        base::lock_guard<base::mutex> const lock(mutex_);
        base::try_twice([&] { return lost_.push_back(p), true; });
    }

    // The device to make current, since a default stream is the current device's. any_device: leave it as it is.
    int device_for(cudaStream_t on) const noexcept { return runtime::is_default_stream(on) ? device_ : any_device; }
    // Whether `on` means a stream of the current device as well as one of the pool's; also if CUDA does not say.
    bool is_of_two_devices(cudaStream_t on) const noexcept {
        int here = any_device;
        return device_for(on) != any_device &&
               (!runtime::succeeded(runtime::detail::query_device(&here)) || here != device_);
    }
    cudaStream_t stream_of(stream_ref stream) const noexcept { return stream.is_host() ? host_.get() : stream.get(); }
    int users() const noexcept { return users_.load(base::memory_order_relaxed); }
    // Frees of another pool's blocks do not take the count below zero.
    void forget_one() noexcept { base::lower(live_blocks_, std::size_t{1}); }

    cudaMemPool_t pool_;
    runtime::cuda_pool& owner_;
    memory_space space_;
    driver_pool_options const& options_;
    int device_;                // of the memory; any_device: any device's work may use it
    base::atomic<int> users_;   // the device whose work may use the memory; any_device: any
    runtime::side_stream host_; // for what happens on the host: CUDA's pools know streams only
    base::atomic<std::size_t> live_blocks_{0}; // but for those of graphs
    order::second_uses uses_;
    graph_blocks graphs_;
    base::mutex mutex_;
    base::growing_array<void*> lost_; // until the end
    base::atomic<std::size_t> lost_bytes_{0};
};

} // namespace driver::detail
} // namespace v0
} // namespace weir
