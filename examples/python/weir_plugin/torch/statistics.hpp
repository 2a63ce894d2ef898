// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does torch.cuda.memory_stats tell?
//
// PyTorch's own structure, counted as its own allocator counts: blocks of up to 1 MiB are the small pool's, larger ones the
// large pool's. A segment is a chunk that the device gave. Active is what is allocated: a freed block that a stream still uses
// is not counted. Inactive split bytes are all that is held and not allocated.
//
// cost:      a few additions a block: what PyTorch lists twice, or as a sum, is made when it is asked for.
// not for:   the number of inactive blocks, oversize blocks and rejections: these are 0.

#include "version.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir_plugin::torch {

/// One quantity of blocks, small and large. What was ever added follows from the rest.
class block_figure {
    using stat = c10::CachingAllocator::Stat;
    using stats = c10::CachingAllocator::StatArray;

public:
    void up(std::size_t kind, std::size_t amount) noexcept {
        of& own = kinds_[kind];
        own.current += static_cast<std::int64_t>(amount);
        own.peak = own.peak < own.current ? own.current : own.peak;
        peak_ = peak_ < current() ? current() : peak_;
    }
    void down(std::size_t kind, std::size_t amount) noexcept {
        kinds_[kind].current -= static_cast<std::int64_t>(amount);
        kinds_[kind].freed += static_cast<std::int64_t>(amount);
    }
    std::int64_t current() const noexcept { return kinds_[0].current + kinds_[1].current; }
    /// All that was added, and taken off, since the reset.
    std::int64_t added() const noexcept { return kinds_[0].added() + kinds_[1].added(); }
    std::int64_t freed() const noexcept { return kinds_[0].freed + kinds_[1].freed; }

    void tell(stats& told, std::size_t all, std::size_t small, std::size_t large) const noexcept {
        told[all] = made(current(), peak_, added(), freed());
        for (auto const& [place, own] : {std::make_pair(small, kinds_[0]), std::make_pair(large, kinds_[1])})
            told[place] = made(own.current, own.peak, own.added(), own.freed);
    }
    void reset_accumulated() noexcept {
        for (of& each : kinds_) {
            each.at_reset = each.current;
            each.freed = 0;
        }
    }
    void reset_peak() noexcept {
        for (of& each : kinds_)
            each.peak = each.current;
        peak_ = current();
    }

private:
    struct of {
        std::int64_t current = 0, peak = 0, freed = 0, at_reset = 0;
        std::int64_t added() const noexcept { return current - at_reset + freed; }
    };
    static stat made(std::int64_t current, std::int64_t peak, std::int64_t added, std::int64_t freed) noexcept {
        stat one;
        one.current = current;
        one.peak = peak;
        one.allocated = added;
        one.freed = freed;
        return one;
    }

    of kinds_[2];
    std::int64_t peak_ = 0; // of both together
};

/// Of one device. One thread at a time.
class statistics {
    using stat = c10::CachingAllocator::Stat;
    using stats = c10::CachingAllocator::StatArray;

public:
    void allocated(std::size_t requested_bytes, std::size_t bytes) noexcept {
        std::size_t const kind = bytes <= largest_small_bytes ? 0 : 1;
        blocks_.up(kind, 1);
        bytes_.up(kind, bytes);
        requested_.up(kind, requested_bytes);
    }
    void freed(std::size_t requested_bytes, std::size_t bytes) noexcept {
        std::size_t const kind = bytes <= largest_small_bytes ? 0 : 1;
        blocks_.down(kind, 1);
        bytes_.down(kind, bytes);
        requested_.down(kind, requested_bytes);
        note_inactive();
    }
    void chunk(std::size_t bytes, bool came) {
        if (came) {
            up(now_.segment, 1);
            up(now_.reserved_bytes, bytes);
            note_inactive();
            ++now_.num_device_alloc;
        } else {
            down(now_.segment, 1);
            down(now_.reserved_bytes, bytes);
            ++now_.num_device_free;
        }
    }
    void private_chunk([[maybe_unused]] mempool id, [[maybe_unused]] std::size_t bytes, [[maybe_unused]] bool came) {
#if TORCH_VERSION_MINOR >= 13
        stats& own = now_.reserved_bytes_by_private_pools[id];
        came ? up(own, bytes) : down(own, bytes);
#endif
    }
    void out_of_memory() noexcept { ++now_.num_ooms; }
    void retried() noexcept { ++now_.num_alloc_retries; }

    /// `waits`: how often the pool waited for freed memory and searched again, of all that it ever did.
    caching::DeviceStats state(std::size_t waits) const {
        caching::DeviceStats copy = now_;
        for (auto const& [told, own] : {std::make_pair(&copy.allocation, &blocks_), std::make_pair(&copy.active, &blocks_),
                                        std::make_pair(&copy.allocated_bytes, &bytes_),
                                        std::make_pair(&copy.active_bytes, &bytes_),
                                        std::make_pair(&copy.requested_bytes, &requested_)})
            own->tell(*told, all, small, large);
        stat& inactive = copy.inactive_split_bytes[all];
        stat const& reserved = now_.reserved_bytes[all];
        inactive.current = reserved.current - bytes_.current();
        inactive.peak = peak_inactive_;
        inactive.allocated = reserved.allocated + bytes_.freed();
        inactive.freed = reserved.freed + bytes_.added();
        copy.inactive_split_bytes[large] = inactive;
        copy.num_alloc_retries += static_cast<std::int64_t>(waits - waits_before_);
        copy.num_sync_all_streams = static_cast<std::int64_t>(waits - waits_before_);
        copy.max_split_size = -1; // there is none: PyTorch's own says so too
        return copy;
    }
    std::size_t allocated_bytes() const noexcept { return static_cast<std::size_t>(bytes_.current()); }
    std::size_t reserved_bytes() const noexcept { return static_cast<std::size_t>(now_.reserved_bytes[all].current); }

    void reset_accumulated(std::size_t waits) {
        for (block_figure* const each : {&blocks_, &bytes_, &requested_})
            each->reset_accumulated();
        each([](stat& one) { one.allocated = one.freed = 0; });
        now_.num_alloc_retries = now_.num_ooms = 0;
        now_.num_device_alloc = now_.num_device_free = 0;
        waits_before_ = waits;
    }
    void reset_peak() {
        for (block_figure* const each : {&blocks_, &bytes_, &requested_})
            each->reset_peak();
        each([](stat& one) { one.peak = one.current; });
        peak_inactive_ = now_.reserved_bytes[all].current - bytes_.current();
    }

private:
    static constexpr std::size_t largest_small_bytes = 1 << 20;
    static constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    static constexpr auto small = static_cast<std::size_t>(c10::CachingAllocator::StatType::SMALL_POOL);
    static constexpr auto large = static_cast<std::size_t>(c10::CachingAllocator::StatType::LARGE_POOL);

    // What is held and not allocated grows by a free and by a chunk that comes.
    void note_inactive() noexcept {
        std::int64_t const now = now_.reserved_bytes[all].current - bytes_.current();
        peak_inactive_ = peak_inactive_ < now ? now : peak_inactive_;
    }
    // Of chunks, which are the large pool's.
    static void up(stats& of, std::size_t amount) {
        for (std::size_t const each : {all, large}) {
            stat& one = of[each];
            one.current += static_cast<std::int64_t>(amount);
            one.peak = one.peak < one.current ? one.current : one.peak;
            one.allocated += static_cast<std::int64_t>(amount);
        }
    }
    static void down(stats& of, std::size_t amount) {
        for (std::size_t const each : {all, large}) {
            of[each].current -= static_cast<std::int64_t>(amount);
            of[each].freed += static_cast<std::int64_t>(amount);
        }
    }
    template <class Act>
    void each(Act const& act) {
        for (stats* const array : {&now_.segment, &now_.reserved_bytes})
            for (stat& one : *array)
                act(one);
#if TORCH_VERSION_MINOR >= 13
        for (auto& own : now_.reserved_bytes_by_private_pools)
            for (stat& one : own.second)
                act(one);
#endif
    }

    block_figure blocks_, bytes_, requested_;
    std::int64_t peak_inactive_ = 0;
    caching::DeviceStats now_; // of chunks, and the counts of events
    std::size_t waits_before_ = 0;
};

} // namespace weir_plugin::torch
