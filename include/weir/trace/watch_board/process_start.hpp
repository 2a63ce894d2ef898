// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does a process still live, or has another one its number by now?
//
// The system gives a process's number to another one some time after its end. Together with the moment at which the process
// began it is unique until the machine starts anew; /proc tells that moment.
//
// invariant: 0 for a process that has ended, also while nobody has asked for its exit code yet. It has not
//            while a thread of it runs, though the first one has.
// cost:      three system calls.
// not for:   processes of another container, which has numbers of its own.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <weir/base/text.hpp>

namespace weir {
inline namespace v0 {
namespace trace::detail {

/// The number behind so many spaces of a text; 0: there are fewer.
inline std::uint64_t number_behind(char const* at, int spaces) noexcept {
    for (int i = 0; i < spaces && at; ++i)
        at = std::strchr(at + (i != 0), ' ');
    std::uint64_t number = 0;
    for (at += at != nullptr; at && *at >= '0' && *at <= '9'; ++at)
        number = number * 10 + static_cast<std::uint64_t>(*at - '0');
    return number;
}

/// When the process began, in the system's ticks since the machine started; 0: there is none of that number, or no /proc.
inline std::uint64_t process_start(std::uint64_t process) {
    int const file = ::open(("/proc/" + base::number_text(process) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    char said[1024];
    ssize_t const count = ::read(file, said, sizeof said - 1);
    ::close(file);
    said[count > 0 ? count : 0] = '\0';
    char const* at = std::strrchr(said, ')'); // behind its name, which may hold anything: ' state parent ...'
    // The state is the third field of the line, the number of threads the 20th, and the start the 22nd. A process whose first
    // thread has ended alone is a zombie with threads.
    bool const has_ended = !at || at[1] == '\0' || at[2] == 'X' || (at[2] == 'Z' && detail::number_behind(at, 18) < 2);
    return has_ended ? 0 : detail::number_behind(at, 20);
}

} // namespace trace::detail
} // namespace v0
} // namespace weir
