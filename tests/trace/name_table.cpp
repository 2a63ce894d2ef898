// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <set>
#include <support/failing_new.hpp>
#include <thread>
#include <vector>
#include <weir/trace/name_table.hpp>

using weir::call_site;
using weir::trace::name_table;

TEST_CASE("name_table: one number for one line, and the texts behind it") {
    name_table names;
    static char const file[] = "a.cpp";
    static char const other_file[] = "b.cpp";
    CHECK(names.number_of(call_site::unknown()) == 0);
    CHECK(names.number_of(call_site::of(file, "f", 10)) == 1);
    CHECK(names.number_of(call_site::of(file, "f", 11)) == 2);
    CHECK(names.number_of(call_site::of(other_file, "f", 10)) == 3);
    CHECK(names.number_of(call_site::of(file, "f", 10)) == 1);
    std::vector<char> const copy(file, file + sizeof file); // the same text elsewhere
    CHECK(names.number_of(call_site::of(copy.data(), "f", 10)) == 1);
    CHECK(names.size() == 3);
    CHECK(names[3].file == "b.cpp");
    CHECK(names[3].function == "f");
    CHECK(names[3].line == 10);
    CHECK(names[3].caller == 0);
}

TEST_CASE("name_table: stacks share the frames that they have in common, and a scope is a frame") {
    name_table names;
    std::uint32_t const main = names.number_of(0, "m.py", "main", 1);
    std::uint32_t const step = names.number_of(main, "m.py", "step", 2);
    CHECK(names.number_of(main, "m.py", "step", 2) == step);
    CHECK(names.number_of(0, "m.py", "step", 2) != step);
    CHECK(names[step].caller == main);
    std::uint32_t const scope = names.number_of_scope("forward \"<b>\"");
    CHECK(names.number_of_scope("forward \"<b>\"") == scope);
    CHECK(names[scope].function == "forward \"<b>\"");
    CHECK(names[scope].line == 0);
}

TEST_CASE("name_table: each caller and line of one function is a frame of its own") {
    name_table names;
    std::uint32_t expected = 0;
    for (std::uint32_t caller = 0; caller < 40; ++caller)
        for (std::uint32_t line = 0; line < 40; ++line)
            CHECK(names.number_of(caller, "m.py", "step", line) == ++expected);
}

TEST_CASE("name_table: lines beyond those that it has room for have no name") {
    name_table names;
    for (unsigned line = 1; line <= name_table::most_call_sites; ++line)
        CHECK(names.number_of(call_site::of("a.cpp", "", line)) == line);
    CHECK(names.number_of(call_site::of("a.cpp", "", 60000)) == 0);
    CHECK(names.number_of(call_site::of("a.cpp", "", 17)) == 17);
    CHECK(names.number_of_scope("there is room for scopes") != 0);
}

TEST_CASE("name_table: lines of one file from 65535 on are one") {
    name_table names;
    CHECK(names.number_of(call_site::of("a.cpp", "", 65535)) == names.number_of(call_site::of("a.cpp", "", 100000)));
}

TEST_CASE("name_table: without host memory a line has no name, and has one later") {
    if (!support::host_memory_can_fail)
        return;
    for (long successes = 0;; ++successes) {
        name_table names;
        std::uint32_t number = 0;
        {
            support::failing_new const fails(successes);
            number = names.number_of(call_site::of("a.cpp", "f", 3));
        }
        CHECK(names.size() == number);
        CHECK(names.number_of(call_site::of("a.cpp", "f", 3)) == 1);
        CHECK(names[1].function == "f");
        if (number != 0)
            break;
    }
}

TEST_CASE("name_table: threads get the same numbers") {
    name_table names;
    std::vector<std::vector<std::uint32_t>> got(4);
    std::vector<std::thread> threads;
    for (auto& mine : got)
        threads.emplace_back([&names, &mine] {
            for (unsigned line = 1; line <= 200; ++line)
                mine.push_back(names.number_of(call_site::of("a.cpp", "", line)));
        });
    for (std::thread& each : threads)
        each.join();
    for (auto const& mine : got) {
        CHECK(mine == got[0]);
        for (std::size_t i = 0; i < mine.size(); ++i)
            CHECK(names[mine[i]].line == i + 1);
    }
    CHECK(names.size() == 200);
}
