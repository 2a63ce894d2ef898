// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a set of spillable buffers hold, and what has it moved?
//
// invariant: what is accessed is in use.
// cost:      none.
// not for:   what the pools below hold: see their 'state'.

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace staging {

/// What a set holds and has done. Sizes in bytes.
struct spill_state {
    std::size_t budget_bytes = 0;
    std::size_t in_use_bytes = 0;      ///< on the device, or on the way there or away
    std::size_t accessed_bytes = 0;    ///< of these, what is being accessed
    std::size_t buffers = 0;           ///< how many there are
    std::uint64_t to_host_bytes = 0;   ///< copied to the host since the set was made
    std::uint64_t to_device_bytes = 0; ///< copied back
    std::uint64_t uncopied_bytes = 0;  ///< left without a copy: the host has the contents, or they are computed again
    std::uint64_t computed_bytes = 0;  ///< computed, for the first time or again
};

} // namespace staging
} // namespace v0
} // namespace weir
