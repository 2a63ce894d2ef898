// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "page_file.hpp"

#include "trace.hpp"
#include <cctype>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace replay {
namespace {

namespace fs = std::filesystem;

bool ends_like_a_trace(std::string_view name) {
    for (std::string_view const ending : {".csv", ".gz", ".weir", ".json", ".pickle", ".heaptrack"}) {
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

// A file of a name that nothing had, beside `place`; null: there is none.
std::FILE* make_beside(fs::path const& place, fs::path& made) {
    for (int tries = 0; tries < 100; ++tries) {
        made = place;
        made += "." + std::to_string(::getpid()) + "." + std::to_string(tries);
        if (std::FILE* const file = std::fopen(made.c_str(), "wx"))
            return file;
    }
    return nullptr;
}

bool write_to(std::FILE* file, std::string const& text) {
    if (!file)
        return false;
    bool const written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return std::fclose(file) == 0 && written;
}

} // namespace

page_file::page_file(std::string const& name, std::vector<std::string> const& traces, bool is_page) : place_(name) {
    std::error_code none;
    if (fs::path const target = fs::canonical(place_, none); !none)
        place_ = target; // a link to a page stays one
    is_moved_to_ = !fs::exists(place_, none) || fs::is_regular_file(place_, none);
    if (!is_page && is_one_of(place_, traces))
        throw bad_input("--write is followed by the name of a file to be written, and '" + name +
                        "' is the trace; give the file another name");
    if (is_page && (ends_like_a_trace(name) || is_one_of(place_, traces)))
        throw bad_input("--html is followed by the page's name, and '" + name +
                        "' looks like a trace; name the page first, as in '--html page.html trace.csv'");
    fs::path const folder = place_.has_parent_path() ? place_.parent_path() : ".";
    if (fs::is_directory(place_, none) || ::access((is_moved_to_ ? folder : place_).c_str(), W_OK) != 0)
        throw bad_input("cannot write '" + name +
                        (is_page ? "'; name another file with --html, or use --no-html" : "'; name another file with --write"));
}

bool page_file::write(std::string const& text) const {
    if (!is_moved_to_)
        return write_to(std::fopen(place_.c_str(), "w"), text);
    fs::path part;
    std::FILE* const file = make_beside(place_, part);
    std::error_code failed;
    if (write_to(file, text))
        fs::rename(part, place_, failed);
    else
        failed = std::make_error_code(std::errc::io_error);
    std::error_code ignored;
    if (file && failed)
        fs::remove(part, ignored);
    return !failed;
}

} // namespace replay
