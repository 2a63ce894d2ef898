// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <vector>
#include <weir/order/second_uses.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/wait.hpp>

using support::sentence_of;
using weir::check_cuda;
using weir::order::second_uses;

TEST_CASE("second_uses: a block that nobody marked has none") {
    support::every_schedule([] {
        second_uses uses;
        CHECK_FALSE(uses.any());
        CHECK(uses.take(4096, weir::on_host).empty());
        CHECK(uses.take(0x7f0000000000, weir::on_host).empty());
    });
}

TEST_CASE("second_uses: a block's events come out together, once") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        second_uses uses;
        uses.add(4096, a);
        uses.add(4096, b);
        uses.add(4096, a);
        uses.add(8192, b);
        CHECK(uses.any());
        CHECK(uses.take(4096, weir::on_host).events.size() == 3);
        CHECK(uses.take(4096, weir::on_host).empty());
        CHECK(uses.any());
        CHECK(uses.take(8192, weir::on_host).events.size() == 1);
        CHECK_FALSE(uses.any());
        CHECK(uses.take(8192, weir::on_host).empty());
    });
}

TEST_CASE("second_uses: an event covers what was enqueued before the mark, and no more") {
    support::every_schedule([] {
        support::scoped_stream const a;
        second_uses uses;
        void* p = nullptr;
        check_cuda(cudaMalloc(&p, 4096), "cudaMalloc");
        check_cuda(cudaMemsetAsync(p, 1, 4096, a), "cudaMemsetAsync");
        uses.add(1024, a);
        weir::base::growing_array<weir::runtime::event> const events = uses.take(1024, weir::on_host).events;
        REQUIRE(events.size() == 1);
        events[0].synchronize();
        CHECK(weir::order::all_reached(events));
        weir::synchronize(a);
        check_cuda(cudaFree(p), "cudaFree");
    });
}

TEST_CASE("second_uses: an event knows its stream, and what was recorded before it") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        second_uses uses;
        uses.add(1, a);
        uses.add(2, b);
        uses.add(1, a);
        weir::base::growing_array<weir::runtime::event> const first = uses.take(1, weir::on_host).events, other = uses.take(2, weir::on_host).events;
        REQUIRE(first.size() == 2);
        CHECK(first[0].place().stream_id == weir::runtime::id_of(a));
        CHECK(other[0].place().stream_id == weir::runtime::id_of(b));
        CHECK(first[0].place().begin != 0);
        CHECK(first[0].place().begin < first[0].place().end);
        CHECK(first[0].place().end < other[0].place().begin);
        CHECK(other[0].place().end < first[1].place().begin);
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("second_uses: of events that threads record at once none is known to be before the other") {
    simulated_cuda::world const world(simulated_cuda::config{}.eager(), support::report_all);
    support::scoped_stream const a;
    second_uses uses;
    static thread_local second_uses* meanwhile = nullptr;
    static thread_local cudaStream_t stream = nullptr;
    static thread_local std::uint64_t made = 0;
    meanwhile = &uses;
    stream = a;
    made = simulated_cuda::calls("cudaEventCreateWithFlags");
    simulated_cuda::at_switch_points([] {
        if (simulated_cuda::calls("cudaEventCreateWithFlags") != made) { // in the record, before CUDA has it
            simulated_cuda::at_switch_points(nullptr);
            meanwhile->add(2, stream);
        }
    });
    uses.add(1, a);
    simulated_cuda::at_switch_points(nullptr);
    weir::base::growing_array<weir::runtime::event> const outer = uses.take(1, weir::on_host).events, inner = uses.take(2, weir::on_host).events;
    REQUIRE(inner.size() == 1);
    CHECK(outer[0].place().begin < inner[0].place().begin);
    CHECK(inner[0].place().end < outer[0].place().end);
}

#endif

TEST_CASE("second_uses: all_reached asks every event") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        weir::base::growing_array<weir::runtime::event> events;
        CHECK(weir::order::all_reached(events));
        events.push_back(weir::runtime::event(weir::any_device));
        events.push_back(weir::runtime::event(weir::any_device));
        events[0].record(a);
        weir::synchronize(a);
        CHECK(weir::order::all_reached(events)); // one reached, one never recorded
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::gate held;
        check_cuda(held.close(b), "gate");
        events[1].record(b);
        CHECK_FALSE(weir::order::all_reached(events));
        std::swap(events[0], events[1]);
        CHECK_FALSE(weir::order::all_reached(events));
        held.open();
#else
        events[1].record(b);
#endif
        weir::synchronize(b);
        CHECK(weir::order::all_reached(events));
    });
}

TEST_CASE("second_uses: a mark outlives its stream") {
    support::every_schedule([] {
        second_uses uses;
        {
            support::scoped_stream const s;
            uses.add(64, s);
        }
        weir::base::growing_array<weir::runtime::event> const events = uses.take(64, weir::on_host).events;
        REQUIRE(events.size() == 1);
        events[0].synchronize();
    });
}

TEST_CASE("second_uses: streams of any device are marked on their own") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2));
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    second_uses uses;
    for (int i = 0; i < devices; ++i) {
        weir::runtime::device_scope const there(i);
        support::scoped_stream const s;
        weir::runtime::device_scope const here(0);
        uses.add(64, s);
        CHECK(weir::runtime::current_device() == 0);
    }
    CHECK(uses.take(64, weir::on_host).events.size() == static_cast<std::size_t>(devices));
}

TEST_CASE("second_uses: a captured stream has no end to mark: refused with a sentence, and the capture lives on") {
    support::every_schedule([] {
        support::scoped_stream const s;
        second_uses uses;
        support::capture graph(s);
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { uses.add(64, s); }),
                   "keep the block until the graph has run instead");
        CHECK_FALSE(uses.any());
        CHECK(graph.unbroken());
    });
}

TEST_CASE("second_uses: agrees with a map of counts") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    support::scoped_stream const s;
    std::mt19937_64 draw(17);
    second_uses uses;
    std::map<std::size_t, std::size_t> model;
    for (int step = 0; step < 1500; ++step) {
        std::size_t const offset = (draw() % 40 + 1) * 256;
        if (draw() % 2 == 0) {
            uses.add(offset, s);
            ++model[offset];
        } else {
            auto const found = model.find(offset);
            REQUIRE(uses.take(offset, weir::on_host).events.size() == (found == model.end() ? 0 : found->second));
            model.erase(offset);
        }
        REQUIRE(uses.any() == !model.empty());
    }
}

TEST_CASE("second_uses: threads mark and take blocks of their own") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    second_uses uses;
    std::atomic<int> wrong{0};
    std::vector<std::thread> crew;
    for (std::size_t t = 1; t <= 4; ++t)
        crew.emplace_back([&, t] {
            support::scoped_stream const s;
            for (std::size_t i = 1; i <= 150; ++i) {
                std::size_t const offset = (i % 7 * 4 + t) * 256;
                for (std::size_t k = 0; k < i % 3; ++k)
                    uses.add(offset, s);
                if (uses.take(offset, weir::on_host).events.size() != i % 3)
                    wrong.fetch_add(1);
            }
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(wrong.load() == 0);
    CHECK_FALSE(uses.any());
}

TEST_CASE("second_uses: every call may fail, and then nothing is marked") {
    struct state {
        support::scoped_stream s;
        second_uses uses;
    };
    auto const prepare = [] {
        auto fresh = std::make_unique<state>();
        fresh->uses.add(64, fresh->s);
        return fresh;
    };
    auto runs = support::fault_sweep(prepare, [](state& x) { x.uses.add(128, x.s); },
                                     [](state& x, support::struck const& fault) {
                                         CHECK(fault.threw == !fault.calls.empty());
                                         CHECK(x.uses.take(128, weir::on_host).events.size() == (fault.threw ? 0 : 1));
                                         CHECK(x.uses.take(64, weir::on_host).events.size() == 1);
                                     });
    runs += support::fault_sweep(prepare, [](state& x) { x.uses.add(64, x.s); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK(fault.threw == !fault.calls.empty());
                                     CHECK(x.uses.take(64, weir::on_host).events.size() == (fault.threw ? 1 : 2));
                                 });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 16);
#endif
    static_cast<void>(runs);
}

TEST_CASE("second_uses: a block that is marked again and again has few events, those that are not over among them") {
    support::every_schedule([] {
        support::scoped_stream const s;
        second_uses uses;
        std::size_t most = 0;
        for (int i = 0; i < 2000; ++i) {
            uses.add(64, s);
            if (i % 50 == 49)
                check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        }
        auto const left = uses.take(64, weir::on_host).events;
        most = left.size();
        CHECK(most >= 1);
        CHECK(most <= 128);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("second_uses: what is not over is never dropped") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, t;
    second_uses uses;
    simulated_cuda::gate held;
    held.close(t);
    uses.add(64, t);
    for (int i = 0; i < 500; ++i) {
        uses.add(64, s);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    }
    CHECK_FALSE(weir::order::all_reached(uses.take(64, weir::on_host).events));
    held.open();
}
#endif

TEST_CASE("second_uses: a free needs no host memory, however many blocks are marked") {
    support::every_schedule([] {
        support::scoped_stream const s;
        second_uses uses;
        std::vector<weir::base::growing_array<weir::runtime::event>> found(100);
        for (std::size_t i = 0; i < found.size(); ++i)
            uses.add(64 * (i + 1), s);
        {
            support::failing_new const none(0);
            for (std::size_t i = 0; i < found.size(); ++i)
                found[i] = uses.take(64 * (i + 1), weir::on_host).events;
        }
        for (auto const& each : found)
            CHECK(each.size() == 1);
        CHECK_FALSE(uses.any());
    });
}

TEST_CASE("second_uses: marked blocks that come and go need host memory for their events alone") {
    support::every_schedule([] {
        support::scoped_stream const s;
        second_uses uses;
        uses.add(64, s);
        {
            support::failing_new const one_each(1000);
            for (int i = 0; i < 1000; ++i)
                uses.put_back(64, uses.take(64, weir::on_host));
        }
        CHECK(uses.any()); // where memory is out, the uses are waited for and gone
        CHECK(uses.take(64, weir::on_host).events.size() == 1);
    });
}

TEST_CASE("second_uses: what was taken out can be put back, also where others came meanwhile") {
    support::every_schedule([] {
        support::scoped_stream const s;
        second_uses uses;
        uses.add(64, s);
        uses.add(64, s);
        auto taken = uses.take(64, weir::on_host);
        CHECK_FALSE(uses.any());
        uses.put_back(64, std::move(taken));
        CHECK(uses.any());
        taken = uses.take(64, weir::on_host);
        CHECK(taken.events.size() == 2);
        uses.add(64, s);
        uses.put_back(64, std::move(taken));
        CHECK(uses.take(64, weir::on_host).events.size() == 3);
        CHECK_FALSE(uses.any());
    });
}

// ---- marks -------------------------------------------------------------------------------------------------------------

TEST_CASE("second_uses: a mark is an event at the end that the stream has when the block is taken out, once a stream") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        second_uses uses;
        for (int i = 0; i < 3; ++i) {
            uses.mark(64, a);
            uses.mark(64, b);
        }
        CHECK(uses.any());
        uses.add(128, a);
        weir::runtime::event before(weir::any_device);
        before.record(a);
        weir::order::block_uses const found = uses.take(64, weir::on_host), other = uses.take(128, weir::on_host);
        CHECK(found.are_known());
        REQUIRE(found.events.size() == 2);
        CHECK(found.events[0].place().stream_id == weir::runtime::id_of(a));
        CHECK(found.events[1].place().stream_id == weir::runtime::id_of(b));
        CHECK(other.events[0].place().end < found.events[0].place().begin); // so that one answer tells of both
        found.events[0].synchronize();
        CHECK(before.reached());
        CHECK_FALSE(uses.any());
    });
}

TEST_CASE("second_uses: the stream of the free needs no event, under whatever name") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        second_uses uses;
        for (cudaStream_t const each : {cudaStream_t(a), cudaStreamLegacy}) {
            uses.mark(64, each);
            CHECK(uses.take(64, each).empty());
            uses.mark(64, each);
            CHECK(uses.take(64, b).events.size() == 1);
        }
        uses.mark(64, cudaStreamPerThread); // what it did so far is noted as well: threads end
        CHECK(uses.take(64, cudaStreamPerThread).events.size() == 1);
        uses.mark(64, cudaStreamPerThread);
        CHECK(uses.take(64, a).events.size() == 2);
    });
}

TEST_CASE("second_uses: a marked stream that is captured makes the block its graph's, and the capture lives on") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        second_uses uses;
        uses.mark(64, a);
        uses.mark(64, b);
        support::capture graph(a);
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { uses.mark(128, a); }), "keep the block until the graph has run instead");
        weir::order::block_uses const found = uses.take(64, weir::on_host);
        CHECK(found.in_graph);
        CHECK_FALSE(found.are_known());
        CHECK(found.events.size() == 1);
        CHECK(graph.unbroken());
        CHECK_FALSE(uses.any());
    });
}

TEST_CASE("second_uses: what it asks CUDA leaves the capture of another stream whole") {
    support::every_schedule([] {
        support::scoped_stream const a, b, captured;
        second_uses uses;
        uses.mark(64, b);
        support::capture graph(captured);
        for (int times = 0; times < 100; ++times)
            uses.add(64, a); // and which of its events were reached
        CHECK_FALSE(uses.take(64, weir::on_host).events.empty());
        CHECK(graph.unbroken());
    });
}

TEST_CASE("second_uses: what was taken out and put back is marked as before") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        second_uses uses;
        uses.put_back(64, weir::order::block_uses{}); // nothing
        CHECK_FALSE(uses.any());
        uses.mark(64, a);
        uses.put_back(64, uses.take(64, a));
        CHECK(uses.any());
        uses.mark(64, a);
        CHECK(uses.take(64, b).events.size() == 1);
    });
}

TEST_CASE("second_uses: every call of a mark and of a free may fail: nothing is marked, or it is said that something is not known") {
    struct state {
        support::scoped_stream s, t;
        second_uses uses;
    };
    auto const prepare = [] {
        auto fresh = std::make_unique<state>();
        fresh->uses.mark(64, fresh->s);
        fresh->uses.mark(64, fresh->t);
        return fresh;
    };
    auto runs = support::fault_sweep(prepare,
                                     [](state& x) {
                                         x.uses.mark(128, cudaStreamPerThread);
                                     },
                                     [](state& x, support::struck const& fault) {
                                         CHECK(fault.threw == !fault.calls.empty());
                                         CHECK(x.uses.take(128, weir::on_host).events.size() == (fault.threw ? 0 : 2));
                                         CHECK(x.uses.take(64, weir::on_host).events.size() == 2);
                                         CHECK_FALSE(x.uses.any());
                                     });
    static thread_local weir::order::block_uses found;
    runs += support::fault_sweep(prepare, [](state& x) { found = x.uses.take(64, weir::on_host); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK_FALSE(fault.threw);
                                     if (fault.calls.empty())
                                         CHECK(found.events.size() == 2);
                                     else if (fault.for_ever && !fault.hit("cudaEventDestroy"))
                                         CHECK_FALSE(found.are_known());
                                     else if (!fault.for_ever) // CUDA is asked again
                                         CHECK((found.are_known() && found.events.size() == 2));
                                     CHECK(found.marks.size() == 2);
                                     CHECK_FALSE(x.uses.any());
                                     found = {};
                                 });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 16);
#endif
    static_cast<void>(runs);
}
