// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks come along if a stream takes a block from another one's slabs?
//
// Whoever wants one block of a size soon wants the next, and each search costs an event and a query. So a few more blocks of
// that size move at once. (A slab serves blocks of one size; the free bytes in slabs are splinters.)
//
// invariant: no work uses the blocks of a batch.
// cost:      seven ranges on the stack; no memory from the host.
// not for:   whole slabs: those move as a stock (stream_exchange.hpp).

#include <cstddef>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/contract/placement_slot.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Blocks on their way from one set to another.
class block_batch {
public:
    /// Takes blocks from `from`, as many as may come along with one of `needed` bytes, which is `bytes` rounded. It takes none
    /// where the block is too large for a slab.
    template <class Placement>
    void fill(Placement& from, std::size_t bytes, std::size_t alignment, std::size_t needed) noexcept {
        if constexpr (contract::holds<contract::has_is_small, Placement>) {
            if (!Placement::is_small(bytes, alignment))
                return;
            try {
                while (count_ + 1 < most_blocks && (count_ + 2) * needed <= most_bytes) {
                    blocks_[count_] = from.take_at_hand(bytes, alignment);
                    if (!blocks_[count_])
                        return;
                    ++count_;
                }
            } catch (...) { // no host memory: the blocks found so far are enough
            }
        }
    }

    /// Gives the blocks to `to`, a stream_set.
    template <class Set>
    void put_into(Set& to) const noexcept {
        for (unsigned i = 0; i < count_; ++i)
            to.put_back(blocks_[i], false);
    }

    bool empty() const noexcept { return count_ == 0; }

private:
    static constexpr unsigned most_blocks = 8; // the wanted one included
    static constexpr std::size_t most_bytes = 128 * KiB;

    base::range blocks_[most_blocks - 1];
    unsigned count_ = 0;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
