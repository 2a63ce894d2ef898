// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which frees has the device passed, and how is that found out with few questions?
//
// Each free recorded an event on its stream, and a stream runs in order. So if an event has been reached, those recorded
// before it on that stream have been, too; if it has not, those recorded after it have not (order/stream_answers.hpp). The
// frees of a stream lie here in the order in which their records began. CUDA is asked about the first, the second, the fourth
// and so on, until one is not over, and then about one half way between the last two, again and again. After that a walk over
// the frees knows nearly every answer. It asks only about records that were made at the same time as one of those.
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
#include <weir/order/second_uses.hpp>
#include <weir/order/stream_answers.hpp>
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
    bool over = false;         ///< `passed` is known to have been reached, or there is none

    runtime::event_place const& place() const noexcept { return passed.place(); }
};

class pending_frees {
public:
    /// Stands in place of a stream's id if the host freed the block.
    static constexpr unsigned long long host = UINT64_MAX - 1;

    /// Records the free's event at the present end of `stream`, whose id is `id`. Needs no lock, and must be done before the
    /// free is added. Waits at most for room in a full queue. Throws cuda_error.
    void record(pending_free& free, stream_ref stream, unsigned long long id) { clock_.record(free.passed, stream, id); }

    /// The device of the stream with this id, if it has frees here or had some at the last 'poll'; any_device if not.
    int device_of(unsigned long long stream) const noexcept {
        std::uint32_t const at = line_of_.find(stream + 1);
        return at == base::address_map::none ? any_device : lines_[at].device;
    }

    /// Adds a free whose event has been recorded, or one of the host's, which has none. Throws std::bad_alloc, with nothing
    /// added.
    void add(base::shared<pending_free> free) {
        unsigned long long const stream = free->passed ? free->place().stream_id : host;
        free->over = !free->passed;
        std::uint32_t at = line_of_.find(stream + 1);
        if (at == base::address_map::none) {
            line_of_.reserve(lines_.size() + 1);
            at = static_cast<std::uint32_t>(lines_.size());
            lines_.push_back(line{stream, free->device, {}});
            line_of_.insert(stream + 1, at);
        }
        free_list& frees = lines_[at].frees; // if there is no memory for its entry, an empty line stays until the next 'poll'
        frees.push_back(std::move(free));
        for (std::size_t i = frees.size() - 1; i != 0 && frees[i - 1]->place().begin > frees[i]->place().begin; --i)
            base::swap_values(frees[i - 1], frees[i]); // another thread was quicker to add its free
        ++size_;
    }

    /// Calls done(shared<pending_free>&) for each free that is over, and removes it when that returns. Never blocks. Throws
    /// cuda_error, and what `done` throws; what was not told of stays then. A stream that has no frees here at two calls in a
    /// row is forgotten.
    template <class Done>
    void poll(Done const& done) {
        for (std::size_t i = lines_.size(); i-- > 0;) {
            if (!lines_[i].frees.empty()) {
                tell(lines_[i].frees, done);
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
        for (line const& each : lines_)
            for (base::shared<pending_free> const& free : each.frees) // one that ended before the last began is over before it
                if (free->place().end >= each.frees.back()->place().begin || !free->uses.empty())
                    visit(free);
    }

    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

private:
    using free_list = base::growing_array<base::shared<pending_free>>;
    struct line {
        unsigned long long stream;
        int device;
        free_list frees; // in the order in which their records began
    };

    static bool is_over(pending_free& free, order::stream_answer& known) {
        return free.over = free.over || known.reached(free.passed);
    }

    // Asks about few of the frees, so that what is known tells of nearly all.
    static void ask_few(free_list const& frees, order::stream_answer& known) {
        std::size_t over = 0; // the free of this number is over, counted from 1
        std::size_t at = 1;
        while (at != over && is_over(*frees[at - 1], known)) {
            over = at;
            at = 2 * at < frees.size() ? 2 * at : frees.size();
        }
        while (at - over > 1) { // the one of number `at` is not over
            std::size_t const middle = over + (at - over) / 2;
            (is_over(*frees[middle - 1], known) ? over : at) = middle;
        }
    }

    // Takes out the frees that are over. The others stay in their order, even if `done` throws.
    template <class Done>
    void tell(free_list& frees, Done const& done) {
        struct gap_closer {
            free_list& frees;
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
        order::stream_answer known;
        ask_few(frees, known);
        while (gap.next < frees.size()) {
            pending_free& each = *frees[gap.next];
            if (!each.over && known.ends_before(each.passed))
                return; // nor are those whose records began later
            if (!is_over(each, known) || !order::all_reached(each.uses)) {
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
    order::event_clock clock_;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
