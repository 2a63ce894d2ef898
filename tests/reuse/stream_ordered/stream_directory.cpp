// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The directory by hand. What pools make of it is in tests/reuse and tests/simulation.

#include "directory.hpp"

#include <atomic>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>
#include <weir/base/size.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/reuse/stream_ordered/stream_directory.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>
#include <weir/reuse/tuning.hpp>

using weir::check_cuda;
using weir::KiB;
using weir::MiB;
using weir::on_host;
using weir::base::range;

using namespace directories;

static_assert(!std::is_copy_constructible_v<checked::sets_type>);

TEST_CASE_TEMPLATE("stream_directory: a stream has one set, the host has one", Directory, checked, promised) {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        Directory here;
        CHECK(here.count() == 1); // the host's
        auto* const of_a = here.at(a);
        auto* const of_b = here.at(b);
        CHECK(of_a != of_b);
        CHECK(here.at(a) == of_a);
        CHECK(here.at_free(b) == of_b);
        auto* const of_host = here.at(on_host);
        CHECK(of_host != of_a);
        CHECK(here.sets.host().get() == of_host);
        CHECK(here.count() == 3);
        CHECK(of_a->device() == 0);
    });
}

TEST_CASE_TEMPLATE("stream_directory: the default streams have sets of their own, each thread's too", Directory, checked,
                   promised) {
    support::every_schedule([] {
        Directory here;
        auto* const legacy = here.at(cudaStreamLegacy);
        auto* const mine = here.at(cudaStreamPerThread);
        CHECK(legacy != mine);
        CHECK(here.at(cudaStream_t{}) == legacy);
        CHECK(here.at_free(cudaStreamPerThread) == mine);
        std::thread([&] {
            CHECK(here.at(cudaStreamPerThread) != mine);
            CHECK(here.at(cudaStreamLegacy) == legacy);
        }).join();
        CHECK(here.at(cudaStreamPerThread) == mine);
    });
}

TEST_CASE("stream_directory: a handle that bears another stream gets another set, and the old one keeps its bytes") {
    support::every_schedule([] {
        checked here;
        checked::set* old = nullptr;
        cudaStream_t first = nullptr;
        check_cuda(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        {
            auto const own = here.enter(first);
            old = own.get();
            own->covered().add(range{1 * MiB, 1 * MiB});
            own->update_hint();
        }
        check_cuda(cudaStreamDestroy(first), "cudaStreamDestroy");
        cudaStream_t second = nullptr;
        check_cuda(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        if (second == first) { // as CUDA does
            CHECK(here.at_free(second) == old); // nobody asked
            checked::set* const fresh = here.at(second);
            CHECK(fresh != old);
            CHECK(here.at_free(second) == fresh);
            CHECK(old->key.load(weir::base::memory_order_acquire) == 0); // retired
            CHECK(old->hint.bytes() == 1 * MiB);
        }
        check_cuda(cudaStreamDestroy(second), "cudaStreamDestroy");
    });
}

TEST_CASE("stream_directory: sets of streams that are gone are used again, so that there are never many") {
    support::every_schedule([] {
        checked here;
        for (int i = 0; i < 300; ++i) {
            support::scoped_stream const s;
            here.at(s);
        }
        CHECK(here.count() <= 40);
    });
}

TEST_CASE("stream_directory: so are those of threads that are gone") {
    support::every_schedule([] {
        checked here;
        for (int i = 0; i < 100; ++i)
            std::thread([&] { here.at(cudaStreamPerThread); }).join();
        CHECK(here.count() <= 40);
        CHECK(here.at(cudaStreamPerThread) == here.at(cudaStreamPerThread));
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("stream_directory: they end once other streams have passed their uses of what was freed") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, other;
    weir::runtime::event passed(weir::any_device);
    passed.record(other);
    {
        checked here;
        weir::base::growing_array<weir::runtime::event> uses;
        uses.push_back(weir::runtime::event(weir::any_device));
        uses[0].record(other);
        CHECK(here.enter(s)->defer(range{1 * MiB, 4 * KiB}, std::move(uses), s));
        CHECK_FALSE(passed.reached());
    }
    CHECK(passed.reached());
}
#endif

TEST_CASE("stream_directory: a default stream that comes again for a set that became another's gets a new one") {
    support::every_schedule([] {
        checked here;
        support::scoped_stream const live[13];
        for (support::scoped_stream const& each : live)
            here.at(each);
        auto* const legacy = here.at(cudaStreamLegacy);
        auto* const own = here.at(cudaStreamPerThread);
        CHECK(here.count() == 16);
        support::scoped_stream const fresh;
        auto* const taken = here.at(fresh); // one of the two
        CHECK((taken == legacy || taken == own));
        CHECK(here.count() == 16);
        cudaStream_t const robbed = taken == legacy ? cudaStreamLegacy : cudaStreamPerThread;
        cudaStream_t const other = taken == legacy ? cudaStreamPerThread : cudaStreamLegacy;
        auto* const again = here.at(robbed);
        CHECK(here.count() == 17); // or the two would rob each other for ever
        CHECK(here.at(robbed) == again);
        CHECK(here.at(other) == (taken == legacy ? own : legacy));
        CHECK(here.at(fresh) == taken);
    });
}

TEST_CASE("stream_directory: where the default stream that came longest ago is not done, the next one's set is used again") {
    support::every_schedule([] {
        checked here;
        support::scoped_stream const live[13];
        for (support::scoped_stream const& each : live)
            here.at(each);
        {
            auto const legacy = here.enter(cudaStreamLegacy);
            CHECK(legacy->put_recent(range{1 * MiB, 4 * KiB})); // no event tells of it
        }
        auto* const own = here.at(cudaStreamPerThread);
        CHECK(here.count() == 16);
        support::scoped_stream const fresh;
        CHECK(here.at(fresh) == own);
        CHECK(here.count() == 16);
    });
}

TEST_CASE("stream_directory: there are never many, whoever comes again, and after whatever") {
    support::every_schedule([] {
        for (std::size_t kept = 12; kept <= 16; ++kept) { // at some of these the default stream's set is the last one made freely
            CAPTURE(kept);
            checked here;
            std::vector<support::scoped_stream> const live(kept);
            for (support::scoped_stream const& each : live)
                here.at(each);
            for (int turn = 0; turn < 200; ++turn) {
                here.at(cudaStreamLegacy);
                support::scoped_stream const newcomer;
                here.at(newcomer);
            }
            CHECK(here.count() <= 64);
        }
    });
}

TEST_CASE("stream_directory: a thread that stays keeps its set while others come and go, once or twice each") {
    support::every_schedule([] {
        checked here;
        for (int i = 0; i < 14; ++i)
            std::thread([&] { here.at(cudaStreamPerThread); }).join();
        auto* const own = here.at(cudaStreamPerThread);
        std::size_t others = 0;
        for (int turn = 0; turn < 60; ++turn) {
            std::atomic<int> moment{0};
            auto const until = [&](int then) {
                for (unsigned turns = 0; moment.load() != then; ++turns)
                    weir::base::spin(turns);
            };
            std::thread first([&] {
                here.at(cudaStreamPerThread);
                moment = 1;
                until(2);
                here.at(cudaStreamPerThread); // after the second
            });
            until(1);
            std::thread([&] { here.at(cudaStreamPerThread); }).join();
            moment = 2;
            first.join();
            others += here.at(cudaStreamPerThread) != own;
        }
        CHECK(others == 0);
        CHECK(here.count() <= 32);
    });
}

TEST_CASE("stream_directory: threads that come at once, wave after wave, make no more sets than there were") {
    support::every_schedule([] {
        constexpr int threads = 4;
        checked here;
        std::size_t steady = 0;
        for (int wave = 0; wave < 300; ++wave) {
            std::atomic<int> ready{0};
            std::vector<std::thread> crew;
            for (int t = 0; t < threads; ++t)
                crew.emplace_back([&] {
                    ready.fetch_add(1);
                    for (unsigned turns = 0; ready.load() != threads; ++turns)
                        weir::base::spin(turns);
                    here.at(cudaStreamPerThread);
                });
            for (std::thread& each : crew)
                each.join();
            if (wave == 50)
                steady = here.count();
        }
        CHECK(here.count() <= steady + threads);
    });
}

TEST_CASE("stream_directory: many threads that take turns soon have a set each") {
    support::every_schedule([] {
        constexpr int threads = 100;
        checked here;
        std::vector<checked::set*> sets(threads);
        std::atomic<int> turn{0};
        std::size_t late = 0; // sets that changed in the third round or later
        std::vector<std::thread> crew;
        for (int t = 0; t < threads; ++t)
            crew.emplace_back([&, t] {
                for (int round = 0; round < 6; ++round) {
                    for (unsigned turns = 0; turn.load() != round * threads + t; ++turns)
                        weir::base::spin(turns);
                    late += round > 2 && here.at(cudaStreamPerThread) != sets[static_cast<std::size_t>(t)];
                    sets[static_cast<std::size_t>(t)] = here.at(cudaStreamPerThread);
                    turn = turn + 1;
                }
            });
        for (std::thread& each : crew)
            each.join();
        CHECK(late == 0);
        CHECK(here.count() <= 2 * threads);
    });
}

TEST_CASE("stream_directory: bytes that anyone may have go along with a set that is used again, and others stay where they are") {
    for (bool const in_flight : {false, true}) {
        CAPTURE(in_flight);
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
#else
        if (in_flight)
            return;
#endif
        checked here;
        std::set<checked::set*> met;
        std::size_t again = 0;
        for (std::size_t i = 0; i < 60; ++i) {
            support::scoped_stream const s;
            auto own = here.enter(s);
            again += met.count(own.get());
            own->covered().add(range{(i + 1) * MiB, 512 * KiB});
            range const block = own->take_covered(64 * KiB, 256);
            CHECK(own->put(block, s));
            if (!in_flight)
                check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            met.insert(own.get());
        }
        std::size_t bytes = 0;
        for (checked::set* each : met)
            bytes += each->covered().free_bytes();
        CHECK(bytes == 60 * 512 * KiB);
        CHECK((in_flight ? met.size() == 60 : met.size() <= 40));
        CHECK(again == 60 - met.size());
    }
}

TEST_CASE("stream_directory: a stream of another device is refused with a sentence, unless any device will do") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    if (devices < 2)
        return;
    weir::runtime::device_scope const there(1);
    support::scoped_stream const s;
    checked here(0);
    CHECK(support::sentence_of<weir::usage_error>([&] { here.at(s); }) ==
          "weir: the stream belongs to device 1 and the pool to device 0; use a stream of the pool's device, or a pool of "
          "the stream's");
    CHECK(here.count() == 1);
    checked anywhere(weir::any_device);
    CHECK(anywhere.at(s)->device() == 1);
    CHECK(anywhere.at(cudaStreamLegacy)->device() == 1);
}

TEST_CASE_TEMPLATE("stream_directory: a captured stream that is not known is refused, and its capture lives on", Directory,
                   checked, promised) {
    support::every_schedule([] {
        support::scoped_stream const s;
        Directory here;
        {
            support::capture graph(s);
            CHECK_THROWS_AS(here.at_free(s), weir::usage_error);
            CHECK(here.count() == 1);
            CHECK(graph.unbroken());
        }
        {
            support::capture graph(cudaStreamPerThread);
            CHECK_THROWS_AS(here.at_free(cudaStreamPerThread), weir::usage_error);
            CHECK(graph.unbroken());
        }
        auto* const own = here.at(s);
        support::capture graph(s);
        if (std::is_same_v<Directory, promised>)
            CHECK(here.at_free(s) == own); // known: it finds it, and asks nothing
        else
            CHECK_THROWS_AS(here.at_free(s), weir::usage_error);
        CHECK(graph.unbroken());
    });
}

TEST_CASE("stream_directory: a stream that is gone strands what it left open, and its set is used again") {
    support::every_schedule([] {
        checked here;
        cudaStream_t first = nullptr;
        check_cuda(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        checked::set* const gone = here.at(first);
        CHECK(here.enter(first)->put_recent(range{1 * MiB, 1 * KiB}));
        CHECK(here.sets.stranded_bytes() == 0); // it lives, and may take them
        check_cuda(cudaStreamDestroy(first), "cudaStreamDestroy");
        cudaStream_t second = nullptr;
        check_cuda(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        if (second == first) { // as CUDA does
            here.at(second);
            CHECK(here.sets.stranded_bytes() == 16 * KiB); // a little counts for more
            CHECK(weir::base::locked<checked::set>(*gone)->is_at_rest());
            here.sets.host()->used().took(range{4 * MiB, 3 * MiB});
            here.sets.strand(range{4 * MiB, 3 * MiB});
            CHECK(here.sets.stranded_bytes() == 3 * MiB + 16 * KiB);
            CHECK(here.sets.unsettled_bytes() == 3 * MiB + 1 * KiB);
            CHECK(here.sets.used().bytes == 0);
            here.sets.settle(nobody);
            CHECK(here.sets.stranded_bytes() == 0);
            CHECK(here.sets.unsettled_bytes() == 0);
            CHECK(here.sets.host()->covered().free_bytes() == 3 * MiB + 1 * KiB);
        }
        check_cuda(cudaStreamDestroy(second), "cudaStreamDestroy");
    });
}

#ifdef WEIR_SIMULATED_CUDA
namespace {
// Leaves a block open in the set of this thread's stream, behind an event that is not reached while the gate is closed.
checked::set* leave_open(checked& here, simulated_cuda::gate& gate, std::size_t at) {
    CHECK(gate.close(cudaStreamPerThread) == cudaSuccess);
    auto const own = here.enter(cudaStreamPerThread);
    CHECK(own->close(cudaStreamPerThread));
    CHECK(own->put_recent(range{at * MiB, 1 * MiB}));
    return own.get();
}
} // namespace

TEST_CASE("stream_directory: while the device is behind, what threads left open is stranded once sixteen others came") {
    simulated_cuda::world const world{simulated_cuda::config{}.late()};
    simulated_cuda::gate gate;
    checked here;
    for (int turn = 0; turn != 2; ++turn) { // a thread that comes again is one like the others
        checked::set* const own = leave_open(here, gate, 1);
        for (std::size_t i = 0; i != 16; ++i) {
            CHECK(own->is_open());
            std::thread([&] { leave_open(here, gate, 2 + i); }).join();
        }
        if (turn == 0)
            CHECK(here.sets.stranded_bytes() == 0);
        std::thread([&] { leave_open(here, gate, 20); }).join();
        if (turn == 0)
            CHECK(here.sets.stranded_bytes() == 1 * MiB);
        CHECK_FALSE(own->is_open());
        CHECK(here.at(cudaStreamPerThread) == own);
    }
    CHECK(here.sets.unsettled_bytes() == 36 * MiB);
    gate.open();
    here.sets.settle(nobody);
    CHECK(here.sets.unsettled_bytes() == 0);
}

TEST_CASE("stream_directory: a thread that is in the midst of a call has not ended, however many came since") {
    simulated_cuda::world const world{simulated_cuda::config{}.late()};
    simulated_cuda::gate gate;
    checked here;
    checked::set* const own = leave_open(here, gate, 1);
    auto const come = [&](std::size_t first, std::size_t end) {
        for (; first != end; ++first)
            std::thread([&] { leave_open(here, gate, first); }).join();
    };
    come(2, 18);
    {
        weir::base::locked<checked::set> const busy(*own);
        come(18, 19);
        CHECK(busy->is_open());
    }
    come(19, 36);
    CHECK_FALSE(own->is_open());
    gate.open();
    here.sets.settle(nobody);
}
#endif

TEST_CASE("stream_directory: what cannot be stranded for want of host memory stays where 'settle' finds it") {
    if (!support::host_memory_can_fail)
        return;
    support::every_schedule([] {
        checked here;
        cudaStream_t first = nullptr;
        check_cuda(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        checked::set* const gone = here.at(first);
        CHECK(here.enter(first)->put_recent(range{1 * MiB, 1 * KiB}));
        check_cuda(cudaStreamDestroy(first), "cudaStreamDestroy");
        cudaStream_t second = nullptr;
        check_cuda(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        if (second == first) { // as CUDA does
            bool threw = false;
            {
                support::failing_new const fails(0);
                try {
                    here.at(second);
                } catch (std::bad_alloc const&) {
                    threw = true;
                }
            }
            CHECK(threw); // there was no memory for a set either
            CHECK(here.sets.stranded_bytes() == 0);
            CHECK(here.sets.unsettled_bytes() == 1 * KiB);
            here.sets.settle(nobody);
            CHECK(here.sets.unsettled_bytes() == 0);
            CHECK(weir::base::locked<checked::set>(*gone)->covered().free_bytes() == 1 * KiB);
        }
        check_cuda(cudaStreamDestroy(second), "cudaStreamDestroy");
    });
}

TEST_CASE("stream_directory: what is out and what is lost is summed over all streams") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        checked here;
        for (auto const& [s, lost] : {std::pair(&a, 1 * KiB), std::pair(&b, 2 * KiB)}) {
            auto const own = here.enter(*s);
            own->used().took(range{1 * MiB, 512});
            own->lose(range{2 * MiB, lost});
        }
        here.sets.host()->lose(range{3 * MiB, 4 * KiB});
        CHECK(here.sets.used().blocks == 2);
        CHECK(here.sets.used().bytes == 1024);
        CHECK(here.sets.used().lost_bytes == 7 * KiB);
    });
}

TEST_CASE("stream_directory: a visit sees what other streams have done with, and notes what is taken of it") {
    support::every_schedule([] {
        support::scoped_stream const user;
        checked here;
        range const block{1 * MiB, 4 * KiB};
        {
            auto const host = here.sets.host();
            host->covered().add(block);
            CHECK(host->take(block.bytes, 256, on_host) == block);
            weir::base::growing_array<weir::runtime::event> uses;
            uses.push_back(weir::runtime::event(0));
            uses.back().record(user);
            CHECK(host->defer(block, std::move(uses), on_host));
        }
        auto const take = [&] {
            range taken;
            here.sets.visit_unused([&](auto& free) { return static_cast<bool>(taken = free.take(4 * KiB, 256)); }, 4 * KiB);
            return taken;
        };
        check_cuda(cudaStreamSynchronize(user), "cudaStreamSynchronize");
        CHECK(take() == block);
        CHECK(here.sets.host()->hint.bytes() == 0);
        CHECK_FALSE(take());
    });
}

TEST_CASE("stream_directory: what is set aside of a stream comes right behind it, and is nobody's to use again") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        checked here;
        checked::set* const own = here.at(a);
        here.at(b);
        here.sets.add_older(*own);
        checked::set* const older = own->older;
        REQUIRE(older != nullptr);
        CHECK(here.count() == 4);
        CHECK(own->next.load(weir::base::memory_order_acquire) == older);
        CHECK(own->host == here.sets.host().get());
        CHECK(older->is_older);
        CHECK_FALSE(own->is_older);
        CHECK(here.sets.is_host(*own->host));
        CHECK_FALSE(here.sets.is_host(*older));
        support::scoped_stream const more[40];
        for (auto const& each : more)
            CHECK(here.at(each) != older);
    });
}

TEST_CASE_TEMPLATE("stream_directory: threads find their sets while others make theirs", Directory, checked, promised) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.random(4), support::report_all);
#endif
    Directory here;
    support::scoped_stream const shared;
    auto* const of_shared = here.at(shared);
    std::atomic<int> wrong{0};
    std::vector<std::thread> crew;
    for (int t = 0; t < 4; ++t)
        crew.emplace_back([&] {
            support::scoped_stream const own;
            auto* const mine = here.at(own);
            for (int i = 0; i < 200; ++i) {
                if (here.at(own) != mine || here.at(shared) != of_shared)
                    wrong.fetch_add(1);
                auto const common = here.sets.enter(Directory::caller::that_frees(shared));
                i % 2 == 0 ? common->used().took(range{0, 512}) : common->used().gave(range{0, 512});
            }
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(wrong.load() == 0);
    CHECK(of_shared->used().blocks() == 0);
}

TEST_CASE_TEMPLATE("stream_directory: every call may fail, and names itself; the directory is as it was", Directory, checked,
                   promised) {
    struct state {
        support::scoped_stream a, b;
        Directory here;
    };
    auto const prepare = [] {
        auto fresh = std::make_unique<state>();
        fresh->here.at(fresh->a);
        return fresh;
    };
    std::uint64_t runs = 0;
    for (bool known : {true, false})
        runs += support::fault_sweep(prepare, [&](state& x) { x.here.at(known ? x.a : x.b); },
                                     [&](state& x, support::struck const& fault) {
                                         CHECK(fault.threw == !fault.calls.empty());
                                         CHECK(x.here.count() == (known || fault.threw ? 2 : 3));
                                         CHECK(x.here.at(x.b) != x.here.at(x.a));
                                     });
    runs += support::fault_sweep(prepare, [](state& x) { x.here.at(cudaStreamLegacy); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK(fault.threw == !fault.calls.empty());
                                     CHECK(x.here.at(cudaStreamLegacy) == x.here.at(cudaStream_t{}));
                                 });
    runs += support::fault_sweep(prepare, [](state& x) { x.here.sets.wait(nobody); }, [](state&, support::struck const&) {});
    runs += support::fault_sweep(prepare, [](state& x) { x.here.sets.settle(nobody); }, [](state&, support::struck const&) {});
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 14);
#endif
    static_cast<void>(runs);
}
