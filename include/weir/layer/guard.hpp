// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who frees memory that is not theirs to free?
//
// The layer keeps a list of all blocks that are live (handed out and not yet freed), called the ledger, and checks every free
// against it. It catches a free of a block that was never handed out here, that was freed before or that ended with its
// scope; an address inside a block; and a size or an alignment that is not the allocation's. A wrong free is reported in a
// sentence and does not reach the pool, so the pool stays sound. If only the size or the alignment is wrong, the block is
// freed with the right ones. The recipes include this layer in debug builds. An out_of_memory from below it names the largest
// live blocks. A pool that hands out bytes of a live block is named itself, at once, and those who free are not accused.
//
// It also finds what ends too early. A pool that ends before the owners of its blocks says who they are. A stream that ends
// before them cannot be noticed by itself, since CUDA crashes if it is asked about a destroyed stream, and gives its handle to
// the next one. So the program asks in time: 'before_destroy' names the blocks that still need the stream.
//
// invariant: the wrapped pool sees only frees of live blocks, with the size and alignment that they were allocated with.
// order:     a block leaves the ledger before the pool sees its free. It enters the ledger after the pool handed it out, in
//            room that was made before.
// cost:      a mutex (twice for an allocation) and a hash look-up a call; 90 to 150 bytes of host memory for each address
//            that was ever handed out; 'rewind' and 'clear' O(blocks that end); 'before_destroy' O(live blocks).
// not for:   writes beyond a block's end. A free on a stream that does not come after the block's work (that free is right if
//            the program made the stream wait). A free on a destroyed stream of which 'before_destroy' was not told. Blocks
//            that 'inner()' hands out, frees or ends. Blocks of a driver_pool that belong to a graph and are freed once a
//            launch: allocate and free those through 'inner()'.

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
#include <weir/layer/guard/life_mark.hpp>
#include <weir/layer/violation.hpp>
#include <weir/resource/layered.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_life.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class guard : public resource::layered<guard<Pool>, Pool> {
    using wrapper = resource::layered<guard<Pool>, Pool>;
    using ledger = layer::detail::ledger;
    using block = ledger::block;
    using fate = ledger::fate;

public:
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
        mark_.end();
    }

    /// Sets who gets the sentence about a mistake. The handler runs in the thread that frees. Under layer::synchronized it
    /// runs with that layer's lock held, so it may not call the pool there. Do not call this while other threads use the
    /// pool.
    void on_violation(violation_handler handler) noexcept { handler_ = handler; }
    using wrapper::on_violation; // what the options say

    /// As the wrapped pool's.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        if (mark_.is_over())
            throw usage_error("weir: layer::guard: the pool that is to allocate has ended; end its containers before it");
        expect();
        void* p = nullptr;
        try {
            p = this->pool_.try_allocate(stream, bytes, alignment);
        } catch (...) {
            base::lock_guard<base::mutex> const lock(mutex_);
            --expected_;
            throw;
        }
        std::size_t live = 0;
        auto const address = reinterpret_cast<std::uintptr_t>(p);
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            if (!p || ledger_.overlapping(address, bytes) == ledger::none) {
                --expected_;
                if (p)
                    ledger_.enter(address, bytes, alignment, stream);
                return p;
            }
            live = ledger_.live();
        }
        enter_overlapping(address, bytes, alignment, stream, live);
        return p;
    }

    /// As the wrapped pool's if the block is live. Otherwise the handler gets a sentence, and nothing is freed. That is also so
    /// after the end of the pool, with which the block went back: always for a container; for other callers if the pool's own
    /// memory is still as it was, as that of a global or local object mostly is.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (!p)
            return;
        if (mark_.is_over())
            return resource::detail::pool_life::tell_of_free(p, handler_);
        block found;
        bool wrong = false;
        bool on_ended = false; // the handle may name no stream, so CUDA cannot be asked about it
        text complaint;
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            auto const address = reinterpret_cast<std::uintptr_t>(p);
            std::uint32_t const at = ledger_.find(address);
            if (ledger_.is_live(at)) {
                found = ledger_[at];
                ledger_.free(at);
                on_ended = ledger_.ended_after(found, stream);
                if (found.handed_out_twice) { // the entry's size may be another owner's
                    found.bytes = bytes;
                    found.alignment = alignment;
                }
            }
            wrong = found.now != fate::live || found.bytes != bytes || found.alignment != alignment || on_ended ||
                    found.mark_has_ended();
            try {
                if (wrong)
                    complaint = "the block at " + base::address_text(p) + " " +
                                (found.now == fate::live ? ledger_.wrong_free(found, stream, bytes, alignment)
                                                         : ledger_.wrong_address(address, at));
            } catch (...) { // no host memory for the sentence, which stays empty
            }
        }
        if (wrong)
            tell(complaint);
        if (found.now == fate::live && !found.mark_has_ended() && (!on_ended || wait_for_work()))
            this->pool_.deallocate(on_ended ? stream_ref(on_host) : stream, p, found.bytes, found.alignment);
    }
    using wrapper::deallocate;

    /// Call this before cudaStreamDestroy(stream). If live blocks are to be freed on the stream, because it allocated them or
    /// their container is on it, or are marked for it ('used_on'), the handler gets a sentence that lists them. Returns how
    /// many they are. If a block that is live now is freed on this handle later, that is told as well, and CUDA is asked
    /// nothing about the handle: the free waits for all work of the device instead. A marked block stays handed out until the
    /// pool ends. Blocks that are allocated later are another stream's, which may have got the same handle. 0 for the host and
    /// the default streams, which do not end. Any thread; does not block.
    std::size_t before_destroy(stream_ref stream) noexcept {
        if (runtime::is_default_stream(stream))
            return 0;
        std::size_t count = 0;
        text complaint;
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            count = ledger_.end_of(stream);
            try {
                if (count != 0)
                    complaint = ledger_.early_end(stream, count);
            } catch (...) { // no host memory for the sentence, which stays empty
            }
        }
        if (count != 0)
            tell(complaint, "weir: layer::guard: a stream ends before its blocks, and the host has no memory to say which");
        return count;
    }

    /// For containers: one holds the block at `p`, and frees it on `stream`. Returns the mark that it asks before the free:
    /// once this pool has ended, the handler gets a sentence about that container, and nothing else is done.
    resource::detail::shared_pool_life in_container(void* p, stream_ref stream) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (std::uint32_t const at = ledger_.find(reinterpret_cast<std::uintptr_t>(p)); ledger_.is_live(at))
            ledger_.hold(at, stream);
        return life_;
    }

    /// As the wrapped pool's, for a block that is live. They throw usage_error for another.
    template <class P = typename wrapper::pool_type,
              class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        require_live(p, "used_on");
        this->pool_.used_on(p, stream);
        base::lock_guard<base::mutex> const lock(mutex_);
        if (std::uint32_t const at = ledger_.find(reinterpret_cast<std::uintptr_t>(p)); ledger_.is_live(at))
            ledger_.mark(at, stream);
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

    /// As the wrapped pool's; any_device once the pool has ended.
    template <class P = typename wrapper::pool_type const>
    auto device() const -> decltype(std::declval<P&>().device()) {
        return mark_.is_over() ? any_device : wrapper::device();
    }

    /// Offers the live blocks to the list of the largest. See 'full_state'.
    void offer_to(largest_blocks& list) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        ledger_.offer_to(list);
    }

private:
    template <class Point>
    struct marked {
        Point point;
        std::uint64_t serial; // the number of the last allocation before the mark
    };

    // Makes room in the ledger before the pool is asked. Otherwise a failure would have to give the block back, and that may
    // cost the pool those bytes.
    void expect() {
        base::lock_guard<base::mutex> const lock(mutex_);
        ledger_.make_room(expected_);
        ++expected_;
    }

    // Enters a block that has bytes of a live one. Either the pool handed them out twice, or that one ended where this layer
    // did not hear of it: then the pool knows of no more blocks than the ledger did (`live`). That count says nothing if others
    // allocate from the pool and may end everybody's blocks.
    void enter_overlapping(std::uintptr_t address, std::size_t bytes, std::size_t alignment, stream_ref stream,
                           std::size_t live) noexcept {
        bool twice = false;
        try {
            if constexpr (wrapper::stands_alone || !contract::holds<contract::has_mark, typename wrapper::pool_type>)
                twice = this->pool_.state().live_blocks > live;
        } catch (...) { // nobody knows
        }
        text complaint;
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            --expected_;
            complaint = ledger_.enter_overlapping(address, bytes, alignment, stream, twice);
        }
        if (twice)
            tell(complaint, "weir: layer::guard: a pool handed out bytes of a live block; the host has no memory to say which");
    }

    void end_after(std::uint64_t serial) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        ledger_.end_after(serial);
    }
    std::uint64_t last_serial() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return ledger_.last_serial();
    }
    std::uint64_t youngest_serial() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return ledger_.youngest_serial();
    }

    // False: nobody knows whether work still uses what was freed, so the pool must not hand it out again.
    static bool wait_for_work() noexcept {
        if constexpr (wrapper::stream_ordered)
            try {
                runtime::wait_for_device(any_device);
            } catch (...) {
                return false;
            }
        return true;
    }

    void tell_owners() noexcept {
        text complaint;
        try {
            if constexpr (contract::holds<contract::has_on_leak, typename wrapper::pool_type>)
                if (this->pool_.on_leak() == leak_action::ignore)
                    return;
            if (this->pool_.state().live_blocks == 0) // what is in the ledger ended by 'inner()'
                return;
            text const owners = ledger_.list([](block const&) { return true; });
            if (!owners.empty())
                complaint = "the pool ends before the owners of its blocks: " + owners +
                            "; free them before, or end their containers";
        } catch (...) { // no host memory for the sentence; the pool itself says that blocks are handed out
        }
        if (!complaint.empty())
            tell(complaint);
    }

    void require_live(void* p, char const* what) const {
        if (!p)
            return;
        base::lock_guard<base::mutex> const lock(mutex_);
        auto const address = reinterpret_cast<std::uintptr_t>(p);
        std::uint32_t const at = ledger_.find(address);
        if (!ledger_.is_live(at))
            throw usage_error(text("weir: layer::guard: '") + what + "' of the block at " + base::address_text(p) + ", which " +
                              ledger_.wrong_address(address, at));
    }

    // Call it without the lock, because the wrapped pool is asked for its name.
    void tell(text const& complaint,
              char const* without_memory = "weir: layer::guard: a block is freed wrongly, and the host has no memory to say "
                                           "how") noexcept {
        layer::detail::tell_violation(handler_, this->pool_, complaint, without_memory);
    }

    mutable base::mutex mutex_;
    ledger ledger_;
    std::size_t expected_ = 0; // how many allocations are under way
    violation_handler handler_ = layer::detail::usual_handler(this->pool_);
    resource::detail::shared_pool_life const life_ = resource::detail::shared_pool_life::make(); // for containers
    detail::life_mark mark_; // for who calls without that mark
};

} // namespace layer
} // namespace v0
} // namespace weir
