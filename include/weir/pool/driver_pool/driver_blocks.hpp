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
// invariant: a block that CUDA refuses to take back is kept, so that nothing leaks and nothing is freed too early. What a
//            captured stream freed is kept until the end, since the graph may use it at each launch; any other block until
//            'settle' offers it again. Two kinds are never kept: a graph's own block, and a block that CUDA does not know,
//            which is told on stderr.
// order:     CUDA's: a block is usable on its stream after the allocation and gone on its stream after the free.
// cost:      beside CUDA's own: a question an allocation, and a guard of others' captures a call (runtime/capture.hpp).
// not for:   attributes, counts of bytes and access: see runtime/cuda_pool.hpp.

#include <cstddef>
#include <cstdint>
#include <cstdio>
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
#include <weir/order/second_uses.hpp>
#include <weir/pool/driver_pool/block_origins.hpp>
#include <weir/pool/driver_pool/refused_blocks.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/cuda_pool.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// Any thread may call any member.
class driver_blocks {
public:
    /// Blocks of `pool`, which was made under device number `device` and has memory of `space`. Work of every device may use
    /// memory other than device memory. `name`: what the pool is called where a wrong free is told; it must outlive this
    /// object.
    driver_blocks(cudaMemPool_t pool, memory_space space, text const& name, int device) noexcept
        : pool_(pool), name_(name), made_on_(device), device_(space == memory_space::device ? device : any_device) {}
    driver_blocks(driver_blocks const&) = delete;
    driver_blocks& operator=(driver_blocks const&) = delete;

    /// If CUDA refused to take a block back before, waits for the device and gives it back: launch no graph that uses it any
    /// more.
    ~driver_blocks() {
        for (refused_blocks* each : {&refused_, &lost_})
            base::try_twice([&] { // where it fails twice the device is lost, or a graph is captured: CUDA takes nothing back
                if (!each->empty())
                    offer(*each, true);
                return each->empty();
            });
        if (host_stream_)
            static_cast<void>(runtime::succeeded(cudaStreamDestroy(host_stream_)));
    }

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
            return nullptr;
        refused_.forget(block); // what others learnt of that address since 'is_usual'
        lost_.forget(block);
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

    /// See driver_pool_of::settle.
    void settle() { offer(refused_); }
    /// Notes that other devices' work may use the memory from now on.
    void open() noexcept { open_.store(true, base::memory_order_relaxed); }

    /// Blocks that are handed out, but for those of graphs.
    std::size_t count() const noexcept { return live_blocks_.load(base::memory_order_relaxed); }
    /// Bytes that captured streams freed and CUDA refused.
    std::size_t lost_bytes() const noexcept { return lost_.bytes(); }
    /// Bytes that CUDA refused elsewhere; they wait for 'settle'.
    std::size_t refused_bytes() const noexcept { return refused_.bytes(); }
    /// Where the live block `p` begins for CUDA.
    void* begin_of(void* p) const noexcept { return origins_.find(p).begin; }

private:
    // Whether the short way will do: nothing is known of any block, and `on` names the same stream on every device. The host's
    // handle is null, as a default stream's is, so the host takes the long way too.
    bool is_usual(cudaStream_t on) const noexcept {
        return !runtime::is_default_handle(on) && origins_.empty() && !uses_.any() && refused_.empty() && lost_.empty();
    }

    [[gnu::noinline]] void* allocate_with_care(stream_ref stream, std::size_t bytes, std::size_t alignment) {
        require_power_of_two(alignment);
        std::size_t const padding = block_origins::padding_for(alignment);
        if (bytes == 0 || !block_origins::can_be(bytes, alignment))
            return nullptr;
        cudaStream_t const on = stream.is_host() ? host_stream() : stream.get();
        runtime::device_scope const device(device_for(on)); // the one whose default stream is meant
        bool const in_graph = runtime::is_capturing(on);
        if (in_graph && runtime::is_legacy(stream))
            throw usage_error("weir: nothing can be allocated on the legacy default stream while a stream is captured that "
                              "waits for it; use another stream");
        std::uint64_t const owner = in_graph ? runtime::capture_of(on).id : 0;
        runtime::capture_mode_scope const relaxed;
        void* block = nullptr;
        cudaError_t answer{};
        auto const hand_out = [&] {
            return answer = runtime::detail::allocate_async(&block, bytes + padding, pool_, on), block;
        };
        refused_.forget_new(hand_out); // what a wrong free left there would free this one
        if (in_graph && answer == cudaErrorNotSupported && !runtime::succeeded(answer))
            throw usage_error("weir: CUDA takes no memory of pool '" + name_ +
                              "' into a graph; allocate before the capture, or from a pool without 'handle_types'");
        if (runtime::out_of_room(answer, "cudaMallocFromPoolAsync"))
            return nullptr;
        lost_.forget(block);
        void* p = nullptr;
        try {
            if (stream.is_host())
                check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
            p = origins_.note(block, padding == 0 ? 1 : alignment, owner);
        } catch (...) {
            if (!runtime::succeeded(runtime::detail::free_async(block, on)) && !in_graph)
                keep(refused_block{block, bytes + padding, {}}, on);
            throw;
        }
        if (!in_graph)
            live_blocks_.fetch_add(1, base::memory_order_relaxed);
        return p;
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
            return tell_wrong_free(name_.c_str(), p, false);
        forget_one();
        keep(std::move(block), on);
    }

    [[gnu::noinline]] void free_with_care(stream_ref stream, void* p, std::size_t bytes) noexcept {
        auto const at = reinterpret_cast<std::uintptr_t>(p);
        order::block_uses uses; // on other streams
        bool asked = false;
        block_origins::origin const block = origins_.take(p);
        cudaStream_t on = stream.get();
        if ((refused_.has(block.begin) || lost_.has(block.begin)) && !block.of_graph)
            return tell_wrong_free(name_.c_str(), p, true);
        cudaError_t answer = cudaErrorNotReady;
        bool captured = false;
        try {
            if (stream.is_host())
                on = host_stream();
            if (device_for(on) != any_device && freed_elsewhere(at, block.of_graph, stream))
                return forget_one(), lost_.keep(refused_block{block.begin, bytes, uses_.take(at, on).events});
            runtime::device_scope const device(device_for(on));
            uses = uses_.take(at, on, block.of_graph); // the free of a graph's block may be captured and then wait for no event
            asked = true;
            // In a capture, waiting for an event from outside would break it, and so would a free on the legacy stream.
            bool const asks = !uses.empty() || runtime::is_legacy(on) || block.of_graph;
            captured = asks && runtime::is_capturing(on);
            std::uint64_t const in = captured && block.of_graph ? runtime::capture_of(on).id : 0;
            runtime::capture_mode_scope const relaxed;
            if (captured && block.of_graph && order::all_reached(uses.events))
                uses.events.clear();
            bool const frees = uses.are_known() && (!captured || (uses.empty() && !runtime::is_legacy(on)));
            for (runtime::event const& each : uses.events)
                if (frees)
                    each.make_wait(on);
            auto const free = block.of_graph ? &runtime::detail::free_async : &free_or_unknown;
            if (frees)
                answer = free(block.begin, on);
            if (answer == cudaSuccess) {
                if (captured)
                    origins_.freed_by(in, p); // at each launch
                return block.of_graph ? void() : forget_one();
            }
        } catch (...) { // some use may be in flight that the free could not be made to wait for
        }
        if (!asked)
            uses = uses_.take(at, on);
        if (!block.of_graph) {
            if (!uses.are_known())
                open(); // the use that is not known may be any device's
            refused_block kept{block.begin, bytes, std::move(uses.events)};
            return uses.in_graph ? (forget_one(), lost_.keep(std::move(kept))) : not_taken(answer, p, std::move(kept), on);
        }
        if ((captured || uses.in_graph) && !uses.empty())
            std::fprintf(
                stderr,
                "weir: pool '%s': the block at %p stays, since work on another stream uses it and a graph cannot wait for "
                "that; capture its free once that work is done\n",
                name_.c_str(), p);
        uses_.put_back(at, std::move(uses)); // for the next try to free the block
    }

    // Called for a default stream. Whether a capture on the current device frees the block, which no graph owns, while another
    // device than the pool's is current. If not, notes what the current device's default stream did so far: it is meant as
    // well.
    bool freed_elsewhere(std::uintptr_t at, bool of_graph, stream_ref stream) {
        try {
            if (runtime::current_device() == device_)
                return false;
            if (!of_graph && runtime::is_capturing(stream) && !runtime::is_legacy(stream))
                return true;
            uses_.add(at, stream);
            return false;
        } catch (...) { // nobody noted what that device does with the block
            open();
            throw;
        }
    }

    // The stream for allocations and frees on the host, made when it is first needed. Throws cuda_error.
    cudaStream_t host_stream() {
        base::lock_guard<base::mutex> const lock(host_stream_mutex_);
        if (!host_stream_) {
            runtime::device_scope const there(made_on_);
            check(cudaStreamCreateWithFlags(&host_stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        }
        return host_stream_;
    }

    // The device to make current, since a default stream is the current device's: a container may end while another is current.
    int device_for(cudaStream_t on) const noexcept { return runtime::is_default_stream(on) ? device_ : any_device; }

    // One block less is out. Frees of another pool's blocks do not take the count below zero.
    void forget_one() noexcept {
        base::lower(live_blocks_, std::size_t{1});
    }

    // Whether the graph captured on `on` may use what was freed there. The legacy stream is never captured, only in a capture's
    // way.
    bool graph_may_use(cudaStream_t on) const noexcept {
        try {
            runtime::device_scope const device(device_for(on));
            return runtime::is_capturing(on) && !runtime::is_legacy(on);
        } catch (...) { // a captured stream would not fail so
            return false;
        }
    }

    void keep(refused_block block, cudaStream_t freed_on) noexcept {
        if (graph_may_use(freed_on))
            return lost_.keep(std::move(block));
        if (is_of_another_device(freed_on))
            open(); // that device may use it even without access: in a copy between devices
        refused_.keep(std::move(block));
    }
    bool is_of_another_device(cudaStream_t on) const noexcept {
        if (device_ == any_device || runtime::is_default_stream(on))
            return false;
        try {
            return runtime::device_of(on) != device_;
        } catch (...) { // CUDA does not answer
            return true;
        }
    }

    void offer(refused_blocks& blocks, bool last = false) {
        int const users = open_.load(base::memory_order_relaxed) ? any_device : device_;
        blocks.offer(users, host_stream(), [this](void const* begin) { tell_wrong_free(name_.c_str(), begin, false); }, last);
    }

    cudaMemPool_t pool_;
    text const& name_;
    int made_on_;
    int device_; // of the memory; any_device: any device's work may use it
    base::mutex host_stream_mutex_;
    cudaStream_t host_stream_ = nullptr; // none until something is allocated or freed on the host
    base::atomic<std::size_t> live_blocks_{0}; // but for those of graphs
    base::atomic<bool> open_{false}; // whether other devices' work may use the memory
    order::second_uses uses_;
    block_origins origins_;
    refused_blocks refused_; // until 'settle'
    refused_blocks lost_;    // until the end: what captured streams freed
};

} // namespace detail
} // namespace v0
} // namespace weir
