// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What a piece of a test writes to standard error, as text.

#include <cstdio>
#include <string>
#include <unistd.h>

namespace support {

/// Runs `call` with standard error turned into a file, and returns what was written.
template <class Call>
std::string standard_error_of(Call&& call) {
    std::fflush(stderr);
    int const kept = ::dup(STDERR_FILENO);
    std::FILE* const file = std::tmpfile();
    ::dup2(::fileno(file), STDERR_FILENO);
    call();
    std::fflush(stderr);
    ::dup2(kept, STDERR_FILENO);
    ::close(kept);
    std::string text;
    std::rewind(file);
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file))
        text += static_cast<char>(c);
    std::fclose(file);
    return text;
}

} // namespace support
