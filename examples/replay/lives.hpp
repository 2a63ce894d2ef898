// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks did a recorded program have, from when to when, and who asked for them?

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

} // namespace replay
