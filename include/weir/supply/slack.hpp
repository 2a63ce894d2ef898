// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When does a pool move unused memory to where it is needed, and when does it get more instead?
//
// Memory that is free in one place can be taken away there and put behind addresses elsewhere, so that a pool holds little more
// than is in use. But each move costs driver calls, and a program that repeats itself would make them at every step. So a pool
// has slack: bytes that it may hold beyond the most that was ever in use. Within its slack it gets more memory and moves none.
//
// Slack starts as a 64th of the most in use. It doubles, up to as much as that most, each time that more was moved than some
// share of what the pool holds: then the work repeats itself, and a little more memory ends the moving. The growth policy says
// which share. A small one ends the moving sooner; with a large one the pool holds less.
//
// invariant: nothing is moved while the pool afterwards holds no more than the most in use plus slack.
// order:     one thread at a time.
// cost:      a few instructions.
// not for:   limits, which hold whatever the slack is.

#include <cstddef>
#include <cstdint>
#include <weir/base/size.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

class slack {
public:
    /// Slack doubles each time that more than `percent` per cent (at least 1) of the bytes held were moved.
    explicit slack(unsigned percent) noexcept : percent_(percent) {}

    /// How many of the `needed` bytes that a pool lacks should be moved there; the others are got. `held`: the bytes that the
    /// pool holds. `in_use`: the bytes in use, with the block that is about to be handed out.
    std::size_t bytes_to_move(std::size_t held, std::size_t needed, std::size_t in_use) const noexcept {
        std::size_t const most = most_used_ < in_use ? in_use : most_used_;
        std::size_t const slack_bytes = most / slack_divisor_;
        std::size_t const may_hold = base::add_overflows(most, slack_bytes) ? SIZE_MAX : most + slack_bytes;
        std::size_t const may_get = may_hold > held ? may_hold - held : 0;
        return needed > may_get ? needed - may_get : 0;
    }

    /// Notes how much is in use. It is called after growing: a block for which there was no memory was never in use.
    void note_use(std::size_t in_use) noexcept {
        if (most_used_ < in_use)
            most_used_ = in_use;
    }

    /// Notes that `bytes` bytes were moved, by a pool that holds `held`.
    void note_moved(std::size_t bytes, std::size_t held) noexcept {
        moved_ += bytes;
        if (moved_ / percent_ > held / 100) {
            moved_ = 0;
            slack_divisor_ = slack_divisor_ > 1 ? slack_divisor_ / 2 : 1;
        }
    }

private:
    unsigned percent_;
    std::size_t most_used_ = 0;
    std::size_t moved_ = 0;          // since slack doubled last
    std::size_t slack_divisor_ = 64; // slack is the most in use divided by this
};

} // namespace supply
} // namespace v0
} // namespace weir
