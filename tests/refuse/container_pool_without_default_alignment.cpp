// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container's pool needs 'static constexpr std::size_t default_alignment'
#include <weir/container/buffer.hpp>
#include <weir/resource/pool_base.hpp>

struct pool_type : weir::resource::pool_base<pool_type> {
    static constexpr weir::memory_space space = weir::memory_space::device;
#ifndef REJECT
    static constexpr std::size_t default_alignment = 256;
#endif
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) {
        return nullptr;
    }
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {state(), "none"}; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
};

void use(pool_type& pool, cudaStream_t stream) {
    weir::device_buffer bytes(pool, stream, 10);
}
