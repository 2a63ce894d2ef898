// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the pool slot of a layer needs 'weir::memory_report state() const' and 'weir::refusal refused(std::size_t bytes,
// std::size_t alignment) const', which out_of_memory says
#include <weir/layer/statistics.hpp>
#include <weir/runtime/stream.hpp>

struct my_pool : weir::resource::pool_base<my_pool> {
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
    static constexpr weir::memory_space space = weir::memory_space::host;
    static constexpr std::size_t default_alignment = 16;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = false;
    weir::memory_report state() const { return {}; }
#ifndef REJECT
    weir::refusal refused(std::size_t, std::size_t) const { return {state(), "none"}; }
#endif
};

void use(weir::layer::statistics<my_pool>& pool) {
    pool.deallocate(weir::on_host, pool.allocate(weir::on_host, 1), 1);
}
