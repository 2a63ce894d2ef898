// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is one user of a shared pool kept to its share?
//
// Refuses an allocation that would take the bytes live through this layer above a limit. Bytes are counted as
// asked. A pool's own limit (pool_options) bounds what it holds from the driver; this one bounds what one part of
// a program has out, and several can stand on one pool: layer::limit<my_pool&>.
//
// invariant: the bytes live through this layer never exceed the limit, at no moment and with any threads, as long as each
//            block is freed once and with its own size: a free counts as one also where the wrapped pool refuses it.
//            Under layer::guard, as guard<limit<Pool>>, a wrong free does not come here.
// cost:      one atomic addition a call.
// not for:   the memory that a pool reserves: see pool_options::limit; a driver_pool's blocks that are a graph's and freed
//            once a launch, whose frees would count once too often: allocate and free those through 'inner()'.

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
    /// `limit_bytes`: the most that may be live; `arguments`: the wrapped pool's.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit limit(std::size_t limit_bytes, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), limit_bytes_(limit_bytes) {}

    /// As the wrapped pool's; null also where the limit would be exceeded, and the wrapped pool is not asked then.
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

    /// Bytes live through this layer.
    std::size_t requested_bytes() const noexcept { return requested_bytes_.load(base::memory_order_relaxed); }
    /// The limit, in bytes.
    std::size_t limit_bytes() const noexcept { return limit_bytes_; }

    /// What the wrapped pool knows of itself; the limit is the lower of the two.
    memory_report state() const {
        memory_report now = this->pool_.state();
        if (now.limit_bytes > limit_bytes_)
            now.limit_bytes = limit_bytes_;
        return now;
    }

    /// Whether this layer's limit and the wrapped pool could have room for such a block if no other were out.
    bool can_hold(std::size_t bytes, std::size_t alignment) const {
        return bytes <= limit_bytes_ && wrapper::can_hold(bytes, alignment);
    }

    /// The wrapped pool's, which does not know this layer's limit, and then that; where the pool has one.
    template <class P = typename wrapper::pool_type const>
    auto report() const -> decltype(text(std::declval<P&>().report())) {
        return text(this->pool_.report()) + "; through layer::limit: " + base::bytes_text(requested_bytes()) + " live, limit " +
               (limit_bytes_ == SIZE_MAX ? text("none") : base::bytes_text(limit_bytes_));
    }
    /// Why an allocation finds no room now: this layer's limit, or the wrapped pool's reason.
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
    // Takes the reservation back unless the block was handed out, also where the pool throws.
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
