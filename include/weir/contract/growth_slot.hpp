// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a growth policy have to fit its slot, and what may it have besides?
//
// optional:  Growth in place, by 'piece': the size of the chunks that it is cut into, for upstreams that can grow in place.
//            'moved_percent': each time that more than this share of the held bytes was moved, the
//            pool may hold more beyond what is in use (supply/slack.hpp).
//            'apart': the policy to use on a device that cannot grow in place.
// cost:      compile time only.
// not for:   upstreams: they say themselves whether they grow in place, see upstream_slot.hpp.

#include <cstddef>
#include <utility>
#include <weir/base/hole_watch.hpp>
#include <weir/contract/holds.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

template <class G>
using has_next = decltype(G::next(std::size_t{}, std::size_t{}));
template <class G, class... Holes>
using has_piece = decltype(G::piece(std::size_t{}, std::declval<Holes>()...));

/// Checks a part for the growth slot.
template <class G>
constexpr bool require_growth() {
    static_assert(
        returns<std::size_t, has_next, G>,
        "weir: the growth slot needs 'static std::size_t next(std::size_t needed_bytes, std::size_t "
        "reserved_bytes)'; weir's own policies are in <weir/growth/...>, the default one in <weir/growth/geometric.hpp>");
    static_assert(absent_or<std::size_t, has_piece, G, base::holes>,
                  "weir: the growth slot's policy has 'piece', which must be 'static std::size_t piece(std::size_t "
                  "reserved_bytes, weir::base::holes)'");
    if constexpr (holds<has_piece, G, base::holes>) {
        constexpr auto in_place = [](auto const& g)
            -> when<all_are<unsigned const, decltype(std::decay_t<decltype(g)>::moved_percent)> &&
                        (std::decay_t<decltype(g)>::moved_percent > 0),
                    std::void_t<typename std::decay_t<decltype(g)>::apart>> {};
        static_assert(accepts<G>(in_place),
                      "weir: the growth slot's policy has 'piece', so it needs 'static constexpr unsigned moved_percent' of at "
                      "least 1 (see growth::by_holes) and a policy 'apart' for devices that cannot grow in place");
        if constexpr (accepts<G>(in_place))
            static_assert(require_growth<typename G::apart>());
    }
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
