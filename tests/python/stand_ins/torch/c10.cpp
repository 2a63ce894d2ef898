// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "include/c10/util/Exception.h"

c10::OutOfMemoryError::OutOfMemoryError(SourceLocation, std::string const& said) : std::runtime_error(said) {}
