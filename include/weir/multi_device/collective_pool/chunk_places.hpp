// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which offset is an address, and which address an offset?
//
// Addresses differ from rank to rank, also in their order, and a placement that saw them would decide differently. So it sees
// offsets: the chunks stand one behind the other in the order in which they came, each at a multiple of their alignment and
// with a gap before it, so that free bytes of two chunks never join.
//
// cost:      a comparison for each chunk, mostly one.
// not for:   many chunks: they come by a collective call, and so there are few.

#include <cstddef>
#include <cstdint>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device::detail {

struct placed_chunk {
    std::uintptr_t address = 0;
    base::range place; ///< its offsets
};

/// One thread at a time.
class chunk_places {
public:
    /// `spacing`: the alignment of chunks, a power of two.
    explicit chunk_places(std::size_t spacing) noexcept : spacing_(spacing) {}

    /// Makes room, so that the next 'add' does not throw. Throws std::bad_alloc.
    void make_room() { chunks_.reserve_more(1); }
    /// The offsets of a chunk that comes now.
    base::range add(void* chunk, std::size_t bytes) noexcept {
        std::size_t const end = chunks_.empty() ? 0 : chunks_.back().place.end();
        chunks_.push_back({reinterpret_cast<std::uintptr_t>(chunk), {base::align_up(end, spacing_) + spacing_, bytes}});
        bytes_ += bytes;
        return chunks_.back().place;
    }
    /// The chunk that came last is gone.
    void remove_last() noexcept {
        bytes_ -= chunks_.back().place.bytes;
        chunks_.pop_back();
    }

    /// The address of an offset in a chunk.
    void* address_of(std::size_t offset) const noexcept {
        placed_chunk const* each = chunks_.end() - 1;
        while (offset < each->place.offset)
            --each;
        return reinterpret_cast<void*>(each->address + (offset - each->place.offset));
    }
    /// The offset of an address; 0: it is in no chunk.
    std::size_t offset_of(void const* p) const noexcept {
        auto const at = reinterpret_cast<std::uintptr_t>(p);
        for (placed_chunk const* each = chunks_.end(); each-- != chunks_.begin();)
            if (at - each->address < each->place.bytes)
                return at - each->address + each->place.offset;
        return 0;
    }

    placed_chunk const* end() const noexcept { return chunks_.end(); }
    std::size_t count() const noexcept { return chunks_.size(); }
    std::size_t bytes() const noexcept { return bytes_; }

private:
    base::growing_array<placed_chunk> chunks_;
    std::size_t bytes_ = 0;
    std::size_t spacing_;
};

} // namespace multi_device::detail
} // namespace v0
} // namespace weir
