// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who frees memory that is not theirs to free?
//
// The layer keeps a ledger of the blocks that are handed out, and checks every free against it. It catches a free of a block
// that was never handed out here, that was freed before or that ended with its scope; an address inside a block; and a wrong
// size or alignment. A wrong free is reported in a sentence and does not reach the pool; if only the size or the alignment is
// wrong, the block is freed with the right ones. The recipes include this layer in debug builds. It also says whose blocks a
// pool leaves behind that ends too early, or a stream ('before_destroy').
//
// invariant: the wrapped pool sees only frees of live blocks, with the size and alignment that they were allocated with.
// order:     a block leaves the ledger before the pool sees its free, and enters it after the pool handed it out.
// cost:      a mutex (twice for an allocation) and a few hash look-ups a call; 170 to 350 bytes of host memory for a live
//            block, 26 to 51 for an address that is free again; 'rewind', 'clear' and 'before_destroy' O(live blocks).
// not for:   writes beyond a block's end. A free on a stream that does not come after the block's work (that free is right if
//            the program made the stream wait). A free on a destroyed stream, unless 'before_destroy' listed the block for
//            it. Bytes that a pool hands out twice. Blocks that 'inner()' hands out, frees or ends. Blocks of a driver_pool
//            that belong to a graph and are freed once a launch: allocate and free those through 'inner()'.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/layer/guard/ledger.hpp>
#include <weir/resource/layered.hpp>
#include <weir/resource/pool_life.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Gets the sentence about a mistake. It may abort; it must not throw.
using violation_handler = void (*)(char const* sentence);

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class guard : public resource::layered<guard<Pool>, Pool> {
    using wrapper = resource::layered<guard<Pool>, Pool>;
    using mistake = layer::detail::mistake;

public:
    using typename wrapper::pool_type;
    using wrapper::default_alignment;

    /// `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit guard(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    guard() : wrapper(std::in_place) {}
    /// If the pool ends here and blocks are still handed out, the handler gets a sentence about their owners, unless
    /// pool_options::on_leak says 'ignore'.
    ~guard() {
        if constexpr (!std::is_reference_v<Pool>)
            tell_owners();
        life_->end(handler_);
        word_ = over;
    }

    /// Sets who gets the sentence about a mistake, in the thread that frees. Under layer::synchronized it gets it with that
    /// layer's lock held, so it may not call the pool there. Do not call this while other threads use the pool.
    void on_violation(violation_handler handler) noexcept { handler_ = handler; }
    using wrapper::deallocate, wrapper::on_violation; // what is refused without a size; what the options say

    /// As the wrapped pool's.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        if (word_ == over)
            throw usage_error("weir: layer::guard: the pool that is to allocate has ended; end its containers before it");
        in_ledger([](auto& ledger) { ledger.make_room(); });
        void* const p = this->pool_.try_allocate(stream, bytes, alignment);
        try {
            if (p)
                in_ledger([&](auto& ledger) { ledger.enter(p, bytes, alignment, stream); });
        } catch (...) { // other threads took that room
            this->pool_.deallocate(stream, p, bytes, alignment);
            throw;
        }
        return p;
    }

    /// As the wrapped pool's if the block is live. Otherwise the handler gets a sentence, and nothing is freed. So it is after
    /// the pool's end: always for a container; for others if the pool's own memory is as it was, as a global's mostly is.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        if (!p)
            return;
        if (word_ == over)
            return resource::detail::pool_life::tell_of_free(p, handler_);
        auto const one = in_ledger([&](auto& ledger) { return ledger.free(p, stream, bytes, alignment); });
        if (one.wrong != mistake::none)
            tell([&] { return "the block at " + base::address_text(p) + " " + one.sentence(stream, bytes, alignment); });
        if (one.wrong == mistake::none || one.wrong == mistake::numbers)
            this->pool_.deallocate(stream, p, one.block.bytes, one.block.alignment);
    }

    /// Call this before cudaStreamDestroy(stream). If live blocks need the stream, because they were allocated on it, or their
    /// container is on it, or they are marked for it ('used_on'), the handler gets a sentence that lists them. Returns how many
    /// they are. A later free of such a block on this handle, or of a marked one, is a wrong free: the block stays handed out
    /// until the pool ends. 0 for the host and the default streams, which do not end. Any thread; does not block.
    std::size_t before_destroy(stream_ref stream) noexcept {
        if (runtime::is_default_stream(stream))
            return 0;
        std::size_t const count = in_ledger([&](auto& ledger) { return ledger.end_stream(stream); });
        if (count != 0)
            tell([&] {
                return detail::stream_text(stream) + " ends too early for " + base::count_text(count, " block") + ": " +
                       in_ledger([&](auto& ledger) { return ledger.owners(stream); }) +
                       "; free them before, or end their containers, or move those that are on it to another stream "
                       "('set_stream')";
            });
        return count;
    }

    /// For containers: one holds the block at `p`, and frees it on `stream`. Returns the mark that it asks before the free:
    /// once this pool has ended, the handler gets a sentence about that container, and nothing else is done.
    resource::detail::shared_pool_life in_container(void* p, stream_ref stream) noexcept {
        in_ledger([&](auto& ledger) {
            if (auto* const block = ledger.find(p))
                block->in_container = true, block->streams.free_on(stream);
        });
        return life_;
    }

    /// As the wrapped pool's, for a block that is live. They throw usage_error for another.
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        require_live(p, "used_on");
        this->pool_.used_on(p, stream);
        in_ledger([&](auto& ledger) {
            if (auto* const block = ledger.find(p))
                block->streams.mark(stream);
        });
    }
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void last_used_on(void* p, stream_ref stream) {
        require_live(p, "last_used_on");
        this->pool_.last_used_on(p, stream);
    }

    /// As the wrapped pool's; a mark has also how many blocks were handed out before it. One thread at a time.
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() {
        return std::pair(this->pool_.mark(), in_ledger([](auto& ledger) { return ledger.entered(); }));
    }
    template <class Mark, class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    void rewind(Mark const& to) {
        if (this->ended_by([&](P& pool) { pool.rewind(to.first); }).live_blocks != 0)
            in_ledger([&](auto& ledger) { ledger.end_after(to.second); });
    }
    template <class P = pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() {
        this->pool_.clear();
        in_ledger([](auto& ledger) { ledger.end_after(0); });
    }

    /// Offers the live blocks to the list of the largest. See 'full_state'.
    void list_own(largest_blocks& list) const noexcept {
        wrapper::list_own(list);
        in_ledger([&](auto& ledger) { ledger.offer_to(list); });
    }

private:
    template <class Use>
    auto in_ledger(Use const& use) const {
        base::lock_guard<base::mutex> const lock(mutex_);
        return use(ledger_);
    }

    void require_live(void* p, char const* what) const {
        if (p)
            in_ledger([&](auto& ledger) {
                if (!ledger.find(p))
                    throw usage_error(text("weir: layer::guard: '") + what + "' of the block at " + base::address_text(p) +
                                      ", which " + ledger.not_live(p).sentence(on_host, 0, 0));
            });
    }

    void tell_owners() noexcept {
        try {
            if (this->pool_.on_leak() == leak_action::ignore)
                return;
            if (ledger_.size() == 0 || this->pool_.state().live_blocks == 0) // what is in the ledger ended by 'inner()'
                return;
        } catch (...) { // the pool does not say
            return;
        }
        tell([&] {
            return "the pool ends before the owners of its blocks: " + ledger_.owners(on_host) +
                   "; free them before, or end their containers";
        });
    }

    // Call it without the lock, because the wrapped pool is asked for its name.
    template <class Say>
    void tell(Say const& say) noexcept {
        text said;
        try {
            text const sentence = say();
            said = "weir: layer::guard: " + sentence;
            said = "weir: layer::guard: pool '" + this->pool_.state().name + "': " + sentence;
        } catch (...) { // no host memory for the sentence, or the pool does not tell its name
        }
        handler_(said.empty() ? "weir: layer::guard: a mistake, and the host has no memory to say which" : said.c_str());
    }

    // What the pool's options ask for. Throws as the pool's 'on_violation'.
    violation_handler usual_handler() const {
        return this->pool_.on_violation() == violation_action::abort ? &resource::tell_violation<violation_action::abort>
                                                                     : &resource::tell_violation<violation_action::report>;
    }

    // The last word that a guard writes, and the first that a free reads: a container asks the mark that it got, but others
    // have the pool's address alone. Volatile, or the compiler leaves out what is written to an object that ends.
    static constexpr std::uint64_t over = 0x9396899A83889A96; // no number that memory holds by accident

    mutable base::mutex mutex_;
    mutable layer::detail::ledger ledger_;
    violation_handler handler_ = usual_handler();
    resource::detail::shared_pool_life const life_ = resource::detail::shared_pool_life::make(); // for containers
    std::uint64_t volatile word_ = ~over;
};

} // namespace layer
} // namespace v0
} // namespace weir
