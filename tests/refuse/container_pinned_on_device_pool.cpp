// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the host touches this memory, and a device pool's is out of its reach; use a pinned or managed pool,
#include <weir/container/buffer.hpp>
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
using pool_type = any_pool<weir::memory_space::device>;
#else
using pool_type = any_pool<weir::memory_space::pinned>;
#endif

void use(pool_type& pool, cudaStream_t stream) {
    weir::pinned_buffer bytes(pool, stream, 10);
}
