// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who makes room when a pool has none?
//
// The program knows what it can do without: a cache, a batch, memory that another pool holds. The program gives this layer a
// handler. If the pool has no room, the layer asks the handler to free something and tries the pool again, and so on until
// the handler says no. Only then does it return null, and the outermost 'allocate' throws. By the time the handler is asked,
// the pool has already waited for freed memory and given its free chunks back. So a handler has to free blocks that are in
// use, or what others hold. It is told the size, and should free that much at once.
//
// The handler is not asked if no memory could help, because its user would lose a cache for nothing. That is so for a size or
// an alignment that no block can have; for more than the pool's limit; for more than there is in all (a device's memory, what
// the host can lock, or addresses); and while the pool is suspended, even if the handler would call 'resume'. The handler is
// asked for a block that fits the limit even if only a larger chunk has room for it (because of slabs or alignment), as long
// as there is memory for that chunk.
//
// invariant: a handler that said no is not asked again for the same allocation, and no handler is asked more than
//            handler::most_attempts times for it.
// order:     each retry is an ordinary try of the pool, with the usual rules for whose memory it gets and what the stream has
//            to wait for. A handler runs in the thread that allocates, with no lock of the pool held. Threads that fail at
//            the same time are in it at the same time. Under layer::synchronized it would run with that layer's lock held, so
//            put this layer outside.
// cost:      one comparison if the pool has room; if not, the pool's 'can_hold' before the handler is asked.
// not for:   handlers that allocate through the layer: a failure would ask the handler again, as deep as it fails. A handler
//            takes memory from 'inner()' instead.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/text.hpp>
#include <weir/contract/handler_slot.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// An allocation for which the pool has no room.
struct failed_allocation {
    stream_ref stream;
    std::size_t bytes;
    std::size_t alignment;
    int attempt; ///< how often the handler was asked for this allocation before: 0, 1, ...
};

/// Handlers, which free memory on request. Any 'bool operator()(failed_allocation const&)' is one; it returns true if another
/// try is worth it. One that calls several is a lambda: [&](auto const& failed) { return first(failed) || second(failed); }.
namespace handler {

/// The most times that a handler is asked for one allocation. A handler that frees what was asked for needs far fewer; a
/// handler that says yes but frees nothing is stopped.
inline constexpr int most_attempts = 64;

/// Whether several threads may be in a handler at once. If the handler does not say, the answer is yes, and its user has to
/// make sure of it.
template <class Handler>
constexpr bool is_thread_safe() {
    if constexpr (contract::holds<contract::has_thread_safe, Handler>)
        return Handler::thread_safe;
    else
        return true;
}

/// A handler that asks another pool on the device to give its free memory back. See 'trim'.
template <class Pool>
class trim_of {
    static_assert(contract::returns<std::size_t, contract::has_trim, Pool>,
                  "weir: handler::trim needs a pool with 'std::size_t trim()', the bytes given back");

public:
    static constexpr bool thread_safe = is_thread_safe<Pool>();

    /// `pool` must outlive the handler.
    explicit trim_of(Pool& pool) noexcept : pool_(&pool) {}

    bool operator()(failed_allocation const&) {
        if (pool_->trim() != 0)
            return true;
        if constexpr (contract::holds<contract::has_settle, Pool>) {
            pool_->settle();
            return pool_->trim() != 0;
        }
        return false;
    }

private:
    Pool* pool_;
};

/// A handler that calls the 'trim' of another pool on the device; if that gave nothing back and the pool has 'settle', it waits
/// for the work that uses what was freed, and trims again. It says yes if that gave anything back. Throws as the pool's 'trim'
/// and 'settle' do. The 'settle' of a driver_pool breaks the captures that are under way on its device, and throws then. So in
/// a program that captures, write a handler for such a pool that only trims: [&](auto const&) { return p.trim() != 0; }.
template <class Pool>
trim_of<Pool> trim(Pool& pool) {
    return trim_of<Pool>(pool);
}

} // namespace handler

namespace layer {

/// Any thread may call any member if the wrapped pool and the handler allow it. `Handler`: a handler's type, or a reference
/// to one.
template <class Pool, class Handler>
class failure_handler : public resource::layered<failure_handler<Pool, Handler>, Pool> {
    using wrapper = resource::layered<failure_handler<Pool, Handler>, Pool>;
    using handler_type = std::remove_reference_t<Handler>;
    static_assert(contract::require_handler<handler_type, failed_allocation>());

public:
    static constexpr bool thread_safe = wrapper::thread_safe && handler::is_thread_safe<handler_type>();

    /// `asked`: the handler. `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit failure_handler(Handler asked, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), handler_(std::forward<Handler>(asked)) {
    }

    /// As the wrapped pool's, but null only if the handler said no, or if nothing that it could free would help. An exception
    /// of the handler or of the pool's 'can_hold' leaves this call, which has changed nothing by then.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        void* const block = this->pool_.try_allocate(stream, bytes, alignment);
        if (block || bytes == 0 || !can_help(bytes, alignment))
            return block;
        return ask({stream, bytes, alignment, 0}, [&] { return this->pool_.try_allocate(stream, bytes, alignment); });
    }

    /// As the wrapped pool's.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        this->pool_.deallocate(stream, p, bytes, alignment);
    }
    using wrapper::deallocate;

    /// As the wrapped pool's. If there is no room, the handler is asked as if 'suspended_bytes' were to be allocated on the
    /// host. It should free memory of the device. False only once the handler said no.
    template <class P = typename wrapper::pool_type>
    [[nodiscard]] auto try_resume() -> decltype(std::declval<P&>().try_resume()) {
        return this->pool_.try_resume() ||
               ask({on_host, this->pool_.suspended_bytes(), wrapper::default_alignment, 0},
                   [this] { return this->pool_.try_resume(); });
    }

    /// The wrapped pool's refusal. It adds that the handler was asked, if it was.
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        refusal said = wrapper::refused(bytes, alignment);
        if (can_help(bytes, alignment))
            said.reason = said.reason + "; the failure handler was asked, and there is no room still";
        return said;
    }

private:
    // Whether freed memory could make room for such a block.
    bool can_help(std::size_t bytes, std::size_t alignment) const {
        return bytes <= PTRDIFF_MAX && this->can_hold(bytes, alignment);
    }

    // Asks the handler, and calls retry() after each yes, until that returns a block or true. Null or false after a no.
    template <class Retry>
    auto ask(failed_allocation failed, Retry const& retry) -> decltype(retry()) {
        for (; failed.attempt < handler::most_attempts && handler_(std::as_const(failed)); ++failed.attempt)
            if (auto const done = retry())
                return done;
        return {};
    }

    Handler handler_;
};

/// Wraps a pool that lives elsewhere, by reference: failure_handler pool(handler, below).
template <class Handler, class Pool>
failure_handler(Handler, Pool&) -> failure_handler<Pool&, Handler>;

} // namespace layer
} // namespace v0
} // namespace weir
