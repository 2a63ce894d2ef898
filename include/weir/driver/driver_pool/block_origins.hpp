// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where does a block of CUDA's pool begin for CUDA, and who owns it: the pool or a graph?
//
// CUDA aligns to 256 bytes, so a block that needs more alignment lies inside a larger block of CUDA's. And a block that a
// captured stream allocates belongs to its graph: each launch allocates it again at the same address, and it may be freed once
// a launch. Both facts are kept by the address that was handed out. Of all other blocks nothing is kept.
//
// invariant: a pool's block is forgotten when it is freed. A graph's block stays known until its graph frees it itself, or the
//            pool hands the same address out again.
// order:     none: every member is one step under a lock, or one load; 'take' is two steps.
// cost:      one relaxed load where nothing is known; else a lock and a look-up.
// not for:   sizes: the caller knows them.

#include <cstddef>
#include <cstdint>
#include <weir/base/address_map.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>

namespace weir {
inline namespace v0 {
namespace driver::detail {

/// Any thread may call any member.
class block_origins {
public:
    static constexpr std::size_t unit_bytes = 256; ///< CUDA's alignment, in which distances are kept
    /// The largest alignment that 'note' takes: a distance has 30 bits.
    static constexpr std::size_t largest_alignment = unit_bytes << 30;

    struct origin {
        void* begin;   ///< what CUDA handed out
        bool of_graph; ///< a graph owns it
    };

    /// The bytes that CUDA is asked for beyond a block's own, so that a block of `alignment` fits.
    static constexpr std::size_t padding_for(std::size_t alignment) noexcept {
        return alignment > unit_bytes ? alignment : 0;
    }
    /// Whether there can be a block of that size and alignment.
    static constexpr bool can_be(std::size_t bytes, std::size_t alignment) noexcept {
        return alignment <= largest_alignment && !base::add_overflows(bytes, padding_for(alignment));
    }

    /// Whether nothing is known of any block.
    bool empty() const noexcept { return count_.load(base::memory_order_relaxed) == 0; }

    /// The first address at or behind `begin` with `alignment`. Keeps where that block begins and who owns it. `capture`: the
    /// id of the capture whose graph owns the block; 0: the pool does. Throws std::bad_alloc, with nothing changed that shows.
    void* note(void* begin, std::size_t alignment, std::uint64_t capture) {
        auto const from = reinterpret_cast<std::uintptr_t>(begin);
        std::uintptr_t const at = base::align_up(from, alignment);
        if (at == from && capture == 0 && empty())
            return begin;
        auto const value = static_cast<std::uint32_t>((at - from) / unit_bytes) | (capture != 0 ? graphs : 0);
        base::lock_guard<base::mutex> const lock(mutex_);
        if (captures_.contains(at))
            captures_.erase(at);
        if (capture != 0)
            captures_.insert(at, short_of(capture));
        if (blocks_.contains(at)) { // left over from a graph that is gone
            if (value != 0)
                blocks_.assign(at, value);
            else
                erase(at);
        } else if (value != 0) {
            blocks_.insert(at, value);
            count_.fetch_add(1, base::memory_order_relaxed);
        }
        return reinterpret_cast<void*>(at);
    }

    /// The origin of the block at `p`, an address that 'note' returned. Never blocks on a device.
    origin find(void* p) const noexcept {
        if (empty())
            return {p, false};
        base::lock_guard<base::mutex> const lock(mutex_);
        return of(p, blocks_.find(reinterpret_cast<std::uintptr_t>(p)));
    }

    /// The same for a block that is freed: if it is the pool's, it is forgotten.
    origin take(void* p) noexcept {
        origin const found = find(p);
        if (found.begin != p && !found.of_graph)
            forget(p);
        return found;
    }

    /// Notes that the graph of the capture `capture` frees the block. If that graph owns it, nobody else will free it, and it
    /// is forgotten.
    void freed_by(std::uint64_t capture, void* p) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (captures_.find(reinterpret_cast<std::uintptr_t>(p)) == short_of(capture))
            erase(reinterpret_cast<std::uintptr_t>(p));
    }

    /// Forgets a block.
    void forget(void* p) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        erase(reinterpret_cast<std::uintptr_t>(p));
    }

private:
    // A short name of a capture: a capture is taken for an earlier one only if 2^31 others began in between.
    static std::uint32_t short_of(std::uint64_t capture) noexcept { return static_cast<std::uint32_t>(capture & 0x7fffffff); }

    static constexpr std::uint32_t graphs = std::uint32_t{1} << 30; // a bit beside the distance

    static origin of(void* p, std::uint32_t value) noexcept {
        if (value == base::address_map::none)
            return {p, false};
        return {static_cast<char*>(p) - (value & ~graphs) * unit_bytes, (value & graphs) != 0};
    }
    void erase(std::uintptr_t at) noexcept {
        if (blocks_.erase(at) != base::address_map::none)
            count_.fetch_sub(1, base::memory_order_relaxed);
        captures_.erase(at);
    }

    mutable base::mutex mutex_;
    base::address_map blocks_;
    base::address_map captures_; // which capture's graph owns a block
    base::atomic<std::size_t> count_{0};
};

} // namespace driver::detail
} // namespace v0
} // namespace weir
