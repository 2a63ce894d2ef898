// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a program own a pool whose type is chosen while it runs?
//
// 'pool_ref' names a pool of any type, and 'any_pool' owns one. It is a pool itself: layers, containers and adaptors take it as
// they take any other. 'make_pool' makes one by a recipe's name; a pool of your own goes in by its type:
//
//     weir::any_device_pool pool = weir::make_pool("device", weir::pool_options{}.limit(8 * weir::GiB));
//     weir::any_device_pool ours(std::in_place_type<my_pool>, arguments...);
//
// What it promises holds for each pool that it can own: kernels, the host or both reach the memory ('Required', as with
// pool_ref), any thread may call any member, and a block that kernels reach may be freed while enqueued work uses it. A pool
// that keeps less is refused by the compiler. References to the pool ('ref', and so containers) name the pool inside. They stay
// valid when its owner is moved, and they know what that pool can do besides, such as 'used_on'.
//
// invariant: the pool inside never moves. It ends with its owner.
// order:     as the pool's.
// cost:      an indirect call on top of the pool's own; containers make no second one. One allocation for the pool.
// not for:   code that knows its pool's type; frame_pool and scopes, which end blocks without a free; the first pool of a
//            layer::fallback: CUDA's own pools cannot tell which blocks are theirs, so there is no 'owns'.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/text.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_life.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace resource::detail {

// A pool behind functions that do not depend on its type: those that a reference does without.
class held_pool {
public:
    held_pool() = default;
    held_pool(held_pool const&) = delete;
    held_pool& operator=(held_pool const&) = delete;
    virtual ~held_pool() = default;

    virtual void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) = 0;
    virtual void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept = 0;
    virtual std::size_t trim(std::size_t keep_bytes) = 0;
    virtual void settle() = 0;
    virtual std::size_t before_destroy(stream_ref stream) = 0;
    virtual memory_report state() const = 0;
    virtual refusal refused(std::size_t bytes, std::size_t alignment) const = 0;
    virtual void examine(memory_report& now) const = 0;
    virtual void list_own(largest_blocks& list) const noexcept = 0;
    virtual bool can_hold(std::size_t bytes, std::size_t alignment) const = 0;
    virtual text report() const = 0;
};

template <class Pool>
class held_pool_of final : public held_pool {
public:
    template <class... Arguments>
    explicit held_pool_of(Arguments&&... arguments) : pool(std::forward<Arguments>(arguments)...) {}

    void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) override {
        return pool.try_allocate(stream, bytes, alignment);
    }
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept override {
        pool.deallocate(stream, p, bytes, alignment);
    }
    std::size_t trim(std::size_t keep_bytes) override {
        if constexpr (contract::holds<contract::has_trim, Pool, std::size_t>)
            return pool.trim(keep_bytes);
        else
            return static_cast<void>(keep_bytes), 0;
    }
    void settle() override {
        if constexpr (contract::holds<contract::has_settle, Pool>)
            pool.settle();
    }
    std::size_t before_destroy(stream_ref stream) override { return pool.before_destroy(stream); }
    memory_report state() const override { return pool.state(); }
    refusal refused(std::size_t bytes, std::size_t alignment) const override { return pool.refused(bytes, alignment); }
    void examine(memory_report& now) const override { pool.examine(now); }
    void list_own(largest_blocks& list) const noexcept override { pool.list_own(list); }
    bool can_hold(std::size_t bytes, std::size_t alignment) const override { return pool.can_hold(bytes, alignment); }
    text report() const override { return pool.report(); }

    Pool pool;
};

// As pool_calls, with a default alignment that does not depend on the pool.
template <class Pool, std::size_t Alignment>
inline constexpr pool_table table_with_alignment = [] {
    pool_table table = pool_calls<Pool>::table;
    table.default_alignment = Alignment;
    return table;
}();

} // namespace resource::detail

/// The owner of one pool, whose memory is usable wherever memory of space `Required` is. Any thread may call any member but
/// moves and the destructor. Of an owner that was moved from, only these two may be called.
template <memory_space Required>
class any_pool : public resource::pool_base<any_pool<Required>> {
public:
    /// Where the memory can be used at least; 'ref().space()' is what the memory is. A pinned pool fits each any_pool.
    static constexpr memory_space space = Required;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = base::device_accessible(Required);
    /// The alignment of a block that asks for none, in bytes, whichever pool is inside.
    static constexpr std::size_t default_alignment = base::usual_alignment(Required);

    /// A `Pool`, made from `arguments`. Throws what its constructor throws, and std::bad_alloc.
    template <class Pool, class... Arguments>
    explicit any_pool(std::in_place_type_t<Pool>, Arguments&&... arguments)
        : any_pool(hold<Pool>(std::forward<Arguments>(arguments)...)) {}

    any_pool(any_pool&& other) noexcept : held_(other.held_), ref_(other.ref_) { other.held_ = nullptr; }
    /// The pool that was owned before ends here.
    any_pool& operator=(any_pool&& other) noexcept {
        any_pool taken(std::move(other));
        base::swap_values(held_, taken.held_);
        base::swap_values(ref_, taken.ref_);
        return *this;
    }
    /// Ends the pool, as its own destructor does.
    ~any_pool() { delete held_; }

    // Each of these does what the pool inside documents.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        return held_->try_allocate(stream, bytes, alignment);
    }
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        held_->deallocate(stream, p, bytes, alignment);
    }
    using resource::pool_base<any_pool>::deallocate;
    std::size_t before_destroy(stream_ref stream) { return held_->before_destroy(stream); }
    resource::detail::shared_pool_life in_container(void* p, stream_ref stream) noexcept {
        return ref_.in_container(p, stream);
    }
    int device() const { return ref_.device(); }
    memory_report state() const { return held_->state(); }
    refusal refused(std::size_t bytes, std::size_t alignment) const { return held_->refused(bytes, alignment); }
    void examine(memory_report& now) const { held_->examine(now); }
    void list_own(largest_blocks& list) const noexcept { held_->list_own(list); }
    bool can_hold(std::size_t bytes, std::size_t alignment = default_alignment) const {
        return held_->can_hold(bytes, alignment);
    }
    text report() const { return held_->report(); }

    /// As the pool's own 'trim'; 0 if it has none.
    std::size_t trim(std::size_t keep_bytes = 0) { return held_->trim(keep_bytes); }
    /// As the pool's own 'settle'; nothing if it has none, since nothing that was freed is then still in use.
    void settle() { held_->settle(); }

    /// A reference to the pool inside, which stays valid when this owner is moved. It has 'used_on' if the pool has.
    pool_ref<Required> ref() noexcept { return ref_; }

private:
    template <class Pool>
    struct held {
        resource::detail::held_pool_of<Pool>* pool;
    };

    // If a pool does not fit, the compiler prints the sentence that says why.
    template <class Pool, class... Arguments>
    static held<Pool> hold(Arguments&&... arguments) {
        static_assert(contract::require_layered<Pool, stream_ref>());
        static_assert(Pool::thread_safe,
                      "weir: any thread may use an any_pool, and this pool is for one thread at a time; wrap it in "
                      "'weir::layer::synchronized'");
        static_assert(Pool::stream_ordered || !stream_ordered,
                      "weir: a block of an any_pool may be freed while enqueued work uses it, and this pool would hand it out "
                      "again at once; use a pool of 'weir::reuse::stream_ordered<>' or 'weir::reuse::after_event'");
        static_assert(Pool::default_alignment >= default_alignment ||
                          Pool::default_alignment >= base::usual_alignment(Pool::space),
                      "weir: an any_pool promises the alignment that is usual for its memory, 256 bytes for kernels, and this "
                      "pool's blocks are aligned to less; use larger blocks, such as those of 'weir::placement::slab<256>'");
        return {new resource::detail::held_pool_of<Pool>(std::forward<Arguments>(arguments)...)};
    }
    template <class Pool>
    explicit any_pool(held<Pool> fresh) noexcept : held_(fresh.pool), ref_(fresh.pool->pool) {
        ref_.calls_ = &resource::detail::table_with_alignment<Pool, default_alignment>;
    }

    resource::detail::held_pool* held_; // null: moved from
    pool_ref<Required> ref_;
};

} // namespace v0
} // namespace weir
