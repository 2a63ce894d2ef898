// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does code that was written for cuda::mr allocate from a pool, and a pool from that code's resources?
//
// cuda::mr is how CCCL, and RMM with it, name a source of memory: a copyable value with members of fixed names, and with
// properties that say who can reach the memory. A pool is neither copyable nor has it properties, so 'resource' stands for it.
// Whatever takes a cuda::mr resource takes one: cuda::mr::resource_ref, any_resource, cuda::buffer, CUB's environments, RMM.
//
//     weir::interop::cuda_mr::resource mr(pool);                           // refers to the pool
//     cuda::mr::resource_ref<cuda::mr::device_accessible> ref(mr);         // CCCL 2.8 and 3.0: async_resource_ref
//     weir::interop::cuda_mr::shared_resource<weir::device_pool> owner(std::in_place, options); // and its copies own a pool
//
// In the other direction 'upstream' gives a pool its chunks from a resource:
//
//     using pool = weir::pool<weir::interop::cuda_mr::upstream<rmm::mr::cuda_memory_resource>, weir::placement::best_fit<>,
//                             weir::reuse::stream_ordered<>>;
//
// Versions: CCCL 3.1 renamed the members. 'allocate(bytes, alignment)' became 'allocate_sync', and 'allocate_async(bytes,
// alignment, stream)' became 'allocate(stream, bytes, alignment)'. A 'resource' has both sets of names with every CCCL from 2.8
// on. What else depends on the version stands in 'version' below.
//
// invariant: a block is aligned to the pool's default alignment at least, 256 bytes in device memory, even if less is asked
//            for. Type-erased references ask for 16 when their caller names nothing. Allocation and free round alike.
// order:     as the pool's own. CCCL's streams may be null; a null one is the default stream of the file that made the
//            resource, since functions behind a type-erased reference are compiled who knows where.
// cost:      a comparison and a maximum over the pool's own call; a type-erased reference adds its indirect call.
// not for:   owning a pool through 'resource': the pool must outlive it, every copy of it, and their memory. A pool_ref is
//            kept by value, and need not.

#if !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE // before CCCL 3.2 its resources are behind this switch
#endif
#include <cstddef>
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda_runtime_api.h>
#include <new>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/shared.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace cuda_mr {

// What depends on CCCL's version, apart from the names of members.
namespace version {

// The properties as a list, by which cuda::buffer and others know from a resource what they may be. Since CCCL 3.2.
template <class... Property>
struct list {
#if CCCL_VERSION >= 3002000
    using default_queries = ::cuda::mr::properties_list<Property...>;
#endif
};

// Whether an exception of CCCL's means that there is no more memory. Before CCCL 3.1 it says so in its text only.
template <class Error>
bool is_out_of_memory(Error const& error) noexcept {
#if CCCL_VERSION >= 3001000
    return error.status() == cudaErrorMemoryAllocation;
#else
    char const* said = error.what();
    for (char const* wanted = "cudaError 2:"; *wanted; ++wanted, ++said)
        if (*said != *wanted)
            return false;
    return true;
#endif
}

} // namespace version

namespace detail {

template <class Pool>
struct space_of : std::integral_constant<memory_space, Pool::space> {};
template <memory_space Space>
struct space_of<pool_ref<Space>> : std::integral_constant<memory_space, Space> {};

template <class Pool>
constexpr std::size_t default_alignment_of(Pool const& pool) noexcept {
    if constexpr (weir::resource::detail::is_pool_ref<Pool>)
        return pool.default_alignment();
    else
        return Pool::default_alignment;
}

// CCCL finds a property as a function, by argument-dependent look-up: that of a base class is found, too.
struct on_device {
    friend constexpr void get_property(on_device const&, ::cuda::mr::device_accessible) noexcept {}
};
struct on_the_host {
    friend constexpr void get_property(on_the_host const&, ::cuda::mr::host_accessible) noexcept {}
};
template <memory_space Space>
struct properties : on_device, on_the_host, version::list<::cuda::mr::device_accessible, ::cuda::mr::host_accessible> {};
template <>
struct properties<memory_space::device> : on_device, version::list<::cuda::mr::device_accessible> {};
template <>
struct properties<memory_space::host> : on_the_host, version::list<::cuda::mr::host_accessible> {};

// What a resource names its pool by: a pointer to a pool, and a reference by value, whose equality is that of the pools.
template <class Pool>
struct pool_name {
    using argument = Pool&;
    Pool* pool;
    explicit pool_name(Pool& named) noexcept : pool(&named) {}
    Pool& operator*() const noexcept { return *pool; }
    friend bool operator==(pool_name a, pool_name b) noexcept { return a.pool == b.pool; }
};
template <memory_space Space>
struct pool_name<pool_ref<Space>> {
    using argument = pool_ref<Space>;
    pool_ref<Space> pool;
    explicit pool_name(pool_ref<Space> named) noexcept : pool(named) {}
    pool_ref<Space> operator*() const noexcept { return pool; }
    friend bool operator==(pool_name a, pool_name b) noexcept { return a.pool == b.pool; }
};

// The members that both kinds of resource have. `Held` names the pool: a 'pool_name', or an owner.
template <class Pool, class Held, class OutOfMemory>
class calls : public properties<space_of<Pool>::value> {
public:
    /// The pool; a pool_ref by value.
    decltype(auto) pool() const noexcept { return *held_; }

    /// As the pool's 'allocate': same order, blocking and errors. The block has the pool's default alignment at least.
    [[nodiscard]] void* allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = 1) const {
        return taken(named(stream), bytes, alignment);
    }
    /// As the pool's 'deallocate'. `bytes` and `alignment` are those of the allocation.
    void deallocate(::cuda::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = 1) const noexcept {
        pool().deallocate(named(stream), p, bytes, aligned(alignment));
    }
    /// A block that any stream may use at once. As the pool's 'allocate_sync'.
    [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = 1) const {
        return taken(on_host, bytes, alignment);
    }
    /// Takes back a block that nothing uses any more.
    void deallocate_sync(void* p, std::size_t bytes, std::size_t alignment = 1) const noexcept {
        pool().deallocate(on_host, p, bytes, aligned(alignment));
    }

    // The names that these four had before CCCL 3.1.
    [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, ::cuda::stream_ref stream) const {
        return allocate(stream, bytes, alignment);
    }
    [[nodiscard]] void* allocate_async(std::size_t bytes, ::cuda::stream_ref stream) const { return allocate(stream, bytes); }
    void deallocate_async(void* p, std::size_t bytes, std::size_t alignment, ::cuda::stream_ref stream) const noexcept {
        deallocate(stream, p, bytes, alignment);
    }
    void deallocate_async(void* p, std::size_t bytes, ::cuda::stream_ref stream) const noexcept {
        deallocate(stream, p, bytes);
    }
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = 1) const { return allocate_sync(bytes, alignment); }
    void deallocate(void* p, std::size_t bytes, std::size_t alignment = 1) const noexcept {
        deallocate_sync(p, bytes, alignment);
    }

    /// Whether memory of one may be freed by the other: whether both name the same pool.
    friend bool operator==(calls const& a, calls const& b) noexcept { return a.held_ == b.held_; }
    friend bool operator!=(calls const& a, calls const& b) noexcept { return !(a == b); }

protected:
    calls(Held held, stream_ref by_default) noexcept : held_(std::move(held)), default_stream_(by_default.get()) {}

private:
    void* taken(stream_ref stream, std::size_t bytes, std::size_t alignment) const {
        base::require_power_of_two(alignment); // as the pool, which never sees a small one
        if constexpr (std::is_same_v<OutOfMemory, out_of_memory>) {
            return pool().allocate(stream, bytes, aligned(alignment));
        } else {
            try {
                return pool().allocate(stream, bytes, aligned(alignment));
            } catch (out_of_memory const& error) {
                throw OutOfMemory(error.what());
            }
        }
    }
    stream_ref named(::cuda::stream_ref stream) const noexcept { return stream.get() ? stream.get() : default_stream_; }
    std::size_t aligned(std::size_t alignment) const noexcept {
        std::size_t const least = detail::default_alignment_of(pool());
        return alignment > least ? alignment : least;
    }

    Held held_;
    cudaStream_t default_stream_; // never null
};

} // namespace detail

/// Stands for a pool, a layer, or a pool_ref, wherever a cuda::mr resource is wanted. Copies name the same pool. Any thread may
/// call any member if the pool is thread-safe. `OutOfMemory`: what is thrown in place of weir's, made from its text, for code
/// that catches an exception of its own: 'resource<weir::device_pool, rmm::out_of_memory>' for RMM.
template <class Pool, class OutOfMemory = out_of_memory>
class resource : public detail::calls<Pool, detail::pool_name<Pool>, OutOfMemory> {
    using name = detail::pool_name<Pool>;

public:
    /// `pool` outlives this, its copies and their memory; of a pool_ref, the pool that it names now. Leave `by_default` out: it
    /// is then the stream that a null stream means in your file.
    explicit resource(typename name::argument pool, stream_ref by_default = cudaStream_t{}) noexcept
        : detail::calls<Pool, name, OutOfMemory>(name(pool), by_default) {}
};
template <memory_space Space>
resource(pool_ref<Space>) -> resource<pool_ref<Space>>;
template <memory_space Space>
resource(pool_ref<Space>, stream_ref) -> resource<pool_ref<Space>>;
template <class Pool>
resource(Pool&) -> resource<Pool>;
template <class Pool>
resource(Pool&, stream_ref) -> resource<Pool>;

/// The same, and it and its copies own the pool: the last that ends destroys it, and must be the last that has its memory.
template <class Pool, class OutOfMemory = out_of_memory>
class shared_resource : public detail::calls<Pool, base::shared<Pool>, OutOfMemory> {
    using held = base::shared<Pool>;

public:
    /// A new pool, made from `arguments`. Throws std::bad_alloc, and what the pool's constructor throws.
    template <class... Arguments>
    [[gnu::always_inline]] explicit shared_resource(std::in_place_t, Arguments&&... arguments)
        : detail::calls<Pool, held, OutOfMemory>(held::make(std::forward<Arguments>(arguments)...), cudaStream_t{}) {}
};

namespace detail {

template <class Resource>
using new_names = decltype(std::declval<Resource&>().allocate_sync(std::size_t{}, std::size_t{}));

template <class Resource>
constexpr memory_space space_that() {
    constexpr bool device = ::cuda::has_property<Resource, ::cuda::mr::device_accessible>;
    constexpr bool host = ::cuda::has_property<Resource, ::cuda::mr::host_accessible>;
    static_assert(device || host,
                  "weir: a resource that is a pool's upstream says who reaches its memory: it needs the property "
                  "'cuda::mr::device_accessible', 'cuda::mr::host_accessible' or both");
    return !host ? memory_space::device : !device ? memory_space::host : memory_space::pinned;
}

} // namespace detail

/// Chunks of a pool from a cuda::mr resource, which is kept by value: a type-erased reference or owner, or any copyable one.
/// `Space`: what its memory is; CCCL's properties do not tell pinned from managed memory, and pinned is assumed. Copyable. Any
/// thread may call any member if the resource allows it.
template <class Resource, memory_space Space = detail::space_that<Resource>()>
class upstream {
public:
    static constexpr std::size_t alignment = 256;
    static constexpr memory_space space = Space;

    /// The memory is that of the device which is current now, as resources have it. Throws cuda_error.
    explicit upstream(Resource resource) : resource_(std::move(resource)), device_(runtime::existing_device(any_device)) {}

    /// A chunk of `bytes` bytes, which any stream may use at once, or null if the resource says that there is no more. Blocks
    /// as the resource does. Throws cuda_error, and what else the resource throws.
    void* acquire(std::size_t bytes) {
        runtime::device_scope const current(device_);
        runtime::capture_mode_scope const relaxed;
        try {
            if constexpr (contract::holds<detail::new_names, Resource>)
                return resource_.allocate_sync(bytes, alignment);
            else
                return resource_.allocate(bytes, alignment);
        } catch (std::bad_alloc const&) {
            return nullptr;
        } catch (::cuda::cuda_error const& error) {
            if (!version::is_out_of_memory(error))
                throw;
            return nullptr;
        }
    }

    /// Gives a chunk back that no work uses any more. Returns false if the resource throws; the chunk is then still the pool's.
    bool release(void* chunk, std::size_t bytes) noexcept {
        try {
            runtime::device_scope const current(device_);
            runtime::capture_mode_scope const relaxed;
            if constexpr (contract::holds<detail::new_names, Resource>)
                resource_.deallocate_sync(chunk, bytes, alignment);
            else
                resource_.deallocate(chunk, bytes, alignment);
            return true;
        } catch (...) {
            return false;
        }
    }

    /// The number of the device.
    int device_number() const noexcept { return device_; }

private:
    Resource resource_;
    int device_;
};

#if CCCL_VERSION >= 3001000 // what environments are asked with
/// An environment, which many of CUB's algorithms take as their last argument since CCCL 3.1, more with each version: they then
/// work on `stream`, with temporary storage from `pool`, which outlives them. `Pool`: a pool, a layer, or a pool_ref, which is
/// kept by value.
template <class Pool>
class environment {
public:
    /// Throws usage_error if `stream` is the host.
    environment(typename detail::pool_name<Pool>::argument pool, stream_ref stream)
        : resource_(pool, stream), stream_(stream.get()) {
        if (stream.is_host())
            throw usage_error("weir: CUB runs on a stream, and 'on_host' is none; name one");
    }

    // CCCL's questions.
    ::cuda::stream_ref query(::cuda::get_stream_t const&) const noexcept { return stream_; }
    resource<Pool> const& query(::cuda::mr::get_memory_resource_t const&) const noexcept { return resource_; }

private:
    resource<Pool> resource_;
    cudaStream_t stream_;
};
template <class Pool>
environment(Pool&, stream_ref) -> environment<Pool>;
template <memory_space Space>
environment(pool_ref<Space>, stream_ref) -> environment<pool_ref<Space>>;
#endif

} // namespace cuda_mr
} // namespace interop
} // namespace v0
} // namespace weir
