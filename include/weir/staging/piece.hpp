// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is one copy of a batch?
//
// invariant: none; the copy that takes the batch checks it.
// cost:      none.
// not for:   a copy alone: its functions take a target, a source and a size.

#include <cstddef>

namespace weir {
inline namespace v0 {
namespace staging {

/// One copy of a batch: of `bytes` bytes, which may be none, from `from` to `to`.
struct piece {
    void* to = nullptr;
    void const* from = nullptr;
    std::size_t bytes = 0;
};

} // namespace staging
} // namespace v0
} // namespace weir
