// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where does a block of CUDA's pool wait that CUDA did not take back, and until when?
//
// There are two lists (refused_blocks.hpp). What a captured stream freed is lost: the graph may use it at each launch, so it
// stays until the pool ends. Any other block waits for 'settle', which offers it to CUDA again.
//
// invariant: what is offered is used by no work: all devices are waited for that may use it.
// order:     as of refused_blocks.
// cost:      two relaxed loads while nothing is kept.
// not for:   why a block was not taken: see driver_blocks.hpp.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/stand_ins.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/driver/driver_pool/host_stream.hpp>
#include <weir/driver/driver_pool/refused_blocks.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace driver::detail {

/// Any thread may call any member.
class kept_blocks {
public:
    /// Of the pool `name`, whose memory is used by work of device number `device`; any_device: by any device's. Blocks are
    /// offered on `host`. What is named here outlives it.
    kept_blocks(text const& name, int device, host_stream& host) noexcept : name_(name), device_(device), host_(host) {}
    kept_blocks(kept_blocks const&) = delete;
    kept_blocks& operator=(kept_blocks const&) = delete;
    /// Offers both lists: launch no graph any more that uses a block of them. Waits for the device if there are any.
    ~kept_blocks() {
        for (refused_blocks* each : {&refused_, &lost_})
            base::try_twice([&] { // where it fails twice the device is lost, or a graph is captured: CUDA takes nothing back
                if (!each->empty())
                    offer(*each, true);
                return each->empty();
            });
    }

    /// Whether nothing is kept.
    bool empty() const noexcept { return refused_.empty() && lost_.empty(); }
    /// Whether the block is here that begins at `begin`.
    bool has(void const* begin) const noexcept { return refused_.has(begin) || lost_.has(begin); }

    /// Notes that CUDA has handed out `begin`: see refused_blocks.
    void forget(void const* begin) noexcept {
        refused_.forget(begin);
        lost_.forget(begin);
    }
    /// The same for the address that `hand_out()` gets from CUDA and returns, which is not offered meanwhile.
    template <class HandOut>
    void forget_new(HandOut&& hand_out) noexcept {
        void const* begin = nullptr;
        refused_.forget_new([&] { return begin = hand_out(); });
        lost_.forget(begin);
    }

    /// Keeps a block that was freed on `freed_on`.
    void keep(refused_block block, cudaStream_t freed_on) noexcept {
        if (!host_.is(freed_on) && graph_may_use(freed_on))
            return lost_.keep(std::move(block));
        if (is_of_another_device(freed_on))
            open(); // that device may use it even without access: in a copy between devices
        refused_.keep(std::move(block));
    }
    /// Keeps a block that no work uses.
    void keep_unused(refused_block block) noexcept { refused_.keep(std::move(block)); }
    /// Keeps a block that a graph uses.
    void keep_for_graph(refused_block block) noexcept { lost_.keep(std::move(block)); }

    /// Offers what waits for it. See driver_pool_of::settle.
    void settle() { offer(refused_); }
    /// Waits for all work that may use the memory, offers what waits for 'settle', and lets CUDA's pool notice what is over.
    /// Breaks no capture. Throws cuda_error.
    void wait_for_frees() {
        if (refused_.empty())
            runtime::wait_for_device(users());
        else
            offer(refused_, true);
        synchronize(host_.get());
    }
    /// Notes that other devices' work may use the memory from now on.
    void open() noexcept { open_.store(true, base::memory_order_relaxed); }

    /// Bytes that captured streams freed.
    std::size_t lost_bytes() const noexcept { return lost_.bytes(); }
    /// Bytes that wait for 'settle'.
    std::size_t refused_bytes() const noexcept { return refused_.bytes(); }

    /// The device to make current, since a default stream is the current device's: a container may end while another is
    /// current. any_device: leave the device as it is.
    int device_for(cudaStream_t on) const noexcept { return runtime::is_default_stream(on) ? device_ : any_device; }

private:
    // Whether a graph may use what was freed on `on`: it is captured there, or CUDA does not say.
    bool graph_may_use(cudaStream_t on) const noexcept {
        bool may = !runtime::is_legacy(on) && runtime::capture_state_of(on) != runtime::capture_state::hindered;
        base::try_twice([&] {
            runtime::device_scope const current(device_for(on));
            return may = runtime::may_be_captured(runtime::capture_state_of(on)), true;
        });
        return may;
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

    int users() const noexcept { return open_.load(base::memory_order_relaxed) ? any_device : device_; }
    void offer(refused_blocks& blocks, bool gently = false) {
        blocks.offer(users(), host_.get(), [this](void const* begin) { tell_wrong_free(name_.c_str(), begin, false); }, gently);
    }

    text const& name_;
    int device_;
    host_stream& host_;
    base::atomic<bool> open_{false}; // whether other devices' work may use the memory
    refused_blocks refused_;         // until 'settle'
    refused_blocks lost_;            // until the end
};

} // namespace driver::detail
} // namespace v0
} // namespace weir
