// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which buffer leaves the device first?
//
// A policy compares two buffers, either of which may leave, and says whether the first is the better victim. Any
// 'bool operator()(spill_candidate const& a, spill_candidate const& b) const' is a policy; it must be a strict order, and it
// is called with locks held: it computes, and calls nothing.
//
// least_recently_used  the one whose last access is longest ago (the default)
// by_cost_and_size     the one that frees much for little: dynamic tensor rematerialization (Kirisame et al., 2021)
// by_next_use          the one that is needed again last: an optimal choice where uses are known (Belady, 1966)
//
// cost:      a few instructions; a set compares all of its buffers for each victim.
// not for:   whether a buffer may leave: those that are accessed never do.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// No next use was declared.
inline constexpr std::uint64_t no_next_use = UINT64_MAX;

/// A buffer that may leave.
struct spill_candidate {
    std::size_t bytes;
    std::uint64_t idle;     ///< how many accesses the set has seen since the last one of this buffer
    std::uint64_t next_use; ///< as 'spillable::next_use' declared it; no_next_use: never, as far as is known
    double cost;            ///< of having it again, as 'spillable::cost' declared it; otherwise its bytes
    bool needs_copy;        ///< the host has no copy that is up to date, and nothing computes it again
};

/// The buffer whose last access is longest ago leaves first.
struct least_recently_used {
    bool operator()(spill_candidate const& a, spill_candidate const& b) const noexcept { return a.idle > b.idle; }
};

/// The buffer leaves first that costs least for each byte and each access that it has waited. Declare costs in one unit, such
/// as the bytes that the link would carry in that time.
struct by_cost_and_size {
    bool operator()(spill_candidate const& a, spill_candidate const& b) const noexcept {
        return a.cost * weight(b) < b.cost * weight(a);
    }

private:
    static double weight(spill_candidate const& of) noexcept {
        return static_cast<double>(of.bytes) * (static_cast<double>(of.idle) + 1);
    }
};

/// The buffer with the greatest declared number leaves first; before all, those that declared none. Of two that are equal, the
/// one that was used longer ago.
struct by_next_use {
    bool operator()(spill_candidate const& a, spill_candidate const& b) const noexcept {
        return a.next_use != b.next_use ? a.next_use > b.next_use : a.idle > b.idle;
    }
};

namespace detail {

template <class Victims, class = void>
inline constexpr bool chooses_victims = false;
template <class Victims>
inline constexpr bool chooses_victims<Victims, std::enable_if_t<std::is_same_v<
    decltype(std::declval<Victims const&>()(std::declval<spill_candidate const&>(), std::declval<spill_candidate const&>())),
    bool>>> = true;

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
