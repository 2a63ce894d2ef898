// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "own_parts.hpp"

#include "curve.hpp"
#include "lives.hpp"
#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <weir/base/size.hpp>

namespace replay {
namespace {

constexpr std::size_t never = SIZE_MAX;

/// Of each block: the events of its begin and end, and whether both are of one stream.
struct course {
    std::size_t begin = 0, end = never;
    std::uint64_t bytes = 0;
    std::uint8_t stream = 0;
    bool is_of_one_stream = true;
};
std::vector<course> courses_of(trace const& of) {
    std::vector<course> out(of.blocks);
    for (std::size_t i = 0; i < of.events.size(); ++i) {
        event const& e = of.events[i];
        course& own = out[e.block];
        if (e.is_free) {
            own.end = i;
            own.is_of_one_stream = e.stream == e.allocated_on;
        } else {
            own.begin = i;
            own.bytes = e.bytes;
            own.stream = e.stream;
        }
    }
    return out;
}

/// The most bytes of such blocks that were live at once.
template <class Wanted>
std::uint64_t peak_of(trace const& of, Wanted&& wanted) {
    std::uint64_t live = 0, most = 0;
    for (event const& e : of.events)
        if (wanted(e))
            most = std::max(most, live = e.is_free ? live - e.bytes : live + e.bytes);
    return most;
}

std::vector<border> borders_of(trace const& of, std::uint32_t name, std::uint32_t thread) {
    std::vector<border> out;
    for (named_part const& each : of.parts)
        if (each.name == name && each.begin != each.end && (thread == origin::several || each.thread == thread)) {
            out.push_back({each.begin, 0, false});
            out.push_back({each.end, each.end_us, true});
        }
    std::stable_sort(out.begin(), out.end(), [](border const& a, border const& b) {
        return a.event != b.event ? a.event < b.event : a.is_end && !b.is_end;
    });
    return out;
}

/// The call sites that could be a frame_pool's: their blocks are of one stream and thread.
struct site {
    std::string text;
    std::uint32_t thread = 0;
    std::uint8_t stream = 0;
    bool is_of_one = true, has_begun = false;
    std::uint64_t bytes = 0; // of all its blocks
    std::vector<std::uint32_t> blocks;
};
std::vector<site> sites_of(trace const& of, std::vector<course> const& courses) {
    std::unordered_map<std::uint32_t, std::size_t> by_number;
    std::map<std::string, std::size_t> by_text; // of one line there may be several numbers, with other callers
    std::vector<site> out;
    for (std::uint32_t block = 0; block < of.origins.size(); ++block) {
        origin const& from = of.origins[block];
        if (from.site == 0)
            continue;
        auto const [found, is_first] = by_number.try_emplace(from.site, 0);
        if (is_first) {
            std::string const text = site_text(*of.of, from.site);
            auto const [same, is_new] = by_text.try_emplace(text, out.size());
            if (is_new)
                out.emplace_back().text = text;
            found->second = same->second;
        }
        site& to = out[found->second];
        course const& own = courses[block];
        bool const is_same = !to.has_begun || (to.thread == from.thread && to.stream == own.stream);
        to.is_of_one = to.is_of_one && is_same && own.is_of_one_stream && from.thread != origin::several;
        to.has_begun = true;
        to.thread = from.thread;
        to.stream = own.stream;
        to.bytes += own.bytes;
        to.blocks.push_back(block);
    }
    out.erase(std::remove_if(out.begin(), out.end(), [](site const& each) { return !each.is_of_one; }), out.end());
    std::stable_sort(out.begin(), out.end(), [](site const& a, site const& b) { return a.bytes > b.bytes; });
    return out;
}

/// All that are of one stream and thread, as one advice.
frame_sites together(trace const& of, std::string part, std::vector<site const*> const& sites) {
    frame_sites out{std::move(part), {}, 0, std::vector<bool>(of.blocks), {}};
    for (site const* const each : sites) {
        out.sites.push_back(each->text);
        for (std::uint32_t const block : each->blocks)
            out.blocks[block] = true;
    }
    out.peak_bytes = peak_of(of, [&](event const& e) { return out.blocks[e.block]; });
    return out;
}

bool ends_in_part(site const& of, std::vector<named_part const*> const& by_begin, std::vector<course> const& courses) {
    return std::all_of(of.blocks.begin(), of.blocks.end(), [&](std::uint32_t block) {
        course const& own = courses[block];
        auto const after = std::upper_bound(by_begin.begin(), by_begin.end(), own.begin,
                                            [](std::size_t at, named_part const* part) { return at < part->begin; });
        return after != by_begin.begin() && own.begin < after[-1]->end && own.end < after[-1]->end;
    });
}

void add_frames_of_part(std::vector<frame_sites>& to, trace const& of, std::uint32_t name, std::vector<site> const& sites,
                        std::vector<course> const& courses) {
    std::map<std::uint32_t, std::vector<named_part const*>> by_thread;
    for (named_part const& each : of.parts)
        if (each.name == name)
            by_thread[each.thread].push_back(&each);
    std::map<std::pair<std::uint32_t, std::uint8_t>, std::vector<site const*>> found;
    for (auto& [thread, parts] : by_thread)
        std::sort(parts.begin(), parts.end(), [](named_part const* a, named_part const* b) { return a->begin < b->begin; });
    for (site const& each : sites)
        if (auto const parts = by_thread.find(each.thread); parts != by_thread.end() && ends_in_part(each, parts->second, courses))
            found[{each.thread, each.stream}].push_back(&each);
    for (auto const& [whose, all] : found) {
        to.push_back(together(of, site_text(*of.of, name), all));
        to.back().borders = borders_of(of, name, whose.first);
    }
}

/// Whether the last block to begin is always the first to end.
bool is_stack(std::vector<site const*> const& sites, std::vector<course> const& courses) {
    std::vector<std::uint32_t> blocks;
    for (site const* const each : sites)
        blocks.insert(blocks.end(), each->blocks.begin(), each->blocks.end());
    std::sort(blocks.begin(), blocks.end()); // numbers are in the order of begins
    std::vector<std::size_t> ends;
    for (std::uint32_t const block : blocks) {
        while (!ends.empty() && ends.back() < courses[block].begin)
            ends.pop_back();
        if (!ends.empty() && courses[block].end > ends.back())
            return false;
        ends.push_back(courses[block].end);
    }
    return true;
}

void add_stack(std::vector<frame_sites>& to, trace const& of, std::vector<site> const& sites, std::vector<course> const& courses) {
    constexpr std::size_t enough = 16; // call sites that are looked at
    std::vector<site const*> found;
    for (std::size_t i = 0; i < std::min(enough, sites.size()); ++i) {
        if (!found.empty() && (found.front()->thread != sites[i].thread || found.front()->stream != sites[i].stream))
            continue;
        found.push_back(&sites[i]);
        if (!is_stack(found, courses))
            found.pop_back();
    }
    if (!found.empty())
        to.push_back(together(of, "", found));
}

} // namespace

std::vector<one_size> sizes_in(trace const& of, std::size_t most) {
    constexpr std::size_t step = 512, least = 2 * step, greatest = 1 << 20, looked_at = 8;
    std::unordered_map<std::size_t, std::uint64_t> sums;
    for (event const& e : of.events)
        if (!e.is_free && e.bytes > least - step && e.bytes <= greatest)
            sums[weir::base::align_up(static_cast<std::size_t>(e.bytes), step)] += e.bytes;
    std::vector<std::pair<std::size_t, std::uint64_t>> by_sum(sums.begin(), sums.end());
    std::sort(by_sum.begin(), by_sum.end(), [](auto const& a, auto const& b) { return a.second != b.second ? a.second > b.second : a < b; });
    std::vector<one_size> out;
    for (std::size_t i = 0; i < std::min(looked_at, by_sum.size()); ++i) {
        std::size_t const bytes = by_sum[i].first, below = bytes - bytes / 8;
        auto const is_in = [&](event const& e) { return e.bytes > below && e.bytes <= bytes; };
        if (std::any_of(out.begin(), out.end(), [&](one_size const& each) { return each.slab_bytes > below && each.more_than_bytes < bytes; }))
            continue; // they would share blocks
        one_size found{bytes, below, peak_of(of, is_in), std::vector<bool>(of.blocks)};
        if (found.peak_bytes < of.peak_requested_bytes / 20)
            continue;
        for (event const& e : of.events)
            found.blocks[e.block] = is_in(e);
        out.push_back(std::move(found));
    }
    std::stable_sort(out.begin(), out.end(), [](one_size const& a, one_size const& b) { return a.peak_bytes > b.peak_bytes; });
    out.resize(std::min(out.size(), most));
    return out;
}

std::vector<frame_sites> frames_in(trace const& of, std::size_t most) {
    std::vector<frame_sites> out;
    if (!names_sites(of))
        return out;
    std::vector<course> const courses = courses_of(of);
    std::vector<site> const sites = sites_of(of, courses);
    std::vector<std::uint32_t> names;
    for (named_part const& each : of.parts)
        names.push_back(each.name);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (std::uint32_t const name : names)
        add_frames_of_part(out, of, name, sites, courses);
    add_stack(out, of, sites, courses);
    std::stable_sort(out.begin(), out.end(), [](frame_sites const& a, frame_sites const& b) { return a.peak_bytes > b.peak_bytes; });
    out.resize(std::min(out.size(), most));
    return out;
}

std::vector<part_ends> ends_in(trace const& of, std::vector<std::uint64_t> const& reserved_bytes, std::size_t most) {
    struct unused {
        std::uint32_t name = 0;
        std::uint64_t ends = 0;
        double bytes = 0; // at all of them
        double mean() const { return bytes / static_cast<double>(ends); }
    };
    std::vector<std::uint64_t> const requested = requested_bytes(of);
    std::map<std::uint32_t, unused> by_name;
    for (named_part const& each : of.parts) {
        if (each.begin == each.end)
            continue;
        unused& to = by_name[each.name];
        to.name = each.name;
        ++to.ends;
        to.bytes += static_cast<double>(reserved_bytes[each.end - 1]) - static_cast<double>(requested[each.end - 1]);
    }
    std::vector<unused> order;
    for (auto const& [name, each] : by_name)
        order.push_back(each);
    std::stable_sort(order.begin(), order.end(), [](unused const& a, unused const& b) { return a.mean() > b.mean(); });
    std::vector<part_ends> out;
    for (std::size_t i = 0; i < std::min(most, order.size()); ++i)
        out.push_back({site_text(*of.of, order[i].name), borders_of(of, order[i].name, origin::several)});
    return out;
}

bool names_sites(trace const& of) {
    return of.of && std::any_of(of.origins.begin(), of.origins.end(), [](origin const& each) { return each.site != 0; });
}

} // namespace replay
