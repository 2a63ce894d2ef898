// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is one user of a shared pool kept to its share?
//
// The layer refuses an allocation that would raise its requested bytes above a limit. Requested bytes are those of the live
// blocks (handed out through this layer and not yet freed), without the pool's rounding. A pool's own limit (pool_options)
// bounds what the pool holds from the driver. This one bounds what one part of a program has, and several such layers can
// stand on one pool: layer::limit<my_pool&>. Threads count in shards, ahead of need (base/threads/central_count.hpp). Before
// the layer refuses, it takes back what the shards hold, and looks at the exact sum.
//
// invariant: the requested bytes of the live blocks never exceed the limit, at any moment and with any threads, provided that
//            each block is freed once and with its own size: a free lowers the count even if the wrapped pool refuses it.
//            Under layer::guard, as guard<limit<Pool>>, a wrong free does not reach this layer. What is refused for the limit
//            did not fit at some moment of the call; a block that is being allocated or freed counts at that moment.
// cost:      one atomic exchange a call; near the limit a lock of all shards (about 0.5 us); 4 KiB of host memory.
// not for:   the memory that a pool reserves: see pool_options::limit. Blocks of a driver_pool that belong to a graph and are
//            freed once a launch, because each of those frees would count: allocate and free those through 'inner()'. A scope,
//            'rewind' or 'clear' of a pool on which several layers stand: it ends blocks of all, and counts them as this one's.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/central_count.hpp>
#include <weir/base/threads/shards.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layer_options.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class limit : public resource::layered<limit<Pool>, Pool> {
    using wrapper = resource::layered<limit<Pool>, Pool>;

public:
    /// `limit_bytes`: the most bytes that may be live. `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit limit(std::size_t limit_bytes, Arguments&&... arguments)
        : limit(layer_options{}, limit_bytes, std::forward<Arguments>(arguments)...) {}
    /// The same with a name: a tenant's, for instance.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    limit(layer_options const& options, std::size_t limit_bytes, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), own_name_(options.name()),
          requested_(limit_bytes, base::most_ahead_bytes) {}

    /// Refused with a sentence: the pool before the limit.
    template <class P, class Bytes,
              class = std::enable_if_t<std::is_integral_v<std::remove_reference_t<Bytes>> && wrapper::template makes_pool<P> &&
                                       !wrapper::template is_named<P> && !std::is_convertible_v<P, std::size_t>>>
    limit(P&& pool, Bytes&&) : limit(std::size_t{0}, std::forward<P>(pool)) {
        static_assert(!std::is_integral_v<std::remove_reference_t<Bytes>>,
                      "weir: layer::limit takes the limit first, and then what its pool is made from: 'layer::limit<Pool&> "
                      "tenant(bytes, pool)'");
    }

    /// As the wrapped pool's. Also null if the limit would be exceeded; the wrapped pool is not asked then.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        if (!take(bytes) && !take_exactly(bytes))
            return nullptr;
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
            give(bytes);
    }
    using wrapper::deallocate;

    /// As the wrapped pool's; the blocks that end no longer count.
    template <class P = typename wrapper::pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() { return this->pool_.mark(); }
    template <class Mark, class P = typename wrapper::pool_type,
              class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    void rewind(Mark const& to) {
        give(this->ended_by([&](P& pool) { pool.rewind(to); }).in_use_bytes);
    }
    template <class P = typename wrapper::pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() {
        give(this->ended_by([](P& pool) { pool.clear(); }).in_use_bytes);
    }

    /// The bytes that were asked for, of the blocks that are live. If read during calls, it may be off by those calls.
    std::size_t requested_bytes() const noexcept { return requested_.in_use(shards_, &shard::bytes); }
    /// The limit, in bytes. A new one takes nothing back: if more is live, nothing is handed out until enough was freed. Any
    /// thread.
    std::size_t limit_bytes() const noexcept { return requested_.limit(); }
    void set_limit(std::size_t bytes) noexcept {
        typename base::shards<shard>::all const locked(shards_);
        requested_.collect(shards_, &shard::bytes);
        requested_.set_limit(bytes);
    }
    /// The layer's name, or else the wrapped pool's.
    text name() const { return own_name_.empty() ? this->pool_.state().name : own_name_; }

    /// The wrapped pool's state, with this layer's name and the lower of the two limits. So its bytes and blocks are those of
    /// all who share that pool; what came through this layer is 'requested_bytes'.
    memory_report state() const {
        memory_report now = this->pool_.state();
        if (!own_name_.empty())
            now.name = own_name_;
        if (now.limit_bytes > limit_bytes())
            now.limit_bytes = limit_bytes();
        return now;
    }
    /// Whether this layer's limit and the wrapped pool could have room for such a block if no other block were handed out.
    bool can_hold(std::size_t bytes, std::size_t alignment = wrapper::default_alignment) const {
        return bytes <= limit_bytes() && wrapper::can_hold(bytes, alignment);
    }

    /// The wrapped pool's report, and then this layer's figures, which that does not know.
    text report() const {
        return text(this->pool_.report()) + "; through " + self() + ": " + base::bytes_text(requested_bytes()) +
               " requested, limit " + (limit_bytes() == SIZE_MAX ? text("none") : base::bytes_text(limit_bytes()));
    }
    /// If it is this layer's limit that leaves no room, its own requested bytes and limit, its largest blocks, if a layer below
    /// lists them, and, where the pool could never hold such a block, the pool's reason. Otherwise what the wrapped pool tells.
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        std::size_t const requested = requested_bytes();
        std::size_t const left = room(requested);
        if (bytes <= left)
            return wrapper::refused(bytes, alignment);
        refusal own;
        own.state.name = name();
        own.state.requested_bytes = requested;
        own.state.in_use_bytes = own.state.reserved_bytes = memory_report::unknown; // these are the wrapped pool's
        own.state.limit_bytes = limit_bytes();
        this->list_own(own.state.largest_live);
        text said = self() + " allows " + base::exact_bytes_text(limit_bytes()) + " at a time";
        if (requested != 0)
            said = said + ", of which " + base::exact_bytes_text(requested) + (requested == 1 ? " is" : " are") + " requested";
        if (!wrapper::can_hold(bytes, alignment)) { // then nothing helps that is done about this limit alone
            own.reason = said + ", and " +
                         base::refusal_below_text(this->pool_.state(), this->pool_.refused(bytes, alignment).reason);
            return own;
        }
        said = said + "; ";
        if (left != 0)
            said = said + "ask for at most " + base::exact_bytes_text(left) + ", ";
        if (bytes <= limit_bytes())
            said = said + "free " + base::exact_bytes_text(requested - (limit_bytes() - bytes)) + " of its blocks, ";
        own.reason = said + (left != 0 || bytes <= limit_bytes() ? "or raise the layer's limit" : "raise the layer's limit");
        return own;
    }

private:
    // What the limit leaves. `requested`: as 'requested_bytes', which may be off by other threads' calls.
    std::size_t room(std::size_t requested) const noexcept {
        return requested < limit_bytes() ? limit_bytes() - requested : 0;
    }

    struct shard {
        base::spin_lock lock;
        base::credit bytes;
    };
    // Takes the count back unless a block was handed out, also if the pool throws.
    struct returned {
        limit& owner;
        std::size_t bytes;
        ~returned() {
            if (bytes != 0)
                owner.give(bytes);
        }
    };

    bool take(std::size_t bytes) noexcept {
        return requested_.is_large(bytes) ? requested_.take_directly(bytes) : requested_.take(shards_.mine()->bytes, bytes);
    }
    void give(std::size_t bytes) noexcept {
        if (requested_.is_large(bytes))
            requested_.give_directly(bytes);
        else
            requested_.give(shards_.mine()->bytes, bytes);
    }

    // After the shards gave back what they hold, whether it fits is exact.
    [[gnu::noinline]] bool take_exactly(std::size_t bytes) noexcept {
        if (bytes > limit_bytes())
            return false;
        typename base::shards<shard>::all const locked(shards_);
        requested_.collect(shards_, &shard::bytes);
        return requested_.take(shards_.begin()->bytes, bytes);
    }

    text self() const { return own_name_.empty() ? text("layer::limit") : "layer::limit '" + own_name_ + "'"; }

    text const own_name_; // empty: none
    base::central_count requested_; // bytes
    base::shards<shard> shards_;
};

} // namespace layer
} // namespace v0
} // namespace weir
