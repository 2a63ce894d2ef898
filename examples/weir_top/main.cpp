// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Looks into the pools of a running program: rows by pool and stream, rates, peaks, history, and a dump for later.
//
//     weir_top                        the boards of running programs
//     weir_top 1234                   the program of process 1234, until 'q'; 'd' asks for a dump
//     weir_top server                 the program whose board has that name
//     weir_top --once 1234            a table, for logs
//     weir_top --dump now.weir 1234   a dump: a recording if the program records, else its pools' reports
//
// The program makes a weir::trace::watch_board and wraps its pools in weir::layer::watch; 29_watch.cpp is one. It answers in its
// next allocation, or when it calls the board's 'poll'. Exit codes: 0; 1, the program did not do what was asked for;
// 2, what was given cannot be used. The sentence on stderr says why.
//
// Libraries: CLI11 (headers), and ncurses for the screen; '--once' and '--dump' need none.

#include "board_view.hpp"
#include "screen.hpp"
#include "table.hpp"
#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace weir_top {
namespace {

using std::chrono::milliseconds;
using clock_type = std::chrono::steady_clock;
constexpr int success = 0, failed = 1, cannot_be_used = 2;
constexpr milliseconds patience{10'000}; // for a program to answer

int list() {
    std::vector<std::string> const all = segments();
    if (all.empty())
        std::puts("no program here has a board: one makes a 'weir::trace::watch_board', and wraps its pools in 'weir::layer::watch'");
    for (std::string const& each : all)
        try {
            board_view const board(each);
            if (board.is_alive())
                std::printf("%-10llu %-30s %s  %s\n", static_cast<unsigned long long>(board.process()), board.name().c_str(),
                            weir::base::count_text(board.read().size() + board.pools_without_place(), " pool").c_str(), each.c_str());
            else
                std::printf("weir_top: %s\n", board.ended_text().c_str());
        } catch (unusable const& error) {
            std::printf("weir_top: %s\n", error.what());
        }
    return success;
}

// Whether `is_so` came true while the program lives and patience lasts.
template <class IsSo>
bool waited_for(board_view const& board, milliseconds most, IsSo const& is_so) {
    for (auto const begin = clock_type::now(); !is_so(); std::this_thread::sleep_for(milliseconds(2)))
        if (!board.is_alive() || clock_type::now() - begin > most)
            return is_so();
    return true;
}

// Asks, and gives the program some time to answer for each pool. False: some did not.
bool ask(board_view& board, table& rows, milliseconds most) {
    std::vector<pool_sample> const before = board.read();
    board.ask();
    bool const all = waited_for(board, most, [&] {
        for (pool_sample const& now : board.read())
            for (pool_sample const& then : before)
                if (now.place == then.place && now.life == then.life && now.answers == then.answers)
                    return false;
        return true;
    });
    rows.add(board.read());
    return all;
}

int print_once(board_view& board, milliseconds every) {
    table rows;
    bool const first = ask(board, rows, patience / 5);
    if (first)
        std::this_thread::sleep_for(every);
    bool const all = first && ask(board, rows, patience / 5);
    std::printf("%s (process %llu)\n", board.name().c_str(), static_cast<unsigned long long>(board.process()));
    for (std::string const& line : rows.lines(20))
        std::puts(line.c_str());
    if (board.pools_without_place() != 0)
        std::printf("and %s\n", board.without_place_text().c_str());
    if (!board.is_alive())
        throw unusable(board.ended_text());
    if (!all)
        std::fprintf(stderr, "weir_top: some pools did not answer: they do so in their next allocation, or in the board's 'poll'; "
                             "what they said before is shown\n");
    return all ? success : failed;
}

int dump(board_view& board, std::string const& path) {
    using weir::trace::dump_state;
    board.ask_dump(path);
    auto const is_done = [&] { return board.dump_now() == dump_state::written || board.dump_now() == dump_state::failed; };
    bool const done = waited_for(board, patience, is_done);
    bool const written = done && board.dump_now() == dump_state::written;
    board.end_dump();
    if (written)
        std::printf("'%s' is written: %s\n", path.c_str(), board.dump_said().c_str());
    else if (done)
        std::fprintf(stderr, "weir_top: %s\n", board.dump_said().c_str());
    else if (!board.is_alive())
        throw unusable(board.ended_text());
    else
        std::fprintf(stderr, "weir_top: the program has not written '%s' yet: it does so in its next allocation, or in the board's "
                             "'poll'\n", path.c_str());
    return written ? success : failed;
}

// Somebody made the segment shorter while it is looked at: its memory is not there any more.
void tell_of_a_cut_segment(int) {
    static char const said[] = "weir_top: the board was cut off while it was read; its program cannot be watched any more\n";
    close_screen();
    ::_exit(::write(STDERR_FILENO, said, sizeof said - 1) > 0 ? cannot_be_used : failed);
}

int run(int argc, char** argv) {
    std::string given, path;
    double seconds = 1;
    bool once = false;
    CLI::App app{"Looks into the pools of a running program: rows by pool and stream, rates, peaks, history, and a dump for later.",
                 "weir_top"};
    app.add_option("BOARD", given, "A process's number, or a board's name as the list shows it; without it all boards are listed");
    app.add_flag("--once", once, "Print a table and end, as it also does where the output is no terminal");
    app.add_option("--dump", path, "Have the program write a dump there: a recording if it records, else its pools' reports");
    app.add_option("--every", seconds, "Seconds between two looks (1)")->check(CLI::Range(0.01, 3600.0));
    CLI11_PARSE(app, argc, argv);
    if (given.empty())
        return list();
    board_view board(segment_of(given));
    if (!board.is_alive())
        throw unusable(board.ended_text());
    auto const every = milliseconds(static_cast<long>(seconds * 1000));
    if (!path.empty())
        return dump(board, std::filesystem::absolute(path));
    if (once || ::isatty(STDOUT_FILENO) == 0)
        return print_once(board, every);
    std::string const last = show(board, every);
    if (!last.empty())
        std::fprintf(stderr, "weir_top: %s\n", last.c_str());
    return success;
}

} // namespace
} // namespace weir_top

int main(int argc, char** argv) {
    std::signal(SIGBUS, weir_top::tell_of_a_cut_segment);
    try {
        return weir_top::run(argc, argv);
    } catch (weir_top::unusable const& error) {
        std::fprintf(stderr, "weir_top: %s\n", error.what());
        return weir_top::cannot_be_used;
    } catch (std::exception const& error) {
        std::fprintf(stderr, "weir_top: %s\n", error.what());
        return weir_top::failed;
    }
}
