// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every recipe does what every pool must do. A new recipe adds its name to the list. The same with NDEBUG, where recipes
// wear no guard: pool.ndebug.cpp.

#include "pool_subject.hpp"
#include <support/host_driver_pools.hpp>
#include <weir/recipes.hpp>

namespace pool_contract {

// Its frees give nothing back: scopes and 'clear' do.
template <>
struct subject<weir::frame_pool> {
    static constexpr std::size_t largest_bytes = SIZE_MAX;
    static constexpr std::size_t largest_alignment = SIZE_MAX / 2 + 1;
    static constexpr bool frees = false;
    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(weir::pool_options{}.limit(limit_bytes)) {}
    weir::frame_pool pool;
};

template <>
struct subject<weir::node_pool> {
    static constexpr std::size_t largest_bytes = 64;
    static constexpr std::size_t largest_alignment = 64;
    static constexpr bool frees = true;
    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(weir::pool_options{}.limit(limit_bytes)) {}
    weir::node_pool pool;
};

template <weir::memory_space Space>
struct subject<weir::driver_pool_of<Space>> {
    static constexpr std::size_t largest_bytes = SIZE_MAX;
    static constexpr std::size_t largest_alignment = 256;
    static constexpr bool frees = true;
    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(with_limit(limit_bytes)) {}
    weir::driver_pool_of<Space> pool;

private:
    static weir::driver_pool_options with_limit(std::size_t bytes) {
        weir::driver_pool_options options;
        options.limit(bytes);
        return options;
    }
};

#if CUDART_VERSION >= 13000
template <>
inline constexpr bool has_limit<weir::managed_driver_pool> = false; // CUDA has none for managed memory
#endif

} // namespace pool_contract

#define WEIR_TEST_POOLS                                                                                                \
    weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::pinned_pool, weir::managed_pool,   \
        weir::host_pool, weir::frame_pool, weir::node_pool, weir::driver_pool, SUPPORT_HOST_DRIVER_POOLS

#include "pool_suite.hpp"
