// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the device convert a row of numbers while it sends them to the host?
//
// 'converting_kernel' is what 'copy_stored_to_host_async' asks for. Each thread reads as many elements as 16 bytes hold in
// stored form, converts them in registers and writes them with one store: the link wants large ones. The target is page-locked
// memory, to which the kernel writes over the link, so there is no second copy and no memory of the device is needed. As the
// link is the narrow place, a part of the device suffices, and other kernels run beside it.
//
//     staging::copy_stored_to_host_async(ring, stream, halves_of_the_host, floats_of_the_device, count, converting_kernel{});
//
// order:     on the stream.
// cost:      a launch, then the time of the link for the bytes as stored.
// not for:   compilers other than nvcc: there any callable that enqueues such a kernel does. (On the simulated device the
//            kernel is launched, but has no body, so that a test gives it a stand-in.)

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <weir/converting/converting_view.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace converting {
namespace detail {

/// `Count` values that one access moves.
template <class T, unsigned Count>
struct alignas(sizeof(T) * Count < 16 ? sizeof(T) * Count : 16) packet {
    T values[Count];
};

template <unsigned Count, class Element, class Storage>
__global__ void store_packets(converting_view<Element, Storage> to, Element const* from) {
#ifdef __CUDACC__
    std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x, packets = to.size() / Count;
    std::size_t const mine = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    auto* const stored = reinterpret_cast<packet<Storage, Count>*>(to.data());
    auto const* const elements = reinterpret_cast<packet<Element, Count> const*>(from);
    for (std::size_t i = mine; i < packets; i += step) {
        packet<Element, Count> const read = elements[i];
        packet<Storage, Count> written;
#pragma unroll
        for (unsigned k = 0; k != Count; ++k)
            written.values[k] = detail::stored_as<Element, Storage>::storage(read.values[k], to.scale());
        stored[i] = written;
    }
    for (std::size_t i = packets * Count + mine; i < to.size(); i += step)
        to[i] = from[i];
#else
    static_cast<void>(to), static_cast<void>(from);
#endif
}

} // namespace detail

/// Stores the elements at an address of the device as the numbers of a view, memory that the device reaches.
struct converting_kernel {
    unsigned blocks = 64;   ///< at most. More: what a link of higher speed needs. Less: more of the device is left to others
    unsigned threads = 256; ///< of a block

    /// Enqueues the kernel. Waits only while the stream's queue is full. Throws cuda_error.
    template <class Element, class Storage>
    void operator()(stream_ref stream, converting_view<Element, Storage> to, Element const* from) const {
#if !defined(__CUDACC__) && !defined(WEIR_SIMULATED_CUDA)
        static_assert(sizeof(Element) == 0, "weir: a kernel is compiled by nvcc; put the call into a file that ends in '.cu'");
#endif
        constexpr unsigned most = sizeof(Storage) < 16 ? 16 / sizeof(Storage) : 1;
        bool const aligned = (reinterpret_cast<std::uintptr_t>(to.data()) | reinterpret_cast<std::uintptr_t>(from)) % 16 == 0;
        std::size_t const wanted = (to.size() / (aligned ? most : 1) + threads - 1) / threads;
        unsigned const grid = wanted < 1 ? 1 : wanted < blocks ? static_cast<unsigned>(wanted) : blocks;
        auto* const kernel =
            aligned ? &detail::store_packets<most, Element, Storage> : &detail::store_packets<1, Element, Storage>;
        void* arguments[] = {&to, &from};
        check_cuda(cudaLaunchKernel(reinterpret_cast<void const*>(kernel), dim3(grid), dim3(threads), arguments, 0,
                                    stream.get()),
              "cudaLaunchKernel");
    }
};

} // namespace converting
} // namespace v0
} // namespace weir
