// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdlib>
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

TEST_CASE("function_names: whose a symbol is, and whether a plain name is that of it") {
    struct {
        char const *symbol, *plain;
        bool is_weirs, is_called;
    } const cases[] = {
        {"_ZN4weir2v04stepEv", "step", true, true},
        {"_ZNK4weir2v01x4stepEv", "x", true, true},
        {"_ZZNK4weir2v04stepEvENKUlvE_clEv", "operator()", true, false},
        {"_ZN5other4weirEv", "weir", false, true},
        {"_ZSt4weirv", "weir", false, true},
        {"main", "main", false, true},
        {"main", "", false, false},
        {"", "", false, false},
        {"", "step", false, false},
        {"_Z4stepi", "step", false, true},
        {"_Z5stepsi", "step", false, false},
    };
    for (auto const& each : cases) {
        CAPTURE(each.symbol);
        function const one{each.symbol, ""};
        CHECK(one.is_weirs() == each.is_weirs);
        CHECK(one.is_called(each.plain) == each.is_called);
    }
}
