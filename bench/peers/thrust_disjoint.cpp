// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: needs CCCL's headers (<toolkit>/include/cccl) as system headers; a host compiler will do.

#include "thrust_disjoint.hpp"

#include <string>
#include <thrust/mr/disjoint_pool.h>
#include <thrust/mr/new.h>
#include <thrust/mr/pool_options.h>
#include <thrust/version.h>
#include <weir/runtime/check.hpp>

namespace weir_bench {

namespace {

class over_cuda_malloc final : public thrust::mr::memory_resource<void*> {
public:
    void* do_allocate(std::size_t bytes, std::size_t) override {
        void* p = nullptr;
        weir::check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
        return p;
    }
    void do_deallocate(void* p, std::size_t, std::size_t) override { static_cast<void>(cudaFree(p)); }
};

constexpr std::size_t alignment = 256;

using resource =
    thrust::mr::disjoint_unsynchronized_pool_resource<over_cuda_malloc, thrust::mr::new_delete_resource>;

thrust::mr::pool_options options() {
    thrust::mr::pool_options chosen = resource::get_default_options();
    chosen.alignment = alignment;
    chosen.smallest_block_size = alignment;
    return chosen;
}

} // namespace

struct thrust_disjoint::state {
    over_cuda_malloc upstream;
    thrust::mr::new_delete_resource bookkeeping;
    resource pool{&upstream, &bookkeeping, options()};
};

thrust_disjoint::thrust_disjoint() : state_(std::make_unique<state>()) {}
thrust_disjoint::~thrust_disjoint() = default;

void* thrust_disjoint::allocate(cudaStream_t, std::size_t bytes) {
    return state_->pool.do_allocate(bytes, alignment);
}

void thrust_disjoint::deallocate(cudaStream_t, void* p, std::size_t bytes) {
    state_->pool.do_deallocate(p, bytes, alignment);
}

char const* thrust_disjoint::version() {
    static std::string const text = std::to_string(THRUST_MAJOR_VERSION) + "." +
                                    std::to_string(THRUST_MINOR_VERSION) + "." +
                                    std::to_string(THRUST_SUBMINOR_VERSION);
    return text.c_str();
}

} // namespace weir_bench
