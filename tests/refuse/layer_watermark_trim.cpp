// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: layer::watermark needs a pool with 'std::size_t trim(std::size_t keep_bytes)', the bytes given back, and
// 'std::size_t reserved_bytes() const'
#include <weir/layer/watermark.hpp>

struct my_pool {
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
    weir::memory_report state() const { return {}; }
    weir::text refusal(std::size_t, std::size_t) const { return "none"; }
#ifndef REJECT
    std::size_t trim(std::size_t = 0) { return 0; }
#else
    std::size_t trim() { return 0; }
#endif
    std::size_t reserved_bytes() const { return 0; }
    static constexpr weir::memory_space space = weir::memory_space::host;
    static constexpr std::size_t default_alignment = 16;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = false;
};

void use(weir::layer::watermark<my_pool>& pool) {
    pool.deallocate(weir::on_host, pool.try_allocate(weir::on_host, 1), 1);
}
