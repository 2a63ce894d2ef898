// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do ranks take a step together, so that all have taken it or none has?
//
// They compare what they did so far (call_log.hpp), each tries the step, and then each tells the others what it came to. Where
// one failed, all undo it. The rank that failed throws what it met, the others name that rank.
//
// invariant: every rank throws, or none does. Between exchanges nothing here needs host memory, for a rank that had none would
//            not come to the next one.
// cost:      an exchange to compare, and one a step. 2.6 KiB of host memory for each rank.

#include <cstddef>
#include <exception>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/multi_device/collective_pool/call_log.hpp>
#include <weir/multi_device/rank_channel.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device::detail {

/// What a step came to on a rank.
enum class outcome : unsigned char { done, over_limit, no_room, failed, unregistered };

/// A rank and what it step failed of; `rank` -1: none.
struct failed_rank {
    int rank = -1;
    outcome of = outcome::done;

    text said() const {
        return "rank " + base::number_text(static_cast<std::size_t>(rank)) +
               (of == outcome::over_limit ? " would hold more than its limit; raise it on every rank, or grow by less"
                : of == outcome::no_room  ? " has no room on its device; free something there, or grow by less on every rank"
                : of == outcome::failed   ? " could not get its chunk; its own exception says why"
                                          : " could not register its chunk; its own exception says why");
    }
};

/// One thread at a time.
class rank_agreement {
public:
    /// Throws std::bad_alloc.
    rank_agreement(rank_channel& channel, text name)
        : channel_(channel), name_(std::move(name)), logs_(static_cast<std::size_t>(channel.ranks())),
          outcomes_(logs_.size()) {}

    call_log& log() noexcept { return log_; }

    /// The pool is made: it gets its number on the channel. One that could not be made has none, on any rank.
    void enter() noexcept { log_.pool = channel_.next_number(); }

    /// Throws usage_error, with the same sentence on every rank, if their calls differ; also if a rank did not come to `what`.
    void compare(char const* what) {
        require_present(channel_.exchange(&log_, sizeof log_, logs_.data()), what);
        text const difference = disagreement_text(name_, logs_.data(), channel_.ranks());
        if (!difference.empty())
            throw usage_error(difference);
    }

    /// Each rank calls step(), which returns whether it was done. What it throws is kept until the others know, and thrown
    /// then. If the step was not done on all, calls undo() where it was, and returns the first rank where it was not, or throws
    /// usage_error if one did not come. `refused`, `thrown`: what the step came to if it returns false or throws.
    template <class Step, class Undo>
    failed_rank all_do(Step const& step, outcome refused, outcome thrown, Undo const& undo) {
        outcome own = outcome::done;
        std::exception_ptr met;
        try {
            own = step() ? outcome::done : refused;
        } catch (...) {
            met = std::current_exception();
            own = thrown;
        }
        failed_rank found;
        try {
            found = first_failed(own);
        } catch (...) {
            if (own == outcome::done)
                undo();
            throw;
        }
        if (found.rank >= 0 && own == outcome::done)
            undo();
        if (met)
            std::rethrow_exception(met);
        return found;
    }

private:
    failed_rank first_failed(outcome own) {
        require_present(channel_.exchange(&own, sizeof own, outcomes_.data()), "grow");
        for (int each = 0; each < channel_.ranks(); ++each)
            if (outcome const of = outcomes_[static_cast<std::size_t>(each)]; of != outcome::done)
                return {each, of};
        return {};
    }

    void require_present(int absent, char const* what) const {
        if (absent < 0)
            return;
        text const late = base::number_text(static_cast<std::size_t>(absent));
        text const own = base::number_text(static_cast<std::size_t>(channel_.rank()));
        throw usage_error("weir: rank " + late + " of pool '" + name_ + "' did not come to '" + what +
                          "' before the deadline: it has ended, or does something else; this was call " +
                          base::number_text(static_cast<std::size_t>(log_.count)) + " of rank " + own +
                          "; end all ranks and begin anew");
    }

    rank_channel& channel_;
    text name_;
    call_log log_;
    base::growing_array<call_log> logs_; // of all ranks, in the last exchange
    base::growing_array<outcome> outcomes_;
};

} // namespace multi_device::detail
} // namespace v0
} // namespace weir
