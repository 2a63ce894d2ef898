// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lives.hpp"

#include "text.hpp"
#include <algorithm>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <utility>

namespace replay {

using weir::trace::event;
using weir::trace::event_kind;

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

std::string peak_holders::part(holder const& of) const {
    return with_digits(100 * static_cast<double>(of.bytes) / static_cast<double>(std::max<std::uint64_t>(bytes, 1)), 1) + " %";
}

peak_holders holders_of(program const& of) {
    struct held {
        std::uint64_t bytes = 0, blocks = 0;
    };
    std::unordered_map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> live; // by address: bytes, site
    std::unordered_map<std::uint32_t, held> now;
    peak_holders out;
    std::uint64_t most = 0;
    std::size_t peak_at = 0;
    auto const visit = [&](std::size_t end, bool looks_for_peak) {
        live.clear();
        now.clear();
        out.bytes = 0;
        for (std::size_t i = 0; i < end; ++i) {
            event const& each = of.what.events[i];
            if (each.kind != event_kind::allocate && each.kind != event_kind::free)
                continue;
            if (auto const found = live.find(each.address); found != live.end()) {
                held& own = now[found->second.second];
                own.bytes -= found->second.first;
                --own.blocks;
                out.bytes -= found->second.first;
                live.erase(found);
            }
            if (each.kind == event_kind::free)
                continue;
            live[each.address] = {each.bytes, each.site};
            now[each.site].bytes += each.bytes;
            ++now[each.site].blocks;
            out.bytes += each.bytes;
            if (looks_for_peak && out.bytes > most) {
                most = out.bytes;
                peak_at = i + 1;
            }
        }
    };
    visit(of.what.events.size(), true);
    visit(peak_at, false);
    std::map<std::string, held> by_site; // of one line there may be several numbers, with other callers
    for (auto const& [site, own] : now) {
        held& to = by_site[site_text(of, site)];
        to.bytes += own.bytes;
        to.blocks += own.blocks;
    }
    for (auto const& [site, own] : by_site)
        if (own.blocks != 0)
            out.sites.push_back({site, own.bytes, own.blocks});
    std::stable_sort(out.sites.begin(), out.sites.end(), [](holder const& a, holder const& b) { return a.bytes > b.bytes; });
    return out;
}

} // namespace replay
