// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The screen, by ncurses. Without that library it says so.

#include "screen.hpp"

#ifndef WEIR_TOP_SCREEN

namespace weir_top {

std::string show(board_view&, std::chrono::milliseconds) {
    throw unusable("this weir_top was built without ncurses (Debian: libncurses-dev); '--once' needs none");
}
void close_screen() {}

} // namespace weir_top

#else

#include "table.hpp"
#include <clocale>
#include <curses.h>
#include <filesystem>
#include <string>

namespace weir_top {
namespace {

struct terminal {
    explicit terminal(std::chrono::milliseconds every) {
        std::setlocale(LC_ALL, "");
        initscr();
        cbreak();
        noecho();
        curs_set(0);
        keypad(stdscr, TRUE);
        timeout(static_cast<int>(every.count()));
    }
    ~terminal() { endwin(); }
};

std::string dump_text(board_view& board, std::string const& path) {
    using weir::trace::dump_state;
    switch (board.dump_now()) {
    case dump_state::asked: return "a dump is asked for: the program writes it in its next allocation, or in 'poll'";
    case dump_state::writing: return "the program writes '" + path + "'";
    case dump_state::written: return "'" + path + "' is written: " + board.dump_said();
    case dump_state::failed: return board.dump_said();
    case dump_state::none: break;
    }
    return "";
}

} // namespace

void close_screen() {
    if (stdscr && !isendwin())
        endwin();
}

std::string show(board_view& board, std::chrono::milliseconds every) {
    terminal const shown(every);
    table rows;
    std::string path, said;
    for (int dumps = 0;;) {
        if (!board.is_alive())
            return board.ended_text();
        rows.add(board.read());
        board.ask();
        erase();
        int y = 0;
        mvprintw(y++, 0, "%s (process %llu)   q: quit   d: dump   %s", board.name().c_str(),
                 static_cast<unsigned long long>(board.process()), said.c_str());
        if (!path.empty())
            mvaddnstr(y, 0, dump_text(board, path).c_str(), COLS);
        ++y;
        constexpr int columns_before = 140;
        std::size_t const history = COLS > columns_before + 8 ? static_cast<std::size_t>(COLS - columns_before) : 8;
        for (std::string const& line : rows.lines(history)) {
            if (y == 2)
                attron(A_BOLD);
            mvaddstr(y++, 0, line.c_str());
            attroff(A_BOLD);
        }
        if (board.pools_without_place() != 0)
            mvprintw(y, 0, "and %s", board.without_place_text().c_str());
        refresh();
        int const key = getch(); // or nothing for so long as 'every'
        if (key == 'q')
            return "";
        if (key == 'd')
            try {
                std::string const file = "weir-" + std::to_string(board.process()) + "-" + std::to_string(++dumps) + ".weir";
                path = std::filesystem::absolute(file);
                board.ask_dump(path);
                said = "";
            } catch (unusable const& error) {
                path = "";
                said = error.what();
            }
    }
}

} // namespace weir_top

#endif
