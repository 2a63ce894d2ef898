// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every upstream must do is in tests/contract/upstream.cpp.

#include <cstdint>
#include <cstring>
#include <doctest/doctest.h>
#include <type_traits>
#include <vector>
#include <weir/upstream/host.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEIR_TEST_NO_HUGE_NEW 1 // the sanitizers end the program where operator new should say no
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEIR_TEST_NO_HUGE_NEW 1
#endif
#endif

using weir::KiB;
using weir::upstream::host;

static_assert(host::space == weir::memory_space::host);
static_assert(std::is_empty_v<host>);
static_assert(noexcept(host().acquire(1)) && noexcept(host().release(nullptr, 1)));

TEST_CASE("host: chunks are aligned to a page, disjoint and writable") {
    host upstream;
    std::vector<std::pair<unsigned char*, std::size_t>> chunks;
    for (std::size_t bytes : {4 * KiB, 8 * KiB, 64 * KiB, std::size_t{1}, 100 * KiB}) {
        auto* const chunk = static_cast<unsigned char*>(upstream.acquire(bytes));
        REQUIRE(chunk != nullptr);
        CHECK(reinterpret_cast<std::uintptr_t>(chunk) % host::alignment == 0);
        std::memset(chunk, static_cast<int>(chunks.size()), bytes);
        chunks.emplace_back(chunk, bytes);
    }
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        CHECK(chunks[i].first[0] == i);
        CHECK(chunks[i].first[chunks[i].second - 1] == i);
        upstream.release(chunks[i].first, chunks[i].second);
    }
}

#ifndef WEIR_TEST_NO_HUGE_NEW
TEST_CASE("host: more than there is is null") {
    host upstream;
    std::size_t volatile most = SIZE_MAX & ~(4 * KiB - 1); // volatile: compilers warn of what they can foresee
    CHECK(upstream.acquire(most) == nullptr);
    CHECK(upstream.acquire(most / 16) == nullptr);
}
#endif

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("host: makes no CUDA call, so that it works without a GPU or a driver") {
    simulated_cuda::world world(simulated_cuda::config{}.with_devices(0));
    auto const before = simulated_cuda::calls();
    host upstream;
    void* const chunk = upstream.acquire(4 * KiB);
    upstream.release(chunk, 4 * KiB);
    CHECK(simulated_cuda::calls() == before);
    world.forgive();
}
#endif
