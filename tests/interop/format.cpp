// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// {fmt} where it is installed (Debian: libfmt-dev); std::format where the compiler has it.

#if __has_include(<fmt/format.h>)
#define FMT_HEADER_ONLY
#include <fmt/format.h>
#include <fmt/ranges.h> // for which a text is a range too
#endif
#if __has_include(<version>)
#include <version>
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

struct logger {
    int seen = 0;
    logger& operator<<(char const*) { return *this; }
    template <class T>
    logger& operator<<(T const&) {
        return ++seen, *this;
    }
};

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

TEST_CASE("format: a program's own class that prints anything goes on doing so") {
    logger log;
    log << some_state(false) << weir::memory_space::pinned << bytes{1};
    CHECK(log.seen == 3);
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

#ifdef __cpp_lib_format
TEST_CASE("format: std::format prints them with the format of a string") {
    CHECK(std::format("{}|{:>8}|{}", some_state(true), bytes{512}, weir::memory_space::device) ==
          std::string(full_line) + "|   512 B|device");
}
#endif
