// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does torch.cuda.memory_stats tell?
//
// PyTorch's own structure, counted as its own allocator counts: blocks of up to 1 MiB are the small pool's, larger ones the
// large pool's. A segment is a chunk that the device gave. Active is what is allocated: a freed block that a stream still uses
// is not counted. Inactive split bytes are all that is held and not allocated.
//
// not for:   the number of inactive blocks, oversize blocks and rejections: these are 0.

#include "version.hpp"

#include <cstddef>
#include <cstdint>

namespace weir_plugin::torch {

/// Of one device. One thread at a time.
class statistics {
    using stat = c10::CachingAllocator::Stat;
    using stats = c10::CachingAllocator::StatArray;

public:
    void allocated(std::size_t requested_bytes, std::size_t bytes) {
        std::size_t const kind = bytes <= largest_small_bytes ? small : large;
        up(now_.allocation, kind, 1);
        up(now_.active, kind, 1);
        up(now_.allocated_bytes, kind, bytes);
        up(now_.active_bytes, kind, bytes);
        up(now_.requested_bytes, kind, requested_bytes);
        down(now_.inactive_split_bytes, large, bytes);
    }
    void freed(std::size_t requested_bytes, std::size_t bytes) {
        std::size_t const kind = bytes <= largest_small_bytes ? small : large;
        down(now_.allocation, kind, 1);
        down(now_.active, kind, 1);
        down(now_.allocated_bytes, kind, bytes);
        down(now_.active_bytes, kind, bytes);
        down(now_.requested_bytes, kind, requested_bytes);
        up(now_.inactive_split_bytes, large, bytes);
    }
    void chunk(std::size_t bytes, bool came) {
        if (came) {
            up(now_.segment, large, 1);
            up(now_.reserved_bytes, large, bytes);
            up(now_.inactive_split_bytes, large, bytes);
            ++now_.num_device_alloc;
        } else {
            down(now_.segment, large, 1);
            down(now_.reserved_bytes, large, bytes);
            down(now_.inactive_split_bytes, large, bytes);
            ++now_.num_device_free;
        }
    }
    void private_chunk([[maybe_unused]] mempool id, [[maybe_unused]] std::size_t bytes, [[maybe_unused]] bool came) {
#if TORCH_VERSION_MINOR >= 13
        stats& own = now_.reserved_bytes_by_private_pools[id];
        came ? up(own, large, bytes) : down(own, large, bytes);
#endif
    }
    void out_of_memory() {
        ++now_.num_ooms;
    }
    void retried() {
        ++now_.num_alloc_retries;
    }

    /// `waits`: how often the pool waited for freed memory and searched again, of all that it ever did.
    caching::DeviceStats state(std::size_t waits) const {
        caching::DeviceStats copy = now_;
        copy.num_alloc_retries += static_cast<std::int64_t>(waits - waits_before_);
        copy.num_sync_all_streams = static_cast<std::int64_t>(waits - waits_before_);
        copy.max_split_size = -1; // there is none: PyTorch's own says so too
        return copy;
    }
    std::size_t allocated_bytes() const noexcept {
        return static_cast<std::size_t>(now_.allocated_bytes[all].current);
    }
    std::size_t reserved_bytes() const noexcept {
        return static_cast<std::size_t>(now_.reserved_bytes[all].current);
    }

    void reset_accumulated(std::size_t waits) {
        each([](stat& one) { one.allocated = one.freed = 0; });
        now_.num_alloc_retries = now_.num_ooms = 0;
        now_.num_device_alloc = now_.num_device_free = 0;
        waits_before_ = waits;
    }
    void reset_peak() {
        each([](stat& one) { one.peak = one.current; });
    }

private:
    static constexpr std::size_t largest_small_bytes = 1 << 20;
    static constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    static constexpr auto small = static_cast<std::size_t>(c10::CachingAllocator::StatType::SMALL_POOL);
    static constexpr auto large = static_cast<std::size_t>(c10::CachingAllocator::StatType::LARGE_POOL);

    static void up(stats& of, std::size_t kind, std::size_t amount) {
        for (std::size_t const each : {all, kind}) {
            stat& one = of[each];
            one.current += static_cast<std::int64_t>(amount);
            one.peak = one.peak < one.current ? one.current : one.peak;
            one.allocated += static_cast<std::int64_t>(amount);
        }
    }
    static void down(stats& of, std::size_t kind, std::size_t amount) {
        for (std::size_t const each : {all, kind}) {
            of[each].current -= static_cast<std::int64_t>(amount);
            of[each].freed += static_cast<std::int64_t>(amount);
        }
    }
    template <class Act>
    void each(Act const& act) {
        for (stats* const array : {&now_.allocation, &now_.segment, &now_.active, &now_.inactive_split, &now_.allocated_bytes,
                                   &now_.reserved_bytes, &now_.active_bytes, &now_.inactive_split_bytes, &now_.requested_bytes})
            for (stat& one : *array)
                act(one);
#if TORCH_VERSION_MINOR >= 13
        for (auto& own : now_.reserved_bytes_by_private_pools)
            for (stat& one : own.second)
                act(one);
#endif
    }

    caching::DeviceStats now_;
    std::size_t waits_before_ = 0;
};

} // namespace weir_plugin::torch
