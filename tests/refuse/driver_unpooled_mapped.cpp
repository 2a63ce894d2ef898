// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: driver::unpooled needs an upstream whose 'release' waits for the device: upstream::device, upstream::pinned<> or upstream::managed
#include <weir/driver/unpooled.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/virtual_memory.hpp>

#ifdef REJECT
using memory = weir::upstream::virtual_memory<>;
#else
using memory = weir::upstream::device;
#endif

inline constexpr bool ordered = weir::driver::unpooled<memory>::stream_ordered;
