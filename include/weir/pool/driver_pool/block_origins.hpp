// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where does a block of CUDA's pool begin for CUDA, and who owns it: the pool or a graph?
//
// CUDA aligns to 256 bytes, so a block that needs more starts inside a larger one. And what a captured stream allocates
// its graph owns: each launch allocates it again at the same address, and it may be freed once a launch. Both are kept
// by the address that was handed out; of all other blocks nothing is kept.
//
// invariant: a pool's block is forgotten when it is freed; a graph's stays known until its graph frees it itself, or the
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
namespace detail {

/// Any thread may call any member.
class block_origins {
public:
    static constexpr std::size_t unit_bytes = 256; ///< CUDA's alignment, in which distances are kept
    /// What 'note' takes at most: a distance has 30 bits.
    static constexpr std::size_t largest_alignment = unit_bytes << 30;

    struct origin {
        void* begin;   ///< what CUDA handed out
        bool of_graph; ///< a graph owns it
    };

    /// What CUDA is asked for beside a block's bytes, so that a block of `alignment` fits.
    static constexpr std::size_t padding_for(std::size_t alignment) noexcept {
        return alignment > unit_bytes ? alignment : 0;
    }
    /// Whether there can be a block of that size and alignment.
    static constexpr bool can_be(std::size_t bytes, std::size_t alignment) noexcept {
        return alignment <= largest_alignment && !base::add_overflows(bytes, padding_for(alignment));
    }

    /// Whether nothing is known of any block.
    bool empty() const noexcept { return count_.load(base::memory_order_relaxed) == 0; }

    /// The first address at or behind `begin` with `alignment`, whose origin is known from now on. `capture`: the id of the
    /// one whose graph owns the block; 0: the pool does. Throws std::bad_alloc, with nothing changed that shows.
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
        if (blocks_.contains(at)) { // of a graph that is gone
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

    /// The origin of what 'note' answered. Never blocks on a device.
    origin find(void* p) const noexcept {
        if (empty())
            return {p, false};
        base::lock_guard<base::mutex> const lock(mutex_);
        return of(p, blocks_.find(reinterpret_cast<std::uintptr_t>(p)));
    }

    /// The same, of a block that is freed: a pool's is forgotten.
    origin take(void* p) noexcept {
        origin const found = find(p);
        if (found.begin != p && !found.of_graph)
            forget(p);
        return found;
    }

    /// The graph of the capture `capture` frees the block. Where it is the owner, nobody else will, and the block is forgotten.
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
    // Two captures are 2^31 others apart before one is taken for the other.
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
    base::address_map captures_; // of graphs' blocks: whose
    base::atomic<std::size_t> count_{0};
};

} // namespace detail
} // namespace v0
} // namespace weir
