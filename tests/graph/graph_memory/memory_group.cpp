// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
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
#include <support/standard_error.hpp>
#include <vector>
#include <weir/graph/graph_memory.hpp>
#include <weir/order/order_after.hpp>
#include <weir/recipes.hpp>

using support::copy;
using support::drain;
using support::fill;
using support::first_byte;
using support::recording;
using weir::check_cuda;
using weir::KiB;
using weir::MiB;

namespace {

constexpr std::uint64_t id = 7;
constexpr std::size_t chunk = 2 * MiB; // what graph memory gets at least
using memory_of = weir::graph_memory<weir::device_pool>;

// CUDA tells of a graph's end some time after its last launch.
bool comes_back(memory_of& memory, cudaStream_t s, std::uint64_t of) {
    bool back = false;
    for (int turns = 0; turns < 1'000'000 && !back; ++turns)
        back = memory.try_release(s, of);
    return back;
}

// A block that lives from one capture to the next.
void take_and_give(memory_of& memory, cudaStream_t s, std::size_t bytes) {
    memory.deallocate(s, memory.allocate(s, bytes), bytes);
}

} // namespace

TEST_CASE("memory_group: graphs of one id have the same bytes, whichever streams they were captured on, and lose no result") {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        weir::device_pool pool;
        memory_of memory(pool);
        std::vector<std::unique_ptr<recording>> graphs;
        std::vector<void*> results;
        for (int i = 0; i < 6; ++i) {
            cudaStream_t const on = i % 2 == 0 ? s : t;
            graphs.push_back(std::make_unique<recording>(on));
            memory.share(on, id);
            memory.share(on, id); // changes nothing
            void* const temporary = memory.allocate(on, 4 * MiB);
            results.push_back(memory.allocate(on, 64 * KiB));
            fill(temporary, i + 1, 4 * MiB, on);
            copy(results.back(), temporary, 64 * KiB, on);
            memory.deallocate(on, temporary, 4 * MiB);
            graphs.back()->end();
        }
        CHECK(memory.reserved_bytes() <= 8 * MiB); // of each its own they would be 36
        for (auto const& each : graphs)
            each->launch(s);
        drain(s);
        for (std::size_t i = 0; i < results.size(); ++i) {
            CHECK(first_byte(results[i]) == static_cast<int>(i) + 1);
            memory.deallocate(s, results[i], 64 * KiB);
        }
        CHECK(memory.in_use_bytes() == 0);
        while (!graphs.empty()) {
            CHECK(memory.reserved_bytes() != 0);
            graphs.pop_back();
            memory.release(s, id);
        }
        CHECK(memory.reserved_bytes() == 0);
        CHECK(pool.in_use_bytes() == 0);
        CHECK_THROWS_WITH_AS(memory.release(s, id), doctest::Contains("no graph shares memory by this id"), weir::usage_error);
        drain(s);
    });
}

TEST_CASE("memory_group: what earlier captures left goes to one stream of a capture, and not to another one beside it") {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        weir::device_pool pool;
        memory_of memory(pool);
        {
            recording first(s);
            memory.share(s, id);
            take_and_give(memory, s, 1 * MiB);
            first.end();
            recording second(s);
            memory.share(s, id);
            weir::order_after(t, s);
            void* const p = memory.allocate(s, 1536 * KiB);
            fill(p, 1, 1536 * KiB, s);
            memory.deallocate(s, p, 1536 * KiB);
            void* const q = memory.allocate(t, 512 * KiB); // of what is left
            void* const r = memory.allocate(t, 512 * KiB);
            CHECK(memory.reserved_bytes() == 4 * MiB);
            fill(q, 2, 512 * KiB, t);
            fill(r, 3, 512 * KiB, t);
            CHECK(memory.state().largest_free_bytes >= 1536 * KiB);
            memory.deallocate(t, q, 512 * KiB);
            memory.deallocate(t, r, 512 * KiB);
            weir::order_after(s, t);
            second.end();
            second.launch(s);
            drain(s);
        }
        memory.release(s, id);
        memory.release(s, id);
        CHECK(pool.in_use_bytes() == 0);
        drain(s);
    });
}

TEST_CASE("memory_group: a capture begins when the work on what was freed outside of captures is done") {
    support::every_schedule([] {
        support::scoped_stream const s, reader, other;
        weir::device_pool pool;
        memory_of memory(pool);
        recording first(s);
        memory.share(s, id);
        void* const p = memory.allocate(s, 2 * MiB);
        fill(p, 1, 2 * MiB, s);
        first.end();
        first.launch(s);
        weir::order_after(reader, static_cast<cudaStream_t>(s));
        fill(p, 2, 2 * MiB, reader);
        memory.deallocate(reader, p, 2 * MiB);
        recording second(other);
        memory.share(other, id);
        void* const q = memory.allocate(other, 2 * MiB);
        CHECK(q == p);
        fill(q, 3, 2 * MiB, other);
        memory.deallocate(other, q, 2 * MiB);
        second.end();
        second.launch(other); // in no order with the reader
        memory.release(other, id);
        memory.release(other, id);
        void* const next = pool.allocate(other, 2 * MiB);
        fill(next, 4, 2 * MiB, other);
        pool.deallocate(other, next, 2 * MiB);
        drain(other);
    });
}

TEST_CASE("memory_group: ids, and the graph without one, have memory of their own, and the pool's blocks that they freed") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        memory_of memory(pool);
        void* const early = pool.allocate(s, 1 * MiB);
        void* const late = pool.allocate(s, 1 * MiB);
        auto const capture = [&](std::uint64_t of) {
            auto made = std::make_unique<recording>(s);
            if (of != 0)
                memory.share(s, of);
            take_and_give(memory, s, 1 * MiB);
            if (of == 1)
                memory.deallocate(s, early, 1 * MiB);
            made->end();
            return made;
        };
        auto alone = capture(0), one = capture(1), two = capture(2);
        CHECK(memory.reserved_bytes() == 7 * MiB);
        CHECK(memory.owns(early));
        memory.release(s);
        CHECK(memory.reserved_bytes() == 5 * MiB);
        memory.release(s, 1);
        CHECK(memory.reserved_bytes() == 2 * MiB);
        {
            recording third(s); // without an id again
            memory.deallocate(s, late, 1 * MiB);
            third.end();
        }
        CHECK_FALSE(memory.try_release(s, 2));
        two.reset();
        CHECK(comes_back(memory, s, 2));
        CHECK(memory.try_release(s, 2)); // there is none
        CHECK(memory.reserved_bytes() == 1 * MiB);
        memory.release(s);
        CHECK(pool.in_use_bytes() == 0);
        drain(s);
    });
}

TEST_CASE("memory_group: the last release leaves to 'collect' what is handed out") {
    for (bool const by_host : {false, true})
        support::every_schedule([by_host] {
            support::scoped_stream const s, other;
            weir::device_pool pool;
            memory_of memory(pool);
            void* p = nullptr;
            {
                recording graph(s);
                memory.share(s, id);
                p = memory.allocate(s, 1 * MiB);
                fill(p, 1, 1 * MiB, s);
                graph.end();
                graph.launch(s);
            }
            memory.release(by_host ? weir::on_host : weir::stream_ref(s), id);
            CHECK(memory.collect() == 0);
            CHECK_THROWS_WITH_AS(memory.release(s, id), doctest::Contains("once for each 'share'"), weir::usage_error);
            memory.deallocate(other, p, 1 * MiB);
            CHECK(memory.collect() == 2 * MiB);
            CHECK(memory.collect() == 0);
            CHECK(pool.in_use_bytes() == 0);
            void* const q = pool.allocate(other, 1 * MiB); // in no order with 's'
            fill(q, 2, 1 * MiB, other);
            pool.deallocate(other, q, 1 * MiB);
            drain(other);
        });
}

TEST_CASE("memory_group: what a capture frees after another one began is for the one after that") {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        weir::device_pool pool;
        memory_of memory(pool);
        void* const of_pool = pool.allocate(s, 1 * MiB);
        recording first(s);
        memory.share(s, id);
        void* const p = memory.allocate(s, 2 * MiB);
        fill(p, 1, 2 * MiB, s);
        support::capture second(t, cudaStreamCaptureModeRelaxed);
        memory.share(t, id);
        CHECK_THROWS_WITH_AS(static_cast<void>(memory.allocate(s, 64)), doctest::Contains("one after another"),
                             weir::usage_error);
        CHECK_THROWS_AS(memory.share(s, id), weir::usage_error);
        memory.deallocate(s, p, 2 * MiB);
        memory.deallocate(s, of_pool, 1 * MiB); // its graph's, too
        void* const q = memory.allocate(t, 2 * MiB);
        CHECK(q != p);
        fill(q, 2, 2 * MiB, t);
        memory.deallocate(t, q, 2 * MiB);
        first.end();
        CHECK(second.unbroken());
        recording third(t);
        memory.share(t, id);
        void* const back[] = {memory.allocate(t, 2 * MiB), memory.allocate(t, 2 * MiB)};
        CHECK((back[0] == p || back[1] == p));
        CHECK((back[0] == q || back[1] == q));
        for (void* const each : back)
            memory.deallocate(t, each, 2 * MiB);
        third.end();
    });
}

TEST_CASE("memory_group: 'collect' leaves what another id's graph may use to its owner's last word") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::device_pool pool;
        memory_of memory(pool);
        void* p = nullptr;
        {
            recording graph(s);
            memory.share(s, 1);
            p = memory.allocate(s, 2 * MiB);
            fill(p, 1, 2 * MiB, s);
            graph.end();
            graph.launch(s);
        }
        memory.release(s, 1);
        {
            recording reads(s);
            memory.share(s, 2);
            fill(p, 2, 2 * MiB, s);
            memory.deallocate(s, p, 2 * MiB);
            reads.end();
            CHECK(memory.collect() == 0);
            CHECK_FALSE(memory.try_release(s, 1));
            void* const theirs = pool.allocate(other, 2 * MiB);
            CHECK(theirs != p);
            fill(theirs, 3, 2 * MiB, other);
            pool.deallocate(other, theirs, 2 * MiB);
            reads.launch(s);
        }
        memory.release(s, 1); // that graph is gone, which nobody else knows
        CHECK(memory.reserved_bytes() == 0);
        CHECK_THROWS_AS(memory.release(s, 1), weir::usage_error);
        memory.release(s, 2);
        drain(s);
        drain(other);
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE("memory_group: what is freed in a capture that has broken is for the id's next one, and keeps nothing for ever") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        memory_of memory(pool);
        for (std::uint64_t const of : {std::uint64_t{0}, id}) {
            auto const broken = [&] {
                recording graph(s);
                if (of != 0)
                    memory.share(s, of);
                void* const p = memory.allocate(s, chunk - KiB);
                static_cast<void>(cudaStreamQuery(s)); // breaks it
                memory.deallocate(s, p, chunk - KiB);
                graph.spoil();
            };
            broken();
            if (of != 0)
                for (int i = 0; i < 3; ++i)
                    broken();
            CHECK(memory.in_use_bytes() == 0);
            CHECK(memory.reserved_bytes() == chunk);
            CHECK(comes_back(memory, s, of));
            CHECK(pool.in_use_bytes() == 0);
        }
        drain(s);
    });
}

TEST_CASE("memory_group: an id whose capture is under way keeps its graphs, also before the first block") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::device_pool pool;
        memory_of memory(pool);
        recording first(s);
        memory.share(s, id);
        CHECK_FALSE(memory.try_release(other, id));
        take_and_give(memory, s, 1 * MiB);
        first.end();
        recording second(s);
        memory.share(s, id);
        take_and_give(memory, s, 1 * MiB);
        second.end();
        CHECK(memory.reserved_bytes() == chunk);
        CHECK(memory.graphs(id) == 2);
        memory.release(s, id);
        memory.release(s, id);
        CHECK(memory.reserved_bytes() == 0);
    });
}

TEST_CASE("memory_group: refuses ids that say nothing and graphs that have memory already") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        memory_of memory(pool);
        CHECK_THROWS_WITH_AS(memory.share(s, id), doctest::Contains("begin the capture first"), weir::usage_error);
        CHECK_THROWS_WITH_AS(memory.release(s, id), doctest::Contains("no graph shares memory by this id"), weir::usage_error);
        recording graph(s);
        CHECK_THROWS_WITH_AS(memory.share(s, 0), doctest::Contains("an id that is not 0"), weir::usage_error);
        take_and_give(memory, s, 64);
        CHECK_THROWS_WITH_AS(memory.share(s, id), doctest::Contains("before its first block"), weir::usage_error);
        CHECK_THROWS_WITH_AS(memory.release(s, id), doctest::Contains("end the capture first"), weir::usage_error);
        graph.end();
        recording other(s);
        memory.share(s, id);
        CHECK_THROWS_WITH_AS(memory.share(s, id + 1), doctest::Contains("has graph memory already"), weir::usage_error);
        other.end();
    });
}

TEST_CASE("memory_group: what is still handed out at the end is reported, and all memory goes back") {
    support::scoped_stream const s;
    weir::device_pool pool;
    std::string const said = support::standard_error_of([&] {
        memory_of memory(pool);
        recording graph(s);
        memory.share(s, id);
        static_cast<void>(memory.allocate(s, 1 * MiB));
        graph.end();
        graph.launch(s);
    });
    CHECK(said.find("'graph memory' ends with 1048576 bytes in 1 block") != std::string::npos);
    CHECK(pool.in_use_bytes() == 0);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("memory_group: whoever waits lets a host function free a block, and it is there for the next graph") {
    struct free_later {
        memory_of& memory;
        cudaStream_t on;
        void* p;
        static void call(void* of) {
            auto const& self = *static_cast<free_later*>(of);
            self.memory.deallocate(self.on, self.p, 1 * MiB);
        }
    };
    enum class waiting { share, collect, release, try_release };
    for (waiting const by : {waiting::share, waiting::collect, waiting::release, waiting::try_release}) {
        CAPTURE(static_cast<int>(by));
        simulated_cuda::world const world(simulated_cuda::config{}.late());
        support::scoped_stream const s, other;
        weir::device_pool pool;
        memory_of memory(pool);
        void* const of_pool = pool.allocate(s, 1 * MiB);
        auto const kept_of = [&](std::uint64_t of) {
            recording graph(s);
            memory.share(s, of);
            void* const p = memory.allocate(s, 1 * MiB);
            if (of == id)
                memory.deallocate(s, of_pool, 1 * MiB); // for which 'try_release' waits
            graph.end();
            return p;
        };
        free_later work{memory, s, kept_of(id + 1)};
        void* const last = kept_of(id);
        check_cuda(cudaLaunchHostFunc(s, free_later::call, &work), "cudaLaunchHostFunc");
        if (by == waiting::collect)
            memory.release(s, id);
        memory.deallocate(s, last, 1 * MiB); // noted behind the host function
        recording next(other);
        if (by == waiting::share)
            memory.share(other, id);
        else if (by == waiting::collect)
            CHECK(memory.collect() == chunk + 1 * MiB);
        else if (by == waiting::release)
            memory.release(weir::on_host, id);
        else
            CHECK(comes_back(memory, s, id));
        CHECK(memory.in_use_bytes() == 0);
        next.end();
        recording more(other);
        memory.share(other, id + 1);
        CHECK(memory.allocate(other, chunk) == work.p);
        memory.deallocate(other, work.p, chunk);
        CHECK(memory.reserved_bytes() == (by == waiting::share ? 2 * chunk + 1 * MiB : chunk));
        more.end();
        for (simulated_cuda::report const& each : simulated_cuda::reports()) // of the calls in the host function
            CHECK(each.kind == simulated_cuda::finding::host_access);
        simulated_cuda::clear_reports();
    }
}

TEST_CASE("memory_group: a 'share' that fails in its wait ends the earlier capture's turn") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, t;
    weir::device_pool pool;
    memory_of memory(pool);
    support::capture first(s, cudaStreamCaptureModeRelaxed);
    memory.share(s, id);
    memory.deallocate(t, memory.allocate(s, 1 * MiB), 1 * MiB); // outside of captures
    support::capture second(t, cudaStreamCaptureModeRelaxed);
    for (char const* const call : {"cudaEventSynchronize", "cudaMallocManaged", "cudaMalloc"})
        simulated_cuda::fail_call(call, 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
    CHECK_THROWS_AS(memory.share(t, id), weir::cuda_error);
    simulated_cuda::clear_faults();
    CHECK_THROWS_WITH_AS(static_cast<void>(memory.allocate(s, 64)), doctest::Contains("one after another"), weir::usage_error);
    CHECK(memory.graphs(id) == 1);
    memory.share(t, id);
    take_and_give(memory, t, 64);
    CHECK(first.unbroken());
    CHECK(second.unbroken());
}

TEST_CASE("memory_group: a 'share' that failed at last does not keep the memory") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    weir::device_pool pool;
    memory_of memory(pool);
    {
        recording graph(s);
        memory.share(s, id);
        take_and_give(memory, s, 1 * MiB);
        graph.end();
    }
    {
        recording graph(s);
        simulated_cuda::fail_call("cudaUserObjectCreate", 1, cudaErrorUnknown);
        CHECK_THROWS_AS(memory.share(s, id), weir::cuda_error);
        graph.end();
    }
    CHECK(comes_back(memory, s, id));
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE("memory_group: whatever call of 'share' fails, the graph shares nothing, and the next call shares") {
    bool failed = true;
    for (std::uint64_t k = 1; failed; ++k) {
        CAPTURE(k);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s, t;
        weir::device_pool pool;
        memory_of memory(pool);
        recording first(s);
        memory.share(s, id);
        void* const p = memory.allocate(s, chunk - KiB);
        first.end();
        first.launch(s);
        memory.deallocate(s, p, chunk - KiB);
        recording second(t);
        simulated_cuda::fail_call(k, cudaErrorUnknown);
        try {
            memory.share(t, id);
            failed = simulated_cuda::failed_calls() != 0;
            simulated_cuda::clear_faults();
        } catch (weir::cuda_error const&) {
            simulated_cuda::clear_faults();
            memory.share(t, id);
        }
        CHECK(memory.allocate(t, chunk - KiB) == p);
        memory.deallocate(t, p, chunk - KiB);
        second.end();
        second.launch(t);
        memory.release(t, id);
        CHECK(memory.reserved_bytes() == chunk);
        memory.release(t, id);
        CHECK(pool.in_use_bytes() == 0);
    }
}

TEST_CASE("memory_group: whatever host memory is left, 'share' and the blocks that follow throw or are made") {
    if (!support::host_memory_can_fail)
        return;
    int thrown = 0;
    for (long failures = 0; failures < 24; ++failures) {
        CAPTURE(failures);
        simulated_cuda::world const world;
        support::scoped_stream const s;
        weir::device_pool pool;
        memory_of memory(pool);
        {
            recording first(s);
            memory.share(s, id);
            take_and_give(memory, s, chunk - KiB);
            first.end();
        }
        recording second(s);
        void* p = nullptr;
        try {
            support::failing_new const fails(failures);
            memory.share(s, id);
            p = memory.allocate(s, chunk - KiB);
        } catch (std::bad_alloc const&) {
            ++thrown;
            memory.share(s, id);
            p = memory.allocate(s, chunk - KiB);
        }
        CHECK(memory.reserved_bytes() == chunk); // nothing was lost
        memory.deallocate(s, p, chunk - KiB);
        second.end();
        memory.release(s, id);
        memory.release(s, id);
        CHECK(pool.in_use_bytes() == 0);
    }
    CHECK(thrown > 3);
}
#endif
