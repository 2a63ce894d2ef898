// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who frees memory that is not theirs to free?
//
// Keeps a ledger of the blocks that are live and holds every free against it: a block that was never handed out
// here, one that was freed before, an address inside a block, a size or an alignment that is not the allocation's.
// A wrong free is said in a sentence and goes no further, so the pool stays sound; where only the size or the
// alignment is wrong the block is freed with the right ones. The recipes wear this layer in debug builds. An out_of_memory
// names the largest live blocks.
//
// invariant: the wrapped pool sees frees of live blocks only, with the size and alignment that they were
//            allocated with.
// order:     a block leaves the ledger before the pool sees its free, and enters, in room made before, after the pool
//            handed it out.
// cost:      a mutex (twice for an allocation) and a hash look-up a call, about 60 bytes of host memory for each address
//            ever handed out.
// not for:   writes beyond a block's end; a free on a stream that does not come behind the block's work, which is in order
//            where the program made that stream wait.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/contracts.hpp>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/largest_blocks.hpp>
#include <weir/base/layered.hpp>
#include <weir/base/mutex.hpp>
#include <weir/base/resource.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Gets the sentence on a wrong free. It may abort; it must not throw.
using violation_handler = void (*)(char const* sentence);

/// The default: the sentence on stderr.
inline void print_violation(char const* sentence) {
    std::fprintf(stderr, "%s\n", sentence);
}

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class guard : public layered<guard<Pool>, Pool> {
    using base = layered<guard<Pool>, Pool>;

public:
    /// `arguments`: the wrapped pool's.
    template <class... Arguments, class = std::enable_if_t<base::template makes_pool<Arguments...>>>
    explicit guard(Arguments&&... arguments) : base(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    guard() : base(std::in_place) {}

    /// Sets who hears of wrong frees. Not while other threads use the pool.
    void on_violation(violation_handler handler) noexcept { handler_ = handler; }

    /// As the wrapped pool's.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = base::default_alignment) {
        expect();
        void* p = nullptr;
        try {
            p = this->pool_.try_allocate(stream, bytes, alignment);
        } catch (...) {
            lock_guard<mutex> const lock(mutex_);
            --expected_;
            throw;
        }
        lock_guard<mutex> const lock(mutex_);
        --expected_;
        if (p)
            enter(reinterpret_cast<std::uintptr_t>(p), bytes, alignment);
        return p;
    }

    /// As the wrapped pool's, for a block that is live; else a sentence, and nothing is freed.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = base::default_alignment) noexcept {
        if (!p)
            return;
        block found;
        bool wrong = false;
        text complaint;
        {
            lock_guard<mutex> const lock(mutex_);
            auto const address = reinterpret_cast<std::uintptr_t>(p);
            std::uint32_t const at = index_.find(address);
            if (at != address_map::none && blocks_[at].live) {
                found = blocks_[at];
                blocks_[at].live = false;
            }
            wrong = !found.live || found.bytes != bytes || found.alignment != alignment;
            try {
                if (wrong)
                    complaint = "weir: layer::guard: the block at " + text_of(p) + " " +
                                (found.live ? "was allocated with " + numbers(found.bytes, found.alignment) +
                                                  " and is freed with " + numbers(bytes, alignment) +
                                                  "; pass the allocation's (freed with those)"
                                            : wrong_address(address, at != address_map::none));
            } catch (...) { // no host memory for the sentence, which stays empty
            }
        }
        if (wrong)
            handler_(complaint.empty() ? "weir: layer::guard: a block is freed wrongly, and the host has no memory to say how"
                                       : complaint.c_str());
        if (found.live)
            this->pool_.deallocate(stream, p, found.bytes, found.alignment);
    }

    /// As the wrapped pool's, for a block that is live. Throws usage_error for another.
    template <class P = typename base::pool_type, class = std::enable_if_t<contracts::has_used_on<P, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        if (p) {
            lock_guard<mutex> const lock(mutex_);
            auto const address = reinterpret_cast<std::uintptr_t>(p);
            std::uint32_t const at = index_.find(address);
            if (at == address_map::none || !blocks_[at].live)
                throw usage_error("weir: layer::guard: 'used_on' of the block at " + text_of(p) + ", which " +
                                  wrong_address(address, at != address_map::none));
        }
        this->pool_.used_on(p, stream);
    }

    /// Adds the largest live blocks. See 'examined'.
    void examine(memory_report& now) const noexcept {
        weir::examine(this->pool_, now);
        lock_guard<mutex> const lock(mutex_);
        for (block const& each : blocks_)
            if (each.live)
                now.largest_live.offer(live_block{reinterpret_cast<void const*>(each.address), each.bytes});
    }

private:
    struct block {
        std::uintptr_t address = 0;
        std::size_t bytes = 0;
        std::size_t alignment = 0;
        bool live = false;
    };

    // Makes room in the ledger before the pool is asked: giving a block back may cost the pool its bytes.
    void expect() {
        lock_guard<mutex> const lock(mutex_);
        std::size_t const needed = blocks_.size() + expected_ + 1;
        if (needed > blocks_.capacity())
            blocks_.reserve(2 * needed);
        index_.reserve(needed);
        ++expected_;
    }

    // With the lock held, in room that 'expect' made.
    void enter(std::uintptr_t address, std::size_t bytes, std::size_t alignment) noexcept {
        block const fresh{address, bytes, alignment, true};
        std::uint32_t const at = index_.find(address);
        if (at != address_map::none) {
            blocks_[at] = fresh;
            return;
        }
        blocks_.push_back(fresh);
        index_.insert(address, static_cast<std::uint32_t>(blocks_.size() - 1));
    }

    text wrong_address(std::uintptr_t address, bool was_here) const {
        for (block const& each : blocks_)
            if (each.live && address > each.address && address - each.address < each.bytes)
                return "is " + count_text(address - each.address, " byte") +
                       " inside a live block; free the pointer that 'allocate' returned";
        if (was_here)
            return "is freed already; free each block once";
        return "was not handed out by this pool; free it where it was allocated";
    }

    static text numbers(std::size_t bytes, std::size_t alignment) {
        return count_text(bytes, " byte") + " at alignment " + number_text(alignment);
    }
    static text text_of(void* p) {
        char said[32];
        std::snprintf(said, sizeof said, "%p", p);
        return said;
    }

    mutable mutex mutex_;
    address_map index_; // address -> index into blocks_, of every address that was ever handed out
    growing_array<block> blocks_;
    std::size_t expected_ = 0; // allocations under way
    violation_handler handler_ = &print_violation;
};

} // namespace layer
} // namespace v0
} // namespace weir
