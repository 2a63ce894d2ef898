// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: this memory is open to its own device alone, as its tuning says
#include <weir/upstream/virtual_memory.hpp>

#ifdef REJECT
using tuning = weir::upstream::registered_memory;
#else
using tuning = weir::upstream::exported_memory<1>;
#endif

void use() { weir::upstream::virtual_memory<tuning>().enable_access_from(1); }
