// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "board_view.hpp"
#include <chrono>

namespace weir_top {

/// Shows the board on the terminal until 'q' or the program's end; 'd' asks for a dump. Returns what to say afterwards, or "".
std::string show(board_view& board, std::chrono::milliseconds every);

/// Gives the terminal back as it was, if 'show' has it.
void close_screen();

} // namespace weir_top
