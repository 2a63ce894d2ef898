// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: std::vector<bool> has no elements to copy to; use 'gather_async' with an array, or a vector of unsigned char
#include <vector>
#include <weir/multi_device.hpp>

#ifdef REJECT
using flag = bool;
#else
using flag = unsigned char;
#endif

std::vector<flag> read(weir::multi_device::sharded_vector<flag> const& flags) {
    return flags.to_host_sync<std::vector>();
}
