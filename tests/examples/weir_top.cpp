// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does 'weir_top' work out rates, peaks and history? What it reads off a board is in tests/trace/watch_board.cpp.

#include "../../examples/weir_top/table.cpp"
#include <cstring>
#include <doctest/doctest.h>

using weir_top::pool_sample;

namespace {

pool_sample sample(std::uint32_t life, std::uint64_t answer, std::uint64_t seconds, std::uint64_t in_use, std::uint64_t blocks) {
    pool_sample one;
    one.life = life;
    one.answers = answer;
    std::strcpy(one.figures.name, "frames\x1b[2J");
    one.figures.device = 1;
    one.figures.time_ns = 1'000'000'000 * (50 + seconds);
    one.figures.in_use_bytes = in_use << 20;
    one.figures.reserved_bytes = 64 << 20;
    one.figures.live_blocks = 3;
    one.figures.taken_blocks = blocks;
    one.figures.given_blocks = blocks / 2;
    one.figures.taken_bytes = blocks << 10;
    weir::base::stream_usage row;
    row.stream = 0x7f00;
    row.taken_blocks = blocks / 4;
    row.free_bytes = 5 << 10;
    one.streams = {row};
    return one;
}

// A row with a blank between its cells.
std::string row_of(weir_top::table const& rows, std::size_t at, std::size_t history = 9) {
    std::string line;
    std::vector<std::string> const all = rows.lines(history);
    for (char const each : all.at(at))
        if (each != ' ' || (!line.empty() && line.back() != ' '))
            line += each;
    return line;
}

} // namespace

TEST_CASE("weir_top: rates are between two answers, the peak and the history are of all") {
    weir_top::table rows;
    rows.add({sample(1, 1, 0, 48, 1000)});
    CHECK(row_of(rows, 1) == "frames?[2J (device 1) 48 MiB 48 MiB 64 MiB - 16 MiB 3 - - - 0 █");
    rows.add({sample(1, 1, 0, 48, 1000)}); // the same answer
    rows.add({sample(1, 2, 4, 12, 9000)});
    CHECK(rows.lines(9).size() == 3);
    CHECK(row_of(rows, 1) == "frames?[2J (device 1) 12 MiB 48 MiB 64 MiB - 52 MiB 3 2k 1k 1.95 MiB 0 █▃");
    CHECK(row_of(rows, 2) == "stream 0x7f00 5 KiB 500 0 0 B");
    CHECK(row_of(rows, 1, 1) == "frames?[2J (device 1) 12 MiB 48 MiB 64 MiB - 52 MiB 3 2k 1k 1.95 MiB 0 █"); // of what is shown
    rows.add({sample(3, 1, 5, 1, 10)}); // another pool in its place
    CHECK(row_of(rows, 1).find(") 1 MiB 1 MiB ") != std::string::npos);
    rows.add({});
    CHECK(rows.lines(9).size() == 1);
}

TEST_CASE("weir_top: pools that have not answered, and figures that are half written") {
    weir_top::table rows;
    pool_sample silent = sample(1, 0, 0, 0, 0);
    rows.add({silent});
    CHECK(rows.lines(9)[1].find("a pool has said nothing yet") == 0);
    pool_sample torn = sample(1, 1, 0, 0, 0);
    torn.torn = true;
    rows.add({torn});
    REQUIRE(rows.lines(9).size() == 2);
    CHECK(rows.lines(9)[1].find("the figures of the pool in place 0 are half written") == 0);
}

TEST_CASE("weir_top: a name is cut between characters, and what is no UTF-8 is not shown") {
    weir_top::table rows;
    pool_sample one = sample(1, 1, 0, 48, 1000);
    std::strcpy(one.figures.name, "\x9b" "2J \xc2\x9b \xe2\x96\x88\xc3\xa9\xe2\x96 ");
    for (int i = 0; i < 10; ++i)
        std::strcat(one.figures.name, "\xe2\x96\x88"); // three bytes
    std::strcat(one.figures.name, "\xf0\x9f\x98\x80\xff");
    one.figures.device = weir::trace::pool_figures::unknown;
    rows.add({one});
    std::string blocks;
    for (int i = 0; i < 10; ++i)
        blocks += "\xe2\x96\x88";
    CHECK(rows.lines(9)[1].find("?2J ?? \xe2\x96\x88\xc3\xa9?? " + blocks + "\xf0\x9f\x98\x80?") == 0);
    one.figures.name[40] = '\0'; // in the midst of a character
    one.answers = 2;
    one.figures.taken_bytes = UINT64_MAX - 1;
    one.figures.time_ns += 1; // whatever stands there
    rows.add({one});
    CHECK(rows.lines(9)[1].find(" EiB") != std::string::npos);
}

TEST_CASE("weir_top: numbers of a few characters") {
    for (auto const& [value, due] : {std::pair(0.0, "0"), std::pair(7.0, "7"), std::pair(7.25, "7.25"), std::pair(999.0, "999"),
                                     std::pair(1000.0, "1k"), std::pair(12345.0, "12.3k"), std::pair(4.56e6, "4.56M"), std::pair(2e30, "2000000000000E")})
        CHECK(weir_top::short_number(value) == due);
}
