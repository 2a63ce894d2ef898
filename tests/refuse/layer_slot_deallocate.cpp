// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the pool slot needs 'void deallocate(stream_ref, void*, std::size_t bytes, std::size_t alignment) noexcept'
#include <weir/layer/statistics.hpp>
#include <weir/runtime/stream.hpp>

struct my_pool : weir::resource::pool_base<my_pool> {
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {state(), "none"}; }
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
#ifdef REJECT
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) {} // may throw
#else
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
#endif
    static constexpr weir::memory_space space = weir::memory_space::host;
    static constexpr std::size_t default_alignment = 16;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = false;
};

void use(weir::layer::statistics<my_pool>& pool) {
    pool.deallocate(weir::on_host, pool.try_allocate(weir::on_host, 1), 1);
}
