// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does work use only the blocks that a pool has handed out, and only while they are handed out?
//
// The simulated device knows by itself what the driver handed out, and that is a pool's chunks. This layer tells it of each
// block, so that it also reports a write beyond a block, a use after the block's free, a free that does not come after the
// block's use on another stream (a forgotten 'used_on'), and bytes that the pool hands out while work of their former life
// may be under way.
//
//     simulated_device::watched<weir::device_pool> pool{weir::pool_options{}.name("cache")};
//
// What is judged is what the device sees: copies, memsets, stand-ins of kernels and 'launch'.
//
// invariant: a free is told before the pool hears of it and a hand-out after, so that bytes never have two owners.
// cost:      some microseconds a call.
// not for:   the driver's own pools and blocks of their graphs, of which the device knows by itself, and the host's heap: there
//            it says nothing. What 'clear' or a scope ends without a free: that it would take for live.

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/stream.hpp>

#include "control.hpp"

namespace simulated_device {

namespace detail {

template <class Pool>
using cuda_pool = decltype(std::declval<Pool&>().get());
template <class Pool>
using wrapped_pool = typename Pool::pool_type;
template <class Pool>
using second_pool = std::decay_t<decltype(std::declval<Pool&>().second())>;

} // namespace detail

/// Whether the device has to be told of the blocks of `Pool`: a pool on chunks of CUDA's, or a layer around such pools.
template <class Pool>
constexpr bool is_noted() {
    namespace contract = weir::contract;
    if constexpr (contract::holds<detail::wrapped_pool, Pool>)
        return is_noted<typename Pool::pool_type>();
    else if constexpr (contract::holds<detail::second_pool, Pool>)
        return is_noted<std::decay_t<decltype(std::declval<Pool&>().first())>>() && is_noted<detail::second_pool<Pool>>();
    else
        return weir::base::device_accessible(Pool::space) && !contract::holds<detail::cuda_pool, Pool>;
}

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class watched : public weir::resource::layered<watched<Pool>, Pool> {
    using wrapper = weir::resource::layered<watched<Pool>, Pool>;

public:
    /// `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit watched(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    watched() : wrapper(std::in_place) {}

    /// As the wrapped pool's.
    [[nodiscard]] void* try_allocate(weir::stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        void* const p = this->pool_.try_allocate(stream, bytes, alignment);
        if (p && is_noted<std::remove_reference_t<Pool>>()) {
            if (stream.is_host())
                note_allocate_host(p, bytes);
            else
                note_allocate(p, bytes, stream_name(stream.get(), device_of(p)));
        }
        return p;
    }

    /// As the wrapped pool's.
    void deallocate(weir::stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (p && is_noted<std::remove_reference_t<Pool>>()) {
            if (stream.is_host()) {
                note_free_host(p, bytes);
            } else {
                if (weir::runtime::is_default_stream(stream.get())) // the current device's is meant as well
                    note_last_used_on(p, stream.get());
                note_checked_free(p, bytes, stream_name(stream.get(), device_of(p)));
            }
        }
        this->pool_.deallocate(stream, p, bytes, alignment);
    }

    /// As the wrapped pool's.
    template <class Stream, class P = typename wrapper::pool_type> // inlined because of null streams: see weir::resource
    [[gnu::always_inline]] auto used_on(void* p, Stream const& stream) -> decltype(std::declval<P&>().used_on(p, stream)) {
        weir::stream_ref const on = stream;
        this->pool_.used_on(p, on);
        if (is_noted<P>() && !on.is_host())
            note_used_on(p, on.get());
    }
    template <class Stream, class P = typename wrapper::pool_type>
    [[gnu::always_inline]] auto last_used_on(void* p, Stream const& stream)
        -> decltype(std::declval<P&>().last_used_on(p, stream)) {
        weir::stream_ref const on = stream;
        this->pool_.last_used_on(p, on);
        if (is_noted<P>() && !on.is_host())
            note_last_used_on(p, on.get());
    }

    /// As the wrapped pool's, whose copies are its own: it saves what it holds, and not what it has handed out.
    template <class... Keep, class P = typename wrapper::pool_type>
    auto suspend(Keep&&... keep) -> decltype(std::declval<P&>().suspend(std::forward<Keep>(keep)...)) {
        housekeeping const own;
        return this->pool_.suspend(std::forward<Keep>(keep)...);
    }
    template <class Keep, class P = typename wrapper::pool_type>
    auto suspend(Keep&& keep, std::initializer_list<weir::live_block> wanted)
        -> decltype(std::declval<P&>().suspend(std::forward<Keep>(keep), wanted)) {
        housekeeping const own;
        return this->pool_.suspend(std::forward<Keep>(keep), wanted);
    }
    /// As the wrapped pool's.
    template <class P = typename wrapper::pool_type>
    auto try_resume() -> decltype(std::declval<P&>().try_resume()) {
        housekeeping const own;
        return this->pool_.try_resume();
    }
};

} // namespace simulated_device
