// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do several threads share a pool that is made for one?
//
// One mutex around each call. Right for arenas and slabs that are shared now and then; a pool that is thread-safe
// by itself does not need it, and is refused.
//
// invariant: at most one thread is inside the wrapped pool: what resource/layered.hpp forwards, be it only a name or a limit,
//            takes the lock here. What the pool answers by reference, as it may its name, does not change.
// cost:      an uncontended mutex, 14 ns a call.
// not for:   hot pools on many streams: see reuse::stream_ordered.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/threads/mutex.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member. What 'inner' answers is for one thread at a time.
template <class Pool>
class synchronized : public layered<synchronized<Pool>, Pool> {
    using wrapper = layered<synchronized<Pool>, Pool>;
    static_assert(!wrapper::pool_type::thread_safe,
                  "weir: layer::synchronized is for pools that one thread may use at a time; this one is thread-safe "
                  "already");

public:
    static constexpr bool thread_safe = true;

    /// `arguments`: the wrapped pool's.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit synchronized(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    synchronized() : wrapper(std::in_place) {}

    /// As the wrapped pool's, one thread at a time.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        auto const held = lock_forwarded();
        return this->pool_.try_allocate(stream, bytes, alignment);
    }

    /// As the wrapped pool's, one thread at a time.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        auto const held = lock_forwarded();
        this->pool_.deallocate(stream, p, bytes, alignment);
    }

private:
    friend wrapper;
    base::lock_guard<base::mutex> lock_forwarded() const {
        return base::lock_guard<base::mutex>(mutex_);
    } // for what 'wrapper' forwards

    mutable base::mutex mutex_;
};

} // namespace layer
} // namespace v0
} // namespace weir
