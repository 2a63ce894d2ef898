// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which numbers were noted lately?
//
// This is a ring of the last `Count` numbers. Whoever asks for one takes it out.
//
// invariant: a number is known from when it is noted until it is taken out or `Count` others were noted after it.
// cost:      note: O(1); take_out: O(Count). Never allocates.
// not for:   the number 0, which stands for none.

#include <cstdint>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Not thread-safe.
template <unsigned Count>
class last_numbers {
    static_assert(Count > 0, "weir: last_numbers remembers at least one number");

public:
    /// Notes `number` in the place of the one that was noted longest ago. Does nothing for 0.
    void note(std::uint64_t number) noexcept {
        if (number != 0)
            ring_[next_++ % Count] = number;
    }

    /// Whether `number` is among those noted. It is taken out then.
    bool take_out(std::uint64_t number) noexcept {
        for (std::uint64_t& each : ring_)
            if (each == number && number != 0) {
                each = 0;
                return true;
            }
        return false;
    }

private:
    std::uint64_t ring_[Count] = {};
    unsigned next_ = 0;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
