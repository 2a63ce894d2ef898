// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "json.hpp"
#include "page_parts.hpp"
#include "program.hpp"
#include "text.hpp"
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

// What a recording says beside its allocations and frees: who holds the peak, how long blocks live, and where they lie.

namespace replay {
namespace {

using weir::trace::event;
using weir::trace::event_kind;

constexpr std::size_t most_drawn = 1'000'000;

/// A block from its allocation to its end.
struct life {
    std::uint64_t address, bytes, begin_us, end_us;
    std::uint64_t stream;
    std::uint32_t site;
    bool is_ended;
};

std::vector<life> lives_of(program const& of) {
    std::vector<life> out;
    std::unordered_map<std::uint64_t, std::size_t> live; // by address
    std::uint64_t last_us = 0;
    auto const end = [&](std::uint64_t address, std::uint64_t us) {
        auto const found = live.find(address);
        if (found == live.end())
            return;
        out[found->second].end_us = us;
        out[found->second].is_ended = true;
        live.erase(found);
    };
    for (event const& each : of.what.events) {
        last_us = of.what.ns_of(each) / 1000;
        if (each.kind != event_kind::allocate && each.kind != event_kind::free)
            continue;
        end(each.address, last_us);
        if (each.kind == event_kind::allocate) {
            live[each.address] = out.size();
            out.push_back({each.address, each.bytes, last_us, 0, each.stream, each.site, false});
        }
    }
    for (auto const& [address, at] : live)
        out[at].end_us = last_us;
    return out;
}

std::string site_text(program const& of, std::uint32_t site) {
    if (site == 0)
        return "not known";
    weir::trace::frame const& frame = of.what.frames[site - 1];
    std::string file = frame.file.c_str();
    file = file.substr(file.find_last_of('/') + 1);
    std::string const function = frame.function.c_str();
    return file.empty() ? function : file + ":" + std::to_string(frame.line) + (function.empty() ? "" : ", " + function);
}

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

/// Addresses without the gaps where no block ever lies.
class squeezed {
public:
    explicit squeezed(std::vector<life> const& lives) {
        constexpr std::uint64_t page = 2 * 1024 * 1024;
        std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
        for (life const& each : lives)
            pieces.emplace_back(each.address / page, (each.address + std::max<std::uint64_t>(each.bytes, 1) - 1) / page + 1);
        std::sort(pieces.begin(), pieces.end());
        for (auto const& [from, to] : pieces) {
            if (!ends_.empty() && from <= ends_.rbegin()->second.first)
                ends_.rbegin()->second.first = std::max(ends_.rbegin()->second.first, to);
            else
                ends_[from] = {to, 0};
        }
        std::uint64_t below = 0;
        for (auto& [from, piece] : ends_) {
            piece.second = below;
            below += piece.first - from;
        }
        all_ = below * page;
    }
    std::uint64_t operator()(std::uint64_t address) const {
        constexpr std::uint64_t page = 2 * 1024 * 1024;
        auto const piece = std::prev(ends_.upper_bound(address / page));
        return address - piece->first * page + piece->second.second * page;
    }
    std::uint64_t all_bytes() const { return all_; }

private:
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> ends_; // by first page: the end, and pages below
    std::uint64_t all_ = 0;
};

std::string map_of(program const& of, std::vector<life> lives) {
    std::size_t const all = lives.size();
    // The largest come first: whoever draws a part of them draws what one sees.
    auto const area = [](life const& each) {
        return static_cast<double>(each.bytes) * static_cast<double>(each.end_us - each.begin_us + 1);
    };
    std::sort(lives.begin(), lives.end(), [&](life const& a, life const& b) { return area(a) > area(b); });
    lives.resize(std::min(lives.size(), most_drawn));
    squeezed const place(lives);
    std::uint64_t end = 1;
    std::vector<std::uint32_t> sites{0};
    std::unordered_map<std::uint32_t, std::size_t> site_numbers{{0, 0}};
    std::string rows;
    for (life const& each : lives) {
        end = std::max(end, each.end_us);
        auto const [site, is_new] = site_numbers.try_emplace(each.site, sites.size());
        if (is_new)
            sites.push_back(each.site);
        rows += (rows.empty() ? "" : ",") + std::to_string(each.begin_us) + ',' + std::to_string(each.end_us) + ',' +
                std::to_string(place(each.address)) + ',' + std::to_string(each.bytes) + ',' + std::to_string(each.stream) + ',' +
                std::to_string(site->second);
    }
    std::string names;
    for (std::uint32_t const each : sites)
        names += (names.empty() ? "" : ",") + json_text(site_text(of, each));
    return "<figure class=\"card map\" style=\"margin-inline:0\"><header><h3>Where blocks lie, over time</h3><label "
           "class=\"axis-choice\">colour <select><option>stream</option><option>call site</option><option>size</option>"
           "</select></label></header><canvas tabindex=\"0\" role=\"img\" aria-label=\"Each block as a rectangle: time from left to "
           "right, addresses upwards. Arrow keys move, plus and minus zoom, Escape shows all\"></canvas><p class=\"said "
           "soft\">" +
           with_commas(all) + " blocks" +
           (all > lives.size() ? ", of which the largest " + with_commas(lives.size()) + " are drawn" : "") +
           "; gaps between addresses are left out. The wheel zooms, dragging moves, Escape shows all.</p><script "
           "type=\"application/json\">{\"end\":" +
           std::to_string(end) + ",\"bytes\":" + std::to_string(place.all_bytes()) + ",\"sites\":[" + names + "],\"blocks\":[" +
           rows + "]}</script></figure>\n";
}

} // namespace

std::string of_program(trace const& what) {
    if (!what.of)
        return "";
    program const& of = *what.of;
    std::vector<life> lives = lives_of(of);
    std::string out = (of.what.frames.empty() ? "" : holders(of)) + lifetimes(lives);
    if (of.has_addresses && !lives.empty())
        out += map_of(of, std::move(lives));
    return out;
}

} // namespace replay
