// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do simulated addresses and the bytes behind them come from?
//
// A region is one reservation of addresses with a second, accessible view of the same sparse memory: the
// first view is what the library sees (closed to the host for device memory), the second is where copies and
// kernels of the simulation read and write. Ranges of it are handed out lowest address first, so that
// neighbours in time are neighbours in memory, as on a real device.
//
// invariant: backing(p) - p is one constant a region.
// invariant: free ranges are disjoint, sorted and never adjacent.
// cost:      address space only, until bytes are written; given back to the system when a range is given
// back.

#include <cstddef>
#include <cstdint>
#include <map>

namespace simulated_device::inside {

constexpr std::size_t page_bytes = std::size_t(2) << 20;
constexpr std::size_t alignment_bytes = 512;

constexpr std::size_t round_up(std::size_t bytes, std::size_t step) {
    return (bytes + step - 1) / step * step;
}

/// First fit over offsets.
class offset_ranges {
public:
    explicit offset_ranges(std::size_t bytes = 0);
    /// An offset, or npos.
    std::size_t take(std::size_t bytes, std::size_t alignment);
    /// Exactly this range, if it is free.
    bool take_at(std::size_t offset, std::size_t bytes);
    void give(std::size_t offset, std::size_t bytes);
    static constexpr std::size_t npos = ~std::size_t(0);

private:
    std::map<std::size_t, std::size_t> free_;
};

enum class access { closed, open };

/// Whether so many bytes of addresses are to be had at once. Sanitizers leave few.
bool addresses_left(std::size_t bytes);

/// Addresses with a backing view. Movable would be pointless: devices own theirs through a pointer.
class region {
public:
    /// 'aliased': two views of one sparse file; else one view, open to the host.
    region(std::size_t bytes, access how, bool aliased, std::uintptr_t hint);
    ~region();
    region(region const&) = delete;
    region& operator=(region const&) = delete;

    bool contains(void const* p) const {
        auto const at = reinterpret_cast<std::uintptr_t>(p);
        return at - base_ < bytes_;
    }
    std::uintptr_t base() const { return base_; }
    std::size_t size() const { return bytes_; }
    char* backing(void const* p) const {
        return reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(p) + delta_);
    }

    /// Opens or closes the first view.
    void protect(access how);
    /// Opens or closes a part of the first view (whole 4 KiB pages).
    void protect(std::uintptr_t at, std::size_t bytes, access how);
    /// Gives the memory of whole 4 KiB pages inside back to the system: it reads as zeros again.
    void discard(std::uintptr_t at, std::size_t bytes);
    /// Shows 'bytes' of another region, from 'offset', at this address in both views; no source: nothing
    /// again.
    void show(std::uintptr_t at, std::size_t bytes, region const* source, std::size_t offset, access how);

    offset_ranges pages;

private:
    std::uintptr_t mapped_ = 0;
    std::uintptr_t base_ = 0;
    std::uintptr_t delta_ = 0;
    std::size_t bytes_ = 0;
    int file_ = -1;
    bool aliased_;
};

/// cudaMalloc's view of a device region: whole 2 MiB pages for large blocks, shared pages for small ones.
class device_space {
public:
    device_space(std::size_t memory_bytes, access how, std::uintptr_t hint);

    /// An address, or 0 when memory is exhausted.
    std::uintptr_t take(std::size_t bytes);
    void give(std::uintptr_t at, std::size_t bytes, bool written);
    /// Physical memory without addresses (virtual memory, pools): counted in whole bytes.
    bool charge(std::size_t bytes);
    void refund(std::size_t bytes) { used_ -= bytes; }

    std::size_t used() const { return used_; }
    std::size_t memory() const { return memory_; }
    /// What a block of this size occupies of its own pages (512 B steps below 1 MiB).
    static std::size_t rounded(std::size_t bytes);

    region memory_region;

private:
    struct shared_page {
        offset_ranges room;
        std::size_t live = 0;
        bool written = false;
    };

    std::size_t memory_;
    std::size_t used_ = 0;
    std::map<std::uintptr_t, shared_page> shared_;
};

} // namespace simulated_device::inside
