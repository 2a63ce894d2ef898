// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: upstream::virtual_memory takes a tuning that is derived from 'weir::upstream::virtual_memory_tuning'
#include <weir/upstream/virtual_memory.hpp>

#ifdef REJECT
struct mine {
    static constexpr unsigned handle_types = 1;
    static constexpr unsigned wished_handle_types = 0;
    static constexpr bool wished_rdma = false;
    static constexpr bool recommended_pages = false;
    static constexpr bool own_device_alone = false;
};
#else
struct mine : weir::upstream::virtual_memory_tuning {
    static constexpr unsigned handle_types = 1;
};
#endif

weir::upstream::virtual_memory<mine> memory;
