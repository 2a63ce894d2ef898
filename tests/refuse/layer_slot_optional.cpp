// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the pool slot's pool has 'owns', which must be 'bool owns(void const*) const'
// expect: weir: the pool slot's pool has 'trim', which must be 'std::size_t trim(std::size_t keep_bytes = 0)'
// expect: weir: the pool slot's pool has 'mark', so it needs 'void rewind(Mark const&)'
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
    weir::refusal refused(std::size_t, std::size_t) const { return {state(), "none"}; }
    int mark() { return 0; }
#ifdef REJECT
    void const* owns(void const* p) const { return p; }
    void trim(std::size_t = 0) {}
#else
    bool owns(void const*) const { return false; }
    std::size_t trim(std::size_t = 0) { return 0; }
    void rewind(int) {}
#endif
};

void use(weir::layer::statistics<my_pool>& pool) {
    pool.deallocate(weir::on_host, pool.allocate(weir::on_host, 1), 1);
}
