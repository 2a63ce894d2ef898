// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Are all bytes the same? One comparison of the block with itself, a byte further on: a loop over megabytes costs a minute
// where nothing is optimized.

#include <cstring>
#include <vector>

namespace support {

inline bool filled(std::vector<unsigned char> const& bytes, unsigned char value) {
    return bytes.empty() || (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

} // namespace support
