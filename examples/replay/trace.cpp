// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "trace.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <zlib.h>

namespace replay {
namespace {

constexpr std::string_view header = "op,id,bytes,stream,t_us";
constexpr std::size_t most_streams = 256;
enum column { op, id, bytes, stream, t_us, columns };

std::string quoted(std::string_view text) {
    constexpr std::size_t enough = 40;
    std::string out = "'";
    for (char const c : text.substr(0, enough))
        out += c >= ' ' && c <= '~' ? c : '?';
    return out + (text.size() > enough ? "...'" : "'");
}

/// Reads the lines of one file; knows where it is, so that a complaint can say so.
class reader {
public:
    reader(std::string_view text, std::string const& path) : rest_(text), path_(path) {}

    trace read() {
        if (rest_.empty())
            throw bad_input(path_ + ": the file is empty; give a trace that begins with the line '" +
                            std::string(header) + "'");
        read_facts_and_header();
        while (next_line())
            read_row();
        if (promised_events_ && *promised_events_ != trace_.events.size())
            refuse("the file ends after " + std::to_string(trace_.events.size()) + " of the " +
                   std::to_string(*promised_events_) + " events that its first line promises; copy it again");
        if (trace_.events.empty())
            refuse("the trace has no events; record it again, there is nothing to replay");
        trace_.streams = streams_.size();
        return std::move(trace_);
    }

private:
    struct block_state {
        std::uint32_t block;
        std::uint64_t bytes;
        std::size_t allocated_in_line;
        std::size_t freed_in_line; // 0: live
    };

    [[noreturn]] void refuse(std::string const& sentence) const {
        throw bad_input(path_ + ", line " + std::to_string(line_number_) + ": " + sentence);
    }

    bool next_line() {
        if (rest_.empty())
            return false;
        ++line_number_;
        std::size_t const end = rest_.find('\n');
        if (end == std::string_view::npos)
            refuse(
                "the last line has no end, so the file was probably cut; copy it again, or add the newline");
        line_ = rest_.substr(0, end);
        rest_.remove_prefix(end + 1);
        if (!line_.empty() && line_.back() == '\r')
            line_.remove_suffix(1);
        return true;
    }

    void read_facts_and_header() {
        while (next_line() && !line_.empty() && line_.front() == '#')
            read_facts();
        if (line_ != header)
            refuse("expected the header '" + std::string(header) + "' and found " + quoted(line_) +
                   "; give a trace in weir's format (see examples/data/README.md)");
    }

    void read_facts() {
        constexpr std::string_view key = " events=";
        std::size_t const at = line_.find(key);
        if (at == std::string_view::npos)
            return;
        std::string_view const value = line_.substr(at + key.size());
        promised_events_ = number(value.substr(0, value.find(' ')), "events=");
    }

    std::uint64_t number(std::string_view text, char const* name) const {
        std::uint64_t value = 0;
        auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc::result_out_of_range)
            refuse(std::string(name) + " is " + quoted(text) +
                   ", which does not fit 64 bits; correct the line");
        if (error != std::errc{} || end != text.data() + text.size())
            refuse(std::string(name) + " is " + quoted(text) +
                   "; it must be a whole number, 0 or more, in digits: correct the line");
        return value;
    }

    void read_row() {
        std::array<std::string_view, columns> field;
        std::size_t count = 0;
        for (std::string_view rest = line_;; ++count) {
            std::size_t const comma = rest.find(',');
            if (count < columns)
                field[count] = rest.substr(0, comma);
            if (comma == std::string_view::npos)
                break;
            rest.remove_prefix(comma + 1);
        }
        if (++count != columns)
            refuse("the row " + quoted(line_) + " has " + std::to_string(count) + " of the 5 fields '" +
                   std::string(header) + "'; correct the line, or copy the file again if it was cut");
        if (field[op] != "a" && field[op] != "f")
            refuse("op is " + quoted(field[op]) +
                   "; it must be 'a' (allocate) or 'f' (free): correct the line");

        event row{};
        row.is_free = field[op] == "f";
        row.bytes = number(field[bytes], "bytes");
        row.stream = stream_of(number(field[stream], "stream"));
        std::uint64_t const time = number(field[t_us], "t_us");
        if (!trace_.microseconds.empty() && time < trace_.microseconds.back())
            refuse("t_us goes back from " + std::to_string(trace_.microseconds.back()) + " to " +
                   std::to_string(time) + "; sort the trace by time");
        std::uint64_t const name = number(field[id], "id");
        row.block = row.is_free ? free_block(name, row.bytes) : allocate_block(name, row.bytes);
        trace_.events.push_back(row);
        trace_.microseconds.push_back(time);
    }

    std::uint16_t stream_of(std::uint64_t number) {
        auto const [found, is_first] =
            streams_.try_emplace(number, static_cast<std::uint16_t>(streams_.size()));
        if (is_first && streams_.size() > most_streams)
            refuse("stream " + std::to_string(number) + " is one more than the " +
                   std::to_string(most_streams) +
                   " streams that a replay can have; number the program's streams 0, 1, 2, ...");
        return found->second;
    }

    std::uint32_t allocate_block(std::uint64_t name, std::uint64_t size) {
        if (trace_.blocks == std::numeric_limits<std::uint32_t>::max())
            refuse("a trace can have at most 4294967295 blocks; cut it in two");
        if (size > std::numeric_limits<std::uint64_t>::max() - live_bytes_)
            refuse("allocates " + std::to_string(size) +
                   " bytes, and all live blocks together no longer fit 64 "
                   "bits; correct the line");
        auto const [found, is_first] = blocks_.try_emplace(name);
        block_state& state = found->second;
        if (!is_first && state.freed_in_line == 0)
            refuse("allocates block " + std::to_string(name) + ", which is live since line " +
                   std::to_string(state.allocated_in_line) + "; give it another id, or free it first");
        state = {static_cast<std::uint32_t>(trace_.blocks++), size, line_number_, 0};
        live_bytes_ += size;
        if (live_bytes_ > trace_.peak_requested_bytes)
            trace_.peak_requested_bytes = live_bytes_;
        return state.block;
    }

    std::uint32_t free_block(std::uint64_t name, std::uint64_t size) {
        auto const found = blocks_.find(name);
        if (found == blocks_.end())
            refuse("frees block " + std::to_string(name) +
                   ", which was never allocated; correct the id, or record "
                   "the trace from the program's start");
        block_state& state = found->second;
        if (state.freed_in_line != 0)
            refuse("frees block " + std::to_string(name) + " a second time, after line " +
                   std::to_string(state.freed_in_line) + "; remove one of the two lines");
        if (size != state.bytes)
            refuse("frees block " + std::to_string(name) + " as " + std::to_string(size) +
                   " bytes, but line " + std::to_string(state.allocated_in_line) + " allocated " +
                   std::to_string(state.bytes) + "; make them equal");
        state.freed_in_line = line_number_;
        live_bytes_ -= size;
        return state.block;
    }

    std::string_view rest_;
    std::string_view line_;
    std::size_t line_number_ = 0;
    std::string const& path_;
    trace trace_;
    std::optional<std::uint64_t> promised_events_;
    std::unordered_map<std::uint64_t, block_state> blocks_;
    std::unordered_map<std::uint64_t, std::uint16_t> streams_;
    std::uint64_t live_bytes_ = 0;
};

std::string name_of(std::string const& path) {
    std::string name = path.substr(path.find_last_of('/') + 1);
    for (std::string_view const ending : {".gz", ".csv"})
        if (name.size() > ending.size() &&
            name.compare(name.size() - ending.size(), ending.size(), ending) == 0)
            name.resize(name.size() - ending.size());
    return name;
}

/// The bytes of a file, unpacked if it is packed (zlib looks at the content, not at the name).
std::string text_of(std::string const& path) {
    struct close {
        void operator()(gzFile file) const { gzclose(file); }
    };
    errno = 0;
    std::unique_ptr<gzFile_s, close> const file(gzopen(path.c_str(), "rb"));
    if (!file)
        throw bad_input(path + ": cannot open it (" + std::strerror(errno) +
                        "); give the path of a .csv or .csv.gz trace");
    std::string text;
    std::array<char, 1 << 16> buffer;
    int count = 0;
    while ((count = gzread(file.get(), buffer.data(), buffer.size())) > 0)
        text.append(buffer.data(), static_cast<std::size_t>(count));

    int error = Z_OK;
    char const* const words = gzerror(file.get(), &error);
    if (error == Z_OK)
        return text;
    std::size_t lines = 1;
    for (char const c : text)
        lines += c == '\n';
    std::string const where = path + ", line " + std::to_string(lines) + ": ";
    if (error == Z_BUF_ERROR)
        throw bad_input(where + "the gzip'd file ends too early, so it was cut; copy it again");
    if (error == Z_ERRNO)
        throw bad_input(path + ": cannot read it (" + std::strerror(errno) +
                        "); give the path of a .csv or .csv.gz trace");
    throw bad_input(where + "the gzip'd file is damaged (" + words + "); copy it again");
}

} // namespace

trace parse_trace(std::string_view text, std::string const& path) {
    trace result = reader(text, path).read();
    result.name = name_of(path);
    return result;
}

trace read_trace(std::string const& path) {
    return parse_trace(text_of(path), path);
}

} // namespace replay
