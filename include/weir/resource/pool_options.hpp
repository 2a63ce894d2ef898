// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What may a user set on a pool at run time?
//
// A name, a device, a limit, what it holds from the start, and what happens when something is amiss. Everything else about a
// pool is its type. Options are set in a chain: pool_options{}.limit(8 * GiB).name("frames").
//
// cost:      a text and a few words, copied once.
// not for:   the choice of policies: those are template arguments.

#include <cstddef>
#include <cstdio>
#include <type_traits>
#include <utility>
#include <weir/base/stand_ins.hpp>
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

/// What the layer::guard of a recipe does with a wrong free. Without the guard nobody looks for wrong frees.
enum class violation_action : unsigned char {
    report, ///< a sentence on stderr; the free goes no further
    abort   ///< the sentence, then std::abort
};

/// What a pool is told when it is made: its name, limit and device, and what happens where a block is never freed or freed
/// wrongly. Each setter returns the options: `pool_options{}.limit(8 * GiB).name("frames")`.
class pool_options {
public:
    pool_options() = default;
    /// Refused: a number does not say what it limits.
    template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
    pool_options(Number) {
        static_assert(sizeof(Number) == 0, "weir: a pool takes numbers by name: 'pool_options{}.limit(bytes)', "
                                           "'pool_options{}.reserve(bytes)'");
    }

    /// Refused: a text does not say that it is the name.
    template <class Character, std::enable_if_t<std::is_same_v<Character, char>, int> = 0>
    pool_options(Character const*) {
        static_assert(sizeof(Character) == 0, "weir: a pool takes its name in its options: 'pool_options{}.name(text)'");
    }

    /// The number of the device that the memory lies on; any_device, the default: the device current when the pool is made.
    pool_options& device(int number) noexcept {
        device_ = number;
        return *this;
    }
    /// The most bytes that the pool may hold from its upstream; SIZE_MAX, the default: no limit.
    pool_options& limit(std::size_t bytes) noexcept {
        limit_bytes_ = bytes;
        return *this;
    }
    /// Bytes that the pool gets from its upstream as it begins; see 'reserve' of pools. 0 by default.
    pool_options& reserve(std::size_t bytes) noexcept {
        reserve_bytes_ = bytes;
        return *this;
    }
    /// The pool's name in reports and errors.
    pool_options& name(text name) {
        name_ = std::move(name);
        return *this;
    }
    /// What happens when the pool ends while blocks are handed out; `report` by default.
    pool_options& on_leak(leak_action action) noexcept {
        on_leak_ = action;
        return *this;
    }
    /// What happens if a block is freed wrongly and layer::guard sees it; `report` by default.
    pool_options& on_violation(violation_action action) noexcept {
        on_violation_ = action;
        return *this;
    }

    int device() const noexcept { return device_; }
    std::size_t limit_bytes() const noexcept { return limit_bytes_; }
    std::size_t reserve_bytes() const noexcept { return reserve_bytes_; }
    text const& name() const noexcept { return name_; }
    leak_action on_leak() const noexcept { return on_leak_; }
    violation_action on_violation() const noexcept { return on_violation_; }

private:
    int device_ = any_device;
    std::size_t limit_bytes_ = static_cast<std::size_t>(-1);
    std::size_t reserve_bytes_ = 0;
    text name_ = "unnamed";
    leak_action on_leak_ = leak_action::report;
    violation_action on_violation_ = violation_action::report;
};

namespace resource {
/// For a pool that ends: if blocks are still handed out, says so on stderr and does what `action` asks for. `bytes`: the sum of
/// their bytes; 0: not known.
inline void tell_leaks(char const* name, leak_action action, std::size_t blocks, std::size_t bytes) noexcept {
    if (blocks == 0 || action == leak_action::ignore)
        return;
    char bytes_in[40] = "";
    if (bytes != 0)
        static_cast<void>(std::snprintf(bytes_in, sizeof bytes_in, "%zu byte%s in ", bytes, bytes == 1 ? "" : "s"));
    // One call, so that the lines of several threads do not mix.
    std::fprintf(stderr, "weir: pool '%s' ends with %s%zu block%s still handed out; free %s before the pool\n",
                 name, bytes_in, blocks, blocks == 1 ? "" : "s",
                 blocks == 1 ? "it, or end its container," : "them, or end their containers,");
    if (action == leak_action::abort)
        __builtin_abort(); // <cstdlib> takes a tenth of the compile time that an empty file has
}

/// Says on stderr what is wrong with a free, and does what `Action` asks for.
template <violation_action Action>
void tell_violation(char const* sentence) {
    std::fprintf(stderr, "%s\n", sentence);
    if (Action == violation_action::abort)
        __builtin_abort();
}
} // namespace resource

} // namespace v0
} // namespace weir
