// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <algorithm>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <string>
#include <support/failing_new.hpp>
#include <vector>
#include <weir/trace/call_stacks.hpp>

using weir::call_site;
using weir::trace::call_stacks;
using weir::trace::name_table;

namespace {

// Calls that no compiler takes out of the stack.
#define KEEP __asm__ volatile("" ::: "memory")
template <class Stacks>
[[gnu::noinline]] std::uint32_t asks(Stacks& stacks, name_table& names, call_site const& where) {
    std::uint32_t const number = stacks.site_of(names, where);
    KEEP;
    return number;
}
template <class Stacks>
[[gnu::noinline]] std::uint32_t calls(Stacks& stacks, name_table& names, call_site const& where) {
    std::uint32_t const number = asks(stacks, names, where);
    KEEP;
    return number;
}

// What stands at a number and at its callers, the innermost first.
std::vector<std::string> chain(name_table const& names, std::uint32_t number) {
    std::vector<std::string> all;
    for (; number != 0; number = names[number].caller) {
        weir::trace::frame const at = names[number];
        all.push_back(std::string(at.function) + (at.file.empty() ? "" : std::string(" ") + at.file.c_str()));
    }
    return all;
}
bool has(std::string const& text, char const* part) {
    return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("call_stacks: the line that asks, and the functions that called it, to the outermost") {
    struct {
        call_site where;
        std::vector<char const*> expected; // parts of the innermost frames
    } const cases[] = {
        {call_site::of("a.cpp", "asks", 7), {"asks a.cpp", "calls<"}}, // in the place of its function
        {call_site::of("a.cpp", "inlined", 7), {"inlined a.cpp", "asks<", "calls<"}},
        {call_site::unknown(), {"asks<", "calls<"}},
    };
    for (auto const& each : cases) {
        name_table names;
        call_stacks<> stacks;
        std::vector<std::string> const all = chain(names, calls(stacks, names, each.where));
        REQUIRE(all.size() > each.expected.size());
        for (std::size_t i = 0; i < each.expected.size(); ++i)
            CHECK(has(all[i], each.expected[i]));
        CHECK(std::find(all.begin(), all.end(), "main") != all.end());
    }
}

TEST_CASE("call_stacks: one stack has one number, and two share what they have in common") {
    name_table names;
    call_stacks<> stacks;
    std::uint32_t number[3] = {};
    std::size_t frames = 0;
    for (std::uint32_t& each : number) { // at the third, from another line
        frames = names.size();
        each = calls(stacks, names, call_site::of("a.cpp", "asks", &each == number + 2 ? 8 : 7));
    }
    CHECK(number[0] == number[1]);
    CHECK(number[2] != number[0]);
    CHECK(names.size() == frames + 1);
    CHECK(names[number[2]].caller == names[number[0]].caller);
    std::uint32_t const other = asks(stacks, names, call_site::of("a.cpp", "asks", 7)); // by another caller
    CHECK(other != number[0]);
    CHECK(names[other].line == 7);
}

TEST_CASE("call_stacks: a stack has its number also after a library was unloaded") {
    name_table names;
    call_stacks<> stacks;
    std::uint32_t const before = calls(stacks, names, call_site::unknown());
    std::size_t const frames = names.size();
    void* const library = dlopen("libresolv.so.2", RTLD_NOW);
    REQUIRE(library);
    dlclose(library);
    for (int turn = 0; turn < 2; ++turn)
        CHECK(names[calls(stacks, names, call_site::unknown())].function == names[before].function);
    CHECK(names.size() <= 2 * frames);
}

TEST_CASE("call_stacks: walks so many frames and no more") {
    name_table names;
    call_stacks<1> own;
    CHECK(calls(own, names, call_site::unknown()) == 0); // it is weir's
    CHECK(chain(names, calls(own, names, call_site::of("a.cpp", "asks", 7))) == std::vector<std::string>{"asks a.cpp"});
    call_stacks<3> few;
    CHECK(chain(names, calls(few, names, call_site::unknown())).size() == 2);
}

TEST_CASE("call_stacks: without host memory the line stands alone, and has its stack later") {
    if (!support::host_memory_can_fail)
        return;
    for (long successes = 0;; ++successes) {
        name_table names;
        call_stacks<> stacks;
        std::uint32_t number = 0;
        {
            support::failing_new const fails(successes);
            number = calls(stacks, names, call_site::of("a.cpp", "asks", 7));
        }
        std::size_t const depth = chain(names, number).size();
        CHECK(number <= names.size());
        std::uint32_t const later = calls(stacks, names, call_site::of("a.cpp", "asks", 7));
        CHECK(chain(names, later).size() > 2);
        if (depth > 2)
            break;
    }
}
