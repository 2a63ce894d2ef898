// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does the replay look like?
//
// One HTML page that needs nothing else: style, script and pictures are in it. The pictures are drawn here,
// as SVG and boxes, and are whole without the script, which only reads values off them at the pointer. Light
// or dark as the reader's system is; every picture has its words and every number is in a table.

#include "report.hpp"
#include <string>
#include <vector>

namespace replay {

/// The page, with a section for each trace.
std::string as_page(std::vector<comparison> const& comparisons, device_facts const& device,
                    run_options const& options);

} // namespace replay
