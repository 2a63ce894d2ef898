// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every upstream must do is in tests/contract/upstream.cpp; here is what cudaHostAlloc adds.

#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <thread>
#include <type_traits>
#include <weir/contract/upstream_slot.hpp>
#include <weir/upstream/pinned.hpp>

using weir::check_cuda;
using weir::KiB;
using weir::upstream::pinned;

static_assert(pinned<>::space == weir::memory_space::pinned);
static_assert(std::is_empty_v<pinned<>> && std::is_nothrow_copy_constructible_v<pinned<>>);
static_assert(weir::contract::returns<bool, weir::contract::has_release, pinned<>>);
static_assert(!weir::contract::holds<weir::contract::has_device_number, pinned<>>);

TEST_CASE_TEMPLATE("pinned: chunks have the flags that the type names", Upstream, pinned<>, pinned<cudaHostAllocPortable>,
                   pinned<cudaHostAllocMapped>, pinned<cudaHostAllocWriteCombined>,
                   pinned<cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined>) {
    support::every_schedule([] {
        Upstream upstream;
        void* const chunk = upstream.acquire(64 * KiB);
        REQUIRE(chunk != nullptr);
        cudaPointerAttributes attributes{};
        check_cuda(cudaPointerGetAttributes(&attributes, chunk), "cudaPointerGetAttributes");
        CHECK(attributes.type == cudaMemoryTypeHost);
        unsigned flags = 0;
        check_cuda(cudaHostGetFlags(&flags, chunk), "cudaHostGetFlags");
        constexpr bool combined = std::is_same_v<Upstream, pinned<cudaHostAllocWriteCombined>> ||
                                  std::is_same_v<Upstream, pinned<cudaHostAllocPortable | cudaHostAllocMapped |
                                                                  cudaHostAllocWriteCombined>>;
        CHECK(((flags & cudaHostAllocWriteCombined) != 0) == combined);
        std::memset(chunk, 9, 64 * KiB);
        CHECK(upstream.release(chunk, 64 * KiB));
    });
}

TEST_CASE("pinned: copies to and from a device are asynchronous and see the host's bytes") {
    support::every_schedule([] {
        pinned<> upstream;
        support::scoped_stream const s;
        auto* const chunk = static_cast<unsigned char*>(upstream.acquire(64 * KiB));
        void* p = nullptr;
        check_cuda(cudaMalloc(&p, 64 * KiB), "cudaMalloc");
        std::memset(chunk, 5, 32 * KiB);
        check_cuda(cudaMemcpyAsync(p, chunk, 32 * KiB, cudaMemcpyDefault, s), "cudaMemcpyAsync");
        check_cuda(cudaMemcpyAsync(chunk + 32 * KiB, p, 32 * KiB, cudaMemcpyDefault, s), "cudaMemcpyAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(chunk[64 * KiB - 1] == 5);
        check_cuda(cudaFree(p), "cudaFree");
        CHECK(upstream.release(chunk, 64 * KiB));
    });
}

TEST_CASE("pinned: more than the host can lock is null, and no error is left behind") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    pinned<> upstream;
    for (std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX & ~(64 * KiB - 1)}) {
        CHECK(upstream.acquire(bytes) == nullptr);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
}

TEST_CASE("pinned: neither acquire nor release breaks a capture, from any thread") {
    support::every_schedule([] {
        support::scoped_stream const s;
        pinned<> upstream;
        support::capture graph(s);
        auto const both = [&] {
            void* const chunk = upstream.acquire(64 * KiB);
            CHECK(chunk != nullptr);
            CHECK(upstream.release(chunk, 64 * KiB));
        };
        both();
        std::thread(both).join();
        CHECK(graph.unbroken());
    });
}

TEST_CASE("pinned: every call may fail: nothing is acquired then, and what was refused can be given back later") {
    struct state {
        pinned<> upstream;
        void* chunk = upstream.acquire(64 * KiB);
        void* other = nullptr;
        bool released = false;
    };
    auto const prepare = [] { return std::make_unique<state>(); };
    auto runs = support::fault_sweep(prepare, [](state& x) { x.other = x.upstream.acquire(64 * KiB); },
                                     [](state& x, support::struck const& fault) {
                                         CHECK((x.other == nullptr) == fault.threw);
                                         if (x.other)
                                             CHECK(x.upstream.release(x.other, 64 * KiB));
                                         CHECK(x.upstream.release(x.chunk, 64 * KiB));
                                     });
    runs += support::fault_sweep(prepare, [](state& x) { x.released = x.upstream.release(x.chunk, 64 * KiB); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK_FALSE(fault.threw);
                                     if (!x.released)
                                         CHECK(x.upstream.release(x.chunk, 64 * KiB));
                                 });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 12);
#endif
    static_cast<void>(runs);
}
