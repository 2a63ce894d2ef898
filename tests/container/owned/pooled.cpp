// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "open_bytes.hpp"
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <type_traits>
#include <utility>
#include <weir/container/owned/pooled.hpp>

using weir::memory_space;

static_assert(!std::is_copy_constructible_v<device_bytes>);
static_assert(!std::is_copy_assignable_v<device_bytes>);
static_assert(std::is_nothrow_move_constructible_v<device_bytes>);
static_assert(std::is_nothrow_move_assignable_v<device_bytes>);
static_assert(!std::is_constructible_v<weir::container::detail::pooled<memory_space::device>, support::recording_pool<>&,
                                       cudaStream_t, std::size_t, std::size_t>,
              "a base only");

TEST_CASE("pooled: zero bytes hold no block") {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<> pool;
        device_bytes none(pool, a, 0);
        none.zero_bytes();
        none.clear();
        none.resize_bytes(0);
        none.shrink_to_fit();
        none.assign_bytes(nullptr, 0);
        none.append_bytes(nullptr, 0);
        none.used_on(cudaStreamLegacy);
        none.last_used_on(cudaStreamLegacy);
        CHECK(none.data() == nullptr);
        CHECK(none.capacity() == 0);
        CHECK(none.contents().empty());
        CHECK(pool.allocations.empty());
    });
}

TEST_CASE_TEMPLATE("pooled: each block begins where its memory is used next, and ends on the stream", Bytes, device_bytes,
                   pinned_bytes) {
    // Bytes that were freed on a stream are good for that stream's next work, not for the host at once.
    support::every_schedule([] {
        support::scoped_stream a;
        typename Bytes::pool_type pool;
        {
            Bytes x(pool, a, 10, 1024);
            CHECK(x.size() == 10);
            x.resize_bytes(100);
            x.append_bytes(counting(10));
            x.assign_bytes(counting(1000));
            CHECK(Bytes(pool, a, 1).size() == 1);
        }
        CHECK(pool.allocations.size() == 5);
        weir::stream_ref const begin = Bytes::space == memory_space::pinned ? weir::on_host : weir::stream_ref(a);
        for (auto const& each : pool.allocations) {
            CHECK(each.stream == begin);
            CHECK(each.alignment == (each.bytes == 1 ? 256 : 1024)); // the larger of the container's and the pool's
        }
        CHECK(pool.frees.size() == 5);
        for (auto const& each : pool.frees)
            CHECK(each.stream == weir::stream_ref(a));
    });
}

TEST_CASE_TEMPLATE("pooled: moves leave an empty container that is as good as new", Bytes, device_bytes, pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        typename Bytes::pool_type pool, other;
        Bytes x(pool, a, counting(10)), y(other, b, counting(20));
        void const* const block = x.data();
        Bytes z(std::move(x));
        CHECK(z.data() == block);
        CHECK(x.data() == nullptr);
        CHECK(x.size() == 0);
        CHECK(x.capacity() == 0);
        CHECK(x.pool() == z.pool());
        x.append_bytes(counting(5));
        CHECK(x.contents() == counting(5));
        y = std::move(z);
        CHECK(other.frees.size() == 1);
        CHECK(other.frees[0].stream == weir::stream_ref(b));
        CHECK(other.live_blocks() == 0);
        CHECK(y.pool() == weir::pool_ref<Bytes::space>(pool));
        CHECK(y.stream() == weir::stream_ref(a));
        auto& same = y;
        y = std::move(same);
        CHECK(y.contents() == counting(10));
        CHECK(y.data() == block);
        z.set_stream(a); // without a block, too
        z.used_on(b);
        CHECK(z.stream() == weir::stream_ref(a));
    });
}

TEST_CASE("pooled: set_stream orders the streams, and the free follows") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        {
            device_bytes x(pool, a, counting(100));
            x.set_stream(b);
            CHECK(x.stream() == weir::stream_ref(b));
            CHECK(x.contents() == counting(100));
            x.set_stream(b);
            x.append_bytes(counting(100));
            x.set_stream(a);
            CHECK(x.contents() == joined(counting(100), counting(100)));
            x.set_stream(b);
        }
        CHECK(pool.frees.back().stream == weir::stream_ref(b));
        device_bytes none(pool, a, 0);
#ifdef WEIR_SIMULATED_CUDA
        auto const before = simulated_cuda::calls();
        none.set_stream(b);
        CHECK(simulated_cuda::calls() == before);
#endif
    });
}

TEST_CASE("pooled: refuses the host as a stream") {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<> pool;
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { device_bytes(pool, weir::on_host, 10); }),
                   "name the stream whose work uses");
        CHECK(pool.allocations.empty());
        device_bytes x(pool, a, 10);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { x.set_stream(weir::on_host); }),
                   "cannot move from a stream to 'on_host'");
        CHECK(x.stream() == weir::stream_ref(a));
    });
}

TEST_CASE_TEMPLATE("pooled: used_on tells the pool, or makes its own stream wait", Pool, support::following_pool<>,
                   support::recording_pool<>) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        Pool pool;
        void* target = nullptr;
        weir::check_cuda(cudaMalloc(&target, 100), "cudaMalloc");
        {
            device_bytes x(pool, a, counting(100));
            weir::order_after(b, a);
            weir::check_cuda(cudaMemcpyAsync(target, x.data(), 100, cudaMemcpyDefault, b), "cudaMemcpyAsync");
            x.clear(); // a cleared block is used as a full one is
            x.used_on(b);
            x.used_on(weir::on_host); // whose uses are over when it frees
            x.last_used_on(a);        // its own stream, and the host: nothing to do
            x.last_used_on(weir::on_host);
            if constexpr (std::is_same_v<Pool, support::following_pool<>>) {
                REQUIRE(pool.uses.size() == 1);
                CHECK(pool.uses[0].p == x.data());
                CHECK(pool.last_uses.empty());
                x.last_used_on(b);
                CHECK(pool.last_uses.size() == 1);
            }
        } // freed, and poisoned, behind what b reads
        octets host(100);
        weir::check_cuda(cudaMemcpyAsync(host.data(), target, 100, cudaMemcpyDefault, b), "cudaMemcpyAsync");
        weir::synchronize(b);
        CHECK(host == counting(100));
        weir::check_cuda(cudaFree(target), "cudaFree");
        CHECK(pool.frees.at(0).stream == weir::stream_ref(a));
    });
}
