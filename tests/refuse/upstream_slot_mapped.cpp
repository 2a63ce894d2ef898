// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the upstream slot's upstream has 'extends', so it needs all that mapped memory can do: 'bool extends() const
// noexcept', whether it can on its device; 'void* acquire(std::size_t bytes, std::size_t piece_bytes)'; 'bool extend(void* end,
// std::size_t bytes, std::size_t piece_bytes)'; 'bool move(void* chunk, std::size_t bytes, void* end) noexcept', false where the
// chunk is where it was
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>

struct my_upstream {
    void* acquire(std::size_t) { return nullptr; }
    void* acquire(std::size_t, std::size_t) { return nullptr; }
    void release(void*, std::size_t) noexcept {}
    bool extends() const noexcept { return false; }
    bool extend(void*, std::size_t, std::size_t) { return false; }
#ifdef REJECT
    bool move(void*, std::size_t, void*) { return false; } // may throw
#else
    bool move(void*, std::size_t, void*) noexcept { return false; }
#endif
    void wait_before_unmapping() noexcept {}
    bool withdraw(void*, std::size_t) noexcept { return false; }
    bool restore(void*, std::size_t) { return false; }
    bool clear(void*, std::size_t) noexcept { return false; }
    void abandon(void*, std::size_t) noexcept {}
    std::size_t addresses_behind(void const*) const noexcept { return 0; }
    bool out_of_addresses() const noexcept { return false; }
    static constexpr std::size_t alignment = 256;
    static constexpr std::size_t granularity = 2 << 20;
    static constexpr weir::memory_space space = weir::memory_space::host;
};

void use() {
    weir::pool<my_upstream, weir::placement::best_fit<>, weir::reuse::immediate, weir::growth::paged<>> pool;
    pool.settle();
}
