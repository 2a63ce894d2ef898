// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstddef>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <stdexcept>
#include <string>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <vector>
#include <weir/container/value.hpp>
#include <weir/container/vector.hpp>
#include <weir/interop/cub.hpp>
#include <weir/recipes.hpp>
#ifdef __CUDACC__
#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <weir/interop/cuda_mr.hpp>
#endif

using pool_type = support::recording_pool<weir::memory_space::device>;

TEST_CASE("cub: an algorithm is asked for its size, and run in storage from the pool, on the stream") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        pool_type pool;
        for (std::size_t const wanted : {std::size_t{1000}, std::size_t{0}}) {
            CAPTURE(wanted);
            int calls = 0;
            void* given = nullptr;
            weir::interop::cub::run(pool, stream, [&](void* storage, std::size_t& bytes, cudaStream_t on) {
                CHECK(on == static_cast<cudaStream_t>(stream));
                CHECK((storage != nullptr) == (calls == 1));
                ++calls;
                if (!storage) {
                    CHECK(pool.live_blocks() == 0);
                    bytes = wanted;
                    return cudaSuccess;
                }
                CHECK(pool.live_blocks() == 1);
                CHECK(bytes == wanted);
                given = storage;
                cudaError_t const code = cudaMemsetAsync(storage, 1, bytes, on); // still to run when the storage is freed
                bytes = 7;
                return code;
            });
            CHECK(calls == 2);
            CHECK(pool.live_blocks() == 0);
            CHECK(pool.frees.back().p == given);
            CHECK(pool.frees.back().bytes == (wanted == 0 ? 1 : wanted));
            CHECK(pool.frees.back().stream == weir::stream_ref(stream));
            CHECK(pool.allocations.back().stream == weir::stream_ref(stream));
        }
    });
}

TEST_CASE("cub: whatever fails is said, and the storage goes back") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        pool_type pool;
        std::string said;
        auto const attempt = [&](auto const& algorithm) {
            try {
                weir::interop::cub::run(pool, stream, algorithm);
            } catch (weir::cuda_error const& error) {
                said = error.what();
            }
            CHECK(pool.live_blocks() == 0);
        };
        attempt([](void*, std::size_t&, cudaStream_t) { return cudaErrorInvalidValue; });
        CHECK(said.find("the size query of a CUB algorithm") != std::string::npos);
        CHECK(pool.allocations.empty());
        attempt([](void* storage, std::size_t& bytes, cudaStream_t) {
            bytes = 10;
            return storage ? cudaErrorInvalidConfiguration : cudaSuccess;
        });
        CHECK(said.find("a CUB algorithm") != std::string::npos);
        CHECK(pool.frees.size() == 1);
        auto const throws = [](void* storage, std::size_t& bytes, cudaStream_t) {
            bytes = 10;
            if (storage)
                throw std::logic_error("its own");
            return cudaSuccess;
        };
        CHECK_THROWS_AS(weir::interop::cub::run(pool, stream, throws), std::logic_error);
        CHECK(pool.frees.size() == 2);
        pool.fail_at = 1;
        CHECK_THROWS_AS(weir::interop::cub::run(pool, stream, throws), weir::out_of_memory);
        CHECK_THROWS_AS(weir::interop::cub::run(pool, weir::on_host, throws), weir::usage_error);
        CHECK(pool.live_blocks() == 0);
    });
}

#ifdef __CUDACC__
namespace {
struct is_even {
    __host__ __device__ bool operator()(int x) const { return x % 2 == 0; }
};
} // namespace

TEST_CASE("cub: sort, scan and select run in a pool's storage, and no call goes to cudaMalloc") {
    support::scoped_stream const stream;
    weir::device_pool pool;
    std::vector<int> host(100000);
    for (std::size_t i = 0; i < host.size(); ++i)
        host[i] = static_cast<int>(i * 2654435761u % 1000003u);
    weir::device_vector<int> const xs(pool, stream, host);
    weir::device_vector<int> ys(pool, stream, host.size());
    weir::device_value<int> chosen(pool, stream);
    int const count = static_cast<int>(host.size());
    std::size_t const live = pool.state().live_blocks;

    weir::interop::cub::run(pool, stream, [&](void* storage, std::size_t& bytes, cudaStream_t on) {
        return cub::DeviceRadixSort::SortKeys(storage, bytes, xs.data(), ys.data(), count, 0, 32, on);
    });
    std::vector<int> expected = host;
    std::sort(expected.begin(), expected.end());
    CHECK(ys.to_host_sync<std::vector>() == expected);

    weir::interop::cub::run(pool, stream, [&](void* storage, std::size_t& bytes, cudaStream_t on) {
        return cub::DeviceScan::InclusiveSum(storage, bytes, xs.data(), ys.data(), count, on);
    });
    for (std::size_t i = 0, sum = 0; i < host.size(); ++i)
        expected[i] = static_cast<int>(sum += static_cast<std::size_t>(host[i]));
    CHECK(ys.to_host_sync<std::vector>() == expected);

    weir::interop::cub::run(pool, stream, [&](void* storage, std::size_t& bytes, cudaStream_t on) {
        return cub::DeviceSelect::If(storage, bytes, xs.data(), ys.data(), chosen.data(), count, is_even{}, on);
    });
    expected.clear();
    std::copy_if(host.begin(), host.end(), std::back_inserter(expected), is_even{});
    std::vector<int> selected = ys.to_host_sync<std::vector>();
    selected.resize(static_cast<std::size_t>(chosen.value_sync()));
    CHECK(selected == expected);
    CHECK(pool.state().live_blocks == live);

#if CCCL_VERSION >= 3004000
    pool_type counted(std::size_t{64} << 20);
    auto const environment = weir::interop::cuda_mr::environment(counted, stream);
    CHECK(cub::DeviceRadixSort::SortKeys(xs.data(), ys.data(), count, 0, 32, environment) == cudaSuccess);
    CHECK(cub::DeviceScan::InclusiveSum(xs.data(), ys.data(), count, environment) == cudaSuccess);
    CHECK(cub::DeviceSelect::If(xs.data(), ys.data(), chosen.data(), count, is_even{}, environment) == cudaSuccess);
    CHECK(counted.allocations.size() == 3);
    CHECK(counted.live_blocks() == 0);
    for (auto const& each : counted.frees)
        CHECK(each.stream == weir::stream_ref(stream));
#endif
}
#endif
