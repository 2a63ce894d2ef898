// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool if the program's memory is to be recorded, with what the pool itself does for it?
//
// It is device_pool: layer::record around it writes down the calls, inside it upstream::recorded the chunks, and
// reuse::recorded what goes from one stream to another. layer::record is also around the guard, since only the outermost layer
// knows the lines; so a wrong free is recorded as the program made it.
//
//     weir::recorded_device_pool_with<weir::trace::call_stacks<>> pool(tape); // whole stacks: <weir/trace/call_stacks.hpp>
//
// order:     as device_pool.
// cost:      off: a load and a branch a call; on: see trace/recorder.hpp.
// not for:   a pool that is there already: wrap layer::record around it.

#include <type_traits>
#include <weir/fwd.hpp>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/record.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes/general_placement.hpp>
#include <weir/recipes/pool_of.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/reuse/recorded_rule.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/upstream/recorded.hpp>
#include <weir/upstream/virtual_memory.hpp>

namespace weir {
inline namespace v0 {

namespace recipes {
using recorded_parts = pool<upstream::recorded<upstream::virtual_memory<>>, general_placement,
                            reuse::recorded<reuse::stream_ordered<>>, growth::by_holes<>>;

/// device_pool, recorded, in layer::guard if `Guarded`.
template <class Stacks, bool Guarded>
class pool_of<recorded_device<Stacks>, Guarded>
    : public layer::record<std::conditional_t<Guarded, layer::guard<recorded_parts>, recorded_parts>, Stacks> {
public:
    using parts = layer::record<std::conditional_t<Guarded, layer::guard<recorded_parts>, recorded_parts>, Stacks>;
    /// `to` outlives the pool. Throws as device_pool's constructor does.
    explicit pool_of(trace::recorder& to, pool_options const& options = {})
        : parts(to, upstream::recorded(to, upstream::virtual_memory<>(options.device())), options) {}
};

} // namespace recipes
} // namespace v0
} // namespace weir
