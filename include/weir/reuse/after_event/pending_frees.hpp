// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which frees has the device passed, and how is that found out with few questions?
//
// Each free recorded an event on its stream, and a stream runs in order. So if an event has been reached, those recorded
// before it on that stream have been, too; if it has not, those recorded after it have not. If two threads record at the same
// time, nobody knows which came first. Therefore 'record' takes a number from a counter before it records, and 'add' takes
// another one afterwards: a free came before another for certain if its second number is less than the other's first.
//
// invariant: a free that 'poll' tells of is over, and it tells of each free once.
// order:     frees of different streams are not told of in the order of time.
// cost:      one question for each stream of whose frees none is over; otherwise about twice the logarithm of their number.
//            In addition, one for each free that is over except for its uses on other streams.
// not for:   threads without a lock: the caller holds one for all members but 'record'.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// A free that the device may not have passed yet.
struct pending_free {
    base::range block;
    runtime::event passed;              ///< recorded at the free; none where the host freed the block
    base::growing_array<runtime::event> uses; ///< events of the uses on other streams
    int device = any_device;  ///< the device of `passed`
    std::uint64_t began = 0;   ///< a number taken before the event was recorded
    std::uint64_t ended = 0;   ///< a number taken after it
    bool over = false;         ///< `passed` is known to have been reached
};

class pending_frees {
public:
    /// Stands in place of a stream's id if the host freed the block.
    static constexpr unsigned long long host = UINT64_MAX - 1;

    /// Records the free's event at the present end of `stream`. Needs no lock, and must be done before the free is added.
    /// Never blocks. Throws cuda_error.
    void record(pending_free& free, stream_ref stream) {
        free.began = clock_.fetch_add(1, base::memory_order_acq_rel) + 1;
        free.passed.record(stream);
    }

    /// The device of the stream with this id, if it has frees here or had some at the last 'poll'; any_device if not.
    int device_of(unsigned long long stream) const noexcept {
        std::uint32_t const at = line_of_.find(stream + 1);
        return at == base::address_map::none ? any_device : lines_[at].device;
    }

    /// Adds a free whose event has been recorded on the stream of this id. Throws std::bad_alloc, with nothing added.
    void add(unsigned long long stream, base::shared<pending_free> free) {
        free->ended = clock_.fetch_add(1, base::memory_order_acq_rel) + 1;
        free->over = !free->passed;
        std::uint32_t at = line_of_.find(stream + 1);
        if (at == base::address_map::none) {
            line_of_.reserve(lines_.size() + 1);
            at = static_cast<std::uint32_t>(lines_.size());
            lines_.push_back(line{stream, free->device, 0, {}});
            line_of_.insert(stream + 1, at);
        }
        line& own = lines_[at]; // if there is no memory for its entry, an empty line stays until the next 'poll'
        std::uint64_t const took = free->ended - free->began;
        own.frees.push_back(std::move(free));
        own.longest = took > own.longest ? took : own.longest;
        ++size_;
    }

    /// Calls done(shared<pending_free>&) for each free that is over, and removes it when that returns. Never blocks. Throws
    /// cuda_error, and what `done` throws; what was not told of stays then. A stream that has no frees here at two calls in a
    /// row is forgotten.
    template <class Done>
    void poll(Done const& done) {
        for (std::size_t i = lines_.size(); i-- > 0;) {
            if (!lines_[i].frees.empty()) {
                tell(lines_[i].frees, ask(lines_[i]), done);
                continue; // what has become empty stays until the next time: its stream may go on
            }
            line_of_.erase(lines_[i].stream + 1); // streams come and go
            if (i + 1 != lines_.size()) {
                base::swap_values(lines_[i], lines_.back());
                line_of_.assign(lines_[i].stream + 1, static_cast<std::uint32_t>(i));
            }
            lines_.pop_back();
        }
    }

    /// Calls visit(shared<pending_free> const&) for so many frees that, once these are over, all are.
    template <class Visit>
    void for_each_last(Visit const& visit) const {
        for (line const& each : lines_) {
            std::uint64_t follows = 0; // a free that ended before this number comes before one that was visited
            for (std::size_t i = each.frees.size(); i-- > 0;) {
                pending_free const& free = *each.frees[i];
                if (free.ended >= follows || !free.uses.empty())
                    visit(each.frees[i]);
                follows = free.began > follows ? free.began : follows;
            }
        }
    }

    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

private:
    // The frees of one stream, in the order of 'ended'.
    struct line {
        unsigned long long stream;
        int device;
        std::uint64_t longest; // the largest difference of 'ended' and 'began' of any free
        base::growing_array<base::shared<pending_free>> frees;
    };

    // Finds out which of one stream's events have been reached, and marks those frees as over. From the index that it answers
    // on, none is.
    static std::size_t ask(line const& one) {
        base::growing_array<base::shared<pending_free>> const& frees = one.frees;
        std::uint64_t reached = 0;         // what ended before this number has been reached
        std::uint64_t missed = UINT64_MAX; // what began after this number has not
        auto const look = [&](pending_free& each) {
            if (!each.over && each.began <= missed)
                each.over = each.ended < reached || each.passed.reached();
            if (each.over && each.began > reached)
                reached = each.began;
            else if (!each.over && each.ended < missed)
                missed = each.ended;
            return each.over;
        };
        std::size_t first = 0;           // what lies before this index is over
        std::size_t last = frees.size(); // what lies at this index is not
        for (std::size_t at = 0; first != last;) { // steps that double, then bisection
            if (look(*frees[at]))
                first = at + 1;
            else
                last = at;
            at = last == frees.size() ? 2 * at + 1 : first + (last - first) / 2;
            at = at < frees.size() ? at : frees.size() - 1;
        }
        std::size_t end = 0; // asks about frees recorded at the same time as those, and finds where the rest begins
        for (; end < frees.size() && (missed == UINT64_MAX || frees[end]->ended <= missed + one.longest); ++end)
            if (end != last)
                look(*frees[end]);
        return end;
    }

    // Takes out the frees that are over among the first `end`. The others stay in their order, even if `done` throws.
    template <class Done>
    void tell(base::growing_array<base::shared<pending_free>>& frees, std::size_t end, Done const& done) {
        struct gap_closer {
            base::growing_array<base::shared<pending_free>>& frees;
            std::size_t kept = 0;
            std::size_t next = 0;
            void keep() noexcept { frees[kept++] = std::move(frees[next++]); }
            ~gap_closer() {
                if (kept == next)
                    return;
                while (next < frees.size())
                    keep();
                while (frees.size() > kept)
                    frees.pop_back();
            }
        } gap{frees};
        while (gap.next < end) {
            if (!frees[gap.next]->over || !order::all_reached(frees[gap.next]->uses)) {
                gap.keep();
                continue;
            }
            done(frees[gap.next]);
            ++gap.next;
            --size_;
        }
    }

    base::growing_array<line> lines_;
    base::address_map line_of_; // a stream's id plus one (as no key is 0) -> index into lines_
    std::size_t size_ = 0;
    base::atomic<std::uint64_t> clock_{0};
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
