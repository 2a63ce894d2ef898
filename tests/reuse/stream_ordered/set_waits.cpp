// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a host thread waits for, by hand. What pools make of it is in tests/reuse and tests/simulation.

#include "directory.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <utility>
#include <vector>
#include <weir/base/size.hpp>
#include <weir/reuse/stream_ordered/set_waits.hpp>

using weir::check_cuda;
using weir::on_host;
using weir::base::range;
using namespace directories;

TEST_CASE("set_waits: waiting waits for every event, settling for everything") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        checked here;
        {
            auto const own = here.enter(a);
            own->covered().add(range{1 * MiB, 1 * MiB});
            own->update_hint();
            range const block = own->take(300 * KiB, 256, a);
            CHECK(own->put_recent(block));
        }
        CHECK(here.sets.unsettled_bytes() == 300 * KiB);
        CHECK(!here.sets.wait(nobody)); // nothing is recorded: nothing becomes anyone's
        CHECK(here.sets.unsettled_bytes() == 300 * KiB);
        {
            auto const own = here.enter(a);
            range const block = own->take(200 * KiB, 256, a);
            weir::base::growing_array<weir::runtime::event> uses;
            uses.push_back(weir::runtime::event(0));
            uses.back().record(b);
            own->defer(block, std::move(uses), a);
        }
        here.sets.wait(nobody);
        CHECK(!here.sets.wait(nobody)); // all is over by then
        {
            auto const own = here.enter(a);
            CHECK(own->reached());
            own->poll(a);
        }
        here.sets.settle(nobody);
        CHECK(here.sets.unsettled_bytes() == 0);
        CHECK(here.at(a)->hint.bytes() == 1 * MiB);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("set_waits: settling waits for no more than it must") {
    using simulated_cuda::calls;
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    support::scoped_stream const a, b, stranger;
    checked here;
    simulated_cuda::gate strange;
    check_cuda(strange.close(stranger), "gate"); // whoever waits for the device now never returns
    here.sets.settle(nobody);                     // no stream is known
    range of_a, of_b;
    for (auto const& [s, block, begin] : {std::tuple(&a, &of_a, 1 * MiB), std::tuple(&b, &of_b, 4 * MiB)}) {
        auto const own = here.enter(*s);
        own->covered().add(range{begin, 2 * MiB});
        *block = own->take(2 * MiB, 256, *s);
        own->used().took(*block);
    }
    here.sets.settle(nobody); // nothing was freed
    CHECK(calls("cudaEventSynchronize") == 0);

    CHECK(here.enter(a)->give(of_a, a)); // too large to stay open
    check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
    here.sets.settle(nobody); // it is over
    CHECK(calls("cudaEventSynchronize") == 0);
    CHECK(here.sets.unsettled_bytes() == 0);

    simulated_cuda::gate gate;
    check_cuda(gate.close(b), "gate");
    CHECK(here.enter(b)->give(of_b, b));
    bool opened = false;
    simulated_cuda::run_threads({[&] {
                                     here.sets.settle(nobody);
                                     CHECK(opened);
                                 },
                                 [&] {
                                     while (calls("cudaEventSynchronize") == 0)
                                         simulated_cuda::yield();
                                     opened = true;
                                     gate.open();
                                 }});
    CHECK(calls("cudaEventSynchronize") == 1);
    CHECK(calls("cudaFree") == 0);

    {
        auto const own = here.enter(a);
        of_a = own->take(100 * KiB, 256, a);
        CHECK(own->put_recent(of_a)); // no event tells of it
    }
    strange.open();
    here.sets.settle(nobody);
    CHECK(calls("cudaFree") == 1); // which is how one waits for a device
    CHECK(cudaStreamQuery(stranger) == cudaSuccess);
    CHECK(here.sets.unsettled_bytes() == 0);
}

TEST_CASE("set_waits: settling waits for the events alone where they tell of all bytes") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const a, stranger;
    checked here;
    {
        auto const own = here.enter(a);
        own->covered().add(range{1 * MiB, 1 * MiB});
        check_cuda(simulated_cuda::launch(a, {}, {}), "launch");
        CHECK(own->put(own->take(1 * MiB, 256, a), a));
    }
    check_cuda(simulated_cuda::launch(stranger, {}, {}), "launch");
    here.sets.settle(nobody);
    CHECK(here.at(a)->reached());
    CHECK(simulated_cuda::pending() == 1); // the stranger's
}

TEST_CASE("set_waits: settling waits for the device of a stream that left bytes open, and for no other") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    support::scoped_stream const a;
    checked here(0);
    {
        auto const own = here.enter(a);
        own->covered().add(range{1 * MiB, 1 * MiB});
        own->update_hint();
        CHECK(own->put_recent(own->take(100 * KiB, 256, a))); // no event tells of it
    }
    weir::runtime::device_scope const there(1);
    support::scoped_stream const stranger;
    check_cuda(simulated_cuda::launch(stranger, {}, {}), "launch");
    here.sets.settle(nobody);
    CHECK(here.sets.unsettled_bytes() == 0);
    CHECK(simulated_cuda::pending() == 1); // the stranger's
}
#endif
