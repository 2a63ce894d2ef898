// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "json.hpp"
#include "map_levels.hpp"
#include "page_parts.hpp"
#include "text.hpp"
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

// Where blocks lie, over time. The page holds them as numbers of 32 and 16 bits in base64, a column behind the other, 27 bytes a
// block; page_map_script.hpp draws them.

namespace replay {
namespace {

constexpr std::size_t most_drawn = 500'000;

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

/// Numbers of a few bytes each, lowest byte first, in base64.
class packed {
public:
    void add(std::uint64_t number, unsigned bytes) {
        for (unsigned i = 0; i < bytes; ++i)
            put(static_cast<unsigned char>(number >> 8 * i));
    }
    std::string made() {
        while (held_ != 0)
            put(0);
        return std::move(out_);
    }

private:
    void put(unsigned char byte) {
        bits_ = bits_ << 8 | byte;
        if (++held_ < 3)
            return;
        for (int shift = 18; shift >= 0; shift -= 6)
            out_ += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[bits_ >> shift & 63];
        bits_ = 0;
        held_ = 0;
    }

    std::string out_;
    std::uint32_t bits_ = 0;
    unsigned held_ = 0;
};

std::uint32_t as_float(std::uint64_t bytes) {
    float const near = static_cast<float>(bytes);
    std::uint32_t out;
    std::memcpy(&out, &near, sizeof out);
    return out;
}

} // namespace

std::string map_of(program const& of, std::vector<life> const& lives) {
    squeezed const place(lives);
    std::uint64_t end = 1;
    for (life const& each : lives)
        end = std::max(end, each.end_us);
    map_levels const levels = levels_of(lives, place, end, place.all_bytes(), most_drawn);
    std::uint64_t const unit = (end >> 32) + 1, grain = (place.all_bytes() >> 32) + 1;
    std::vector<std::uint32_t> sites{0};
    std::unordered_map<std::uint32_t, std::size_t> site_numbers{{0, 0}};
    auto const number_of = [&](std::uint32_t site) {
        auto const [found, is_new] = site_numbers.try_emplace(site, sites.size() < 65536 ? sites.size() : 0);
        if (is_new && found->second != 0)
            sites.push_back(site);
        return found->second;
    };
    packed blocks;
    auto const column = [&](unsigned bytes, auto const& number) {
        for (std::size_t const each : levels.blocks)
            blocks.add(number(lives[each]), bytes);
    };
    column(4, [&](life const& each) { return each.begin_us / unit; });
    column(4, [&](life const& each) { return (each.end_us - each.begin_us) / unit; });
    column(4, [&](life const& each) { return place(each.address) / grain; });
    column(4, [&](life const& each) { return as_float(each.bytes); });
    column(2, [&](life const& each) { return std::min<std::uint64_t>(each.stream, 65535); });
    column(2, [&](life const& each) { return number_of(each.site); });
    std::string names, ends;
    for (std::uint32_t const each : sites)
        names += (names.empty() ? "" : ",") + json_text(site_text(of, each));
    for (std::size_t const each : levels.ends)
        ends += (ends.empty() ? "" : ",") + std::to_string(each);
    return "<figure class=\"card map\" style=\"margin-inline:0\"><header><h3>Where blocks lie, over time</h3><label "
           "class=\"axis-choice\">colour <select><option>stream</option><option>call site</option><option>size</option>"
           "</select></label></header><canvas tabindex=\"0\" role=\"img\" aria-label=\"Each block as a rectangle: time from left to "
           "right, addresses upwards. Arrow keys move, plus and minus zoom, Escape shows all\"></canvas><p class=\"said "
           "soft\">" +
           count_text(lives.size(), "block") +
           (lives.size() > levels.blocks.size() ? ", of which the " + with_commas(levels.blocks.size()) + " that one sees are drawn" : "") +
           "; gaps between addresses are left out. The wheel zooms, dragging moves, Escape shows all.</p><script "
           "type=\"application/json\">{\"end\":" +
           std::to_string(end) + ",\"bytes\":" + std::to_string(place.all_bytes()) + ",\"unit\":" + std::to_string(unit) + ",\"grain\":" +
           std::to_string(grain) + ",\"levels\":[" + ends + "],\"sites\":[" + names +
           "]}</script><script type=\"text/plain\" class=\"blocks\">" + blocks.made() + "</script></figure>\n";
}

} // namespace replay
