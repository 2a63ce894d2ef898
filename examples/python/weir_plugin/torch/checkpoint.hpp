// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is a private pool put back to what it was?
//
// torch.compile's graph trees record a graph, go another way, and come back: then the pool has to be as it was after the
// recording, with the same blocks live at the same addresses. A checkpoint is a copy of what is free, and the list of what is
// live. PyTorch takes the blocks that are live again over from the answer; what it does not take it frees by the deleter.

#include "blocks.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace weir_plugin::torch {

struct pool_checkpoint : cuda_caching::AllocatorState {
    mempool id{0, 0};
    private_pools<counted_pool>::checkpoint memory;
    std::vector<live_tensor> tensors; // of the blocks that were live
};

/// Throws weir::usage_error if nobody uses the pool any more.
inline std::shared_ptr<cuda_caching::AllocatorState> save_checkpoint(device_memory& own, mempool id) {
    auto made = std::make_shared<pool_checkpoint>();
    made->id = id;
    made->memory = own.graphs.save(id);
    for (auto const& each : made->memory.live) {
        live_tensor known;
        if (ledger_of(own.memory.device_number()).find(each.p, known))
            made->tensors.push_back(known);
    }
    return made;
}

/// What was live then is live again, and what is live now is not. Throws weir::usage_error if nobody uses the pool any more.
inline cuda_caching::CheckpointDelta restore_checkpoint(device_memory& own, int device, cuda_caching::AllocatorState& state) {
    auto const* const saved = dynamic_cast<pool_checkpoint const*>(&state);
    if (!saved)
        throw weir::usage_error("weir: this checkpoint is of another allocator; restore what getCheckpointState gave");
    cuda_caching::CheckpointDelta delta;
    context const where = history_settings::gather(caching::RecordContext::STATE);
    std::vector<live_block> const ended = own.graphs.restore(saved->id, saved->memory);
    live_tensor gone;
    for (auto const& each : ended) {
        if (end_block(each.p, gone) >= 0)
            delta.ptrs_freed.push_back(each.p);
    }
    c10::Device const named(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    for (live_tensor const& each : saved->tensors) {
        void* const p = reinterpret_cast<void*>(each.address);
        auto const now = ledger_of(device).allocated(each, where);
        c10::reportMemoryUsageToProfiler(p, static_cast<std::int64_t>(each.bytes), now.allocated_bytes, now.reserved_bytes,
                                         named);
        delta.dataptrs_allocd.emplace_back(p, p, &free_block, named);
    }
    return delta;
}

} // namespace weir_plugin::torch
