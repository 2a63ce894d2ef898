// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the pool slot of a layer needs 'static constexpr bool' members 'thread_safe' and 'stream_ordered'
#include <weir/layer/statistics.hpp>
#include <weir/runtime/stream.hpp>

struct my_pool : weir::resource::pool_base<my_pool> {
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {state(), "none"}; }
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
    static constexpr weir::memory_space space = weir::memory_space::host;
    static constexpr std::size_t default_alignment = 16;
#ifdef REJECT
    static bool thread_safe; // not at compile time
#else
    static constexpr bool thread_safe = false;
#endif
    static constexpr bool stream_ordered = false;
};

void use(weir::layer::statistics<my_pool>& pool) {
    pool.deallocate(weir::on_host, pool.try_allocate(weir::on_host, 1), 1);
}
