// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every upstream of weir's does what every upstream must do. A new one adds its name to the list and, where it is not made from
// nothing, a specialisation of 'subject'.

#include "upstream_subject.hpp"
#include <cuda_runtime_api.h>
#include <vector>
#include <weir/growth/geometric.hpp>
#include <weir/interop/pmr.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/from_pool.hpp>
#include <weir/upstream/host.hpp>
#include <weir/upstream/managed.hpp>
#include <weir/upstream/pinned.hpp>
#include <weir/upstream/registered_host.hpp>
#include <weir/upstream/span.hpp>
#include <weir/upstream/virtual_memory.hpp>

namespace upstream_contract {

using weir::check_cuda;
using weir::memory_space;
using weir::MiB;
namespace upstream = weir::upstream;

template <>
struct subject<upstream::span<memory_space::device>> {
    ~subject() { static_cast<void>(cudaFree(memory)); }
    void* memory = nullptr;
    upstream::span<memory_space::device> upstream = make();

private:
    upstream::span<memory_space::device> make() {
        check_cuda(cudaMalloc(&memory, 16 * MiB), "cudaMalloc");
        return {memory, 16 * MiB};
    }
};
template <>
struct subject<upstream::span<memory_space::host>> {
    std::vector<unsigned char> memory = std::vector<unsigned char>(16 * MiB);
    upstream::span<memory_space::host> upstream{memory.data(), memory.size()};
};

using card = weir::pool<upstream::device, weir::placement::best_fit<>, weir::reuse::stream_ordered<>>;
template <>
struct subject<upstream::from_pool<card>> {
    card pool;
    upstream::from_pool<card> upstream{pool, cudaStreamLegacy}; // where 'fill' writes
};

} // namespace upstream_contract

#define WEIR_TEST_UPSTREAMS                                                                                            \
    upstream::device, upstream::virtual_memory<>, upstream::virtual_memory<upstream::registered_memory>,               \
        upstream::managed, upstream::pinned<>, upstream::pinned<cudaHostAllocPortable>,                                \
        upstream::pinned<cudaHostAllocMapped>, upstream::registered_host, upstream::host, upstream::span<memory_space::device>,                   \
        upstream::span<memory_space::host>, upstream::from_pool<card>, weir::interop::pmr::upstream<>

#include "upstream_suite.hpp"
