// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where is the page written, and what must it never be written over?
//
// 'replay --html *.csv' names a trace where a page is meant, and a trace may be hours of recording: a name that looks
// like a trace's is refused. The page is written beside its place, under a name that nothing has, and then moved there, so
// that a full disk leaves the page of before; a replay that is broken off has written nothing.

#include <filesystem>
#include <string>
#include <vector>

namespace replay {

class page_file {
public:
    /// Made before the replay, so that a name that cannot be written costs nobody a replay. `is_page`: or what --write names,
    /// which may look like a trace, but is none of `traces`. Throws bad_input.
    page_file(std::string const& name, std::vector<std::string> const& traces, bool is_page = true);

    /// Puts the page in its place. False: it could not be written to its end, and what was there before is there still.
    bool write(std::string const& text) const;

private:
    std::filesystem::path place_;
    bool is_moved_to_; // not a device or a pipe
};

} // namespace replay
