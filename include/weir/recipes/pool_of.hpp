// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is a recipe's pool, beside its parts?
//
// Each recipe is a class over its parts, with their constructors and members and none of its own, so that fwd.hpp can declare
// it ahead and its name stays short. It is made by a template, 'recipes::pool_of', because the compiler then does the work of
// the class only where a program uses that recipe. If WEIR_GUARD is 1, it wears layer::guard, which catches wrong frees with a
// sentence. It is 1 in debug builds (no NDEBUG) and 0 in others, unless you say which: -DWEIR_GUARD=0 or =1.
//
// invariant: the files of one program, or of one shared library, agree in WEIR_GUARD, or the linker refuses them: a pool that
//            they share would be of two types.
// cost:      as its parts document.
// not for:   pools of your own: write 'weir::pool', and layer::guard around it if you like.

#include <type_traits>
#include <weir/fwd.hpp>
#include <weir/layer/guard.hpp>

namespace weir {
inline namespace v0 {

namespace detail {
template <int Guard>
struct guard_setting;

// Nobody calls this function. It defines a name for the linker. If all files have the same setting, the linker keeps one copy
// of the function, and one definition. With two settings there are two functions, and the name is defined twice: linkers refuse
// that and print the name. It is hidden, so that shared libraries may differ. It stands inside of a function because clang's
// link-time optimization takes equal definitions outside of any function for a conflict.
[[gnu::used, gnu::noinline, gnu::visibility("hidden")]] inline void agree(guard_setting<WEIR_GUARD>*) noexcept {
    asm volatile(".globl weir_files_differ_in_WEIR_GUARD\n"
                 ".hidden weir_files_differ_in_WEIR_GUARD\n"
                 "weir_files_differ_in_WEIR_GUARD:"
                 :
                 : "i"(WEIR_GUARD));
}
} // namespace detail

namespace recipes {

/// A pool made by `Recipe`: its parts, in layer::guard if `Guarded`. It has their constructors and members and none of its own.
template <class Recipe, bool Guarded>
class pool_of : public std::conditional_t<Guarded, layer::guard<typename Recipe::parts>, typename Recipe::parts> {
public:
    using parts = std::conditional_t<Guarded, layer::guard<typename Recipe::parts>, typename Recipe::parts>;
    using parts::parts;
    pool_of() = default;
    pool_of(pool_of const&) = delete; // weir: pools are neither copied nor moved: hold them in a std::unique_ptr
    pool_of& operator=(pool_of const&) = delete;
};

} // namespace recipes
} // namespace v0
} // namespace weir
