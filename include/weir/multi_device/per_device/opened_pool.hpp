// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is the memory of a pool, whatever its type, opened to another device?
//
// A pool over upstream::virtual_memory shares the upstream with whoever has a copy of it, and a copy stays here. A pool with an
// 'enable_access_from' of its own (driver_pool) opens itself. All other memory is cudaMalloc's, which opens with
// cudaDeviceEnablePeerAccess, for the whole process, or memory that every device reaches.
//
// invariant: what is refused changes nothing.
// cost:      a copy of the upstream, which is a pointer.

#include <cuda_runtime_api.h>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/contract/holds.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device::detail {

struct no_upstream {};
template <class Upstream, class Placement, class Reuse, class Growth>
Upstream upstream_in(weir::pool<Upstream, Placement, Reuse, Growth> const*);
no_upstream upstream_in(void const*);

/// The upstream of a pool, or of the pool in a layer.
template <class Pool, class = void>
struct upstream_of {
    using type = decltype(detail::upstream_in(static_cast<Pool const*>(nullptr)));
};
template <class Layer>
struct upstream_of<Layer, std::void_t<typename Layer::pool_type>> : upstream_of<typename Layer::pool_type> {};

template <class Upstream>
constexpr bool tries_to_open() {
    constexpr auto call = [](auto& memory) -> std::void_t<decltype(memory.try_enable_access_from(0))> {};
    return contract::accepts<Upstream>(call);
}
template <class Pool>
constexpr bool opens_itself() {
    constexpr auto call = [](auto& pool) -> std::void_t<decltype(pool.enable_access_from(0))> {};
    return contract::accepts<Pool>(call);
}

/// A pool, and what opens it. `Options` name its device.
template <class Pool, class Options>
class opened_pool {
    using upstream = typename upstream_of<Pool>::type;
    using by_upstream = std::conjunction<std::bool_constant<detail::tries_to_open<upstream>()>,
                                         std::is_constructible<upstream, int>,
                                         std::is_constructible<Pool, upstream const&, Options const&>>;
    static constexpr bool by_itself = !by_upstream::value && detail::opens_itself<Pool>();

public:
    static constexpr bool can_open = by_upstream::value || by_itself;

    /// Throws what the pool's constructor throws.
    explicit opened_pool(Options const& options) : opened_pool(options, std::bool_constant<by_upstream::value>()) {}
    opened_pool(opened_pool const&) = delete;
    opened_pool& operator=(opened_pool const&) = delete;

    /// Opens it to another device, if that can be. Throws cuda_error for a failure that is no refusal, std::bad_alloc.
    void open_to(int device) {
        if constexpr (by_upstream::value)
            static_cast<void>(memory_.try_enable_access_from(device));
        else if constexpr (by_itself)
            if (runtime::can_reach(device, pool.device())) {
                opened_.reserve(opened_.size() + 1);
                try {
                    pool.enable_access_from(device);
                    opened_.push_back(device);
                } catch (cuda_error const& failed) {
                    if (!runtime::refuses_peers(static_cast<cudaError_t>(failed.code())))
                        throw;
                }
            }
    }
    /// Whether 'open_to' did so, and no later chunk was refused.
    bool is_open_to(int device) const noexcept {
        if constexpr (by_upstream::value) {
            return memory_.is_open_to(device);
        } else {
            for (int const each : opened_)
                if (each == device)
                    return true;
            return false;
        }
    }

private:
    opened_pool(Options const& options, std::true_type) : memory_(options.device()), pool(memory_, options) {}
    opened_pool(Options const& options, std::false_type) : pool(options) {}

    std::conditional_t<by_upstream::value, upstream, no_upstream> memory_;
    base::growing_array<int> opened_; // to whom, if it is opened by itself

public:
    Pool pool;
};

} // namespace multi_device::detail
} // namespace v0
} // namespace weir
