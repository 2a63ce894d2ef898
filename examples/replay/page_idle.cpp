// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "page_parts.hpp"

#include "text.hpp"
#include <algorithm>
#include <array>

// Why memory was free, over time: the causes stand one on the other.

namespace replay {
namespace {

constexpr double high = 100;

/// Between what the causes below `at` take, and what they take with it.
std::string layer_of(idle_report const& report, std::size_t at, std::uint64_t most) {
    std::string up, down;
    for (std::size_t i = 0; i < report.over_time.size(); ++i) {
        auto const y = [&](std::size_t causes_below) {
            std::uint64_t sum = 0;
            for (std::size_t c = 0; c < causes_below; ++c)
                sum += report.over_time[i].of[c];
            return with_digits(high * (1 - static_cast<double>(sum) / static_cast<double>(most)), 1);
        };
        std::string const from = std::to_string(i), to = std::to_string(i + 1);
        up += "L" + from + ' ' + y(at + 1) + "L" + to + ' ' + y(at + 1);
        down = "L" + to + ' ' + y(at) + "L" + from + ' ' + y(at) + down;
    }
    up.front() = 'M';
    return "<path class=\"idle-" + std::to_string(at) + "\" d=\"" + up + down + "Z\"/>";
}

std::string chart(idle_report const& report, std::uint64_t most) {
    std::string out = "<div class=\"chart\"><h4><code>" + escaped(report.who) + "</code><span>the scale ends at " + in_bytes(most) +
                      "</span></h4><svg viewBox=\"0 0 " + std::to_string(report.over_time.size()) +
                      " 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Free bytes over time, by cause; the table says how many\">";
    for (std::size_t i = 0; i < causes; ++i)
        out += layer_of(report, i, most);
    return out + "</svg></div>\n";
}

std::string rows(std::vector<idle_report const*> const& reports) {
    std::string out;
    for (std::size_t i = 0; i < causes; ++i) {
        out += "<tr class=\"idle-" + std::to_string(i) + "\"><th scope=\"row\"><i></i>" + escaped(name_of(static_cast<cause>(i))) +
               "<span class=\"what\">" + escaped(meaning_of(static_cast<cause>(i))) + "</span></th>";
        for (idle_report const* const each : reports) {
            std::string const who = escaped(each->who);
            out += "<td data-name=\"" + who + ", at its peak\">" + in_bytes(each->at_peak.of[i]) + "</td><td data-name=\"" + who +
                   ", on average\">" + in_bytes(static_cast<std::uint64_t>(each->average[i])) + "</td>";
        }
        out += "</tr>\n";
    }
    return out;
}

} // namespace

std::string idle_memory(comparison const& comparison) {
    std::vector<idle_report const*> reports;
    for (idle_report const& each : comparison.idle)
        if (!each.over_time.empty())
            reports.push_back(&each);
    if (reports.empty())
        return "";
    std::uint64_t most = 1;
    for (idle_report const* const each : reports)
        for (idle_bytes const& now : each->over_time)
            most = std::max(most, now.all());
    std::string out = "<section class=\"card idle scroll\"><h3>Free, but of no use, by cause</h3><p class=\"soft\">Bytes that a pool held "
                      "and nobody had, in pages of 2 MiB; each byte counts for the first cause that fits. All charts have one scale.</p>"
                      "<div class=\"charts\">";
    for (idle_report const* const each : reports)
        out += chart(*each, most);
    out += "</div><table><thead><tr><th scope=\"col\">cause</th>";
    for (idle_report const* const each : reports)
        out += "<th scope=\"col\">" + escaped(each->who) + ", at its peak</th><th scope=\"col\">on average</th>";
    return out + "</tr></thead><tbody>\n" + rows(reports) + "</tbody></table></section>\n";
}

} // namespace replay
