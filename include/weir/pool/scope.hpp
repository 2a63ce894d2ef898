// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do all blocks of a frame end at once?
//
// A scope marks an arena pool when it begins, and rewinds the pool to that mark when it ends. Every block allocated in between
// ends with it, without a free for each. Scopes nest like blocks of code.
//
// invariant: scopes of one pool end in the reverse order of their beginning.
// order:     when the scope ends, enqueued work may still use its blocks only on the stream that gets the next blocks: the work
//            on those comes later on the same stream. Where several streams take turns, the caller orders them.
// cost:      two small copies; under layer::guard, which frame_pool wears in debug builds, O(blocks that end).
// not for:   pools without marks: it does not compile there.

#include <utility>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {

/// Lives on the stack; one thread at a time, as the pool.
template <class Pool>
class [[nodiscard]] scope {
    static_assert(contract::holds<contract::has_mark, Pool>,
                  "weir: weir::scope needs a pool over an arena, with 'mark()' and 'rewind(mark)'; of the layers "
                  "guard, limit and statistics pass them on");

public:
    /// Marks `pool`, which outlives the scope. Throws std::bad_alloc.
    explicit scope(Pool& pool) : pool_(pool), point_(pool.mark()) {}
    scope(scope const&) = delete;
    scope& operator=(scope const&) = delete;
    /// Ends every block allocated since.
    ~scope() { pool_.rewind(point_); }

private:
    Pool& pool_;
    decltype(std::declval<Pool&>().mark()) point_;
};

} // namespace v0
} // namespace weir
