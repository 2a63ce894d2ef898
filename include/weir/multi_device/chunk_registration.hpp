// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who is told that all ranks have a chunk of memory, and when it goes?
//
// A library that registers memory (NCCL's windows, a network card's driver) wants to know of each chunk once. A collective pool
// tells it when the chunk has come on every rank, and before it goes back.
//
// order:     'enter' is called on every rank at the same place; 'leave' when no work uses the chunk, the last chunk's first.
// not for:   single blocks: registering each would use up addresses, and time.

#include <cstddef>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// Derive from it to be told. One thread at a time. Outlives the pools that it is given to.
class chunk_registration {
public:
    chunk_registration() = default;
    chunk_registration(chunk_registration const&) = delete;
    chunk_registration& operator=(chunk_registration const&) = delete;
    virtual ~chunk_registration() = default;

    /// A chunk has come, on every rank; all ranks call this now. What it throws undoes the growth on all.
    virtual void enter(void* chunk, std::size_t bytes) = 0;
    /// The chunk goes.
    virtual void leave(void* chunk, std::size_t bytes) noexcept = 0;
};

} // namespace multi_device
} // namespace v0
} // namespace weir
