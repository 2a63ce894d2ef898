// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which line of the program made a call?
//
// A function that wants to know takes a 'call_site' as its last argument, whose default is 'call_site::here()'. The compiler
// fills in the file, the function and the line of whoever calls, as std::source_location does, which is C++20's.
//
//     void* allocate(stream_ref stream, std::size_t bytes, call_site where = call_site::here());
//
// invariant: the texts are literals of the program, never null.
// cost:      three constants for a callee that uses them; nothing for one that is inlined and does not.
// not for:   whole call stacks.

namespace weir {
inline namespace v0 {

/// A place in the program's source. No list in braces makes one, so that '{}' and '{0, 0}' stay what they are to overloads that
/// take a value of another type in its place.
class call_site {
public:
    char const* file;
    char const* function;
    unsigned line; ///< 0: not known

    /// The place of the call whose argument this is the default of.
    static constexpr call_site here(char const* file = __builtin_FILE(), char const* function = __builtin_FUNCTION(),
                                    unsigned line = __builtin_LINE()) noexcept {
        return of(file, function, line);
    }
    /// One that is known from elsewhere, whose texts are literals.
    static constexpr call_site of(char const* file, char const* function, unsigned line) noexcept {
        return call_site(named(), file, function, line);
    }
    /// No place.
    static constexpr call_site unknown() noexcept { return of("", "", 0); }

private:
    struct named {};
    constexpr call_site(named, char const* in, char const* by, unsigned at) noexcept : file(in), function(by), line(at) {}
};

} // namespace v0
} // namespace weir
