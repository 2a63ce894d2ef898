// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do several threads share a pool that is made for one?
//
// One mutex around each call. Right for arenas and slabs that are shared now and then; a pool that is thread-safe
// by itself does not need it, and is refused.
//
// invariant: at most one thread is inside the wrapped pool: what base/layered.hpp forwards, be it only a name or a limit,
//            is forwarded here with the lock. What the pool answers by reference, as it may its name, does not change.
// cost:      an uncontended mutex, 14 ns a call.
// not for:   hot pools on many streams: see reuse::stream_ordered.

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/largest_blocks.hpp>
#include <weir/base/layered.hpp>
#include <weir/base/mutex.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member. What 'inner' answers is for one thread at a time.
template <class Pool>
class synchronized : public layered<synchronized<Pool>, Pool> {
    using base = layered<synchronized<Pool>, Pool>;
    static_assert(!base::pool_type::thread_safe,
                  "weir: layer::synchronized is for pools that one thread may use at a time; this one is thread-safe "
                  "already");

public:
    using typename base::pool_type;

    static constexpr bool thread_safe = true;

    /// `arguments`: the wrapped pool's.
    template <class... Arguments, class = std::enable_if_t<base::template makes_pool<Arguments...>>>
    explicit synchronized(Arguments&&... arguments) : base(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    synchronized() : base(std::in_place) {}

    /// As the wrapped pool's, one thread at a time.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = base::default_alignment) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.try_allocate(stream, bytes, alignment);
    }

    /// As the wrapped pool's, one thread at a time.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = base::default_alignment) noexcept {
        lock_guard<mutex> const lock(mutex_);
        this->pool_.deallocate(stream, p, bytes, alignment);
    }

    // Forwarded one thread at a time: each is what the wrapped pool documents.
    memory_report facts() const {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.facts();
    }
    text refusal(std::size_t bytes, std::size_t alignment) const {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.refusal(bytes, alignment);
    }
    bool can_hold(std::size_t bytes, std::size_t alignment) const {
        lock_guard<mutex> const lock(mutex_);
        return base::can_hold(bytes, alignment);
    }
    template <class P = pool_type const>
    auto device() const -> decltype(std::declval<P&>().device()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.device();
    }
    template <class P = pool_type const>
    auto examine(memory_report& now) const noexcept -> decltype(std::declval<P&>().examine(now)) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.examine(now);
    }
    template <class P = pool_type const>
    auto in_use_bytes() const -> decltype(std::declval<P&>().in_use_bytes()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.in_use_bytes();
    }
    template <class P = pool_type const>
    auto reserved_bytes() const -> decltype(std::declval<P&>().reserved_bytes()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.reserved_bytes();
    }
    template <class P = pool_type const>
    auto limit_bytes() const -> decltype(std::declval<P&>().limit_bytes()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.limit_bytes();
    }
    template <class P = pool_type const>
    auto name() const -> decltype(std::declval<P&>().name()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.name();
    }
    template <class P = pool_type const>
    auto report() const -> decltype(std::declval<P&>().report()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.report();
    }
    template <class P = pool_type const>
    auto owns(void const* p) const -> decltype(std::declval<P&>().owns(p)) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.owns(p);
    }
    template <class P = pool_type>
    auto trim(std::size_t keep_bytes = 0) -> decltype(std::declval<P&>().trim(keep_bytes)) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.trim(keep_bytes);
    }
    template <class P = pool_type>
    auto settle() -> decltype(std::declval<P&>().settle()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.settle();
    }
    template <class P = pool_type>
    auto suspend() -> decltype(std::declval<P&>().suspend()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.suspend();
    }
    template <class Keep, class P = pool_type>
    auto suspend(Keep&& keep) -> decltype(std::declval<P&>().suspend(std::forward<Keep>(keep))) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.suspend(std::forward<Keep>(keep));
    }
    template <class Keep, class Blocks = std::initializer_list<live_block>, class P = pool_type>
    auto suspend(Keep&& keep, Blocks const& wanted) -> decltype(std::declval<P&>().suspend(std::forward<Keep>(keep), wanted)) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.suspend(std::forward<Keep>(keep), wanted);
    }
    template <class P = pool_type>
    auto try_resume() -> decltype(std::declval<P&>().try_resume()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.try_resume();
    }
    template <class P = pool_type const>
    auto suspended_bytes() const -> decltype(std::declval<P&>().suspended_bytes()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.suspended_bytes();
    }
    template <class P = pool_type const>
    auto suspended() const -> decltype(std::declval<P&>().suspended()) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.suspended();
    }
    template <class P = pool_type>
    auto used_on(void* p, stream_ref stream) -> decltype(std::declval<P&>().used_on(p, stream)) {
        lock_guard<mutex> const lock(mutex_);
        return this->pool_.used_on(p, stream);
    }

private:
    mutable mutex mutex_;
};

} // namespace layer
} // namespace v0
} // namespace weir
