// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every upstream must do is in tests/contract/upstream.cpp.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <map>
#include <set>
#include <type_traits>
#include <vector>
#include <weir/container/vector.hpp>
#include <weir/recipes/host_pool.hpp>
#include <weir/recipes/recorded_device_pool.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/upstream/host.hpp>
#include <weir/upstream/recorded.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

using weir::MiB;
using weir::trace::event;
using weir::trace::event_kind;
using weir::trace::recorder;
using weir::upstream::recorded;
using mapped = weir::upstream::virtual_memory<>;

static_assert(recorded<weir::upstream::host>::space == weir::memory_space::host);
static_assert(recorded<mapped>::alignment == mapped::alignment);
static_assert(!weir::contract::holds<weir::contract::has_extends, recorded<weir::upstream::host>>);
static_assert(weir::contract::holds<weir::contract::has_extends, recorded<mapped>>);
static_assert(weir::contract::require_upstream<recorded<mapped>>());
static_assert(!std::is_convertible_v<recorder&, recorded<mapped>>);

namespace {

std::vector<event> events_of(recorder& tape) {
    std::vector<event> all;
    tape.ring()->drain([&](event const* first, std::size_t count) { all.insert(all.end(), first, first + count); });
    return all;
}

std::vector<event_kind> kinds_of(recorder& tape) {
    std::vector<event_kind> kinds;
    for (event const& each : events_of(tape))
        kinds.push_back(each.kind);
    return kinds;
}
using kinds = std::vector<event_kind>;

// Refuses whatever it is asked to give back or to change.
struct stubborn {
    [[maybe_unused]] static constexpr std::size_t alignment = 256;
    static constexpr weir::memory_space space = weir::memory_space::device;
    bool gives = false;
    bool extends() const noexcept { return true; }
    void* acquire(std::size_t bytes) { return acquire(bytes, bytes); }
    void* acquire(std::size_t, std::size_t) { return gives ? &gives : nullptr; }
    bool release(void*, std::size_t) noexcept { return false; }
    bool extend(void*, std::size_t, std::size_t) { return gives; }
    bool move(void*, std::size_t, void*) noexcept { return gives; }
    bool withdraw(void*, std::size_t) noexcept { return gives; }
    bool restore(void*, std::size_t) { return gives; }
    void abandon(void*, std::size_t) noexcept {}
    void wait_before_unmapping() noexcept {}
    std::size_t addresses_behind(void const*) const noexcept { return 0; }
    bool out_of_addresses() const noexcept { return false; }
};

} // namespace

TEST_CASE("recorded: a chunk that comes and goes, with its pool's device and space") {
    recorder tape;
    recorded<weir::upstream::host> memory(tape);
    void* const unseen = memory.acquire(1 * MiB);
    tape.start();
    memory.release(unseen, 1 * MiB);
    void* const chunk = memory.acquire(2 * MiB);
    auto const at = reinterpret_cast<std::uintptr_t>(chunk);
    memory.release(chunk, 2 * MiB);
    std::vector<event> const all = events_of(tape);
    REQUIRE(all.size() == 3);
    CHECK(all[0].kind == event_kind::give_back);
    CHECK(all[1].kind == event_kind::grow);
    CHECK(all[1].address == at);
    CHECK(all[1].bytes == 2 * MiB);
    CHECK(tape.source_of(all[1].source).name == "chunks of host");
    CHECK(tape.source_of(all[1].source).device == weir::any_device);
}

TEST_CASE("recorded: what the upstream refuses is as it was, in the recording too") {
    recorder tape;
    recorded<stubborn> memory(tape);
    tape.start();
    int place = 0;
    CHECK(memory.acquire(1) == nullptr);
    CHECK(memory.acquire(1, 1) == nullptr);
    CHECK_FALSE(memory.extend(&place, 1, 1));
    CHECK_FALSE(memory.restore(&place, 1));
    CHECK(kinds_of(tape).empty());
    CHECK_FALSE(memory.release(&place, 1));
    CHECK(kinds_of(tape) == kinds{event_kind::give_back, event_kind::grow});
    CHECK_FALSE(memory.withdraw(&place, 1));
    CHECK(kinds_of(tape) == kinds{event_kind::withdraw, event_kind::restore});
    CHECK_FALSE(memory.move(&place, 1, nullptr));
    std::vector<event> const back = events_of(tape);
    REQUIRE(back.size() == 2);
    CHECK(back[1].kind == event_kind::move_to);
    CHECK(back[1].address == back[0].address);
    memory.gives = true;
    CHECK(memory.acquire(1) != nullptr);
    CHECK(memory.acquire(1, 1) != nullptr);
    CHECK(memory.extend(&place, 1, 1));
    CHECK(memory.withdraw(&place, 1));
    CHECK(memory.restore(&place, 1));
    CHECK(kinds_of(tape) == kinds{event_kind::grow, event_kind::grow, event_kind::extend, event_kind::withdraw, event_kind::restore});
    CHECK(memory.move(&place, 1, nullptr));
    CHECK(events_of(tape)[1].address == 0);
}

TEST_CASE("recorded: at each moment the chunks in a recording hold its blocks, and are what the pool holds") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world world;
#endif
    recorder tape;
    weir::recorded_device_pool pool(tape, weir::pool_options{}.name("mine"));
    tape.start();
    cudaStream_t stream = nullptr;
    weir::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (std::size_t i = 0; i < 40; ++i) {
        weir::device_vector<float> const a(pool, stream, (1 + i * 7919 % 40) << 16), b(pool, stream, (1 + i * 17 % 9) << 12);
        if (i % 10 == 9)
            pool.trim();
    }
    std::size_t const reserved = pool.reserved_bytes();
    std::map<std::uint64_t, std::uint64_t> pages; // that are there
    std::uint64_t held = 0, blocks = 0;
    for (event const& each : events_of(tape)) {
        bool const comes = each.kind == event_kind::grow || each.kind == event_kind::extend || each.kind == event_kind::move_to;
        bool const goes = each.kind == event_kind::give_back || each.kind == event_kind::move_from;
        for (std::uint64_t at = 0; (comes || goes) && at < each.bytes; at += 2 * MiB) {
            bool const was_there = pages.count(each.address + at) != 0;
            CHECK(was_there == goes);
            if (comes)
                pages[each.address + at] = 1;
            else
                pages.erase(each.address + at);
        }
        held += comes ? each.bytes : 0;
        held -= goes ? each.bytes : 0;
        if (each.kind == event_kind::allocate)
            CHECK(each.site != 0); // the guard within keeps no line from the recording
        if (each.kind == event_kind::allocate)
            for (std::uint64_t at = each.address / (2 * MiB) * (2 * MiB); at < each.address + each.bytes; at += 2 * MiB, ++blocks)
                CHECK(pages.count(at) == 1);
    }
    CHECK(held == reserved);
    CHECK(blocks > 80);
    pool.settle();
    weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

TEST_CASE("recorded: the chunks of a pool that sleeps, is trimmed meanwhile, and ends asleep go once") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world world;
#endif
    recorder tape;
    tape.start();
    {
        weir::host_pool keep;
        weir::recorded_device_pool pool(tape, weir::pool_options{}.on_leak(weir::leak_action::ignore));
        void* const large = pool.allocate(weir::on_host, 40 * MiB);
        CHECK(pool.allocate(weir::on_host, 4 * MiB) != nullptr);
        pool.suspend(keep);
        pool.deallocate(weir::on_host, large, 40 * MiB);
        pool.trim();
        pool.resume();
        CHECK(pool.reserved_bytes() < 40 * MiB);
        pool.suspend();
    }
    std::set<std::uint64_t> pages; // that are there
    std::size_t moved = 0;
    for (event const& each : events_of(tape)) {
        bool const comes = each.kind == event_kind::grow || each.kind == event_kind::extend || each.kind == event_kind::restore;
        bool const goes = each.kind == event_kind::give_back || each.kind == event_kind::withdraw;
        for (std::uint64_t at = 0; (comes || goes) && at < each.bytes; at += 2 * MiB, ++moved)
            CHECK((comes ? pages.insert(each.address + at).second : pages.erase(each.address + at) == 1));
    }
    CHECK(pages.empty());
    CHECK(moved >= 2 * 22 + 2 * 2);
}
