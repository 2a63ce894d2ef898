// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How much may all pools of one device hold together?
//
// Each tag has a pool of its own beside the ordinary one (tags.hpp), and the program's limit is for their sum. The memory that
// pools stand on asks here before it asks the device.
//
// invariant: what is held is at most the limit, unless the limit was lowered since.
// cost:      an atomic addition a chunk.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weir_plugin {

/// Any thread may call any member.
class shared_limit {
public:
    explicit shared_limit(std::size_t bytes) noexcept : limit_(bytes) {}

    /// Counts `bytes` bytes as held; false, and none are, if there is no room for them. 'came' follows, or 'give'.
    bool take(std::size_t bytes) noexcept {
        std::size_t held = held_.load(std::memory_order_relaxed);
        do {
            std::size_t const most = limit_.load(std::memory_order_relaxed);
            if (is_shared_.load(std::memory_order_relaxed) && (held > most || bytes > most - held))
                return false;
        } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
        return true;
    }
    /// The device gave what was taken.
    void came() noexcept {
        std::size_t const now = held();
        std::size_t seen = peak();
        while (seen < now && !peak_.compare_exchange_weak(seen, now, std::memory_order_relaxed))
            ;
    }
    /// The opposite. `again` after a `give` that was in vain does not ask: the bytes never left.
    void give(std::size_t bytes) noexcept {
        std::size_t held = held_.load(std::memory_order_relaxed);
        while (!held_.compare_exchange_weak(held, held - (bytes < held ? bytes : held), std::memory_order_relaxed))
            ;
    }
    void again(std::size_t bytes) noexcept { held_.fetch_add(bytes, std::memory_order_relaxed); }

    /// From now on several pools share it; a pool alone keeps to its own limit.
    void share() noexcept { is_shared_.store(true, std::memory_order_relaxed); }
    void set_limit(std::size_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }
    std::size_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
    std::size_t held() const noexcept { return held_.load(std::memory_order_relaxed); }
    std::size_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
    void reset_peak() noexcept { peak_.store(held(), std::memory_order_relaxed); }
    /// What is left of it.
    std::size_t room() const noexcept {
        std::size_t const most = limit(), now = held();
        return now < most ? most - now : 0;
    }

private:
    std::atomic<std::size_t> limit_;
    std::atomic<std::size_t> held_{0}, peak_{0};
    std::atomic<bool> is_shared_{false};
};

} // namespace weir_plugin
