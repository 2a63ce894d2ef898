// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which threads may have ended and left bytes behind of which no event tells?
//
// Nobody says when a thread ends. What its own default stream freed last may lie open in its set (stream_set.hpp), where no
// other stream can have it. A new stream takes such a set over once the device has passed the set's event (set_list.hpp). But
// while the device is behind, each new thread brings another set, and open bytes would pile up. So the sets of threads stand
// in line, in the order in which their threads came. Where more than 16 do, each newcomer looks at the first two. A set whose
// thread was here since the 16th last newcomer goes to the end of the line. Another one leaves the line, and the newcomer
// strands its open bytes. If its thread lives after all, the set joins the line again when that thread comes again.
//
// invariant: a set is in line at most once. Of those in line, threads that ended left 16 and a few more; or about as many as
//            threads come here all the time, if those are more: half of the sets that newcomers look at then.
// cost:      for a newcomer a few loads.
// not for:   created streams: they are noticed by their handles (stream_directory.hpp).

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/threads/atomic.hpp>
#include <weir/reuse/stream_ordered/default_streams.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// `Set`: a stream_set. One thread at a time may call the members.
template <class Set>
class thread_line {
public:
    /// So many sets may stand in line. A thread that was not here while so many streams came is taken for one that has ended.
    static constexpr std::size_t most_newcomers = 16;

    /// Adds a set at the end of the line, unless it is in line already or is not a thread's.
    void join(Set& fresh) noexcept {
        if (!is_of_thread(fresh) || std::exchange(fresh.is_in_line, true))
            return;
        append(fresh);
    }

    /// Looks at the first two sets of a long line, and calls collect(set) for those whose threads were not here lately. These
    /// leave the line if that answers true. `newcomers`: how many streams came so far.
    template <class Collect>
    void look(std::uint64_t newcomers, Collect const& collect) noexcept {
        for (int looked_at = 0; looked_at < 2 && count_ > most_newcomers; ++looked_at) {
            Set& each = *first_;
            first_ = std::exchange(each.next_in_line, nullptr);
            --count_;
            bool const was_here = each.came_at.load(base::memory_order_relaxed) + most_newcomers > newcomers;
            if (is_of_thread(each) && (was_here || !collect(each)))
                append(each);
            else
                each.is_in_line = false;
        }
    }

private:
    static bool is_of_thread(Set const& each) noexcept {
        return (each.key.load(base::memory_order_relaxed) & key_kinds) == key_of_id;
    }

    void append(Set& each) noexcept {
        (first_ ? last_->next_in_line : first_) = &each;
        last_ = &each;
        ++count_;
    }

    Set* first_ = nullptr;
    Set* last_ = nullptr; // where there is a first one
    std::size_t count_ = 0;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
