// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which frees has the device passed, with few questions?
//
// Each free recorded an event on its stream, and a stream runs in order: an event that has been reached says so of
// those that were recorded there before it, and one that has not of those recorded after it. Records that two threads
// made at once have no order that we know of, so 'record' takes a number before the record and 'add' another one behind
// it: one free came before another where its second number is less than the other's first.
//
// invariant: a free that is told of is over; each is told of once.
// order:     not by time between streams.
// cost:      one question a stream where none of its frees is over, else about twice the logarithm of their number; and
//            one for each that is over but for its uses on other streams.
// not for:   threads without a lock: the caller has one for all but 'record'.

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
    base::growing_array<runtime::event> uses; ///< on other streams
    int device = any_device;  ///< the device of `passed`
    std::uint64_t began = 0;   ///< a number from before its record
    std::uint64_t ended = 0;   ///< and one from behind it
    bool over = false;         ///< `passed` is known to have been reached
};

class pending_frees {
public:
    /// In place of a stream's id where the host freed a block.
    static constexpr unsigned long long host = UINT64_MAX - 1;

    /// Records the free's event at the present end of `stream`. Needs no lock, and is done with before the free is added.
    /// Never blocks. Throws cuda_error.
    void record(pending_free& free, stream_ref stream) {
        free.began = clock_.fetch_add(1, base::memory_order_acq_rel) + 1;
        free.passed.record(stream);
    }

    /// The device of a stream that has frees here, or had some when 'poll' was called last; any_device of another one.
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
        line& own = lines_[at]; // where there is no room in it an empty line stays, until the next 'poll'
        std::uint64_t const took = free->ended - free->began;
        own.frees.push_back(std::move(free));
        own.longest = took > own.longest ? took : own.longest;
        ++size_;
    }

    /// Calls done(shared<pending_free>&) for each free that is over, which is here no longer when that returns. Never
    /// blocks. Throws cuda_error, and what `done` throws; what was not told of is still here then. A stream that has no frees
    /// here at one call and none at the next is forgotten.
    template <class Done>
    void poll(Done const& done) {
        for (std::size_t i = lines_.size(); i-- > 0;) {
            if (!lines_[i].frees.empty()) {
                tell(lines_[i].frees, ask(lines_[i]), done);
                continue; // an empty line stays until the next time: its stream may go on
            }
            line_of_.erase(lines_[i].stream + 1); // streams come and go
            if (i + 1 != lines_.size()) {
                base::swap_values(lines_[i], lines_.back());
                line_of_.assign(lines_[i].stream + 1, static_cast<std::uint32_t>(i));
            }
            lines_.pop_back();
        }
    }

    /// Calls visit(shared<pending_free> const&) for frees which, when they are over, say that all are.
    template <class Visit>
    void for_each_last(Visit const& visit) const {
        for (line const& each : lines_) {
            std::uint64_t follows = 0; // what ended before that number comes before another that was visited
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
    // One stream's, by 'ended'.
    struct line {
        unsigned long long stream;
        int device;
        std::uint64_t longest; // 'ended' less 'began', of any of them
        base::growing_array<base::shared<pending_free>> frees;
    };

    // Learns which of one stream's events have been reached. From the answer on none has.
    static std::size_t ask(line const& one) {
        base::growing_array<base::shared<pending_free>> const& frees = one.frees;
        std::uint64_t reached = 0;         // what ended before that number has been
        std::uint64_t missed = UINT64_MAX; // what began after that one has not
        auto const look = [&](pending_free& each) {
            if (!each.over && each.began <= missed)
                each.over = each.ended < reached || each.passed.reached();
            if (each.over && each.began > reached)
                reached = each.began;
            else if (!each.over && each.ended < missed)
                missed = each.ended;
            return each.over;
        };
        std::size_t first = 0;           // what lies before it is over
        std::size_t last = frees.size(); // what lies there is not
        for (std::size_t at = 0; first != last;) { // in steps that double, then between the two
            if (look(*frees[at]))
                first = at + 1;
            else
                last = at;
            at = last == frees.size() ? 2 * at + 1 : first + (last - first) / 2;
            at = at < frees.size() ? at : frees.size() - 1;
        }
        std::size_t end = 0; // asks about what was recorded at the same time, and names the rest
        for (; end < frees.size() && (missed == UINT64_MAX || frees[end]->ended <= missed + one.longest); ++end)
            if (end != last)
                look(*frees[end]);
        return end;
    }

    // Takes out what is over among the first `end`, and leaves the rest in its order, also where `done` throws.
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
    base::address_map line_of_; // a stream's id, and one since no key is 0, -> index into lines_
    std::size_t size_ = 0;
    base::atomic<std::uint64_t> clock_{0};
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
