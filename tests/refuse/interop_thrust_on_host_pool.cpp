// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: this container's memory is used by kernels, and a host pool's is out of their reach; use a
// device, managed or pinned pool
#include <weir/interop/thrust.hpp>
#include <weir/resource/pool_base.hpp>

template <weir::memory_space Space>
struct any_pool : weir::resource::pool_base<any_pool<Space>> {
    static constexpr weir::memory_space space = Space;
    static constexpr std::size_t default_alignment = 256;
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {state(), {}}; }
};

#ifdef REJECT
using pool_type = any_pool<weir::memory_space::host>;
#else
using pool_type = any_pool<weir::memory_space::device>;
#endif

void use(pool_type& pool, cudaStream_t stream) {
    weir::interop::thrust::par(pool, stream);
}
