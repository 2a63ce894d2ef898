// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Tells survivors.py whether a planted wrong pool did anything wrong: a test case in which it did not has no reason to fail.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <set>
#include <unistd.h>

namespace bugs {

/// Leaves the file that WEIR_DID_WRONG names, if it names one.
inline void did_wrong(bool really = true) noexcept {
    static std::atomic<bool> told{false};
    if (!really || told.exchange(true))
        return;
    if (char const* const path = std::getenv("WEIR_DID_WRONG"))
        if (int const file = ::open(path, O_CREAT | O_WRONLY, 0644); file >= 0)
            ::close(file);
}

/// For a pool that never reuses: the sizes of blocks that `rule` was given and will hand out to nobody.
struct unused_sizes {
    std::mutex mutex;
    std::map<void const*, std::multiset<std::size_t>> of;
};
inline unused_sizes& unused() {
    static unused_sizes all;
    return all;
}
inline void freed(void const* rule, std::size_t bytes) {
    std::lock_guard<std::mutex> const lock(unused().mutex);
    unused().of[rule].insert(bytes);
}
/// Wrong is a block of `bytes` bytes where one of those would do.
inline void takes(void const* rule, std::size_t bytes) {
    std::lock_guard<std::mutex> const lock(unused().mutex);
    auto const& sizes = unused().of[rule];
    did_wrong(bytes != 0 && sizes.lower_bound(bytes) != sizes.end());
}
inline void settled(void const* rule) {
    std::lock_guard<std::mutex> const lock(unused().mutex);
    unused().of.erase(rule);
}

} // namespace bugs
