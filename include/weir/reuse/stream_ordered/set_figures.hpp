// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do the sets of a pool's streams say of themselves?
//
// Each set tells what was handed out of it, what came back, and what is free there. An older generation is part of the set
// that it belongs to, and stands right behind it in the list.
//
// invariant: the counts of all that is seen sum up to what the pool counts. A set whose stream is gone is seen, too.
// order:     one set after the other, each under its lock: no snapshot.
// cost:      a lock a set.
// not for:   what a single call finds out: see the reuse rule.

#include <weir/base/threads/atomic.hpp>
#include <weir/base/usage.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Calls see(base::stream_usage) for each set of `sets`, a stream_directory.
template <class Directory, class See>
void visit_streams(Directory& sets, See const& see) {
    base::stream_usage now;
    bool has_any = false;
    for (auto& each : sets) {
        if (has_any && !each.is_older) {
            see(now);
            now = base::stream_usage{};
        }
        has_any = true;
        typename Directory::locked const own(each);
        if (!each.is_older) {
            std::uint64_t const key = own->key.load(base::memory_order_relaxed);
            now.stream = sets.is_host(each) ? base::stream_usage::host : key == 0 ? base::stream_usage::ended : key;
        }
        now.taken_bytes += own->used().taken_bytes;
        now.taken_blocks += own->used().taken_blocks;
        now.given_bytes += own->used().given_bytes;
        now.given_blocks += own->used().given_blocks;
        now.free_bytes += own->free_bytes() + own->open_bytes();
    }
    if (has_any)
        see(now);
}

} // namespace reuse::detail
} // namespace v0
} // namespace weir
