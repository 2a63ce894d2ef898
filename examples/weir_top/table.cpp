// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <weir/base/memory_report.hpp>
#include <weir/base/text.hpp>

namespace weir_top {
namespace {

using weir::base::stream_usage;
using weir::trace::pool_figures;

std::string bytes_text(std::uint64_t bytes) {
    return bytes == pool_figures::unknown ? "-" : std::string(weir::base::bytes_text(bytes));
}

std::string count_text(std::uint64_t count) {
    return count == pool_figures::unknown ? "-" : short_number(static_cast<double>(count));
}

std::string rate_text(double rate) {
    return rate < 0 ? "-" : short_number(rate);
}

std::string rate_bytes_text(double rate) {
    constexpr double most = 1e19; // of a size_t
    return rate < 0 ? "-" : std::string(weir::base::bytes_text(static_cast<std::size_t>(std::min(rate, most))));
}

std::string stream_text(std::uint64_t stream) {
    constexpr std::uint64_t kinds = 7, legacy = 1; // the low bits of what is no handle
    if (stream == stream_usage::host)
        return "  the host";
    if (stream == stream_usage::ended)
        return "  streams that ended";
    if (stream == pool_figures::other_streams)
        return "  other streams";
    if ((stream & kinds) == legacy)
        return "  the default stream";
    if ((stream & kinds) != 0)
        return "  a thread's default stream";
    return "  stream " + std::string(weir::base::address_text(reinterpret_cast<void const*>(stream)));
}

// What a count grew by, a second.
double grown(std::uint64_t before, std::uint64_t now, double seconds) {
    if (before == pool_figures::unknown || now == pool_figures::unknown || seconds <= 0 || now < before)
        return -1;
    return static_cast<double>(now - before) / seconds;
}

// So many characters wide; below zero: it begins on the left, and is cut off on the right.
std::string fitted(std::string const& text, int width) {
    auto const most = static_cast<std::size_t>(std::abs(width));
    std::size_t size = 0, characters = 0;
    for (; size < text.size() && (width > 0 || characters < most); ++characters)
        size += std::max<std::size_t>(shown_bytes(text, size), 1);
    std::string const blanks(most - std::min(most, characters), ' ');
    return width > 0 ? blanks + text : text.substr(0, size) + blanks;
}

std::string row(std::vector<std::string> const& cells) {
    constexpr int widths[] = {-30, 11, 11, 11, 11, 11, 8, 9, 9, 11, 8};
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        bool const is_cell = i < sizeof widths / sizeof *widths;
        line += (i == 0 ? "" : " ") + (is_cell ? fitted(cells[i], widths[i]) : cells[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

} // namespace

std::string sparkline(std::deque<double> const& values, std::size_t width) {
    static char const* const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    std::size_t const first = values.size() > width ? values.size() - width : 0;
    double most = 0;
    for (std::size_t i = first; i < values.size(); ++i)
        most = std::max(most, values[i]);
    std::string line;
    for (std::size_t i = first; i < values.size(); ++i)
        line += bars[most > 0 ? static_cast<std::size_t>(values[i] / most * 7 + 0.5) : 0];
    return line;
}

std::string short_number(double value) {
    static char const* const units[] = {"", "k", "M", "G", "T", "P", "E"};
    std::size_t unit = 0;
    for (; value >= 1000 && unit < 6; value /= 1000)
        ++unit;
    char said[32];
    bool const is_whole = value == std::floor(value);
    int const digits = is_whole || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    std::snprintf(said, sizeof said, "%.*f%s", digits, value, units[unit]);
    return said;
}

void table::add(std::vector<pool_sample> const& pools) {
    std::map<std::pair<std::size_t, std::uint32_t>, seen_pool> left;
    for (pool_sample const& now : pools) { // pools that are gone are forgotten
        auto const key = std::pair(now.place, now.life);
        seen_pool seen = std::move(pools_[key]);
        if (now.answers != 0 && now.answers != seen.now.answers && !now.torn) {
            double const seconds =
                seen.now.answers == 0 ? 0 : static_cast<double>(now.figures.time_ns - seen.now.figures.time_ns) / 1e9;
            seen.rate = {grown(seen.now.figures.taken_blocks, now.figures.taken_blocks, seconds),
                         grown(seen.now.figures.given_blocks, now.figures.given_blocks, seconds),
                         grown(seen.now.figures.taken_bytes, now.figures.taken_bytes, seconds)};
            seen.of_stream.clear();
            for (stream_usage const& each : now.streams)
                for (stream_usage const& before : seen.now.streams)
                    if (before.stream == each.stream)
                        seen.of_stream[each.stream] = {grown(before.taken_blocks, each.taken_blocks, seconds),
                                                       grown(before.given_blocks, each.given_blocks, seconds),
                                                       grown(before.taken_bytes, each.taken_bytes, seconds)};
            seen.peak_in_use_bytes = std::max(seen.peak_in_use_bytes, now.figures.in_use_bytes);
            seen.in_use.push_back(static_cast<double>(now.figures.in_use_bytes));
            if (seen.in_use.size() > most_history)
                seen.in_use.pop_front();
            seen.now = now;
        }
        seen.now.torn = now.torn;
        left.emplace(key, std::move(seen));
    }
    pools_ = std::move(left);
}

std::vector<std::string> table::lines(std::size_t history_width) const {
    std::vector<std::string> all{row({"pool, and its streams", "in use", "peak", "reserved", "peak", "free", "blocks", "allocs/s",
                                      "frees/s", "bytes/s", "waits", "history (in use)"})};
    for (auto const& [place, seen] : pools_) {
        pool_figures const& now = seen.now.figures;
        std::string name = printable(now.name);
        if (now.device != pool_figures::unknown && static_cast<std::int64_t>(now.device) >= 0)
            name += " (device " + std::to_string(now.device) + ")";
        if (seen.now.torn)
            all.push_back("the figures of the pool in place " + std::to_string(place.first) +
                          " are half written: what follows of it, if anything, is older");
        if (seen.now.answers == 0) {
            if (!seen.now.torn)
                all.push_back("a pool has said nothing yet: it does so in its next allocation, or in the board's 'poll'");
            continue;
        }
        bool const has_free = now.reserved_bytes != pool_figures::unknown && now.reserved_bytes >= now.in_use_bytes;
        std::uint64_t const peak = now.peak_requested_bytes == pool_figures::unknown
                                       ? seen.peak_in_use_bytes
                                       : std::max(seen.peak_in_use_bytes, now.peak_requested_bytes);
        all.push_back(row({name, bytes_text(now.in_use_bytes), bytes_text(peak), bytes_text(now.reserved_bytes),
                           bytes_text(now.peak_reserved_bytes),
                           has_free ? bytes_text(now.reserved_bytes - now.in_use_bytes) : "-",
                           count_text(now.live_blocks), rate_text(seen.rate.taken), rate_text(seen.rate.given),
                           rate_bytes_text(seen.rate.bytes), count_text(now.waits), sparkline(seen.in_use, history_width)}));
        for (stream_usage const& each : seen.now.streams) {
            auto const found = seen.of_stream.find(each.stream);
            rates const rate = found == seen.of_stream.end() ? rates{} : found->second;
            all.push_back(row({stream_text(each.stream), "", "", "", "", bytes_text(each.free_bytes), "", rate_text(rate.taken),
                               rate_text(rate.given), rate_bytes_text(rate.bytes)}));
        }
    }
    return all;
}

} // namespace weir_top
