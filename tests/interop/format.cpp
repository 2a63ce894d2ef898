// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// {fmt} where it is installed (Debian: libfmt-dev).

#if __has_include(<fmt/format.h>)
#define FMT_HEADER_ONLY
#include <fmt/format.h>
#include <fmt/ranges.h> // for which a text is a range too
#endif

#include <doctest/doctest.h>
#include <iomanip>
#include <sstream>
#include <string>
#include <weir/base/size.hpp>
#include <weir/interop/format.hpp>
#include <weir/recipes.hpp>

using weir::interop::format::bytes;

namespace {

weir::memory_report some_state(bool full) {
    weir::memory_report state;
    state.name = "frames";
    state.in_use_bytes = 3 * weir::MiB;
    state.reserved_bytes = 8 * weir::MiB;
    state.limit_bytes = weir::GiB;
    state.live_blocks = 7;
    state.chunks = 1;
    if (full)
        state.largest_live.offer({reinterpret_cast<void const*>(0x1000), 2 * weir::MiB});
    return state;
}

char const* const line = "pool 'frames': 3 MiB in use in 7 blocks, 8 MiB reserved in 1 chunk, limit 1 GiB";
char const* const full_line = "pool 'frames': 3 MiB in use in 7 blocks, 8 MiB reserved in 1 chunk, limit 1 GiB; the largest "
                              "live blocks:\n  2 MiB at 0x1000";

} // namespace

TEST_CASE("format: iostreams print sizes, states, spaces and reports") {
    weir::host_pool pool;
    std::ostringstream out;
    out << bytes{1536 * weir::KiB} << '|' << bytes{0} << '|' << some_state(false) << '|' << some_state(true) << '|'
        << weir::memory_space::pinned << '|' << pool.report();
    CHECK(out.str() == "1.50 MiB|0 B|" + std::string(line) + "|" + full_line + "|pinned|" + std::string(pool.report()));
    std::ostringstream aligned;
    aligned << std::setw(8) << std::setfill('.') << bytes{512} << '|' << std::left << std::setw(8)
            << weir::memory_space::host << '|' << bytes{1};
    CHECK(aligned.str() == "...512 B|host....|1 B");
}

namespace {
// A user's loggers, which print whatever they are given.
struct logger {
    std::ostringstream out;
    template <class T>
    logger& operator<<(T const& what) {
        out << what;
        return *this;
    }
};
struct log_stream : std::ostringstream {
    template <class T>
    log_stream& operator<<(T const& what) {
        static_cast<std::ostream&>(*this) << '[' << what << ']';
        return *this;
    }
};
struct sink {
    std::ostringstream out;
};
template <class T>
sink& operator<<(sink& to, T const& what) {
    to.out << what;
    return to;
}
template <class Stream>
std::string printed_by(Stream& stream, std::ostringstream& out) {
    stream << bytes{5};
    stream << weir::memory_space::host;
    stream << some_state(false);
    return out.str();
}
} // namespace

TEST_CASE("format: a class with a '<<' of its own keeps it, and what derives from a stream is one") {
    std::string const all = "5 Bhost" + std::string(line);
    logger own;
    CHECK(printed_by(own, own.out) == all);
    sink free;
    CHECK(printed_by(free, free.out) == all);
    log_stream derived;
    CHECK(printed_by(derived, derived) == "[5 B][host][" + std::string(line) + "]");
    std::wostringstream wide;
    wide << bytes{5};
    CHECK(wide.str() == L"5 B");
    std::ostringstream unpadded; // a text is written unformatted, and the width is that of what comes next
    unpadded << std::setw(5) << weir::text("abc") << 'x';
    CHECK(unpadded.str() == "abc    x");
}

#ifdef FMT_VERSION
TEST_CASE("format: {fmt} prints them with the format of a string") {
    weir::host_pool pool;
    CHECK(fmt::format("{}|{}|{}|{}", bytes{1536 * weir::KiB}, some_state(false), some_state(true),
                      weir::memory_space::device) == "1.50 MiB|" + std::string(line) + "|" + full_line + "|device");
    CHECK(fmt::format("{:>8}|{:.<8}|{:.4}|{}", bytes{512}, weir::memory_space::managed, some_state(false), pool.report()) ==
          "   512 B|managed.|pool|" + std::string(pool.report()));
}
#endif
