// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does Thrust get its memory from a pool?
//
// Algorithms need temporary storage: 'par(pool, stream)' and 'par_nosync(pool, stream)' are execution policies that take it
// from the pool and give it back on the stream. So no algorithm calls cudaMalloc or cudaFree, which wait for the whole device.
// Thrust's own containers need an allocator, or a resource of thrust::mr:
//
//     thrust::sort(weir::interop::thrust::par(pool, stream), xs.data(), xs.data() + xs.size());  // a weir::device_vector
//
//     thrust::device_vector<float, weir::interop::thrust::allocator<float>> ys(n, {pool, stream});
//     thrust::universal_vector<float, weir::interop::thrust::universal_allocator<float>> us(n, {managed_pool, stream});
//     thrust::host_vector<float, weir::interop::thrust::pinned_allocator<float>> hs(n, {pinned_pool, stream});
//
//     weir::interop::thrust::memory_resource mr(pool, stream);
//     using erased = thrust::mr::allocator<float, weir::interop::thrust::memory_resource>;
//     thrust::device_vector<float, erased> zs(n, erased(&mr));
//
// 'par' returns when the algorithm is done. 'par_nosync' may return while the algorithm still runs. Its storage is then freed
// on the stream, after the algorithm's work; a stream-ordered pool allows that. What replaces Thrust's asynchronous algorithms,
// which CCCL 3.0 took away, is 'par_nosync' and, from CCCL 3.1 on, thrust::reduce_into, whose result stays on the device.
//
// invariant: a policy owns its allocator. Both refer to the pool, which must outlive them and their memory.
// order:     an algorithm's work and storage are on the policy's stream. A thrust::device_vector works on the default stream,
//            whatever its allocator's stream is, and so do those who use it there. Fresh memory is ordered before that work,
//            and its free after it. The host may touch universal and pinned memory at once.
// order:     if Thrust's device system is the host (THRUST_DEVICE_SYSTEM_CPP, _OMP, _TBB), algorithms run at once, in memory
//            that the host must be able to reach. Making a policy then waits for the stream, so make one for each call.
// cost:      one pool allocation for each temporary; off the default stream, also two events for each of a vector's blocks.
// not for:   'par_nosync' and device_vectors with a pool that is not stream ordered, unless only one stream uses the pool;
//            containers that the host reaches are refused there. A thrust::device_vector's 'assign(n, value)', for which
//            Thrust makes an allocator of its own: assign a range, or swap with a fresh vector.

#include <cstddef>
#include <thrust/detail/type_traits.h>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/universal_ptr.h>
#include <type_traits>
#include <weir/base/memory_space.hpp>
#include <weir/interop/thrust/memory_resource.hpp>
#include <weir/interop/thrust/source.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace thrust {

namespace detail {

// The allocator inside a policy: Thrust asks it for bytes, and uses them on the policy's stream.
class temporaries : public source<memory_space::device> {
public:
    using value_type = char;
    using pointer = ::thrust::device_ptr<char>;

    using source::source;
    pointer allocate(std::size_t bytes) { return pointer(static_cast<char*>(source::allocate(bytes, 1))); }
    void deallocate(pointer p, std::size_t bytes) noexcept { source::deallocate(p.get(), bytes, 1); }
};

// What an allocator's pointers are.
struct device_pointers {
    static constexpr memory_space reach = memory_space::device;
    template <class T>
    using pointer = ::thrust::device_ptr<T>;
    template <class T>
    using reference = ::thrust::device_reference<T>;
};
struct universal_pointers {
    static constexpr memory_space reach = memory_space::pinned;
    template <class T>
    using pointer = ::thrust::universal_ptr<T>;
    template <class T>
    using reference = T&;
};
struct host_pointers {
    static constexpr memory_space reach = memory_space::pinned;
    template <class T>
    using pointer = T*;
    template <class T>
    using reference = T&;
};

template <class T>
T* address(T* p) noexcept {
    return p;
}
template <class Pointer>
auto address(Pointer p) noexcept {
    return p.get();
}

} // namespace detail

/// The allocator of one of Thrust's containers. Copies refer to the same pool and stream. When a container's contents are moved
/// or copied to another, the allocator goes along. Any thread may call any member if the pool is thread-safe.
template <class T, class Pointers>
class basic_allocator : public detail::source<Pointers::reach> {
    using source = detail::source<Pointers::reach>;

public:
    using value_type = T;
    using pointer = typename Pointers::template pointer<T>;
    using const_pointer = typename Pointers::template pointer<T const>;
    using reference = typename Pointers::template reference<T>;
    using const_reference = typename Pointers::template reference<T const>;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    /// The allocator of the same pool and stream for another type.
    template <class U>
    struct rebind {
        using other = basic_allocator<U, Pointers>;
    };

    /// Memory of `pool`, for use on `stream` and on the default stream. Leave `by_default` out: it is then the stream that a
    /// null stream means in your file. Throws usage_error if `stream` is the host, or if the host reaches the memory and the
    /// pool is not stream ordered: it would hand out again what the stream's work still uses.
    basic_allocator(pool_ref<Pointers::reach> pool, stream_ref stream, stream_ref by_default = cudaStream_t{})
        : source(pool, stream, by_default) {}
    template <class U>
    basic_allocator(basic_allocator<U, Pointers> const& other) : source(other) {}

    /// `count` elements, not initialised. Throws what the pool's 'allocate' throws, out_of_memory also for more elements than
    /// any memory has; cuda_error.
    pointer allocate(std::size_t count) {
        void* const p = source::allocate_for_container(detail::bytes_of(count, sizeof(T)), alignof(T));
        return pointer(static_cast<T*>(p));
    }

    /// Gives the elements back on the stream, after the work on the default stream so far. Does not block, unless a capture
    /// makes that order impossible: then it blocks until the device is idle.
    void deallocate(pointer p, std::size_t count) noexcept {
        source::deallocate_for_container(detail::address(p), count * sizeof(T), alignof(T));
    }

    /// Whether each may free what the other allocated, that is, whether pool and stream are the same. The default streams of
    /// two devices are two.
    friend bool operator==(basic_allocator const& a, basic_allocator const& b) noexcept {
        return a.pool() == b.pool() && a.is_on_stream_of(b);
    }
    friend bool operator!=(basic_allocator const& a, basic_allocator const& b) noexcept { return !(a == b); }
};

/// The allocator of a thrust::device_vector<T, allocator<T>>: a device, managed or pinned pool's memory.
template <class T>
using allocator = basic_allocator<T, detail::device_pointers>;

/// The allocator of a thrust::universal_vector<T, universal_allocator<T>>: memory of a managed or pinned pool. The host may
/// touch an element once the work that uses it is done.
template <class T>
using universal_allocator = basic_allocator<T, detail::universal_pointers>;

/// The allocator of a thrust::host_vector<T, pinned_allocator<T>>: memory of a pinned or managed pool, for fast copies. Before
/// the vector ends or grows, copies that use it are done, or are ordered before `stream` or the default stream.
template <class T>
using pinned_allocator = basic_allocator<T, detail::host_pointers>;

/// An execution policy for work on `stream`, with temporary storage from `pool`. The algorithm is done when it returns.
/// Throws usage_error if `stream` is the host. The algorithm throws what the pool's 'allocate' throws.
inline auto par(pool_ref<memory_space::device> pool, stream_ref stream) {
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
    return ::thrust::cuda::par(detail::temporaries(pool, stream)).on(stream.get());
#else
    detail::temporaries const storage(pool, stream); // const, because Thrust would keep only a reference to a variable
    synchronize(stream);
    return ::thrust::device(storage);
#endif
}

/// As 'par', but the algorithm may return before it is done, if it has no result to return. If Thrust's device system is the
/// host, it is the same as 'par'.
inline auto par_nosync(pool_ref<memory_space::device> pool, stream_ref stream) {
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
    return ::thrust::cuda::par_nosync(detail::temporaries(pool, stream)).on(stream.get());
#else
    return par(pool, stream);
#endif
}

} // namespace thrust
} // namespace interop
} // namespace v0
} // namespace weir

// Thrust's backends for the host write through a proxy reference only where it is named here, as its own ones are. From CCCL
// 3.5 on there is no such trait, and those backends take no proxy.
#if CCCL_VERSION < 3005000
THRUST_NAMESPACE_BEGIN
namespace detail {
template <class Element, class Storage>
struct is_proxy_reference<weir::converting::reference<Element, Storage>> : std::true_type {};
} // namespace detail
THRUST_NAMESPACE_END
#endif
