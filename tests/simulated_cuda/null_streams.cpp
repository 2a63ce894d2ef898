// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A null stream is the default stream that the calling file means, for what tests call as for CUDA's calls: here the legacy one,
// in null_streams.ptds.cpp, which takes this file, the thread's own.

#include "simulated_cuda/simulated_cuda.hpp"

#include <doctest/doctest.h>

namespace {

namespace sim = simulated_cuda;

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
cudaStream_t const meant = cudaStreamPerThread, other = cudaStreamLegacy;
#else
cudaStream_t const meant = cudaStreamLegacy, other = cudaStreamPerThread;
#endif

/// What converts to a stream, as a wrapper does.
struct wrapper {
    cudaStream_t handle;
    operator cudaStream_t() const { return handle; }
};

// Whether the stream that is meant, and only that, has work to do. (The legacy one waits for the other: so that is asked first.)
bool only_the_meant_one_is_busy() {
    return cudaStreamQuery(other) == cudaSuccess && cudaStreamQuery(meant) == cudaErrorNotReady;
}

} // namespace

TEST_CASE("null_streams: work and gates go to the default stream that the file means") {
    struct {
        char const* name;
        cudaError_t (*enqueue)(sim::gate&);
    } const ways[] = {
        {"launch", [](sim::gate&) { return sim::launch(nullptr, {}, {}); }},
        {"launch, of a literal", [](sim::gate&) { return sim::launch(0, {}, {}); }},
        {"launch, of a wrapper", [](sim::gate&) { return sim::launch(wrapper{nullptr}, {}, {}); }},
        {"launch, of sets", [](sim::gate&) { return sim::launch(nullptr, std::vector<sim::bytes>{}, std::vector<sim::bytes>{}); }},
        {"launch_failing", [](sim::gate&) { return sim::launch_failing(nullptr, cudaErrorIllegalAddress); }},
        {"close", [](sim::gate& gate) { return gate.close(nullptr); }},
        {"CUDA's own", [](sim::gate&) { return cudaLaunchHostFunc(nullptr, [](void*) {}, nullptr); }},
    };
    for (auto const& each : ways) {
        CAPTURE(std::string(each.name));
        sim::world world(sim::config{}.late());
        sim::gate gate;
        CHECK(each.enqueue(gate) == cudaSuccess);
        CHECK(only_the_meant_one_is_busy());
        gate.open();
        world.forgive();
    }
}

TEST_CASE("null_streams: so do the notes of what a pool hands out and takes back") {
    struct {
        char const* name;
        void (*note)(void const*, sim::stream_name);
        void (*note_null)(void const*);
    } const notes[] = {
        {"note_allocate", [](void const* p, sim::stream_name on) { sim::note_allocate(p, 8, on); },
         [](void const* p) { sim::note_allocate(p, 8, nullptr); }},
        {"note_free", [](void const* p, sim::stream_name on) { sim::note_free(p, 8, on); },
         [](void const* p) { sim::note_free(p, 8, nullptr); }},
        {"note_checked_free", [](void const* p, sim::stream_name on) { sim::note_checked_free(p, 8, on); },
         [](void const* p) { sim::note_checked_free(p, 8, nullptr); }},
    };
    for (auto const& each : notes) {
        CAPTURE(std::string(each.name));
        sim::world world;
        void* memory = nullptr;
        REQUIRE(cudaMalloc(&memory, 256) == cudaSuccess);
        CHECK(cudaFree(memory) == cudaSuccess);
        CHECK(cudaStreamQuery(other) == cudaSuccess); // both have their names from now on
        each.note(memory, meant);
        each.note(memory, other);
        each.note_null(memory);
        auto const found = sim::reports(); // of memory that there is no more, with the stream's name
        REQUIRE(found.size() == 3);
        CHECK(found[0].sentence != found[1].sentence);
        CHECK(found[0].sentence == found[2].sentence);
        world.forgive();
    }
}
