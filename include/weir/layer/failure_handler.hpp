// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who gives memory back when a pool has no room?
//
// The program knows what it can do without: a cache, a batch, what another pool holds. A handler is asked for it, the
// pool is tried again, and so on until the handler says no; only then is the answer null, and the outermost 'allocate'
// throws. The pool has done its own part by then: it has waited for freed memory and given its free chunks back, so a
// handler has to free what is live, or what others hold. It is told the size, and does well to free that much at once.
// It is not asked where no memory helps, for its user's cache would go in vain: for a size or an alignment that no block can
// have, for more than the pool's limit or than there is in all (a device's memory, what the host can lock, or addresses), and
// while the pool is suspended, also where it would call 'resume'. A block that fits the limit is asked for, also where only a
// larger chunk has room for it (slabs, alignment), as long as there is memory for that chunk.
//
// invariant: a handler that said no is not asked again for this allocation, and none is asked more than
//            handler::most_attempts times.
// order:     each retry is an ordinary try of the pool: whose memory it gets, and what a stream has to wait for, is as
//            ever. A handler runs in the thread that allocates, with no lock of the pool held; threads that fail at the
//            same time are in it at the same time. Under layer::synchronized it would run with that lock held: put this
//            layer outside.
// cost:      one comparison where the pool has room; where it has none, its 'can_hold' before the handler is asked.
// not for:   allocating in a handler: take memory from 'inner()' there, since through the layer it would ask the
//            handler again, as deep as it fails.

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
    int attempt; ///< how often this handler was asked for this allocation before: 0, 1, ...
};

/// What gives memory back. Any 'bool operator()(failed_allocation const&)' is a handler: true where another try is worth
/// it. 'trim' and 'chain' are ready-made.
namespace handler {

/// The most times that a handler is asked for one allocation: more than enough for one that frees what was asked for, and
/// an end to one that says yes and frees nothing.
inline constexpr int most_attempts = 64;

/// Whether several threads may be in a handler at once: what it says of itself, else the user sees to it.
template <class Handler>
constexpr bool is_thread_safe() {
    if constexpr (contract::holds<contract::says_thread_safe, Handler>)
        return Handler::thread_safe;
    else
        return true;
}

/// Asks `handler` and calls `retry()` after each yes, until that has a block, or is true; null or false once the handler has
/// said no.
template <class Handler, class Retry>
auto ask(Handler& handler, failed_allocation failed, Retry const& retry) -> decltype(retry()) {
    if constexpr (contract::holds<contract::walks, Handler, failed_allocation>) {
        return handler.ask(failed, retry);
    } else {
        for (failed.attempt = 0; failed.attempt < most_attempts && handler(std::as_const(failed)); ++failed.attempt)
            if (auto const done = retry())
                return done;
        return {};
    }
}

/// Asks the first handler until it says no, then the next. Each counts its own attempts. See 'chain'.
template <>
class chain_of<> {
public:
    template <class Retry>
    auto ask(failed_allocation const&, Retry const&) -> decltype(std::declval<Retry const&>()()) {
        return {};
    }
};
template <class First, class... Rest>
class chain_of<First, Rest...> {
    static_assert(contract::require_handler<std::remove_reference_t<First>, failed_allocation>());

public:
    static constexpr bool thread_safe =
        is_thread_safe<std::remove_reference_t<First>>() && is_thread_safe<chain_of<Rest...>>();

    /// Keeps each handler, by value, or by reference where its type is one.
    explicit chain_of(First first, Rest... rest)
        : first_(std::forward<First>(first)), rest_(std::forward<Rest>(rest)...) {}

    template <class Retry>
    auto ask(failed_allocation const& failed, Retry const& retry) -> decltype(retry()) {
        auto const done = handler::ask(first_, failed, retry);
        return done ? done : rest_.ask(failed, retry);
    }

private:
    First first_;
    chain_of<Rest...> rest_;
};

/// Gives back what a pool holds freely, with its 'trim', for an allocation once as it is and at most twice after its
/// 'settle'; yes where that was anything. See 'trim'.
template <class Pool>
class trim_of {
    static_assert(contract::holds<contract::trims, Pool>,
                  "weir: handler::trim needs pools with 'std::size_t trim()', the bytes given back");

public:
    static constexpr bool thread_safe = is_thread_safe<Pool>();

    /// `pool` outlives the handler.
    explicit trim_of(Pool& pool) noexcept : pool_(&pool) {}

    bool operator()(failed_allocation const& failed) {
        if (failed.attempt == 0 && trims())
            return true;
        if constexpr (contract::holds<contract::settles, Pool>)
            if (failed.attempt < 2) {
                pool_->settle();
                return trims();
            }
        return false;
    }

private:
    template <class P>
    using tells_suspended_bytes = decltype(static_cast<std::size_t>(std::declval<P const&>().suspended_bytes()));

    // Whether that gave anything back, or, of a suspended pool, left less to be restored.
    bool trims() {
        if constexpr (contract::holds<tells_suspended_bytes, Pool>) {
            std::size_t const before = pool_->suspended_bytes();
            return pool_->trim() != 0 || pool_->suspended_bytes() < before;
        } else {
            return pool_->trim() != 0;
        }
    }

    Pool* pool_;
};

/// One handler of several: each is asked until it says no, then the next. 'chain<H&>(h)' keeps a reference to `h`.
template <class... Handlers>
chain_of<Handlers...> chain(Handlers... handlers) {
    return chain_of<Handlers...>(std::forward<Handlers>(handlers)...);
}

/// Asks other pools on the device to give back what they hold freely: each with its 'trim', then after waiting for the work
/// that uses what was freed ('settle', where the pool has it), and the next only if that did not do. Throws as the pools'
/// 'trim' and 'settle' do: that of a driver_pool breaks the captures that are under way on its device, and throws then. So
/// where a program captures, write a handler for such a pool that trims it alone: [&](auto const&) { return p.trim() != 0; }.
template <class... Pools>
chain_of<trim_of<Pools>...> trim(Pools&... pools) {
    return chain_of<trim_of<Pools>...>(trim_of<Pools>(pools)...);
}

} // namespace handler

namespace layer {

/// Any thread may call any member if the wrapped pool and the handler allow it. `Handler`: a handler, or a reference to
/// one.
template <class Pool, class Handler>
class failure_handler : public layered<failure_handler<Pool, Handler>, Pool> {
    using wrapper = layered<failure_handler<Pool, Handler>, Pool>;
    using handler_type = std::remove_reference_t<Handler>;
    static_assert(contract::require_handler<handler_type, failed_allocation>());

public:
    static constexpr bool thread_safe = wrapper::thread_safe && handler::is_thread_safe<handler_type>();

    /// `asked`: the handler; `arguments`: the wrapped pool's.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit failure_handler(Handler asked, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), handler_(std::forward<Handler>(asked)) {
    }

    /// As the wrapped pool's; null only once the handler has no more to give, or where nothing that it gives would help.
    /// What the handler or the pool's 'can_hold' throws leaves this call, which has changed nothing by then.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        void* const block = this->pool_.try_allocate(stream, bytes, alignment);
        if (block || bytes == 0 || !can_help(bytes, alignment))
            return block;
        return handler::ask(handler_, failed_allocation{stream, bytes, alignment, 0},
                            [&] { return this->pool_.try_allocate(stream, bytes, alignment); });
    }

    /// As the wrapped pool's.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        this->pool_.deallocate(stream, p, bytes, alignment);
    }

    /// As the wrapped pool's, and the handler is asked for memory of the device as for an allocation of 'suspended_bytes' on
    /// the host; false only once it has no more to give.
    template <class P = typename wrapper::pool_type>
    [[nodiscard]] auto try_resume() -> decltype(std::declval<P&>().try_resume()) {
        return this->pool_.try_resume() ||
               handler::ask(handler_, failed_allocation{on_host, this->pool_.suspended_bytes(), wrapper::default_alignment, 0},
                            [this] { return this->pool_.try_resume(); });
    }

    /// The wrapped pool's reason, and that the handler was asked, where it was.
    text refusal(std::size_t bytes, std::size_t alignment) const {
        text const reason = this->pool_.refusal(bytes, alignment);
        return can_help(bytes, alignment) ? reason + "; the failure handler was asked, and there is no room still" : reason;
    }

private:
    // Whether a handler can make room for such a block.
    bool can_help(std::size_t bytes, std::size_t alignment) const {
        return bytes <= PTRDIFF_MAX && this->can_hold(bytes, alignment);
    }

    Handler handler_;
};

/// Around a pool that lives elsewhere: failure_handler pool(handler, below).
template <class Handler, class Pool>
failure_handler(Handler, Pool&) -> failure_handler<Pool&, Handler>;

} // namespace layer
} // namespace v0
} // namespace weir
