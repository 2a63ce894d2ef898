// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are numbers written for people, and read from them?

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace replay {

/// 16836 as '16,836'.
std::string with_commas(std::uint64_t number);

/// '1 pool', '16,836 pools'; `several`, where an 's' does not do: '1 call that waits', '2 calls that wait'.
std::string count_text(std::uint64_t count, std::string const& one, std::string const& several = "");

/// 670425096 as '639.4 MiB'.
std::string in_bytes(std::uint64_t bytes);

/// 1.0703 as '1.070', with that many digits after the point.
std::string with_digits(double number, int digits);

/// The bytes of the UTF-8 character that `text` begins with; 0: there is none.
std::size_t character_bytes(std::string_view text);

/// For a terminal: what it would obey rather than show (control characters, what is no UTF-8) as '\x1b'. Text of a file that
/// somebody else wrote goes through it.
std::string printable(std::string_view text);

/// The first `most` lines of a text, and how many are left out where there are more.
std::string first_lines(std::string const& text, std::size_t most);

/// '8G', '512M', '64KiB' or '1000' as bytes; units are powers of 1024. Throws bad_input.
std::size_t bytes_from(std::string const& text);

} // namespace replay
