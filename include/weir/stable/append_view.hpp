// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do many threads of a kernel add elements to a vector at the same time?
//
// Through a view with an end of its own, which they move on with atomic additions. What finds room gets a place, and what does
// not is counted all the same: so the host learns how much room it takes, makes it, and launches the kernel again. On the
// device the threads of a warp that add at the same time move the end with one atomic addition. A thread of the host moves it
// alone; that is how such code is tested without a GPU.
//
//     __global__ void keep_large(float const* xs, int n, weir::stable::append_view<float> kept) {
//         int const i = blockIdx.x * blockDim.x + threadIdx.x;
//         if (i < n && xs[i] > 1)
//             kept.push(xs[i]);
//     }
//
// invariant: no two calls get the same place; places are side by side. The end is where it was, plus all that was asked for. At
//            2^63 it stays, however much is asked for then, so it never comes round to places that were given out.
// invariant: where the vector has ended, or in debug builds (WEIR_GUARD) the append_end, the end is at 'gone' or beyond it as
//            long as nobody else has got its 8 bytes. So there is no room, and in debug builds the call says so: on the host it
//            ends the program by std::abort, on the device it prints the sentence and traps.
// order:     none between the threads; who reads the elements comes after the kernel in a stream's order.
// cost:      device: an atomic addition a warp and call; host: one each call. Debug builds: a compare each.
// not for:   growing: a view has the room that the vector had as it was made (see append_end).

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <weir/fwd.hpp>

#ifdef __CUDACC__
#define WEIR_HOST_DEVICE __host__ __device__
#else
#define WEIR_HOST_DEVICE
#endif

namespace weir {
inline namespace v0 {
namespace stable {

/// A place where threads add elements. Trivially copyable: pass it to kernels by value.
template <class T>
class append_view {
public:
    /// `data`: of the elements; `capacity`: how many there can be; `end`: how many there are, which the threads move on. Both
    /// addresses must be reachable where the view is used.
    WEIR_HOST_DEVICE append_view(T* data, std::size_t capacity, unsigned long long* end)
        : data_(data), end_(end), capacity_(capacity) {}

    /// Takes a place for one element, and returns its address; null if there is no room.
    WEIR_HOST_DEVICE T* take() const { return at(advance()); }

    /// Takes `count` places side by side, and returns the first one's address; null if there is no room for all. Those before
    /// the capacity stay empty then. No places: the address where the next one would be.
    WEIR_HOST_DEVICE T* take(std::size_t count) const {
        unsigned long long const first = count <= most_at_once ? add_below_full(count) : add_many(count);
        require_lives(first);
        return first <= capacity_ && count <= capacity_ - first ? data_ + first : nullptr;
    }

    /// Adds an element. False if there is no room; it is counted all the same.
    WEIR_HOST_DEVICE bool push(T const& value) const {
        T* const place = take();
        if (place)
            *place = value;
        return place != nullptr;
    }

    /// The address of the first element, for how many there is room, and the address of the end.
    WEIR_HOST_DEVICE T* data() const { return data_; }
    WEIR_HOST_DEVICE std::size_t capacity() const { return capacity_; }
    WEIR_HOST_DEVICE unsigned long long* end() const { return end_; }

    /// What append_end makes the end where elements may no longer be added, since the vector is gone, or the append_end is.
    static constexpr unsigned long long gone = 3ull << 62;

private:
    WEIR_HOST_DEVICE T* at(unsigned long long place) const {
        require_lives(place);
        return place < capacity_ ? data_ + place : nullptr;
    }

    WEIR_HOST_DEVICE void require_lives([[maybe_unused]] unsigned long long place) const {
#if WEIR_GUARD
        if (place < gone)
            return;
        char const* const sentence = "weir: an append_view is used after its vector or its append_end has ended, or the vector "
                                     "was moved from; both must stay until the work that appends is over\n";
#ifdef __CUDA_ARCH__
        printf("%s", sentence);
        __trap();
#else
        std::fputs(sentence, stderr);
        std::abort();
#endif
#endif
    }

    // Where the end stays. Beyond it are only additions that are taken back at once, less than 2^31 of them.
    static constexpr unsigned long long full = 1ull << 63;
    static constexpr unsigned long long most_at_once = 1ull << 32;

    WEIR_HOST_DEVICE unsigned long long add_below_full(unsigned long long count) const {
        unsigned long long const first = add(count);
        if (first >= full)
            add(0 - count);
        return first;
    }

    // The same for counts of which a few would go round.
    WEIR_HOST_DEVICE unsigned long long add_many(unsigned long long count) const {
        unsigned long long first = add(0), seen = full;
        while (first != seen && first < full) {
            seen = first;
            first = exchange(seen, count < full - seen ? seen + count : full);
        }
        return first;
    }

    // Makes the end `to` if it is `from`. Returns what it was.
    WEIR_HOST_DEVICE unsigned long long exchange(unsigned long long from, unsigned long long to) const {
#ifdef __CUDA_ARCH__
        return atomicCAS(end_, from, to);
#else
        __atomic_compare_exchange_n(end_, &from, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        return from;
#endif
    }

    WEIR_HOST_DEVICE unsigned long long add(unsigned long long count) const {
#ifdef __CUDA_ARCH__
        return atomicAdd(end_, count);
#else
        return __atomic_fetch_add(end_, count, __ATOMIC_RELAXED);
#endif
    }

    // Moves the end by one. The threads of a warp that are here together share one addition.
    WEIR_HOST_DEVICE unsigned long long advance() const {
#ifdef __CUDA_ARCH__
        unsigned const here = __activemask();
        unsigned lower = 0;
        asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lower));
        unsigned long long first = 0;
        if ((here & lower) == 0)
            first = add(static_cast<unsigned>(__popc(here)));
        return __shfl_sync(here, first, __ffs(here) - 1) + static_cast<unsigned>(__popc(here & lower));
#else
        return add(1);
#endif
    }

    T* data_;
    unsigned long long* end_;
    std::size_t capacity_;
};

} // namespace stable
} // namespace v0
} // namespace weir
