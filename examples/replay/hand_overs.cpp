// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hand_overs.hpp"

#include "program.hpp"
#include "text.hpp"

namespace replay {

hand_over_sums hand_overs_of(program const& of) {
    using weir::trace::event_kind;
    using weir::trace::hand_over_order;
    hand_over_sums all;
    double const ns_per_tick = weir::trace::ns_per_tick(of.what.first, of.what.last);
    for (weir::trace::event const& each : of.what.events) {
        if (each.kind == event_kind::wait) {
            ++all.host_waits;
            all.host_wait_ns += static_cast<std::uint64_t>(static_cast<double>(each.bytes) * ns_per_tick);
        }
        if (each.kind != event_kind::hand_over || each.address == 0)
            continue;
        hand_over_order const order = order_of(each);
        hand_over_sums::part& to =
            order == hand_over_order::none ? all.at_once : order == hand_over_order::wait ? all.waits : all.not_told;
        ++to.blocks;
        to.bytes += each.bytes;
    }
    return all;
}

std::string hand_overs_line(program const& of) {
    hand_over_sums const all = hand_overs_of(of);
    std::string said;
    auto const add = [&](hand_over_sums::part const& part, char const* how) {
        if (part.blocks != 0)
            said += (said.empty() ? "" : ", ") + count_text(part.blocks, "block") + " (" +
                    in_bytes(part.bytes) + ") " + how;
    };
    add(all.at_once, "at once");
    add(all.waits, "for which the stream waits");
    add(all.not_told, "of which it does not say whether the stream waits");
    if (!said.empty())
        said = "from one stream to another went " + said;
    if (all.host_waits != 0)
        said += (said.empty() ? "" : "; ") + std::string("the host waited ") +
                (all.host_waits == 1 ? "once" : with_commas(all.host_waits) + " times") + ", " +
                with_digits(static_cast<double>(all.host_wait_ns) / 1e6, 2) + " ms";
    return said;
}

std::string hand_overs_text(trace const& what) {
    std::string const line = what.of ? hand_overs_line(*what.of) : "";
    return line.empty() ? "" : "  in the recorded pool: " + line + '\n';
}

} // namespace replay
