// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks did a recorded program have, from when to when, who asked for them, and who held most?

#include "program.hpp"
#include <cstdint>
#include <string>
#include <vector>

namespace replay {

/// A block from its allocation to its end.
struct life {
    std::uint64_t address, bytes, begin_us, end_us;
    std::uint64_t stream;
    std::uint32_t site;
    bool is_ended;
};

/// In the order of their begin.
std::vector<life> lives_of(program const& of);

/// 'file.cpp:12, function'; `site` as in an event.
std::string site_text(program const& of, std::uint32_t site);

/// What the calls of one site held when most was live.
struct holder {
    std::string site; ///< its text
    std::uint64_t bytes = 0, blocks = 0;
};
/// The one who held most first.
struct peak_holders {
    std::vector<holder> sites;
    std::uint64_t bytes = 0; ///< of all
    /// What part a site held, as '66.9 %'.
    std::string part(holder const& of) const;
};
peak_holders holders_of(program const& of);

} // namespace replay
