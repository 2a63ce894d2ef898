// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do a stable container and the sleep_group that it joined know of each other?
//
// The group must find the container, which may have been moved, and hear that it has ended. The container must know whether it
// sleeps, and under which name, for its sentences. So both own this record.
//
// invariant: `container` is where the container is now; null: it has ended, or gave its memory up.
// invariant: asleep: `bytes` is the capacity that the container will have when it wakes.
// order:     one thread at a time for the container and its group.
// cost:      an allocation for each container that joins a group.
// not for:   the contents, which the group keeps (sleep_group/container_sleeper.hpp).

#include <cstddef>
#include <weir/base/text.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

class mapped_span;

/// One container's place in one group.
struct sleep_record {
    mapped_span* container = nullptr;
    text name;
    std::size_t bytes = 0;
    bool asleep = false;
    bool has_pages = false; ///< of a sleeper: pages are behind its addresses, as while it wakes
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
