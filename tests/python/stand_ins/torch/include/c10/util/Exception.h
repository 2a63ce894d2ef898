// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What the plug-in needs of PyTorch's header of this name: an exception that is made from a place and a text. Its constructor
// lies in libc10, as there.

#include <cstdint>
#include <stdexcept>
#include <string>

namespace c10 {

struct SourceLocation {
    char const* function;
    char const* file;
    std::uint32_t line;
};

class [[gnu::visibility("default")]] OutOfMemoryError : public std::runtime_error {
public:
    OutOfMemoryError(SourceLocation place, std::string const& said);
};

} // namespace c10
