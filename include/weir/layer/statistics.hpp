// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How many bytes did the users of a pool ask for: at this moment, at most, and in all?
//
// The layer counts requested bytes, that is, without the pool's rounding. Compare their peak with the pool's reserved bytes
// to see what the pool costs. 'reset_peaks' starts a new measurement and leaves the counts of live blocks (handed out and not
// yet freed) as they are. 'measure' gives a part of the program a peak of its own, which no reset and no other part disturbs.
// Large live blocks are also listed, so that an out_of_memory can name the largest. Threads count in shards and meet rarely
// (base/threads/central_count.hpp).
//
// invariant: what was live never exceeds the peak. The peaks are exact as long as one thread calls. With several they are too
//            high by at most 16 MiB or 1 % of the bytes, and 1024 or 1 % of the blocks, whichever is more. Totals never fall.
//            Each block must be freed once and with its own size: a free counts even if the wrapped pool refuses it. Under
//            layer::guard, as guard<statistics<Pool>>, a wrong free does not reach this layer.
// order:     the counts are exact once no call is under way; if they are read during calls, they may be off by those calls.
// cost:      one atomic exchange a call, and 5 KiB of host memory; for a large block a mutex and a hash look-up as well.
// not for:   how full the pool itself is: see pool::state. Blocks of a driver_pool that belong to a graph and are freed once
//            a launch: allocate and free those through 'inner()'.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/live_blocks.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/central_count.hpp>
#include <weir/base/threads/counters.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/shards.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layer_options.hpp>
#include <weir/resource/layered.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class statistics : public resource::layered<statistics<Pool>, Pool> {
    using wrapper = resource::layered<statistics<Pool>, Pool>;

public:
    /// Blocks of at least this many bytes are listed.
    static constexpr std::size_t least_listed_bytes = 1 * MiB;

    /// `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...> &&
                                                           !wrapper::template is_named<Arguments...>>>
    explicit statistics(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    statistics() : wrapper(std::in_place) {}

    /// The same with a name, such as a tenant's.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit statistics(layer_options const& options, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), own_name_(options.name()) {}

    /// As the wrapped pool's. Counts the block, or the failure.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        void* const block = this->pool_.try_allocate(stream, bytes, alignment);
        if (block)
            count(block, bytes);
        else if (bytes != 0)
            base::add_alone(shards_.mine()->failures, std::uint64_t{1});
        return block;
    }

    /// As the wrapped pool's. Takes the block off the counts.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (p) {
            uncount(bytes, 1);
            if (bytes >= least_listed_bytes)
                unlist(p);
        }
        this->pool_.deallocate(stream, p, bytes, alignment);
    }
    using wrapper::deallocate;

    /// As the wrapped pool's; the blocks that end are taken off the counts.
    template <class P = typename wrapper::pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() {
        return marked<decltype(std::declval<P&>().mark())>{this->pool_.mark(), listed()};
    }
    template <class Mark, class P = typename wrapper::pool_type,
              class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    void rewind(Mark const& to) {
        end(to.entered, [&](P& pool) { pool.rewind(to.point); });
    }
    template <class P = typename wrapper::pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() {
        end(0, [](P& pool) { pool.clear(); });
    }

    /// The requested bytes, and the number, of the live blocks.
    std::uint64_t requested_bytes() const noexcept { return bytes_.in_use(shards_, &shard::bytes); }
    std::uint64_t live_blocks() const noexcept { return blocks_.in_use(shards_, &shard::blocks); }
    /// The most bytes and blocks that were live since the last reset_peaks; see the head for how exact they are.
    std::uint64_t peak_requested_bytes() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return higher(earlier_peak_bytes_, bytes_.peak(shards_, &shard::bytes));
    }
    std::uint64_t peak_live_blocks() const noexcept { return blocks_.peak(shards_, &shard::blocks); }
    /// All bytes and blocks that were ever handed out.
    std::uint64_t total_bytes() const noexcept { return sum(&shard::total_bytes); }
    std::uint64_t total_blocks() const noexcept { return sum(&shard::total_blocks); }
    /// Allocations that the pool refused.
    std::uint64_t failures() const noexcept { return sum(&shard::failures); }

    /// Sets the peaks to what is live at this moment, and those of the wrapped pool, if it has any. Throws what that one does.
    void reset_peaks() {
        this->pool_.reset_peaks();
        base::lock_guard<base::mutex> const lock(mutex_);
        begin_anew();
        earlier_peak_bytes_ = 0;
        typename base::shards<shard>::all const locked(shards_);
        blocks_.collect(shards_, &shard::blocks);
        blocks_.reset_peak();
    }

    /// A part of the program that is measured: from its 'measure' to this object's end, which the layer outlives. Any thread.
    class [[nodiscard]] measured_region {
    public:
        explicit measured_region(statistics& of) noexcept : of_(of) {
            base::lock_guard<base::mutex> const lock(of_.mutex_);
            of_.begin_anew();
            next_ = of_.regions_;
            of_.regions_ = this;
        }
        measured_region(measured_region const&) = delete;
        measured_region& operator=(measured_region const&) = delete;
        ~measured_region() {
            base::lock_guard<base::mutex> const lock(of_.mutex_);
            measured_region** at = &of_.regions_;
            while (*at != this)
                at = &(*at)->next_;
            *at = next_;
        }
        /// The most requested bytes that were live at once in this part so far, by whatever thread; as exact as the layer's.
        std::uint64_t peak_requested_bytes() const noexcept {
            base::lock_guard<base::mutex> const lock(of_.mutex_);
            return higher(peak_bytes_, of_.bytes_.peak(of_.shards_, &shard::bytes));
        }

    private:
        friend class statistics;
        statistics& of_;
        measured_region* next_ = nullptr;
        std::uint64_t peak_bytes_ = 0; // before the newest part began
    };

    /// Begins a part of the program that has a peak of its own: 'auto const part = pool.measure();'. Parts nest and overlap as
    /// they like, and leave the layer's peaks as they are. Locks all shards for a moment.
    measured_region measure() noexcept { return measured_region(*this); }

    /// The layer's name, or else the wrapped pool's.
    text name() const { return own_name_.empty() ? this->pool_.state().name : own_name_; }
    /// The wrapped pool's state, with this layer's name.
    memory_report state() const {
        memory_report now = this->pool_.state();
        if (!own_name_.empty())
            now.name = own_name_;
        return now;
    }
    /// Offers the listed live blocks to the list of the largest. See 'full_state'.
    void list_own(largest_blocks& list) const noexcept {
        wrapper::list_own(list);
        base::lock_guard<base::mutex> const lock(mutex_);
        large_.offer_to(list);
    }

private:
    struct shard {
        base::spin_lock lock;
        base::credit bytes, blocks; // handed out and not yet freed
        base::atomic<std::uint64_t> total_bytes{0}, total_blocks{0}, failures{0};
    };
    template <class Point>
    struct marked {
        Point point;
        std::uint64_t entered; // how many large blocks were listed before
    };

    [[gnu::always_inline]] void count(void* block, std::size_t bytes) noexcept {
        {
            auto const mine = shards_.mine();
            static_cast<void>(bytes_.take(mine->bytes, bytes));
            static_cast<void>(blocks_.take(mine->blocks, 1));
            base::add_alone(mine->total_bytes, std::uint64_t{bytes});
            base::add_alone(mine->total_blocks, std::uint64_t{1});
        }
        if (bytes >= least_listed_bytes)
            list(block, bytes);
    }
    [[gnu::always_inline]] void uncount(std::size_t bytes, std::size_t blocks) noexcept {
        auto const mine = shards_.mine();
        bytes_.give(mine->bytes, bytes);
        blocks_.give(mine->blocks, blocks);
    }

    // `act` ends blocks of the pool without a free, among them all large ones but the first `entered`.
    template <class Act>
    void end(std::uint64_t entered, Act const& act) {
        memory_report const gone = this->ended_by(act);
        uncount(gone.in_use_bytes, gone.live_blocks);
        if (gone.live_blocks != 0) {
            base::lock_guard<base::mutex> const lock(mutex_);
            large_.leave_after(entered, [](auto const&) {});
        }
    }

    void list(void* block, std::size_t bytes) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        try {
            large_.enter({{block, bytes}});
        } catch (...) { // a report may lack a block; that is no failure
        }
    }
    void unlist(void* block) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (auto* const listed = large_.find(block))
            large_.leave(*listed);
    }
    std::uint64_t listed() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return large_.entered();
    }

    static std::uint64_t higher(std::uint64_t a, std::uint64_t b) noexcept { return a < b ? b : a; }
    // The count's peak begins at what is live; what it was is kept for all who measure. With the mutex.
    void begin_anew() noexcept {
        typename base::shards<shard>::all const locked(shards_);
        std::uint64_t const before = bytes_.peak(shards_, &shard::bytes);
        earlier_peak_bytes_ = higher(earlier_peak_bytes_, before);
        for (measured_region* each = regions_; each; each = each->next_)
            each->peak_bytes_ = higher(each->peak_bytes_, before);
        bytes_.collect(shards_, &shard::bytes);
        bytes_.reset_peak();
    }

    std::uint64_t sum(base::atomic<std::uint64_t> shard::*figure) const noexcept {
        std::uint64_t all = 0;
        for (shard const& each : shards_)
            all += (each.*figure).load(base::memory_order_relaxed);
        return all;
    }

    static constexpr std::uint64_t most_blocks_ahead = 1024;
    text const own_name_; // empty: none
    base::central_count bytes_{UINT64_MAX, base::most_ahead_bytes};
    base::central_count blocks_{UINT64_MAX, most_blocks_ahead};
    base::shards<shard> shards_;
    mutable base::mutex mutex_;
    base::live_blocks<> large_;
    measured_region* regions_ = nullptr;    // that are open
    std::uint64_t earlier_peak_bytes_ = 0; // before the newest part began
};

} // namespace layer
} // namespace v0
} // namespace weir
