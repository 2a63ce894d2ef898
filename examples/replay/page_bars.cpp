// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "page_parts.hpp"

#include "text.hpp"
#include <algorithm>

namespace replay {
namespace {

std::string percent(std::uint64_t part, double whole) {
    return with_digits(100 * static_cast<double>(part) / whole, 3) + "%";
}

std::string segment(char const* kind, std::uint64_t bytes, double whole) {
    if (bytes == 0)
        return "";
    bool const has_room = static_cast<double>(bytes) > 0.085 * whole;
    return "<span class=\"" + std::string(kind) + "\" style=\"width:" + percent(bytes, whole) +
           "\" title=\"" + in_bytes(bytes) + "\">" + (has_room ? in_bytes(bytes) : "") + "</span>";
}

} // namespace

std::string at_the_peak(comparison const& comparison, std::uint64_t most_bytes) {
    trace const& what = *comparison.what;
    double const whole = 1.25 * static_cast<double>(most_bytes); // room for the totals
    std::string out =
        "<figure class=\"card\" style=\"margin-inline:0\"><header><h3>Where the bytes went at the "
        "peak</h3><div class=\"key\"><span><i class=\"live\"></i>live, as requested</span><span><i "
        "class=\"rounding\"></i>rounding inside blocks</span><span><i class=\"held\"></i>free but "
        "held</span></div></header>\n<div class=\"bars\"><div class=\"mark-space\" "
        "style=\"grid-row:1/span " +
        std::to_string(comparison.results.size()) +
        "\" aria-hidden=\"true\"><div class=\"mark\" style=\"left:" +
        percent(what.peak_requested_bytes, whole) + "\"><span>" + in_bytes(what.peak_requested_bytes) +
        " requested at the peak</span></div></div>\n";
    int line = 1;
    for (result const& r : comparison.results) {
        breakdown const& at = r.peak;
        std::uint64_t const rounded = std::max(at.handed_out_bytes, at.live_bytes);
        std::uint64_t const free = at.reserved_bytes > rounded ? at.reserved_bytes - rounded : 0;
        std::string const words = std::string(r.pool->name) + ": " + in_bytes(at.live_bytes) + " live, " +
                                  in_bytes(rounded - at.live_bytes) + " lost to rounding, " + in_bytes(free) +
                                  " free but held, " + in_bytes(at.reserved_bytes) + " together";
        std::string const row = std::to_string(line++);
        out += "<code class=\"name\" style=\"grid-row:" + row + "\">" + escaped(r.pool->name) +
               "</code><div class=\"bar\" style=\"grid-row:" + row + "\" role=\"img\" aria-label=\"" +
               escaped(words) + "\">" + segment("live", at.live_bytes, whole) +
               segment("rounding", rounded - at.live_bytes, whole) + segment("held", free, whole) + "<b>" +
               in_bytes(at.reserved_bytes) + "</b></div>\n";
    }
    return out + "</div><figcaption><p>Each bar shows the moment at which the pool first held its most; the "
                 "program may "
                 "have had less than its own peak live then.</p></figcaption></figure>\n";
}

} // namespace replay
