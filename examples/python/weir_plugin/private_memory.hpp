// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which bytes of a private pool may a stream have?
//
// A private pool is what PyTorch names by an id: the memory of graphs that never run at the same time, or of a MemPool. Its
// chunks are blocks of the ordinary pool, or come from an allocator that PyTorch named. Each stream cuts blocks from what it
// freed itself. As a new capture begins, what is free is free for all of its streams: the graphs of earlier captures do not run
// beside this one, and what streams did outside of captures before they freed is waited for.
//
// invariant: no byte goes back before 'give_back'; bytes that one stream freed in a capture reach no other one in that capture.
// order:     a block is for work that is enqueued on its stream after 'take'.
// cost:      O(log n) a call; the first block of a capture waits on the host for earlier work outside of captures.
// not for:   when the pool's memory may go back, and which streams a block is used on beside its own: see private_pools.hpp.

#include "free_bytes.hpp"

#include <algorithm>
#include <cstddef>
#include <cuda_runtime_api.h>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir_plugin {

/// Where a private pool gets its chunks. `get`: a chunk for work on the stream, null: no room; `give`: no work uses it.
struct chunk_source {
    std::function<void*(std::size_t bytes, weir::stream_ref stream)> get;
    std::function<void(void* p, std::size_t bytes)> give;
};

/// One thread at a time.
class private_memory {
public:
    /// Every block is a multiple of this many bytes, and starts at one.
    static constexpr std::size_t granularity = 512;
    static constexpr std::size_t rounded(std::size_t bytes) noexcept { return weir::base::align_up(bytes, granularity); }

    explicit private_memory(int device) : device_(device) {}

    /// A chunk goes to one block as a whole, and comes back so: PyTorch's 'no_split'.
    void never_split() noexcept { whole_ = true; }

    /// A block for work on `stream`, which is captured by the capture of that id (0: not captured); no range if there is no
    /// room. `source` is asked for a chunk if need be. Throws what that throws, cuda_error, std::bad_alloc.
    weir::base::range take(cudaStream_t stream, unsigned long long capture, std::size_t bytes, chunk_source const& source) {
        std::size_t const size = rounded(bytes);
        if (size < bytes)
            return {};
        if (capture != 0 && seen_.insert(capture).second)
            begin_capture(capture);
        free_bytes& own = free_.streams[stream].free;
        weir::base::range block = own.take(size, whole_);
        if (!block && (capture == 0 || capture == latest_))
            block = free_.unused.take(size, whole_);
        if (block)
            return block;
        std::size_t const usual = whole_ ? size : std::max(size, least_chunk_bytes);
        weir::stream_ref const on = capture == 0 ? weir::stream_ref(stream) : weir::stream_ref(weir::on_host);
        chunks_.reserve(chunks_.size() + 1);
        std::size_t got = usual;
        void* p = source.get(got, on);
        if (!p && usual != size)
            p = source.get(got = size, on);
        if (!p)
            return {};
        weir::base::range const chunk{reinterpret_cast<std::size_t>(p), got};
        chunks_.push_back(chunk);
        own.give(chunk, whole_);
        return own.take(size, whole_);
    }

    /// The same without a chunk, out of all that is free. The device was waited for, and no capture is under way.
    weir::base::range take_any(std::size_t bytes) {
        for (auto& [stream, own] : free_.streams) {
            free_.unused.absorb(own.free, whole_);
            own.outside = false;
        }
        free_.unused.absorb(free_.later, whole_);
        return free_.unused.take(rounded(bytes), whole_);
    }

    /// Takes a block back that was freed on `stream`, inside of a capture or not.
    void give(cudaStream_t stream, bool captured, weir::base::range block) {
        auto& own = free_.streams[stream];
        own.free.give(block, whole_);
        own.outside |= !captured;
    }
    /// The same of a block for the next capture.
    void give_to_next(weir::base::range block) { free_.later.give(block, whole_); }

    /// Notes what streams did outside of captures: call this before a capture begins. Throws cuda_error, std::bad_alloc.
    void note_outside() {
        for (auto& [stream, own] : free_.streams)
            if (own.outside && !weir::runtime::may_be_captured(weir::runtime::capture_state_of(stream))) {
                weir::runtime::event fresh(device_);
                fresh.record(stream);
                before_.push_back(std::move(fresh));
                own.outside = false;
            }
    }

    /// Gives all chunks to `source`. No work uses them any more.
    void give_back(chunk_source const& source) noexcept {
        for (weir::base::range const& each : chunks_)
            source.give(reinterpret_cast<void*>(each.offset), each.bytes);
        chunks_.clear();
        free_ = {};
    }

    std::vector<weir::base::range> const& chunks() const noexcept { return chunks_; }

    /// Which bytes are free, and for whom: a copy is a checkpoint.
    class checkpoint {
        friend private_memory;
        struct stream_bytes {
            free_bytes free;
            bool outside = false; // freed outside of captures, by work that nobody noted
        };
        std::map<cudaStream_t, stream_bytes> streams;
        free_bytes unused; // free before the latest capture began
        free_bytes later;  // for the next capture
        std::size_t chunks = 0;
    };

    checkpoint save() const {
        checkpoint copy = free_;
        copy.chunks = chunks_.size();
        return copy;
    }
    /// What was free then is free again, and so are all chunks that were got since. Throws std::bad_alloc before any change.
    void restore(checkpoint const& saved) {
        checkpoint copy = saved;
        for (std::size_t i = saved.chunks; i < chunks_.size(); ++i)
            copy.unused.give(chunks_[i], whole_);
        std::swap(free_, copy);
    }

private:
    static constexpr std::size_t least_chunk_bytes = 2 * weir::MiB; // what small blocks share

    void begin_capture(unsigned long long capture) {
        try {
            weir::runtime::capture_mode_scope const relaxed;
            for (weir::runtime::event const& each : before_)
                each.synchronize();
            before_.clear();
            for (auto& [stream, own] : free_.streams)
                if (!own.outside)
                    free_.unused.absorb(own.free, whole_);
            free_.unused.absorb(free_.later, whole_);
        } catch (...) {
            seen_.erase(capture);
            throw;
        }
        latest_ = capture;
    }

    int device_;
    bool whole_ = false;
    checkpoint free_;
    std::vector<weir::base::range> chunks_;
    std::vector<weir::runtime::event> before_; // the next capture waits for these
    std::set<unsigned long long> seen_;        // captures that had blocks
    unsigned long long latest_ = 0;
};

} // namespace weir_plugin
