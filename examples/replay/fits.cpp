// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "fits.hpp"

#include "text.hpp"
#include <algorithm>
#include <weir/base/size.hpp>

namespace replay {

std::uint64_t least_limit(contender const& pool, trace const& trace, progress_function const& progress) {
    constexpr std::uint64_t page = ledger::page_bytes;
    run_options options;
    options.timed = false;
    result const unlimited = run(pool, trace, options, [](double) {});
    if (unlimited.failures != 0)
        return 0;
    std::uint64_t serves = unlimited.peak.reserved_bytes / page, too_little = std::min(serves, trace.peak_requested_bytes / page);
    too_little -= too_little != 0; // what the program has live may serve
    std::uint64_t const range = std::max<std::uint64_t>(serves - too_little, 1);
    while (serves - too_little > 1) {
        progress(1 - static_cast<double>(serves - too_little) / static_cast<double>(range));
        std::uint64_t const middle = too_little + (serves - too_little) / 2;
        options.limit_bytes = static_cast<std::size_t>(middle * page);
        (run(pool, trace, options, [](double) {}).failures == 0 ? serves : too_little) = middle;
    }
    progress(1);
    return serves * page;
}

std::string fit_text(std::uint64_t least_bytes, std::uint64_t has_bytes) {
    if (least_bytes == 0)
        return "no: not even the whole device serves it";
    std::uint64_t const margin = least_bytes / 50;
    std::string const needs = "it needs " + in_bytes(least_bytes) + " of " + in_bytes(has_bytes);
    if (has_bytes + margin < least_bytes)
        return "no: " + needs + ", " + in_bytes(least_bytes - has_bytes) + " too little";
    return (has_bytes < least_bytes + margin ? "within the margin of 2 %: " : "yes: ") + needs;
}

} // namespace replay
