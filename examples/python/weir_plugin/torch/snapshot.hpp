// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does torch.cuda.memory_snapshot list?
//
// Segments whose blocks tile them. A segment is a chunk of a private pool, or what of a chunk of the pool is no private pool's.
// Neighbours that a block lies across are one segment: chunks are mapped side by side. What no tensor of PyTorch's has, is an
// inactive block, also where CuPy or Numba have it.
//
// cost:      O(n log n) in the number of blocks; no chunk comes or goes meanwhile.

#include "ledger.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weir_plugin::torch {

struct span {
    std::size_t begin = 0;
    std::size_t end = 0;
    chunk const* of = nullptr;
};

/// Chunks of private pools, and the rest of the pool's, in order of address.
inline std::vector<span> spans_of(chunks const& pool_chunks, chunks const& private_chunks) {
    std::vector<span> found;
    for (auto const& [address, each] : private_chunks)
        found.push_back({address, address + each.bytes, &each});
    for (auto const& [address, each] : pool_chunks) {
        std::size_t from = address;
        std::size_t const end = address + each.bytes;
        auto next = private_chunks.upper_bound(from);
        if (next != private_chunks.begin())
            --next; // it may begin in an earlier chunk
        for (; next != private_chunks.end() && next->first < end; ++next) {
            if (next->first > from)
                found.push_back({from, next->first, &each});
            from = std::max(from, next->first + next->second.bytes);
        }
        if (from < end)
            found.push_back({from, end, &each});
    }
    std::sort(found.begin(), found.end(), [](span const& a, span const& b) { return a.begin < b.begin; });
    return found;
}

/// Adds the segments of a device to `list`: all, or those of one private pool. Throws std::bad_alloc.
inline void add_segments(int device, ledger& of, mempool only, std::vector<caching::SegmentInfo>& list) {
    of.with_chunks([&](chunks const& pool_chunks, chunks const& private_chunks) {
        std::vector<live_tensor> blocks = of.blocks();
        auto const contexts = of.contexts_of_blocks();
        std::sort(blocks.begin(), blocks.end(),
                  [](live_tensor const& a, live_tensor const& b) { return a.address < b.address; });
        std::vector<span> const spans = spans_of(pool_chunks, private_chunks);
        auto block = blocks.begin();
        for (std::size_t i = 0; i < spans.size(); ++i) {
            span const first = spans[i];
            caching::SegmentInfo segment;
            segment.device = static_cast<c10::DeviceIndex>(device);
            segment.address = first.begin;
            segment.owner_private_pool_id = first.of->pool;
            segment.registration_counter = first.of->number;
            segment.context_when_allocated = first.of->where;
            std::size_t end = first.end;
            std::size_t at = first.begin;
            auto const gap = [&](std::size_t until) {
                if (at < until) {
                    caching::BlockInfo free;
                    free.size = until - at;
                    segment.blocks.push_back(free);
                }
                at = until;
            };
            while (block != blocks.end() && block->address < first.begin)
                ++block; // its memory is suspended
            for (; block != blocks.end() && block->address < end; ++block) {
                while (block->address + block->bytes > end && i + 1 < spans.size() && spans[i + 1].begin == end)
                    end = spans[++i].end;
                gap(block->address);
                caching::BlockInfo own;
                own.size = block->bytes;
                own.requested_size = block->requested_bytes;
                own.allocated = own.active = true;
                if (auto const found = contexts.find(block->address); found != contexts.end())
                    own.context_when_allocated = found->second;
                segment.blocks.push_back(std::move(own));
                segment.requested_size += block->requested_bytes;
                segment.allocated_size += block->bytes;
                segment.stream = segment.stream ? segment.stream : block->stream;
                at = block->address + block->bytes;
            }
            gap(end);
            segment.active_size = segment.allocated_size;
            segment.total_size = end - first.begin;
            segment.is_large = segment.total_size > (2U << 20U);
            if (only == mempool{0, 0} || only == segment.owner_private_pool_id)
                list.push_back(std::move(segment));
        }
    });
}

} // namespace weir_plugin::torch
