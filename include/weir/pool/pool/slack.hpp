// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When does a pool move unused memory to where it is needed, and when does it get more instead?
//
// Memory that is free in one place can be taken away there and put behind addresses elsewhere, so that a pool holds
// little more than is in use. But each move costs driver calls, and a program that repeats itself would make them at
// every step. So there is slack: while the pool holds no more than a little above the most that was ever in use, it
// gets more and moves nothing. And slack doubles, up to as much again, each time that more was moved than some share of
// what the pool holds: then the work repeats itself, and a little more memory ends the moving. A growth policy says which
// share: a small one ends it sooner, a large one holds less.
//
// invariant: nothing is moved while what is held afterwards is at most (1 + slack) times the most in use.
// order:     one thread at a time.
// cost:      a few instructions.
// not for:   limits, which hold whatever the slack.

#include <cstddef>
#include <cstdint>
#include <weir/base/size.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

class slack {
public:
    /// Slack doubles each time that more than `percent` per cent, 1 at least, of what is held were moved.
    explicit slack(unsigned percent) noexcept : percent_(percent) {}

    /// The bytes to move before `needed` more are held: `held` and `in_use` are those of now, 'in_use' with what is about
    /// to be.
    std::size_t to_move(std::size_t held, std::size_t needed, std::size_t in_use) const noexcept {
        std::size_t const most = most_used_ < in_use ? in_use : most_used_;
        std::size_t const above = most / parts_;
        std::size_t const allowed = base::add_overflows(most, above) ? SIZE_MAX : most + above;
        std::size_t const room = allowed > held ? allowed - held : 0;
        return needed > room ? needed - room : 0;
    }

    /// Notes what is in use: after growing, since what was asked for in vain never was.
    void used(std::size_t in_use) noexcept {
        if (most_used_ < in_use)
            most_used_ = in_use;
    }

    /// Notes that so many bytes were moved, by a pool that holds `held`.
    void moved(std::size_t bytes, std::size_t held) noexcept {
        moved_ += bytes;
        if (moved_ / percent_ > held / 100) {
            moved_ = 0;
            parts_ = parts_ > 1 ? parts_ / 2 : 1;
        }
    }

private:
    unsigned percent_;
    std::size_t most_used_ = 0;
    std::size_t moved_ = 0; // since slack changed
    std::size_t parts_ = 64; // slack is one of so many parts of the most in use
};

} // namespace detail
} // namespace v0
} // namespace weir
