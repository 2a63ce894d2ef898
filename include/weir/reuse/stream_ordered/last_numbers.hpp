// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which numbers were noted lately?
//
// A ring of the last `Count` of them; whoever asks for one takes it out.
//
// invariant: a number that was noted is known until it is taken out, or `Count` others were noted after it.
// cost:      note: O(1); take_out: O(Count). Never allocates.
// not for:   0, which is none.

#include <cstdint>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Not thread-safe.
template <unsigned Count>
class last_numbers {
    static_assert(Count > 0, "weir: last_numbers remembers at least one number");

public:
    /// Notes `number`, in the place of the one noted longest ago; 0 is none.
    void note(std::uint64_t number) noexcept {
        if (number != 0)
            ring_[next_++ % Count] = number;
    }

    /// Whether `number` is among those noted; it is not any more then.
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
