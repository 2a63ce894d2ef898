// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do the directory and the searches note about a stream's set?
//
// A set keeps bytes (stream_set.hpp). What is here is not about its bytes but about its place among the other sets: how it is
// found, who comes after it, and what those who look for bytes want of it.
//
// order:     the atomics and 'hint' may be read without the lock. 'is_older' is fixed once the set is listed. 'last_search' and
//            'free_bytes_at_recall' are used by one search at a time (stream_exchange.hpp), and the place in line under the
//            directory's mutex. All else needs 'lock'.
// not for:   the bytes themselves.

#include <cstddef>
#include <cstdint>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/reuse/stream_ordered/stream_set/free_hint.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// The base of `Set`, a stream_set.
template <class Set, class Tuning>
struct set_notes {
    base::spin_lock lock;

    base::atomic<Set*> next{nullptr}; ///< the next set of the list (set_list.hpp)
    base::atomic<std::uint64_t> key{0}; ///< by which it is looked up; 0: its stream is gone, or it is the host's
    base::atomic<std::uint64_t> came_at{0}; ///< how many streams the directory had seen when a default stream last came here

    free_hint<Tuning> hint; ///< of the covered bytes and the closed deferred ones
    base::atomic<bool> wanted{false}; ///< whether others wanted bytes since some last left this set for them
    std::uint64_t last_search = 0; ///< the number of the last search that asked about this set

    Set* older = nullptr; ///< its older generation, right behind it in the list; null until the first time
    Set* host = nullptr; ///< the host's set, once there is an older generation
    bool is_older = false; ///< whether it is such an older generation
    Set* next_in_line = nullptr; ///< for thread_line.hpp
    bool is_in_line = false;     ///< the same
    bool was_left = false; ///< whether its open bytes were stranded, as if its thread had ended, and that has not come again
    std::size_t free_bytes_at_recall = 0; ///< bytes that were free in the pool when 'older' last came back
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
