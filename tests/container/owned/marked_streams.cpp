// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/container/owned/marked_streams.hpp>
#include <weir/graph/graph_memory.hpp>
#include <weir/order/order_after.hpp>
#include <weir/recipes.hpp>

using weir::check_cuda;
using weir::device_buffer;

namespace {

void work(device_buffer& x, cudaStream_t on) { check_cuda(cudaMemsetAsync(x.data(), 7, x.size(), on), "cudaMemsetAsync"); }

// What a container may do between its mark and the launch: it stays marked, whatever its block is.
struct step {
    char const* name;
    std::function<void(device_buffer& x)> run;
};
std::vector<step> const steps{
    {"nothing", [](device_buffer&) {}},
    {"reserve", [](device_buffer& x) { x.reserve(5000); }},
    {"resize", [](device_buffer& x) { x.resize(5000); }},
    {"append", [](device_buffer& x) { x.append(x.data(), x.size()); }},
    {"assign", [](device_buffer& x) { device_buffer y(x.pool(), x.stream(), 3000); x.assign(y); }},
    {"shrink", [](device_buffer& x) { x.resize(500); x.shrink_to_fit(); }},
    {"nothing is left, then grows", [](device_buffer& x) { x.clear(); x.shrink_to_fit(); x.resize(900); }},
    {"moved to another", [](device_buffer& x) { device_buffer y(std::move(x)); x = std::move(y); }},
    {"swapped twice", [](device_buffer& x) { device_buffer y(x.pool(), x.stream(), 10); std::swap(x, y); std::swap(x, y); }},
};

template <class Pool>
void stays_marked() {
    for (step const& each : steps)
        for (bool const from_nothing : {false, true}) {
            CAPTURE(each.name);
            support::every_schedule([&] {
                support::scoped_stream const a, b;
                Pool pool;
                device_buffer x(pool, a, from_nothing ? 0 : 1000);
                x.used_on(b);
                x.resize(1000);
                each.run(x);
                weir::order_after(b, a);
                work(x, b); // and the pool overwrites the block as it is freed
            });
        }
}

} // namespace

TEST_CASE("marked_streams: a container that is marked once stays so, whatever it does, where the pool can be told") {
    stays_marked<support::following_pool<>>();
}

TEST_CASE("marked_streams: the same where its own stream has to wait") {
    stays_marked<support::recording_pool<>>();
}

TEST_CASE("marked_streams: each block of the container is told of, and its own stream may change") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        support::following_pool<> pool;
        {
            device_buffer x(pool, a, 100);
            x.used_on(a);
            x.used_on(b);
            x.used_on(b);
            CHECK(pool.uses.size() == 3);
            x.reserve(1000);
            REQUIRE(pool.uses.size() == 5); // a stream once a block
            CHECK(pool.uses[3].p == x.data());
            x.set_stream(b);
            work(x, a); // its stream at the mark
        }
        CHECK(pool.frees.back().stream == weir::stream_ref(b));
    });
}

TEST_CASE("marked_streams: where the host has no memory to tell the pool, the container grows and its own stream waits") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        support::following_pool<> pool;
        device_buffer x(pool, a, 100);
        x.used_on(b);
        pool.starved = true;
        CHECK_THROWS_AS(x.used_on(a), std::bad_alloc);
        x.resize(1000);
        pool.starved = false;
        weir::order_after(b, a);
        work(x, b);
    });
}

TEST_CASE("marked_streams: while a marked stream is captured the container does not grow, and stays as it was") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        support::following_pool<> pool;
        device_buffer x(pool, a, 100);
        x.used_on(b);
        void const* const p = x.data();
        {
            support::capture graph(b);
            CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { x.reserve(1000); }),
                       "cannot mark a stream that is being captured");
            CHECK(x.data() == p);
            CHECK(pool.live_blocks() == 1);
            CHECK(graph.unbroken());
        }
        x.reserve(1000);
    });
}

TEST_CASE("marked_streams: where a marked stream is captured at the end, the block is freed on that one") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        support::recording_pool<> pool;
        pool.poisons = false;
        auto x = std::make_unique<device_buffer>(pool, a, 100);
        x->used_on(b);
        check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
        {
            support::capture graph(b);
            x.reset();
            CHECK(graph.unbroken());
        }
        CHECK(pool.frees.back().stream == weir::stream_ref(b));
    });
}

TEST_CASE("marked_streams: where two graphs use a block at the end, and its pool cannot be told, it stays handed out") {
    support::every_schedule([] {
        support::scoped_stream const a, b, c;
        for (cudaStream_t const own : {static_cast<cudaStream_t>(a), static_cast<cudaStream_t>(b)}) { // which may be captured
            support::recording_pool<> pool;
            pool.poisons = false;
            auto x = std::make_unique<device_buffer>(pool, own, 100);
            x->used_on(b);
            x->used_on(c);
            void* const p = x->data();
            check_cuda(cudaStreamSynchronize(own), "cudaStreamSynchronize");
            {
                support::capture one(b), another(c);
                x.reset();
                CHECK(pool.live_blocks() == 1);
                CHECK(another.unbroken());
                CHECK(one.unbroken());
            }
            pool.deallocate(own, p, 100);
        }
    });
}

TEST_CASE("marked_streams: a mark of a thread's own default stream is that thread's, also where another grows and ends it") {
    support::every_schedule([] {
        support::scoped_stream const a;
        support::following_pool<> told;
        support::recording_pool<> untold;
        auto x = std::make_unique<device_buffer>(told, a, 1000), y = std::make_unique<device_buffer>(untold, a, 1000);
        x->used_on(cudaStreamPerThread);
        y->used_on(cudaStreamPerThread);
        std::thread([&] {
            x->resize(3000);
            y->resize(3000);
        }).join();
        weir::order_after(cudaStreamPerThread, a);
        work(*x, cudaStreamPerThread);
        work(*y, cudaStreamPerThread);
        std::thread([&] {
            x.reset();
            y.reset();
        }).join();
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("marked_streams: in a capture the container's stream joins the marked one before the free") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        support::capture graph(a);
        {
            device_buffer x(memory, a, 1000);
            weir::order_after(b, a);
            x.used_on(b);
            x.used_on(a); // its own
            check_cuda(cudaMemsetAsync(x.data(), 1, 1000, b), "cudaMemsetAsync");
        }
        device_buffer y(memory, a, 1000);
        check_cuda(cudaMemsetAsync(y.data(), 2, 1000, a), "cudaMemsetAsync");
        CHECK(graph.unbroken()); // 'b' joined
    });
}

TEST_CASE("marked_streams: outside a graph's capture, a stream of it is refused") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const a, b, c;
    weir::device_pool pool;
    weir::graph_memory memory(pool);
    support::capture graph(a);
    device_buffer x(memory, a, 1000);
    CHECK_THROWS_AS(x.used_on(c), weir::usage_error); // which no graph can wait for
    CHECK(graph.unbroken());
}

TEST_CASE("marked_streams: a container on the legacy stream is in no graph, though a capture stands in that stream's way") {
    for (bool const captures_user : {false, true}) {
        CAPTURE(captures_user);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        cudaStream_t blocking = nullptr, user = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        check_cuda(cudaStreamCreate(&user), "cudaStreamCreate");
        support::scoped_stream const later;
        support::recording_pool<> pool;
        pool.poisons = false;
        auto x = std::make_unique<device_buffer>(pool, cudaStreamLegacy, 1000);
        x->used_on(user);
        weir::order_after(user, cudaStreamLegacy);
        work(*x, user);
        check_cuda(cudaStreamSynchronize(captures_user ? user : cudaStreamLegacy), "cudaStreamSynchronize");
        {
            support::capture graph(captures_user ? user : blocking, cudaStreamCaptureModeRelaxed);
            x->used_on(later); // which no graph has
            CHECK_THROWS_AS(x->used_on(cudaStreamLegacy), weir::usage_error); // whose end nobody may ask for now
            x.reset();
            CHECK(graph.unbroken());
        }
        REQUIRE(pool.frees.size() == 1); // one graph is not two
        CHECK(pool.frees[0].stream == weir::stream_ref(captures_user ? user : cudaStreamLegacy));
        check_cuda(cudaStreamDestroy(user), "cudaStreamDestroy");
        check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    }
}

TEST_CASE("marked_streams: where a capture hides the end of a marked legacy stream, its device is waited for") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const a;
    cudaStream_t blocking = nullptr;
    check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
    support::recording_pool<> pool;
    pool.poisons = false;
    {
        device_buffer x(pool, a, 1000);
        x.used_on(cudaStreamLegacy);
        weir::order_after(cudaStreamLegacy, static_cast<cudaStream_t>(a));
        work(x, cudaStreamLegacy);
        check_cuda(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    }
    CHECK(simulated_cuda::pending() == 0);
    CHECK(pool.live_blocks() == 0);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(blocking, &graph) == cudaSuccess);
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
}

TEST_CASE("marked_streams: whatever fails at the end of a container whose pool cannot be told, its block goes back unused") {
    struct state {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        std::unique_ptr<device_buffer> x;
    };
    auto const prepare = [] {
        auto fresh = std::make_unique<state>();
        fresh->pool.poisons = false;
        fresh->x = std::make_unique<device_buffer>(fresh->pool, fresh->a, 1000);
        fresh->x->used_on(fresh->b);
        weir::order_after(fresh->b, fresh->a);
        work(*fresh->x, fresh->b);
        return fresh;
    };
    auto const runs = support::fault_sweep(prepare, [](state& s) { s.x.reset(); },
                                           [](state& s, support::struck const& fault) {
                                               CHECK_FALSE(fault.threw);
                                               CHECK(s.pool.live_blocks() == 0);
                                               if (fault.for_ever)
                                                   return; // nothing could be waited for
                                               device_buffer y(s.pool, s.a, 1000);
                                               work(y, s.a);
                                           });
    CHECK(runs >= 5);
}

#endif
