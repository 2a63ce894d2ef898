// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does an event say about where in the program an allocation was asked for?
//
// A policy of layer::record says it: 'site_of' gets the line that asks, as far as it is known, and returns the number of a
// frame (trace/name_table.hpp). By default that is the line alone. call_stacks (trace/call_stacks.hpp) also finds who called
// it, and whoever knows more of the program writes a policy of his own.
//
// invariant: 'site_of' throws nothing and is called by any thread, with no lock held; 0 is a place that is not known.
// cost:      that of the line; no memory in the layer.
// not for:   frees: they have no place.

#include <cstdint>
#include <weir/base/call_site.hpp>
#include <weir/trace/name_table.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// The line alone.
struct no_stacks {
    static std::uint32_t site_of(name_table& names, call_site const& where) noexcept { return names.number_of(where); }
};

} // namespace trace
} // namespace v0
} // namespace weir
