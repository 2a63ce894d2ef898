// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a growth policy have to fit its slot, and what may it have besides?
//
// optional:  'piece': the size of the chunks that growth in place is cut into, for upstreams that can grow in place.
//            'moved_percent' (needed with 'piece'): each time that more than this share of the held bytes was moved, the
//            pool may hold more beyond what is in use (pool/pool/slack.hpp).
//            'apart' (needed with 'piece'): the policy to use on a device that cannot grow in place.
// cost:      compile time only.
// not for:   upstreams: they say themselves whether they grow in place, see upstream_slot.hpp.

#include <cstddef>
#include <type_traits>
#include <weir/base/hole_watch.hpp>
#include <weir/contract/holds.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

template <class G>
using cuts_pieces = when<std::is_same_v<decltype(G::piece(std::size_t{}, base::holes{})), std::size_t> &&
                         std::is_same_v<decltype(G::moved_percent), unsigned const> && (G::moved_percent > 0) &&
                         std::is_same_v<decltype(G::apart::next(std::size_t{}, std::size_t{})), std::size_t>>;
template <class G>
using has_piece = decltype(&G::piece);
template <class G>
using grows = when<std::is_same_v<decltype(G::next(std::size_t{}, std::size_t{})), std::size_t>>;

/// Checks a part for the growth slot.
template <class G>
constexpr bool require_growth() {
    static_assert(
        holds<grows, G>,
        "weir: the growth slot needs 'static std::size_t next(std::size_t needed_bytes, std::size_t "
        "reserved_bytes)'; weir's own policies are in <weir/growth/...>, the default one in <weir/growth/geometric.hpp>");
    static_assert(!holds<has_piece, G> || holds<cuts_pieces, G>,
                  "weir: the growth slot's policy has 'piece', which must be 'static std::size_t piece(std::size_t "
                  "reserved_bytes, weir::base::holes)', beside 'static constexpr unsigned moved_percent' of at least 1 (see "
                  "growth::by_holes) and a policy 'apart' for devices that cannot grow in place");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
