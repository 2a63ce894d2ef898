// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "trace.hpp"

#include "json.hpp"
#include "pickle.hpp"
#include "recorded_trace.hpp"
#include "text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <zlib.h>

namespace replay {
namespace {

constexpr std::string_view header = "op,id,bytes,stream,t_us";
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf"; // U+FEFF
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
        if (rest_.substr(0, byte_order_mark.size()) == byte_order_mark)
            rest_.remove_prefix(byte_order_mark.size()); // which some editors and spreadsheets write
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
        std::uint8_t stream;
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
        constexpr std::string_view key = "events=", between = "# \t,;";
        for (std::size_t at = line_.find(key); at != std::string_view::npos; at = line_.find(key, at + 1)) {
            if (between.find(line_[at - 1]) == std::string_view::npos)
                continue; // the end of another key
            std::string_view const value = line_.substr(at + key.size());
            promised_events_ = number(value.substr(0, value.find_first_of(between)), "events=");
        }
        constexpr std::string_view held = "torch_peak_reserved=";
        if (std::size_t const at = line_.find(held); at != std::string_view::npos) {
            std::string_view const value = line_.substr(at + held.size());
            trace_.held = held_then{"PyTorch, as recorded", number(value.substr(0, value.find_first_of(between)), "torch_peak_reserved=")};
        }
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
            refuse("the row " + quoted(line_) + " has " + count_text(count, "field") + " and not the 5 of '" + std::string(header) +
                   "'; correct the line, or copy the file again if it was cut");
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
        block_state const& of =
            row.is_free ? free_block(name, row.bytes) : allocate_block(name, row.bytes, row.stream);
        row.block = of.block;
        row.allocated_on = of.stream;
        trace_.events.push_back(row);
        trace_.microseconds.push_back(time);
    }

    std::uint8_t stream_of(std::uint64_t number) {
        auto const [found, is_first] =
            streams_.try_emplace(number, static_cast<std::uint8_t>(streams_.size()));
        if (is_first && streams_.size() > most_streams)
            refuse("stream " + std::to_string(number) + " is one more than the " +
                   std::to_string(most_streams) +
                   " streams that a replay can have; number the program's streams 0, 1, 2, ...");
        return found->second;
    }

    block_state const& allocate_block(std::uint64_t name, std::uint64_t size, std::uint8_t on) {
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
        state = {static_cast<std::uint32_t>(trace_.blocks++), size, on, line_number_, 0};
        live_bytes_ += size;
        if (live_bytes_ > trace_.peak_requested_bytes)
            trace_.peak_requested_bytes = live_bytes_;
        return state;
    }

    block_state const& free_block(std::uint64_t name, std::uint64_t size) {
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
        return state;
    }

    std::string_view rest_;
    std::string_view line_;
    std::size_t line_number_ = 0;
    std::string const& path_;
    trace trace_;
    std::optional<std::uint64_t> promised_events_;
    std::unordered_map<std::uint64_t, block_state> blocks_;
    std::unordered_map<std::uint64_t, std::uint8_t> streams_;
    std::uint64_t live_bytes_ = 0;
};

std::string name_of(std::string const& path) {
    std::string name = path.substr(path.find_last_of('/') + 1);
    for (std::string_view const ending : {".gz", ".csv", ".weir", ".pickle", ".json", ".log"})
        if (name.size() > ending.size() &&
            name.compare(name.size() - ending.size(), ending.size(), ending) == 0)
            name.resize(name.size() - ending.size());
    return name;
}

/// The bytes of a file as they are.
std::string bytes_of(std::string const& path) {
    struct close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    if (path.empty())
        throw bad_input("a trace has an empty name; give the path of a recording, or of a .csv or .csv.gz trace");
    errno = 0;
    std::unique_ptr<std::FILE, close> const file(std::fopen(path.c_str(), "rb"));
    if (!file)
        throw bad_input(path + ": cannot open it (" + std::strerror(errno) +
                        "); give the path of a recording, or of a .csv or .csv.gz trace");
    std::string bytes;
    std::array<char, 1 << 16> buffer;
    while (std::size_t const count = std::fread(buffer.data(), 1, buffer.size(), file.get()))
        bytes.append(buffer.data(), count);
    if (std::ferror(file.get()))
        throw bad_input(path + ": cannot read it (" + std::strerror(errno) +
                        "); give the path of a recording, or of a .csv or .csv.gz trace");
    return bytes;
}

/// The text of a file, unpacked if it is packed, which its first bytes say and not its name. Several packed parts one
/// behind the other are one text; gzread would pass over anything else that stands behind the last.
std::string text_of(std::string const& path) {
    constexpr std::string_view magic = "\x1f\x8b";
    constexpr int gzip = 16; // the frame that zlib is to expect
    struct end {
        void operator()(z_stream* stream) const { inflateEnd(stream); }
    };
    std::string bytes = bytes_of(path);
    std::string_view rest = bytes;
    if (rest.substr(0, magic.size()) != magic)
        return bytes;

    z_stream stream{};
    if (inflateInit2(&stream, MAX_WBITS + gzip) != Z_OK)
        throw std::bad_alloc();
    std::unique_ptr<z_stream, end> const ended(&stream);
    std::string text;
    std::array<char, 1 << 16> buffer;
    auto const refuse = [&](std::string const& sentence) {
        auto const lines = std::count(text.begin(), text.end(), '\n') + 1;
        throw bad_input(path + ", line " + std::to_string(lines) + ": " + sentence + "; copy it again");
    };
    while (!rest.empty()) {
        if (rest.substr(0, magic.size()) != magic)
            refuse("behind the end of the gzip'd trace are " + std::to_string(rest.size()) +
                   " bytes that are no part of it");
        inflateReset(&stream);
        int state = Z_OK;
        while (state == Z_OK) {
            std::size_t const fed = std::min(rest.size(), buffer.size());
            stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
            stream.avail_in = static_cast<uInt>(fed);
            stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
            stream.avail_out = static_cast<uInt>(buffer.size());
            state = inflate(&stream, Z_NO_FLUSH);
            rest.remove_prefix(fed - stream.avail_in);
            text.append(buffer.data(), buffer.size() - stream.avail_out);
        }
        if (state == Z_BUF_ERROR) // nothing is left to go on with
            refuse("the gzip'd file ends too early, so it was cut");
        if (state == Z_MEM_ERROR)
            throw std::bad_alloc();
        if (state != Z_STREAM_END)
            refuse(std::string("the gzip'd file is damaged (") +
                   (stream.msg ? stream.msg : "no reason given") + ")");
    }
    return text;
}

} // namespace

trace parse_trace(std::string_view text, std::string const& path) {
    std::optional<program> recorded;
    if (weir::trace::is_recording(text.data(), text.size()))
        recorded = read_weirs(text, path);
    else if (looks_like_pickle(text))
        recorded = read_snapshot(text, path);
    else if (std::string const what = looks_like(text); !what.empty())
        throw bad_input(path + ": the file " + what);
    else if (looks_like_json(text))
        recorded = read_snapshot(text, path);
    else if (looks_like_rmm_log(text))
        recorded = read_rmm_log(text, path);
    else if (looks_like_lifetimes(text))
        recorded = read_lifetimes(text, path);
    trace result = recorded ? trace_of(*recorded, path) : reader(text, path).read();
    if (recorded)
        result.of = std::make_shared<program const>(std::move(*recorded));
    result.name = name_of(path);
    return result;
}

trace read_trace(std::string const& path) {
    return parse_trace(text_of(path), path);
}

} // namespace replay
