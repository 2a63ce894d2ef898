// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a program choose its pool by a name, such as one in its configuration file?
//
// 'make_pool' knows the recipes by the names of their types, without '_pool', and makes the one that is asked for:
//
//     weir::any_device_pool pool = weir::make_pool(config.pool, weir::pool_options{}.limit(8 * weir::GiB));
//
// 'make_pool' knows the pools whose memory kernels reach, and 'make_pool<memory_space::host>' those whose memory the host
// reaches. An unknown name is answered with those that there are.
//
// cost:      the code and the compile time of every recipe that is offered: 2 s, 7 s with -O2. So call it in one file.
// not for:   frame_pool and node_pool, which cannot stand in for another: the one needs scopes, the other has one size.

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/driver/driver_pool.hpp>
#include <weir/fwd.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/recipes.hpp>
#include <weir/resource/any_pool.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/pool_ref.hpp>

namespace weir {
inline namespace v0 {

namespace detail {

template <class Pool, memory_space Required>
any_pool<Required> pool_by_name(pool_options const& options) {
    if constexpr (std::is_constructible_v<Pool, pool_options>)
        return any_pool<Required>(std::in_place_type<Pool>, options);
    else
        return any_pool<Required>(std::in_place_type<Pool>, driver_pool_options{}
                                                                .name(options.name())
                                                                .device(options.device())
                                                                .limit(options.limit_bytes())
                                                                .reserve(options.reserve_bytes())
                                                                .on_leak(options.on_leak()));
}

template <memory_space Required>
struct named_pool {
    char const* name;
    any_pool<Required> (*make)(pool_options const& options); // null: its memory is out of reach
};

template <class Pool, memory_space Required>
constexpr named_pool<Required> named(char const* name) {
    if constexpr (resource::reaches(Pool::space, Required))
        return {name, &pool_by_name<Pool, Required>};
    else
        return {name, nullptr};
}

template <memory_space Required, bool Guarded>
inline constexpr named_pool<Required> named_pools[] = {
    named<recipes::pool_of<recipes::device, Guarded>, Required>("device"),
    named<recipes::pool_of<recipes::promised_device, Guarded>, Required>("promised_device"),
    named<recipes::pool_of<recipes::compact_device, Guarded>, Required>("compact_device"),
    named<recipes::pool_of<recipes::pinned, Guarded>, Required>("pinned"),
    named<recipes::pool_of<recipes::managed, Guarded>, Required>("managed"),
    named<layer::synchronized<recipes::pool_of<recipes::host, Guarded>>, Required>("host"),
    named<driver_pool, Required>("driver"),
    named<pinned_driver_pool, Required>("pinned_driver"),
#if CUDART_VERSION >= 13000
    named<managed_driver_pool, Required>("managed_driver"),
#endif
};

} // namespace detail

/// The names that 'make_pool' knows, with ', ' between them. Throws std::bad_alloc.
template <memory_space Required = memory_space::device, bool Guarded = WEIR_GUARD>
text pool_names() {
    text names;
    for (detail::named_pool<Required> const& each : detail::named_pools<Required, Guarded>)
        if (each.make)
            names = names + (names.empty() ? "" : ", ") + each.name;
    return names;
}

/// A pool of the recipe of that name: make_pool("device") holds a device_pool. Its memory is usable wherever memory of space
/// `Required` is. host_pool, which is for one thread, is made with layer::synchronized. CUDA's own pools are told
/// the name, device, limit, reserve and on_leak of the options, and their constructors refuse what they cannot keep, such as a
/// limit of a managed_driver_pool. Throws usage_error, with the names that there are, if it knows none of this name; what the
/// pool's constructor throws; std::bad_alloc.
template <memory_space Required = memory_space::device, bool Guarded = WEIR_GUARD>
any_pool<Required> make_pool(text const& name, pool_options const& options = {}) {
    for (detail::named_pool<Required> const& each : detail::named_pools<Required, Guarded>)
        if (each.make && name == each.name)
            return each.make(options);
    throw usage_error(text("weir: no pool of memory that ") +
                      (Required == memory_space::host     ? "the host reaches"
                       : Required == memory_space::device ? "kernels reach"
                                                          : "kernels and the host reach") +
                      " is called '" + name.c_str() +
                      (std::strlen(name.c_str()) == name.size() ? "'" : "' with a zero character and more") +
                      "; there are: " + pool_names<Required, Guarded>());
}

} // namespace v0
} // namespace weir
