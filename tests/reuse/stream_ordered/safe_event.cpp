// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <weir/reuse/stream_ordered/safe_event.hpp>

using weir::check_cuda;
using weir::reuse::detail::safe_event;

TEST_CASE("safe_event: nothing is covered at first, and then what its stream did") {
    support::every_schedule([] {
        support::scoped_stream const s;
        safe_event safe;
        CHECK(safe.device() == weir::any_device);
        CHECK(safe.was_reached());
        CHECK(safe.reached());
        CHECK_FALSE(safe.passed());
        safe.start_anew(0);
        CHECK(safe.device() == 0);
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::gate gate;
        check_cuda(gate.close(s), "gate");
#endif
        safe.record(s);
        CHECK(safe.passed());
        CHECK_FALSE(safe.was_reached());
#ifdef WEIR_SIMULATED_CUDA
        CHECK_FALSE(safe.reached());
        gate.open();
#endif
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK_FALSE(safe.was_reached()); // nobody asked
        CHECK(safe.reached());
        CHECK(safe.was_reached());
        auto const passed = safe.passed();
        safe.record(s); // the same event
        CHECK(safe.passed() == passed);
        safe.note_reached();
        CHECK(safe.was_reached());
    });
}

TEST_CASE("safe_event: released, it takes the other's event, if that is another one of its device") {
    support::every_schedule([] {
        support::scoped_stream const s;
        safe_event a, b;
        a.start_anew(0);
        b.start_anew(0);
        a.record(s);
        b.record(s);
        safe_event const kept = a;
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
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    });
}

TEST_CASE("safe_event: named for another device it makes another event, and safe nothing") {
    support::every_schedule([] {
        support::scoped_stream const s;
        safe_event safe;
        safe.start_anew(0);
        safe.record(s);
        auto const passed = safe.passed();
        safe.start_anew(0);
        CHECK(safe.passed() == passed);
        CHECK(safe.was_reached());
        safe.start_anew(1);
        CHECK_FALSE(safe.passed());
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    });
}
