// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is JSON read and written?
//
// Read by nlohmann-json (Debian: nlohmann-json3-dev). A program that was built without it says so.

#include "document.hpp"
#include <string>
#include <string_view>

namespace replay {

/// Whether a text that begins so is a list or a dictionary in JSON.
bool looks_like_json(std::string_view text);

/// Whether this program can read JSON.
bool reads_json();

/// Reads JSON into `to`; `path` names it in messages. Throws bad_input.
void read_json(std::string_view text, std::string const& path, document& to);

/// A value in JSON. Bytes of texts that are no UTF-8 become question marks.
std::string as_json(value const& of);

/// A text as JSON has it, with its quotes; also inside of an HTML script: no '<' is in it.
std::string json_text(std::string_view text);

} // namespace replay
