// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <new>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <type_traits>
#include <utility>
#include <weir/order/graph_life.hpp>

using weir::check_cuda;
using weir::order::graph_life;

static_assert(noexcept(graph_life()) && noexcept(std::declval<graph_life const&>().is_over()));
static_assert(!std::is_convertible_v<cudaGraph_t, graph_life>);

namespace {

// CUDA may tell a little later.
bool ends(graph_life const& life, cudaStream_t s) {
    for (int turns = 0; turns < 1'000'000 && !life.is_over(); ++turns)
        static_cast<void>(cudaStreamQuery(s));
    return life.is_over();
}

} // namespace

TEST_CASE("graph_life: what is of no graph is over") {
    CHECK(graph_life().is_over());
}

TEST_CASE("graph_life: it lasts as long as its graph and what was made of it, and copies tell the same") {
    support::every_schedule([] {
        support::scoped_stream const s;
        cudaGraph_t graph = nullptr;
        check_cuda(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
        graph_life life(graph);
        graph_life const copy = life;
        graph_life const another(graph);
        cudaGraphExec_t runs = nullptr;
        check_cuda(cudaGraphInstantiate(&runs, graph, 0), "cudaGraphInstantiate");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK_FALSE(life.is_over());
        CHECK_FALSE(copy.is_over());
        life = graph_life(); // nobody asks it any more
        CHECK(life.is_over());
        CHECK_FALSE(another.is_over());
        check_cuda(cudaGraphExecDestroy(runs), "cudaGraphExecDestroy");
        CHECK(ends(copy, s));
        CHECK(ends(another, s));
    });
}

TEST_CASE("graph_life: what is no graph is refused by name, and nothing stays") {
    support::every_schedule([] {
        CHECK_THROWS_WITH_AS(graph_life(nullptr), doctest::Contains("weir: cudaGraphRetainUserObject failed"), weir::cuda_error);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("graph_life: where CUDA has no memory to watch a graph it throws what says so, and nothing stays") {
    for (char const* const call : {"cudaUserObjectCreate", "cudaGraphRetainUserObject"}) {
        CAPTURE(call);
        simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
        cudaGraph_t graph = nullptr;
        check_cuda(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
        simulated_cuda::fail_call(call, 1, cudaErrorMemoryAllocation);
        CHECK_THROWS_AS(graph_life{graph}, std::bad_alloc);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    }
}

TEST_CASE("graph_life: whatever host memory is left, a graph is watched or as it was") {
    if (!support::host_memory_can_fail)
        return;
    int thrown = 0;
    for (long failures = 0; failures < 12; ++failures) {
        CAPTURE(failures);
        simulated_cuda::world const world;
        support::scoped_stream const s;
        cudaGraph_t graph = nullptr;
        check_cuda(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
        graph_life life;
        try {
            support::failing_new const fails(failures);
            life = graph_life(graph);
        } catch (std::bad_alloc const&) {
            ++thrown;
            CHECK(life.is_over());
            life = graph_life(graph);
        }
        CHECK_FALSE(life.is_over());
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        CHECK(ends(life, s));
    }
    CHECK(thrown == 2); // the flag, and what CUDA holds of it
}
#endif
