// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Ranks that are threads, and a deadline that no clock decides: who waits for a rank that the test says will not come gives up.

#include <cstdint>
#include <exception>
#include <memory>
#include <sched.h>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include <weir/multi_device/rank_channel.hpp>

namespace support {

/// Gives up after `most_turns` looks; UINT64_MAX: never.
class patient_channel : public weir::multi_device::thread_channel {
public:
    patient_channel(weir::multi_device::thread_ranks const& place, int rank, std::uint64_t most_turns)
        : thread_channel(place, rank), most_turns_(most_turns) {}

protected:
    bool waits(std::uint64_t turns) override {
        sched_yield();
        return turns < most_turns_;
    }

private:
    std::uint64_t most_turns_;
};

class ranks {
public:
    explicit ranks(int count) : place_(count) {}

    /// This rank does not come. The others give up: the last number that comes after all others have arrived.
    void absent(int rank) { absent_.insert(rank); }
    weir::multi_device::thread_ranks const& place() const { return place_; }

    /// Calls body(channel) on a thread for each rank. What one throws is thrown here.
    template <class Body>
    void run(Body const& body) {
        std::vector<std::thread> threads;
        std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(place_.size()));
        for (int each = 0; each < place_.size(); ++each)
            if (absent_.count(each) == 0)
                threads.emplace_back([&, each] {
                    try {
                        // Where a rank is missing, any number of turns is too many.
                        patient_channel channel(place_, each, absent_.empty() ? UINT64_MAX : 20);
                        body(channel);
                    } catch (...) {
                        thrown[static_cast<std::size_t>(each)] = std::current_exception();
                    }
                });
        for (std::thread& each : threads)
            each.join();
        for (std::exception_ptr const& each : thrown)
            if (each)
                std::rethrow_exception(each);
    }

private:
    weir::multi_device::thread_ranks place_;
    std::set<int> absent_;
};

} // namespace support
