// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do sizes, states and reports print with iostreams and {fmt}?
//
// As they read in weir's own reports. A state prints as a line, with the largest live blocks in lines of their own where it
// lists them ('full_state'), a report ('text') as it is, and a size with its unit if it is marked as one. A stream's width and
// fill hold for all but a text, which it takes unformatted (base/text.hpp): print 'c_str()' of one that is to be padded.
//
//     std::cout << std::setw(10) << weir::interop::format::bytes{n} << '\n';       //   1.50 MiB
//     fmt::print("{}\n{:>10}\n", pool.state(), weir::interop::format::bytes{n});
//
// This header includes neither. Include it after <fmt/format.h>: it defines formatters if that is there at its first inclusion.
// They take the format of a string: fill, alignment, width, precision.
//
// cost:      the text is made for each print.
// not for:   files that other programs read: print the members of the state.

#include <cstddef>
#include <iosfwd>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/resource/report_text.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace format {

/// A number of bytes that prints with a unit and two decimals, which are cut off and not rounded: '256 B', '1.50 MiB'.
struct bytes {
    std::size_t count;
};

namespace detail {

inline text const& printed(text const& what) { return what; }
inline text printed(bytes what) { return base::bytes_text(what.count); }
inline text printed(memory_space what) { return base::name_of(what); }
inline text printed(memory_report const& what) { return resource::full_report_text(resource::report_text(what, ""), what); }

// A formatter of a library's views of strings, for whatever 'printed' knows.
template <class OfView, class View>
struct formatter : OfView {
    template <class T, class Context>
    auto format(T const& what, Context& context) const {
        text const said = printed(what);
        return OfView::format(View(said.data(), said.size()), context);
    }
};

} // namespace detail

/// Prints to a std::ostream or what derives from one, with its width, fill and alignment. Other classes with a '<<' of their
/// own keep that.
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& stream, bytes what) {
    return stream << detail::printed(what).c_str();
}

} // namespace format
} // namespace interop

// These stand where the types are, and are found without a 'using'. Those of texts are in base/text.hpp.
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& stream, memory_report const& what) {
    return stream << interop::format::detail::printed(what).c_str();
}
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& stream, memory_space what) {
    return stream << interop::format::detail::printed(what).c_str();
}

} // namespace v0
} // namespace weir

#ifdef FMT_VERSION
template <>
struct fmt::formatter<weir::text>
    : weir::interop::format::detail::formatter<fmt::formatter<fmt::string_view>, fmt::string_view> {};
template <>
struct fmt::formatter<weir::memory_report> : fmt::formatter<weir::text> {};
template <>
struct fmt::formatter<weir::memory_space> : fmt::formatter<weir::text> {};
template <>
struct fmt::formatter<weir::interop::format::bytes> : fmt::formatter<weir::text> {};
#endif
