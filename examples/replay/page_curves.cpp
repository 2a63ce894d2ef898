// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "page_parts.hpp"

#include "curve.hpp"
#include "text.hpp"
#include <algorithm>
#include <cmath>
#include <weir/base/size.hpp>

namespace replay {
namespace {

// A chart, in the units of its SVG: a column is one unit wide.
constexpr std::size_t columns = 480;
constexpr int left = 66, top = 24, height = 150, marks = 9; // marks: what shows the calls, below the axis

/// 1, 2, 2.5 or 5 times a power of ten, so that at most `wanted` steps reach `end`.
double nice_step(double end, int wanted) {
    double const rough = end / wanted;
    double const power = std::pow(10.0, std::floor(std::log10(rough)));
    for (double const factor : {1.0, 2.0, 2.5, 5.0})
        if (factor * power >= rough)
            return factor * power;
    return 10 * power;
}

/// How many digits after the point the multiples of a step need.
int digits_of(double step) {
    int digits = 0;
    for (; std::abs(step - std::round(step)) > 1e-6 * step; step *= 10)
        ++digits;
    return digits;
}

std::string y_at(std::uint64_t bytes, std::uint64_t most_bytes) {
    return with_digits(top + height * (1 - static_cast<double>(bytes) / static_cast<double>(most_bytes)), 1);
}

/// The steps of a curve, from the left edge to the right one.
std::string steps(std::vector<std::uint64_t> const& curve, std::uint64_t most_bytes) {
    std::string out;
    std::string last;
    for (std::size_t i = 0; i < curve.size(); ++i) {
        std::string const y = y_at(curve[i], most_bytes);
        if (y != last)
            out += (last.empty() ? "" : "H" + std::to_string(left + static_cast<int>(i))) + "V" + y;
        last = y;
    }
    return out + "H" + std::to_string(left + static_cast<int>(columns));
}

std::string area(std::string const& name, std::string const& steps) {
    std::string const bottom = std::to_string(top + height);
    return "<path class=\"" + name + "\" d=\"M" + std::to_string(left) + ' ' + bottom + steps + "V" + bottom +
           "Z\"/>";
}

std::string y_grid(std::uint64_t most_bytes) {
    double const unit =
        most_bytes < 1000 * weir::MiB ? static_cast<double>(weir::MiB) : static_cast<double>(weir::GiB);
    char const* const name = most_bytes < 1000 * weir::MiB ? " MiB" : " GiB";
    double const end = static_cast<double>(most_bytes) / unit;
    double const step = nice_step(end, 4);
    std::string out;
    for (double at = 0; at <= end; at += step) {
        std::string const y = y_at(static_cast<std::uint64_t>(at * unit), most_bytes);
        out += "<line class=\"" + std::string(at > 0 ? "grid" : "base") + "\" x1=\"" + std::to_string(left) +
               "\" x2=\"" + std::to_string(left + static_cast<int>(columns)) + "\" y1=\"" + y + "\" y2=\"" +
               y + "\"/><text x=\"" + std::to_string(left - 8) + "\" y=\"" + y +
               "\" dy=\".35em\" text-anchor=\"end\">" +
               (at > 0 ? with_digits(at, digits_of(step)) + name : "0") + "</text>";
    }
    return out;
}

std::string x_labels(trace const& what, axis along) {
    double const end = static_cast<double>(end_of(what, along)) / (along == axis::time ? 1e6 : 1);
    double const step = std::max(nice_step(end, 6), along == axis::events ? 1.0 : 0.0);
    int const digits = digits_of(step);
    std::string out;
    for (double at = 0; at <= end; at += step) {
        double const x = left + static_cast<double>(columns) * at / end;
        out += "<text x=\"" + with_digits(x, 1) + "\" y=\"" + std::to_string(top + height + marks + 15) +
               "\" text-anchor=\"middle\">" +
               (at <= 0               ? "0"
                : along == axis::time ? with_digits(at, digits) + " s"
                                      : with_commas(static_cast<std::uint64_t>(at))) +
               "</text>";
    }
    return out;
}

struct curves {
    axis along;
    std::vector<std::uint64_t> requested;
    std::vector<std::vector<std::uint64_t>> reserved, calls, waits; // of each result
};

curves curves_of(comparison const& comparison, axis along) {
    trace const& what = *comparison.what;
    curves out{along, highest(what, along, requested_bytes(what), columns), {}, {}, {}};
    for (result const& r : comparison.results) {
        out.reserved.push_back(highest(what, along, r.reserved_bytes, columns));
        out.calls.push_back(sums(what, along, r.calls_at, columns));
        out.waits.push_back(sums(what, along, r.waiting_calls_at, columns));
    }
    return out;
}

/// A mark below the axis for each column in which there were calls; neighbours grow together.
std::string marks_of(char const* kind, std::vector<std::uint64_t> const& counts, int mark_height) {
    std::string out;
    std::string const down = std::to_string(mark_height);
    for (std::size_t i = 0; i < counts.size(); ++i) {
        std::size_t const first = i;
        while (i < counts.size() && counts[i] != 0)
            ++i;
        if (i != first) {
            std::string const wide = std::to_string(i - first);
            out += "M" + std::to_string(left + static_cast<int>(first)) + ' ' + std::to_string(top + height + 1) + "h" + wide +
                   "v" + down + "h-" + wide + "z";
        }
    }
    return out.empty() ? out : "<path class=\"" + std::string(kind) + "\" d=\"" + out + "\"/>";
}

std::string peak(result const& r, std::size_t column, std::uint64_t most_bytes) {
    std::string const x = std::to_string(left + static_cast<int>(column));
    std::string const y = y_at(r.peak.reserved_bytes, most_bytes);
    bool const is_right = column > columns * 3 / 4;
    return "<circle class=\"peak\" r=\"3.5\" cx=\"" + x + "\" cy=\"" + y + "\"/><text class=\"peak-label\" x=\"" + x +
           "\" y=\"" + y + "\" dx=\"" + (is_right ? "-8" : "0") + "\" dy=\"-8\" text-anchor=\"" +
           (is_right ? "end" : "start") + "\">" + in_bytes(r.peak.reserved_bytes) + "</text>";
}

/// The tops of a chart's two scales: that of all charts, and its own.
struct scales {
    std::uint64_t all_bytes, own_bytes;
};

/// The same for both scales; the page shows one of them.
template <class Draw>
std::string for_each_scale(scales tops, Draw const& draw) {
    return "<g class=\"of-all\">" + draw(tops.all_bytes) + "</g><g class=\"of-own\">" + draw(tops.own_bytes) + "</g>";
}

// The curve is drawn to the scale of all charts; style stretches it to its own.
std::string picture(curves const& drawn, std::size_t pool, result const& r, trace const& what, scales tops) {
    std::string const wall = steps(drawn.reserved[pool], tops.all_bytes);
    std::size_t const at = column_of(what, drawn.along, r.peak.at_event, columns);
    std::string const bottom = std::to_string(top + height);
    return "<g class=\"by-" + std::string(drawn.along == axis::time ? "time" : "events") +
           "\"><g class=\"curve\" style=\"transform-origin:0 " + bottom + "px;--own:" +
           with_digits(static_cast<double>(tops.all_bytes) / static_cast<double>(tops.own_bytes), 4) + "\">" +
           area("area-held", wall) + area("area-live", steps(drawn.requested, tops.all_bytes)) +
           "<path class=\"wall\" d=\"M" + std::to_string(left) + ' ' + bottom + wall + "\"/></g>" +
           for_each_scale(tops, [&](std::uint64_t most_bytes) { return peak(r, at, most_bytes); }) +
           marks_of("call", drawn.calls[pool], marks / 2) + marks_of("wait", drawn.waits[pool], marks) +
           x_labels(what, drawn.along) + "</g>";
}

std::string chart(comparison const& comparison, std::size_t pool, std::vector<curves> const& both,
                  std::uint64_t most_bytes) {
    trace const& what = *comparison.what;
    result const& r = comparison.results[pool];
    scales const tops{most_bytes, std::max({r.peak.reserved_bytes, what.peak_requested_bytes, std::uint64_t{1},
                                               what.held ? what.held->peak_bytes : 0})};
    std::string const words = std::string(r.pool->name) + ": held at most " +
                              in_bytes(r.peak.reserved_bytes) + " from the driver; " +
                              in_bytes(what.peak_requested_bytes) + " were requested at the peak; " +
                              count_text(r.driver_calls, "driver call") + ", " +
                              count_text(r.waiting_calls, "call that waits", "calls that wait");
    std::string out = "<div class=\"chart\"><h4><code>" + escaped(r.pool->name) + "</code><span>" +
                      with_digits(overhead(what, r), 3) + " \u00d7 requested</span></h4><svg viewBox=\"0 0 " +
                      std::to_string(left + static_cast<int>(columns) + 12) + ' ' +
                      std::to_string(top + height + marks + 22) + "\" role=\"img\" aria-label=\"" + escaped(words) +
                      "\">" + for_each_scale(tops, y_grid);
    for (curves const& drawn : both)
        out += picture(drawn, pool, r, what, tops);
    if (what.held)
        out += for_each_scale(tops, [&](std::uint64_t top_bytes) {
            std::string const y = y_at(std::min(what.held->peak_bytes, top_bytes), top_bytes);
            return "<line class=\"recorded\" x1=\"" + std::to_string(left) + "\" x2=\"" +
                   std::to_string(left + static_cast<int>(columns)) + "\" y1=\"" + y + "\" y2=\"" + y + "\"><title>" +
                   escaped(what.held->who) + ": " + in_bytes(what.held->peak_bytes) + "</title></line>";
        });
    return out + "<line class=\"cursor\" y1=\"" + std::to_string(top) + "\" y2=\"" +
           std::to_string(top + height) + "\"/></svg></div>\n";
}

std::string numbers(std::vector<std::uint64_t> const& values, std::uint64_t unit) {
    std::string out = "[";
    for (std::uint64_t const value : values)
        out += (out.size() > 1 ? "," : "") + std::to_string(value / unit);
    return out + "]";
}

std::string rows(char const* name, std::vector<std::vector<std::uint64_t>> const& of_pools, std::uint64_t unit) {
    std::string out = ",\"" + std::string(name) + "\":[";
    for (std::vector<std::uint64_t> const& each : of_pools)
        out += (&each == &of_pools.front() ? "" : ",") + numbers(each, unit);
    return out + "]";
}

/// What the script reads values from; bytes in KiB.
std::string data(trace const& what, std::vector<curves> const& both) {
    std::string out = "{\"left\":" + std::to_string(left);
    for (curves const& drawn : both)
        out += std::string(",\"") + (drawn.along == axis::time ? "time" : "events") +
               "\":{\"end\":" + std::to_string(end_of(what, drawn.along)) +
               ",\"requested\":" + numbers(drawn.requested, 1024) + rows("reserved", drawn.reserved, 1024) +
               rows("calls", drawn.calls, 1) + rows("waits", drawn.waits, 1) + "}";
    return out + "}";
}

/// Two buttons of which one is pressed; the second has a class that the page's style looks for.
std::string choice(std::string const& what, std::string const& name, char const* first, char const* second_class,
                   char const* second) {
    std::string const input = "type=\"radio\" name=\"" + name + "\"";
    return "<fieldset class=\"axis-choice\" aria-label=\"" + what + "\"><label><input " + input + " checked>" + first +
           "</label><label><input class=\"" + second_class + "\" " + input + ">" + second + "</label></fieldset>";
}

} // namespace

std::string over_time(comparison const& comparison, std::uint64_t most_bytes, std::string const& number) {
    trace const& what = *comparison.what;
    std::vector<curves> const both{curves_of(comparison, axis::time), curves_of(comparison, axis::events)};
    std::string out =
        "<figure class=\"card over-time\" tabindex=\"0\" aria-label=\"Requested and reserved bytes over "
        "time for each pool; arrow keys move a cursor\" style=\"margin-inline:0\"><header><h3>Requested "
        "and reserved over time</h3><div class=\"choices\">" +
        choice("Vertical axis", "scale-" + number, "one scale for all", "choose-own", "each its own") +
        choice("Horizontal axis", "axis-" + number, "by time", "choose-events", "by event") +
        "</div></header>\n<div class=\"key\"><span><i class=\"live\"></i>requested by the program</span><span><i "
        "class=\"held\"></i>held beyond that</span><span><i class=\"line\"></i>reserved by the pool</span><span><i "
        "class=\"call\"></i>a driver call</span><span><i class=\"wait\"></i>a call that waits</span>" +
        (what.held ? "<span><i class=\"as-recorded\"></i>" + escaped(what.held->who) + ", at most</span>" : "") +
        "</div><div "
        "class=\"charts\">\n";
    for (std::size_t i = 0; i < comparison.results.size(); ++i)
        out += chart(comparison, i, both, most_bytes);
    return out + "</div><script type=\"application/json\">" + data(what, both) + "</script></figure>\n";
}

} // namespace replay
