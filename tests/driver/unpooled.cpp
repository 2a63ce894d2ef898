// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <optional>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <vector>
#include <weir/container/vector.hpp>
#include <weir/driver/unpooled.hpp>
#include <weir/layer/guard.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/managed.hpp>
#include <weir/upstream/pinned.hpp>

using support::scoped_stream;
using weir::on_host;
using unpooled = weir::driver::unpooled<weir::upstream::device>;

TEST_CASE_TEMPLATE("unpooled: each block is an allocation of its own, and a free waits for its work on every stream", Upstream,
                   weir::upstream::device, weir::upstream::pinned<>, weir::upstream::managed) {
    support::every_schedule([] {
        weir::driver::unpooled<Upstream> pool(weir::pool_options{}.name("alone"));
        scoped_stream a, b;
        void* const p = pool.allocate(a, 1000), * const q = pool.allocate(b, 3);
        CHECK(p != q);
        CHECK(pool.state().in_use_bytes == 1003);
        CHECK(pool.state().live_blocks == 2);
        CHECK(pool.state().chunks == 2);
        CHECK(pool.name() == "alone");
        weir::check_cuda(cudaMemsetAsync(p, 1, 1000, a), "cudaMemsetAsync");
        weir::check_cuda(cudaMemcpyAsync(q, p, 3, cudaMemcpyDefault, a), "cudaMemcpyAsync");
        pool.used_on(q, a);
        pool.last_used_on(q, a);
        pool.deallocate(b, q, 3);
        pool.deallocate(a, p, 1000);
        pool.settle();
        CHECK(cudaStreamQuery(a) == cudaSuccess);
        CHECK(pool.state().reserved_bytes == 0);
        pool.deallocate(a, nullptr, 1000);
        CHECK(pool.try_allocate(a, 0) == nullptr);
    });
}

TEST_CASE("unpooled: says why it has no room") {
    support::every_schedule([] {
        unpooled pool(weir::pool_options{}.limit(1000));
        void* const p = pool.allocate(on_host, 600);
        CHECK(pool.can_hold(1000));
        CHECK_FALSE(pool.can_hold(1001));
        CHECK_FALSE(pool.can_hold(1, 512));
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(on_host, 401)); }),
                   "its limit leaves no room; free something, or raise it");
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(on_host, 4, 512)); }),
                   "CUDA aligns an allocation to no more");
        pool.deallocate(on_host, p, 600);
        unpooled all;
        CHECK(all.device() == 0);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(all.allocate(on_host, SIZE_MAX / 4)); }),
                   "the device has no room; free something");
    });
}

TEST_CASE("unpooled: what a captured stream frees stays allocated until the pool ends; what nobody freed is told") {
    support::every_schedule([] {
        std::string const said = support::standard_error_of([] {
            unpooled pool(weir::pool_options{}.name("alone"));
            scoped_stream stream;
            void* const p = pool.allocate(stream, 1000);
            support::capture capture(stream);
            pool.deallocate(stream, p, 1000);
            CHECK(capture.unbroken());
            CHECK(pool.state().live_blocks == 0);
            CHECK(pool.state().reserved_bytes == 1000);
            static_cast<void>(pool.allocate(stream, 1000));
        });
        CHECK(said == "weir: pool 'alone' ends with 1 block still handed out; free it, or end its container, before the pool\n");
    });
}

TEST_CASE("unpooled: containers and layers stand on it") {
    support::every_schedule([] {
        weir::layer::guard<unpooled> pool(weir::pool_options{}.on_leak(weir::leak_action::abort));
        scoped_stream stream;
        weir::device_vector<int> xs(pool, stream, std::vector<int>{1, 2, 3});
        xs.resize(1000);
        CHECK(xs.element_sync(2) == 3);
        CHECK(unpooled::rounded(5, 256) == 5);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("unpooled: whatever call fails, no block is lost") {
    struct scene {
        scoped_stream a;
        std::unique_ptr<unpooled> pool = std::make_unique<unpooled>();
        void* p = nullptr;
    };
    std::uint64_t const calls = support::each_fault([] { return std::make_unique<scene>(); },
                                                    [](scene& now) {
                                                        now.p = now.pool->allocate(now.a, 1000);
                                                        now.pool->deallocate(now.a, std::exchange(now.p, nullptr), 1000);
                                                    },
                                                    [](scene& now, bool) {
                                                        CHECK(now.pool->state().live_blocks == 0);
                                                        now.pool.reset();
                                                    });
    CHECK(calls > 1);
}
#endif
