// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hand_overs.hpp"
#include "lives.hpp"
#include "page_parts.hpp"
#include "program.hpp"
#include "text.hpp"
#include <array>
#include <vector>

// What a recording says beside its allocations and frees: who holds the peak, how long blocks live, and where they lie.

namespace replay {
namespace {

/// Who holds what was live when most was.
std::string holders(program const& of) {
    peak_holders const all = holders_of(of);
    std::string out = "<div class=\"card scroll\"><h3>Who holds the peak</h3><table><thead><tr><th scope=\"col\">allocated "
                      "by</th><th scope=\"col\">live then</th><th scope=\"col\">of the peak</th><th "
                      "scope=\"col\">blocks</th></tr></thead><tbody>\n";
    constexpr std::size_t enough = 20;
    for (std::size_t i = 0; i < all.sites.size() && i < enough; ++i)
        out += "<tr><th scope=\"row\"><code>" + escaped(all.sites[i].site) + "</code></th><td data-name=\"live then\">" +
               in_bytes(all.sites[i].bytes) + "</td><td data-name=\"of the peak\">" + all.part(all.sites[i]) +
               "</td><td data-name=\"blocks\">" + with_commas(all.sites[i].blocks) + "</td></tr>\n";
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
    if (std::string const line = hand_overs_line(of); !line.empty())
        out += "<p>In the recorded pool: " + line + ".</p>\n";
    if (of.has_addresses && !lives.empty())
        out += map_of(of, lives);
    return out;
}

} // namespace replay
