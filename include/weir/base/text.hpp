// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do names, reports and errors store their characters in?
//
// In a string that never changes. Its copies share the characters, so copying never throws, and an exception can carry one.
// It can be made from any string class and converts to any, std::string included. It does without <string>, which together
// with <stdexcept> costs a third of a second of compile time in every file that includes weir.
//
// invariant: the text has size() characters and a zero behind them; they do not change while any copy lives.
// order:     several threads may use different copies at once.
// cost:      two allocations, none for an empty text; a copy is an atomic addition.
// not for:   long texts made of many pieces: each '+' copies all characters so far.

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {

namespace base {
// A class and not an alias, so that the compiler answers once for each type and not at each use.
template <class T, class = void>
struct is_string : std::false_type {};
template <class T>
struct is_string<T, std::enable_if_t<std::is_convertible_v<decltype(std::declval<T const&>().data()), char const*> &&
                                     std::is_convertible_v<decltype(std::declval<T const&>().size()), std::size_t>>>
    : std::true_type {};
} // namespace base

/// Characters that do not change. Making a text throws std::bad_alloc; copies, moves and comparisons never throw.
class text {
    template <class String>
    using if_string = std::enable_if_t<base::is_string<String>::value>;

    // Characters that some other object holds. Comparing or joining them needs no copy first.
    struct piece {
        piece(char const* zero_ended) noexcept : first(zero_ended), size(zero_ended ? std::strlen(zero_ended) : 0) {}
        piece(text const& other) noexcept : first(other.data()), size(other.size()) {}
        template <class String, class = char String::*, class = if_string<String>>
        piece(String const& string) noexcept : first(string.data()), size(static_cast<std::size_t>(string.size())) {}
        char const* first; // may be null where there are none
        std::size_t size;
    };

public:
    /// Empty.
    text() noexcept = default;
    /// A copy of the characters before the zero; none for null.
    text(char const* zero_ended) : text(zero_ended, piece("")) {}
    /// A copy of a string of any class that has 'data' and 'size'; zeros among the characters are copied too. (The 'char
    /// String::*' parameter excludes types that are not classes first. The check behind it would take long to compile for
    /// each literal that a text meets.)
    template <class String, class = char String::*, class = if_string<String>>
    text(String const& string) : text(string, piece("")) {}

    /// Converts to a string of any class that has 'data' and 'size' and can be made from an address and a size. A class that
    /// does not copy the characters (std::string_view) stays valid as long as some copy of this text lives.
    template <class String, class = if_string<String>,
              class = std::enable_if_t<std::is_constructible_v<String, char const*, std::size_t>>>
    operator String() const {
        return String(data(), size());
    }

    /// The first character; a zero follows the last.
    char const* data() const noexcept { return held_ ? held_->data() : ""; }
    char const* c_str() const noexcept { return data(); }
    char const* begin() const noexcept { return data(); }
    char const* end() const noexcept { return data() + size(); }
    std::size_t size() const noexcept { return held_ ? held_->size() - 1 : 0; }
    bool empty() const noexcept { return size() == 0; }

    /// The characters of `a`, then those of `b`. One of the two is a text, the other a text or something that converts to
    /// one.
    friend text operator+(piece a, piece b) { return text(a, b); }
    /// Whether all characters are equal. One of `a` and `b` is a text, the other may be anything that converts to one.
    /// Nothing is copied.
    friend bool operator==(piece a, piece b) noexcept {
        return a.size == b.size && (a.size == 0 || std::memcmp(a.first, b.first, a.size) == 0);
    }
    friend bool operator!=(piece a, piece b) noexcept { return !(a == b); }

    /// Writes the characters, unformatted, to a std::ostream or to anything that has 'write(address, size)'. A stream's width
    /// pads nothing and stays for what comes next.
    template <class Stream, class = decltype(std::declval<Stream&>().write(std::declval<char const*>(), 0))>
    friend Stream& operator<<(Stream& stream, text const& what) {
        stream.write(what.data(), static_cast<std::ptrdiff_t>(what.size()));
        return stream;
    }

private:
    text(piece a, piece b) {
        if (a.size + b.size == 0)
            return;
        held_ = base::shared<base::growing_array<char>>::make(a.size + b.size + 1); // all zeros
        if (a.size != 0)
            std::memcpy(held_->data(), a.first, a.size);
        if (b.size != 0)
            std::memcpy(held_->data() + a.size, b.first, b.size);
    }

    base::shared<base::growing_array<char>> held_; // the characters and a zero; nothing where there are none
};

namespace base {

/// `number` in decimal digits.
inline text number_text(std::size_t number) {
    char digits[24];
    char* first = digits + sizeof digits - 1;
    *first = '\0';
    do {
        *--first = static_cast<char>('0' + number % 10);
        number /= 10;
    } while (number != 0);
    return first;
}

/// `count` things that are called `name`: '1 chunk', '2 chunks'.
inline text count_text(std::size_t count, char const* name) {
    return base::number_text(count) + name + (count == 1 ? "" : "s");
}

/// `bytes` for people, with a binary unit and two decimals: '256 B', '1.50 MiB'. The decimals are cut off, not rounded, and
/// left out when they are zeros.
inline text bytes_text(std::size_t bytes) {
    static constexpr char const* names[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    std::size_t unit = 1;
    char const* const* name = names;
    for (; bytes / unit >= KiB; unit *= KiB)
        ++name;
    std::size_t const tenths = bytes % unit * 10; // of a unit, times the unit: at most 10 EiB
    std::size_t const hundredths = tenths / unit * 10 + tenths % unit * 10 / unit;
    text const whole = base::number_text(bytes / unit);
    if (hundredths == 0)
        return whole + *name;
    return whole + (hundredths < 10 ? ".0" : ".") + base::number_text(hundredths) + *name;
}

/// The exact number of bytes, for texts that compare two numbers that are nearly equal: '100 bytes', '8589934593 bytes (8
/// GiB)'.
inline text exact_bytes_text(std::size_t bytes) {
    text const exact = base::count_text(bytes, " byte");
    return bytes < KiB ? exact : exact + " (" + base::bytes_text(bytes) + ")";
}

} // namespace base
} // namespace v0
} // namespace weir
