// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a layer inherit from the pool that it wraps?
//
// A layer changes one thing and passes the rest through. This base holds the wrapped pool, by value or, for 'layer::x<Pool&>',
// by reference, and forwards its members. A member that the wrapped pool lacks is absent here too, so that
// whoever asks for it is told the truth through any number of layers. 'clear', 'mark' and 'rewind' are not passed on: they end
// blocks without a free, and a layer has to hear of that (guard, limit and statistics do). Every forwarded call goes through
// 'locked()': the pool with a lock around it, if the layer has one ('lock_forwarded').
//
// invariant: a layer adds no state to the blocks; memory of the wrapped pool is memory of the layer.
// cost:      calls that inline to the wrapped pool's.
// not for:   'try_allocate' and 'deallocate': each layer writes its own.

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace resource {

/// `Derived`: the layer; `Pool`: a pool, or a reference to one that outlives the layer.
template <class Derived, class Pool>
class layered : public pool_base<Derived> {
public:
    /// The wrapped pool's type, without a reference.
    using pool_type = std::remove_reference_t<Pool>;
    static_assert(contract::require_layered<pool_type, on_host_t>());

    static constexpr memory_space space = pool_type::space;
    static constexpr bool thread_safe = pool_type::thread_safe;
    static constexpr bool stream_ordered = pool_type::stream_ordered;
    static constexpr bool streams_may_end = pool_type::streams_may_end;
    static constexpr std::size_t default_alignment = pool_type::default_alignment;

    layered(layered const&) = delete; // weir: pools are neither copied nor moved: hold them in a std::unique_ptr
    layered& operator=(layered const&) = delete;

    /// The wrapped pool.
    pool_type& inner() noexcept { return pool_; }
    pool_type const& inner() const noexcept { return pool_; }

    // These members are forwarded: each does what the wrapped pool documents. Some stand in resource/pool_base.hpp, too.
    memory_report state() const { return locked()->state(); }
    bool can_hold(std::size_t bytes, std::size_t alignment = default_alignment) const {
        return locked()->can_hold(bytes, alignment);
    }
    static std::size_t rounded(std::size_t bytes, std::size_t alignment) { return pool_type::rounded(bytes, alignment); }
    int device() const { return locked()->device(); }
    std::size_t before_destroy(stream_ref stream) { return locked()->before_destroy(stream); }
    /// The wrapped pool's refusal, with the live blocks of this layer, if it lists any.
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        refusal said = locked()->refused(bytes, alignment);
        derived().list_own(said.state.largest_live);
        return said;
    }
    void examine(memory_report& now) const {
        locked()->examine(now);
        derived().list_own(now.largest_live);
    }
    /// None of a pool by reference: others may share it.
    void list_own(largest_blocks& list) const noexcept {
        if constexpr (!std::is_reference_v<Pool>)
            locked()->list_own(list);
    }

    decltype(auto) name() const { return locked()->name(); }
    std::size_t reserved_bytes() const { return locked()->reserved_bytes(); }
    std::size_t in_use_bytes() const { return locked()->in_use_bytes(); }
    std::size_t limit_bytes() const { return locked()->limit_bytes(); }
    text report() const { return locked()->report(); }
    violation_action on_violation() const { return locked()->on_violation(); }
    leak_action on_leak() const { return locked()->on_leak(); }
    void reset_peaks() { locked()->reset_peaks(); }

    // And these, if the wrapped pool has them.
    template <class P = pool_type const>
    auto peak_reserved_bytes() const -> decltype(std::declval<P&>().peak_reserved_bytes()) {
        return locked()->peak_reserved_bytes();
    }
    template <class See, class P = pool_type const>
    auto visit_streams(See const& see) const -> decltype(std::declval<P&>().visit_streams(see)) {
        return locked()->visit_streams(see);
    }
    template <class P = pool_type>
    auto set_limit(std::size_t bytes) -> decltype(std::declval<P&>().set_limit(bytes)) {
        return locked()->set_limit(bytes);
    }
    template <class P = pool_type const>
    auto owns(void const* p) const -> decltype(std::declval<P&>().owns(p)) {
        return locked()->owns(p);
    }
    template <class P = pool_type>
    auto in_container(void* p, stream_ref stream) -> decltype(std::declval<P&>().in_container(p, stream)) {
        return locked()->in_container(p, stream);
    }
    template <class P = pool_type>
    auto trim(std::size_t keep_bytes = 0) -> decltype(std::declval<P&>().trim(keep_bytes)) {
        return locked()->trim(keep_bytes);
    }
    template <class P = pool_type>
    auto reserve(std::size_t bytes) -> decltype(std::declval<P&>().reserve(bytes)) {
        return locked()->reserve(bytes);
    }
    template <class P = pool_type>
    auto settle() -> decltype(std::declval<P&>().settle()) { return locked()->settle(); }
    template <class P = pool_type>
    auto suspend() -> decltype(std::declval<P&>().suspend()) { return locked()->suspend(); }
    template <class Keep, class P = pool_type>
    auto suspend(Keep&& keep) -> decltype(std::declval<P&>().suspend(std::forward<Keep>(keep))) {
        return locked()->suspend(std::forward<Keep>(keep));
    }
    template <class Keep, class Blocks = std::initializer_list<live_block>, class P = pool_type>
    auto suspend(Keep&& keep, Blocks const& wanted) -> decltype(std::declval<P&>().suspend(std::forward<Keep>(keep), wanted)) {
        return locked()->suspend(std::forward<Keep>(keep), wanted);
    }
    template <class P = pool_type>
    auto try_resume() -> decltype(std::declval<P&>().try_resume()) {
        return locked()->try_resume();
    }
    template <class P = pool_type const>
    auto suspended_bytes() const -> decltype(std::declval<P&>().suspended_bytes()) {
        return locked()->suspended_bytes();
    }
    template <class P = pool_type const>
    auto suspended() const -> decltype(std::declval<P&>().suspended()) {
        return locked()->suspended();
    }
    template <class Stream, class P = pool_type> // inlined because of null streams: see pool_base::allocate
    [[gnu::always_inline]] auto used_on(void* p, Stream const& stream) -> decltype(std::declval<P&>().used_on(p, stream)) {
        return locked()->used_on(p, stream);
    }
    template <class Stream, class P = pool_type>
    [[gnu::always_inline]] auto last_used_on(void* p, Stream const& stream)
        -> decltype(std::declval<P&>().last_used_on(p, stream)) {
        return locked()->last_used_on(p, stream);
    }

protected:
    /// Whether the layer can be made from `Arguments`: from whatever the wrapped pool can be made from. Never from a layer of
    /// the same type, even if its pool can be made from anything: layers are not copied.
    template <class... Arguments>
    static constexpr bool makes_pool =
        std::is_constructible_v<Pool, Arguments...> &&
        !(sizeof...(Arguments) == 1 && (std::is_same_v<std::decay_t<Arguments>, Derived> || ...));

    /// Whether the first argument is a name for the layer itself, and not for its pool.
    template <class First = void, class...>
    static constexpr bool is_named = std::is_same_v<std::decay_t<First>, layer_options>;

    template <class... Arguments>
    explicit layered(std::in_place_t, Arguments&&... arguments) : pool_(std::forward<Arguments>(arguments)...) {}

    // Calls end(pool), which ends blocks of the wrapped pool without a free. Returns what was in use and is no more.
    template <class End>
    memory_report ended_by(End const& end) {
        memory_report gone = this->pool_.state();
        end(this->pool_);
        memory_report const left = this->pool_.state();
        gone.in_use_bytes -= left.in_use_bytes < gone.in_use_bytes ? left.in_use_bytes : gone.in_use_bytes; // others may have
        gone.live_blocks -= left.live_blocks < gone.live_blocks ? left.live_blocks : gone.live_blocks; // allocated meanwhile
        return gone;
    }

    // What a forwarded call holds while it runs. A layer that locks hides it with a member that returns its lock.
    struct no_lock {};
    no_lock lock_forwarded() const noexcept { return {}; }

    Pool pool_;

    // The wrapped pool with that lock, which is held until the end of the expression that 'locked()' stands in.
    template <class P, class Lock>
    struct locked_pool {
        P& pool;
        Lock lock;
        P& operator*() const noexcept { return pool; }
        P* operator->() const noexcept { return &pool; }
    };
    auto locked() { return with_lock<pool_type>(pool_); }
    auto locked() const { return with_lock<pool_type const>(pool_); }

private:
    Derived const& derived() const noexcept { return static_cast<Derived const&>(*this); }

    template <class P>
    auto with_lock(P& pool) const {
        using lock = decltype(std::declval<Derived const&>().lock_forwarded());
        return locked_pool<P, lock>{pool, derived().lock_forwarded()};
    }
};

} // namespace resource
} // namespace v0
} // namespace weir
