// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are blocks taken out of the driver's pool and given back, so that none is lost and none is freed too early?
//
// For most blocks CUDA knows all there is to know: an allocation or a free is one call and a count. Of some blocks more must be
// known: where a block begins that needs more than CUDA's alignment, that a graph owns it, which other streams use it, or that
// CUDA did not take it back. While nothing of that kind is known of any block, both calls take a short way, unless the stream
// is a default stream. An allocation also asks whether the stream is captured. A free need not ask: on a captured stream CUDA
// refuses whatever is not its graph's.
//
// invariant: a block that CUDA refuses to take back is kept (kept_blocks.hpp), so that nothing leaks and nothing is freed too
//            early. Two kinds are never kept: a graph's own block, and a block that CUDA does not know, which is told on
//            stderr.
// order:     CUDA's: a block is usable on its stream after the allocation and gone on its stream after the free.
// cost:      beside CUDA's own: a question an allocation, and a guard of others' captures a call (runtime/capture.hpp).
// not for:   attributes, counts of bytes and access: see runtime/cuda_pool.hpp.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/counters.hpp>
#include <weir/driver/driver_pool/block_origins.hpp>
#include <weir/driver/driver_pool/host_stream.hpp>
#include <weir/driver/driver_pool/kept_blocks.hpp>
#include <weir/driver/driver_pool/refused_blocks.hpp>
#include <weir/driver/driver_pool_options.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/cuda_pool.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace driver::detail {

/// Any thread may call any member.
class driver_blocks {
public:
    /// Blocks of `pool`, which was made with `options`, under their device, and has memory of `space`: if that is not device
    /// memory, work of every device may use it. Pool and options outlive this object.
    driver_blocks(runtime::cuda_pool& pool, memory_space space, driver_pool_options const& options) noexcept
        : pool_(pool.get()), owner_(pool), space_(space), options_(options),
          device_(space == memory_space::device ? options.device() : any_device), host_(options.device()),
          kept_(options.name(), device_, host_) {}
    driver_blocks(driver_blocks const&) = delete;
    driver_blocks& operator=(driver_blocks const&) = delete;

    /// See driver_pool_of::try_allocate.
    [[nodiscard]] void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
        cudaStream_t const on = stream.get();
        bool const usual =
            bytes != 0 && alignment <= block_origins::unit_bytes && base::is_power_of_two(alignment) && is_usual(on);
        if (!usual || runtime::is_capturing(on))
            return allocate_with_care(stream, bytes, alignment);
        runtime::capture_mode_scope const relaxed;
        void* block = nullptr;
        if (runtime::out_of_room(runtime::detail::allocate_async(&block, bytes, pool_, on), "cudaMallocFromPoolAsync"))
            return allocate_with_care(stream, bytes, alignment);
        kept_.forget(block); // what others learnt of that address since 'is_usual'
        live_blocks_.fetch_add(1, base::memory_order_relaxed);
        return origins_.empty() ? block : origins_.note(block, 1, 0);
    }

    /// See driver_pool_of::deallocate.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = block_origins::unit_bytes) noexcept {
        if (!p)
            return;
        cudaStream_t const on = stream.get();
        if (!is_usual(on))
            return free_with_care(stream, p, bytes + block_origins::padding_for(alignment));
        cudaError_t const answer = answer_to_free(p, on);
        if (answer == cudaSuccess)
            return forget_one();
        not_taken(answer, p, refused_block{p, bytes + block_origins::padding_for(alignment), {}}, on);
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
        void* const block = allocate_with_care(on_host, bytes, block_origins::unit_bytes);
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

    /// See driver_pool_of::settle.
    void settle() { kept_.settle(); }
    /// Notes that other devices' work may use the memory from now on.
    void open() noexcept { kept_.open(); }

    /// Blocks that are handed out, but for those of graphs.
    std::size_t count() const noexcept { return live_blocks_.load(base::memory_order_relaxed); }
    /// Bytes that captured streams freed and CUDA refused.
    std::size_t lost_bytes() const noexcept { return kept_.lost_bytes(); }
    /// Bytes that CUDA refused elsewhere; they wait for 'settle'.
    std::size_t refused_bytes() const noexcept { return kept_.refused_bytes(); }
    /// Where the live block `p` begins for CUDA.
    void* begin_of(void* p) const noexcept { return origins_.find(p).begin; }

private:
    // Whether the short way will do: nothing is known of any block, and `on` names the same stream on every device. The host's
    // handle is null, as a default stream's is, so the host takes the long way too.
    bool is_usual(cudaStream_t on) const noexcept {
        return !runtime::is_default_handle(on) && origins_.empty() && !uses_.any() && kept_.empty();
    }

    [[gnu::noinline]] void* allocate_with_care(stream_ref stream, std::size_t bytes, std::size_t alignment) {
        base::require_power_of_two(alignment);
        std::size_t const padding = block_origins::padding_for(alignment);
        if (bytes == 0 || !block_origins::can_be(bytes, alignment))
            return nullptr;
        cudaStream_t const on = stream_of(stream);
        runtime::device_scope const current(kept_.device_for(on)); // the one whose default stream is meant
        bool const in_graph = runtime::is_capturing(on);
        if (in_graph && runtime::is_legacy(stream))
            throw usage_error("weir: nothing can be allocated on the legacy default stream while a stream is captured that "
                              "waits for it; use another stream");
        std::uint64_t const owner = in_graph ? runtime::capture_of(on).id : 0;
        runtime::capture_mode_scope const relaxed;
        void* block = nullptr;
        auto const found = [&] {
            cudaError_t answer{};
            kept_.forget_new([&] { // what a wrong free left there would free this one
                return answer = runtime::detail::allocate_async(&block, bytes + padding, pool_, on), block;
            });
            if (in_graph && answer == cudaErrorNotSupported && !runtime::succeeded(answer))
                throw usage_error("weir: CUDA takes no memory of pool '" + options_.name() +
                                  "' into a graph; allocate before the capture, or from a pool without 'handle_types'");
            return !runtime::out_of_room(answer, "cudaMallocFromPoolAsync");
        };
        if (!found() && (in_graph || !driver_can_hold(space_, options_, bytes + padding) ||
                         !((wait_for_frees() && found()) || (give_back_unused(), found()))))
            return nullptr;
        void* p = nullptr;
        try {
            if (stream.is_host())
                synchronize(on);
            p = origins_.note(block, padding == 0 ? 1 : alignment, owner);
        } catch (...) {
            if (!runtime::succeeded(runtime::detail::free_async(block, on)) && !in_graph)
                kept_.keep_unused(refused_block{block, bytes + padding, {}});
            throw;
        }
        if (!in_graph)
            live_blocks_.fetch_add(1, base::memory_order_relaxed);
        return p;
    }

    // After a refusal: waits for what was freed and may be in use, which CUDA does not do. False: there is nothing like that.
    bool wait_for_frees() {
        runtime::cuda_pool_statistics const now = owner_.statistics();
        if (refused_bytes() == 0 && now.reserved_bytes <= now.in_use_bytes)
            return false;
        kept_.wait_for_frees();
        return true;
    }
    void give_back_unused() {
        owner_.trim(0); // what lies free in pieces that are too small
        if (device_ != any_device)
            runtime::trim_graph_memory(device_); // what CUDA keeps for graphs
    }

    // Frees a block of which nothing is known, and returns CUDA's answer.
    static cudaError_t answer_to_free(void* block, cudaStream_t on) noexcept {
        try {
            runtime::capture_mode_scope const relaxed;
            return free_or_unknown(block, on);
        } catch (...) { // the guard failed, and CUDA was not asked
            return cudaErrorUnknown;
        }
    }

    // CUDA refused to free `p`, which is a block of no graph: tells a wrong free, and keeps any other block.
    [[gnu::noinline]] void not_taken(cudaError_t answer, void* p, refused_block block, cudaStream_t on) noexcept {
        if (answer == cudaErrorInvalidValue)
            return tell_wrong_free(options_.name().c_str(), p, false);
        forget_one();
        kept_.keep(std::move(block), on);
    }

    // Frees a block of which something is known, or on a default stream or the host.
    [[gnu::noinline]] void free_with_care(stream_ref stream, void* p, std::size_t bytes) noexcept {
        block_origins::origin const block = origins_.take(p);
        if (block.of_graph)
            return free_for_graph(stream, p, block.begin);
        if (kept_.has(block.begin))
            return tell_wrong_free(options_.name().c_str(), p, true);
        free_for_pool(stream, p, refused_block{block.begin, bytes, {}});
    }

    // The pool's own block: the free waits for the streams that use it. Where it cannot, or CUDA refuses, the block is kept.
    void free_for_pool(stream_ref stream, void* p, refused_block block) noexcept {
        auto const at = reinterpret_cast<std::uintptr_t>(p);
        order::block_uses uses; // on other streams
        bool asked = false;
        cudaStream_t on = stream.get();
        cudaError_t answer = cudaErrorNotReady;
        try {
            on = stream_of(stream);
            if (is_of_two_devices(on) && captured_elsewhere(at, stream, true)) {
                block.uses = uses_.take(at, on).events;
                return forget_one(), kept_.keep_for_graph(std::move(block));
            }
            runtime::device_scope const current(kept_.device_for(on));
            uses = uses_.take(at, on);
            asked = true;
            // In a capture, waiting for an event from outside would break it, and so would a free on the legacy stream.
            bool const may_break = !uses.empty() || runtime::is_legacy(on);
            if (uses.are_known() && !(may_break && runtime::is_capturing(on))) {
                runtime::capture_mode_scope const relaxed;
                wait_for(uses, on);
                answer = free_or_unknown(block.begin, on);
                if (answer == cudaSuccess)
                    return forget_one();
            }
        } catch (...) { // some use may be in flight that the free could not be made to wait for
        }
        if (!asked)
            uses = uses_.take(at, on);
        if (!uses.are_known())
            open(); // the use that is not known may be any device's
        block.uses = std::move(uses.events);
        if (!uses.in_graph)
            return not_taken(answer, p, std::move(block), on);
        forget_one();
        kept_.keep_for_graph(std::move(block)); // a graph uses it at each launch
    }

    // A graph's block, which its own graph, another one or the program frees, each time that a launch has allocated it. Where
    // that fails the block is the graph's as before, with the uses that were noted.
    void free_for_graph(stream_ref stream, void* p, void* begin) noexcept {
        auto const at = reinterpret_cast<std::uintptr_t>(p);
        order::block_uses uses; // on other streams
        bool asked = false;
        bool captured = false;
        cudaStream_t on = stream.get();
        try {
            on = stream_of(stream);
            if (is_of_two_devices(on))
                captured_elsewhere(at, stream, false);
            runtime::device_scope const current(kept_.device_for(on));
            uses = uses_.take(at, on, true); // the free may be captured and then wait for no event
            asked = true;
            captured = runtime::is_capturing(on);
            std::uint64_t const capture = captured ? runtime::capture_of(on).id : 0;
            runtime::capture_mode_scope const relaxed;
            if (captured && order::all_reached(uses.events))
                uses.events.clear();
            if (uses.are_known() && !(captured && (!uses.empty() || runtime::is_legacy(on)))) {
                wait_for(uses, on);
                if (runtime::detail::free_async(begin, on) == cudaSuccess) {
                    if (captured)
                        origins_.freed_by(capture, p); // at each launch
                    return;
                }
            }
        } catch (...) { // some use may be in flight that the free could not be made to wait for
        }
        if ((captured || uses.in_graph) && !uses.empty())
            std::fprintf(
                stderr,
                "weir: pool '%s': the block at %p stays, since work on another stream uses it and a graph cannot wait for "
                "that; capture its free once that work is done\n",
                options_.name().c_str(), p);
        if (asked)
            uses_.put_back(at, std::move(uses)); // for the next try to free the block
    }

    static void wait_for(order::block_uses const& uses, cudaStream_t on) {
        for (runtime::event const& each : uses.events)
            each.make_wait(on);
    }

    // Whether `on` means a stream of the current device as well as one of the pool's device, which is another; also if CUDA
    // does not say which device is current.
    bool is_of_two_devices(cudaStream_t on) const noexcept {
        int here = any_device;
        return kept_.device_for(on) != any_device &&
               (!runtime::succeeded(runtime::detail::query_device(&here)) || here != device_);
    }

    // Whether a capture on the current device may free the pool's block (`may_keep`). If not, notes what the current device's
    // default stream did so far: it is meant as well.
    bool captured_elsewhere(std::uintptr_t at, stream_ref stream, bool may_keep) {
        if (may_keep && runtime::may_be_captured(runtime::capture_state_of(stream)))
            return true;
        try {
            uses_.add(at, stream);
            return false;
        } catch (...) { // nobody noted what that device does with the block
            open();
            throw;
        }
    }

    cudaStream_t stream_of(stream_ref stream) { return stream.is_host() ? host_.get() : stream.get(); }

    // Frees of another pool's blocks do not take the count below zero.
    void forget_one() noexcept { base::lower(live_blocks_, std::size_t{1}); }

    cudaMemPool_t pool_;
    runtime::cuda_pool& owner_;
    memory_space space_;
    driver_pool_options const& options_;
    int device_; // of the memory; any_device: any device's work may use it
    host_stream host_; // for allocations and frees on the host
    base::atomic<std::size_t> live_blocks_{0}; // but for those of graphs
    order::second_uses uses_;
    block_origins origins_;
    kept_blocks kept_; // what CUDA did not take back
};

} // namespace driver::detail
} // namespace v0
} // namespace weir
