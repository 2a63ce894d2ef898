// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the upstream slot's upstream has 'device_number', which must be 'int device_number() const'
// expect: weir: the upstream slot's upstream has 'usual_alignment', which must be a power of two
// expect: weir: the upstream slot's upstream has 'extends', which must be 'bool extends() const noexcept', whether it can on its device
// expect: weir: the upstream slot's upstream has 'withdraw', so it needs 'bool withdraw(void* chunk, std::size_t bytes)
// noexcept', 'bool restore(void* chunk, std::size_t bytes)' and 'void abandon(void* chunk, std::size_t bytes) noexcept'
#include <weir/base/memory_space.hpp>
#include <weir/contract/upstream_slot.hpp>

struct my_upstream {
    static constexpr std::size_t alignment = 256;
    static constexpr weir::memory_space space = weir::memory_space::device;
    void* acquire(std::size_t) { return nullptr; }
    void* acquire(std::size_t, std::size_t) { return nullptr; }
    void release(void*, std::size_t) noexcept {}
    bool extend(void*, std::size_t, std::size_t) { return false; }
    bool move(void*, std::size_t, void*) noexcept { return false; }
    void wait_before_unmapping() noexcept {}
    bool withdraw(void*, std::size_t) noexcept { return false; }
    bool restore(void*, std::size_t) { return false; }
#ifdef REJECT
    unsigned device_number() const { return 0; }
    static constexpr std::size_t usual_alignment = 3000;
    bool extends() const { return true; } // may throw
#else
    int device_number() const { return 0; }
    static constexpr std::size_t usual_alignment = 4096;
    bool extends() const noexcept { return true; }
    void abandon(void*, std::size_t) noexcept {}
#endif
};

static_assert(weir::contract::require_upstream<my_upstream>());
