// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What a call said when it threw. A test asserts on the sentence, since a sentence that does not say what to
// do is a bug like another.

#include <doctest/doctest.h>
#include <string>
#include <string_view>

namespace support {

/// The text of the `Error` that `call` throws; a text that says so where it throws none.
template <class Error, class Call>
std::string sentence_of(Call&& call) {
    try {
        call();
    } catch (Error const& error) {
        return error.what();
    }
    return "(nothing was thrown)";
}

inline bool contains(std::string_view text, std::string_view piece) {
    return text.find(piece) != text.npos;
}

} // namespace support

/// Fails unless `text` contains `piece`, and shows the text.
#define CHECK_SAYS(text, piece)                                                                              \
    do {                                                                                                     \
        std::string const said_(text);                                                                       \
        CHECK_MESSAGE(support::contains(said_, piece), "it says: ", said_);                                  \
    } while (false)
