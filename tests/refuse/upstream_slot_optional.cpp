// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the upstream slot's upstream has 'device_number', which must be 'int device_number() const'
// expect: weir: the upstream slot's upstream has 'usual_alignment', which must be a power of two
#include <weir/base/memory_space.hpp>
#include <weir/contract/upstream_slot.hpp>

struct my_upstream {
    static constexpr std::size_t alignment = 256;
    static constexpr weir::memory_space space = weir::memory_space::device;
    void* acquire(std::size_t) { return nullptr; }
    void release(void*, std::size_t) noexcept {}
#ifdef REJECT
    unsigned device_number() const { return 0; }
    static constexpr std::size_t usual_alignment = 3000;
#else
    int device_number() const { return 0; }
    static constexpr std::size_t usual_alignment = 4096;
#endif
};

static_assert(weir::contract::require_upstream<my_upstream>());
