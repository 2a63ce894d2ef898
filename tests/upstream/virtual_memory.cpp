// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every upstream must do is in tests/contract/upstream.cpp; here is what mapped memory adds.

#include <cstdint>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <exception>
#include <memory>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/peers.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <vector>
#include <weir/contract/upstream_slot.hpp>
#include <weir/upstream/virtual_memory.hpp>

using weir::check_cuda;
using weir::MiB;
using virtual_memory = weir::upstream::virtual_memory<>;

static_assert(virtual_memory::space == weir::memory_space::device);
static_assert(weir::contract::holds<weir::contract::has_extends, virtual_memory>);
static_assert(weir::contract::returns<bool, weir::contract::has_release, virtual_memory>);
static_assert(!std::is_convertible_v<int, virtual_memory>);

namespace {

constexpr std::size_t page = virtual_memory::granularity;

char* behind(void* p, std::size_t bytes) {
    return static_cast<char*>(p) + bytes;
}

} // namespace

TEST_CASE("virtual_memory: grows right behind a chunk, and the bytes are used as one") {
    support::every_schedule([] {
        virtual_memory upstream;
        REQUIRE(upstream.extends());
        CHECK(upstream.device_number() == 0);
        void* const first = upstream.acquire(page);
        REQUIRE(first != nullptr);
        REQUIRE(upstream.extend(behind(first, page), 3 * page, 2 * page)); // in two chunks
        CHECK_FALSE(upstream.extend(behind(first, page), page, page));     // taken
        CHECK_FALSE(upstream.extend(behind(first, 8 * page), page, page)); // no chunk ends there
        support::scoped_stream const s;
        check_cuda(cudaMemsetAsync(first, 9, 4 * page, s), "cudaMemsetAsync");
        unsigned char last = 0;
        check_cuda(cudaMemcpyAsync(&last, behind(first, 4 * page - 1), 1, cudaMemcpyDefault, s), "cudaMemcpyAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(last == 9);
        // The chunks go back one by one, in any order, and each place can be filled again.
        CHECK(upstream.release(behind(first, page), 2 * page));
        CHECK(upstream.extend(behind(first, page), page, page));
        CHECK(upstream.extend(behind(first, 2 * page), page, page));
        CHECK_FALSE(upstream.extend(behind(first, 3 * page), page, page)); // the last chunk is there
        CHECK(upstream.release(first, page));
        CHECK(upstream.release(behind(first, 3 * page), page));
        CHECK(upstream.release(behind(first, page), page));
        CHECK(upstream.release(behind(first, 2 * page), page));
        CHECK(upstream.acquire(4 * page) == first); // addresses join again
        CHECK(upstream.release(first, 4 * page));
    });
}

TEST_CASE("virtual_memory: acquires in pieces that go back one by one") {
    support::every_schedule([] {
        virtual_memory upstream;
        void* const all = upstream.acquire(5 * page, 2 * page);
        REQUIRE(all != nullptr);
        CHECK(upstream.release(behind(all, 2 * page), 2 * page));
        CHECK(upstream.release(behind(all, 4 * page), page)); // the last piece is what was left
        CHECK(upstream.release(all, 2 * page));
    });
}

TEST_CASE("virtual_memory: a chunk moves right behind another, its memory with it, and its addresses are free") {
    support::every_schedule([] {
        virtual_memory upstream;
        support::scoped_stream const s;
        void* const first = upstream.acquire(6 * page, 2 * page);
        REQUIRE(first != nullptr);
        void* const end = behind(first, 6 * page);
        check_cuda(cudaMemsetAsync(behind(first, 2 * page), 5, 2 * page, s), "cudaMemsetAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK_FALSE(upstream.move(behind(first, 2 * page), 2 * page, behind(first, 4 * page))); // taken
        CHECK_FALSE(upstream.move(behind(first, 2 * page), 2 * page, behind(end, page)));       // no chunk ends there
        REQUIRE(upstream.move(behind(first, 2 * page), 2 * page, end));
        unsigned char last = 0;
        check_cuda(cudaMemcpyAsync(&last, behind(end, 2 * page - 1), 1, cudaMemcpyDefault, s), "cudaMemcpyAsync");
        check_cuda(cudaMemsetAsync(end, 6, 2 * page, s), "cudaMemsetAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(last == 5); // the same memory
        // There is room for fresh memory where it was, and for the same again.
        REQUIRE(upstream.extend(behind(first, 2 * page), page, page));
        CHECK_FALSE(upstream.move(end, 2 * page, behind(first, 3 * page)));
        CHECK(upstream.release(behind(first, 2 * page), page));
        REQUIRE(upstream.move(end, 2 * page, behind(first, 2 * page)));
        for (std::size_t i : {0u, 2u, 4u})
            CHECK(upstream.release(behind(first, i * page), 2 * page));
        CHECK(upstream.acquire(8 * page) == first); // every address is free again
        CHECK(upstream.release(first, 8 * page));
    });
}

TEST_CASE("virtual_memory: addresses without memory get some, which moves between them and goes") {
    support::every_schedule([] {
        virtual_memory upstream;
        support::scoped_stream const s;
        void* const first = upstream.take_addresses(4 * page);
        void* const second = upstream.take_addresses(2 * page);
        REQUIRE(first != nullptr);
        REQUIRE(second != nullptr);
        REQUIRE(upstream.restore(behind(first, 2 * page), page));
        check_cuda(cudaMemsetAsync(behind(first, 2 * page), 5, page, s), "cudaMemsetAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        REQUIRE(upstream.remap(behind(first, 2 * page), page, behind(second, page)));
        unsigned char last = 0;
        check_cuda(cudaMemcpyAsync(&last, behind(second, 2 * page - 1), 1, cudaMemcpyDefault, s), "cudaMemcpyAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(last == 5);
        CHECK_FALSE(upstream.remap(behind(first, 2 * page), page, second)); // nothing is there any more
        REQUIRE(upstream.restore(first, page));
        CHECK_FALSE(upstream.remap(first, page, behind(second, page))); // memory is there
        CHECK(upstream.withdraw(first, page));
        CHECK(upstream.withdraw(behind(second, page), page));
        upstream.abandon(first, 4 * page);
        upstream.abandon(second, 2 * page);
        CHECK(upstream.take_addresses(6 * page) == first); // addresses join again
        upstream.abandon(first, 6 * page);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("virtual_memory: a move takes no memory, so it works on a full device") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(4 * page));
    virtual_memory upstream;
    void* const all = upstream.acquire(4 * page, page);
    REQUIRE(all != nullptr);
    CHECK(upstream.acquire(page) == nullptr);
    CHECK(upstream.move(all, page, behind(all, 4 * page)));
    for (std::size_t i = 1; i <= 4; ++i)
        CHECK(upstream.release(behind(all, i * page), page));
    void* const again = upstream.acquire(4 * page); // nothing was left behind the old addresses
    CHECK(again != nullptr);
    CHECK(upstream.release(again, 4 * page));
}
#endif

TEST_CASE("virtual_memory: where the host has no memory for a move, the chunk stays where it is") {
    if (!support::host_memory_can_fail)
        return;
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    virtual_memory upstream;
    void* const all = upstream.acquire(page);
    for (std::size_t i = 1; i < 9; ++i) // one by one: in one call, the list of gaps had room for more from then on
        CHECK(upstream.extend(behind(all, i * page), page, page));
    for (std::size_t i = 1; i < 8; i += 2)
        CHECK(upstream.release(behind(all, i * page), page));
    bool moved = true;
    {
        support::failing_new const fails(0);
        moved = upstream.move(all, page, behind(all, page));
    }
    CHECK_FALSE(moved);
    CHECK(upstream.move(all, page, behind(all, page)));
    CHECK(upstream.release(behind(all, page), page));
    for (std::size_t i = 2; i < 9; i += 2)
        CHECK(upstream.release(behind(all, i * page), page));
}

TEST_CASE("virtual_memory: a growth that fails on its way leaves nothing mapped") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(8 * page));
    virtual_memory upstream;
    void* const first = upstream.acquire(3 * page);
    REQUIRE(first != nullptr);
    CHECK(upstream.acquire(6 * page, page) == nullptr);
    CHECK_FALSE(upstream.extend(behind(first, 3 * page), 6 * page, page));
    simulated_cuda::fail_call("cuMemCreate", 3, cudaErrorMemoryAllocation); // another program was quicker
    CHECK_FALSE(upstream.extend(behind(first, 3 * page), 5 * page, page));
    CHECK(upstream.extend(behind(first, 3 * page), 5 * page, page)); // all there is
    CHECK(upstream.acquire(page) == nullptr);
    CHECK(upstream.release(first, 3 * page));
    for (std::size_t i = 3; i < 8; ++i)
        CHECK(upstream.release(behind(first, i * page), page));
#endif
}

TEST_CASE("virtual_memory: more than there is, of addresses and of memory, is null" * doctest::test_suite("fills the card")) {
    virtual_memory upstream;
    for (std::size_t bytes : {std::size_t{1} << 46, std::size_t{1} << 62, SIZE_MAX & ~(page - 1)}) {
        CHECK(upstream.acquire(bytes) == nullptr);
        CHECK(upstream.acquire(bytes, bytes / 1024) == nullptr);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
}

TEST_CASE("virtual_memory: copies share the addresses, and threads the upstream") {
    support::every_schedule([] {
        virtual_memory upstream;
        virtual_memory copy = upstream;
        void* const first = upstream.acquire(page);
        void* const second = copy.acquire(page);
        CHECK(second == behind(first, page));
        CHECK(copy.release(first, page));
        CHECK(upstream.release(second, page));
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i)
            threads.emplace_back([own = upstream]() mutable {
                for (int turn = 0; turn < 20; ++turn) {
                    void* const chunk = own.acquire(2 * page, page);
                    CHECK(chunk != nullptr);
                    CHECK(own.release(chunk, page));
                    CHECK(own.release(behind(chunk, page), page));
                }
            });
        for (std::thread& each : threads)
            each.join();
    });
}

TEST_CASE("virtual_memory: neither growing nor giving back breaks a capture, from any thread") {
    support::every_schedule([] {
        support::scoped_stream const s;
        virtual_memory upstream;
        void* const before = upstream.acquire(page);
        support::capture graph(s);
        CHECK(upstream.extend(behind(before, page), page, page));
        std::thread([&] { CHECK(upstream.move(before, page, behind(before, 2 * page))); }).join();
        std::thread([&] { CHECK(upstream.release(behind(before, 2 * page), page)); }).join();
        CHECK(upstream.release(behind(before, page), page));
        CHECK(graph.unbroken());
    });
}

TEST_CASE("virtual_memory: every call may fail: nothing is held then, and what was refused can be given back later") {
    struct state {
        virtual_memory upstream;
        void* chunk = upstream.acquire(page);
        void* other = nullptr;
        bool done = false;
    };
    auto const prepare = [] { return std::make_unique<state>(); };
    auto runs = support::fault_sweep(prepare, [](state& x) { x.other = x.upstream.acquire(3 * page, page); },
                                     [](state& x, support::struck const&) {
                                         for (std::size_t i = 0; x.other && i < 3; ++i)
                                             CHECK(x.upstream.release(behind(x.other, i * page), page));
                                         CHECK(x.upstream.release(x.chunk, page));
                                     }, support::faults::pairs_too);
    runs += support::fault_sweep(prepare,
                                 [](state& x) { x.done = x.upstream.extend(behind(x.chunk, page), 2 * page, page); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK((x.done || !fault.calls.empty()));
                                     for (std::size_t i = 1; x.done && i < 3; ++i)
                                         CHECK(x.upstream.release(behind(x.chunk, i * page), page));
                                     CHECK(x.upstream.release(x.chunk, page));
                                 }, support::faults::pairs_too);
    runs += support::fault_sweep(prepare, [](state& x) { x.done = x.upstream.release(x.chunk, page); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK_FALSE(fault.threw);
                                     if (!x.done)
                                         CHECK(x.upstream.release(x.chunk, page));
                                 }, support::faults::pairs_too);
    runs += support::fault_sweep(
        [&] {
            auto made = prepare();
            made->other = made->upstream.acquire(page);
            return made;
        },
        [](state& x) { x.done = x.upstream.move(x.chunk, page, behind(x.other, page)); },
        [](state& x, support::struck const& fault) {
            CHECK_FALSE(fault.threw);
            CHECK((x.done || !fault.calls.empty()));
            if (!x.done) { // it is where it was, and can be moved now, or when CUDA gave the place free again
                support::scoped_stream const s;
                check_cuda(cudaMemsetAsync(x.chunk, 1, page, s), "cudaMemsetAsync");
                check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
                CHECK(x.upstream.extend(behind(x.other, page), page, page));
                CHECK(x.upstream.release(behind(x.other, page), page));
                x.done = x.upstream.move(x.chunk, page, behind(x.other, page));
                CHECK(x.done);
            }
            CHECK(x.upstream.release(behind(x.other, page), page));
            CHECK(x.upstream.release(x.other, page));
        }, support::faults::pairs_too);
    // A driver whose functions are not found is one that cannot map.
    struct unmade {
        std::unique_ptr<virtual_memory> upstream;
        void* chunk = nullptr;
    };
    runs += support::fault_sweep([] { return std::make_unique<unmade>(); },
                                 [](unmade& x) {
                                     x.upstream = std::make_unique<virtual_memory>();
                                     x.chunk = x.upstream->acquire(page);
                                 },
                                 [](unmade& x, support::struck const& fault) {
                                     CHECK((x.chunk || !fault.calls.empty()));
                                     if (x.chunk)
                                         CHECK(x.upstream->release(x.chunk, page));
                                 }, support::faults::pairs_too);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 40);
#endif
    static_cast<void>(runs);
}

TEST_CASE("virtual_memory: lives on the device that was named, and another can be let in") {
    support::two_devices const both{};
    if (!both)
        return;
    virtual_memory upstream(1);
    CHECK_FALSE(upstream.has_peers());
    upstream.enable_access_from(0);
    CHECK(upstream.has_peers());
    CHECK(upstream.device_number() == 1);
    void* const chunk = upstream.acquire(page);
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, chunk), "cudaPointerGetAttributes");
    CHECK(attributes.device == 1);
    CHECK(weir::runtime::current_device() == 0);
    check_cuda(cudaMemset(chunk, 1, page), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    CHECK(upstream.release(chunk, page));
}

TEST_CASE("virtual_memory: who was let in may use every chunk, also one that was moved, or is back after it was withdrawn") {
    support::two_devices const both{};
    if (!both)
        return;
    virtual_memory upstream;
    upstream.enable_access_from(1);
    auto const used_by_both = [](void* at, std::size_t bytes) {
        for (int const device : {0, 1})
            support::fill_from(device, at, bytes);
    };
    void* const first = upstream.acquire(2 * page, page);
    REQUIRE(first != nullptr);
    REQUIRE(upstream.extend(behind(first, 2 * page), 2 * page, page));
    used_by_both(first, 4 * page);
    REQUIRE(upstream.move(first, page, behind(first, 4 * page)));
    used_by_both(behind(first, page), 4 * page);
    for (std::size_t const i : {1u, 4u}) {
        REQUIRE(upstream.withdraw(behind(first, i * page), page));
        REQUIRE(upstream.restore(behind(first, i * page), page));
    }
    used_by_both(behind(first, page), 4 * page);
    for (std::size_t const i : {1u, 2u, 3u, 4u})
        CHECK(upstream.release(behind(first, i * page), page));
    virtual_memory copy = upstream; // lets the same devices in
    void* const again = copy.acquire(4 * page);
    used_by_both(again, 4 * page);
    CHECK(upstream.release(again, 4 * page));
}

TEST_CASE("virtual_memory: a graph of a device that was let in runs on what is back after it was withdrawn") {
    support::two_devices const both{};
    if (!both)
        return;
    virtual_memory upstream;
    upstream.enable_access_from(1);
    void* const chunk = upstream.acquire(page);
    REQUIRE(chunk != nullptr);
    {
        weir::runtime::device_scope const there(1);
        support::scoped_stream const s;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t launchable = nullptr;
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        check_cuda(cudaMemsetAsync(chunk, 9, page, s), "cudaMemsetAsync");
        check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&launchable, graph, 0), "cudaGraphInstantiate");
        for (int turn = 0; turn < 2; ++turn) {
            check_cuda(cudaGraphLaunch(launchable, s), "cudaGraphLaunch");
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            REQUIRE(upstream.withdraw(chunk, page));
            REQUIRE(upstream.restore(chunk, page));
        }
        check_cuda(cudaGraphExecDestroy(launchable), "cudaGraphExecDestroy");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    }
    CHECK(upstream.release(chunk, page));
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("virtual_memory: a chunk goes back after cudaDeviceReset, as one of a static pool does") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    virtual_memory upstream;
    void* const chunk = upstream.acquire(2 * page, page);
    REQUIRE(chunk != nullptr);
    REQUIRE(cudaDeviceReset() == cudaSuccess);
    CHECK(upstream.release(chunk, page));
    CHECK(upstream.release(behind(chunk, page), page));
}

TEST_CASE("virtual_memory: where a device cannot map memory, chunks are cudaMalloc's and do not grow") {
    simulated_cuda::world const world(simulated_cuda::config{}.without_virtual_memory());
    virtual_memory upstream;
    CHECK_FALSE(upstream.extends());
    CHECK(upstream.take_addresses(page) == nullptr);
    void* const chunk = upstream.acquire(2 * page, page);
    REQUIRE(chunk != nullptr);
    CHECK(simulated_cuda::calls("cudaMalloc") == 1);
    CHECK_FALSE(upstream.extend(behind(chunk, 2 * page), page, page));
    CHECK_FALSE(upstream.move(chunk, 2 * page, behind(chunk, 2 * page)));
    for (std::uint64_t k : {1u, 2u}) { // what stands around cudaFree, and cudaFree
        simulated_cuda::fail_call(k, cudaErrorUnknown);
        CHECK_FALSE(upstream.release(chunk, 2 * page));
        simulated_cuda::clear_faults();
    }
    CHECK(upstream.release(chunk, 2 * page));
}

TEST_CASE("virtual_memory: where mapping is refused though granularity is answered, chunks are cudaMalloc's, too") {
    for (char const* const call : {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"})
        for (cudaError_t const error : {cudaErrorNotSupported, cudaErrorNotPermitted})
            for (std::size_t const pieces : {1u, 4u}) {
                CAPTURE(call);
                CAPTURE(pieces);
                simulated_cuda::world const world;
                virtual_memory upstream;
                simulated_cuda::fail_call(call, 1, cudaErrorMemoryAllocation, simulated_cuda::lasting::for_ever);
                CHECK(upstream.acquire(page) == nullptr);
                CHECK(upstream.extends()); // it is room that lacks
                simulated_cuda::clear_faults();
                simulated_cuda::fail_call(call, 1, error, simulated_cuda::lasting::for_ever);
                void* const chunk = upstream.acquire(4 * page, 4 * page / pieces);
                REQUIRE(chunk != nullptr);
                CHECK_FALSE(upstream.extends());
                CHECK_FALSE(upstream.out_of_addresses());
                CHECK(simulated_cuda::calls("cudaMalloc") == 1);
                CHECK(upstream.release(chunk, 4 * page));
                CHECK(cudaPeekAtLastError() == cudaSuccess);
            }
}

TEST_CASE("virtual_memory: a device that has mapped memory, or may not share it, is not taken for one that cannot map") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2));
    virtual_memory upstream;
    void* const chunk = upstream.acquire(page);
    simulated_cuda::fail_call("cuMemCreate", 1, cudaErrorNotSupported);
    CHECK_THROWS_AS(static_cast<void>(upstream.acquire(page)), weir::cuda_error);
    CHECK(upstream.extends());
    CHECK(upstream.release(chunk, page));
    virtual_memory shared;
    shared.enable_access_from(1);
    simulated_cuda::fail_call("cuMemSetAccess", 1, cudaErrorNotPermitted);
    CHECK_THROWS_AS(static_cast<void>(shared.acquire(page)), weir::cuda_error);
    weir::upstream::virtual_memory<weir::upstream::exported_memory<1>> exported;
    simulated_cuda::fail_call("cuMemCreate", 1, cudaErrorNotSupported);
    CHECK_THROWS_AS(static_cast<void>(exported.acquire(page)), weir::cuda_error);
    CHECK(exported.extends());
}

TEST_CASE("virtual_memory: where its device cannot map memory, chunks are of that device all the same, whichever is current") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2).without_virtual_memory(), support::report_all);
    virtual_memory upstream(0);
    void* chunk = nullptr;
    {
        weir::runtime::device_scope const there(1);
        chunk = upstream.acquire(page);
    }
    REQUIRE(chunk != nullptr);
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, chunk), "cudaPointerGetAttributes");
    CHECK(attributes.device == 0);
    CHECK(upstream.release(chunk, page));
}

TEST_CASE("virtual_memory: where no addresses can be had, it asks for fewer, in a few steps, and says so at last") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    virtual_memory upstream;
    simulated_cuda::fail_call("cuMemAddressReserve", 1, cudaErrorMemoryAllocation, simulated_cuda::lasting::for_ever);
    simulated_cuda::at_switch_points([] { // so that the test ends also where the questions would not
        if (simulated_cuda::calls("cuMemAddressReserve") >= 100)
            simulated_cuda::clear_faults();
    });
    void* none = nullptr;
    CHECK_NOTHROW(none = upstream.acquire(3 * page));
    CHECK(simulated_cuda::calls("cuMemAddressReserve") == 1 + 3); // are there plenty? 1 GiB, four times as much, what it takes
    for (std::size_t const bytes : {512 * MiB, 2048 * MiB}) { // of which 1 GiB is less than four times; more than 1 GiB
        CHECK(upstream.acquire(bytes) == nullptr);
        CHECK(upstream.out_of_addresses());
    }
    CHECK(simulated_cuda::calls("cuMemAddressReserve") == 1 + 3 + 1 + 2 + 1 + 1);
    simulated_cuda::at_switch_points(nullptr);
    simulated_cuda::clear_faults();
    CHECK(none == nullptr);
    void* const chunk = upstream.acquire(3 * page);
    CHECK(chunk != nullptr);
    CHECK_FALSE(upstream.out_of_addresses());
    CHECK(upstream.release(chunk, 3 * page));
}

TEST_CASE("virtual_memory: where addresses are plenty, it reserves eight times what the device has, once") {
    constexpr std::size_t device_bytes = 64 * page;
    for (bool const plenty : {true, false}) {
        CAPTURE(plenty);
        std::size_t const there = 16 * 8 * device_bytes - (plenty ? 0 : page);
        simulated_cuda::world const world(simulated_cuda::config{}.with_memory(device_bytes).with_addresses(there), support::report_all);
        virtual_memory first, second;
        void* const one = first.acquire(page);
        void* const two = second.acquire(page);
        REQUIRE((one && two));
        CHECK(first.addresses_behind(behind(one, page)) == (plenty ? 8 * device_bytes : 1024 * MiB) - page);
        CHECK(second.addresses_behind(behind(two, page)) == 1024 * MiB - page); // fewer are left
        CHECK(first.release(one, page));
        CHECK(second.release(two, page));
    }
}

TEST_CASE("virtual_memory: where addresses are not plenty, it reserves 1 GiB, then twice as much each time, or what is asked for") {
    constexpr std::size_t gib = 1024 * MiB;
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(40 * gib).with_addresses(80 * gib), support::report_all);
    struct row {
        std::size_t asked_bytes;
        std::size_t reserved_bytes; // 0: it fits in what is there
    };
    virtual_memory upstream;
    std::vector<std::pair<void*, std::size_t>> chunks;
    for (row const& each : {row{page, gib}, row{gib - page, 0}, row{page, 2 * gib}, row{3 * gib, 4 * gib}, row{9 * gib, 9 * gib},
                            row{10 * gib, 18 * gib}, row{page, 0}, row{9 * gib, 36 * gib}}) {
        CAPTURE(each.asked_bytes);
        std::uint64_t const before = simulated_cuda::calls("cuMemAddressReserve");
        void* const chunk = upstream.acquire(each.asked_bytes);
        REQUIRE(chunk != nullptr);
        // One finds out that they are not plenty.
        CHECK(simulated_cuda::calls("cuMemAddressReserve") - before == (each.reserved_bytes != 0 ? 2 : 0));
        if (each.reserved_bytes != 0)
            CHECK(upstream.addresses_behind(behind(chunk, each.asked_bytes)) == each.reserved_bytes - each.asked_bytes);
        chunks.emplace_back(chunk, each.asked_bytes);
    }
    CHECK(upstream.addresses_behind(behind(chunks[4].first, 9 * gib)) == 0);
    CHECK(upstream.addresses_behind(chunks.front().first) == 0); // no chunk ends there
    for (auto const& [chunk, bytes] : chunks)
        CHECK(upstream.release(chunk, bytes));
}

TEST_CASE("virtual_memory: where the process has few addresses left, it takes what is soon needed, and leaves the rest") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_addresses(1024 * MiB + 40 * page), support::report_all);
    virtual_memory first, second, third;
    void* const large = first.acquire(page);
    void* const small = second.acquire(4 * page);
    REQUIRE((large && small));
    CHECK(second.addresses_behind(behind(small, 4 * page)) == 12 * page);
    void* const other = third.acquire(8 * page); // of the 24 pages that are left
    REQUIRE(other);
    CHECK(third.addresses_behind(behind(other, 8 * page)) == 0);
    CHECK(second.acquire(12 * page) != nullptr); // what it has reserved is its own
    CHECK(second.acquire(16 * page) != nullptr); // the last ones, where no less is enough
    CHECK(third.acquire(page) == nullptr);
    CHECK(third.out_of_addresses());
    CHECK_FALSE(second.out_of_addresses());
    CHECK(third.release(other, 8 * page));
    CHECK(third.acquire(8 * page) == other);
    CHECK(third.release(other, 8 * page));
    CHECK(first.release(large, page));
    CHECK(second.release(small, 4 * page));
    CHECK(second.release(behind(small, 4 * page), 12 * page));
    CHECK(second.release(behind(other, 8 * page), 16 * page));
}

TEST_CASE("virtual_memory: a device without room is no lack of addresses") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(8 * page), support::report_all);
    virtual_memory upstream;
    CHECK(upstream.most_bytes() == 8 * page);
    CHECK(upstream.acquire(9 * page) == nullptr);
    CHECK(upstream.acquire(9 * page, page) == nullptr);
    CHECK_FALSE(upstream.out_of_addresses());
}

TEST_CASE("virtual_memory: what the device has left is asked for several chunks, and not for one") {
    simulated_cuda::world const world;
    virtual_memory upstream;
    void* const first = upstream.acquire(page); // reserves addresses
    auto const before = simulated_cuda::calls("cudaMemGetInfo");
    void* const second = upstream.acquire(page);
    CHECK(upstream.extend(behind(second, page), page, page));
    CHECK(simulated_cuda::calls("cudaMemGetInfo") == before); // it costs more than a chunk that the device has not
    void* const pieces = upstream.acquire(2 * page, page);
    CHECK(simulated_cuda::calls("cudaMemGetInfo") == before + 1);
    for (void* each :
         {first, second, static_cast<void*>(behind(second, page)), pieces, static_cast<void*>(behind(pieces, page))})
        CHECK(upstream.release(each, page));
}

TEST_CASE_TEMPLATE("virtual_memory: chunks can be exported as what was named, also when they are back after they were withdrawn",
                   Upstream, virtual_memory, weir::upstream::virtual_memory<weir::upstream::exported_memory<1>>) { // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    support::every_schedule([] {
        Upstream upstream;
        void* const chunk = upstream.acquire(page);
        REQUIRE(chunk != nullptr);
        auto const exportable_as = [&] {
            decltype(cuMemRetainAllocationHandle)* retain = nullptr;
            decltype(cuMemRelease)* release = nullptr;
            decltype(cuMemGetAllocationPropertiesFromHandle)* properties_of = nullptr;
            weir::runtime::detail::driver_functions::find("cuMemRetainAllocationHandle", retain);
            weir::runtime::detail::driver_functions::find("cuMemRelease", release);
            weir::runtime::detail::driver_functions::find("cuMemGetAllocationPropertiesFromHandle", properties_of);
            CUmemGenericAllocationHandle memory = 0;
            CUmemAllocationProp told{};
            REQUIRE(retain(&memory, chunk) == CUDA_SUCCESS);
            CHECK(properties_of(&told, memory) == CUDA_SUCCESS);
            CHECK(release(memory) == CUDA_SUCCESS);
            return static_cast<int>(told.requestedHandleTypes);
        };
        int const named = std::is_same_v<Upstream, virtual_memory> ? 0 : 1;
        CHECK(exportable_as() == named);
        CHECK(upstream.withdraw(chunk, page));
        CHECK(upstream.restore(chunk, page));
        CHECK(exportable_as() == named);
        CHECK(upstream.release(chunk, page));
    });
}

TEST_CASE("virtual_memory: where a device cannot map memory, it can be neither opened to others nor exported, and says so") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2).without_virtual_memory(), support::report_all);
    virtual_memory upstream;
    upstream.enable_access_from(0); // its own device
    CHECK_FALSE(upstream.try_enable_access_from(1));
    CHECK(upstream.try_enable_access_from(0));
    void* const chunk = upstream.acquire(page);
    CHECK(upstream.release(chunk, page));
    upstream.enable_access_from(1);
    CHECK(support::sentence_of<weir::usage_error>([&] { static_cast<void>(upstream.acquire(page)); }) ==
          "weir: this device cannot map memory, so chunks cannot be opened to other devices; leave 'enable_access_from' out, or "
          "use upstream::device and cudaDeviceEnablePeerAccess");
    weir::upstream::virtual_memory<weir::upstream::exported_memory<1>> exported; // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    CHECK(support::sentence_of<weir::usage_error>([&] { static_cast<void>(exported.acquire(2 * page, page)); }) ==
          "weir: this device cannot map memory, so its chunks cannot be exported by handle; use virtual_memory<> or "
          "upstream::device, and cudaIpcGetMemHandle");
    CHECK(simulated_cuda::calls("cudaMalloc") == 1);
}

TEST_CASE("virtual_memory: a device that cannot reach the memory is refused at once, and chunks are as before") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2).without_peers(), support::report_all);
    virtual_memory upstream;
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { upstream.enable_access_from(1); }),
               "weir: device 1 cannot use memory of device 0");
    CHECK_FALSE(upstream.try_enable_access_from(1));
    CHECK_THROWS_AS(upstream.try_enable_access_from(2), weir::usage_error);
    CHECK_FALSE(upstream.has_peers());
    void* const chunk = upstream.acquire(page);
    CHECK(chunk != nullptr);
    CHECK(upstream.release(chunk, page));
}

TEST_CASE("virtual_memory: a second reservation where the first is full, and chunks of both do not join") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(64 * page));
    virtual_memory upstream; // reserves eight times the memory, 512 pages
    void* const first = upstream.acquire(page);
    std::vector<void*> holes;
    // Every second page goes back: no gap is longer than a page, but for the last.
    for (int i = 0; i < 255; ++i) {
        void* const pair = upstream.acquire(2 * page, page);
        REQUIRE(pair != nullptr);
        CHECK(upstream.release(pair, page));
        holes.push_back(behind(pair, page));
        if (holes.size() > 40) {
            CHECK(upstream.release(holes.front(), page));
            holes.erase(holes.begin());
        }
    }
    void* const large = upstream.acquire(20 * page);
    CHECK(large != nullptr);
    CHECK(upstream.release(large, 20 * page));
    for (void* each : holes)
        CHECK(upstream.release(each, page));
    CHECK(upstream.release(first, page));
}

TEST_CASE("virtual_memory: a chunk stays where the work that may use it cannot be waited for") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    virtual_memory upstream;
    upstream.wait_before_unmapping();
    void* const chunk = upstream.acquire(page);
    simulated_cuda::fail_call("cudaFree", 1, cudaErrorUnknown);
    CHECK_FALSE(upstream.release(chunk, page));
    CHECK(simulated_cuda::failed_calls() == 1);
    CHECK(upstream.release(chunk, page));
}

TEST_CASE("virtual_memory: what CUDA does not undo needs no host memory, and is undone later") {
    if (!support::host_memory_can_fail)
        return;
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    virtual_memory upstream;
    void* const first = upstream.acquire(page);
    simulated_cuda::fail_call("cuMemSetAccess", 1, cudaErrorUnknown);
    simulated_cuda::fail_call("cuMemUnmap", 1, cudaErrorUnknown);
    simulated_cuda::at_switch_points([] { // from the first failure on the host has none
        if (simulated_cuda::failed_calls() != 0)
            support::allocations_left = 0;
    });
    bool threw = false;
    try {
        static_cast<void>(upstream.acquire(page));
    } catch (std::exception const&) {
        threw = true;
    }
    simulated_cuda::at_switch_points(nullptr);
    support::allocations_left = -1;
    CHECK(threw);
    CHECK(simulated_cuda::failed_calls() == 2);
    CHECK(upstream.extend(behind(first, page), page, page)); // there was its place
    CHECK(upstream.release(behind(first, page), page));
    CHECK(upstream.release(first, page));
}

TEST_CASE("virtual_memory: grows up to the end of a reservation, and not into the next") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(8 * page), support::report_all);
    virtual_memory upstream; // reserves eight times the memory, 64 pages
    void* const first = upstream.acquire(page);
    void* at[2] = {first, behind(first, page)};
    REQUIRE(upstream.extend(at[1], page, page));
    for (std::size_t to = 2; to < 63; ++to) { // the two leap over each other, up to the last page but one
        REQUIRE(upstream.move(at[to % 2], page, behind(first, to * page)));
        at[to % 2] = behind(first, to * page);
    }
    CHECK(upstream.extend(behind(first, 63 * page), page, page));
    CHECK_FALSE(upstream.extend(behind(first, 64 * page), page, page)); // no addresses
    CHECK(upstream.acquire(63 * page) == nullptr); // a second reservation, right behind the first, and no memory for it
    CHECK_FALSE(upstream.extend(behind(first, 64 * page), page, page));
    CHECK_FALSE(upstream.move(at[0], page, behind(first, 64 * page))); // nor does a chunk move there
    for (void* each : {at[0], at[1], static_cast<void*>(behind(first, 63 * page))})
        CHECK(upstream.release(each, page));
}
#endif
