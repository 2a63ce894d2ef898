// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do an upstream, a placement and a reuse rule become a pool?
//
// The pool binds three parts. The upstream says where chunks of memory come from, the placement which bytes of a chunk a block
// gets, and the reuse rule when freed bytes may be handed out again. The pool itself does little: it turns addresses into
// ranges, and where the first try finds no block, it climbs the ladder of reuse/stream_ordered.hpp and grows within its limit.
// Bookkeeping is on the host. No header stands in front of a block, so 'deallocate' is given the size and alignment again.
//
// invariant: only 'resume' takes it beyond its limit; every block lies in memory that is held; a failed call changes no block.
// order:     a block is for work enqueued on its stream after the allocation, and its free comes after work enqueued before it.
// cost:      a first try that succeeds costs the reuse rule's 'take'. Growth costs driver calls (chunk_supply.hpp), and
//            wholly free chunks may move or go back for it.
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
#include <weir/base/try_twice.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/fitting_parts.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/pool/pool/default_free.hpp>
#include <weir/pool/pool/ladder.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/supply/chunk_refusals.hpp>
#include <weir/supply/chunk_supply.hpp>
#include <weir/supply/suspension.hpp>

namespace weir {
inline namespace v0 {

/// A pool of four parts; recipes are such pools. Members that allocate throw `out_of_memory`, `usage_error` or `cuda_error`.
template <class GivenUpstream, class GivenPlacement, class GivenReuse, class GivenGrowth>
class pool : public resource::pool_base<pool<GivenUpstream, GivenPlacement, GivenReuse, GivenGrowth>> {
    using parts = contract::fitting_parts<GivenUpstream, GivenPlacement, GivenReuse, GivenGrowth>;
    using Upstream = typename parts::upstream;
    using Placement = typename parts::placement;
    using Reuse = typename parts::reuse;
    using Growth = typename parts::growth;
    static_assert(contract::require_fitting_parts<parts>());
    static_assert(contract::require_upstream<Upstream>());
    static_assert(contract::require_placement<Placement>());
    static_assert(contract::require_rule<Reuse, Placement>());
    using rule = typename Reuse::template over<Placement>;
    static_assert(contract::require_reuse<rule, stream_ref>());
    static constexpr bool ends_many = contract::holds<contract::has_placement, rule>; // many blocks at once
    using list_lock = std::conditional_t<Reuse::thread_safe, base::spin_lock, base::no_lock>;
    using growth_lock = std::conditional_t<Reuse::thread_safe, base::mutex, base::no_lock>;
    using supply_of = supply::chunk_supply<Upstream, Placement, rule, Growth, list_lock, Reuse::orders_streams>;
    using ladder_of = pools::detail::ladder<Placement, rule, supply_of, growth_lock, Reuse::waits_before_growing>;

public:
    static constexpr memory_space space = Upstream::space;    ///< where this pool's memory can be used
    static constexpr bool thread_safe = Reuse::thread_safe; ///< any thread may call any member; else one at a time
    /// Whether a block may be freed while enqueued work still uses it; and whether its stream may end before a 'settle'.
    static constexpr bool stream_ordered = Reuse::orders_streams;
    static constexpr bool streams_may_end = contract::streams_may_end<Reuse>();
    /// The alignment of a block that asks for none, in bytes; less than usual where the placement's blocks have less.
    static constexpr std::size_t default_alignment = base::default_alignment_of<Placement>(space);

    /// A pool over a given upstream, or over one that it makes on the device that the options name. It holds nothing yet, but
    /// for pool_options::reserve. Throws usage_error if the upstream is not on the options' device, out_of_memory if there is
    /// no room for what is to be reserved; cuda_error, std::bad_alloc.
    template <class U = Upstream, class = std::enable_if_t<std::is_default_constructible_v<U>>>
    pool() : pool(U()) {}
    template <class U = Upstream, class = std::enable_if_t<std::is_default_constructible_v<U>>>
    explicit pool(pool_options options) : pool(contract::upstream_on<U>(options.device()), pool_options(options)) {}
    explicit pool(Upstream memory, pool_options options = {})
        : options_(std::move(options)), supply_(std::move(memory), options_.limit_bytes()) {
        if (options_.device() != any_device && options_.device() != device())
            throw usage_error(device() == any_device ? text("weir: pool_options::device: memory of this kind (") +
                                                           base::name_of(space) + ") is not that of one device; leave it out"
                                                     : "weir: pool_options::device names a device that is not the upstream's; "
                                                       "leave it out, or make the upstream of that device");
        set_limit(limit_bytes());
        reserve(options_.reserve_bytes());
    }
    pool(pool const&) = delete; // weir: pools are neither copied nor moved: hold them in a std::unique_ptr
    pool& operator=(pool const&) = delete;

    /// Waits, as 'settle' does, for the work that uses the memory, and gives all of it back to the upstream. Blocks still
    /// handed out are told on stderr (pool_options::on_leak) and end; for their sake it waits for all work on every device. If
    /// CUDA goes on failing, nobody knows whether work uses the memory, and the upstream does not get it back.
    ~pool() {
        base::usage const used = rule_.used();
        resource::tell_leaks(options_.name().c_str(), options_.on_leak(), used.blocks, used.bytes);
        // No event tells when work ends on a block still out, or on lost bytes: freed in a capture, kept for its graph.
        if constexpr (stream_ordered)
            if ((!base::try_twice([&] { return rule_.settle(), true; }) || used.blocks != 0 || used.lost_bytes != 0) &&
                !base::try_twice([] { return runtime::wait_for_device(any_device), true; }))
                supply_.held().leave();
    }

    /// A block of `bytes` bytes at a multiple of `alignment`, a power of two, for work enqueued on `stream` from now on. Null
    /// for zero bytes and where there is no room. Asks the driver for memory only to grow. It waits for a device only if a
    /// chunk goes back for growth (cudaFree waits; unmapping does under reuse::immediate), at the limit, and if streams that
    /// ended left much behind (stream_ordered_tuning). Throws usage_error: for a bad alignment; under reuse::stream_ordered for
    /// a stream of another device or a captured one, which identity::promised checks only if no block is at hand. Also
    /// cuda_error, and std::bad_alloc if the host has no memory for the bookkeeping. After a throw the pool is as it was.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        base::require_power_of_two(alignment);
        if (bytes == 0)
            return nullptr;
        base::range const block = runtime::naming(*this, [&] { return rule_.take(bytes, alignment, stream); });
        if (!block)
            return grow_for(bytes, alignment, stream);
        // Asked after the take: 'suspend' saves what was taken before it looked.
        return suspended() ? withhold(block, stream) : reinterpret_cast<void*>(block.offset);
    }

    /// Takes a block back, given the `bytes` and `alignment` of its allocation. Null does nothing. `stream` is that of the
    /// allocation or waits for it, and orders the free. A default stream means two: the pool's device's and the current
    /// device's. What a captured stream frees is its graph's, and handed out again once CUDA says that the graph is gone. But
    /// reuse::immediate does not ask whether a stream is captured, and identity::promised asks at some frees only. Waits at
    /// most for room in a full queue, as a launch does.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        if (!p)
            return;
        base::range const block{reinterpret_cast<std::uintptr_t>(p), Placement::rounded(bytes, alignment)};
        if (stream_ordered && runtime::is_default_stream(stream) && !stream.is_host() && device() != any_device)
            return pools::detail::give_by_default(rule_, block, stream, device());
        rule_.give(block, stream);
    }
    using resource::pool_base<pool>::deallocate;

    /// Notes that work on `stream` uses the block that was allocated at `p` (its start: an address inside it is not looked up).
    /// The free waits for all that is enqueued on `stream` before the free, so once is enough, at any time (PyTorch's
    /// record_stream). The stream must live until the free, as the block's own must. For default and captured streams see
    /// order/stream_mark.hpp. Waits as deallocate. Throws usage_error while the stream is captured, cuda_error, std::bad_alloc.
    template <class R = rule, class = std::enable_if_t<contract::holds<contract::has_used_on, R, base::range, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        if (p && !stream.is_host())
            runtime::naming(*this, [&] { rule_.used_on(base::range{reinterpret_cast<std::uintptr_t>(p), 1}, stream); });
    }
    /// In place of it: only for what is enqueued there so far. Call it behind the last launch on `stream`, which may end then.
    template <class R = rule, class = std::enable_if_t<contract::holds<contract::has_used_on, R, base::range, stream_ref>>>
    void last_used_on(void* p, stream_ref stream) {
        if (p && !stream.is_host())
            runtime::naming(*this, [&] { rule_.last_used_on(base::range{reinterpret_cast<std::uintptr_t>(p), 1}, stream); });
    }

    /// Gets memory from the upstream ahead of need, until the pool holds at least `bytes` bytes; 'trim' gives it back like
    /// other memory. Blocks. Throws out_of_memory if there is no room, and has then got nothing; otherwise as 'allocate'.
    void reserve(std::size_t bytes) {
        if (!ladder_of(rule_, supply_, growth_lock_).reserve(bytes))
            throw out_of_memory(bytes, {state(), suspended() ? is_suspended : supply::reserve_refusal(held(), bytes)});
    }

    /// Sets the most bytes that the pool may hold; SIZE_MAX: no limit. What it holds above that it keeps, and hands out as
    /// before; it only does not grow, but by 'resume'. 'trim' gives back. Any thread; waits while another one grows the pool.
    void set_limit(std::size_t bytes) {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        supply_.held().limit_bytes(bytes);
        pools::detail::tell_limit<Placement>(rule_, bytes);
    }

    /// Gives wholly free chunks back to the upstream until at most `keep_bytes` are held or none is left; returns the bytes
    /// given back. What enqueued work uses stays, and so do each stream's last frees, which have no event yet: call 'settle'
    /// first. If more remains and no block is handed out, trim settles once and tries again; that blocks. So does cudaFree, and
    /// unmapping under reuse::immediate. A chunk that CUDA refuses to take stays for the next call. While suspended, trim only
    /// tells 'resume' to leave out free pages beyond `keep_bytes`. Throws cuda_error, std::bad_alloc.
    std::size_t trim(std::size_t keep_bytes = 0) {
        std::size_t given = 0;
        if (trim_at_rest(keep_bytes, given) > keep_bytes && stream_ordered && rule_.used().blocks == 0) {
            rule_.settle();
            trim_at_rest(keep_bytes, given);
        }
        return given;
    }

    /// Gives all memory back to the device but keeps the address of every block, so that pointers and captured graphs stay
    /// valid. The contents of blocks are lost. Until 'resume' the pool hands nothing out, and no work may use its memory;
    /// blocks may be freed. Returns the bytes given back; a chunk that CUDA refuses to take stays. Blocks until all work is
    /// done on every device that the process uses. Throws usage_error if the device cannot map memory, cuda_error,
    /// std::bad_alloc. Blocks are then as they were, but chunks that were wholly free have gone back.
    template <class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    std::size_t suspend() {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        return suspension_.begin();
    }
    template <class S = supply_of, std::enable_if_t<!S::can_suspend, int> = 0>
    void suspend() = delete; // weir: only pools over mapped memory can be suspended: use 'upstream::virtual_memory<>'
    /// The same, but the contents of blocks are copied to blocks of `keep`. The host reaches `keep`, which outlives this pool
    /// or the next 'resume' (pinned_pool copies at the link's speed). Slabs of small blocks are copied whole. `keep` must call
    /// no pool that is being suspended, as a failure_handler around it might. Throws also what `keep.allocate` throws.
    template <class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    std::size_t suspend(pool_ref<memory_space::host> keep) {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        return suspension_.begin(keep);
    }

    /// The same, but only of the blocks `wanted`, a list of 'live_block', or of parts of blocks; other contents are lost.
    /// Throws usage_error also if not all of `wanted` lies in the pool.
    template <class Blocks = std::initializer_list<live_block>, class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    std::size_t suspend(pool_ref<memory_space::host> keep, Blocks const& wanted) {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        return suspension_.begin(keep, wanted);
    }

    /// Ends 'suspend': every block has memory at its address again, with the contents that were saved. False if the device has
    /// no room ('resume' throws then); the pool stays suspended. Does nothing if it is not suspended. Blocks until the contents
    /// are copied back. Throws cuda_error.
    template <class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    [[nodiscard]] bool try_resume() {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        return !suspended() || suspension_.try_end();
    }

    /// The bytes that 'resume' will get from the device; 0 if the pool is not suspended.
    template <class S = supply_of, class = std::enable_if_t<S::can_suspend>>
    std::size_t suspended_bytes() const {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        return suspension_.withdrawn_bytes();
    }

    /// Whether the pool is suspended: 'suspend' was called, and 'resume' not since. Any thread.
    bool suspended() const noexcept { return supply_.suspended(); }

    /// Blocks until no enqueued work uses freed bytes, so that any stream may get them. For bytes that have no event it waits
    /// for all work on the stream's device, or on every device in use. Breaks no capture, unless such a device has not a byte
    /// left (runtime/wait.hpp). Throws cuda_error, std::bad_alloc.
    void settle() { rule_.settle(); }

    /// Ends every block and starts over with the chunks that the pool holds; nothing may use them any more. One thread.
    template <class P = Placement, class = std::enable_if_t<contract::holds<contract::has_mark, P, base::usage> && ends_many>>
    void clear() {
        rule_.placement().clear();
        rule_.counts() = base::usage{};
    }

    /// Blocks allocated after 'mark' end with 'rewind' (order: see weir::scope). One thread. 'mark' throws std::bad_alloc.
    template <class P = Placement, class = std::enable_if_t<contract::holds<contract::has_mark, P, base::usage> && ends_many>>
    auto mark() { return rule_.placement().mark(rule_.counts()); }
    template <class Mark, class P = Placement,
              class = std::enable_if_t<contract::holds<contract::has_mark, P, base::usage> && ends_many>>
    void rewind(Mark const& point) {
        rule_.counts() = rule_.placement().rewind(point, rule_.counts());
    }

    /// Bytes held from the upstream, now and at most since reset_peaks. Any thread may call this and the members below.
    std::size_t reserved_bytes() const noexcept { return held().bytes(); }
    std::size_t peak_reserved_bytes() const noexcept { return held().peak_bytes(); }
    void reset_peaks() noexcept { supply_.held().reset_peak(); }
    /// Bytes handed out and not yet freed, rounding included.
    std::size_t in_use_bytes() const { return rule_.used().bytes; }
    /// The most bytes that the pool may hold; SIZE_MAX: no limit.
    std::size_t limit_bytes() const noexcept { return held().limit_bytes(); }
    /// What layer::guard does with a mistake, and what the pool does if it ends before its blocks.
    violation_action on_violation() const noexcept { return options_.on_violation(); }
    leak_action on_leak() const noexcept { return options_.on_leak(); }
    text const& name() const noexcept { return options_.name(); } ///< what the options call it
    /// The number of the pool's device, or any_device.
    int device() const noexcept { return contract::holds<contract::has_device_number, Upstream> ? device_ : any_device; }

    /// Whether `p` lies in memory that the pool holds. Never blocks on a device.
    bool owns(void const* p) const noexcept { return held().owns(reinterpret_cast<std::uintptr_t>(p)); }

    /// What the pool knows of itself now. Any thread; takes a lock per stream, one after the other.
    memory_report state() const {
        base::usage const used = rule_.used();
        std::size_t const free = contract::holds<contract::has_largest, Placement> ? used.largest_free_bytes : SIZE_MAX;
        return memory_report{name(), used.bytes, held().bytes(), limit_bytes(), suspended() ? 0 : free, used.blocks,
                             held().count(), used.lost_bytes, used.unsettled_bytes, held().waits()};
    }
    /// Calls see(base::stream_usage) for each stream that the rule knows. Any thread; takes a lock per stream.
    template <class See, class R = rule>
    auto visit_streams(See const& see) const -> decltype(std::declval<R&>().visit_streams(see)) { rule_.visit_streams(see); }
    /// Adds what takes longer to find out: the bytes that CUDA says are free on the pool's device. See 'full_state'.
    void examine(memory_report& now) const noexcept {
        if (space == memory_space::device && device() != any_device)
            now.device_free_bytes = runtime::device_free_bytes(device());
    }
    /// What 'state' tells, as a line to print. Throws std::bad_alloc.
    text report() const { return resource::report_text(state(), supply_.kind()) + (suspended() ? ", suspended" : ""); }

    /// Whether a block of that size and alignment could be handed out if no other were: within the limit and what the upstream
    /// can ever have, while the pool is not suspended. May call CUDA, mostly once in the pool's life. Any thread.
    bool can_hold(std::size_t bytes, std::size_t alignment = default_alignment) const noexcept {
        return supply_.can_hold(bytes, alignment);
    }
    /// The bytes that such a block takes of the pool; 0: it cannot have one.
    static std::size_t rounded(std::size_t bytes, std::size_t alignment) { return Placement::rounded(bytes, alignment); }
    /// Why an allocation of `bytes` bytes finds no room now. Throws std::bad_alloc.
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        if (suspended())
            return {this->full_state(), is_suspended};
        return {this->full_state(),
                supply::block_refusal<supply_of, Placement>(held(), bytes, alignment, default_alignment, ends_many)};
    }

private:
    static constexpr char const* is_suspended = "the pool is suspended; call 'resume' first";
    auto const& held() const noexcept { return supply_.held(); }

    // Adds the bytes that go back to `given`. Returns the bytes still held, with those that 'resume' would get.
    std::size_t trim_at_rest(std::size_t keep_bytes, std::size_t& given) {
        base::lock_guard<growth_lock> const lock(growth_lock_);
        std::size_t const before = held().bytes();
        if (suspended())
            suspension_.trim(keep_bytes);
        else
            supply_.trim(rule_, keep_bytes);
        given += before - held().bytes();
        return held().bytes() + suspension_.withdrawn_bytes();
    }

    [[gnu::noinline]] void* grow_for(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        auto const climb = [&] { return ladder_of(rule_, supply_, growth_lock_).climb(bytes, alignment, stream); };
        base::range const block = runtime::naming(*this, climb);
        return suspended() ? withhold(block, stream) : reinterpret_cast<void*>(block.offset);
    }

    [[gnu::noinline]] void* withhold(base::range block, stream_ref stream) noexcept {
        if (block)
            rule_.give(block, stream);
        return nullptr;
    }

    pool_options options_;
    supply_of supply_;
    int const device_ = contract::device_number_of(held().upstream()); // asked here alone, where it may throw
    mutable rule rule_ = pools::detail::rule_over<rule>(device_, held().upstream());
    mutable growth_lock growth_lock_; // one thread grows, trims or suspends at a time
    supply::suspension<supply_of, rule> suspension_{options_.name(), supply_, rule_};
};

} // namespace v0
} // namespace weir
