// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do a free's entry and its event wait for the next free?
//
// Creating an event takes microseconds, and one can be recorded again. So the entry of a free that is over is kept, with its
// event, for a later free on a stream of the same device.
//
// invariant: nobody asks about the event of an entry that is here, or waits for it.
// cost:      keep: a few instructions. take: a look at the entries of other devices that were kept last.
// not for:   frees that are not over: see pending_frees.hpp.

#include <cstddef>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/swap.hpp>
#include <weir/reuse/after_event/pending_frees.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// One thread at a time.
class spare_frees {
public:
    /// Keeps an entry that has an event, unless there are many already or the host has no memory for it.
    void keep(base::shared<pending_free>& free) noexcept {
        if (list_.size() < most)
            try {
                free->uses.clear();
                list_.push_back(std::move(free));
            } catch (...) { // the event is destroyed instead
            }
    }

    /// Sets `free` to an entry whose event is of that device, if there is one.
    void take(int device, base::shared<pending_free>& free) noexcept {
        for (std::size_t i = list_.size(); i-- > 0;)
            if (list_[i]->device == device) {
                base::swap_values(list_[i], list_.back());
                free = std::move(list_.back());
                list_.pop_back();
                return;
            }
    }

private:
    static constexpr std::size_t most = 256;

    base::growing_array<base::shared<pending_free>> list_;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
