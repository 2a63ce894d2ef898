// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "fits.hpp"

#include "text.hpp"
#include <algorithm>
#include <weir/base/size.hpp>

namespace replay {

page_range limits_for(trace const& of, result const& unlimited) {
    std::uint64_t const enough = unlimited.peak.reserved_bytes / ledger::page_bytes;
    std::uint64_t const live = std::min(enough, of.peak_requested_bytes / ledger::page_bytes);
    return {live - (live != 0), enough};
}

std::uint64_t least_pages(page_range between, std::uint64_t width, std::function<bool(std::uint64_t)> const& does,
                          progress_function const& progress) {
    auto const left = [&] { return between.enough - between.too_few; };
    auto const range = static_cast<double>(std::max<std::uint64_t>(left(), 1));
    while (left() > std::max<std::uint64_t>(width, 1)) {
        progress(1 - static_cast<double>(left()) / range);
        std::uint64_t const middle = between.too_few + left() / 2;
        (does(middle) ? between.enough : between.too_few) = middle;
    }
    progress(1);
    return between.enough;
}

std::uint64_t least_limit(contender const& pool, trace const& trace, progress_function const& progress) {
    constexpr std::uint64_t page = ledger::page_bytes;
    run_options options;
    options.timed = false;
    result const unlimited = run(pool, trace, options, [](double) {});
    if (unlimited.failures != 0)
        return 0;
    auto const serves = [&](std::uint64_t pages) {
        options.limit_bytes = static_cast<std::size_t>(pages * page);
        return run(pool, trace, options, [](double) {}).failures == 0;
    };
    return page * least_pages(limits_for(trace, unlimited), 1, serves, progress);
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
