// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdlib>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <string>
#include <weir/trace/call_stacks/function_names.hpp>

using weir::trace::detail::function;
using weir::trace::detail::function_names;

namespace {

int data = 1;
[[gnu::noinline]] int named(int more) {
    return data += more;
}

} // namespace

TEST_CASE("function_names: of this program, of a library, of weir, and of what is no function") {
    struct {
        std::uintptr_t address;
        char const *symbol, *name; // what they begin with
        bool is_weirs;
    } const cases[] = {
        {reinterpret_cast<std::uintptr_t>(&named), "_ZN12_GLOBAL__N_15named", "(anonymous namespace)::named(int)", false},
        {reinterpret_cast<std::uintptr_t>(&getenv), "getenv", "getenv", false},
        {reinterpret_cast<std::uintptr_t>(&weir::base::number_text), "_ZN4weir", "weir::v0::base::number_text(unsigned long)", true},
        {reinterpret_cast<std::uintptr_t>(&data), "", "program+0x", false},
        {16, "", "program+0x10", false}, // in no module
    };
    named(2);
    function_names names;
    for (int turn = 0; turn < 2; ++turn)
        for (auto const& each : cases) {
            CAPTURE(each.name);
            function const& found = names.at(each.address);
            CHECK(std::string(found.symbol).rfind(each.symbol, 0) == 0);
            CHECK((*each.symbol != '\0' || found.symbol.empty()));
            CHECK(std::string(found.name).rfind(each.name, 0) == 0);
            CHECK(found.is_weirs() == each.is_weirs);
        }
}

TEST_CASE("function_names: what a module called its addresses is forgotten once it was unloaded") {
    function_names names;
    void* const library = dlopen("libresolv.so.2", RTLD_NOW);
    REQUIRE(library);
    auto const address = reinterpret_cast<std::uintptr_t>(dlsym(library, "__b64_ntop"));
    CHECK(std::string(names.at(address).name) == "__b64_ntop");
    names.forget_unloaded();
    CHECK_FALSE(names.forget_unloaded());
    CHECK(std::string(names.at(address).name) == "__b64_ntop");
    dlclose(library);
    CHECK(names.forget_unloaded());
    CHECK(std::string(names.at(address).name) != "__b64_ntop");
}

TEST_CASE("function_names: whose a symbol is") {
    struct {
        char const* symbol;
        bool is_weirs;
    } const cases[] = {
        {"_ZN4weir2v04stepEv", true}, {"_ZNK4weir2v01x4stepEv", true}, {"_ZZNK4weir2v04stepEvENKUlvE_clEv", true},
        {"_ZN5other4weirEv", false},  {"_ZSt4weirv", false},           {"main", false},
        {"", false},
    };
    for (auto const& each : cases) {
        CAPTURE(each.symbol);
        CHECK(function{each.symbol, ""}.is_weirs() == each.is_weirs);
    }
}

TEST_CASE("function_names: whether a plain name is that of a function") {
    struct {
        char const *name, *plain;
        bool is_called;
    } const cases[] = {
        {"main", "main", true},
        {"main", "", false},
        {"main", "in", false},
        {"", "", false},
        {"", "main", false},
        {"step(int)", "step", true},
        {"step(void (*)(int))", "step", true},
        {"steps(int)", "step", false},
        {"_4step(int)", "step", false}, // mangled '_Z6_4stepi', which has '4step' in it
        {"last_step(int)", "step", false},
        {"std::step()", "step", true},
        {"(anonymous namespace)::step()", "step", true},
        {"weir::v0::x::step() const", "step", true},
        {"weir::v0::x::step() const", "x", false},
        {"weir::v0::step::run()", "step", false},
        {"weir::v0::x::x(int)", "x", true},
        {"weir::v0::x::~x()", "~x", true},
        {"int x<step>::run<step>(step)", "run", true},
        {"int x<step>::run<step>(step)", "step", false},
        {"step run<int>(int)", "step", false},
        {"main::{lambda(auto:1)#2}::operator()<double>(double) const [clone .constprop.0]", "operator()", true},
        {"main::{lambda(auto:1)#2}::operator()<double>(double) const [clone .constprop.0]", "main", false},
        {"step[abi:cxx11]()", "step", true},
        {"bool operator><int>(int)", "operator>", true},
        {"x::operator->()", "operator->", true},
        {"run>(int)", "run", false}, // no name, and nothing runs astray
        {"run)", "run", false},
    };
    for (auto const& each : cases) {
        CAPTURE(each.name);
        CAPTURE(each.plain);
        CHECK(function{"", each.name}.is_called(each.plain) == each.is_called);
    }
}
