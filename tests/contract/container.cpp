// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The containers over every recipe whose memory they accept: a new pool adds one line to a list.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <random>
#include <set>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/host_driver_pools.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/container/value.hpp>
#include <weir/container/vector.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/order/order_after.hpp>
#include <weir/recipes.hpp>

#define POOLS_THAT_KERNELS_REACH                                                                             \
    weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::driver_pool,             \
        weir::managed_pool, weir::pinned_pool, weir::layer::statistics<weir::device_pool>,                   \
        weir::layer::statistics<weir::driver_pool>, SUPPORT_HOST_DRIVER_POOLS
#define POOLS_THAT_BOTH_REACH                                                                                \
    weir::managed_pool, weir::pinned_pool, weir::layer::statistics<weir::pinned_pool>,                      \
        SUPPORT_HOST_DRIVER_POOLS

namespace {

std::vector<int> counting(std::size_t count, int from = 0) {
    std::vector<int> host(count);
    for (std::size_t i = 0; i < count; ++i)
        host[i] = from + static_cast<int>(i);
    return host;
}

template <class Pool>
std::size_t live_blocks(Pool& pool) {
    return pool.state().live_blocks;
}

} // namespace

TEST_CASE_TEMPLATE("container: a device container's life over each pool", Pool, POOLS_THAT_KERNELS_REACH) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        Pool pool;
        {
            weir::device_vector<int> xs(pool, a, counting(1000));
            weir::device_vector<int> ys(pool, b, xs);
            xs.append(ys);
            ys.append(xs);
            xs = weir::device_vector<int>(pool, a);
            weir::device_vector<int> again(pool, b, counting(3000, 5)); // takes bytes that were xs's
            CHECK(ys.size() == 3000);
            ys.set_stream(a);
            ys.used_on(b);
            CHECK(ys.to_host_sync<std::vector>()[2999] == 999);
            weir::device_value<int> v(pool, b, 17);
            v.set_stream(a);
            CHECK(v.value_sync() == 17);
            weir::device_buffer buffer(pool, a, 100000);
            buffer.zero_async();
            buffer.shrink_to_fit();
            CHECK(again.element_sync(2999) == 3004);
            CHECK(live_blocks(pool) == 4);
        }
        CHECK(live_blocks(pool) == 0);
        pool.settle();
    });
}

TEST_CASE_TEMPLATE("container: one that is marked once is freed behind all that the other stream does, over each pool", Pool,
                   POOLS_THAT_KERNELS_REACH) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        Pool pool;
        auto const use = [&](void* p, std::size_t bytes) {
            weir::order_after(b, a);
            CHECK(cudaMemsetAsync(p, 1, bytes, b) == cudaSuccess);
        };
        for (int round = 0; round < 4; ++round) {
            weir::device_vector<int> xs(pool, a, 1000);
            weir::device_buffer bytes(pool, a);
            weir::device_value<int> v(pool, a, 17);
            xs.used_on(b);
            bytes.used_on(b);
            v.used_on(b);
            use(xs.data(), 4000); // what it has, and what it grows into, without a copy of what 'b' writes
            xs.clear();
            xs.resize(3000);
            bytes.resize(5000);
            use(xs.data(), 12000);
            use(bytes.data(), 5000);
            use(v.data(), 4);
            weir::device_vector<int> ys(pool, a, 1000);
            use(ys.data(), 4000);
            ys.last_used_on(b);
        }
        weir::device_vector<int> zs(pool, a, 3000); // bytes that were those
        zs.zero_async();
        CHECK(zs.element_sync(7) == 0);
    });
}

TEST_CASE_TEMPLATE("container: random histories over each pool", Pool, POOLS_THAT_KERNELS_REACH) {
    support::every_schedule([] {
        std::mt19937_64 random(7);
        support::scoped_stream streams[3];
        Pool pool;
        {
            std::vector<weir::device_vector<int>> xs;
            std::vector<std::vector<int>> models(6);
            for (std::size_t i = 0; i < 6; ++i)
                xs.emplace_back(pool, streams[i % 3]);
            for (int step = 0; step < 200; ++step) {
                std::size_t const i = random() % 6, j = random() % 6, count = random() % 2000;
                switch (random() % 7) {
                case 0:
                    xs[i].append(counting(count, step));
                    for (int each : counting(count, step))
                        models[i].push_back(each);
                    break;
                case 1:
                    xs[i] = weir::device_vector<int>(pool, streams[count % 3], xs[j]);
                    models[i] = models[j];
                    break;
                case 2:
                    xs[i].assign(xs[j]);
                    models[i] = models[j];
                    break;
                case 3:
                    xs[i].set_stream(streams[count % 3]);
                    break;
                case 4:
                    xs[i].clear();
                    models[i].clear();
                    break;
                case 5:
                    count % 2 ? xs[i].used_on(streams[count % 3]) : xs[i].last_used_on(streams[count % 3]);
                    xs[i].shrink_to_fit();
                    break;
                default:
                    if (count < models[i].size())
                        CHECK(xs[i].element_sync(count) == models[i][count]);
                    break;
                }
            }
            for (std::size_t i = 0; i < 6; ++i)
                CHECK(xs[i].to_host_sync<std::vector>() == models[i]);
        }
        CHECK(live_blocks(pool) == 0);
        pool.settle();
    });
}

TEST_CASE_TEMPLATE("container: pinned memory that a copy still reads is not written again", Pool,
                   POOLS_THAT_BOTH_REACH) {
    support::every_schedule([] {
        support::scoped_stream stream;
        weir::device_pool device;
        Pool pinned;
        {
            std::vector<weir::device_vector<int>> uploaded;
            for (int i = 0; i < 20; ++i) {
                weir::pinned_vector<int> host(pinned, stream,
                                              counting(500, i)); // written by the host, at once
                uploaded.emplace_back(device, stream, host);
            } // freed behind the copy
            for (std::size_t i = 0; i < uploaded.size(); ++i)
                CHECK(uploaded[i].to_host_sync<std::vector>() == counting(500, static_cast<int>(i)));
            std::set<int const*> places; // and then it is: of 100 MB a part is the same memory
            for (int i = 0; i < 500; ++i) {
                places.insert(weir::pinned_vector<int>(pinned, stream, 50000).data());
                weir::synchronize(stream);
            }
            CHECK(places.size() < 400);
            weir::pinned_value<int> result(pinned, stream, 0);
            weir::device_value<int> answer(device, stream, 42);
            answer.copy_to_async(result.data());
            weir::synchronize(stream);
            CHECK(*result == 42);
        }
        CHECK(live_blocks(pinned) == 0);
        CHECK(live_blocks(device) == 0);
        pinned.settle();
        device.settle();
    });
}

TEST_CASE("container: a limit is met with the container as it was") {
    support::every_schedule([] {
        support::scoped_stream stream;
        weir::layer::limit<weir::device_pool> pool(std::size_t{1} << 20);
        {
            weir::device_vector<int> xs(pool, stream, counting(1000));
            CHECK_THROWS_AS(xs.resize(std::size_t{1} << 20), weir::out_of_memory);
            CHECK_THROWS_AS(weir::device_vector<int>(pool, stream, std::size_t{1} << 20),
                            weir::out_of_memory);
            CHECK(xs.to_host_sync<std::vector>() == counting(1000));
        }
        CHECK(live_blocks(pool) == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("container: a default stream is the device's on which the container went to it, where the memory lies on none") {
    for (cudaStream_t const each : {cudaStreamLegacy, cudaStreamPerThread}) {
        simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
        weir::managed_pool pool;
        {
            weir::device_vector<int> xs(pool, each, counting(1000));
            simulated_cuda::note_allocate(xs.data(), 4000, each);
            CHECK(simulated_cuda::launch(each, {}, {{xs.data(), 4000}}) == cudaSuccess);
            simulated_cuda::note_free(xs.data(), 4000, each);
            REQUIRE(cudaSetDevice(1) == cudaSuccess);
        } // freed on device 0's
        {
            weir::device_vector<int> xs(pool, each, 1000);
            simulated_cuda::note_allocate(xs.data(), 4000, each);
            CHECK(simulated_cuda::launch(each, {}, {{xs.data(), 4000}}) == cudaSuccess);
            simulated_cuda::note_free(xs.data(), 4000, each);
        }
        weir::managed_pool plain;
        weir::device_vector<int> ys(plain, each, 2000);
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        ys.reserve(100000); // copied, and freed, on device 1's
        ys.set_stream(each); // and now device 0's
        CHECK(simulated_cuda::launch(each, {}, {{ys.data(), 4000}}) == cudaSuccess);
        REQUIRE(cudaSetDevice(1) == cudaSuccess);
        ys.used_on(each);
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        CHECK(live_blocks(pool) == 0);
        CHECK(live_blocks(plain) == 1);
    }
}

TEST_CASE_TEMPLATE("container: grows and is made on its default stream, whichever device is current", Pool, weir::device_pool,
                   weir::driver_pool, weir::managed_pool) {
    for (cudaStream_t const each : {cudaStreamLegacy, cudaStreamPerThread}) {
        simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
        {
            Pool pool;
            weir::device_vector<int> xs(pool, each, counting(100, 3));
            REQUIRE(cudaSetDevice(1) == cudaSuccess);
            xs.resize(5000);
            xs.append(counting(10000, 4));
            xs.shrink_to_fit();
            CHECK(xs.element_sync(0) == 3);
            weir::device_vector<int> const ys(pool, each, 100);
            weir::device_pool there;
            weir::device_vector<int> zs(there, each, counting(50, 7));
            xs.assign(zs);
            CHECK(xs.element_sync(49) == 56);
            CHECK(live_blocks(pool) == 2);
            CHECK(live_blocks(there) == 1);
        }
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
    }
}

TEST_CASE("container: one call that fails as it ends does not take it to another device's default stream") {
    for (char const* const call : {"cudaGetDevice", "cudaSetDevice"})
        for (cudaStream_t const each : {cudaStreamLegacy, cudaStreamPerThread}) {
            CAPTURE(call);
            simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
            weir::managed_pool pool;
            {
                weir::device_vector<char> xs(pool, each, 1000);
                xs.zero_async();
                REQUIRE(cudaSetDevice(1) == cudaSuccess);
                simulated_cuda::fail_call(call, 1, cudaErrorUnknown);
            }
            simulated_cuda::clear_faults();
            {
                weir::device_vector<char> ys(pool, each, 1000); // on device 1's
                ys.zero_async();
            }
            REQUIRE(cudaSetDevice(0) == cudaSuccess);
            {
                simulated_cuda::fail_call(call, 1, cudaErrorUnknown); // as one is made
                weir::device_vector<char> xs(pool, each);
                simulated_cuda::clear_faults();
                xs.resize(1000);
                xs.zero_async();
                REQUIRE(cudaSetDevice(1) == cudaSuccess);
            }
            {
                weir::device_vector<char> ys(pool, each, 1000); // on device 1's
                ys.zero_async();
            }
            {
                weir::device_vector<char> ys(pool, each, 1000);
                REQUIRE(cudaSetDevice(0) == cudaSuccess);
                simulated_cuda::fail_call(call, 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
            } // where CUDA does not answer at all, it goes back all the same
            simulated_cuda::clear_faults();
            CHECK(pool.state().live_blocks == 0);
            REQUIRE(cudaSetDevice(0) == cudaSuccess);
        }
}

TEST_CASE("container: whatever it does, the capture of another stream lives on") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    support::scoped_stream const a, captured;
    weir::device_pool zero;
    weir::pinned_pool pinned;
    weir::managed_pool managed;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    support::scoped_stream const b;
    weir::device_pool one;
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    support::capture graph(captured);
    {
        weir::device_vector<int> xs(zero, a, counting(10)), ys(one, b, counting(20)), ms(managed, a, counting(20));
        weir::pinned_vector<int> ps(pinned, a, counting(10)), qs(pinned, b, ps);
        xs.append(ys);
        ys.append(xs);
        xs.assign(ys);
        xs.append(ps);
        qs.append(ps);
        ps.append(ps);
        ps.shrink_to_fit();
        xs.used_on(b);
        ms.append(ys);
        ys.assign(ms);
        xs.set_element_async(0, 5);
        CHECK(xs.element_sync(0) == 5);
        CHECK(xs.to_host_sync<std::vector>().size() == xs.size());
        xs.set_stream(a);
        ps.set_stream(b);
        ps.used_on(a);
        xs.zero_async();
        xs.shrink_to_fit();
        xs.reserve(100000);
        weir::device_value<int> v(zero, a, 7);
        v.set_async(8);
        CHECK(v.value_sync() == 8);
    }
    CHECK(graph.unbroken());
    CHECK(live_blocks(zero) + live_blocks(one) + live_blocks(pinned) + live_blocks(managed) == 0);
}

TEST_CASE("container: a stream that is captured uses no container of a stream that is not, where the pool cannot be told") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const a, b;
    weir::frame_pool pool;
    weir::device_vector<int> xs(pool, a, 10);
    support::capture graph(b);
    CHECK_THROWS_AS(xs.used_on(b), weir::usage_error);
    CHECK_THROWS_AS(xs.last_used_on(b), weir::usage_error);
    CHECK_FALSE(weir::runtime::is_capturing(a));
    CHECK(graph.unbroken());
}

TEST_CASE("container: a copy from what a graph works with does not make its target the graph's") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const a, b;
    weir::device_pool pool;
    weir::device_vector<int> ys(pool, b, counting(1000));
    weir::device_vector<int> xs(pool, a, 1000);
    xs.clear();
    support::capture graph(b);
    CHECK_THROWS_AS(xs.append(ys), weir::usage_error);
    CHECK(xs.empty());
    CHECK_FALSE(weir::runtime::is_capturing(a));
    CHECK(graph.unbroken());
}
#endif
