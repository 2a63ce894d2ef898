// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do several ranks get memory that lies at the same offset on each?
//
// Libraries that move data between devices (NCCL's windows, NVSHMEM) register memory once, and then reach a block of another
// rank by the offset that it has on this one. So each rank has a pool, and all ranks make the same calls in the same order. The
// pools then hand out the same offsets, since nothing in them asks a clock, an event or an address. What could differ from rank
// to rank is for the collective calls: 'grow' adds a chunk on every rank or on none, and first compares what all ranks did so
// far. Ranks that went different ways get a sentence that names the first call in which they did, in the place of a hang.
//
//     weir::multi_device::collective_pool<> pool(channel);   // on each rank; the channel: see rank_channel.hpp
//     pool.grow(256 * weir::MiB);                            // on each rank
//     weir::device_vector<float> sums(pool, stream, n);      // on each rank: the same offset
//
// A registration is told of each chunk (chunk_registration), so a pool that has grown enough registers nothing and calls no
// driver any more. Chunks never move, and go back at the pool's end.
//
// invariant: equal calls on two ranks get equal offsets. Allocation never grows.
// order:     memory freed on a stream is that stream's at once; another stream waits for it on the device.
// cost:      an allocation and its free cost about what they cost in device_pool. 'grow' and 'agree': two or three exchanges.
// not for:   threads of one rank that allocate at once: their calls have no order that other ranks could share.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/multi_device/chunk_registration.hpp>
#include <weir/multi_device/collective_pool/call_log.hpp>
#include <weir/multi_device/collective_pool/chunk_places.hpp>
#include <weir/multi_device/collective_pool/rank_agreement.hpp>
#include <weir/multi_device/collective_pool/stream_shares.hpp>
#include <weir/multi_device/rank_channel.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/upstream/memory_tuning.hpp>
#include <weir/upstream/virtual_memory.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// `Upstream`: where a rank's chunks come from; `Placement`: which bytes a block gets (one that mixes: 'absorb' and 'lend').
/// One thread at a time.
template <class Upstream, class Placement>
class collective_pool : public resource::pool_base<collective_pool<Upstream, Placement>> {
    static_assert(contract::require_upstream<Upstream>());
    static_assert(contract::require_placement<Placement>());
    static_assert(contract::holds<contract::has_absorb, Placement> && contract::holds<contract::has_sibling, Placement> &&
                      contract::holds<contract::has_remove, Placement>,
                  "weir: multi_device::collective_pool needs a placement with 'sibling', 'absorb', 'lend' and 'remove', such "
                  "as 'weir::placement::best_fit<>'");

public:
    static constexpr memory_space space = Upstream::space;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = base::default_alignment_of<Placement>(space);

    /// The pool of the channel's rank. `channel` and `registration` outlive it. If the options name bytes to reserve, it grows
    /// by as many. Throws as 'grow', and usage_error if there is no such device.
    explicit collective_pool(rank_channel& channel, pool_options options = {}, chunk_registration* registration = nullptr)
        : collective_pool(channel, contract::upstream_on<Upstream>(options.device()), options, registration) {}
    collective_pool(rank_channel& channel, Upstream memory, pool_options options = {},
                    chunk_registration* registration = nullptr)
        : options_(std::move(options)), ranks_(channel, options_.name()), registration_(registration),
          memory_(std::move(memory)), device_(contract::device_number_of(memory_)) {
        ranks_.enter();
        if (options_.reserve_bytes() != 0)
            grow(options_.reserve_bytes());
    }
    collective_pool(collective_pool const&) = delete;
    collective_pool& operator=(collective_pool const&) = delete;

    /// Waits for all work, and gives the chunks back, the last one first. Other ranks are not waited for: end their work first.
    ~collective_pool() {
        base::usage const used = shares_.used();
        resource::tell_leaks(options_.name().c_str(), options_.on_leak(), used.blocks, used.bytes);
        bool const at_rest = base::try_twice([] { return runtime::wait_for_device(any_device), true; });
        while (places_.count() != 0)
            drop_last(at_rest);
    }

    /// A block of `bytes` bytes at a multiple of `alignment`, for work enqueued on `stream` from now on, at the same offset as
    /// on other ranks; null for zero bytes and where there is no room. `stream` lives until the next 'settle': the pool knows
    /// it by its handle, which another one may get on some of the ranks. Makes no driver call and never waits on the host,
    /// unless it is for the host: then it waits for streams whose freed bytes it takes. Throws usage_error for an alignment
    /// beyond that of chunks, a captured stream, one of another device, a thread's own default stream; cuda_error;
    /// std::bad_alloc.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        base::require_power_of_two(alignment);
        if (alignment > Upstream::alignment)
            throw usage_error("weir: blocks of a collective pool are aligned to " + base::bytes_text(Upstream::alignment) +
                              " at most, as its chunks are");
        if (bytes == 0)
            return nullptr;
        return runtime::naming(*this, [&] {
            std::uint32_t const number = shares_.number_of(stream);
            base::range const block = shares_.take(bytes, alignment, stream);
            ranks_.log().note(detail::call_kind::allocate, bytes, block ? block.offset : detail::pool_call::refused, number,
                              base::floor_log2(alignment));
            return block ? places_.address_of(block.offset) : nullptr;
        });
    }

    /// Takes a block back, given the `bytes` and `alignment` of its allocation. `stream` is that of the allocation or waits for
    /// it, and orders the free; it lives until the next 'settle'. A default stream is that of the pool's device; for a thread's
    /// own one this waits on the host. What a captured stream frees is not handed out again.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        if (!p)
            return;
        base::range const block{places_.offset_of(p), Placement::rounded(bytes, alignment)};
        std::uint32_t const number = shares_.give(block, reinterpret_cast<std::uintptr_t>(p), stream);
        ranks_.log().note(detail::call_kind::deallocate, bytes, block.offset, number, base::floor_log2(alignment));
    }
    using resource::pool_base<collective_pool>::deallocate;

    /// Notes that work on `stream` uses the block at `p` (its start): its free makes the freeing stream wait for that. As in
    /// pools (pool/pool.hpp), also 'last_used_on'.
    void used_on(void* p, stream_ref stream) {
        mark(p, stream, [&] { shares_.used_on(reinterpret_cast<std::uintptr_t>(p), stream); });
    }
    void last_used_on(void* p, stream_ref stream) {
        mark(p, stream, [&] { shares_.last_used_on(reinterpret_cast<std::uintptr_t>(p), stream); });
    }

    /// Adds a chunk of at least `bytes` bytes. A collective call: every rank makes it, at the same place among its calls. First
    /// the ranks compare their calls. Blocks until all came or the channel's deadline. Throws usage_error, on every rank, if
    /// they differ, or one did not come; out_of_memory, on every rank, if one of them has no room, would exceed its limit, or
    /// meets an exception, which that rank throws in its place. Nobody has grown then.
    void grow(std::size_t bytes) {
        std::size_t const chunk_bytes = base::align_up(bytes, chunk_unit());
        ranks_.log().note(detail::call_kind::grow, bytes);
        ranks_.compare("grow");
        if (bytes == 0)
            return;
        void* chunk = nullptr;
        auto const within = [&] {
            places_.make_room();
            return chunk_bytes != 0 && chunk_bytes <= limit_left();
        };
        auto const acquire = [&] {
            chunk = memory_.acquire(chunk_bytes);
            return chunk && (add(chunk, chunk_bytes), true);
        };
        auto const enter = [&] { return !registration_ || (registration_->enter(chunk, chunk_bytes), true); };
        auto const leave = [&] {
            if (registration_)
                registration_->leave(chunk, chunk_bytes);
        };
        using detail::outcome;
        require(ranks_.all_do(within, outcome::over_limit, outcome::failed, [] {}), bytes);
        require(ranks_.all_do(acquire, outcome::no_room, outcome::failed, [&] { take_away(chunk, chunk_bytes); }), bytes);
        try {
            require(ranks_.all_do(enter, outcome::unregistered, outcome::unregistered, leave), bytes);
        } catch (...) {
            take_away(chunk, chunk_bytes);
            throw;
        }
    }

    /// Compares the ranks' calls so far. A collective call, as 'grow'. Throws usage_error if they differ or one did not come.
    void agree() {
        ranks_.log().note(detail::call_kind::agree);
        ranks_.compare("agree");
    }

    /// Blocks until no work uses what was freed, so that streams on which memory was freed may end. All ranks call it at the
    /// same place, but do not wait for one another. Throws cuda_error, std::bad_alloc.
    void settle() {
        shares_.settle();
        ranks_.log().note(detail::call_kind::settle);
    }

    /// The offset of an address in the pool, which is the same on all ranks for the same block. Throws usage_error for an
    /// address that is not in it.
    std::size_t offset_of(void const* p) const {
        std::size_t const found = places_.offset_of(p);
        if (found == 0)
            throw usage_error("weir: this address is not in the pool '" + name() + "'");
        return found;
    }
    bool owns(void const* p) const noexcept { return places_.offset_of(p) != 0; }

    text const& name() const noexcept { return options_.name(); }
    int device() const noexcept { return device_; }
    std::size_t reserved_bytes() const noexcept { return places_.bytes(); }
    std::size_t in_use_bytes() const noexcept { return shares_.used().bytes; }
    std::size_t limit_bytes() const noexcept { return options_.limit_bytes(); }
    violation_action on_violation() const noexcept { return options_.on_violation(); }
    leak_action on_leak() const noexcept { return options_.on_leak(); }
    /// What the pool knows of itself now.
    memory_report state() const {
        base::usage const used = shares_.used();
        std::size_t const free = contract::holds<contract::has_largest, Placement> ? used.largest_free_bytes : SIZE_MAX;
        return memory_report{name(),      used.bytes,      places_.bytes(), limit_bytes(), free,
                             used.blocks, places_.count(), used.lost_bytes, 0,             0};
    }
    void examine(memory_report& now) const noexcept { now.device_free_bytes = runtime::device_free_bytes(device()); }
    static std::size_t rounded(std::size_t bytes, std::size_t alignment) { return Placement::rounded(bytes, alignment); }
    /// Why an allocation of `bytes` bytes finds no room now. Throws std::bad_alloc.
    refusal refused(std::size_t, std::size_t) const {
        return {this->full_state(), places_.count() == 0
                                        ? "it holds no memory, and allocation never grows it; call 'grow' on every rank"
                                        : "no free range is large enough, and allocation never grows the pool; call 'grow' on "
                                          "every rank"};
    }

private:
    static constexpr std::size_t chunk_unit() noexcept {
        if constexpr (contract::holds<contract::has_granularity, Upstream>)
            return Upstream::granularity;
        else
            return Upstream::alignment;
    }
    std::size_t limit_left() const noexcept {
        return limit_bytes() > places_.bytes() ? limit_bytes() - places_.bytes() : 0;
    }

    template <class Mark>
    void mark(void* p, stream_ref stream, Mark const& mark) {
        if (!p || stream.is_host())
            return;
        runtime::naming(*this, mark);
        ranks_.log().note(detail::call_kind::use, 0, places_.offset_of(p), 0);
    }

    void require(detail::failed_rank failed, std::size_t asked) const {
        if (failed.rank >= 0)
            throw out_of_memory(asked, {this->full_state(), failed.said()});
    }
    void give_back(void* chunk, std::size_t bytes) noexcept {
        base::try_twice([&] { return memory_.release(chunk, bytes); });
    }

    // Before the ranks agree, so that one that has no host memory for it undoes the growth on all. Room for the place is made.
    void add(void* chunk, std::size_t bytes) {
        try {
            shares_.add(places_.add(chunk, bytes));
        } catch (...) { // no host memory
            places_.remove_last();
            give_back(chunk, bytes);
            throw;
        }
    }
    // Undoes 'add'; nobody has a block of it.
    void take_away(void* chunk, std::size_t bytes) {
        shares_.remove((places_.end() - 1)->place);
        places_.remove_last();
        give_back(chunk, bytes);
    }
    // If work may use it, nobody gets it.
    void drop_last(bool at_rest) noexcept {
        detail::placed_chunk const last = *(places_.end() - 1);
        places_.remove_last();
        auto* const chunk = reinterpret_cast<void*>(last.address);
        if (registration_)
            registration_->leave(chunk, last.place.bytes);
        if (at_rest)
            give_back(chunk, last.place.bytes);
    }

    pool_options options_;
    detail::rank_agreement ranks_;
    chunk_registration* registration_;
    Upstream memory_;
    int device_;
    detail::chunk_places places_{Upstream::alignment};
    detail::stream_shares<Placement> shares_{device_};
};

} // namespace multi_device
} // namespace v0
} // namespace weir
