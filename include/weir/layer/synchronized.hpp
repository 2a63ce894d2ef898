// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do several threads share a pool that is made for one?
//
// By one mutex around each call: the pool is reached through 'locked()' alone, which holds the mutex until the call is over.
// That suits arenas and slabs that are shared only now and then. A pool that is thread-safe by itself does not need this layer,
// and is refused at compile time.
//
// invariant: at most one thread is inside the wrapped pool. Whatever resource/layered.hpp forwards to the pool takes the lock
//            here, even a question for its name or limit. What the pool returns by reference (its name, for example) must not
//            change.
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

/// Any thread may call any member. What 'inner' returns may be used by one thread at a time.
template <class Pool>
class synchronized : public resource::layered<synchronized<Pool>, Pool> {
    using wrapper = resource::layered<synchronized<Pool>, Pool>;
    static_assert(!wrapper::pool_type::thread_safe,
                  "weir: layer::synchronized is for pools that one thread may use at a time; this one is thread-safe "
                  "already");

public:
    static constexpr bool thread_safe = true;

    /// `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit synchronized(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    synchronized() : wrapper(std::in_place) {}

    /// As the wrapped pool's, one thread at a time.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        return this->locked()->try_allocate(stream, bytes, alignment);
    }

    /// As the wrapped pool's, one thread at a time.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        this->locked()->deallocate(stream, p, bytes, alignment);
    }
    using wrapper::deallocate;

private:
    friend wrapper;
    base::lock_guard<base::mutex> lock_forwarded() const { return base::lock_guard<base::mutex>(mutex_); }

    mutable base::mutex mutex_;
};

} // namespace layer
} // namespace v0
} // namespace weir
