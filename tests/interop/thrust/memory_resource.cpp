// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/mr/allocator.h>
#include <thrust/mr/disjoint_pool.h>
#include <thrust/mr/new.h>
#include <thrust/sort.h>
#include <thrust/universal_vector.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/recipes.hpp>

using weir::memory_space;
namespace plug = weir::interop::thrust;

namespace {

template <class Resource>
using allocator = thrust::mr::allocator<int, Resource>;

template <class Resource, memory_space Space, class Vector>
struct kind {
    using resource = Resource;
    using vector = Vector;
    static constexpr memory_space space = Space;
};
using device = kind<plug::memory_resource, memory_space::device,
                    thrust::device_vector<int, allocator<plug::memory_resource>>>;
using universal = kind<plug::universal_memory_resource, memory_space::managed,
                       thrust::universal_vector<int, allocator<plug::universal_memory_resource>>>;
using pinned = kind<plug::pinned_memory_resource, memory_space::pinned,
                    thrust::host_vector<int, allocator<plug::pinned_memory_resource>>>;

} // namespace

TEST_CASE_TEMPLATE("memory_resource: Thrust's containers allocate through thrust::mr from a pool", Kind, device, universal, pinned) {
    support::every_schedule(
        [] {
            support::scoped_stream const stream;
            support::recording_pool<Kind::space> pool;
            typename Kind::resource mr(pool, stream);
            {
                typename Kind::vector x(1000, 7, allocator<typename Kind::resource>(&mr));
                CHECK(pool.allocations.back().bytes == 4000);
                CHECK(pool.allocations.back().alignment == 256);
                x.resize(2000, 3);
                thrust::sort(x.begin(), x.end());
                thrust::host_vector<int> const host = x;
                CHECK(host[999] == 3);
                CHECK(host[1000] == 7);
                CHECK(pool.live_blocks() == 1);
            }
            CHECK(pool.live_blocks() == 0);
            for (auto const& each : pool.frees)
                CHECK(each.stream == weir::stream_ref(stream));

            auto const p = mr.allocate(100, 1024);
            CHECK(reinterpret_cast<std::uintptr_t>(thrust::raw_pointer_cast(p)) % 1024 == 0);
            mr.deallocate(p, 100, 1024);
            CHECK(pool.frees.back().bytes == 100);
            pool.fail_at = 1;
            CHECK_THROWS_AS(static_cast<void>(mr.allocate(100)), weir::out_of_memory);
        },
        support::device_memory::visible);
}

TEST_CASE("memory_resource: Thrust's own pools stand on one") {
    support::every_schedule(
        [] {
            support::scoped_stream const stream;
            weir::device_pool pool;
            plug::memory_resource mr(pool, stream);
            {
                using above = thrust::mr::disjoint_unsynchronized_pool_resource<plug::memory_resource, thrust::mr::new_delete_resource>;
                thrust::mr::new_delete_resource notes;
                above pools(&mr, &notes);
                auto const p = pools.allocate(100, 16);
                CHECK(pool.in_use_bytes() != 0);
                pools.deallocate(p, 100, 16);
            }
            CHECK(pool.in_use_bytes() == 0);
            CHECK_THROWS_AS(plug::memory_resource(pool, weir::on_host), weir::usage_error);
            for (std::size_t const bad : {std::size_t{0}, std::size_t{3}, std::size_t{42}, std::size_t{300}})
                CHECK_THROWS_AS(static_cast<void>(mr.allocate(100, bad)), weir::usage_error);
        },
        support::device_memory::visible);
}
