// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the pool slot of upstream::from_pool needs 'static constexpr std::size_t default_alignment', a power of two
#include <weir/resource/pool_base.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/upstream/from_pool.hpp>

struct my_pool : weir::resource::pool_base<my_pool> {
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {state(), "none"}; }
    static constexpr weir::memory_space space = weir::memory_space::device;
#ifndef REJECT
    static constexpr std::size_t default_alignment = 256;
#endif
};

void* use(my_pool& pool, cudaStream_t stream) {
    return weir::upstream::from_pool<my_pool>(pool, stream).acquire(1);
}
