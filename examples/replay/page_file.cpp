// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "page_file.hpp"

#include "trace.hpp"
#include <cctype>
#include <string_view>
#include <system_error>

namespace replay {
namespace {

namespace fs = std::filesystem;

bool ends_like_a_trace(std::string_view name) {
    for (std::string_view const ending : {".csv", ".gz"}) {
        if (name.size() < ending.size())
            continue;
        std::string_view const last = name.substr(name.size() - ending.size());
        bool alike = true;
        for (std::size_t i = 0; i < ending.size(); ++i)
            alike = alike && std::tolower(static_cast<unsigned char>(last[i])) == ending[i];
        if (alike)
            return true;
    }
    return false;
}

bool is_one_of(fs::path const& file, std::vector<std::string> const& traces) {
    for (std::string const& trace : traces) {
        std::error_code not_there; // then it is no file of theirs
        if (fs::equivalent(file, trace, not_there))
            return true;
    }
    return false;
}

} // namespace

page_file::page_file(std::string const& name, std::vector<std::string> const& traces) : place_(name) {
    std::error_code none;
    if (fs::path const target = fs::canonical(place_, none); !none)
        place_ = target; // a link stays one
    bool const is_moved_to = !fs::exists(place_, none) || fs::is_regular_file(place_, none);
    part_ = place_;
    if (is_moved_to)
        part_ += ".part";
    if (ends_like_a_trace(name) || is_one_of(place_, traces) || is_one_of(part_, traces))
        throw bad_input("--html is followed by the page's name, and '" + name +
                        "' looks like a trace; name the page first, as in '--html page.html trace.csv'");
    out_.open(part_);
    if (!out_)
        throw bad_input("cannot write '" + (is_moved_to ? name + ".part" : name) +
                        "'; name another file with --html, or use --no-html");
}

page_file::~page_file() {
    out_.close();
    std::error_code ignored;
    if (!written_ && part_ != place_)
        fs::remove(part_, ignored);
}

bool page_file::write(std::string const& text) {
    out_ << text;
    out_.close();
    if (!out_)
        return false;
    std::error_code failed;
    if (part_ != place_)
        fs::rename(part_, place_, failed);
    written_ = !failed;
    return written_;
}

} // namespace replay
