// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where is memory free but of no use, and why?
//
// What a pool holds and nobody has is looked at in pages of 2 MiB, since a pool gives back whole pages, and each free byte has one
// cause, the first that fits:
//   another stream   it was freed on another stream than the one that allocated last, and nothing says that the work before that
//                    free is over: until the free's event only that stream may have it. A recording holds no kernels, so this is
//                    the most that it can be: it ends where the bytes are handed out or over, or the host waits;
//   a lone block     its page holds one live block, which takes less than half of it and keeps the page from going back;
//   a hole           it lies between blocks, in a page that is used otherwise;
//   kept             its page is wholly free: the pool keeps it for what comes, up to its limit, until a trim.
//
// invariant: the causes together are what is held less what is handed out.
// cost:      some 300 ns an event, and 10 ns more for each page that a block lies on.
// not for:   what a pool adds to a block: that is handed out.

#include "runner.hpp"
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
#include <weir/trace/recorded_event.hpp>

namespace replay {

enum class cause : std::size_t { another_stream, lone_block, hole, kept };
inline constexpr std::size_t causes = 4;

/// The cause in a few words, and in a sentence.
char const* name_of(cause of);
char const* meaning_of(cause of);

/// Free bytes, by cause.
struct idle_bytes {
    std::array<std::uint64_t, causes> of{};
    std::uint64_t all() const { return of[0] + of[1] + of[2] + of[3]; }
};

/// Follows events of one pool, or of several on one device.
class idle_meter {
public:
    void add(weir::trace::event const& one);
    idle_bytes now() const;
    std::uint64_t held_bytes() const { return held_bytes_; }

private:
    struct page {
        std::uint64_t held = 0, live = 0;
        std::uint32_t blocks = 0;
        std::vector<std::pair<std::uint64_t, std::uint64_t>> freed; // by stream: bytes whose free may not be reached
    };
    struct sums {
        std::uint64_t free = 0, freed = 0;
        std::vector<std::uint64_t> freed_by; // stream
    };
    struct run {
        std::uint64_t end, stream;
    };

    template <class Change>
    void change(std::uint64_t address, std::uint64_t bytes, Change&& to);
    void count(page const& of, bool comes);
    void hold(std::uint64_t address, std::uint64_t bytes);
    void drop(std::uint64_t address, std::uint64_t bytes);
    void end_block(std::uint64_t address, std::uint64_t stream);
    void mark_freed(std::uint64_t address, std::uint64_t bytes, std::uint64_t stream);
    void forget_freed(std::uint64_t address, std::uint64_t bytes);
    void forget_all_freed();

    std::unordered_map<std::uint64_t, page> pages_;
    std::unordered_map<std::uint64_t, std::uint64_t> live_; // bytes, by address
    std::map<std::uint64_t, run> freed_;                    // by first byte
    std::array<sums, causes> sums_;
    std::uint64_t held_bytes_ = 0, stream_ = 0;
};

/// What the page and the table show of a program's or a replay's idle memory.
struct idle_report {
    static constexpr std::size_t columns = 360;
    std::string who;                       ///< 'device_pool', or whose recording it is
    std::vector<idle_bytes> over_time;     ///< the most of each column, of equal shares of the time
    idle_bytes at_peak;                    ///< when most was held, and of that most was handed out
    std::uint64_t peak_held_bytes = 0;
    std::array<double, causes> average{};  ///< over the time
};

/// Of `what` through weir's device_pool, on the current device. Throws weir::cuda_error.
idle_report idle_of_replay(trace const& what, std::size_t limit_bytes, progress_function const& progress);
/// Of the recorded program's own pool; `over_time` is empty if the recording does not say what that one held.
idle_report idle_of_recording(trace const& what);

/// As a table for people; "": nothing is known.
std::string as_table(std::vector<idle_report> const& reports);

} // namespace replay
