// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lives.hpp"

#include <cstddef>
#include <unordered_map>

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

} // namespace replay
