// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Ranks that are threads, and a deadline that no clock decides: who waits for a rank that the test says will not come gives up.

#include <atomic>
#include <climits>
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

/// Gives up once `last` ranks wait in vain, which have all given what is theirs then; INT_MAX: never.
class patient_channel : public weir::multi_device::thread_channel {
public:
    patient_channel(weir::multi_device::thread_ranks const& place, int rank, std::atomic<int>& waiting, int last)
        : thread_channel(place, rank), waiting_(waiting), last_(last) {}

protected:
    bool waits(std::uint64_t turns) override {
        if (turns == 0)
            ++waiting_;
        sched_yield();
        return waiting_ < last_;
    }

private:
    std::atomic<int>& waiting_;
    int last_;
};

class ranks {
public:
    explicit ranks(int count) : place_(count) {}

    /// This rank does not come. The others give up once all of them wait.
    void absent(int rank) { absent_.insert(rank); }
    weir::multi_device::thread_ranks const& place() const { return place_; }

    /// Calls body(channel) on a thread for each rank. What one throws is thrown here.
    template <class Body>
    void run(Body const& body) {
        std::vector<std::thread> threads;
        std::atomic<int> waiting{0};
        std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(place_.size()));
        for (int each = 0; each < place_.size(); ++each)
            if (absent_.count(each) == 0)
                threads.emplace_back([&, each] {
                    try {
                        patient_channel channel(place_, each, waiting,
                                                absent_.empty() ? INT_MAX : place_.size() - static_cast<int>(absent_.size()));
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
