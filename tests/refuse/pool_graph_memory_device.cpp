// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the pool slot of graph_memory needs 'int device() const'
#include <weir/graph/graph_memory.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/runtime/stream.hpp>

struct my_pool {
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
    static constexpr weir::memory_space space = weir::memory_space::device;
    static constexpr std::size_t default_alignment = 256;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = true;
    weir::memory_report state() const { return {}; }
    weir::text refusal(std::size_t, std::size_t) const { return "none"; }
#ifndef REJECT
    int device() const { return 0; }
#endif
};

void use(my_pool& pool, cudaStream_t stream) {
    weir::graph_memory<my_pool> memory(pool);
    memory.deallocate(stream, memory.allocate(stream, 1), 1);
}
