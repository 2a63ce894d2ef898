// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// An upstream of plain host memory that remembers every chunk, runs out when it is told to, throws when it is
// told to, and refuses to take chunks back when it is told to. What it remembers lives in a ledger beside it,
// since a pool owns its upstream.

#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <map>
#include <new>
#include <vector>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>

namespace support {

/// What an upstream did and shall do. Outlives the pool.
struct upstream_ledger {
    std::map<void*, std::size_t> live; ///< chunks that are out
    std::vector<std::size_t> asked;    ///< bytes of every acquire, also of those that failed
    std::vector<std::size_t> returned; ///< bytes of every release that was taken
    std::size_t room_bytes = SIZE_MAX; ///< the most that may be out
    int refuse = 0;                    ///< so many releases from now on are refused
    int throw_at = 0;                  ///< the k-th acquire from now on throws std::runtime_error; 0: none

    std::size_t live_bytes() const {
        std::size_t sum = 0;
        for (auto const& each : live)
            sum += each.second;
        return sum;
    }
    ~upstream_ledger() { CHECK_MESSAGE(live.empty(), "chunks that never came back: ", live.size()); }
};

struct upstream_failure {};

template <weir::memory_space Space = weir::memory_space::host, std::size_t GranularityBytes = 4096>
class recorded_upstream {
public:
    static constexpr std::size_t alignment = 4096;
    static constexpr weir::memory_space space = Space;
    static constexpr std::size_t granularity = GranularityBytes;

    explicit recorded_upstream(upstream_ledger& ledger) : ledger_(&ledger) {}

    void* acquire(std::size_t bytes) {
        ledger_->asked.push_back(bytes);
        CHECK(bytes != 0);
        CHECK(bytes % granularity == 0);
        if (ledger_->throw_at != 0 && --ledger_->throw_at == 0)
            throw upstream_failure{};
        if (bytes > ledger_->room_bytes || ledger_->live_bytes() > ledger_->room_bytes - bytes)
            return nullptr;
        void* const chunk = ::operator new (bytes, std::align_val_t{alignment});
        try {
            ledger_->live[chunk] = bytes;
        } catch (...) { // the host has no memory for the test's own books
            ::operator delete (chunk, std::align_val_t{alignment});
            throw;
        }
        return chunk;
    }

    bool release(void* chunk, std::size_t bytes) noexcept {
        auto const found = ledger_->live.find(chunk);
        CHECK_MESSAGE(found != ledger_->live.end(), "a chunk came back that is not out");
        if (found == ledger_->live.end())
            return true;
        CHECK(found->second == bytes);
        if (ledger_->refuse != 0) {
            --ledger_->refuse;
            return false;
        }
        ledger_->live.erase(found);
        ledger_->returned.push_back(bytes);
        ::operator delete (chunk, std::align_val_t{alignment});
        return true;
    }

private:
    upstream_ledger* ledger_;
};

} // namespace support
