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
constexpr int left = 66, top = 24, height = 150;

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
        out += "<text x=\"" + with_digits(x, 1) + "\" y=\"" + std::to_string(top + height + 17) +
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
    std::vector<std::vector<std::uint64_t>> reserved; // of each result
};

curves curves_of(comparison const& comparison, axis along) {
    trace const& what = *comparison.what;
    curves out{along, highest(what, along, requested_bytes(what), columns), {}};
    for (result const& r : comparison.results)
        out.reserved.push_back(highest(what, along, r.reserved_bytes, columns));
    return out;
}

std::string picture(curves const& drawn, std::size_t pool, result const& r, trace const& what,
                    std::uint64_t most_bytes) {
    std::string const wall = steps(drawn.reserved[pool], most_bytes);
    std::size_t const at = column_of(what, drawn.along, r.peak.at_event, columns);
    std::string const x = std::to_string(left + static_cast<int>(at));
    std::string const y = y_at(r.peak.reserved_bytes, most_bytes);
    bool const is_right = at > columns * 3 / 4;
    return "<g class=\"by-" + std::string(drawn.along == axis::time ? "time" : "events") + "\">" +
           area("area-held", wall) + area("area-live", steps(drawn.requested, most_bytes)) +
           "<path class=\"wall\" d=\"M" + std::to_string(left) + ' ' + std::to_string(top + height) + wall +
           "\"/>" + "<circle class=\"peak\" r=\"3.5\" cx=\"" + x + "\" cy=\"" + y +
           "\"/><text class=\"peak-label\" x=\"" + x + "\" y=\"" + y + "\" dx=\"" + (is_right ? "-8" : "0") +
           "\" dy=\"-8\" text-anchor=\"" + (is_right ? "end" : "start") + "\">" +
           in_bytes(r.peak.reserved_bytes) + "</text>" + x_labels(what, drawn.along) + "</g>";
}

std::string chart(comparison const& comparison, std::size_t pool, std::vector<curves> const& both,
                  std::uint64_t most_bytes) {
    trace const& what = *comparison.what;
    result const& r = comparison.results[pool];
    std::string const words = std::string(r.pool->name) + ": held at most " +
                              in_bytes(r.peak.reserved_bytes) + " from the driver; " +
                              in_bytes(what.peak_requested_bytes) + " were requested at the peak";
    std::string out = "<div class=\"chart\"><h4><code>" + escaped(r.pool->name) + "</code><span>" +
                      with_digits(overhead(what, r), 3) + " \u00d7 requested</span></h4><svg viewBox=\"0 0 " +
                      std::to_string(left + static_cast<int>(columns) + 12) + ' ' +
                      std::to_string(top + height + 24) + "\" role=\"img\" aria-label=\"" + escaped(words) +
                      "\">" + y_grid(most_bytes);
    for (curves const& drawn : both)
        out += picture(drawn, pool, r, what, most_bytes);
    return out + "<line class=\"cursor\" y1=\"" + std::to_string(top) + "\" y2=\"" +
           std::to_string(top + height) + "\"/></svg></div>\n";
}

std::string numbers(std::vector<std::uint64_t> const& curve) {
    std::string out = "[";
    for (std::uint64_t const bytes : curve)
        out += (out.size() > 1 ? "," : "") + std::to_string(bytes / 1024);
    return out + "]";
}

/// What the script reads values from, in KiB.
std::string data(trace const& what, std::vector<curves> const& both) {
    std::string out = "{\"left\":" + std::to_string(left);
    for (curves const& drawn : both) {
        out += std::string(",\"") + (drawn.along == axis::time ? "time" : "events") +
               "\":{\"end\":" + std::to_string(end_of(what, drawn.along)) +
               ",\"requested\":" + numbers(drawn.requested) + ",\"reserved\":[";
        for (std::size_t i = 0; i < drawn.reserved.size(); ++i)
            out += (i ? "," : "") + numbers(drawn.reserved[i]);
        out += "]}";
    }
    return out + "}";
}

} // namespace

std::string over_time(comparison const& comparison, std::uint64_t most_bytes, std::string const& number) {
    trace const& what = *comparison.what;
    std::vector<curves> const both{curves_of(comparison, axis::time), curves_of(comparison, axis::events)};
    std::string out =
        "<figure class=\"card over-time\" tabindex=\"0\" aria-label=\"Requested and reserved bytes over "
        "time for each pool; arrow keys move a cursor\" style=\"margin-inline:0\"><header><h3>Requested "
        "and reserved over time</h3><fieldset class=\"axis-choice\" "
        "aria-label=\"Horizontal axis\"><label><input type=\"radio\" name=\"axis-" +
        number +
        "\" checked>by time</label><label><input class=\"choose-events\" type=\"radio\" name=\"axis-" +
        number +
        "\">by event</label></fieldset></header>\n<div class=\"key\"><span><i "
        "class=\"live\"></i>requested by the program</span><span><i class=\"held\"></i>held beyond "
        "that</span><span><i class=\"line\"></i>reserved by the pool</span></div><div "
        "class=\"charts\">\n";
    for (std::size_t i = 0; i < comparison.results.size(); ++i)
        out += chart(comparison, i, both, most_bytes);
    return out + "</div><script type=\"application/json\">" + data(what, both) + "</script></figure>\n";
}

} // namespace replay
