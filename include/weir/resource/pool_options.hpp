// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What may a user set on a pool at run time?
//
// A name, a limit, and what happens when the pool ends while blocks are still out. Everything else about a pool
// is its type. Options are set in a chain: pool_options{}.limit(8 * GiB).name("frames").
//
// cost:      a text and two words, copied once.
// not for:   the choice of policies: those are template arguments.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {

/// What a pool does in its destructor when blocks are still handed out.
enum class leak_action : unsigned char {
    report, ///< a sentence on stderr; the memory goes back to the upstream
    abort,  ///< the sentence, then std::abort
    ignore  ///< nothing; the memory goes back to the upstream
};

class pool_options {
public:
    /// The most bytes that the pool may hold from its upstream; SIZE_MAX, the default: no limit.
    pool_options& limit(std::size_t bytes) noexcept {
        limit_bytes_ = bytes;
        return *this;
    }
    /// The pool's name in reports and errors.
    pool_options& name(text name) {
        name_ = std::move(name);
        return *this;
    }
    /// What happens to a pool that ends with live blocks; `report` by default.
    pool_options& on_leak(leak_action action) noexcept {
        on_leak_ = action;
        return *this;
    }

    std::size_t limit_bytes() const noexcept { return limit_bytes_; }
    text const& name() const noexcept { return name_; }
    leak_action on_leak() const noexcept { return on_leak_; }

private:
    std::size_t limit_bytes_ = static_cast<std::size_t>(-1);
    text name_ = "unnamed";
    leak_action on_leak_ = leak_action::report;
};

/// Of a pool that ends: says on stderr that blocks are live, if any are, and does what `action` asks for. `bytes`: theirs;
/// 0: not known.
inline void tell_leaks(char const* name, leak_action action, std::size_t blocks, std::size_t bytes) noexcept {
    if (blocks == 0 || action == leak_action::ignore)
        return;
    char bytes_in[40] = "";
    if (bytes != 0)
        static_cast<void>(std::snprintf(bytes_in, sizeof bytes_in, "%zu byte%s in ", bytes, bytes == 1 ? "" : "s"));
    // In one piece: pools may end on several threads at a time.
    std::fprintf(stderr, "weir: pool '%s' ends with %s%zu block%s still handed out; free %s before the pool\n",
                 name, bytes_in, blocks, blocks == 1 ? "" : "s",
                 blocks == 1 ? "it, or end its container," : "them, or end their containers,");
    if (action == leak_action::abort)
        std::abort();
}

} // namespace v0
} // namespace weir
