// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Ranks that are processes: children of the test's, made before anything asks for a device.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <sched.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>
#include <weir/multi_device/rank_channel.hpp>

namespace support {

// A child that calls body(), and ends at once with what that returns: nothing of the test's ends in it.
class child {
public:
    template <class Body>
    explicit child(Body const& body) : pid_(fork()) {
        if (pid_ != 0)
            return;
        int code = 99;
        try {
            code = body();
        } catch (...) { // the code says it
        }
        _exit(code);
    }
    child(child const&) = delete;
    child& operator=(child const&) = delete;
    ~child() { CHECK(pid_ == 0); } // was waited for

    // Waits for its end.
    int code() {
        int status = -1;
        CHECK(waitpid(pid_, &status, 0) == pid_);
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

private:
    pid_t pid_;
};

// A file that is not there yet.
inline std::string fresh_path() {
    std::string path = "/tmp/weir-ranks-XXXXXX";
    int const file = mkstemp(path.data());
    REQUIRE(file >= 0);
    close(file);
    std::remove(path.c_str());
    return path;
}

/// Waits without a deadline until the test knows that a rank has ended.
struct knowing_channel : weir::multi_device::process_channel {
    using process_channel::process_channel;
    bool one_has_ended = false;

protected:
    bool waits(std::uint64_t) override {
        sched_yield();
        return !one_has_ended;
    }
};

/// Each of `rounds` times, gives its rank and the round, and gets everybody's. Returns how often something was wrong.
inline int exchange_all(weir::multi_device::rank_channel& channel, unsigned rounds) {
    int wrong = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        std::vector<unsigned> all(static_cast<std::size_t>(channel.ranks()));
        unsigned const own = 1000 * static_cast<unsigned>(channel.rank()) + round;
        wrong += channel.exchange(&own, sizeof own, all.data()) == -1 ? 0 : 1;
        for (unsigned each = 0; each < all.size(); ++each)
            wrong += all[each] == 1000 * each + round ? 0 : 1;
    }
    return wrong;
}

/// What an exchange says.
inline int absent_in(weir::multi_device::rank_channel& channel) {
    unsigned const own = 0;
    std::vector<unsigned> all(static_cast<std::size_t>(channel.ranks()));
    return channel.exchange(&own, sizeof own, all.data());
}

} // namespace support
