// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do an upstream, a placement and a reuse rule become a pool?
//
// The pool binds the three answers: where chunks come from, which bytes of a chunk, and when freed bytes may be
// handed out again. Its own part is small: it turns addresses into ranges, grows within its limit, and climbs
// the reuse rule's ladder when the first try fails (see reuse/stream_ordered.hpp). Bookkeeping is on the host,
// and no header stands in front of a block, so the size and the alignment come back at 'deallocate'.
//
// invariant: reserved_bytes() <= limit_bytes(); every block lies in memory that is held; a failed call changes no block.
// order:     a block is for work enqueued on its stream after the allocation; its free is ordered after work
//            enqueued on its stream before the free.
// cost:      a try that succeeds is the reuse rule's 'take'; growth is driver calls (supply.hpp), and wholly free
//            chunks may move or go back for it.
// not for:   watching or steering: layers do that.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/growth_slot.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/pool/pool/default_free.hpp>
#include <weir/pool/pool/ladder.hpp>
#include <weir/pool/pool/supply.hpp>
#include <weir/pool/pool/suspension.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/resource/resource.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {

template <class Upstream, class Placement, class Reuse, class Growth>
class pool : public resource<pool<Upstream, Placement, Reuse, Growth>> {
    static_assert(contract::require_upstream<Upstream>());
    static_assert(contract::require_placement<Placement>());
    static_assert(contract::require_rule<Reuse, Placement>());
    static_assert(contract::require_growth<Growth>());
    using rule = typename Reuse::template over<Placement>;
    static_assert(contract::require_reuse<rule, stream_ref>());
    static constexpr bool ends_many = contract::holds<contract::ends_many, rule>; // blocks at a time
    using list_lock = std::conditional_t<Reuse::thread_safe, base::spin_lock, base::no_lock>;
    using growth_lock = std::conditional_t<Reuse::thread_safe, base::mutex, base::no_lock>;
    using supply_of = detail::supply<Upstream, Placement, rule, Growth, list_lock, Reuse::orders_streams>;
    using ladder_of = detail::ladder<Placement, rule, supply_of, growth_lock, Reuse::waits_before_growing>;

public:
    /// Where this pool's memory can be used.
    static constexpr memory_space space = Upstream::space;
    /// Whether any thread may call any member at any time; else one thread at a time.
    static constexpr bool thread_safe = Reuse::thread_safe;
    /// Whether a block may be freed while enqueued work still uses it.
    static constexpr bool stream_ordered = Reuse::orders_streams;
    /// The alignment of a block that asks for none, in bytes; less than usual where the placement's blocks have less.
    static constexpr std::size_t default_alignment = base::default_alignment_of<Placement>(space);

    /// A pool over a given upstream, or over one of its own on the device that the options name. It holds nothing yet, but for
    /// pool_options::reserve. Throws usage_error where the upstream is not on the options' device; out_of_memory where there is
    /// no room for what is to be reserved; cuda_error, std::bad_alloc.
    template <class U = Upstream, class = std::enable_if_t<std::is_default_constructible_v<U>>>
    pool() : pool(U()) {}
    template <class U = Upstream, class = std::enable_if_t<std::is_default_constructible_v<U>>>
    explicit pool(pool_options options) : pool(contract::upstream_on<U>(options.device()), pool_options(options)) {}
    explicit pool(Upstream memory, pool_options options = {})
        : options_(std::move(options)), supply_(std::move(memory), options_.limit_bytes()),
          rule_(contract::device_number_of(held().upstream())) {
        if (options_.device() != any_device && options_.device() != device())
            throw usage_error("weir: pool_options::device names a device that is not the upstream's; leave it out, or make the "
                              "upstream of that device");
        if (options_.reserve_bytes() != 0)
            reserve(options_.reserve_bytes());
    }
    pool(pool const&) = delete;
    pool& operator=(pool const&) = delete;

    /// Gives all memory back to the upstream, after the work that uses it, for which it waits as 'settle' does. Blocks still
    /// handed out are told on stderr (pool_options::on_leak) and are gone; the pool then waits for all work on every device.
    ~pool() {
        base::usage const used = rule_.used();
        tell_leaks(options_.name().c_str(), options_.on_leak(), used.blocks, used.bytes);
        // What is still out, or was lost to a graph, is in use by work that no event tells of.
        if constexpr (stream_ordered)
            if ((!try_settle() && !try_settle()) || used.blocks != 0 || used.lost_bytes != 0)
                try {
                    runtime::wait_for_device(any_device);
                } catch (...) { // the device is lost: nothing runs any more
                }
    }

    /// A block of `bytes` bytes at a multiple of `alignment`, a power of two; null for zero bytes and without room. For
    /// work enqueued on `stream` from now on. Asks the driver for memory only where the pool must grow. Blocks on the device
    /// only where it grows and a chunk goes back for it (cudaFree waits, unmapping under reuse::immediate only); at the limit;
    /// and where streams that are gone left too much behind (stream_ordered_tuning). Throws usage_error (alignment;
    /// reuse::stream_ordered: a stream of another device, or one that is being captured, which with identity::promised is
    /// asked only where no block is at hand), cuda_error, and std::bad_alloc when the host has no memory for the bookkeeping;
    /// the pool is then as it was.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        require_power_of_two(alignment);
        if (bytes == 0)
            return nullptr;
        base::range const block = rule_.take(bytes, alignment, stream);
        if (!block)
            return grow_for(bytes, alignment, stream);
        if (suspended()) // asked after the take: what was taken before 'suspend' looked is saved
            return withhold(block, stream);
        return reinterpret_cast<void*>(block.offset);
    }

    /// Takes a block back, ordered on `stream` (a default stream: the pool's device's and the current device's), which is that
    /// of the allocation or waits for it; `bytes` and `alignment` are those of the allocation. Null does nothing. What a
    /// captured stream frees is not handed out again, since its graph may use it at each launch; but reuse::immediate does not
    /// ask whether it is captured, and with identity::promised that is asked of some frees only. Never blocks on a device.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        if (!p)
            return;
        base::range const block{reinterpret_cast<std::uintptr_t>(p), Placement::rounded(bytes, alignment)};
        if (stream_ordered && runtime::is_default_stream(stream) && !stream.is_host() && device() != any_device)
            return detail::give_by_default(rule_, block, stream, device());
        rule_.give(block, stream);
    }

    /// Notes that work on `stream` uses the block that was allocated at `p` (an address inside it is not looked up): its free
    /// waits for all that is enqueued there until then, whenever this is called; once is enough (PyTorch's record_stream). The
    /// stream lives until the free, as the block's own does; order/stream_mark.hpp tells of default and of captured streams.
    /// Never blocks. Throws usage_error while the stream is captured, cuda_error, std::bad_alloc.
    template <class R = rule, class = std::enable_if_t<contract::holds<contract::notes_last_uses, R, base::range, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        if (p && !stream.is_host())
            rule_.used_on(base::range{reinterpret_cast<std::uintptr_t>(p), 1}, stream);
    }
    /// The same of what is enqueued on `stream` so far alone: call it after the last launch there; then the stream may end.
    template <class R = rule, class = std::enable_if_t<contract::holds<contract::notes_last_uses, R, base::range, stream_ref>>>
    void last_used_on(void* p, stream_ref stream) {
        if (p && !stream.is_host())
            rule_.last_used_on(base::range{reinterpret_cast<std::uintptr_t>(p), 1}, stream);
    }

    /// Gets memory from the upstream until the pool holds `bytes` bytes at least, ahead of need; 'trim' gives it back like any
    /// other. Blocks. Throws out_of_memory where there is no room, and has then got nothing; else as 'allocate'.
    void reserve(std::size_t bytes) {
        if (!ladder_of(rule_, supply_, growth_lock_).reserve(bytes))
            throw out_of_memory(bytes, state(), refusal(bytes, 1));
    }

    /// Gives wholly free chunks back to the upstream until at most `keep_bytes` are held or none is left; returns their bytes.
    /// What enqueued work uses stays, and so do a stream's last frees, of which no event tells: call 'settle' first. If
    /// more than `keep_bytes` remains and no block is handed out, trim settles once and tries again; that blocks. cudaFree and
    /// unmapping block too under reuse::immediate. A chunk that CUDA refuses to take stays for the next call. While the pool is
    /// suspended, trim only tells 'resume' to leave out free pages beyond `keep_bytes`. Throws cuda_error, std::bad_alloc.
    std::size_t trim(std::size_t keep_bytes = 0) {
        std::size_t given = 0;
        if (trim_at_rest(keep_bytes, given) > keep_bytes && stream_ordered && rule_.used().blocks == 0) {
            rule_.settle();
            trim_at_rest(keep_bytes, given);
        }
        return given;
    }

    /// Gives all memory back to the device and keeps the address of every block, so that pointers and captured graphs stay
    /// valid; what blocks hold is lost. Until 'resume' the pool hands nothing out (blocks may be freed), and no work may use
    /// its memory. Returns the bytes given back; a chunk that CUDA refuses to take stays. Blocks until every device that the
    /// process uses has done all work. Throws usage_error where the device cannot map memory, cuda_error, std::bad_alloc;
    /// blocks are then as they were, and chunks that were wholly free have gone back.
    template <class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    std::size_t suspend() {
        return begin_suspension(nullptr, [](auto const&) {});
    }

    /// The same, but what blocks hold is copied to blocks of `keep`, which the host reaches and which outlives this pool or
    /// the next 'resume' (pinned_pool copies at the link's speed). Slabs of small blocks are copied whole. `keep` must call no
    /// pool that is being suspended, as a failure_handler around it might. Throws also what `keep.allocate` throws.
    template <class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    std::size_t suspend(pool_ref<memory_space::host> keep) {
        return begin_suspension(&keep, [&](auto const& save) { supply_.visit_in_use(rule_, least_unsaved_bytes, save); });
    }

    /// The same of the blocks `wanted`, a list of 'live_block', or parts of them; what others hold is lost. Throws usage_error
    /// also where they are not all the pool's.
    template <class Blocks = std::initializer_list<live_block>, class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    std::size_t suspend(pool_ref<memory_space::host> keep, Blocks const& wanted) {
        return begin_suspension(&keep, [&](auto const& save) {
            for (live_block const& each : wanted)
                suspension_.require_held(each, name());
            for (live_block const& each : wanted)
                save(base::range{reinterpret_cast<std::uintptr_t>(each.address), each.bytes});
        });
    }

    /// Ends 'suspend': every block has memory at its address again, with what was saved in it. False where the device has no
    /// room (see 'resume', which throws then); the pool is then suspended as before. Without a 'suspend' it does nothing.
    /// Blocks until what was saved is copied back. Throws cuda_error.
    template <class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    [[nodiscard]] bool try_resume() {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        return !suspended() || suspension_.try_end();
    }

    /// The bytes that 'resume' gets from the device; 0 where the pool is not suspended.
    template <class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    std::size_t suspended_bytes() const {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        return held().withdrawn_bytes();
    }

    /// Whether 'suspend' was called, and 'resume' not since. Any thread.
    bool suspended() const noexcept { return supply_.suspended(); }

    /// Blocks until no enqueued work uses freed bytes; then every one may go to any stream. Where no event tells of some, that
    /// is until all work on the stream's device, or on every one in use, is done. Breaks no capture, but where such a device
    /// has not a byte left (runtime/wait.hpp). Throws cuda_error, std::bad_alloc.
    void settle() { rule_.settle(); }

    /// Ends every block and starts over with the chunks that the pool holds, which nothing uses any more. One thread.
    template <class P = Placement, class = std::enable_if_t<contract::has_clear<P> && ends_many>>
    void clear() {
        rule_.placement().clear();
        rule_.counts() = base::usage{};
    }

    /// Blocks allocated after 'mark' end with 'rewind' (order: see weir::scope). One thread. 'mark' throws std::bad_alloc.
    template <class P = Placement, class = std::enable_if_t<contract::has_mark<P> && ends_many>>
    auto mark() { return rule_.placement().mark(rule_.counts()); }
    template <class Mark, class P = Placement, class = std::enable_if_t<contract::has_mark<P> && ends_many>>
    void rewind(Mark const& point) {
        rule_.counts() = rule_.placement().rewind(point, rule_.counts());
    }

    /// Bytes held from the upstream. Any thread, as those that follow.
    std::size_t reserved_bytes() const noexcept { return held().bytes(); }
    /// Bytes handed out and not yet freed, rounding included.
    std::size_t in_use_bytes() const { return rule_.used().bytes; }
    /// The most bytes that the pool may hold; SIZE_MAX: no limit.
    std::size_t limit_bytes() const noexcept { return held().limit_bytes(); }
    /// What layer::guard does with a wrong free.
    violation_action on_violation() const noexcept { return options_.on_violation(); }
    /// What the options call it.
    text const& name() const noexcept { return options_.name(); }
    /// The number of the pool's device, or any_device.
    int device() const noexcept { return contract::device_number_of(held().upstream()); }

    /// Whether `p` lies in memory that the pool holds. Never blocks on a device.
    bool owns(void const* p) const noexcept { return held().owns(reinterpret_cast<std::uintptr_t>(p)); }

    /// What the pool knows of itself now. Any thread; takes a lock per stream, one after the other.
    memory_report state() const {
        base::usage const used = rule_.used();
        std::size_t const free = contract::has_largest<Placement> ? used.largest_free_bytes : SIZE_MAX;
        return memory_report{name(), used.bytes, held().bytes(), limit_bytes(), suspended() ? 0 : free, used.blocks,
                             held().count(), used.lost_bytes, used.unsettled_bytes};
    }
    /// Adds the bytes free on the pool's device, as CUDA says. See 'full_state'.
    template <class U = Upstream, class = std::enable_if_t<U::space == memory_space::device>>
    void examine(memory_report& now) const noexcept {
        if (device() != any_device)
            now.device_free_bytes = runtime::device_free_bytes(device());
    }
    /// What 'state' tells, as a line to print. Throws std::bad_alloc.
    text report() const { return report_text(state(), supply_.kind()) + (suspended() ? ", suspended" : ""); }

    /// Whether such a block could be handed out if no other were: not beyond the limit or what the upstream can ever have, nor
    /// while the pool is suspended. May call CUDA, once in the pool's life. Any thread.
    bool can_hold(std::size_t bytes, std::size_t alignment) const noexcept { return supply_.can_hold(bytes, alignment); }
    /// Why an allocation of `bytes` bytes finds no room now. Throws std::bad_alloc.
    text refusal(std::size_t bytes, std::size_t alignment) const {
        if (suspended())
            return "the pool is suspended; call 'resume' first";
        std::size_t const needed = supply_of::chunk_for(bytes, alignment);
        return refusal_text(needed, held().bytes(), limit_bytes(), held().refused_bytes(), base::name_of(space),
                            ends_many && contract::has_mark<Placement>,
                            upstream_lack{held().most_bytes(), held().out_of_addresses()}) +
               (needed == 0 || alignment <= default_alignment ? ""
                                                              : " (a block aligned to " + base::number_text(alignment) + ")");
    }

private:
    static constexpr std::size_t least_unsaved_bytes = 64 * KiB; // smaller free ranges are saved as if in use

    auto const& held() const noexcept { return supply_.held(); }

    // Adds what goes back to `given`; what is left then, with what 'resume' would bring.
    std::size_t trim_at_rest(std::size_t keep_bytes, std::size_t& given) {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        std::size_t const before = held().bytes();
        give_back(keep_bytes, suspended());
        given += before - held().bytes();
        return held().bytes() + held().withdrawn_bytes();
    }

    void give_back(std::size_t keep_bytes, [[maybe_unused]] bool cuts = false) {
        if constexpr (contract::holds<contract::gathers, rule, stream_ref>)
            rule_.gather(on_host, false);
        if constexpr (supply_of::can_suspend)
            if (cuts)
                return supply_.cut_free_pages(rule_, keep_bytes);
        supply_.start_anew();
        supply_.give_back(rule_, keep_bytes);
    }

    template <class List>
    std::size_t begin_suspension(pool_ref<memory_space::host> const* keep, List const& list) {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        return suspension_.begin(name(), device(), [this] { give_back(0); }, keep, list);
    }

    [[gnu::noinline]] void* grow_for(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        base::range const block = ladder_of(rule_, supply_, growth_lock_).climb(bytes, alignment, stream);
        return suspended() ? withhold(block, stream) : reinterpret_cast<void*>(block.offset);
    }

    [[gnu::noinline]] void* withhold(base::range block, stream_ref stream) noexcept {
        block ? rule_.give(block, stream) : void();
        return nullptr;
    }

    bool try_settle() noexcept {
        try {
            return rule_.settle(), true;
        } catch (...) { // CUDA failed, or the host has no memory for the list of what to wait for
            return false;
        }
    }

    pool_options options_;
    supply_of supply_;
    mutable rule rule_;
    mutable growth_lock growth_lock_; // one thread grows, trims or suspends at a time
    detail::suspension<supply_of, rule> suspension_{supply_, rule_};
};

} // namespace v0
} // namespace weir
