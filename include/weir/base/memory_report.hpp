// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a pool report about itself, and which of its blocks are the largest?
//
// Every pool reports a few figures. When memory runs out, the program also wants to know which blocks take it, so a report
// can list the largest blocks that are handed out. A layer that keeps a list of live blocks (blocks that are handed out and
// not yet freed) offers each of them here, and the ten largest are kept. They are stored inside the object, so that an
// exception can carry them and be copied.
//
// invariant: the blocks are in order of size, the largest first; an address occurs once, however many layers offer it.
// order:     one thread at a time.
// cost:      O(10) for each offered block; 168 bytes.

#include <cstddef>
#include <cstdint>
#include <weir/base/text.hpp>

namespace weir {
inline namespace v0 {

/// A block that is handed out, with the bytes that were asked for.
struct live_block {
    void const* address = nullptr;
    std::size_t bytes = 0;
};

/// The ten largest of the blocks that were offered. No member throws.
class largest_blocks {
public:
    /// How many blocks are kept.
    static constexpr std::size_t most = 10;

    void offer(live_block block) noexcept {
        for (live_block const& each : *this)
            if (each.address == block.address)
                return;
        if (size_ == most && block.bytes <= blocks_[most - 1].bytes)
            return;
        std::size_t at = size_ == most ? most - 1 : size_++;
        for (; at != 0 && blocks_[at - 1].bytes < block.bytes; --at)
            blocks_[at] = blocks_[at - 1];
        blocks_[at] = block;
    }

    live_block const* begin() const noexcept { return blocks_; }
    live_block const* end() const noexcept { return blocks_ + size_; }
    live_block const& operator[](std::size_t i) const noexcept { return blocks_[i]; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

private:
    live_block blocks_[most];
    std::size_t size_ = 0;
};

namespace base {
/// The address as text, such as '0x7f00'. Throws std::bad_alloc.
inline text address_text(void const* address) {
    char digits[2 + 2 * sizeof(void*) + 1];
    char* first = digits + sizeof digits - 1;
    *first = '\0';
    auto left = reinterpret_cast<std::uintptr_t>(address);
    do {
        *--first = "0123456789abcdef"[left % 16];
        left /= 16;
    } while (left != 0);
    *--first = 'x';
    *--first = '0';
    return first;
}
} // namespace base

/// What a pool knows about itself at one moment. Sizes are in bytes.
struct memory_report {
    static constexpr std::size_t unknown = static_cast<std::size_t>(-1);

    text name;                                ///< the pool's name, as its options gave it
    std::size_t in_use_bytes = 0;             ///< handed out and not yet freed, rounding included; SIZE_MAX: not known
    std::size_t reserved_bytes = 0;           ///< held from the upstream; SIZE_MAX: not known
    std::size_t limit_bytes = unknown;        ///< the most it may hold; SIZE_MAX: there is no limit, or it is not known
    std::size_t largest_free_bytes = unknown; ///< a block of this size is not refused to some stream, though the pool may
                                              ///< grow for it first; larger ones may fit too; SIZE_MAX: not known
    std::size_t live_blocks = 0;              ///< blocks handed out and not yet freed
    std::size_t chunks = 0;                   ///< pieces of memory that the pool got from the upstream
    std::size_t lost_bytes = 0; ///< freed, but handed out to nobody: graphs may use them, or the host had no memory
    std::size_t unsettled_bytes = 0;          ///< freed, and before a 'settle' only the stream that freed them may get them
    std::size_t waits = 0; ///< allocations that found no room, waited for freed memory and searched again; 0 also: not counted
    // These take longer to find out. Only a pool's 'full_state' fills them in:
    std::size_t device_free_bytes = unknown; ///< left on the device; SIZE_MAX: not known
    largest_blocks largest_live = {};        ///< the largest live blocks, if a layer lists them
    // A layer that refuses by a limit of its own knows this in place of what is in use and reserved:
    std::size_t requested_bytes = unknown; ///< asked for, of the live blocks, without rounding; SIZE_MAX: not known
};

/// Why a pool has no room for a block. The part that refuses makes it; each layer around that part amends what it knows better.
struct refusal {
    memory_report state; ///< the full state of the part that refuses
    text reason;         ///< what is in the way and, behind a semicolon, what to do about it
    text holders = {};   ///< which lines of the program hold most, if layer::record knows
};

namespace base {
/// Why a part that gets its chunks from a pool has no room. `below`: that pool's state; `reason`: that pool's refusal.
inline text refusal_below_text(memory_report const& below, text const& reason) {
    return "its pool '" + below.name + "' (" + bytes_text(below.in_use_bytes) + " in use, " +
           bytes_text(below.reserved_bytes) + " reserved, limit " +
           (below.limit_bytes == SIZE_MAX ? "none" : bytes_text(below.limit_bytes)) + ") refuses: " + reason;
}
} // namespace base

} // namespace v0
} // namespace weir
