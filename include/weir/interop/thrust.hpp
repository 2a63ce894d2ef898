// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does Thrust get its memory from a pool?
//
// There are two cases. Algorithms need temporary storage: 'par(pool, stream)' and 'par_nosync(pool, stream)' are execution
// policies that take it from the pool and give it back on the stream. So no algorithm calls cudaMalloc or cudaFree, which
// wait for the whole device. Thrust's own containers need an allocator.
//
//     thrust::sort(weir::interop::thrust::par(pool, stream), xs.begin(), xs.end());  // a weir::device_vector
//
//     using allocator = weir::interop::thrust::allocator<float>;
//     thrust::device_vector<float, allocator> ys(n, allocator(pool, stream));
//
// 'par' returns when the algorithm is done. 'par_nosync' may return while the algorithm still runs. Its storage is then freed
// on the stream, after the algorithm's work; a stream-ordered pool allows that.
//
// invariant: a policy owns its allocator. Both refer to the pool, which must outlive them and their memory.
// order:     an algorithm's work and storage are on the policy's stream. A thrust::device_vector works on the default stream,
//            whatever its allocator's stream is, and so do those who use it there. Fresh memory is ordered before that work,
//            and its free after it.
// order:     if Thrust's device system is the host (THRUST_DEVICE_SYSTEM_CPP, _OMP, _TBB), algorithms run at once, in memory
//            that the host must be able to reach. Making a policy then waits for the stream, so make one for each call.
// cost:      one pool allocation for each temporary; off the default stream, also two events for each of a vector's blocks.
// not for:   'par_nosync' with a pool that is not stream ordered, unless only one stream uses the pool. A
//            thrust::device_vector's 'assign(n, value)', for which Thrust makes an allocator of its own: assign a range, or
//            swap with a fresh vector.

#include <cstddef>
#include <thrust/detail/type_traits.h>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <type_traits>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/resource/resource.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace thrust {

namespace detail {

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
inline constexpr bool runs_on_host = false;
#else
inline constexpr bool runs_on_host = true;
#endif

// Orders what is enqueued on `stream` from this call on after the work so far on a default stream. If CUDA cannot do that, it
// blocks until all work of the device is done (of every device, if none is named).
inline void wait_for_default_stream(stream_ref stream, order::placed_stream const& by_default) noexcept {
    try {
        order_after(order::placed_stream{stream}, by_default);
    } catch (...) {
        try {
            runtime::wait_for_device(by_default.device); // which breaks no capture; a wait for the stream would
        } catch (...) { // the device is lost: nothing runs any more
        }
    }
}

// The pool and the stream that both allocators share.
class source {
public:
    // A default argument is compiled in the caller's file. So `by_default` is what the null stream means in the file that
    // makes the allocator.
    source(pool_ref<memory_space::device> pool, stream_ref stream, stream_ref by_default = cudaStream_t{})
        : pool_(pool), stream_(stream), default_stream_(by_default) {
        if (stream.is_host())
            throw usage_error("weir: Thrust runs on a stream, and 'on_host' is none; name one");
    }

    pool_ref<memory_space::device> pool() const noexcept { return pool_; }
    stream_ref stream() const noexcept { return stream_; }

protected:
    void* allocate(std::size_t count, std::size_t size, std::size_t alignment) const {
        if (base::multiply_overflows(count, size))
            throw usage_error("weir: Thrust asked for " + base::number_text(count) + " elements of " +
                              base::number_text(size) + " bytes, which do not fit the address space");
        // Host code that uses the memory at once needs memory that no work in flight uses.
        return pool_.allocate(runs_on_host ? stream_ref(on_host) : stream_, count * size, aligned(alignment));
    }
    void deallocate(void* p, std::size_t count, std::size_t size, std::size_t alignment) const noexcept {
        pool_.deallocate(stream_, p, count * size, aligned(alignment));
    }

    // The same for memory that is used on the default stream.
    void* allocate_by_default(std::size_t count, std::size_t size, std::size_t alignment) const {
        void* const p = allocate(count, size, alignment);
        try {
            order_after(default_stream_, stream_);
        } catch (...) {
            deallocate(p, count, size, alignment);
            throw;
        }
        return p;
    }
    void deallocate_by_default(void* p, std::size_t count, std::size_t size, std::size_t alignment) const noexcept {
        if (p) { // nobody says which device's default stream was used: that of the current device or of the memory's
            wait_for_default_stream(stream_, {default_stream_, any_device});
            int const there = pool_.device();
            int here = any_device;
            if (there != any_device && (!runtime::succeeded(cudaGetDevice(&here)) || here != there))
                wait_for_default_stream(stream_, {default_stream_, there});
        }
        deallocate(p, count, size, alignment);
    }

private:
    std::size_t aligned(std::size_t alignment) const noexcept {
        return alignment > pool_.default_alignment() ? alignment : pool_.default_alignment();
    }

    pool_ref<memory_space::device> pool_;
    stream_ref stream_;
    stream_ref default_stream_;
};

// The allocator inside a policy: Thrust asks it for bytes, and uses them on the policy's stream.
class temporaries : public source {
public:
    using value_type = char;
    using pointer = ::thrust::device_ptr<char>;

    using source::source;
    pointer allocate(std::size_t bytes) { return pointer(static_cast<char*>(source::allocate(bytes, 1, 1))); }
    void deallocate(pointer p, std::size_t bytes) noexcept { source::deallocate(p.get(), bytes, 1, 1); }
};

} // namespace detail

/// The allocator of a thrust::device_vector<T, allocator<T>>. Copies refer to the same pool and stream. When a vector's
/// contents are moved or copied to another, the allocator goes along. Any thread may call any member if the pool is
/// thread-safe.
template <class T>
class allocator : public detail::source {
public:
    using value_type = T;
    using pointer = ::thrust::device_ptr<T>;
    using const_pointer = ::thrust::device_ptr<T const>;
    using reference = ::thrust::device_reference<T>;
    using const_reference = ::thrust::device_reference<T const>;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    /// The allocator of the same pool and stream for another type.
    template <class U>
    struct rebind {
        using other = allocator<U>;
    };

    /// Memory of `pool`, a device, managed or pinned pool, for use on `stream` and on the default stream. Leave `by_default`
    /// out: it is then the stream that a null stream means in your file. Throws usage_error if `stream` is the host.
    allocator(pool_ref<memory_space::device> pool, stream_ref stream, stream_ref by_default = cudaStream_t{})
        : source(pool, stream, by_default) {}
    template <class U>
    allocator(allocator<U> const& other) : source(other) {}

    /// `count` elements, not initialised. Throws what the pool's 'allocate' throws, and cuda_error.
    pointer allocate(std::size_t count) {
        void* const p = detail::runs_on_host ? source::allocate(count, sizeof(T), alignof(T))
                                             : source::allocate_by_default(count, sizeof(T), alignof(T));
        return pointer(static_cast<T*>(p));
    }

    /// Gives the elements back on the stream, after the work on the default stream so far. Does not block, unless a capture
    /// makes that order impossible: then it blocks until the device is idle.
    void deallocate(pointer p, std::size_t count) noexcept {
        if (detail::runs_on_host)
            source::deallocate(p.get(), count, sizeof(T), alignof(T));
        else
            source::deallocate_by_default(p.get(), count, sizeof(T), alignof(T));
    }

    /// Whether each may free what the other allocated, that is, whether pool and stream are the same.
    friend bool operator==(allocator const& a, allocator const& b) noexcept {
        return a.pool() == b.pool() && a.stream() == b.stream();
    }
    friend bool operator!=(allocator const& a, allocator const& b) noexcept { return !(a == b); }
};

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

// Thrust's backends for the host write through a proxy reference only where it is named here, as its own ones are.
THRUST_NAMESPACE_BEGIN
namespace detail {
template <class Element, class Storage>
struct is_proxy_reference<weir::converting_reference<Element, Storage>> : std::true_type {};
} // namespace detail
THRUST_NAMESPACE_END
