// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "program.hpp"
#include "text.hpp"
#include "trace.hpp"
#include <algorithm>
#include <charconv>
#include <cctype>
#include <unordered_map>
#include <vector>

// Logs of RMM and lifetimes: tables whose first line names the columns.

namespace replay {
namespace {

using weir::trace::event_kind;

/// The lines of a table.
class table {
public:
    table(std::string_view text, std::string const& path) : rest_(text), path_(path) {}

    [[noreturn]] void refuse(std::string const& sentence) const {
        throw bad_input(path_ + ", line " + std::to_string(line_) + ": " + sentence);
    }
    bool next(std::vector<std::string_view>& fields) {
        std::string_view line;
        do {
            if (rest_.empty())
                return false;
            std::size_t const end = rest_.find('\n');
            line = rest_.substr(0, end);
            is_whole_ = end != std::string_view::npos;
            rest_.remove_prefix(is_whole_ ? end + 1 : rest_.size());
            ++line_;
            while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())))
                line.remove_suffix(1);
        } while (line.empty());
        fields.clear();
        for (;;) {
            std::size_t const comma = line.find(',');
            std::string_view field = line.substr(0, comma);
            while (!field.empty() && field.front() == ' ')
                field.remove_prefix(1);
            fields.push_back(field);
            if (comma == std::string_view::npos)
                return true;
            line.remove_prefix(comma + 1);
        }
    }
    /// Whether the line that was read last had an end.
    bool is_whole() const { return is_whole_; }

    std::uint64_t number(std::string_view text, char const* name, int base = 10) const {
        if (text.substr(0, 2) == "0x") {
            text.remove_prefix(2);
            base = 16;
        }
        std::uint64_t out = 0;
        auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
        if (error != std::errc{} || end != text.data() + text.size())
            refuse(std::string(name) + " is '" + std::string(text.substr(0, 40)) +
                   "', which is no whole number; correct the line, or copy the file again if it was cut");
        return out;
    }

private:
    std::string_view rest_;
    std::string const& path_;
    std::size_t line_ = 0;
    bool is_whole_ = true;
};

std::vector<std::string> columns_of(std::string_view text) {
    std::string const none;
    table first(text, none);
    std::vector<std::string_view> fields;
    first.next(fields);
    std::vector<std::string> out;
    for (std::string_view const each : fields) {
        std::string& name = out.emplace_back(each);
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    }
    return out;
}

constexpr std::size_t no_column = static_cast<std::size_t>(-1);

std::size_t column(std::vector<std::string> const& names, std::initializer_list<char const*> spellings) {
    for (char const* const each : spellings)
        for (std::size_t i = 0; i < names.size(); ++i)
            if (names[i] == each)
                return i;
    return no_column;
}

/// 'hh:mm:ss.ffffff', or with a colon before the fraction, as microseconds; a plain number as seconds.
std::uint64_t microseconds_of(table const& at, std::string_view text) {
    std::uint64_t parts[4] = {0, 0, 0, 0};
    std::size_t count = 0;
    std::string_view fraction;
    for (std::string_view rest = text; count < 4; ++count) {
        std::size_t const end = rest.find_first_of(":.");
        std::string_view const part = rest.substr(0, end);
        parts[count] = at.number(part, "Time");
        if (count == 3)
            fraction = part;
        if (end == std::string_view::npos) {
            ++count;
            break;
        }
        rest.remove_prefix(end + 1);
    }
    if (count < 3 || parts[0] > 1000000 || parts[1] > 59 || parts[2] > 60)
        at.refuse("Time is '" + std::string(text.substr(0, 40)) + "', which is no time of the day; correct the line");
    for (std::size_t i = fraction.size(); i < 6; ++i)
        parts[3] *= 10;
    for (std::size_t i = fraction.size(); i > 6; --i)
        parts[3] /= 10;
    return ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1000000 + parts[3];
}

} // namespace

bool looks_like_rmm_log(std::string_view text) {
    std::vector<std::string> const names = columns_of(text);
    return column(names, {"action"}) != no_column && column(names, {"pointer"}) != no_column;
}

program read_rmm_log(std::string_view text, std::string const& path) {
    constexpr std::uint64_t day_us = std::uint64_t{24} * 3600 * 1000000;
    std::vector<std::string> const names = columns_of(text);
    std::size_t const thread = column(names, {"thread"}), time = column(names, {"time"}), action = column(names, {"action"}),
                      pointer = column(names, {"pointer"}), size = column(names, {"size"}), stream = column(names, {"stream"});
    table rows(text, path);
    std::vector<std::string_view> fields;
    rows.next(fields);
    for (std::size_t const each : {thread, time, action, pointer, size, stream})
        if (each == no_column)
            rows.refuse("expected the columns 'Thread,Time,Action,Pointer,Size,Stream' of RMM's log; give its file as it is");
    program_maker maker;
    std::uint64_t begin = 0, before = 0, days = 0, unknown = 0;
    bool has_begun = false;
    std::string remark;
    while (rows.next(fields)) {
        if (fields.size() < names.size()) {
            if (rows.is_whole())
                rows.refuse("the row has " + count_text(fields.size(), "field") + ", and the first line names " +
                            std::to_string(names.size()) + "; correct the line");
            remark = "the last line was cut off, and is left out";
            break;
        }
        std::uint64_t const us = microseconds_of(rows, fields[time]);
        if (us + day_us / 2 < before)
            ++days; // midnight
        before = us;
        if (!has_begun)
            begin = us;
        has_begun = true;
        weir::trace::event one;
        one.kind = fields[action] == "allocate"           ? event_kind::allocate
                   : fields[action] == "free"             ? event_kind::free
                   : fields[action] == "allocate failure" ? event_kind::refuse
                                                          : event_kind::none;
        if (one.kind == event_kind::none) {
            ++unknown;
            continue;
        }
        std::uint64_t const now = us + days * day_us;
        one.ticks = now > begin ? (now - begin) * 1000 : 0;
        one.address = fields[pointer] == "(nil)" || fields[pointer] == "nullptr" ? 0 : rows.number(fields[pointer], "Pointer", 16);
        one.bytes = rows.number(fields[size], "Size");
        one.stream = maker.stream(rows.number(fields[stream], "Stream"));
        one.thread = maker.thread(rows.number(fields[thread], "Thread"));
        one.source = maker.source("RMM", 0);
        if (one.kind == event_kind::allocate && one.address == 0)
            continue; // of zero bytes
        maker.add(one);
    }
    program made = maker.made();
    made.what.unknown = unknown;
    made.remark = remark;
    return made;
}

bool looks_like_lifetimes(std::string_view text) {
    std::vector<std::string> const names = columns_of(text);
    return column(names, {"lower", "begin", "start"}) != no_column && column(names, {"upper", "end"}) != no_column &&
           column(names, {"size"}) != no_column;
}

program read_lifetimes(std::string_view text, std::string const& path) {
    std::vector<std::string> const names = columns_of(text);
    std::size_t const lower = column(names, {"lower", "begin", "start"}), upper = column(names, {"upper", "end"}),
                      size = column(names, {"size"});
    table rows(text, path);
    std::vector<std::string_view> fields;
    rows.next(fields);
    struct end_of_life {
        std::uint64_t at;
        bool is_free;
        std::uint64_t block, bytes;
    };
    std::vector<end_of_life> all;
    std::uint64_t blocks = 0, sum = 0;
    while (rows.next(fields)) {
        if (fields.size() < names.size())
            rows.refuse("the row has " + count_text(fields.size(), "field") + ", and the first line names " +
                        std::to_string(names.size()) + "; correct the line, or copy the file again if it was cut");
        std::uint64_t const begin = rows.number(fields[lower], "lower"), end = rows.number(fields[upper], "upper"),
                            bytes = rows.number(fields[size], "size");
        if (end < begin)
            rows.refuse("the life ends at " + std::to_string(end) + ", before it begins at " + std::to_string(begin) +
                        "; correct the line");
        if (end > UINT64_MAX / 2000 || bytes > UINT64_MAX / 2 - sum)
            rows.refuse("the numbers are too large: all together no longer fit 64 bits; correct the line");
        sum += bytes;
        if (begin == end)
            continue; // it takes no room at any moment
        all.push_back({begin, false, ++blocks, bytes});
        all.push_back({end, true, blocks, bytes});
    }
    // What ends at a moment makes room for what begins then.
    std::stable_sort(all.begin(), all.end(), [](end_of_life const& a, end_of_life const& b) {
        return a.at != b.at ? a.at < b.at : a.is_free && !b.is_free;
    });
    program_maker maker;
    for (end_of_life const& each : all) {
        weir::trace::event one;
        one.kind = each.is_free ? event_kind::free : event_kind::allocate;
        one.ticks = each.at * 1000;
        one.address = each.block;
        one.bytes = each.bytes;
        one.stream = maker.stream(0);
        one.thread = maker.thread(0);
        one.source = maker.source("lifetimes", 0);
        maker.add(one);
    }
    program made = maker.made();
    made.has_addresses = false;
    return made;
}

} // namespace replay
