// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a checking tool learn which chunks a pool has?
//
// The slot wraps an upstream, and tells nvtx::checked_memory of each chunk that comes and goes.
//
// invariant: a chunk is known while the pool has it. One that could not go back stays known.
// order:     a chunk that goes is told before the upstream sees it, one that comes after the upstream handed it out.
// cost:      for each chunk what checked_memory takes.
// not for:   mapped memory, for which compute-sanitizer takes no heap.

#include <cstddef>
#include <utility>
#include <weir/contract/upstream_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/interop/nvtx/checked_memory.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace nvtx {

/// `Upstream`, whose chunks are told to a checking tool. It has that one's members; who may call them is as there.
template <class Upstream>
class checked_chunks : public Upstream {
    static_assert(!contract::holds<contract::has_extends, Upstream>,
                  "weir: the upstream slot of nvtx::checked_chunks takes memory that CUDA allocates: upstream::device, "
                  "upstream::pinned<> or upstream::managed; compute-sanitizer takes no borders inside of mapped memory");

public:
    /// `memory` outlives all copies of this object.
    explicit checked_chunks(checked_memory& memory, Upstream upstream = Upstream())
        : Upstream(std::move(upstream)), memory_(&memory) {}

    void* acquire(std::size_t bytes) {
        void* const chunk = Upstream::acquire(bytes);
        try {
            if (chunk)
                memory_->enter_chunk(chunk, bytes);
        } catch (...) { // no host memory for the note
            static_cast<void>(Upstream::release(chunk, bytes));
            throw;
        }
        return chunk;
    }
    auto release(void* chunk, std::size_t bytes) noexcept {
        memory_->leave_chunk(chunk);
        if constexpr (contract::returns<bool, contract::has_release, Upstream>) {
            bool const is_gone = Upstream::release(chunk, bytes);
            if (is_gone)
                memory_->chunk_is_gone();
            else
                memory_->enter_again(chunk, bytes);
            return is_gone;
        } else {
            Upstream::release(chunk, bytes);
            memory_->chunk_is_gone();
        }
    }

private:
    checked_memory* memory_;
};

} // namespace nvtx
} // namespace interop
} // namespace v0
} // namespace weir
