// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is one user of a shared pool kept to its share?
//
// The layer refuses an allocation that would raise its requested bytes above a limit. Requested bytes are those of the live
// blocks (handed out through this layer and not yet freed), without the pool's rounding. A pool's own limit (pool_options)
// bounds what the pool holds from the driver. This one bounds what one part of a program has, and several such layers can
// stand on one pool: layer::limit<my_pool&>.
//
// invariant: the requested bytes of the live blocks never exceed the limit, at any moment and with any threads, provided that
//            each block is freed once and with its own size: a free lowers the count even if the wrapped pool refuses it.
//            Under layer::guard, as guard<limit<Pool>>, a wrong free does not reach this layer.
// cost:      one atomic addition a call.
// not for:   the memory that a pool reserves: see pool_options::limit. Blocks of a driver_pool that belong to a graph and are
//            freed once a launch, because each of those frees would count: allocate and free those through 'inner()'.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/counters.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class limit : public layered<limit<Pool>, Pool> {
    using wrapper = layered<limit<Pool>, Pool>;

public:
    /// `limit_bytes`: the most bytes that may be live. `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit limit(std::size_t limit_bytes, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), limit_bytes_(limit_bytes) {}

    /// As the wrapped pool's. Also null if the limit would be exceeded; the wrapped pool is not asked then.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        std::size_t before = requested_bytes_.load(base::memory_order_relaxed);
        do {
            if (bytes > limit_bytes_ - before)
                return nullptr;
        } while (!requested_bytes_.compare_exchange_weak(before, before + bytes, base::memory_order_relaxed));
        returned held{*this, bytes};
        void* const block = this->pool_.try_allocate(stream, bytes, alignment);
        if (block)
            held.bytes = 0;
        return block;
    }

    /// As the wrapped pool's.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        this->pool_.deallocate(stream, p, bytes, alignment);
        if (p)
            base::lower(requested_bytes_, bytes);
    }

    /// The bytes that were asked for, of the blocks that are live.
    std::size_t requested_bytes() const noexcept { return requested_bytes_.load(base::memory_order_relaxed); }
    /// The limit, in bytes.
    std::size_t limit_bytes() const noexcept { return limit_bytes_; }

    /// The wrapped pool's state, with the lower of the two limits.
    memory_report state() const {
        memory_report now = this->pool_.state();
        if (now.limit_bytes > limit_bytes_)
            now.limit_bytes = limit_bytes_;
        return now;
    }

    /// Whether this layer's limit and the wrapped pool could have room for such a block if no other block were handed out.
    bool can_hold(std::size_t bytes, std::size_t alignment) const {
        return bytes <= limit_bytes_ && wrapper::can_hold(bytes, alignment);
    }

    /// The wrapped pool's report, and then this layer's figures, which that does not know. Exists if the pool has a report.
    template <class P = typename wrapper::pool_type const>
    auto report() const -> decltype(text(std::declval<P&>().report())) {
        return text(this->pool_.report()) + "; through layer::limit: " + base::bytes_text(requested_bytes()) + " live, limit " +
               (limit_bytes_ == SIZE_MAX ? text("none") : base::bytes_text(limit_bytes_));
    }
    /// Why an allocation finds no room at this moment: this layer's limit, or the wrapped pool's reason.
    text refusal(std::size_t bytes, std::size_t alignment) const {
        std::size_t const live = requested_bytes();
        text const allowed = "layer::limit allows " + base::exact_bytes_text(limit_bytes_) + " at a time";
        if (bytes > limit_bytes_)
            return allowed + "; ask for less or raise the layer's limit";
        if (bytes > limit_bytes_ - live)
            return allowed + ", of which " + base::exact_bytes_text(live) +
                   " are live; free something or raise the layer's limit";
        return this->pool_.refusal(bytes, alignment);
    }

private:
    // Takes the count back unless a block was handed out, also if the pool throws.
    struct returned {
        limit& owner;
        std::size_t bytes;
        ~returned() { base::lower(owner.requested_bytes_, bytes); }
    };

    std::size_t limit_bytes_;
    base::atomic<std::size_t> requested_bytes_{0};
};

} // namespace layer
} // namespace v0
} // namespace weir
