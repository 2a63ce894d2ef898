// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the pool slot needs a pool that is derived from 'weir::resource::pool_base<my_pool>', which has 'allocate' and all
// else that a pool may leave out
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

struct bare_pool {
    static constexpr weir::memory_space space = weir::memory_space::device;
    static constexpr std::size_t default_alignment = 256;
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
};

#ifdef REJECT
using pool_type = bare_pool;
#else
using pool_type = any_pool<weir::memory_space::device>;
#endif

void use(pool_type& pool, cudaStream_t stream) {
    weir::device_buffer bytes(pool, stream, 10);
}
