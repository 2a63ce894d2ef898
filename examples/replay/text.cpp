// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text.hpp"

#include "trace.hpp"
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <string_view>
#include <system_error>

namespace replay {

std::string with_commas(std::uint64_t number) {
    std::string text = std::to_string(number);
    for (std::size_t at = text.size(); at > 3; at -= 3)
        text.insert(at - 3, ",");
    return text;
}

std::string count_text(std::uint64_t count, std::string const& one, std::string const& several) {
    return with_commas(count) + ' ' + (count == 1 ? one : several.empty() ? one + 's' : several);
}

std::string with_digits(double number, int digits) {
    std::array<char, 64> buffer;
    int const length = std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, number);
    return {buffer.data(), static_cast<std::size_t>(length)};
}

std::string in_bytes(std::uint64_t bytes) {
    if (bytes < 1024)
        return std::to_string(bytes) + " B";
    double amount = static_cast<double>(bytes) / 1024;
    char const* unit = "KiB";
    for (char const* const larger : {"MiB", "GiB", "TiB", "PiB", "EiB"}) {
        if (amount < 999.95)
            break;
        amount /= 1024;
        unit = larger;
    }
    return with_digits(amount, amount < 9.995 ? 2 : 1) + " " + unit;
}

std::size_t character_bytes(std::string_view text) {
    auto const byte = [&](std::size_t at) -> unsigned {
        return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    unsigned const first = byte(0);
    if (first < 0x80)
        return 1;
    std::size_t const bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80; // each character has one spelling
    unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;  // no surrogates, nothing above U+10FFFF
    for (std::size_t at = 1; at < bytes; ++at, least = 0x80, most = 0xbf)
        if (byte(at) < least || byte(at) > most)
            return 0;
    return bytes;
}

std::string printable(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t const bytes = character_bytes(text.substr(at));
        std::string_view const character = text.substr(at, bytes ? bytes : 1);
        at += character.size();
        bool const obeyed = bytes == 0 || character < " " || character == "\x7f" || (character >= "\u0080" && character < "\u00a0");
        if (!obeyed)
            out += character;
        for (char const each : obeyed ? character : std::string_view())
            out += {'\\', 'x', digits[static_cast<unsigned char>(each) / 16], digits[static_cast<unsigned char>(each) % 16]};
    }
    return out;
}

std::string first_lines(std::string const& text, std::size_t most) {
    std::size_t end = 0;
    for (; most != 0 && end < text.size(); --most)
        end = std::min(text.find('\n', end), text.size() - 1) + 1;
    auto const left = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n');
    return text.substr(0, end) +
           (left ? "... and " + with_commas(static_cast<std::uint64_t>(left)) + " more\n" : "");
}

std::size_t bytes_from(std::string const& text) {
    std::size_t amount = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
    std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    if (unit.size() > 1 && unit.front() == ' ') // '8 GiB'
        unit.remove_prefix(1);
    constexpr std::string_view prefixes = "KMGTkmgt";
    unsigned shift = 0;
    if (!unit.empty() && prefixes.find(unit.front()) != std::string_view::npos) {
        shift = 10 * (static_cast<unsigned>(prefixes.find(unit.front())) % 4 + 1);
        unit.remove_prefix(1);
        if (unit == "iB" || unit == "B" || unit == "b" || unit == "ib")
            unit = {};
    } else if (unit == "B" || unit == "b") {
        unit = {};
    }
    if (error == std::errc::result_out_of_range ||
        (error == std::errc{} && unit.empty() && amount > std::numeric_limits<std::size_t>::max() >> shift))
        throw bad_input("'" + text + "' bytes do not fit 64 bits; give a smaller limit, such as 8G");
    if (error != std::errc{} || !unit.empty() || amount == 0)
        throw bad_input("'" + text +
                        "' is no amount of memory; give a whole number of bytes above 0, or one with K, M, "
                        "G or T, such as 512M or 8G");
    return amount << shift;
}

} // namespace replay
