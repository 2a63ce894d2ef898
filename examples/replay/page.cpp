// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "page.hpp"

#include "page_map_script.hpp"
#include "page_parts.hpp"
#include "page_style.hpp"
#include "text.hpp"
#include "verdict.hpp"
#include <algorithm>
#include <cmath>
#include <weir/fwd.hpp>

namespace replay {
namespace {

/// `name`: the column's, which stands before the cell where the page is narrow.
std::string cell(char const* name, std::string const& text, char const* kind) {
    return "<td data-name=\"" + std::string(name) + '"' + (*kind == '\0' ? std::string() : std::string(" class=\"") + kind + '"') + ">" + text + "</td>";
}

std::string table(comparison const& comparison) {
    trace const& what = *comparison.what;
    std::uint64_t least_reserved = ~std::uint64_t{0}, fewest_calls = ~std::uint64_t{0}, fewest_waits = ~std::uint64_t{0};
    bool is_timed = false;
    double shortest = HUGE_VAL;
    for (result const& r : comparison.results) {
        is_timed = is_timed || r.ns_per_operation;
        if (r.failures != 0) // it did not do the same work
            continue;
        least_reserved = std::min(least_reserved, r.peak.reserved_bytes);
        fewest_calls = std::min(fewest_calls, r.driver_calls);
        fewest_waits = std::min(fewest_waits, r.waiting_calls);
        shortest = std::min(shortest, r.ns_per_operation.value_or(HUGE_VAL));
    }
    std::string out =
        "<div class=\"card scroll\"><table><thead><tr><th scope=\"col\">pool</th><th scope=\"col\">peak "
        "reserved</th><th scope=\"col\">/ requested</th>" +
        std::string(is_timed ? "<th scope=\"col\">ns per operation</th>" : "") +
        "<th scope=\"col\">driver calls</th><th scope=\"col\">calls that wait</th><th "
        "scope=\"col\">failures</th></tr></thead><tbody>\n";
    if (what.held)
        out += "<tr class=\"recorded\"><th scope=\"row\">" + escaped(what.held->who) +
               "<span class=\"what\">what the recorded program held itself</span></th>" +
               cell("peak reserved", in_bytes(what.held->peak_bytes), "") +
               cell("/ requested", with_digits(overhead(what, what.held->peak_bytes), 3), "") +
               (is_timed ? cell("ns per operation", "\u2013", "") : "") + cell("driver calls", "\u2013", "") +
               cell("calls that wait", "\u2013", "") + cell("failures", "\u2013", "") + "</tr>\n";
    for (result const& r : comparison.results) {
        auto const best = [&](bool is) { return is && r.failures == 0 ? "best" : ""; };
        out += "<tr><th scope=\"row\"><code>" + escaped(r.pool->name) + "</code><span class=\"what\">" +
               escaped(r.pool->what) + "</span></th>" + cell("peak reserved", in_bytes(r.peak.reserved_bytes), "") +
               cell("/ requested", with_digits(overhead(what, r), 3), best(r.peak.reserved_bytes == least_reserved)) +
               (is_timed ? cell("ns per operation", r.ns_per_operation
                                    ? with_commas(static_cast<std::uint64_t>(std::llround(*r.ns_per_operation)))
                                    : "\u2013",
                                best(r.ns_per_operation.value_or(-1) == shortest))
                         : "") +
               cell("driver calls", with_commas(r.driver_calls), best(r.driver_calls == fewest_calls)) +
               cell("calls that wait", with_commas(r.waiting_calls) + "<span class=\"of\">in " + count_text(r.operations, "operation") + "</span>",
                    best(r.waiting_calls == fewest_waits)) +
               cell("failures", with_commas(r.failures), r.failures != 0 ? "bad" : "") + "</tr>\n";
    }
    return out + "</tbody></table></div>\n";
}

std::string notes(device_facts const& device, run_options const& options) {
    std::string out =
        "<section class=\"card notes\"><h3>What is counted</h3><ul>"
        "<li><b>Requested</b>: bytes of the blocks that the program had allocated and not yet freed.</li>"
        "<li><b>Reserved</b>: bytes that the pool held from the driver, in the driver\u2019s pages of 2 MiB. "
        "It is "
        "counted where the pool asks the driver for memory, for all by one rule: a request of 2 MiB or "
        "more has pages of its own, smaller ones share pages and are counted as if packed without a hole. "
        "For "
        "<code>driver_pool</code> it is what CUDA says that its pool holds.</li>"
        "<li><b>Driver calls</b>: calls by which the pool asked for memory or gave it back, refused ones "
        "too, counted while replaying: <code>cudaMalloc</code> and <code>cudaFree</code>; of "
        "<code>device_pool</code> and <code>compact_device_pool</code> <code>cuMemCreate</code>, "
        "<code>cuMemMap</code>, <code>cuMemSetAccess</code> and <code>cuMemRelease</code>, which make a "
        "chunk, "
        "<code>cuMemUnmap</code>, and <code>cuMemRetainAllocationHandle</code> where one moves; of "
        "<code>driver_pool</code> <code>cudaMallocFromPoolAsync</code> and <code>cudaFreeAsync</code>.</li>"
        "<li><b>Calls that wait</b>: calls for which the device or the host may have to stand still until work that was "
        "enqueued before is over: <code>cudaFree</code>, and <code>cudaMalloc</code>, which CUDA\u2019s guide says may; "
        "<code>cudaMallocManaged</code>, <code>cudaHostAlloc</code> and <code>cudaFreeHost</code>; and "
        "<code>cudaDeviceSynchronize</code>, <code>cudaStreamSynchronize</code> and <code>cudaEventSynchronize</code>, which "
        "are no driver calls in the sense above. Below stands in how many <b>operations</b>, allocations that were served and "
        "frees. <code>cuMemMap</code> and <code>cuMemUnmap</code> wait for no work; a pool that has to wait before it unmaps "
        "does so by one of the calls above. What CUDA does inside of <code>cudaMallocFromPoolAsync</code> is not seen. The "
        "marks below the curves show when the calls came.</li>"
        "<li><b>The sentence on top</b> compares <code>device_pool</code> with the pools that are not weir\u2019s, in peak "
        "reserved bytes, calls that wait and, on a GPU, time, where less than 5 % is no difference. A pool that refused "
        "something did other work, and is not compared.</li>"
        "<li><b>ns per operation</b>: host time of a whole replay from a cold pool, growth included, over "
        "its "
        "allocations and frees; the median of up to " +
        std::to_string(options.timed_passes) +
        " passes that do nothing else. Reading the trace is not in it; where a block is freed on another stream than it was "
        "allocated on, making one stream wait for the other is.</li>"
        "<li>The trace holds no kernels, so the streams are idle: what is freed is free at once on every "
        "stream. "
        "<code>thrust</code> would hand it out as early with kernels in flight.</li>"
        "<li>A curve\u2019s column shows the most that held in it.</li>";
    if (device.is_simulated)
        out += "<li>This ran on <b>the simulated device</b>: times would mean nothing and are left out, and "
               "what "
               "<code>driver_pool</code> holds is the simulation\u2019s idea of CUDA\u2019s pool, which the sentence on top "
               "does not compare.</li>";
    if (options.limit_bytes != no_limit)
        out += "<li><b>Limit</b>: no pool could hold more than " + in_bytes(options.limit_bytes) +
               ", but <code>driver_pool</code>, whose limit CUDA rounds up by tens of MiB. A refused "
               "allocation is a failure, and its free is skipped; a pool with failures did less, and is never marked as the "
               "best of a column.</li>";
    return out + "</ul></section>\n";
}

std::string section(comparison const& comparison, device_facts const& device, std::string const& number,
                    char const* heading) {
    trace const& what = *comparison.what;
    std::uint64_t most_bytes = std::max<std::uint64_t>(what.peak_requested_bytes, 1);
    for (result const& r : comparison.results)
        most_bytes = std::max(most_bytes, r.peak.reserved_bytes);
    if (what.held)
        most_bytes = std::max(most_bytes, what.held->peak_bytes);
    return "<section id=\"trace-" + number + "\"><" + heading + ">Replay of " + escaped(what.name) + "</" +
           heading + "><p class=\"soft\">" + with_commas(what.events.size()) +
           " allocations and frees of a program on " + count_text(what.streams, "stream") + ", which had at most " +
           in_bytes(what.peak_requested_bytes) + " live, through " +
           count_text(comparison.results.size(), "pool") + " on " + escaped(device.name) + ".</p>\n<p class=\"verdict\"><b>" + escaped(point_of(comparison)) + "</b> " + escaped(verdict(comparison, device.is_simulated)) +
           "</p>\n" + comparison.beside + table(comparison) + comparison.advice +
           over_time(comparison, most_bytes, number) + at_the_peak(comparison, most_bytes) + idle_memory(comparison) + of_program(what) + "</section>\n";
}

} // namespace

std::string escaped(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t const bytes = character_bytes(text.substr(at));
        std::string_view const character = text.substr(at, bytes);
        at += bytes ? bytes : 1;
        switch (bytes ? character.front() : '\0') {
        case '\0':
            out += "\ufffd";
            break;
        case '&':
            out += "&amp;";
            break;
        case '<':
            out += "&lt;";
            break;
        case '>':
            out += "&gt;";
            break;
        case '"':
            out += "&quot;";
            break;
        default:
            out += character;
        }
    }
    return out;
}

std::string as_page(std::vector<comparison> const& comparisons, device_facts const& device,
                    run_options const& options) {
    std::string out =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\"><title>weir: replay";
    for (comparison const& each : comparisons)
        out += (&each == &comparisons.front() ? " of " : ", ") + escaped(each.what->name);
    out += "</title><style>" + std::string(page_style) + "</style></head>\n<body><main>\n";
    if (comparisons.size() > 1) {
        out += "<nav aria-label=\"Traces\">";
        for (std::size_t i = 0; i < comparisons.size(); ++i)
            out +=
                "<a href=\"#trace-" + std::to_string(i) + "\">" + escaped(comparisons[i].what->name) + "</a>";
        out += "</nav>\n";
    }
    for (std::size_t i = 0; i < comparisons.size(); ++i)
        out += section(comparisons[i], device, std::to_string(i), i == 0 ? "h1" : "h2");
    return out + notes(device, options) + "<footer>weir " + std::to_string(WEIR_VERSION / 10000) + '.' +
           std::to_string(WEIR_VERSION / 100 % 100) + '.' + std::to_string(WEIR_VERSION % 100) +
           " \u00b7 this page needs no other file</footer>\n</main><script>" + page_script + page_map_script +
           "</script></body></html>\n";
}

} // namespace replay
