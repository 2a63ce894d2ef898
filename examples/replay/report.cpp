// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report.hpp"

#include "lives.hpp"
#include "text.hpp"
#include <algorithm>
#include <array>

namespace replay {
namespace {

using row = std::array<std::string, 7>;

std::string laid_out(std::vector<row> const& rows) {
    std::array<std::size_t, 7> width{};
    for (row const& r : rows)
        for (std::size_t i = 0; i < r.size(); ++i)
            width[i] = std::max(width[i], r[i].size());
    std::string out;
    for (row const& r : rows) {
        out += "  " + r[0] + std::string(width[0] - r[0].size(), ' ');
        for (std::size_t i = 1; i < r.size(); ++i)
            out += "  " + std::string(width[i] - r[i].size(), ' ') + r[i];
        out += '\n';
    }
    return out;
}

/// A field of CSV, as RFC 4180 has it.
std::string field(std::string const& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos)
        return text;
    std::string out = "\"";
    for (char const c : text)
        out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + '"';
}

} // namespace

double overhead(trace const& trace, std::uint64_t reserved_bytes) {
    return trace.peak_requested_bytes
               ? static_cast<double>(reserved_bytes) / static_cast<double>(trace.peak_requested_bytes)
               : 0;
}

double overhead(trace const& trace, result const& result) {
    return overhead(trace, result.peak.reserved_bytes);
}

std::string as_table(comparison const& comparison, device_facts const& device) {
    trace const& what = *comparison.what;
    std::string const head = printable(what.name) + ": " + count_text(what.events.size(), "event") + " on " +
                             count_text(what.streams, "stream") + ", " +
                             in_bytes(what.peak_requested_bytes) + " requested at the peak; on " +
                             device.name + "\n\n";
    std::vector<row> rows{
        {"pool", "peak reserved", "/ requested", "ns per operation", "driver calls", "calls that wait", "failures"}};
    if (what.held)
        rows.push_back({printable(what.held->who), in_bytes(what.held->peak_bytes), with_digits(overhead(what, what.held->peak_bytes), 3), "-", "-",
                        "-", "-"});
    for (result const& r : comparison.results)
        rows.push_back({std::string(r.pool->name), in_bytes(r.peak.reserved_bytes),
                        with_digits(overhead(what, r), 3),
                        r.ns_per_operation ? with_digits(*r.ns_per_operation, 0) : "-",
                        with_commas(r.driver_calls), with_commas(r.waiting_calls), with_commas(r.failures)});
    return head + laid_out(rows);
}

std::string holders_text(trace const& what) {
    if (!what.of || what.of->what.frames.empty())
        return "";
    constexpr std::size_t enough = 3;
    peak_holders const all = holders_of(*what.of);
    std::string out;
    for (std::size_t i = 0; i < all.sites.size() && i < enough; ++i) {
        holder const& each = all.sites[i];
        out += "  at the peak " + in_bytes(each.bytes) + " (" + all.part(each) + ") in " + count_text(each.blocks, "block") + " held by " + printable(each.site) + '\n';
    }
    return out;
}

std::string footnotes(run_options const& options) {
    std::string out =
        "peak: the most at any one moment; what the program requested had its own, and so has what each pool reserved\n"
        "reserved: bytes held from the driver in its pages of 2 MiB (requests below 2 MiB share pages, and "
        "are\n"
        "  counted as if packed without a hole; driver_pool: what CUDA says that its pool holds)\n"
        "driver calls: calls for memory, refused ones too, counted while replaying: cudaMalloc, cudaFree; of "
        "device_pool\n"
        "  and compact_device_pool cuMemCreate, cuMemMap, cuMemSetAccess, cuMemRelease (four calls a chunk), "
        "cuMemUnmap, and\n"
        "  cuMemRetainAllocationHandle to move one; of driver_pool cudaMallocFromPoolAsync, cudaFreeAsync\n"
        "calls that wait: for them the device or the host may have to stand still: cudaMalloc, cudaFree,\n"
        "  cudaStreamSynchronize and their like; what CUDA's own pool does inside of its calls is not seen\n";
    if (options.timed)
        out += "ns per operation: host time of the whole replay, from a cold pool, over its allocations and "
               "frees;\n"
               "  the median of up to " +
               std::to_string(options.timed_passes) + " passes of their own that do nothing else\n";
    else
        out += "ns per operation: left out, for on the simulated device a time means nothing, and what driver_pool holds is\n"
               "  the simulation's idea of CUDA's pool: on a GPU it holds less\n";
    if (options.limit_bytes != no_limit)
        out +=
            "limit: " + in_bytes(options.limit_bytes) +
            "; a refused allocation is a failure, its free is skipped; driver_pool may hold more, for CUDA\n"
            "  rounds its limit up by tens of MiB\n";
    return out;
}

std::string csv_header() {
    return "pool,trace,events,peak_requested_bytes,peak_reserved_bytes,ns_per_op,driver_calls,failures,"
           "waiting_calls,operations\n";
}

std::string as_csv(comparison const& comparison) {
    trace const& what = *comparison.what;
    std::string out;
    for (result const& r : comparison.results)
        out += std::string(r.pool->name) + ',' + field(what.name) + ',' + std::to_string(what.events.size()) +
               ',' + std::to_string(what.peak_requested_bytes) + ',' + std::to_string(r.peak.reserved_bytes) +
               ',' + (r.ns_per_operation ? with_digits(*r.ns_per_operation, 1) : "") + ',' +
               std::to_string(r.driver_calls) + ',' + std::to_string(r.failures) + ',' +
               std::to_string(r.waiting_calls) + ',' + std::to_string(r.operations) + '\n';
    return out;
}

} // namespace replay
