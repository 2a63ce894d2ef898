// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <new>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/recording.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <thread>
#include <utility>
#include <vector>
#include <weir/container/vector.hpp>
#include <weir/graph/graph_memory.hpp>
#include <weir/layer/failure_handler.hpp>
#include <weir/order/order_after.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/virtual_memory.hpp>

using support::copy;
using support::drain;
using support::fill;
using support::first_byte;
using support::recording;
using weir::check_cuda;
using weir::KiB;
using weir::MiB;

namespace {

using memory_of = weir::graph_memory<weir::device_pool>;

#ifdef WEIR_SIMULATED_CUDA
// How many there are.
struct counted_placement : weir::placement::best_fit<> {
    counted_placement() { ++alive; }
    counted_placement(counted_placement const&) = delete;
    counted_placement& operator=(counted_placement const&) = delete;
    ~counted_placement() { --alive; }
    static inline int alive = 0;
};
#endif

// The simulated device is told that the host knows of the graph's end now.
bool goes_back(memory_of& memory, cudaStream_t s) {
    bool const done = memory.try_release(s);
#ifdef WEIR_SIMULATED_CUDA
    if (done)
        simulated_cuda::note_ends();
#endif
    return done;
}
// CUDA tells of it some time after the last launch.
bool comes_back(memory_of& memory, cudaStream_t s) {
    for (int turns = 0; turns < 1'000'000; ++turns)
        if (goes_back(memory, s))
            return true;
    return false;
}

} // namespace

TEST_CASE("graph_memory: a graph keeps what it was captured with, while other streams allocate and free") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::device_pool pool;
        void* const out = pool.allocate(s, 1 * MiB);
        void* reused = nullptr;
        {
            weir::graph_memory memory(pool);
            recording graph(s);
            void* const a = memory.allocate(s, 1 * MiB);
            fill(a, 3, 1 * MiB, s);
            copy(out, a, 1 * MiB, s);
            memory.deallocate(s, a, 1 * MiB);
            reused = memory.allocate(s, 1 * MiB); // in order on s, at each launch
            CHECK(reused == a);
            fill(reused, 4, 1 * MiB, s);
            memory.deallocate(s, reused, 1 * MiB);
            graph.end();
            CHECK(memory.in_use_bytes() == 0);
            CHECK(memory.reserved_bytes() >= 1 * MiB);
            for (int i = 0; i < 5; ++i) {
                fill(out, 0, 1 * MiB, s);
                graph.launch(s);
                void* const theirs = pool.allocate(other, 1 * MiB); // never the graph's
                CHECK(theirs != a);
                fill(theirs, 9, 1 * MiB, other);
                pool.deallocate(other, theirs, 1 * MiB);
                drain(s);
                CHECK(first_byte(out) == 3);
            }
            CHECK(pool.in_use_bytes() >= 2 * MiB);
        }
        CHECK(pool.in_use_bytes() == 1 * MiB);
        pool.deallocate(s, out, 1 * MiB);
        drain(s);
        drain(other);
    });
}

TEST_CASE("graph_memory: what one stream of a capture frees goes to no other one") {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        cudaEvent_t fork = nullptr;
        cudaEvent_t join = nullptr;
        check_cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        check_cuda(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        {
            recording graph(s);
            check_cuda(cudaEventRecord(fork, s), "cudaEventRecord");
            check_cuda(cudaStreamWaitEvent(t, fork, 0), "cudaStreamWaitEvent");
            void* const a = memory.allocate(s, 64 * KiB);
            fill(a, 1, 64 * KiB, s);
            memory.deallocate(s, a, 64 * KiB);
            void* const b = memory.allocate(t, 64 * KiB); // runs beside it
            CHECK(b != a);
            fill(b, 2, 64 * KiB, t);
            memory.deallocate(t, b, 64 * KiB);
            CHECK(memory.allocate(s, 64 * KiB) == a);
            CHECK(memory.allocate(t, 64 * KiB) == b);
            memory.deallocate(s, a, 64 * KiB);
            memory.deallocate(t, b, 64 * KiB);
            check_cuda(cudaEventRecord(join, t), "cudaEventRecord");
            check_cuda(cudaStreamWaitEvent(s, join, 0), "cudaStreamWaitEvent");
            graph.end();
            graph.launch(s);
            drain(s);
        }
        memory.release(s);
        CHECK(pool.in_use_bytes() == 0);
        check_cuda(cudaEventDestroy(fork), "cudaEventDestroy");
        check_cuda(cudaEventDestroy(join), "cudaEventDestroy");
        drain(s);
    });
}

TEST_CASE("graph_memory: released on the stream of the last launch, it is reused in order and nothing waits") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        void* kept = nullptr;
        for (int round = 0; round < 4; ++round) { // one capture after the other
            {
                recording graph(s);
                kept = memory.allocate(s, 3 * MiB);
                fill(kept, round, 3 * MiB, s);
                memory.deallocate(s, kept, 3 * MiB);
                graph.end();
                graph.launch(s);
            }
            memory.release(s);
            CHECK(memory.reserved_bytes() == 0);
            CHECK(pool.in_use_bytes() == 0);
            cudaStream_t const user = round < 3 ? s : other; // at last one that the launch is not in order with
            std::size_t const reserved = pool.reserved_bytes();
            void* const next = pool.allocate(user, 3 * MiB);
            CHECK((user != s || pool.reserved_bytes() == reserved));
            fill(next, 7, 3 * MiB, user);
            pool.deallocate(user, next, 3 * MiB);
        }
        drain(s);
        drain(other);
    });
}

TEST_CASE("graph_memory: containers live in it, and blocks of the pool may end in the capture") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        void* const before = pool.allocate(s, 5 * MiB);
        fill(before, 6, 5 * MiB, s);
        drain(s);
        std::size_t const in_use = pool.in_use_bytes();
        {
            weir::graph_memory memory(pool);
            {
                recording graph(s);
                {
                    weir::device_vector<int> xs(memory, s, 1000);
                    xs.zero_async();
                    xs.resize(200000);
                    copy(xs.data(), before, 4 * KiB, s);
                }
                memory.deallocate(s, before, 5 * MiB);
                graph.end();
                graph.launch(s);
                graph.launch(s);
            }
            CHECK(pool.in_use_bytes() >= in_use); // the block of the pool, too
        } // waits for the launches
        CHECK(pool.in_use_bytes() == 0);
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
    });
}

TEST_CASE("graph_memory: it goes back by itself when the graph, its executables and their launches are gone, no sooner") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        CHECK(memory.try_release(s)); // nothing is held
        cudaGraphExec_t second = nullptr;
        {
            recording graph(s);
            weir::device_vector<int> xs(memory, s, 100000);
            CHECK_FALSE(memory.try_release(other)); // it is being captured
            CHECK_THROWS_WITH_AS(memory.try_release(s), doctest::Contains("end the capture first"), weir::usage_error);
            xs.zero_async();
            graph.end();
            check_cuda(cudaGraphInstantiate(&second, graph.graph(), 0), "cudaGraphInstantiate");
            graph.launch(s);
            drain(s);
            CHECK_FALSE(memory.try_release(s));
        }
        CHECK_FALSE(memory.try_release(s)); // the other executable may still be launched
        check_cuda(cudaGraphLaunch(second, other), "cudaGraphLaunch");
        check_cuda(cudaGraphExecDestroy(second), "cudaGraphExecDestroy");
        std::size_t const held = memory.reserved_bytes();
        CHECK(held > 0);
        bool const was_over = goes_back(memory, s); // the launch may have run by now, or not
        void* const theirs = pool.allocate(s, held);
        fill(theirs, 1, held, s); // not what the launch writes to
        drain(other);
        CHECK((was_over || comes_back(memory, s)));
        CHECK(memory.reserved_bytes() == 0);
        pool.deallocate(s, theirs, held);
        CHECK(pool.in_use_bytes() == 0);
        drain(s);
    });
}

TEST_CASE("graph_memory: it goes back by itself capture after capture, broken ones too, in order on the stream that asks") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        for (int round = 0; round < 4; ++round) {
            void* const before = pool.allocate(s, 1 * MiB);
            void* kept = nullptr;
            {
                recording graph(s);
                if (round < 3)
                    kept = memory.allocate(s, 3 * MiB);
                memory.deallocate(s, before, 1 * MiB); // in round 3 this alone is the graph's
                if (round == 2) {
                    graph.spoil();
                } else {
                    graph.end();
                    graph.launch(s);
                    CHECK_FALSE(memory.try_release(s));
                }
            }
            drain(s);
            if (kept) {
                fill(kept, round, 3 * MiB, s); // outside of the graph, on the stream that asks
                CHECK_THROWS_WITH_AS(comes_back(memory, s), doctest::Contains("while a block is handed out"),
                                     weir::usage_error);
                memory.deallocate(s, kept, 3 * MiB);
            }
            CHECK(comes_back(memory, s));
            CHECK(pool.in_use_bytes() == 0);
            void* const next = pool.allocate(other, 3 * MiB); // not before what 's' does with it outside of the graph
            fill(next, 7, 3 * MiB, other);
            pool.deallocate(other, next, 3 * MiB);
        }
        drain(s);
        drain(other);
    });
}

TEST_CASE("graph_memory: a graph that only frees a block of the pool keeps it while it lives") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        void* const before = pool.allocate(s, 1 * MiB);
        weir::graph_memory memory(pool);
        {
            recording graph(s);
            fill(before, 5, 1 * MiB, s);
            memory.deallocate(s, before, 1 * MiB);
            graph.end();
            CHECK_FALSE(memory.try_release(s));
            graph.launch(s);
            drain(s);
            CHECK_FALSE(memory.try_release(s));
        }
        CHECK(comes_back(memory, s));
        CHECK(pool.in_use_bytes() == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("graph_memory: what was a graph's alone goes back without a wait for the device, and nothing needs nothing of CUDA") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, busy;
    weir::device_pool pool;
    weir::graph_memory memory(pool);
    {
        recording graph(s);
        memory.deallocate(s, memory.allocate(s, 1 * MiB), 1 * MiB);
        graph.end();
    }
    simulated_cuda::gate gate;
    REQUIRE(gate.close(busy) == cudaSuccess);
    CHECK(comes_back(memory, s));
    CHECK(simulated_cuda::pending() != 0); // of the other stream
    gate.open();
    simulated_cuda::fail_call(1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
    CHECK_NOTHROW(memory.release(weir::on_host));
    simulated_cuda::clear_faults();
    drain(busy);
}
#endif

TEST_CASE("graph_memory: a graph that was never launched gives a block of the pool back behind the work before the capture") {
    support::every_schedule([] {
        support::scoped_stream const s, last;
        weir::device_pool pool(weir::pool_options{}.limit(8 * MiB));
        weir::graph_memory memory(pool);
        void* const p = pool.allocate(s, 8 * MiB);
        fill(p, 1, 8 * MiB, s);
        {
            recording graph(s);
            fill(p, 2, 8 * MiB, s);
            memory.deallocate(s, p, 8 * MiB);
            graph.end();
        }
        CHECK(comes_back(memory, last));
        void* const q = pool.allocate(last, 8 * MiB);
        CHECK(q == p);
        fill(q, 3, 8 * MiB, last);
        pool.deallocate(last, q, 8 * MiB);
        drain(last);
        drain(s);
    });
}

TEST_CASE("graph_memory: it belongs to the capture that frees a block of the pool, also where it allocated nothing") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::device_pool pool;
        void* const before = pool.allocate(s, 1 * MiB);
        memory_of memory(pool);
        recording graph(s);
        memory.deallocate(s, before, 1 * MiB);
        graph.end();
        {
            recording another(other);
            CHECK_THROWS_WITH_AS(static_cast<void>(memory.try_allocate(other, 256)),
                                 doctest::Contains("make one for each graph"), weir::usage_error);
            another.end();
        }
        drain(other);
        for (int turns = 0; turns < 100; ++turns)
            CHECK_FALSE(memory.try_release(s)); // the other graph is gone, but the first may be launched
        graph.launch(s);
        drain(s);
    });
}

TEST_CASE("graph_memory: a block of the pool that another capture frees does not tie it to that graph's end") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::device_pool pool;
        void* const before = pool.allocate(other, 1 * MiB);
        memory_of memory(pool);
        {
            recording graph(s);
            memory.deallocate(s, memory.allocate(s, 64 * KiB), 64 * KiB);
            graph.end();
            {
                recording another(other);
                memory.deallocate(other, before, 1 * MiB); // the pool keeps it from others
                another.end();
            }
            drain(other);
            for (int turns = 0; turns < 100; ++turns)
                CHECK_FALSE(memory.try_release(s)); // the other graph is gone, but the first may be launched
            graph.launch(s);
            drain(s);
        }
        CHECK(comes_back(memory, s));
        CHECK(memory.reserved_bytes() == 0);
    });
}

TEST_CASE("graph_memory: a block that another capture frees is that graph's as well, and goes back on its owner's word alone") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        recording* const first = new recording(s);
        void* const p = memory.allocate(s, 1 * MiB);
        fill(p, 5, 1 * MiB, s);
        first->end();
        {
            recording second(s);
            fill(p, 6, 1 * MiB, s);
            memory.deallocate(s, p, 1 * MiB);
            second.end();
            first->launch(s);
            drain(s);
            delete first;
            for (int turns = 0; turns < 100; ++turns)
                CHECK_FALSE(memory.try_release(s)); // the second may be launched
            second.launch(s);
            drain(s);
        }
        CHECK_FALSE(memory.try_release(s));
        memory.release(s);
        CHECK(memory.reserved_bytes() == 0);
        {
            recording third(s); // and the next graph is watched again
            memory.deallocate(s, memory.allocate(s, 1 * MiB), 1 * MiB);
            third.end();
        }
        CHECK(comes_back(memory, s));
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("graph_memory: released on the host, it waits for the device") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    weir::device_pool pool;
    weir::graph_memory memory(pool);
    recording graph(s);
    void* const p = memory.allocate(s, 1 * MiB);
    fill(p, 5, 1 * MiB, s);
    memory.deallocate(s, p, 1 * MiB);
    graph.end();
    graph.launch(s);
    CHECK(simulated_cuda::pending() != 0);
    memory.release(weir::on_host);
    CHECK(simulated_cuda::pending() == 0);
    CHECK(pool.trim() != 0);
}
#endif

TEST_CASE("graph_memory: what was released on its owner's word is not asked about again") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        recording graph(s);
        memory.deallocate(s, memory.allocate(s, 1 * MiB), 1 * MiB);
        graph.end();
        CHECK_FALSE(memory.try_release(s));
        memory.release(s);
        CHECK(memory.try_release(s)); // the graph lives, and nothing is held
        drain(s);
    });
}

TEST_CASE("graph_memory: what is freed after the capture waits for the release") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::device_pool pool(weir::pool_options{}.limit(2 * MiB));
        weir::graph_memory memory(pool);
        {
            recording graph(s);
            weir::device_vector<int> xs(memory, s, 1000);
            xs.zero_async();
            graph.end();
            graph.launch(s);
        } // the vector ends first, on a stream that captures nothing
        CHECK(memory.in_use_bytes() == 0);
        CHECK(memory.reserved_bytes() > 0);
        memory.release(s);
        void* const next = pool.allocate(other, 1 * MiB); // what the launch wrote, after it
        fill(next, 1, 1 * MiB, other);
        pool.deallocate(other, next, 1 * MiB);
        drain(s);
        drain(other);
    });
}

TEST_CASE("graph_memory: other streams and other captures are refused, and say what to do") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        CHECK_THROWS_WITH_AS(static_cast<void>(memory.allocate(s, 256)),
                             doctest::Contains("allocate from its pool instead, or begin the capture first"), weir::usage_error);
        CHECK_THROWS_AS(static_cast<void>(memory.allocate_sync(256)), weir::usage_error);
        {
            recording graph(s);
            CHECK_THROWS_AS(static_cast<void>(memory.allocate(s, 256, 3)), weir::usage_error);
            CHECK(memory.allocate(s, 0) == nullptr);
            CHECK_THROWS_AS(static_cast<void>(pool.allocate(s, 256)), weir::usage_error);
            void* const a = memory.allocate(s, 256);
            CHECK(memory.owns(a));
            CHECK_FALSE(pool.owns(nullptr));
            CHECK_THROWS_WITH_AS(memory.release(s), doctest::Contains("end the capture first"), weir::usage_error);
            memory.deallocate(s, a, 256);
            memory.deallocate(s, nullptr, 256);
            graph.end();
        }
        {
            recording another(s);
            CHECK_THROWS_WITH_AS(static_cast<void>(memory.allocate(s, 256)), doctest::Contains("make one for each graph"),
                                 weir::usage_error);
            another.end();
        }
        CHECK(std::string(memory.report()).find("0 B in use in 0 blocks, 2 MiB reserved in 1 chunk") != std::string::npos);
    });
}

TEST_CASE("graph_memory: sizes that rise leave no chunk behind each") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        recording graph(s);
        for (std::size_t bytes = 1 * MiB; bytes <= 25 * MiB; bytes += 1 * MiB)
            memory.deallocate(s, memory.allocate(s, bytes), bytes);
        CHECK(memory.state().largest_free_bytes >= 25 * MiB);
        CHECK(memory.state().chunks < 9);
        CHECK(memory.reserved_bytes() < 4 * 25 * MiB); // with a chunk for each it would be 13 times
        graph.end();
        memory.release(s);
        drain(s);
    });
}

TEST_CASE("graph_memory: after a release the chunks are small again") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        for (std::size_t bytes : {100 * MiB, 1 * KiB}) {
            recording graph(s);
            memory.deallocate(s, memory.allocate(s, bytes), bytes);
            CHECK(memory.reserved_bytes() <= bytes + 2 * MiB);
            graph.end();
            memory.release(s);
        }
        drain(s);
    });
}

TEST_CASE("graph_memory: a pool without room refuses, and the capture goes on") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool(weir::pool_options{}.limit(8 * MiB).name("frames"));
        weir::graph_memory memory(pool);
        support::capture graph(s);
        CHECK(memory.try_allocate(s, 9 * MiB) == nullptr);
        CHECK(memory.try_allocate(s, SIZE_MAX - 5) == nullptr);
        CHECK_THROWS_WITH_AS(static_cast<void>(memory.allocate(s, 9 * MiB)), doctest::Contains("its pool 'frames' (0 B in use, 0 B reserved, limit 8 MiB) refuses: "),
                             weir::out_of_memory);
        void* const p = memory.try_allocate(s, 6 * MiB);
        CHECK(p != nullptr);
        void* const q = memory.try_allocate(s, 1 * MiB); // there is no room for more than that
        CHECK(q != nullptr);
        memory.deallocate(s, q, 1 * MiB);
        CHECK(graph.unbroken());
        CHECK_THROWS_WITH_AS(memory.release(s), doctest::Contains("while a block is handed out"), weir::usage_error);
        CHECK(memory.owns(p));
        memory.deallocate(s, p, 6 * MiB);
        memory.release(s);
        CHECK(memory.reserved_bytes() == 0);
        drain(s);
    });
}

TEST_CASE("graph_memory: an allocation that the pool refuses does not tie it to that capture") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool(weir::pool_options{}.limit(4 * MiB));
        weir::graph_memory memory(pool);
        {
            support::capture graph(s);
            CHECK(memory.try_allocate(s, 64 * MiB) == nullptr);
            CHECK(graph.unbroken());
        }
        support::capture another(s);
        void* p = nullptr;
        CHECK_NOTHROW(p = memory.try_allocate(s, 1 * KiB)); // the first holds nothing
        CHECK(p != nullptr);
        memory.deallocate(s, p, 1 * KiB);
        CHECK(another.unbroken());
        memory.release(s);
        drain(s);
    });
}

TEST_CASE("graph_memory: a block of any alignment is found in the chunk that was got for it") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>, weir::reuse::stream_ordered<>> pool;
        weir::graph_memory memory(pool);
        void* const first = pool.allocate(s, 256); // so that the chunk begins at no boundary
        {
            support::capture graph(s);
            void* const p = memory.try_allocate(s, 4 * MiB, 1 * MiB);
            CHECK(p != nullptr);
            CHECK(reinterpret_cast<std::uintptr_t>(p) % MiB == 0);
            memory.deallocate(s, p, 4 * MiB, 1 * MiB);
            CHECK(graph.unbroken());
        }
        memory.release(s);
        pool.deallocate(s, first, 256);
        CHECK(pool.in_use_bytes() == 0);
        drain(s);
    });
}

TEST_CASE("graph_memory: a block of the pool that no capture frees goes to the pool at once") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        void* const p = pool.allocate(s, 1 * MiB);
        memory.deallocate(s, p, 1 * MiB);
        CHECK(pool.in_use_bytes() == 0);
        CHECK(memory.reserved_bytes() == 0);
        drain(s);
    });
}

TEST_CASE("graph_memory: a doubled free takes no count below zero, and the memory goes back") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        void* p = nullptr;
        {
            support::capture graph(s);
            p = memory.allocate(s, 64 * KiB);
            CHECK(graph.unbroken());
        }
        memory.deallocate(s, p, 64 * KiB);
        memory.deallocate(s, p, 64 * KiB);
        CHECK(memory.in_use_bytes() == 0);
        CHECK(memory.state().live_blocks == 0);
        memory.release(s);
        CHECK(pool.in_use_bytes() == 0);
        drain(s);
    });
}

TEST_CASE("graph_memory: a thread's own default stream has its bytes again, and another thread's only behind what used them") {
    support::every_schedule([] {
        constexpr std::size_t most = 2 * MiB - KiB; // of a chunk
        cudaStream_t const own = cudaStreamPerThread;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        support::scoped_stream const fork, join; // their only use is to be waited for
        {
            recording graph(own);
            void* const a = memory.allocate(own, most);
            fill(a, 1, most, own);
            memory.deallocate(own, a, most);
            CHECK(memory.allocate(own, most) == a);
            weir::order_after(fork, own);
            fill(a, 2, most, own);
            memory.deallocate(own, a, most);
            std::thread([&] {
                weir::order_after(own, fork);
                void* const b = memory.allocate(own, most);
                CHECK(a != b); // it runs beside the second
                fill(b, 3, most, own);
                memory.deallocate(own, b, most);
                weir::order_after(join, own);
            }).join();
            weir::order_after(own, join);
            void* const both[] = {memory.allocate(own, most), memory.allocate(own, most)};
            CHECK((both[0] == a || both[1] == a));
            for (void* const each : both) {
                fill(each, 4, most, own);
                memory.deallocate(own, each, most);
            }
            graph.end();
            graph.launch(own);
            drain(own);
        }
        memory.release(own);
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE("graph_memory: the legacy stream beside a blocking stream's capture is refused as one that is not captured") {
    support::every_schedule([] {
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        cudaStream_t blocking = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        {
            support::capture graph(blocking);
            CHECK_THROWS_WITH_AS(memory.share(cudaStreamLegacy, 1), doctest::Contains("begin the capture first"),
                                 weir::usage_error);
            CHECK_THROWS_WITH_AS(static_cast<void>(memory.allocate(cudaStreamLegacy, 256)),
                                 doctest::Contains("or begin the capture first"), weir::usage_error);
            CHECK_THROWS_AS(memory.release(cudaStreamLegacy), weir::usage_error);
            CHECK_THROWS_AS(static_cast<void>(memory.try_release(cudaStreamLegacy)), weir::usage_error);
            CHECK(graph.unbroken());
        }
        check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    });
}

TEST_CASE("graph_memory: blocks that are still out at the end are reported") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        std::string const said = support::standard_error_of([&] {
            weir::graph_memory memory(pool);
            support::capture graph(s);
            static_cast<void>(memory.allocate(s, 1000));
            CHECK(graph.unbroken());
        });
        CHECK(said.find("pool 'graph memory' ends with 1024 bytes in 1 block still handed out") != std::string::npos);
        CHECK(pool.in_use_bytes() == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("graph_memory: whatever call fails, nothing is lost") {
    struct state {
        support::scoped_stream s;
        weir::device_pool pool;
        memory_of memory{pool};
        void* a = nullptr;
        void* b = nullptr;
    };
    auto const runs = support::fault_sweep(
        [] {
            auto x = std::make_unique<state>();
            check_cuda(cudaStreamBeginCapture(x->s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
            return x;
        },
        [](state& x) {
            static_cast<void>(x.memory.try_release(weir::on_host));
            x.a = x.memory.try_allocate(x.s, 3 * MiB);
            x.b = x.memory.try_allocate(x.s, 64 * KiB);
            x.memory.deallocate(x.s, x.a, 3 * MiB);
            x.a = nullptr;
            x.a = x.memory.try_allocate(x.s, 3 * MiB);
        },
        [](state& x, support::struck const& fault) {
            cudaGraph_t graph = nullptr;
            static_cast<void>(cudaStreamEndCapture(x.s, &graph));
            static_cast<void>(cudaGetLastError());
            if (graph)
                static_cast<void>(cudaGraphDestroy(graph));
            for (auto const& [p, bytes] : {std::pair<void*, std::size_t>{x.a, 3 * MiB}, {x.b, 64 * KiB}})
                x.memory.deallocate(x.s, p, bytes);
            if (fault.for_ever)
                return;
            x.memory.release(x.s);
            CHECK(x.pool.in_use_bytes() == 0);
            x.pool.settle();
            x.pool.trim();
            CHECK(x.pool.reserved_bytes() == 0);
        }, support::faults::pairs_too);
    CHECK(runs >= 20);
}

TEST_CASE("graph_memory: a block of the pool that is freed in a capture comes back, whatever one call fails") {
    for (char const* const call :
         {"cudaStreamIsCapturing", "cudaStreamGetCaptureInfo", "cudaUserObjectCreate", "cudaGraphRetainUserObject"}) {
        CAPTURE(call);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s;
        weir::device_pool pool;
        memory_of memory(pool);
        void* const p = pool.allocate(s, 8 * MiB);
        {
            recording graph(s);
            simulated_cuda::fail_call(call, 1, cudaErrorMemoryAllocation);
            memory.deallocate(s, p, 8 * MiB);
            CHECK(simulated_cuda::failed_calls() == 1);
            graph.end();
            graph.launch(s);
            CHECK_FALSE(memory.try_release(s)); // it is not known to be over
        }
        CHECK(memory.reserved_bytes() == 8 * MiB);
        memory.release(s);
        CHECK(pool.state().lost_bytes == 0);
        CHECK(pool.in_use_bytes() == 0);
        pool.settle();
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
        drain(s);
    }
}

TEST_CASE("graph_memory: a default stream that frees outside the capture means that of the pool's device, too") {
    for (cudaStream_t const by_default : {cudaStreamLegacy, cudaStreamPerThread})
        for (int const current : {0, 1}) {
            CAPTURE(current);
            simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
            support::scoped_stream const s, last;
            weir::device_pool pool;
            memory_of memory(pool);
            recording graph(s);
            void* const p = memory.allocate(s, 1 * MiB);
            fill(p, 7, 1 * MiB, s);
            graph.end();
            graph.launch(last);
            weir::order_after(by_default, last);
            int wrong = 0;
            auto const reads = [&] {
                for (std::size_t i = 0; i < 1 * MiB; i += 4096)
                    wrong += static_cast<unsigned char*>(simulated_cuda::backing(p))[i] != 7;
            };
            check_cuda(simulated_cuda::launch(by_default, {{p, 1 * MiB}}, {}, reads, "reads"), "launch"); // on device 0
            check_cuda(cudaSetDevice(current), "cudaSetDevice");
            memory.deallocate(by_default, p, 1 * MiB);
            check_cuda(cudaSetDevice(0), "cudaSetDevice");
            memory.release(last);
            void* const q = pool.allocate(last, 2 * MiB);
            fill(q, 1, 2 * MiB, last); // not before the default stream has read
            pool.deallocate(last, q, 2 * MiB);
            drain(last);
            check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            CHECK(wrong == 0);
        }
}

TEST_CASE("graph_memory: a default stream that releases means that of the pool's device, too, and comes behind all that was noted") {
    for (cudaStream_t const by_default : {cudaStreamLegacy, cudaStreamPerThread})
        for (bool const last : {false, true}) {
            CAPTURE(last);
            simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
            support::scoped_stream const s, other;
            weir::device_pool pool;
            memory_of memory(pool);
            recording graph(s);
            memory.share(s, 1);
            void* const p = memory.allocate(s, 2 * MiB);
            fill(p, 1, 2 * MiB, s);
            memory.deallocate(s, p, 2 * MiB);
            graph.end();
            support::capture second(s); // never launched
            memory.share(s, 1);
            CHECK(second.unbroken());
            graph.launch(by_default); // on device 0
            if (last)
                memory.release(other, 1);
            check_cuda(cudaSetDevice(1), "cudaSetDevice");
            memory.release(by_default, 1);
            check_cuda(cudaSetDevice(0), "cudaSetDevice");
            if (!last)
                memory.release(other, 1);
            void* const q = pool.allocate(other, 2 * MiB);
            CHECK((last || q == p));
            fill(q, 2, 2 * MiB, other); // not before the launch
            pool.deallocate(other, q, 2 * MiB);
            drain(other);
            check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        }
}

TEST_CASE("graph_memory: a default stream that is captured on the pool's device frees into it while another is current") {
    for (int const current : {0, 1}) {
        CAPTURE(current);
        simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
        weir::device_pool pool;
        memory_of memory(pool);
        void* const p = pool.allocate(cudaStreamPerThread, 1 * MiB);
        recording graph(cudaStreamPerThread);
        fill(p, 7, 1 * MiB, cudaStreamPerThread);
        check_cuda(cudaSetDevice(current), "cudaSetDevice");
        memory.deallocate(cudaStreamPerThread, p, 1 * MiB);
        CHECK(memory.reserved_bytes() == 1 * MiB);
        CHECK_THROWS_WITH_AS(memory.release(cudaStreamPerThread), doctest::Contains("end the capture first"), weir::usage_error);
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        graph.end();
        graph.launch(cudaStreamPerThread);
        memory.release(cudaStreamPerThread);
        CHECK(pool.state().lost_bytes == 0);
        CHECK(pool.state().live_blocks == 0);
        drain(cudaStreamPerThread);
    }
}

TEST_CASE("graph_memory: what the legacy stream frees while a capture is in its way is no graph's") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    weir::device_pool pool;
    memory_of memory(pool);
    void* const p = pool.allocate(s, 8 * MiB);
    cudaStream_t blocking = nullptr;
    check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
    {
        recording graph(blocking);
        void* const own = memory.allocate(blocking, 256);
        memory.deallocate(cudaStreamLegacy, p, 8 * MiB);
        memory.deallocate(blocking, own, 256);
        graph.end();
    }
    check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    CHECK(comes_back(memory, s));
    CHECK(pool.in_use_bytes() == 0);
    pool.settle();
    pool.trim();
    CHECK(pool.reserved_bytes() == 0);
    drain(s);
}

TEST_CASE("graph_memory: where CUDA does not say which capture frees a block, only 'release' gives back") {
    for (char const* const call : {"cudaStreamIsCapturing", "cudaStreamGetCaptureInfo"}) {
        CAPTURE(call);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s, other;
        weir::device_pool pool;
        memory_of memory(pool);
        void* p = nullptr;
        {
            recording graph(s);
            p = memory.allocate(s, 8 * MiB);
            graph.end();
        }
        recording another(other);
        simulated_cuda::fail_call(call, 1, cudaErrorUnknown);
        memory.deallocate(other, p, 8 * MiB);
        CHECK(simulated_cuda::failed_calls() == 1);
        another.end();
        for (int tries = 0; tries < 20; ++tries)
            CHECK_FALSE(memory.try_release(s)); // that graph may use it at each launch
        another.launch(other);
        check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
        memory.release(s);
        CHECK(pool.in_use_bytes() == 0);
        drain(s);
    }
}

TEST_CASE("graph_memory: where CUDA does not say whose default stream frees, its bytes wait for all work, and for the owner's word") {
    for (cudaStream_t const by_default : {cudaStreamLegacy, cudaStreamPerThread}) {
        CAPTURE(weir::runtime::is_legacy(by_default));
        simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
        support::scoped_stream const s, last;
        weir::device_pool pool;
        memory_of memory(pool);
        bool is_done = false;
        {
            recording graph(s);
            void* const p = memory.allocate(s, 1 * MiB);
            graph.end();
            check_cuda(simulated_cuda::launch(by_default, {}, {{p, 1 * MiB}}, [&] { is_done = true; }), "launch"); // on device 0
            check_cuda(cudaSetDevice(1), "cudaSetDevice");
            for (std::uint64_t const call : {2u, 4u}) // the others are asked as an event is made
                simulated_cuda::fail_call("cudaGetDevice", call, cudaErrorUnknown);
            memory.deallocate(by_default, p, 1 * MiB);
            CHECK(simulated_cuda::failed_calls() == 2);
            check_cuda(cudaSetDevice(0), "cudaSetDevice");
        }
        bool goes = false;
        for (int tries = 0; tries < 20 && !goes; ++tries)
            goes = goes_back(memory, last);
        CHECK(goes == weir::runtime::is_legacy(by_default)); // the other may be captured, into a graph that nobody knows
        memory.release(last);
        CHECK(is_done);
        CHECK(pool.in_use_bytes() == 0);
        void* const q = pool.allocate(last, 1 * MiB);
        fill(q, 1, 1 * MiB, last);
        pool.deallocate(last, q, 1 * MiB);
        drain(last);
    }
}

TEST_CASE("graph_memory: where a graph could not be watched the call fails, and the next one watches it") {
    for (bool const frees : {false, true}) {
        CAPTURE(frees);
        simulated_cuda::world const world;
        support::scoped_stream const s;
        weir::device_pool pool;
        void* const before = pool.allocate(s, 1 * MiB);
        memory_of memory(pool);
        {
            recording graph(s);
            simulated_cuda::fail_call("cudaGraphRetainUserObject", 1, cudaErrorUnknown);
            if (frees) {
                memory.deallocate(s, before, 1 * MiB);
                CHECK(memory.reserved_bytes() == 1 * MiB);
                CHECK(pool.state().lost_bytes == 0);
            } else {
                CHECK_THROWS_WITH_AS(static_cast<void>(memory.allocate(s, 256)),
                                     doctest::Contains("cudaGraphRetainUserObject failed"), weir::cuda_error);
            }
            memory.deallocate(s, memory.allocate(s, 256), 256);
            graph.end();
            CHECK_FALSE(memory.try_release(s));
        }
        CHECK(comes_back(memory, s));
        if (!frees)
            pool.deallocate(s, before, 1 * MiB);
        CHECK(pool.in_use_bytes() == 0);
        drain(s);
    }
}

TEST_CASE("graph_memory: whatever one call fails while it ends, its bytes go back") {
    struct state {
        support::scoped_stream s;
        weir::device_pool pool;
        std::unique_ptr<memory_of> memory = std::make_unique<memory_of>(pool);
        state() {
            support::capture graph(s);
            void* const a = memory->allocate(s, 3 * MiB);
            memory->deallocate(s, a, 3 * MiB);
            CHECK(graph.unbroken());
        }
    };
    auto const runs = support::fault_sweep([] { return std::make_unique<state>(); }, [](state& x) { x.memory.reset(); },
                                           [](state& x, support::struck const& fault) {
                                               CHECK((fault.for_ever || x.pool.in_use_bytes() == 0));
                                           });
    CHECK(runs >= 2);
}

TEST_CASE("graph_memory: its end waits for the graph's work also where one call fails") {
    bool failed = true;
    for (std::uint64_t k = 1; failed; ++k) {
        CAPTURE(k);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s;
        weir::device_pool pool;
        auto memory = std::make_unique<memory_of>(pool);
        {
            recording graph(s);
            void* const p = memory->allocate(s, 1 * MiB);
            fill(p, 3, 1 * MiB, s);
            memory->deallocate(s, p, 1 * MiB);
            graph.end();
            graph.launch(s);
        }
        REQUIRE(simulated_cuda::pending() != 0);
        simulated_cuda::fail_call(k, cudaErrorUnknown);
        memory.reset();
        failed = simulated_cuda::failed_calls() != 0;
        simulated_cuda::clear_faults();
        CHECK(simulated_cuda::pending() == 0); // anyone may have the bytes from now on
    }
}

TEST_CASE("graph_memory: where the device does not answer nothing goes back, by its owner's word or at its end") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    weir::device_pool pool;
    for (bool const ends : {false, true}) {
        CAPTURE(ends);
        auto memory = std::make_unique<memory_of>(pool);
        recording graph(s);
        void* const p = memory->allocate(s, 1 * MiB);
        fill(p, 3, 1 * MiB, s);
        memory->deallocate(s, p, 1 * MiB);
        graph.end();
        graph.launch(s);
        for (char const* call : {"cudaMallocManaged", "cudaMalloc"})
            simulated_cuda::fail_call(call, 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
        if (ends)
            memory.reset();
        else
            CHECK_THROWS_AS(memory->release(weir::on_host), weir::cuda_error);
        simulated_cuda::clear_faults();
        CHECK(simulated_cuda::pending() != 0);
        CHECK(pool.in_use_bytes() == 2 * MiB); // nobody else's
        if (ends)
            continue;
        CHECK(memory->reserved_bytes() == 2 * MiB);
        memory->release(weir::on_host);
        CHECK(simulated_cuda::pending() == 0);
        CHECK(pool.in_use_bytes() == 0);
    }
    simulated_cuda::clear_reports();
    drain(s);
}

TEST_CASE("graph_memory: whatever host memory is left, an allocation throws or is made, and a free loses nothing to others") {
    if (!support::host_memory_can_fail)
        return;
    int thrown = 0;
    for (long failures = 0; failures < 40; ++failures) {
        CAPTURE(failures);
        simulated_cuda::world const world;
        support::scoped_stream const s;
        weir::device_pool pool;
        void* const before = pool.allocate(s, 1 * MiB);
        std::size_t const in_use = pool.in_use_bytes();
        memory_of memory(pool);
        support::capture graph(s);
        void* a = nullptr;
        try {
            support::failing_new const fails(failures);
            a = memory.try_allocate(s, 3 * MiB);
        } catch (std::bad_alloc const&) {
            ++thrown;
            CHECK(pool.in_use_bytes() == in_use);
            a = memory.try_allocate(s, 3 * MiB);
        }
        CHECK(a != nullptr);
        {
            support::failing_new const fails(failures % 4);
            memory.deallocate(s, a, 3 * MiB);
            memory.deallocate(s, before, 1 * MiB); // a block of the pool
        }
        CHECK(graph.unbroken());
        CHECK(memory.in_use_bytes() == 0);
        memory.release(s);
        CHECK(pool.in_use_bytes() == 0);
    }
    CHECK(thrown > 3);
}

TEST_CASE("graph_memory: where the host has no memory to note a stream's free bytes, it keeps nothing of them") {
    if (!support::host_memory_can_fail)
        return;
    int thrown = 0;
    for (long failures = 0; failures < 16; ++failures) {
        CAPTURE(failures);
        simulated_cuda::world const world;
        support::scoped_stream const s;
        weir::device_pool pool;
        void* const before = pool.allocate(s, 1 * MiB); // so that the device is ready
        weir::graph_memory<weir::device_pool, counted_placement> memory(pool);
        support::capture graph(s);
        void* p = nullptr;
        try {
            support::failing_new const fails(failures);
            p = memory.try_allocate(s, 1 * KiB);
        } catch (std::bad_alloc const&) {
            ++thrown;
            p = memory.try_allocate(s, 1 * KiB);
        }
        memory.deallocate(s, p, 1 * KiB);
        CHECK(counted_placement::alive == 1);
        CHECK(graph.unbroken());
        memory.release(s);
        CHECK(counted_placement::alive == 0);
        pool.deallocate(s, before, 1 * MiB);
        drain(s);
    }
    CHECK(thrown > 3);
}

#endif

TEST_CASE("graph_memory: a large block of the pool that a capture frees makes no chunk larger") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        void* const large = pool.allocate(s, 64 * MiB);
        {
            recording graph(s);
            memory.deallocate(s, large, 64 * MiB);
            void* const p = memory.allocate(s, 1 * KiB);
            CHECK(memory.reserved_bytes() == 66 * MiB);
            memory.deallocate(s, p, 1 * KiB);
            graph.end();
        }
        memory.release(s);
        drain(s);
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE("graph_memory: refuses the host, and says where pinned containers are to come from") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        weir::graph_memory memory(pool);
        recording graph(s);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(memory.allocate(weir::on_host, 64)); }),
                   "weir: graph memory is for a graph's own work, and pinned containers allocate on the host; take them from its "
                   "pool");
        graph.end();
    });
}

TEST_CASE("graph_memory: a handler is not asked for what its pool never has") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool(weir::pool_options{}.limit(8 * MiB));
        weir::graph_memory below(pool);
        int asked = 0;
        weir::layer::failure_handler memory([&](weir::failed_allocation const&) { return ++asked, false; }, below);
        recording graph(s);
        CHECK(memory.try_allocate(s, 16 * MiB) == nullptr);
        CHECK(memory.try_allocate(s, SIZE_MAX / 2) == nullptr);
        CHECK(asked == 0);
        void* const p = memory.allocate(s, 6 * MiB);
        CHECK(memory.try_allocate(s, 6 * MiB) == nullptr);
        CHECK(asked == 1);
        memory.deallocate(s, p, 6 * MiB);
        graph.end();
    });
}

TEST_CASE("graph_memory: its pool's failure handler may ask it to go back") {
    support::every_schedule([] {
        support::scoped_stream const s;
        struct asker {
            weir::graph_memory<weir::layer::failure_handler<weir::device_pool, asker&>>* memory = nullptr;
            int asked = 0;
            bool operator()(weir::failed_allocation const& failed) {
                ++asked;
                return failed.attempt == 0 && memory->try_release(weir::on_host);
            }
        } handler;
        weir::layer::failure_handler<weir::device_pool, asker&> pool(handler, weir::pool_options{}.limit(8 * MiB));
        weir::graph_memory<weir::layer::failure_handler<weir::device_pool, asker&>> memory(pool);
        handler.memory = &memory;
        void* const held = pool.allocate(s, 4 * MiB);
        recording graph(s);
        CHECK(memory.try_allocate(s, 6 * MiB) == nullptr);
        CHECK(handler.asked != 0);
        void* const p = memory.allocate(s, 1 * MiB);
        memory.deallocate(s, p, 1 * MiB);
        graph.end();
        pool.deallocate(s, held, 4 * MiB);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("graph_memory: what other streams did before they freed outside the capture comes before any other use") {
    for (bool const fails : {false, true}) {
        CAPTURE(fails);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s, reader, last;
        weir::device_pool pool;
        void* p = nullptr;
        weir::graph_memory memory(pool);
        {
            recording graph(s);
            p = memory.allocate(s, 1 * MiB);
            simulated_cuda::note_allocate(p, 1 * MiB, s);
            CHECK(simulated_cuda::launch(s, {}, {{p, 1 * MiB}}) == cudaSuccess);
            graph.end();
            graph.launch(last);
            weir::order_after(reader, last);
            CHECK(simulated_cuda::launch(reader, {{p, 1 * MiB}}, {}) == cudaSuccess);
            if (fails)
                simulated_cuda::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
            memory.deallocate(reader, p, 1 * MiB);
            simulated_cuda::clear_faults();
        }
        simulated_cuda::note_free(p, 1 * MiB, reader);
        memory.release(last);
        void* const q = pool.allocate(last, 2 * MiB); // the chunk, in flight but for the order
        CHECK(q == p);
        simulated_cuda::note_allocate(q, 2 * MiB, last);
        CHECK(simulated_cuda::launch(last, {}, {{q, 2 * MiB}}) == cudaSuccess);
        simulated_cuda::note_free(q, 2 * MiB, last);
        pool.deallocate(last, q, 2 * MiB);
        drain(last);
        drain(reader);
    }
}

TEST_CASE("graph_memory: a free outside the capture on a stream that is no more is waited for with all work on the device") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, user, last;
    weir::device_pool pool;
    weir::graph_memory memory(pool);
    {
        recording graph(s);
        void* const p = memory.allocate(s, 1 * MiB);
        graph.end();
        graph.launch(last);
        check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, user), "cudaMemsetAsync");
        cudaStream_t gone = nullptr;
        check_cuda(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        check_cuda(cudaStreamDestroy(gone), "cudaStreamDestroy");
        memory.deallocate(gone, p, 1 * MiB); // against the rules
    }
    memory.release(last);
    CHECK(cudaStreamQuery(user) == cudaSuccess);
    simulated_cuda::clear_reports();
}
#endif
