// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lives.hpp"
#include "page_parts.hpp"
#include "program.hpp"
#include "text.hpp"
#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

// What a recording says beside its allocations and frees: who holds the peak, how long blocks live, and where they lie.

namespace replay {
namespace {

using weir::trace::event;
using weir::trace::event_kind;

/// Who holds what was live when most was.
std::string holders(program const& of) {
    struct held {
        std::uint64_t bytes = 0, blocks = 0;
    };
    std::unordered_map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> live;
    std::unordered_map<std::uint32_t, held> now;
    std::uint64_t all = 0, most = 0;
    std::size_t peak_at = 0;
    auto const visit = [&](std::size_t end, bool looks_for_peak) {
        live.clear();
        now.clear();
        all = 0;
        for (std::size_t i = 0; i < end; ++i) {
            event const& each = of.what.events[i];
            if (each.kind != event_kind::allocate && each.kind != event_kind::free)
                continue;
            if (auto const found = live.find(each.address); found != live.end()) {
                held& own = now[found->second.second];
                own.bytes -= found->second.first;
                --own.blocks;
                all -= found->second.first;
                live.erase(found);
            }
            if (each.kind == event_kind::free)
                continue;
            live[each.address] = {each.bytes, each.site};
            now[each.site].bytes += each.bytes;
            ++now[each.site].blocks;
            all += each.bytes;
            if (looks_for_peak && all > most) {
                most = all;
                peak_at = i + 1;
            }
        }
    };
    visit(of.what.events.size(), true);
    visit(peak_at, false);
    std::vector<std::pair<std::uint32_t, held>> rows(now.begin(), now.end());
    std::sort(rows.begin(), rows.end(), [](auto const& a, auto const& b) {
        return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
    });
    std::string out = "<div class=\"card scroll\"><h3>Who holds the peak</h3><table><thead><tr><th scope=\"col\">allocated "
                      "by</th><th scope=\"col\">live then</th><th scope=\"col\">of the peak</th><th "
                      "scope=\"col\">blocks</th></tr></thead><tbody>\n";
    constexpr std::size_t enough = 20;
    for (std::size_t i = 0; i < rows.size() && i < enough && rows[i].second.blocks != 0; ++i)
        out += "<tr><th scope=\"row\"><code>" + escaped(site_text(of, rows[i].first)) + "</code></th><td data-name=\"live then\">" +
               in_bytes(rows[i].second.bytes) + "</td><td data-name=\"of the peak\">" +
               with_digits(100 * static_cast<double>(rows[i].second.bytes) / static_cast<double>(std::max<std::uint64_t>(all, 1)), 1) +
               " %</td><td data-name=\"blocks\">" + with_commas(rows[i].second.blocks) + "</td></tr>\n";
    return out + "</tbody></table></div>\n";
}

/// How long blocks live, by powers of ten.
std::string lifetimes(std::vector<life> const& lives) {
    struct bucket {
        std::uint64_t blocks = 0, bytes = 0;
    };
    constexpr std::array<char const*, 8> names{"less than 10 \u00b5s", "10 \u00b5s to 100 \u00b5s", "100 \u00b5s to 1 ms",
                                               "1 ms to 10 ms",        "10 ms to 100 ms",           "100 ms to 1 s",
                                               "1 s and more",         "to the end"};
    std::array<bucket, names.size()> all;
    for (life const& each : lives) {
        std::size_t at = 0;
        for (std::uint64_t us = 10; at < 6 && each.end_us - each.begin_us >= us; us *= 10)
            ++at;
        bucket& own = all[each.is_ended ? at : 7];
        ++own.blocks;
        own.bytes += each.bytes;
    }
    std::string out = "<div class=\"card scroll\"><h3>How long blocks live</h3><table><thead><tr><th scope=\"col\">life</th><th "
                      "scope=\"col\">blocks</th><th scope=\"col\">bytes, all together</th></tr></thead><tbody>\n";
    for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i].blocks != 0)
            out += "<tr><th scope=\"row\">" + std::string(names[i]) + "</th><td data-name=\"blocks\">" + with_commas(all[i].blocks) +
                   "</td><td data-name=\"bytes, all together\">" + in_bytes(all[i].bytes) + "</td></tr>\n";
    return out + "</tbody></table></div>\n";
}

} // namespace

std::string of_program(trace const& what) {
    if (!what.of)
        return "";
    program const& of = *what.of;
    std::vector<life> const lives = lives_of(of);
    std::string out = (of.what.frames.empty() ? "" : holders(of)) + lifetimes(lives);
    if (of.has_addresses && !lives.empty())
        out += map_of(of, lives);
    return out;
}

} // namespace replay
