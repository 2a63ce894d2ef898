// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A stage for what should be reported: two streams, an event and 64 KiB of device memory, in a world of each
// schedule; finds() expects one report of a kind and no other, finds_nothing() none.

#include "simulated_cuda/simulated_cuda.hpp"

#include <doctest/doctest.h>

namespace reporting {

namespace sim = simulated_cuda;
using sim::finding;

/// Two streams, an event and 64 KiB of device memory in a world of each schedule.
struct stage {
    explicit stage(sim::config const& settings) : world(settings) {
        REQUIRE(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
        REQUIRE(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
        REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
        void* memory = nullptr;
        REQUIRE(cudaMalloc(&memory, 1 << 16) == cudaSuccess);
        p = static_cast<char*>(memory);
    }
    ~stage() { world.forgive(); }

    void write(cudaStream_t stream, std::size_t offset = 0, std::size_t count = 256) {
        CHECK(sim::launch(stream, {}, {{p + offset, count}}) == cudaSuccess);
    }
    void read(cudaStream_t stream, std::size_t offset = 0, std::size_t count = 256) {
        CHECK(sim::launch(stream, {{p + offset, count}}, {}) == cudaSuccess);
    }
    void allocate(cudaStream_t stream, std::size_t offset = 0, std::size_t count = 256) {
        sim::note_allocate(p + offset, count, stream);
    }
    void free(cudaStream_t stream, std::size_t offset = 0, std::size_t count = 256) {
        sim::note_free(p + offset, count, stream);
    }
    void order(cudaStream_t first, cudaStream_t then) {
        CHECK(cudaEventRecord(event, first) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(then, event, 0) == cudaSuccess);
    }

    sim::world world;
    cudaStream_t a = nullptr;
    cudaStream_t b = nullptr;
    cudaEvent_t event = nullptr;
    char* p = nullptr;
};

/// One report of this kind, and of no other, in every world.
inline void finds(finding kind, void (*play)(stage&), std::size_t how_many = 1) {
    for (sim::config const& settings :
         {sim::config{}.eager(), sim::config{}.late(), sim::config{}.random(1), sim::config{}.random(2)}) {
        stage on(settings);
        play(on);
        CAPTURE(sim::complaints());
        CHECK(sim::reports(kind).size() == how_many);
        CHECK(sim::reports().size() == how_many);
    }
}

inline void finds_nothing(void (*play)(stage&)) {
    for (sim::config const& settings :
         {sim::config{}.eager(), sim::config{}.late(), sim::config{}.random(1), sim::config{}.random(2)}) {
        stage on(settings);
        play(on);
        for (sim::report const& wrong : sim::reports())
            FAIL_CHECK(wrong.sentence);
    }
}

} // namespace reporting
