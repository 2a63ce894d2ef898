// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who gets the sentence about a mistake, and how does it begin?
//
// A handler gets it: a function, which prints it, or ends the program, or does what the program wants. The sentence names the
// pool, if the pool tells its name and the host has memory for that.
//
// cost:      a text; mistakes only.

#include <cstdio>
#include <cstdlib>
#include <weir/base/text.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_options.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Gets the sentence about a mistake. It may abort; it must not throw.
using violation_handler = void (*)(char const* sentence);

/// The default: prints the sentence to stderr.
inline void print_violation(char const* sentence) {
    std::fprintf(stderr, "%s\n", sentence);
}

/// Prints the sentence and calls std::abort.
inline void abort_on_violation(char const* sentence) {
    print_violation(sentence);
    std::abort();
}

namespace detail {
/// The handler that the pool's options ask for. Throws as the pool's 'on_violation'.
template <class Pool>
violation_handler usual_handler([[maybe_unused]] Pool const& pool) {
    if constexpr (contract::holds<contract::has_on_violation, Pool>)
        if (pool.on_violation() == violation_action::abort)
            return &abort_on_violation;
    return &print_violation;
}

/// Tells `handler` of a mistake that was made with `pool`. `complaint`: empty if the host had no memory for it; then the
/// handler gets `without_memory`.
template <class Pool>
void tell_violation(violation_handler handler, Pool const& pool, text const& complaint, char const* without_memory) noexcept {
    text said;
    try {
        if (!complaint.empty()) {
            said = "weir: layer::guard: " + complaint;
            said = "weir: layer::guard: pool '" + pool.state().name + "': " + complaint;
        }
    } catch (...) { // no host memory for the sentence, or the pool does not tell its name
    }
    handler(said.empty() ? without_memory : said.c_str());
}
} // namespace detail

} // namespace layer
} // namespace v0
} // namespace weir
