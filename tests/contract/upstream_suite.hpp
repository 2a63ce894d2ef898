// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What every upstream must do. A file lists its upstreams in WEIR_TEST_UPSTREAMS, specialises 'subject' where need be, and
// includes this page last.

#include "upstream_subject.hpp"
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <random>
#include <support/every_schedule.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/base/memory_space.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/supply/held_chunks.hpp>

namespace upstream_contract {

using weir::check_cuda;
using weir::memory_space;

// Bytes of a chunk that a pool may ask for.
template <class Upstream>
inline constexpr std::size_t page = weir::supply::held_chunks<Upstream, weir::base::no_lock>::granularity();

inline void fill(memory_space space, void* p, unsigned char value, std::size_t bytes) {
    if (weir::base::host_accessible(space))
        std::memset(p, value, bytes);
    else
        check_cuda(cudaMemset(p, value, bytes), "cudaMemset");
}

inline unsigned char byte_at(memory_space space, void* p, std::size_t at) {
    if (weir::base::host_accessible(space))
        return static_cast<unsigned char*>(p)[at];
    unsigned char value = 0;
    check_cuda(cudaMemcpy(&value, static_cast<unsigned char*>(p) + at, 1, cudaMemcpyDefault), "cudaMemcpy");
    return value;
}

} // namespace upstream_contract

using namespace upstream_contract;

TEST_CASE_TEMPLATE("upstream contract: has what the slot needs", Upstream, WEIR_TEST_UPSTREAMS) {
    CHECK(weir::contract::require_upstream<Upstream>());
    CHECK(weir::base::is_power_of_two(Upstream::alignment));
    CHECK(Upstream::alignment >= alignof(std::max_align_t));
    CHECK(page<Upstream> % Upstream::alignment == 0);
    CHECK(std::is_copy_constructible_v<Upstream>);
    CHECK(std::is_nothrow_move_constructible_v<Upstream>);
}

TEST_CASE_TEMPLATE("upstream contract: chunks are aligned, disjoint, and wholly usable", Upstream, WEIR_TEST_UPSTREAMS) {
    support::every_schedule([] {
        subject<Upstream> here;
        std::vector<std::pair<void*, std::size_t>> chunks;
        for (std::size_t pages : {1u, 2u, 1u, 3u}) {
            std::size_t const bytes = pages * page<Upstream>;
            void* const chunk = here.upstream.acquire(bytes);
            REQUIRE(chunk != nullptr);
            REQUIRE(reinterpret_cast<std::uintptr_t>(chunk) % Upstream::alignment == 0);
            fill(Upstream::space, chunk, static_cast<unsigned char>(chunks.size() + 1), bytes);
            chunks.emplace_back(chunk, bytes);
        }
        for (std::size_t i = 0; i < chunks.size(); ++i)
            for (std::size_t at : {std::size_t{0}, chunks[i].second / 2, chunks[i].second - 1})
                CHECK(byte_at(Upstream::space, chunks[i].first, at) == i + 1);
        for (auto const& [chunk, bytes] : chunks)
            here.upstream.release(chunk, bytes);
    });
}

TEST_CASE_TEMPLATE("upstream contract: what was released can be acquired again, for ever", Upstream,
                   WEIR_TEST_UPSTREAMS) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    subject<Upstream> here;
    std::mt19937_64 draw(13);
    std::vector<std::pair<void*, std::size_t>> live;
    for (int step = 0; step < 400; ++step) {
        if (live.size() < 3 && draw() % 2 == 0) {
            std::size_t const bytes = (draw() % 2 + 1) * page<Upstream>;
            void* const chunk = here.upstream.acquire(bytes);
            REQUIRE(chunk != nullptr);
            auto const begin = reinterpret_cast<std::uintptr_t>(chunk);
            for (auto const& [other, size] : live) {
                auto const there = reinterpret_cast<std::uintptr_t>(other);
                REQUIRE((begin + bytes <= there || there + size <= begin));
            }
            live.emplace_back(chunk, bytes);
        } else if (!live.empty()) {
            std::swap(live[draw() % live.size()], live.back());
            here.upstream.release(live.back().first, live.back().second);
            live.pop_back();
        }
    }
    for (auto const& [chunk, bytes] : live)
        here.upstream.release(chunk, bytes);
}

TEST_CASE_TEMPLATE("upstream contract: held_chunks keep it to a limit, and give everything back", Upstream,
                   WEIR_TEST_UPSTREAMS) {
    support::every_schedule([] {
        subject<Upstream> here;
        weir::supply::held_chunks<Upstream, weir::base::no_lock> held(std::move(here.upstream), 3 * page<Upstream>);
        weir::base::range const one = held.acquire(page<Upstream>);
        weir::base::range const two = held.acquire(2 * page<Upstream>);
        CHECK(one);
        CHECK(two);
        CHECK_FALSE(held.acquire(page<Upstream>));
        CHECK(held.release(one));
        CHECK(held.bytes() == 2 * page<Upstream>);
    }); // the world reports what leaked
}
