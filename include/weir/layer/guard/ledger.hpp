// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks are live, for whom, and what became of the others?
//
// The ledger has an entry for each address that was ever handed out. It says whether the block there is live, was freed, or
// ended with others, and for a live block its size, its stream and whether a container holds it. Live blocks are in a list by
// age, and in a tree by address, which shows what lies beside them. Marks ('used_on') are listed as well, each with the number
// of the allocation that it belongs to; those of blocks that are gone are dropped when the list grows.
//
// invariant: an address has one entry; the list has the live blocks and no others, the youngest first.
// order:     one thread at a time.
// cost:      a hash look-up a call, and O(log live blocks); 100 to 170 bytes of host memory for each address.
// not for:   deciding what is a mistake: the guard does.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/text.hpp>
#include <weir/layer/guard/live_order.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer::detail {

/// How a sentence names a stream.
inline text stream_text(stream_ref stream) {
    if (stream.is_host())
        return "the host";
    if (runtime::is_default_stream(stream))
        return runtime::is_per_thread(stream) ? "a thread's default stream" : "the legacy default stream";
    return "stream " + base::address_text(stream.get());
}

class ledger {
public:
    static constexpr std::uint32_t none = base::address_map::none;

    enum class fate : unsigned char { freed, ended, live };
    struct block {
        std::uintptr_t address = 0;
        std::size_t bytes = 0;
        std::size_t alignment = 0;
        std::uint64_t serial = 0; // the number of its allocation
        stream_ref stream = on_host; // where it is to be freed, as far as is known
        std::uint64_t since = 0; // how many allocations and changes of stream there had been when it came to 'stream'
        stream_ref ended_mark = on_host; // a stream that it is marked for and that was said to end; the host: none
        std::uint32_t older = none; // neighbours in the list of live blocks
        std::uint32_t younger = none;
        std::uint32_t lower = none; // neighbours in the tree of live blocks
        std::uint32_t higher = none;
        std::uint32_t owners = 1; // several: the pool handed out the address to each of them
        bool handed_out_twice = false;
        fate now = fate::freed;
        bool in_container = false;

        bool mark_has_ended() const noexcept { return !ended_mark.is_host(); }
    };

    /// Makes room for one more entry, beside those that `expected` calls under way need. Throws std::bad_alloc.
    void make_room(std::size_t expected) {
        std::size_t const needed = blocks_.size() + expected + 1;
        if (needed > blocks_.capacity())
            blocks_.reserve(2 * needed);
        index_.reserve(needed);
    }

    /// Enters a block for which there is room. `owners`: how many it has, with those that the address had before.
    void enter(std::uintptr_t address, std::size_t bytes, std::size_t alignment, stream_ref stream,
               std::uint32_t owners = 1) noexcept {
        std::uint32_t at = index_.find(address);
        if (at == none) {
            at = static_cast<std::uint32_t>(blocks_.size());
            blocks_.push_back(block{});
            index_.insert(address, at);
        } else if (is_live(at)) {
            leave(at, fate::ended); // ended where the ledger did not hear of it, or the new entry stands for both
        }
        block& fresh = blocks_[at] = block{};
        fresh.address = address;
        fresh.owners = owners;
        fresh.handed_out_twice = owners != 1;
        fresh.bytes = bytes;
        fresh.alignment = alignment;
        fresh.serial = ++serial_;
        fresh.since = serial_;
        fresh.stream = stream;
        fresh.older = youngest_;
        fresh.now = fate::live;
        if (youngest_ != none)
            blocks_[youngest_].younger = at;
        youngest_ = at;
        ++live_;
        by_address_.insert(blocks_, at);
    }

    /// Enters a block that has bytes of a live one, and returns what is wrong; empty without host memory. `twice`: whether the
    /// pool handed those bytes out twice; becomes false if the other block has been freed by now. If not, that one ended where
    /// the ledger did not hear of it.
    text enter_overlapping(std::uintptr_t address, std::size_t bytes, std::size_t alignment, stream_ref stream,
                           bool& twice) noexcept {
        std::uint32_t at = overlapping(address, bytes);
        for (; !twice && at != none; at = overlapping(address, bytes))
            leave(at, fate::ended);
        twice = at != none;
        text complaint;
        try {
            if (twice)
                complaint = handed_out_twice(blocks_[at], address, bytes, stream);
        } catch (...) { // no host memory for the sentence
        }
        enter(address, bytes, alignment, stream, twice && blocks_[at].address == address ? blocks_[at].owners + 1 : 1);
        return complaint;
    }

    /// Notes that a container holds the live block `at` and frees it on `stream`.
    void hold(std::uint32_t at, stream_ref stream) noexcept {
        blocks_[at].in_container = true;
        blocks_[at].stream = stream;
        blocks_[at].since = ++serial_;
    }

    /// Notes that one owner of a live block frees it.
    void free(std::uint32_t at) noexcept {
        if (--blocks_[at].owners == 0)
            leave(at, fate::freed);
    }

    /// Takes a live block off the list.
    void leave(std::uint32_t at, fate then) noexcept {
        block& gone = blocks_[at];
        (gone.younger != none ? blocks_[gone.younger].older : youngest_) = gone.older;
        if (gone.older != none)
            blocks_[gone.older].younger = gone.younger;
        gone.now = then;
        --live_;
        by_address_.remove(blocks_, at);
    }

    /// A live block that has bytes in common with the `bytes` bytes at `address`, or 'none'.
    std::uint32_t overlapping(std::uintptr_t address, std::size_t bytes) const noexcept {
        std::uint32_t const last = by_address_.last_before(blocks_, address + bytes);
        return last != none && blocks_[last].address + blocks_[last].bytes > address ? last : none;
    }
    std::size_t live() const noexcept { return live_; }

    /// Ends the blocks that are younger than allocation number `serial`.
    void end_after(std::uint64_t serial) noexcept {
        while (youngest_serial() > serial)
            leave(youngest_, fate::ended);
    }

    /// The number of the entry for an address, or 'none'.
    std::uint32_t find(std::uintptr_t address) const noexcept { return index_.find(address); }
    block& operator[](std::uint32_t at) noexcept { return blocks_[at]; }
    bool is_live(std::uint32_t at) const noexcept { return at != none && blocks_[at].now == fate::live; }

    std::uint64_t last_serial() const noexcept { return serial_; }
    std::uint64_t youngest_serial() const noexcept { return youngest_ == none ? 0 : blocks_[youngest_].serial; }

    /// Notes that the live block `at` is marked for `stream`. Without host memory the mark is left out.
    void mark(std::uint32_t at, stream_ref stream) noexcept {
        try {
            if (marks_.size() == marks_.capacity())
                drop_old_marks();
            marks_.push_back(mark_of{at, blocks_[at].serial, stream});
        } catch (...) { // a mistake with this mark goes untold
        }
    }

    /// Notes that `stream`, which is no default stream, ends, and returns how many live blocks are to be freed on it or are
    /// marked for it. Without host memory a later free on the handle goes untold.
    std::size_t end_of(stream_ref stream) noexcept {
        for (mark_of const& each : marks_)
            if (each.stream == stream && is_of_live(each))
                blocks_[each.at].ended_mark = stream;
        try {
            note_end(reinterpret_cast<std::uintptr_t>(stream.get()));
        } catch (...) {
        }
        std::size_t count = 0;
        for (std::uint32_t at = youngest_; at != none; at = blocks_[at].older)
            count += needs(blocks_[at], stream);
        return count;
    }

    /// Whether `stream` was said to end after the block was allocated, and after the block's container came to that stream.
    /// Then a free on it names no stream, or another one that has the same handle.
    bool ended_after(block const& one, stream_ref stream) const noexcept {
        std::uint32_t const at = stream.is_host() ? none : ended_.find(reinterpret_cast<std::uintptr_t>(stream.get()));
        return at != none && ends_[at] >= (one.stream == stream ? one.since : one.serial);
    }

    void offer_to(largest_blocks& list) const noexcept {
        offer_to(list, [](block const&) { return true; });
    }

    /// The ten largest live blocks for which which(block) is true, with their owners, and how many there are besides.
    template <class Which>
    text list(Which const& which) const {
        largest_blocks largest;
        std::size_t const count = offer_to(largest, which);
        text said;
        for (live_block const& each : largest)
            said = said + (said.empty() ? "" : ", ") + owner(blocks_[find(reinterpret_cast<std::uintptr_t>(each.address))]);
        return count > largest.size() ? said + " and " + base::number_text(count - largest.size()) + " more" : said;
    }

    /// What is wrong with the end of a stream that `count` live blocks need.
    text early_end(stream_ref stream, std::size_t count) const {
        return detail::stream_text(stream) + " ends too early for " + base::count_text(count, " block") + ": " +
               list([&](block const& each) { return needs(each, stream); }) +
               "; free them before, or end their containers, or move those that are on it to another stream ('set_stream')";
    }

    /// What is wrong with the pool that handed out `bytes` bytes at `address` although `first` is live.
    static text handed_out_twice(block const& first, std::uintptr_t address, std::size_t bytes, stream_ref stream) {
        return "it handed out " + base::bytes_text(bytes) + " at " +
               base::address_text(reinterpret_cast<void const*>(address)) + " on " + detail::stream_text(stream) +
               ", and a live block has some of those bytes: " + owner(first) +
               "; the mistake is in the pool, its placement or what is below it, and not with those who free the blocks";
    }

    /// What is wrong with the free of a live block.
    text wrong_free(block const& one, stream_ref stream, std::size_t bytes, std::size_t alignment) const {
        if (one.mark_has_ended())
            return "is freed after the end of " + detail::stream_text(one.ended_mark) +
                   ", for which it is marked ('used_on'); free it before that stream ends, or tell its last use there "
                   "('last_used_on'), after which the stream may end (it stays handed out)";
        if (ended_after(one, stream))
            return "is freed on " + detail::stream_text(stream) + ", which has ended; " +
                   (one.in_container ? "end its container, or move it to another stream ('set_stream'), before that"
                                     : "free it before that, or on another stream that was made to wait for it before it "
                                       "ended ('order_after')") +
                   " (freed once all work was done)";
        return "was allocated with " + numbers(one.bytes, one.alignment) + " and is freed with " + numbers(bytes, alignment) +
               "; pass the allocation's (freed with those)";
    }

    /// What is wrong with freeing at `address`, whose entry `at` is not live or 'none'.
    text wrong_address(std::uintptr_t address, std::uint32_t at) const {
        if (std::uint32_t const around = overlapping(address, 1); around != none)
            return "is " + base::count_text(address - blocks_[around].address, " byte") +
                   " inside a live block; pass the pointer that 'allocate' returned";
        if (at == none)
            return "was not handed out by this pool; free it where it was allocated";
        if (blocks_[at].now == fate::ended)
            return "ended already, with its scope, 'rewind' or 'clear'; such a block needs no free";
        return "is freed already; free each block once";
    }

private:
    static text owner(block const& one) {
        return base::bytes_text(one.bytes) + " at " + base::address_text(reinterpret_cast<void const*>(one.address)) +
               (one.in_container ? " (a container on " : " ('allocate' on ") + stream_text(one.stream) +
               (one.mark_has_ended() ? ", marked for " + stream_text(one.ended_mark) + ")" : text(")"));
    }

    static text numbers(std::size_t bytes, std::size_t alignment) {
        return base::count_text(bytes, " byte") + " at alignment " + base::number_text(alignment);
    }

    struct mark_of {
        std::uint32_t at;
        std::uint64_t serial;
        stream_ref stream;
    };

    static bool needs(block const& one, stream_ref stream) noexcept { return one.stream == stream || one.ended_mark == stream; }

    void note_end(std::uintptr_t handle) {
        std::uint32_t at = ended_.find(handle);
        if (at == none) {
            at = static_cast<std::uint32_t>(ends_.size());
            ended_.reserve(ends_.size() + 1);
            ends_.push_back(0);
            ended_.insert(handle, at);
        }
        ends_[at] = serial_;
    }

    bool is_of_live(mark_of const& one) const noexcept { return is_live(one.at) && blocks_[one.at].serial == one.serial; }

    void drop_old_marks() {
        base::growing_array<mark_of> kept;
        for (mark_of const& each : marks_)
            if (is_of_live(each))
                kept.push_back(mark_of(each));
        kept.reserve(2 * kept.size() + 8);
        marks_ = std::move(kept);
    }

    template <class Which>
    std::size_t offer_to(largest_blocks& list, Which const& which) const {
        std::size_t count = 0;
        for (std::uint32_t at = youngest_; at != none; at = blocks_[at].older)
            if (which(blocks_[at])) {
                ++count;
                list.offer(live_block{reinterpret_cast<void const*>(blocks_[at].address), blocks_[at].bytes});
            }
        return count;
    }

    base::address_map index_; // address -> index into blocks_, of every address that was ever handed out
    base::growing_array<block> blocks_;
    base::growing_array<mark_of> marks_;
    base::address_map ended_; // handle of a stream that was said to end -> index into ends_
    base::growing_array<std::uint64_t> ends_; // 'serial_' at that time
    std::uint32_t youngest_ = none; // the newest of the live blocks
    live_order by_address_;
    std::size_t live_ = 0; // how many live blocks there are
    std::uint64_t serial_ = 0; // the number of the last allocation or change of stream
};

} // namespace layer::detail
} // namespace v0
} // namespace weir
