// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does what was written for thrust::mr allocate from a pool?
//
// thrust::mr has resources of its own: a base class with virtual members, which know bytes and an alignment but no stream. A
// 'basic_memory_resource' is one that stands for a pool and a stream. Thrust's containers take it through
// thrust::mr::allocator, and Thrust's own pools can stand on it.
//
// invariant: resources are equal only to themselves, as in Thrust; it and the pool outlive their memory.
// order:     as an allocator of interop/thrust.hpp: memory is for the stream and the default stream, and for the host if it
//            reaches the memory; a free comes after the work that both have by then.
// cost:      a virtual call, and what the allocator costs.
// not for:   CCCL's cuda::mr, whose resources know streams: see interop/cuda_mr.hpp.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <thrust/device_ptr.h>
#include <thrust/mr/memory_resource.h>
#include <thrust/universal_ptr.h>
#include <weir/base/memory_space.hpp>
#include <weir/interop/thrust/source.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace thrust {

/// A resource of thrust::mr with memory of a pool whose memory is used where memory of space `Reach` is. Any thread may call
/// any member if the pool is thread-safe.
template <class Pointer, memory_space Reach>
class basic_memory_resource : public ::thrust::mr::memory_resource<Pointer>, public detail::source<Reach> {
public:
    /// Memory of `pool`, for use on `stream` and on the default stream. Leave `by_default` out: it is then the stream that a
    /// null stream means in your file. Throws usage_error as an allocator of interop/thrust.hpp does.
    basic_memory_resource(pool_ref<Reach> pool, stream_ref stream, stream_ref by_default = cudaStream_t{})
        : detail::source<Reach>(pool, stream, by_default) {}

    using ::thrust::mr::memory_resource<Pointer>::allocate;
    using ::thrust::mr::memory_resource<Pointer>::deallocate;

    Pointer do_allocate(std::size_t bytes, std::size_t alignment) override {
        return Pointer(this->allocate_for_container(bytes, alignment));
    }
    void do_deallocate(Pointer p, std::size_t bytes, std::size_t alignment) override {
        this->deallocate_for_container(::thrust::raw_pointer_cast(p), bytes, alignment);
    }
};

/// Of a device, managed or pinned pool; for a thrust::device_vector<T, thrust::mr::allocator<T, memory_resource>>.
using memory_resource = basic_memory_resource<::thrust::device_ptr<void>, memory_space::device>;
/// Of a managed or pinned pool; for a thrust::universal_vector.
using universal_memory_resource = basic_memory_resource<::thrust::universal_ptr<void>, memory_space::pinned>;
/// Of a pinned or managed pool; for a thrust::host_vector.
using pinned_memory_resource = basic_memory_resource<void*, memory_space::pinned>;

} // namespace thrust
} // namespace interop
} // namespace v0
} // namespace weir
