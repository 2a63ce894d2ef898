// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a tensor reach another process?

#include "blocks.hpp"

#include <memory>
#include <string>

namespace weir_plugin::torch {

inline cuda_caching::ShareableHandle share(void*) {
    throw weir::usage_error(
        "weir: a tensor of weir's cannot be sent to another process yet; send a copy on the host ('.cpu()')");
}
inline std::shared_ptr<void> open_shared(std::string const&) {
    throw weir::usage_error("weir: a tensor of another process cannot be received yet; send a copy on the host ('.cpu()')");
}

} // namespace weir_plugin::torch
