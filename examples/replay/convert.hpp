// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a recorded program get into another tool?
//
// As a file that the tool reads; the ending of its name says which one: '.json' and '.pickle' are PyTorch's memory_viz's,
// '.heaptrack' heaptrack's, '.csv' the replay's own table.

#include "trace.hpp"
#include <string>
#include <vector>

namespace replay {

/// The endings that 'converted' knows.
std::vector<std::string> const& known_endings();

/// The content of a file of the name `path` that holds `what`. Throws bad_input where its ending says nothing.
std::string converted(trace const& what, std::string const& path);

} // namespace replay
