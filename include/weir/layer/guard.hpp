// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who frees memory that is not theirs to free?
//
// The layer keeps a list of all blocks that are live (handed out and not yet freed), called the ledger, and checks every free
// against it. It catches a free of a block that was never handed out here, that was freed before or that ended with its
// scope; an address inside a block; and a size or an alignment that is not the allocation's. A wrong free is reported in a
// sentence and does not reach the pool, so the pool stays sound. If only the size or the alignment is wrong, the block is
// freed with the right ones. The recipes include this layer in debug builds. An out_of_memory from below it names the largest
// live blocks.
//
// invariant: the wrapped pool sees only frees of live blocks, with the size and alignment that they were allocated with.
// order:     a block leaves the ledger before the pool sees its free. It enters the ledger after the pool handed it out, in
//            room that was made before.
// cost:      a mutex (twice for an allocation) and a hash look-up a call; 70 to 130 bytes of host memory for each address
//            that was ever handed out; 'rewind' and 'clear' O(blocks that end).
// not for:   writes beyond a block's end. A free on a destroyed stream, or on one that does not come after the block's work
//            (that free is right if the program made the stream wait). Blocks that 'inner()' hands out, frees or ends. Blocks
//            of a driver_pool that belong to a graph and are freed once a launch: allocate and free those through 'inner()'.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/resource.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Gets the sentence about a wrong free. It may abort; it must not throw.
using violation_handler = void (*)(char const* sentence);

/// The default: prints the sentence to stderr.
inline void print_violation(char const* sentence) {
    std::fprintf(stderr, "%s\n", sentence);
}

/// Prints the sentence and calls std::abort.
inline void abort_on_violation(char const* sentence) {
    print_violation(sentence);
    std::abort();
}

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class guard : public layered<guard<Pool>, Pool> {
    using wrapper = layered<guard<Pool>, Pool>;

public:
    /// `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit guard(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    guard() : wrapper(std::in_place) {}

    /// Sets who gets the sentence about a wrong free. The handler runs in the thread that frees. Under layer::synchronized it
    /// runs with that layer's lock held, so it may not call the pool there. Do not call this while other threads use the
    /// pool.
    void on_violation(violation_handler handler) noexcept { handler_ = handler; }

    /// As the wrapped pool's.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        expect();
        void* p = nullptr;
        try {
            p = this->pool_.try_allocate(stream, bytes, alignment);
        } catch (...) {
            base::lock_guard<base::mutex> const lock(mutex_);
            --expected_;
            throw;
        }
        base::lock_guard<base::mutex> const lock(mutex_);
        --expected_;
        if (p)
            enter(reinterpret_cast<std::uintptr_t>(p), bytes, alignment);
        return p;
    }

    /// As the wrapped pool's if the block is live. Otherwise the handler gets a sentence, and nothing is freed.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (!p)
            return;
        block found;
        bool wrong = false;
        text complaint;
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            auto const address = reinterpret_cast<std::uintptr_t>(p);
            std::uint32_t const at = index_.find(address);
            if (is_live(at)) {
                found = blocks_[at];
                leave(at, fate::freed);
            }
            wrong = found.now != fate::live || found.bytes != bytes || found.alignment != alignment;
            try {
                if (wrong)
                    complaint = "the block at " + base::address_text(p) + " " +
                                (found.now == fate::live
                                     ? "was allocated with " + numbers(found.bytes, found.alignment) + " and is freed with " +
                                           numbers(bytes, alignment) + "; pass the allocation's (freed with those)"
                                     : wrong_address(address, at));
            } catch (...) { // no host memory for the sentence, which stays empty
            }
        }
        if (wrong)
            tell(complaint);
        if (found.now == fate::live)
            this->pool_.deallocate(stream, p, found.bytes, found.alignment);
    }

    /// As the wrapped pool's, for a block that is live. They throw usage_error for another.
    template <class P = typename wrapper::pool_type,
              class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        require_live(p, "used_on");
        this->pool_.used_on(p, stream);
    }
    template <class P = typename wrapper::pool_type,
              class = std::enable_if_t<contract::holds<contract::has_last_used_on, P, void*, stream_ref>>>
    void last_used_on(void* p, stream_ref stream) {
        require_live(p, "last_used_on");
        this->pool_.last_used_on(p, stream);
    }

    /// As the wrapped pool's, if it still knows the mark. Otherwise the handler gets a sentence, and no block ends. To free a
    /// block that ended this way is a wrong free. One thread at a time.
    template <class P = typename wrapper::pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() {
        return marked<decltype(std::declval<P&>().mark())>{this->pool_.mark(), last_serial()};
    }
    template <class Mark, class P = typename wrapper::pool_type,
              class = std::enable_if_t<contract::holds<contract::has_rewind, P>>>
    void rewind(Mark const& to) {
        std::size_t const before = this->pool_.state().live_blocks;
        this->pool_.rewind(to.point);
        if (before != this->pool_.state().live_blocks)
            end_after(to.serial);
        else if (youngest_serial() > to.serial) // blocks should have ended, and none did
            handler_(
                "weir: layer::guard: 'rewind' ended none of the blocks since the mark: an older mark was rewound to before, or "
                "they ended by 'inner()'");
    }
    /// As the wrapped pool's.
    template <class P = typename wrapper::pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() {
        this->pool_.clear();
        end_after(0);
    }

    /// Adds the largest live blocks to the report. See 'full_state'.
    void examine(memory_report& now) const noexcept {
        weir::examine(this->pool_, now);
        base::lock_guard<base::mutex> const lock(mutex_);
        for (std::uint32_t at = youngest_; at != base::address_map::none; at = blocks_[at].older)
            now.largest_live.offer(live_block{reinterpret_cast<void const*>(blocks_[at].address), blocks_[at].bytes});
    }

private:
    // The handler that the pool's options ask for.
    static violation_handler usual_handler([[maybe_unused]] Pool const& pool) noexcept {
        if constexpr (contract::holds<contract::has_on_violation, typename wrapper::pool_type>)
            if (pool.on_violation() == violation_action::abort)
                return &abort_on_violation;
        return &print_violation;
    }

    enum class fate : unsigned char { freed, ended, live };
    struct block {
        std::uintptr_t address = 0;
        std::size_t bytes = 0;
        std::size_t alignment = 0;
        std::uint32_t older = base::address_map::none; // neighbours in the list of live blocks
        std::uint32_t younger = base::address_map::none;
        std::uint64_t serial = 0; // the number of its allocation
        fate now = fate::freed;
    };
    template <class Point>
    struct marked {
        Point point;
        std::uint64_t serial; // the number of the last allocation before the mark
    };

    bool is_live(std::uint32_t at) const noexcept { return at != base::address_map::none && blocks_[at].now == fate::live; }

    // Makes room in the ledger before the pool is asked. Otherwise a failure would have to give the block back, and that may
    // cost the pool those bytes.
    void expect() {
        base::lock_guard<base::mutex> const lock(mutex_);
        std::size_t const needed = blocks_.size() + expected_ + 1;
        if (needed > blocks_.capacity())
            blocks_.reserve(2 * needed);
        index_.reserve(needed);
        ++expected_;
    }

    // Call it with the lock held, after 'expect' made room.
    void enter(std::uintptr_t address, std::size_t bytes, std::size_t alignment) noexcept {
        std::uint32_t at = index_.find(address);
        if (at == base::address_map::none) {
            at = static_cast<std::uint32_t>(blocks_.size());
            blocks_.push_back(block{});
            index_.insert(address, at);
        } else if (is_live(at)) {
            leave(at, fate::ended); // ended where this layer did not hear of it
        }
        blocks_[at] = block{address, bytes, alignment, youngest_, base::address_map::none, ++serial_, fate::live};
        if (youngest_ != base::address_map::none)
            blocks_[youngest_].younger = at;
        youngest_ = at;
    }

    // Takes a live block off the list. Call it with the lock held.
    void leave(std::uint32_t at, fate then) noexcept {
        block& gone = blocks_[at];
        (gone.younger != base::address_map::none ? blocks_[gone.younger].older : youngest_) = gone.older;
        if (gone.older != base::address_map::none)
            blocks_[gone.older].younger = gone.younger;
        gone.now = then;
    }

    void end_after(std::uint64_t serial) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        while (youngest_ != base::address_map::none && blocks_[youngest_].serial > serial)
            leave(youngest_, fate::ended);
    }

    std::uint64_t last_serial() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return serial_;
    }
    std::uint64_t youngest_serial() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return youngest_ == base::address_map::none ? 0 : blocks_[youngest_].serial;
    }

    // `at`: the ledger's entry for the address, which is not live; or 'none'.
    text wrong_address(std::uintptr_t address, std::uint32_t at) const {
        for (std::uint32_t one = youngest_; one != base::address_map::none; one = blocks_[one].older)
            if (block const& each = blocks_[one]; address > each.address && address - each.address < each.bytes)
                return "is " + base::count_text(address - each.address, " byte") +
                       " inside a live block; free the pointer that 'allocate' returned";
        if (at == base::address_map::none)
            return "was not handed out by this pool; free it where it was allocated";
        if (blocks_[at].now == fate::ended)
            return "ended already, with its scope, 'rewind' or 'clear'; such a block needs no free";
        return "is freed already; free each block once";
    }

    void require_live(void* p, char const* what) const {
        if (!p)
            return;
        base::lock_guard<base::mutex> const lock(mutex_);
        auto const address = reinterpret_cast<std::uintptr_t>(p);
        std::uint32_t const at = index_.find(address);
        if (!is_live(at))
            throw usage_error(text("weir: layer::guard: '") + what + "' of the block at " + base::address_text(p) + ", which " +
                              wrong_address(address, at));
    }

    // Call it without the lock, because the wrapped pool is asked for its name.
    void tell(text const& complaint) noexcept {
        text said;
        try {
            if (!complaint.empty()) {
                said = "weir: layer::guard: " + complaint;
                said = "weir: layer::guard: pool '" + this->pool_.state().name + "': " + complaint;
            }
        } catch (...) { // no host memory for the sentence, or the pool does not tell its name
        }
        handler_(said.empty() ? "weir: layer::guard: a block is freed wrongly, and the host has no memory to say how"
                              : said.c_str());
    }

    static text numbers(std::size_t bytes, std::size_t alignment) {
        return base::count_text(bytes, " byte") + " at alignment " + base::number_text(alignment);
    }

    mutable base::mutex mutex_;
    base::address_map index_; // address -> index into blocks_, of every address that was ever handed out
    base::growing_array<block> blocks_;
    std::uint32_t youngest_ = base::address_map::none; // the newest of the live blocks
    std::uint64_t serial_ = 0;                    // the number of the last allocation
    std::size_t expected_ = 0; // how many allocations are under way
    violation_handler handler_ = usual_handler(this->pool_);
};

} // namespace layer
} // namespace v0
} // namespace weir
