// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How far is it?
//
// A line on stderr that is drawn over and over, and wiped at the end; nothing where stderr is no terminal, so
// that logs stay clean.

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <unistd.h>

namespace replay {

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

    /// `part` of this step is done, 0 to 1.
    void show(double part) {
        auto const percent =
            static_cast<int>(100 * (static_cast<double>(done_) + part) / static_cast<double>(steps_));
        if (!visible_ || (percent == shown_percent_ && what_ == shown_what_))
            return;
        shown_percent_ = percent;
        shown_what_ = what_;
        constexpr int width = 32;
        std::string bar;
        for (int i = 0; i < width; ++i)
            bar += i * 100 < percent * width ? "\u2588" : "\u2591";
        std::fprintf(stderr, "\r\033[K%s %3d %%  %s", bar.c_str(), percent, what_.c_str());
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
    std::size_t steps_;
    std::size_t done_ = 0;
    bool visible_;
    std::string what_;
    std::string shown_what_;
    int shown_percent_ = -1;
};

} // namespace replay
