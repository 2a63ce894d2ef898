// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks are live, and what is wrong with a free?
//
// The ledger knows the live blocks, and of each address that was handed out before, whether its block was freed or ended with
// others. What is wrong with a free is one word, of which a sentence is made.
//
// invariant: an address is live, or gone, or was never handed out.
// order:     one thread at a time.
// cost:      two hash look-ups a call. An address that is not live is searched for inside all live blocks.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/live_blocks.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/text.hpp>
#include <weir/layer/guard/needed_streams.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer::detail {

struct guarded_block : base::numbered_block {
    std::size_t alignment = 0;
    bool in_container = false;
    needed_streams streams = {};
};

enum class mistake : unsigned char { none, numbers, stream_ended, unknown, freed, ended, inside };

/// A free, and what the ledger knows of it.
struct checked_free {
    mistake wrong = mistake::none;
    guarded_block block = {}; // that was live
    std::size_t inside_bytes = 0; // how far inside a live block

    /// What is wrong with the free on `stream`, with these numbers.
    text sentence(stream_ref stream, std::size_t bytes, std::size_t alignment) const {
        switch (wrong) {
        case mistake::stream_ended:
            return "is freed after the end of " + stream_text(block.streams.missed_by_free_on(stream)) +
                   ", which it needs; before a stream ends, free its blocks, end their containers or move them to another "
                   "stream ('set_stream'), and tell their last use there ('last_used_on') (it stays handed out)";
        case mistake::unknown: return "was not handed out by this pool; free it where it was allocated";
        case mistake::freed: return "is freed already; free each block once";
        case mistake::ended: return "ended already, with its scope, 'rewind' or 'clear'; such a block needs no free";
        case mistake::inside:
            return "is " + base::count_text(inside_bytes, " byte") +
                   " inside a live block; pass the pointer that 'allocate' returned";
        default:
            return "was allocated with " + base::count_text(block.bytes, " byte") + " at alignment " +
                   base::number_text(block.alignment) + " and is freed with " + base::count_text(bytes, " byte") +
                   " at alignment " + base::number_text(alignment) + "; pass the allocation's (freed with those)";
        }
    }
};

/// The live blocks, and what became of the others.
class ledger : public base::live_blocks<guarded_block> {
public:
    /// Makes room for one more block. Throws std::bad_alloc.
    void make_room() {
        reserve(size() + 1);
        gone_.reserve(gone_.size() + size() + 1); // all that are live may go
    }
    /// A block is handed out. Throws std::bad_alloc before any change, and not if there is room.
    void enter(void* p, std::size_t bytes, std::size_t alignment, stream_ref stream) {
        make_room();
        guarded_block block{{{p, bytes}}, alignment};
        block.streams.free_on(stream);
        live_blocks::enter(std::move(block));
        gone_.erase(key(p));
    }

    /// Why a free at `p` is wrong, where no block is live.
    checked_free not_live(void const* p) const noexcept {
        for (guarded_block const& each : *this)
            if (std::size_t const inside = key(p) - key(each.address); inside < each.bytes)
                return {mistake::inside, {}, inside};
        std::uint32_t const fate = gone_.find(key(p));
        return {fate == base::address_map::none ? mistake::unknown : static_cast<mistake>(fate)};
    }

    /// The block at `p` is freed. If it was live, it is no more, whatever is wrong.
    checked_free free(void const* p, stream_ref stream, std::size_t bytes, std::size_t alignment) noexcept {
        guarded_block* const live = find(p);
        if (!live)
            return not_live(p);
        checked_free one{mistake::none, leave(*live)};
        note(one.block, mistake::freed);
        if (!one.block.streams.missed_by_free_on(stream).is_host())
            one.wrong = mistake::stream_ended;
        else if (one.block.bytes != bytes || one.block.alignment != alignment)
            one.wrong = mistake::numbers;
        return one;
    }

    /// All live blocks but the first `entered` end.
    void end_after(std::uint64_t entered) noexcept {
        leave_after(entered, [this](guarded_block const& gone) { note(gone, mistake::ended); });
    }

    /// `stream` ends. Returns how many live blocks need it.
    std::size_t end_stream(stream_ref stream) noexcept {
        std::size_t count = 0;
        for (guarded_block& each : *this)
            count += each.streams.end(stream);
        return count;
    }

    /// The ten largest live blocks that need `stream` (for the host: of all), with their owners, and how many more there are.
    text owners(stream_ref stream) {
        largest_blocks largest;
        std::size_t count = 0;
        for (guarded_block const& each : *this)
            if (stream.is_host() || each.streams.have(stream))
                largest.offer(each), ++count;
        text said;
        for (live_block const& each : largest) {
            guarded_block const& one = *find(each.address);
            said = said + (said.empty() ? "" : ", ") + base::bytes_text(one.bytes) + " at " + base::address_text(one.address) +
                   (one.in_container ? " (a container on " : " ('allocate' on ") + one.streams.sentence() + ")";
        }
        return count > largest.size() ? said + " and " + base::number_text(count - largest.size()) + " more" : said;
    }

private:
    static std::uintptr_t key(void const* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }
    void note(guarded_block const& gone, mistake fate) noexcept { gone_.insert(key(gone.address), std::uint32_t(fate)); }

    base::address_map gone_; // address -> 'freed' or 'ended', where no block is live any more
};

} // namespace layer::detail
} // namespace v0
} // namespace weir
