// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <weir/runtime/side_stream.hpp>

#include <doctest/doctest.h>
#include <memory>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <utility>
#include <weir/runtime/stream.hpp>

using weir::runtime::side_stream;

TEST_CASE("side_stream: it is a stream of its device, beside another's capture") {
    support::every_schedule([] {
        support::scoped_stream const captured;
        support::capture graph(captured);
        {
            side_stream const first(0), second(weir::any_device);
            CHECK(weir::runtime::device_of(first) == 0);
            CHECK(weir::runtime::id_of(first) != weir::runtime::id_of(second));
            unsigned flags = 0;
            weir::check_cuda(cudaStreamGetFlags(first.get(), &flags), "cudaStreamGetFlags");
            CHECK(flags == cudaStreamNonBlocking);
        }
        CHECK(graph.unbroken());
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("side_stream: a stream that is not made, or not at once destroyed, leaks nothing") {
    CHECK(support::fault_sweep([] { return std::make_unique<int>(); }, [](int&) { side_stream const it(0); },
                               [](int&, support::struck const&) {}) > 3);
}
#endif
