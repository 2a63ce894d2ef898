// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <weir/runtime/coverage.hpp>

using weir::check;
using weir::coverage;

TEST_CASE("coverage: nothing is covered at first, and then what its stream did") {
    support::every_schedule([] {
        support::scoped_stream const s;
        coverage covers;
        CHECK(covers.ordinal() == weir::any_device);
        CHECK(covers.was_reached());
        CHECK(covers.reached());
        CHECK_FALSE(covers.passed());
        covers.start_anew(0);
        CHECK(covers.ordinal() == 0);
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::gate gate;
        check(gate.close(s), "gate");
#endif
        covers.record(s);
        CHECK(covers.passed());
        CHECK_FALSE(covers.was_reached());
#ifdef WEIR_SIMULATED_CUDA
        CHECK_FALSE(covers.reached());
        gate.open();
#endif
        check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK_FALSE(covers.was_reached()); // nobody asked
        CHECK(covers.reached());
        CHECK(covers.was_reached());
        auto const passed = covers.passed();
        covers.record(s); // the same event
        CHECK(covers.passed() == passed);
        covers.settle();
        CHECK(covers.was_reached());
    });
}

TEST_CASE("coverage: released, it takes the other's event, if that is another one of its device") {
    support::every_schedule([] {
        support::scoped_stream const s;
        coverage a, b;
        a.start_anew(0);
        b.start_anew(0);
        a.record(s);
        b.record(s);
        coverage const kept = a;
        auto const spare = b.passed();
        a.release(b);
        CHECK(a.was_reached());
        CHECK(a.passed() == spare);
        CHECK(kept.passed() != spare);
        a.release(a); // its own event stands for something
        CHECK_FALSE(a.passed());
        a.record(s);
        b.start_anew(weir::any_device); // another
        b.record(s);
        a.release(b);
        CHECK_FALSE(a.passed());
        CHECK(a.was_reached());
        check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    });
}

TEST_CASE("coverage: named for another device it makes another event, and covers nothing") {
    support::every_schedule([] {
        support::scoped_stream const s;
        coverage covers;
        covers.start_anew(0);
        covers.record(s);
        auto const passed = covers.passed();
        covers.start_anew(0);
        CHECK(covers.passed() == passed);
        CHECK(covers.was_reached());
        covers.start_anew(1);
        CHECK_FALSE(covers.passed());
        check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    });
}
