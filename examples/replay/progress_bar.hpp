// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How far is it?
//
// A line on stderr that is drawn over and over, and wiped at the end; nothing where stderr is no terminal, so
// that logs stay clean. It is as wide as the terminal at most: what wraps cannot be drawn over.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

namespace replay {

/// The line for a terminal of so many columns; of one that is narrower than 20 it takes 20.
inline std::string progress_line(std::size_t columns, int percent, std::string_view what) {
    columns = std::max<std::size_t>(columns, 20);
    int const width = static_cast<int>(std::min<std::size_t>(columns / 2, 32));
    std::string line;
    for (int i = 0; i < width; ++i)
        line += i * 100 < percent * width ? "\u2588" : "\u2591";
    std::string const number = std::to_string(percent);
    line += std::string(number.size() < 3 ? 4 - number.size() : 1, ' ') + number + " %  ";

    std::size_t left = columns - static_cast<std::size_t>(width) - 8; // '  50 %  ' has 8
    for (char const c : what) {
        bool const begins =
            (static_cast<unsigned char>(c) & 0xc0) != 0x80; // a character, perhaps of several bytes
        if (begins && left-- == 0)
            break;
        line += c;
    }
    return line;
}

class progress_bar {
public:
    explicit progress_bar(std::size_t steps) : steps_(steps), visible_(isatty(STDERR_FILENO) == 1) {}
    ~progress_bar() { wipe(); }
    progress_bar(progress_bar const&) = delete;
    progress_bar& operator=(progress_bar const&) = delete;

    /// The next step begins.
    void begin(std::string_view what) {
        what_ = what;
        show(0);
    }

    /// What this step does by now.
    void say(std::string_view what) { what_ = what; }

    /// `part` of this step is done, 0 to 1.
    void show(double part) {
        auto const percent =
            static_cast<int>(100 * (static_cast<double>(done_) + part) / static_cast<double>(steps_));
        if (!visible_ || (percent == shown_percent_ && what_ == shown_what_))
            return;
        shown_percent_ = percent;
        shown_what_ = what_;
        std::fprintf(stderr, "\r\033[K%s", progress_line(columns(), percent, what_).c_str());
        std::fflush(stderr);
    }

    /// This step is over.
    void end() { ++done_; }

    /// Takes the line off the terminal, before something else is written there.
    void wipe() {
        if (visible_ && shown_percent_ >= 0)
            std::fputs("\r\033[K", stderr);
        shown_percent_ = -1;
    }

private:
    // Asked anew for each line: people change it.
    static std::size_t columns() {
        winsize size{};
        bool const known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0;
        return known ? size.ws_col : 80;
    }

    std::size_t steps_;
    std::size_t done_ = 0;
    bool visible_;
    std::string what_;
    std::string shown_what_;
    int shown_percent_ = -1;
};

} // namespace replay
