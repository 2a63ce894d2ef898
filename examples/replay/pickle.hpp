// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is one of Python's pickles read and written without Python?
//
// A pickle is a program for a small machine with a stack. Read are the protocols 2 to 5 as far as they make what a document holds
// (document.hpp), with tuples and sets as lists. Nothing that a pickle wants to be called is called: the first argument stands for
// what the call would return. Written is protocol 4.
//
// not for: pickles of objects.

#include "document.hpp"
#include <string>
#include <string_view>

namespace replay {

/// Whether a file that begins so is a pickle of protocol 2 or later.
bool looks_like_pickle(std::string_view bytes);

/// Reads a pickle into `to`; `path` names it in messages. Throws bad_input.
void read_pickle(std::string_view bytes, std::string const& path, document& to);

/// A value as a pickle.
std::string as_pickle(value const& of);

} // namespace replay
