// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A pool of one block, for what a layer does around a free: `at_free` runs as soon as the block may be handed out again, as
// another thread might.

#include <cstddef>
#include <functional>
#include <support/counting_pool.hpp>
#include <utility>

namespace support {

class one_block : public counting_pool<> {
public:
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t = default_alignment) { return block_; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t = default_alignment) noexcept {
        if (auto const now = std::exchange(at_free, nullptr))
            now();
    }

    std::function<void()> at_free;

private:
    alignas(256) char block_[256];
};

} // namespace support
