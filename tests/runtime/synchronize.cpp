// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstddef>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <vector>
#include <weir/runtime/synchronize.hpp>

using support::sentence_of;
using weir::check;

TEST_CASE("synchronize: waits for the stream's work, and for nobody else's") {
    support::every_schedule([] {
        support::scoped_stream const a;
        std::size_t const bytes = 1 << 16;
        void* p = nullptr;
        check(cudaMalloc(&p, bytes), "cudaMalloc");
        std::vector<unsigned char> host(bytes, 0);
        for (int value = 1; value < 4; ++value) {
            check(cudaMemsetAsync(p, value, bytes, a), "cudaMemsetAsync");
            check(cudaMemcpyAsync(host.data(), p, bytes, cudaMemcpyDefault, a), "cudaMemcpyAsync");
            weir::synchronize(a);
            CHECK(host == std::vector<unsigned char>(bytes, static_cast<unsigned char>(value)));
            CHECK(cudaStreamQuery(a) == cudaSuccess);
        }
        weir::synchronize(weir::on_host); // nothing to wait for
        check(cudaFree(p), "cudaFree");
    });
}

TEST_CASE("synchronize: leaves the capture of another stream whole") {
    support::every_schedule([] {
        support::scoped_stream const a, captured;
        support::capture graph(captured);
        weir::synchronize(a);
        CHECK(graph.unbroken());
    });
}

TEST_CASE("synchronize: whatever call fails, it says so, and the thread's mode of capture is as before") {
    struct one {
        support::scoped_stream s;
    };
    auto const prepare = [] { return std::make_unique<one>(); };
    auto const runs = support::fault_sweep(prepare, [](one& state) { weir::synchronize(state.s); },
                                           [](one&, support::struck const& fault) {
                                               CHECK((fault.threw || !fault.hit("cudaStreamSynchronize")));
                                           });
    auto const none = support::fault_sweep(prepare, [](one&) { weir::synchronize(weir::on_host); },
                                           [](one&, support::struck const&) {});
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 6);
    CHECK(none == 0);
#endif
    static_cast<void>(runs + none);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("synchronize: a stream that was destroyed is refused with a sentence") {
    simulated_cuda::world world;
    cudaStream_t gone = nullptr;
    check(cudaStreamCreate(&gone), "cudaStreamCreate");
    check(cudaStreamDestroy(gone), "cudaStreamDestroy");
    CHECK_SAYS(sentence_of<weir::cuda_error>([&] { weir::synchronize(gone); }),
               "the stream or event was destroyed, or belongs to another device");
    world.forgive(); // on a GPU this would crash: the simulator tells whose bug it is
}
#endif
