// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "beside.hpp"

#include "lives.hpp"
#include "page_parts.hpp"
#include "recorded_trace.hpp"
#include "text.hpp"
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

namespace replay {
namespace {

using weir::trace::event_kind;
using uses = std::map<std::string, site_use>;

uses uses_in(program const& of) {
    struct one_site {
        site_use use;
        std::uint64_t live = 0;
    };
    std::unordered_map<std::uint32_t, one_site> sites;
    std::unordered_map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> live; // by address: bytes, site
    std::uint64_t all = 0, most = 0;
    // Twice: the second time stops where the program has most.
    for (bool const finds_peak : {true, false}) {
        live.clear();
        all = 0;
        for (auto& [number, each] : sites)
            each.live = 0;
        for (weir::trace::event const& each : of.what.events) {
            if (each.kind != event_kind::allocate && each.kind != event_kind::free)
                continue;
            if (auto const found = live.find(each.address); found != live.end()) {
                sites[found->second.second].live -= found->second.first;
                all -= found->second.first;
                live.erase(found);
            }
            if (each.kind == event_kind::free)
                continue;
            one_site& own = sites[each.site];
            live[each.address] = {each.bytes, each.site};
            own.live += each.bytes;
            all += each.bytes;
            if (!finds_peak && all == most)
                break;
            own.use.blocks += finds_peak;
            own.use.peak_bytes = std::max(own.use.peak_bytes, own.live);
            most = std::max(most, all);
        }
    }
    uses out;
    for (auto const& [number, each] : sites) {
        site_use& to = out[site_text(of, number)]; // of one line there may be several numbers, with other callers
        to.peak_bytes += each.use.peak_bytes;
        to.at_peak_bytes += each.live;
        to.blocks += each.use.blocks;
    }
    return out;
}

uses uses_in(trace const& of) {
    return uses_in(of.of ? *of.of : program_of(of));
}

/// 'a.cpp:12, f' as 'a.cpp, f'.
std::string without_line(std::string const& site) {
    std::size_t const comma = site.find(", "), colon = site.rfind(':', comma);
    return comma == std::string::npos || colon == std::string::npos ? site : site.substr(0, colon) + site.substr(comma);
}

/// Pairs what is left over once on each side.
void pair_moved(std::vector<site_change>& changes) {
    struct sides {
        std::vector<std::size_t> before, after;
    };
    std::map<std::string, sides> left;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        if (changes[i].after.blocks == 0)
            left[without_line(changes[i].site)].before.push_back(i);
        if (changes[i].before.blocks == 0)
            left[without_line(changes[i].site)].after.push_back(i);
    }
    for (auto const& [name, each] : left) {
        if (each.before.size() != 1 || each.after.size() != 1)
            continue;
        std::swap(changes[each.before.front()].after, changes[each.after.front()].after); // the other has nothing left
    }
    changes.erase(std::remove_if(changes.begin(), changes.end(),
                                 [](site_change const& each) { return each.before.blocks == 0 && each.after.blocks == 0; }),
                  changes.end());
}

std::string signed_bytes(std::uint64_t before, std::uint64_t after) {
    return after == before ? "0 B" : after > before ? "+" + in_bytes(after - before) : "-" + in_bytes(before - after);
}

constexpr std::array<char const*, 7> headings{"peak before", "peak after", "grew by", "held before", "held after", "blocks before", "blocks after"};

std::array<std::string, 7> cells_of(site_change const& each) {
    return {in_bytes(each.before.peak_bytes),    in_bytes(each.after.peak_bytes),    signed_bytes(each.before.peak_bytes, each.after.peak_bytes),
            in_bytes(each.before.at_peak_bytes), in_bytes(each.after.at_peak_bytes), with_commas(each.before.blocks),
            with_commas(each.after.blocks)};
}

std::string left_out(std::vector<site_change> const& changes, std::size_t most) {
    return changes.size() <= most ? "" : "and " + count_text(changes.size() - most, "call site") + " that changed less";
}

} // namespace

std::vector<site_change> changes_between(trace const& before, trace const& after) {
    std::map<std::string, site_change> by_site;
    for (auto const& [site, use] : uses_in(before))
        by_site[site].before = use;
    for (auto const& [site, use] : uses_in(after))
        by_site[site].after = use;
    std::vector<site_change> out;
    for (auto& [site, each] : by_site)
        out.push_back({site, each.before, each.after});
    pair_moved(out);
    auto const change = [](site_change const& each) {
        return std::max(each.before.peak_bytes, each.after.peak_bytes) - std::min(each.before.peak_bytes, each.after.peak_bytes);
    };
    std::stable_sort(out.begin(), out.end(), [&](site_change const& a, site_change const& b) {
        bool const a_grew = a.after.peak_bytes > a.before.peak_bytes, b_grew = b.after.peak_bytes > b.before.peak_bytes;
        return change(a) != change(b) ? change(a) > change(b) : a_grew && !b_grew;
    });
    return out;
}

std::string as_table(std::vector<site_change> const& changes, trace const& before, trace const& after, std::size_t most) {
    std::string out = printable(after.name) + " beside " + printable(before.name) + ": " + in_bytes(after.peak_requested_bytes) + " requested at the peak, " +
                      in_bytes(before.peak_requested_bytes) + " before (" +
                      signed_bytes(before.peak_requested_bytes, after.peak_requested_bytes) +
                      ")\n  peak: the most that the call site had live itself; held: what it had live at the whole program's peak\n\n";
    std::array<std::size_t, 7> width{};
    std::vector<std::array<std::string, 7>> rows{{}};
    std::copy(headings.begin(), headings.end(), rows.front().begin());
    for (std::size_t i = 0; i < std::min(most, changes.size()); ++i)
        rows.push_back(cells_of(changes[i]));
    for (auto const& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i)
            width[i] = std::max(width[i], row[i].size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
        out += " ";
        for (std::size_t i = 0; i < width.size(); ++i)
            out += " " + std::string(width[i] - rows[r][i].size() + 1, ' ') + rows[r][i];
        out += "  " + (r == 0 ? "allocated by" : printable(changes[r - 1].site)) + '\n';
    }
    std::string const rest = left_out(changes, most);
    return out + (rest.empty() ? "" : "  " + rest + '\n');
}

std::string as_card(std::vector<site_change> const& changes, trace const& before, trace const& after, std::size_t most) {
    std::string out = "<section class=\"card scroll beside\"><h3>" + escaped(after.name) + " beside " + escaped(before.name) +
                      ", by call site</h3><p class=\"soft\">Before is " + escaped(before.name) + ", with " +
                      in_bytes(before.peak_requested_bytes) + " requested at its peak; after is " + escaped(after.name) + ", with " +
                      in_bytes(after.peak_requested_bytes) +
                      ". A peak is the most that the call site had live itself; held is what it had live at the whole program\u2019s peak. " + left_out(changes, most) +
                      "</p><table><thead><tr><th scope=\"col\">allocated by</th>";
    for (char const* const each : headings)
        out += "<th scope=\"col\">" + std::string(each) + "</th>";
    out += "</tr></thead><tbody>\n";
    for (std::size_t i = 0; i < std::min(most, changes.size()); ++i) {
        out += "<tr><th scope=\"row\"><code>" + escaped(changes[i].site) + "</code></th>";
        std::array<std::string, 7> const cells = cells_of(changes[i]);
        for (std::size_t c = 0; c < cells.size(); ++c)
            out += "<td data-name=\"" + std::string(headings[c]) + "\">" + cells[c] + "</td>";
        out += "</tr>\n";
    }
    return out + "</tbody></table></section>\n";
}

} // namespace replay
