// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a resource that is a pool's upstream says who reaches its memory: it needs the property 'cuda::mr::device_accessible'
#include <weir/interop/cuda_mr.hpp>

struct foreign {
    void* allocate_sync(std::size_t, std::size_t) { return nullptr; }
    void deallocate_sync(void*, std::size_t, std::size_t) {}
#ifndef REJECT
    friend void get_property(foreign const&, cuda::mr::device_accessible) noexcept {}
#endif
};

weir::interop::cuda_mr::upstream<foreign> from(foreign{});
