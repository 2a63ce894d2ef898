// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool keep to a limit that changes while it lives?
//
// A pool's own limit is fixed when it is made, and PyTorch's set_per_process_memory_fraction may be called at any time. So the
// upstream counts what the pool holds and refuses what would be more than an allowance. To the pool that is a full device: it
// gives back and moves free pages, as at its own limit, before it says no. Graphs' memory comes out of the same pool, so it
// counts as well.
//
// invariant: once no call is under way, no more is held than is allowed. What a suspended pool will get back counts as held.
// cost:      an atomic operation or two for each chunk, of which driver calls cost 35 us and more.
// not for:   several pools: each has an allowance of its own.

#include <atomic>
#include <cstddef>
#include <string>
#include <weir/weir.hpp>

namespace weir_plugin {

/// What a pool may hold, and what it holds, in bytes. Any thread may call any member.
class allowance {
public:
    explicit allowance(std::size_t limit) : limit_(limit) {}

    std::size_t limit() const noexcept { return limit_; }
    std::size_t held() const noexcept { return held_; }
    /// The most that was held since the last reset_peak.
    std::size_t peak() const noexcept { return peak_; }
    void reset_peak() noexcept { peak_ = held_.load(); }
    /// Sets the limit, and returns the one of before. What is held stays.
    std::size_t exchange_limit(std::size_t limit) noexcept { return limit_.exchange(limit); }

    /// Whether `bytes` more are allowed, which are then held. Either this sees a new limit, or who sets it sees the bytes.
    bool take(std::size_t bytes) noexcept {
        std::size_t const now = held_.fetch_add(bytes) + bytes;
        if (now <= limit_)
            return true;
        held_ -= bytes;
        return false;
    }
    void give(std::size_t bytes) noexcept { held_ -= bytes; }
    /// Call it once what was taken is there.
    void note_peak() noexcept {
        std::size_t const now = held_;
        std::size_t peak = peak_;
        while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
        }
    }

private:
    std::atomic<std::size_t> limit_; // SIZE_MAX: none
    std::atomic<std::size_t> held_{0};
    std::atomic<std::size_t> peak_{0};
};

/// Mapped memory of a device within an allowance, which outlives it. What it has besides is virtual_memory's.
class limited_memory : public weir::upstream::virtual_memory<> {
    using unlimited = weir::upstream::virtual_memory<>;

public:
    limited_memory(int device, allowance& own) : unlimited(device), own_(&own) {}

    void* acquire(std::size_t bytes) { return acquire(bytes, bytes); }
    void* acquire(std::size_t bytes, std::size_t piece_bytes) {
        void* chunks = nullptr;
        taking(bytes, [&] { return (chunks = unlimited::acquire(bytes, piece_bytes)) != nullptr; });
        return chunks;
    }
    bool extend(void* end, std::size_t bytes, std::size_t piece_bytes) {
        return taking(bytes, [&] { return unlimited::extend(end, bytes, piece_bytes); });
    }
    bool release(void* chunk, std::size_t bytes) noexcept {
        bool const gone = unlimited::release(chunk, bytes);
        own_->give(gone ? bytes : 0);
        return gone;
    }
    void abandon(void* pages, std::size_t bytes) noexcept {
        unlimited::abandon(pages, bytes);
        own_->give(bytes);
    }

    /// What pools ask to refuse at once, and to say why. Empty: the allowance is not what is in the way.
    bool can_acquire(std::size_t bytes) const noexcept { return bytes <= own_->limit(); }
    weir::text refusal(std::size_t bytes) const {
        std::size_t const limit = own_->limit();
        return bytes <= limit && own_->held() <= limit - bytes
                   ? weir::text()
                   : "the memory fraction that was set allows " + weir::base::bytes_text(limit);
    }

private:
    // Whether the bytes are allowed and get() gets them.
    template <class Get>
    bool taking(std::size_t bytes, Get const& get) {
        if (!own_->take(bytes))
            return false;
        bool got = false;
        try {
            got = get();
        } catch (...) {
            own_->give(bytes);
            throw;
        }
        got ? own_->note_peak() : own_->give(bytes);
        return got;
    }

    allowance* own_;
};

/// The pool whose parts are those of `Pool`, but for its upstream: limited_memory.
template <class Pool>
struct limited;
template <class Upstream, class Placement, class Reuse, class Growth>
struct limited<weir::pool<Upstream, Placement, Reuse, Growth>> {
    using pool = weir::pool<limited_memory, Placement, Reuse, Growth>;
};
template <class Recipe, bool Guarded>
struct limited<weir::recipes::pool_of<Recipe, Guarded>> : limited<typename Recipe::parts> {};

} // namespace weir_plugin
