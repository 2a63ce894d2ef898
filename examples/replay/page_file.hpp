// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where is the page written, and what must it never be written over?
//
// 'replay --html *.csv' names a trace where a page is meant, and a trace may be hours of recording: a name that looks
// like a trace's is refused. The page is written beside its place and then moved there, so that a replay that is
// broken off, or a full disk, leaves the page of before.
//
// not for:   two replays that write the same page at once.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace replay {

class page_file {
public:
    /// Opened before the replay, so that a name that cannot be written costs nobody a replay. Throws bad_input.
    page_file(std::string const& name, std::vector<std::string> const& traces);
    /// A page that was not written leaves nothing behind.
    ~page_file();
    page_file(page_file const&) = delete;
    page_file& operator=(page_file const&) = delete;

    /// Puts the page in its place. False: it could not be written to its end, and what was there before is there still.
    bool write(std::string const& text);

private:
    std::filesystem::path place_;
    std::filesystem::path part_; // the same as the place where that is a device or a pipe, which nothing is moved to
    std::ofstream out_;
    bool written_ = false;
};

} // namespace replay
