// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool get its chunks from another pool?
//
// Each chunk is a block of the pool (or layer) below, allocated and freed on one stream that is named once. So a request can
// have an arena of its own, whose chunks come from the card's pool: the card's limit counts them, its report shows them, and
// what the request leaves goes to whoever asks next.
//
//     using frame = weir::pool<weir::upstream::from_pool<weir::device_pool>, weir::placement::arena, weir::reuse::immediate>;
//     frame request(weir::upstream::from_pool(card, stream)); // its work is on 'stream'
//
// With 'on_host' in the stream's place a chunk is memory that no work uses, so any stream may use it at once. Then whoever
// gives a chunk back promises that no work uses it any more. The stream-ordered rules keep that promise by themselves.
//
// Captures: while 'stream' itself is captured, 'acquire' throws, whichever pool is below, and the pool below keeps a chunk that
// is released, since the graph may use it at each launch. So reserve before the capture and give back after it. Other streams
// may be captured at any time: no call breaks that. A graph that uses a chunk must be gone before the chunk is released.
//
// invariant: every chunk is a block of the pool, which outlives this upstream and every pool over it.
// order:     a chunk is for work that is enqueued on 'stream' after 'acquire'. Work on another stream has to be ordered behind
//            that point before it uses the chunk, and work of another stream that used it has to be ordered before 'release'
//            by an event that 'stream' waits for.
// cost:      the allocation and the free of the pool below, and a question to CUDA a chunk; no wait beyond theirs.
// not for:   pools that hand bytes to several streams (reuse::stream_ordered, reuse::after_event), unless on the host.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// Blocks of a `Pool`. Copyable. Any thread may call any member if the pool allows it.
template <class Pool>
class from_pool {
    static_assert(contract::require_pool<Pool, stream_ref>());
    static_assert(contract::holds<contract::has_default_alignment, Pool>,
                  "weir: the pool slot of upstream::from_pool needs 'static constexpr std::size_t default_alignment', a power "
                  "of two");

public:
    static constexpr std::size_t alignment = Pool::default_alignment;
    static constexpr std::size_t granularity = Pool::default_alignment;
    static constexpr memory_space space = Pool::space;

    /// `pool` outlives this object. `stream`: where chunks are allocated and freed; it lives as long. 'on_host': see the head.
    /// Throws what the pool's 'device' throws.
    from_pool(Pool& pool, stream_ref stream) : pool_(&pool), stream_(stream), device_(pool.device()) {}

    /// A chunk of `bytes` bytes, or null when the pool has no room. Blocks as the pool's 'try_allocate' does. Throws
    /// usage_error while the stream is captured, cuda_error, and what the pool throws.
    void* acquire(std::size_t bytes) {
        runtime::require_no_capture(stream_);
        return pool_->try_allocate(stream_, bytes, alignment);
    }

    /// Frees a chunk on the stream; with 'on_host' no work may use it any more. Blocks no longer than the pool's 'deallocate'.
    void release(void* chunk, std::size_t bytes) noexcept { pool_->deallocate(stream_, chunk, bytes, alignment); }

    /// Whether the pool could hand out such a chunk if no other block were out; see its 'can_hold'. True if it cannot tell
    /// (layers over a driver_pool ask CUDA).
    bool can_acquire(std::size_t bytes) const noexcept {
        try {
            return pool_->can_hold(bytes, alignment);
        } catch (...) { // the pool itself refuses what it cannot hand out
            return true;
        }
    }

    /// Why the pool has no room for such a chunk. Throws as its 'state' and 'refused'.
    text refusal(std::size_t bytes) const {
        return base::refusal_below_text(pool_->state(), pool_->refused(bytes, alignment).reason);
    }

    /// The device of the pool, or any_device.
    int device_number() const noexcept { return device_; }

private:
    Pool* pool_;
    stream_ref stream_;
    int device_;
};

template <class Pool>
from_pool(Pool&, stream_ref) -> from_pool<Pool>;

} // namespace upstream
} // namespace v0
} // namespace weir
