// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a container name the pool that it came from, whatever type the pool has?
//
// 'device_vector<float>' is one type, over every pool. It holds a 'pool_ref': a pointer to the pool, and a pointer to a
// constant table of the functions that a container needs from it. The reference is made implicitly from the pool itself. A pool
// whose memory the container's user cannot reach is refused there, by the compiler.
//
//     pool_ref<device>    kernels reach the memory: device, managed and pinned pools
//     pool_ref<pinned>    kernels and the host reach it: pinned and managed pools
//     pool_ref<host>      the host reaches it: all but device pools
//
// Their short names are device_pool_ref, pinned_pool_ref and host_pool_ref. 'any_pool' owns a pool in the same manner.
//
// invariant: equal references name one pool. Two references to one pool that are made in one shared object are equal. Shared
//            objects with hidden visibility have tables of their own, so two references made in different ones may name one
//            pool and still differ.
// order:     the pool outlives every reference that is used; a reference owns nothing.
// cost:      two pointers; an indirect call on top of the pool's own.
// not for:   owning a pool, or code that knows its pool's type: a template does without the indirect call. A class derived from
//            any_pool that overrides its members: the reference names the pool inside. Make it a layer.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/call_site.hpp>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_life.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace resource {
/// Whether memory of space `offered` can be used wherever memory of space `required` can.
constexpr bool reaches(memory_space offered, memory_space required) noexcept {
    return (base::device_accessible(offered) || !base::device_accessible(required)) &&
           (base::host_accessible(offered) || !base::host_accessible(required));
}

namespace detail {

template <class Pool>
using points = decltype(*std::declval<Pool&>());

template <class T>
inline constexpr bool is_pool_ref = false;
template <memory_space Required>
inline constexpr bool is_pool_ref<pool_ref<Required>> = true;

// Whether it is an any_pool, or derived from one.
template <memory_space Required>
std::true_type as_owner(any_pool<Required>*);
std::false_type as_owner(void const*);
template <class Pool>
inline constexpr bool is_owner = decltype(as_owner(static_cast<Pool*>(nullptr)))::value;

// What a container needs from a pool, as functions and values.
struct pool_table {
    void* (*allocate)(void* pool, stream_ref stream, std::size_t bytes, std::size_t alignment, call_site const& where);
    void (*deallocate)(void* pool, stream_ref stream, void* p, std::size_t bytes,
                       std::size_t alignment) noexcept;
    void (*used_on)(void* pool, void* p, stream_ref stream); // this and the next are null if the pool lacks either
    void (*last_used_on)(void* pool, void* p, stream_ref stream);
    // Null if the pool does not ask.
    resource::detail::shared_pool_life (*in_container)(void* pool, void* p, stream_ref stream) noexcept;
    int (*device)(void const* pool);
    bool (*can_hold)(void const* pool, std::size_t bytes, std::size_t alignment);
    void (*settle)(void* pool); // null if the streams on which memory was freed may end without it
    std::size_t default_alignment;
    memory_space space;
    bool stream_ordered;
};

template <class Pool>
constexpr bool orders_streams() noexcept {
    if constexpr (contract::holds<contract::has_stream_ordered, Pool>)
        return Pool::stream_ordered;
    else
        return false;
}

// Whether the pool's type says that memory which the device reaches is handed out again at once when it is freed.
template <class Pool>
constexpr bool is_immediate() noexcept {
    if constexpr (contract::holds<contract::has_stream_ordered, Pool> && !is_owner<Pool>)
        return !Pool::stream_ordered && base::device_accessible(Pool::space);
    else
        return false;
}

template <class Pool, bool = contract::holds<contract::has_used_on, Pool, void*, stream_ref>>
struct call_used_on {
    static constexpr void (*call)(void*, void*, stream_ref) = nullptr;
    static constexpr void (*call_last)(void*, void*, stream_ref) = nullptr;
};
template <class Pool>
struct call_used_on<Pool, true> {
    static void call(void* pool, void* p, stream_ref stream) { static_cast<Pool*>(pool)->used_on(p, stream); }
    static void call_last(void* pool, void* p, stream_ref stream) { static_cast<Pool*>(pool)->last_used_on(p, stream); }
};

template <class Pool, bool = contract::holds<contract::has_in_container, Pool, stream_ref>>
struct call_in_container {
    static constexpr resource::detail::shared_pool_life (*call)(void*, void*, stream_ref) noexcept = nullptr;
};
template <class Pool>
struct call_in_container<Pool, true> {
    static resource::detail::shared_pool_life call(void* pool, void* p, stream_ref stream) noexcept {
        return resource::detail::in_container(*static_cast<Pool*>(pool), p, stream);
    }
};

template <class Pool, bool = !Pool::streams_may_end && contract::holds<contract::has_settle, Pool>>
struct call_settle {
    static constexpr void (*call)(void*) = nullptr;
};
template <class Pool>
struct call_settle<Pool, true> {
    static void call(void* pool) { static_cast<Pool*>(pool)->settle(); }
};

template <class Pool>
struct pool_calls {
    static void* allocate(void* pool, stream_ref stream, std::size_t bytes, std::size_t alignment, call_site const& where) {
        return static_cast<Pool*>(pool)->allocate(stream, bytes, alignment, where);
    }
    static void deallocate(void* pool, stream_ref stream, void* p, std::size_t bytes,
                           std::size_t alignment) noexcept {
        static_cast<Pool*>(pool)->deallocate(stream, p, bytes, alignment);
    }
    static int device(void const* pool) { return static_cast<Pool const*>(pool)->device(); }
    static bool can_hold(void const* pool, std::size_t bytes, std::size_t alignment) {
        return static_cast<Pool const*>(pool)->can_hold(bytes, alignment);
    }
    static constexpr pool_table table{&allocate,
                                      &deallocate,
                                      call_used_on<Pool>::call,
                                      call_used_on<Pool>::call_last,
                                      call_in_container<Pool>::call,
                                      &device,
                                      &can_hold,
                                      call_settle<Pool>::call,
                                      Pool::default_alignment,
                                      Pool::space,
                                      orders_streams<Pool>()};
};

} // namespace detail
} // namespace resource

/// A non-owning name of a pool whose memory is usable wherever memory of space `Required` is. Trivially
/// copyable.
template <memory_space Required>
class pool_ref {
public:
    /// Any pool or layer. It must outlive what is allocated through the reference.
    template <class Pool, class = std::enable_if_t<!resource::detail::is_pool_ref<std::remove_cv_t<Pool>> &&
                                                   !resource::detail::is_owner<Pool>>>
    pool_ref(Pool& pool) noexcept : pool_(const_cast<std::remove_const_t<Pool>*>(&pool)), calls_(calls_of<Pool>()) {
    }

    /// The pool that `owner` holds; the reference stays valid when the owner is moved. The same for classes derived from one.
    template <memory_space Other>
    pool_ref(any_pool<Other>& owner) noexcept : pool_ref(owner.ref()) {}

    /// Refused with a sentence: '&pool' where the pool is wanted.
    template <class Pool>
    pool_ref(Pool*&&) noexcept : pool_(nullptr), calls_(calls_of<Pool*>()) {}

    /// The pool that `other` names, whose memory must reach as far as is required here.
    template <memory_space Other, class = std::enable_if_t<Other != Required>>
    pool_ref(pool_ref<Other> other) noexcept : pool_(other.pool_), calls_(other.calls_) {
        static_assert(
            resource::reaches(Other, Required),
            "weir: a reference to this kind of pool promises less than the container needs; make the "
            "container's reference from the pool itself");
    }

    /// The pool's own 'allocate', with its order, blocking and errors. Without `alignment`: the pool's default alignment.
    /// `where`: the line that asks, for layer::record.
    [[nodiscard]] void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                 call_site const& where = call_site::here()) const {
        return calls_->allocate(pool_, stream, bytes, alignment, where);
    }
    [[nodiscard]] void* allocate(stream_ref stream, std::size_t bytes, call_site const& where = call_site::here()) const {
        return allocate(stream, bytes, default_alignment(), where);
    }

    /// The pool's own 'deallocate'.
    void deallocate(stream_ref stream, void* p, std::size_t bytes) const noexcept {
        deallocate(stream, p, bytes, default_alignment());
    }
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) const noexcept {
        calls_->deallocate(pool_, stream, p, bytes, alignment);
    }

    /// Whether the pool can be told of uses on a second stream.
    bool has_used_on() const noexcept { return calls_->used_on != nullptr; }

    /// The pool's own 'used_on' and 'last_used_on'. Throw usage_error if the pool lacks either.
    void used_on(void* p, stream_ref stream) const {
        require_used_on();
        calls_->used_on(pool_, p, stream);
    }
    void last_used_on(void* p, stream_ref stream) const {
        require_used_on();
        calls_->last_used_on(pool_, p, stream);
    }

    /// Tells a pool that asks (layer::guard) that a container holds the block at `p`, and frees it on `stream`. Returns the
    /// mark of that pool's life, which is asked before the free; none if the pool keeps none.
    resource::detail::shared_pool_life in_container(void* p, stream_ref stream) const noexcept {
        return calls_->in_container ? calls_->in_container(pool_, p, stream) : resource::detail::shared_pool_life();
    }

    /// The alignment, in bytes, that the pool gives where none is asked for.
    std::size_t default_alignment() const noexcept { return calls_->default_alignment; }

    /// The space of the pool's memory; it reaches at least as far as `Required`.
    memory_space space() const noexcept { return calls_->space; }

    /// Whether a block may be freed while enqueued work still uses it; false if the pool does not say.
    bool stream_ordered() const noexcept { return calls_->stream_ordered; }

    /// Whether the pool could hand out such a block if no other were out. Throws as its 'can_hold'.
    bool can_hold(std::size_t bytes, std::size_t alignment) const { return calls_->can_hold(pool_, bytes, alignment); }
    bool can_hold(std::size_t bytes) const { return can_hold(bytes, default_alignment()); }

    /// Whether a stream on which memory was freed may end at any time; if not, 'settle' comes first (identity::promised).
    bool streams_may_end() const noexcept { return calls_->settle == nullptr; }
    /// The pool's own 'settle'. Nothing if 'streams_may_end'.
    void settle() const {
        if (calls_->settle)
            calls_->settle(pool_);
    }

    /// The number of the pool's device; any_device if the pool does not say.
    int device() const { return calls_->device(pool_); }

    // A pool and the layer around it may share an address; their tables differ.
    friend bool operator==(pool_ref a, pool_ref b) noexcept {
        return a.pool_ == b.pool_ && a.calls_ == b.calls_;
    }
    friend bool operator!=(pool_ref a, pool_ref b) noexcept { return !(a == b); }

private:
    template <memory_space>
    friend class pool_ref;
    template <memory_space>
    friend class any_pool;

    void require_used_on() const {
        if (!has_used_on())
            throw usage_error("weir: this pool has no 'used_on'; make the stream on which the block is freed wait for this one "
                              "('order_after') before the free");
    }

    // If a pool does not fit, the compiler prints one sentence that says why, and no errors that follow from it.
    template <class Pool>
    static constexpr resource::detail::pool_table const* calls_of() {
        static_assert(!std::is_const_v<Pool>,
                      "weir: a container allocates from its pool; hand the pool over as one that "
                      "is not const");
        static_assert(!contract::holds<resource::detail::points, Pool>,
                      "weir: a container takes the pool itself; hand 'pool' over, or '*pool', not what points to it");
        if constexpr (std::is_const_v<Pool> || contract::holds<resource::detail::points, Pool>)
            return nullptr;
        else
            return table_of<Pool>();
    }

    template <class Pool>
    static constexpr resource::detail::pool_table const* table_of() {
        static_assert(contract::require_pool<Pool, stream_ref>());
        static_assert(contract::holds<contract::has_default_alignment, Pool>,
                      "weir: a container's pool needs 'static constexpr std::size_t default_alignment'");
        static_assert(
            !base::device_accessible(Required) || base::device_accessible(Pool::space),
            "weir: this container's memory is used by kernels, and a host pool's is out of their reach; use "
            "a device, managed or pinned pool");
        static_assert(
            !base::host_accessible(Required) || base::host_accessible(Pool::space),
            "weir: the host touches this memory, and a device pool's is out of its reach; use a pinned or managed pool, "
            "or a device container");
        return &resource::detail::pool_calls<Pool>::table;
    }

    void* pool_;
    resource::detail::pool_table const* calls_;
};

} // namespace v0
} // namespace weir
