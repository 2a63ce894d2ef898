// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstddef>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <optional>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/peers.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/upstream/virtual_memory/memory_map.hpp>

using weir::check_cuda;
using weir::upstream::detail::memory_map;
using weir::MiB;
using weir::base::range;

// The types that the header declares for itself are the driver's.
namespace {
using properties = weir::upstream::detail::memory_properties;
using access_type = weir::upstream::detail::memory_access;
static_assert(sizeof(properties) == sizeof(CUmemAllocationProp) && alignof(properties) == alignof(CUmemAllocationProp));
static_assert(offsetof(properties, type) == offsetof(CUmemAllocationProp, type));
static_assert(offsetof(properties, handle_types) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(properties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(properties, windows) == offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(properties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(properties::flags) == sizeof(CUmemAllocationProp::allocFlags));
static_assert(sizeof(access_type) == sizeof(CUmemAccessDesc) && offsetof(access_type, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(weir::upstream::detail::driver_location) == sizeof(CUmemLocation) &&
              offsetof(weir::upstream::detail::driver_location, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(CUresult) == sizeof(int) && sizeof(CUdeviceptr) == sizeof(unsigned long long) &&
              sizeof(CUmemGenericAllocationHandle) == sizeof(unsigned long long));

// The function type behind one of ours, with the driver's types in the places of ours.
template <class Function>
constexpr std::size_t parameters = 0;
template <class Result, class... Parameters>
constexpr std::size_t parameters<Result(Parameters...)> = sizeof...(Parameters);
template <class Result, class... Parameters>
constexpr std::size_t parameters<Result (*)(Parameters...)> = sizeof...(Parameters);
using calls = weir::upstream::detail::memory_calls;
static_assert(parameters<decltype(calls::granularity)> == parameters<decltype(cuMemGetAllocationGranularity)>);
static_assert(parameters<decltype(calls::reserve)> == parameters<decltype(cuMemAddressReserve)>);
static_assert(parameters<decltype(calls::unreserve)> == parameters<decltype(cuMemAddressFree)>);
static_assert(parameters<decltype(calls::create)> == parameters<decltype(cuMemCreate)>);
static_assert(parameters<decltype(calls::release)> == parameters<decltype(cuMemRelease)>);
static_assert(parameters<decltype(calls::map)> == parameters<decltype(cuMemMap)>);
static_assert(parameters<decltype(calls::unmap)> == parameters<decltype(cuMemUnmap)>);
static_assert(parameters<decltype(calls::set_access)> == parameters<decltype(cuMemSetAccess)>);
static_assert(parameters<decltype(calls::retain)> == parameters<decltype(cuMemRetainAllocationHandle)>);

constexpr std::size_t page = memory_map::page_bytes;

// Maps where nothing goes wrong on the way back.
bool mapped(memory_map& map, range at) {
    bool stuck = true;
    bool const done = map.map(at, stuck);
    CHECK_FALSE(stuck);
    return done;
}

void* pointer(range at) {
    return reinterpret_cast<void*>(at.offset);
}
} // namespace

TEST_CASE("memory_map: the numbers are the driver's") {
    CHECK(properties().type == CU_MEM_ALLOCATION_TYPE_PINNED);
    CHECK(properties().location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    CHECK(access_type().location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    CHECK(access_type().flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY) == static_cast<int>(cudaErrorMemoryAllocation));
}

TEST_CASE("memory_map: puts memory behind addresses, which work can use, and takes it away") {
    support::every_schedule([] {
        memory_map map(0, {});
        REQUIRE(map.supported());
        CHECK(map.device_number() == 0);
        range const all = map.reserve(16 * page);
        REQUIRE(all.bytes == 16 * page);
        CHECK(all.offset % page == 0);
        range const first{all.offset, page};
        range const second{all.offset + page, 3 * page};
        REQUIRE(mapped(map, first));
        REQUIRE(mapped(map, second));
        support::scoped_stream const s;
        check_cuda(cudaMemsetAsync(pointer(first), 7, 4 * page, s), "cudaMemsetAsync");
        std::vector<unsigned char> read(4 * page);
        check_cuda(cudaMemcpyAsync(read.data(), pointer(first), read.size(), cudaMemcpyDefault, s), "cudaMemcpyAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(read.front() == 7);
        CHECK(read[page] == 7);
        CHECK(read.back() == 7);
        CHECK(map.unmap(second));
        CHECK(mapped(map, second)); // elsewhere or there again
        CHECK(map.unmap(first));
        CHECK(map.unmap(second));
        map.unreserve(all);
    });
}

TEST_CASE("memory_map: moves memory behind other addresses, contents and all, and nothing stays behind the old ones") {
    support::every_schedule([] {
        memory_map map(0, {});
        range const all = map.reserve(8 * page);
        range const from{all.offset, 3 * page};
        range const to{all.offset + 4 * page, 3 * page};
        REQUIRE(mapped(map, from));
        support::scoped_stream const s;
        check_cuda(cudaMemsetAsync(pointer(from), 7, from.bytes, s), "cudaMemsetAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        bool stuck = true;
        REQUIRE(map.move(from, to, stuck));
        CHECK_FALSE(stuck);
        std::vector<unsigned char> read(to.bytes);
        check_cuda(cudaMemcpyAsync(read.data(), pointer(to), read.size(), cudaMemcpyDefault, s), "cudaMemcpyAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(read.front() == 7);
        CHECK(read.back() == 7);
        CHECK_FALSE(map.move(from, range{all.offset + 7 * page, page}, stuck)); // nothing is there any more
        CHECK_FALSE(stuck);
        CHECK(mapped(map, from));
        CHECK_FALSE(map.move(from, to, stuck)); // memory is there
        CHECK_FALSE(stuck);
        CHECK(map.unmap(from));
        CHECK(map.unmap(to));
        map.unreserve(all);
    });
}

TEST_CASE("memory_map: a device that has no more says so, and no error is left behind" * doctest::test_suite("fills the card")) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(8 * page));
    std::size_t const huge = 64 * page; // under the thread sanitizer there are few addresses
#else
    std::size_t const huge = std::size_t{1} << 39; // half a TiB
#endif
    memory_map map(0, {});
    range const all = map.reserve(huge);
    REQUIRE(all);
    CHECK_FALSE(mapped(map, all));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(mapped(map, range{all.offset, 8 * page}));
    CHECK_FALSE(mapped(map, range{all.offset + 8 * page, page}));
    CHECK(map.unmap(range{all.offset, 8 * page}));
#endif
    map.unreserve(all);
}

TEST_CASE("memory_map: neither fails during a capture nor breaks one, from any thread, without a context of its own") {
    support::every_schedule([] {
        support::scoped_stream const s;
        memory_map map(0, {});
        range const all = map.reserve(3 * page);
        support::capture graph(s);
        CHECK(mapped(map, range{all.offset, page}));
        std::thread([&] {
            bool stuck = true;
            CHECK(mapped(map, range{all.offset + page, page}));
            CHECK(map.move(range{all.offset + page, page}, range{all.offset + 2 * page, page}, stuck));
            CHECK(map.unmap(range{all.offset + 2 * page, page}));
        }).join();
        CHECK(map.unmap(range{all.offset, page}));
        CHECK(graph.unbroken());
        map.unreserve(all);
    });
}

TEST_CASE("memory_map: every call may fail, and then nothing is mapped, made or reserved") {
    struct state {
        memory_map map{0, {}};
        range all = map.reserve(4 * page);
        range more{};
        bool mapped = false;
        bool stuck = false;
        bool unmapped = false;
        ~state() { map.unreserve(all); }
    };
    auto const prepare = [] { return std::make_unique<state>(); };
    auto runs = support::fault_sweep(
        prepare, [](state& x) { x.mapped = x.map.map(x.all, x.stuck); },
        [](state& x, support::struck const& fault) {
            // What fails to let go of the memory's handle leaves it, and the map stands.
            CHECK((x.mapped || fault.threw || fault.hit("cuMemCreate") || fault.hit("cuMemMap")));
            CHECK((!x.stuck || fault.hit("cuMemUnmap")));
            if (x.mapped || x.stuck)
                CHECK(x.map.unmap(x.all));
        }, support::faults::pairs_too);
    runs += support::fault_sweep(prepare, [](state& x) { x.more = x.map.reserve(2 * page); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK(static_cast<bool>(x.more) != fault.threw);
                                     if (x.more)
                                         x.map.unreserve(x.more);
                                 }, support::faults::pairs_too);
    runs += support::fault_sweep(
        [] {
            auto made = std::make_unique<state>();
            made->mapped = mapped(made->map, made->all);
            return made;
        },
        [](state& x) { x.unmapped = x.map.unmap(x.all); },
        [](state& x, support::struck const& fault) {
            CHECK(x.unmapped == fault.calls.empty());
            if (!x.unmapped)
                CHECK(x.map.unmap(x.all));
        }, support::faults::pairs_too);
    runs += support::fault_sweep(
        [] {
            auto made = std::make_unique<state>();
            made->mapped = mapped(made->map, range{made->all.offset, 2 * page});
            return made;
        },
        [](state& x) {
            x.unmapped = x.map.move(range{x.all.offset, 2 * page}, range{x.all.offset + 2 * page, 2 * page}, x.stuck);
        },
        [](state& x, support::struck const& fault) {
            range const from{x.all.offset, 2 * page};
            range const to{x.all.offset + 2 * page, 2 * page};
            CHECK((x.unmapped || !fault.calls.empty()));
            CHECK((!x.stuck || fault.hit("cuMemUnmap")));
            CHECK_FALSE((x.unmapped && x.stuck));
            if (x.unmapped || x.stuck)
                CHECK(x.map.unmap(to));
            if (!x.unmapped) {
                check_cuda(cudaMemset(pointer(from), 1, from.bytes), "cudaMemset");
                check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                CHECK(x.map.unmap(from));
            }
        }, support::faults::pairs_too);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 20);
#endif
    static_cast<void>(runs);
}

TEST_CASE("memory_map: where the host has no memory to note a mapping, none is made and none moves") {
    if (!support::host_memory_can_fail)
        return;
    memory_map map(0, {});
    range const all = map.reserve(12 * page);
    auto const place = [&](std::size_t i) { return range{all.offset + i * page, page}; };
    for (std::size_t i = 0; i < 10; ++i) // as many as an address_map takes before it grows for the first time
        REQUIRE(mapped(map, place(i)));
    bool stuck = true;
    bool done = true;
    bool threw = false;
    {
        support::failing_new const fails(0);
        done = map.move(place(0), place(10), stuck);
        try {
            static_cast<void>(map.map(place(11), stuck));
        } catch (std::bad_alloc const&) {
            threw = true;
        }
    }
    CHECK_FALSE(done);
    CHECK_FALSE(stuck);
    CHECK(threw);
    CHECK(map.move(place(0), place(10), stuck));
    CHECK(mapped(map, place(11)));
    for (std::size_t i = 1; i < 12; ++i)
        CHECK(map.unmap(place(i)));
    map.unreserve(all);
}

TEST_CASE("memory_map: another device that is allowed to can use the memory, wherever it was mapped or moved") {
    support::two_devices const both{};
    if (!both)
        return;
    for (int const own : {0, 1}) {
        CAPTURE(own);
        memory_map map(own, {});
        map.enable_access_from(1 - own);
        CHECK(map.has_peers());
        range const all = map.reserve(4 * page);
        range const first{all.offset, page};
        range const second{all.offset + page, page};
        range const third{all.offset + 2 * page, 2 * page};
        bool stuck = true;
        auto const used_by_both = [&](range at) {
            for (int const device : {own, 1 - own})
                support::fill_from(device, pointer(at), at.bytes);
        };
        REQUIRE(mapped(map, first));
        used_by_both(first);
        REQUIRE(map.move(first, second, stuck));
        used_by_both(second);
        REQUIRE(mapped(map, first)); // again
        used_by_both(first);
        REQUIRE(mapped(map, third));
        used_by_both(all);
        for (range const& each : {first, second, third})
            CHECK(map.unmap(each));
        map.unreserve(all);
    }
}

TEST_CASE("memory_map: a device that is let in late can use what is mapped, wherever it is by then") {
    support::two_devices const both{};
    if (!both)
        return;
    memory_map map(0, {});
    range const all = map.reserve(8 * page);
    range const stays{all.offset, 2 * page};
    range const moves{all.offset + 2 * page, page};
    range const there{all.offset + 4 * page, page};
    range const goes{all.offset + 6 * page, page};
    bool stuck = true;
    for (range const& each : {stays, moves, goes})
        REQUIRE(mapped(map, each));
    REQUIRE(map.move(moves, there, stuck));
    CHECK(map.unmap(goes)); // what is not mapped any more does not get in the way
    map.enable_access_from(1);
    CHECK(map.has_peers());
    map.enable_access_from(1); // once more does no harm
    for (range const& each : {stays, there})
        support::fill_from(1, pointer(each), each.bytes);
    REQUIRE(mapped(map, goes));
    support::fill_from(1, pointer(goes), page);
    for (range const& each : {stays, there, goes})
        CHECK(map.unmap(each));
    map.unreserve(all);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("memory_map: where CUDA refuses to let a device in, all is as it was, and a later call lets it in everywhere") {
    struct state {
        memory_map map{0, {}};
        range all = map.reserve(3 * page);
        state() {
            for (std::size_t i = 0; i < 3; ++i)
                REQUIRE(mapped(map, range{all.offset + i * page, page}));
        }
        bool closed_to(int device, std::size_t i) const {
            decltype(cuMemGetAccess)* access = nullptr;
            weir::runtime::detail::driver_functions::find("cuMemGetAccess", access);
            CUmemLocation where{};
            where.type = CU_MEM_LOCATION_TYPE_DEVICE;
            where.id = device;
            unsigned long long flags = 7;
            CHECK(access(&flags, &where, all.offset + i * page) == CUDA_SUCCESS);
            return flags == 0;
        }
        ~state() {
            for (std::size_t i = 0; i < 3; ++i)
                CHECK(map.unmap(range{all.offset + i * page, page}));
            map.unreserve(all);
        }
    };
    for (int each = 0; each < 6; ++each) {
        bool const wish = each % 2 != 0;
        int const failing = each / 2 + 1;
        CAPTURE(wish);
        CAPTURE(failing);
        simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
        state x;
        simulated_cuda::fail_call("cuMemSetAccess", static_cast<unsigned>(failing), cudaErrorUnknown);
        if (wish)
            CHECK_THROWS_AS(x.map.try_enable_access_from(1), weir::cuda_error); // a failure is no refusal
        else
            CHECK_THROWS_AS(x.map.enable_access_from(1), weir::cuda_error);
        CHECK_FALSE(x.map.has_peers());
        CHECK_FALSE(x.map.is_open_to(1));
        for (std::size_t i = 0; i < 3; ++i)
            CHECK(x.closed_to(1, i));
        x.map.enable_access_from(1);
        CHECK(x.map.is_open_to(1));
        support::fill_from(1, pointer(x.all), x.all.bytes);
    }
}
#endif

TEST_CASE("memory_map: a device may use its own memory anyhow, and to allow it lets in no other") {
    memory_map map(0, {});
    map.enable_access_from(0);
    CHECK_FALSE(map.has_peers());
    range const all = map.reserve(page);
    REQUIRE(mapped(map, all));
    support::fill_from(0, pointer(all), page);
    CHECK(map.unmap(all));
    map.unreserve(all);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("memory_map: a wish is given up where CUDA refuses it, for what is there and for what comes, and a demand is not") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(3), support::report_all);
    memory_map map(0, {});
    range const all = map.reserve(2 * page);
    range first{all.offset, page}, second{all.offset + page, page};
    REQUIRE(mapped(map, first));
    simulated_cuda::fail_call("cuMemSetAccess", 1, cudaErrorPeerAccessUnsupported);
    CHECK_FALSE(map.try_enable_access_from(1));
    CHECK_FALSE(map.is_open_to(1));
    CHECK(map.try_enable_access_from(1));
    CHECK(map.try_enable_access_from(1));
    CHECK(map.is_open_to(1));
    simulated_cuda::fail_call("cuMemSetAccess", 1, cudaErrorTooManyPeers);
    REQUIRE(mapped(map, second)); // closed, but there
    CHECK_FALSE(map.is_open_to(1));
    CHECK_FALSE(map.has_peers());
    CHECK(map.unmap(second));
    CHECK(map.try_enable_access_from(1));
    simulated_cuda::fail_call("cuMemSetAccess", 1, cudaErrorTooManyPeers);
    bool stuck = true;
    CHECK(map.move(first, second, stuck)); // to its new place, too
    CHECK_FALSE(map.is_open_to(1));
    std::swap(first, second);
    CHECK(map.try_enable_access_from(2));
    map.enable_access_from(1);
    map.enable_access_from(2); // is no mere wish any more
    simulated_cuda::fail_call("cuMemSetAccess", 1, cudaErrorTooManyPeers);
    CHECK_THROWS_AS(static_cast<void>(map.map(second, stuck)), weir::cuda_error);
    CHECK(map.is_open_to(2));
    CHECK(map.unmap(first));
    map.unreserve(all);
}

TEST_CASE("memory_map: only a device that is allowed to can use the memory, and that ends with the mapping") {
    using simulated_cuda::finding;
    simulated_cuda::world world(simulated_cuda::config{}.with_devices(3));
    memory_map map(0, {});
    map.enable_access_from(2);
    memory_map own(0, {});
    range const all = map.reserve(2 * page);
    REQUIRE(mapped(map, range{all.offset, page}));
    REQUIRE(mapped(own, range{all.offset + page, page}));
    support::fill_from(2, pointer(all), page);
    CHECK(simulated_cuda::reports().empty());
    support::fill_from(1, pointer(all), page);
    CHECK(simulated_cuda::reports(finding::wrong_device).size() == 1);
    support::fill_from(2, pointer(all), 2 * page); // the second half is not open
    CHECK(simulated_cuda::reports(finding::wrong_device).size() == 2);
    CHECK(map.unmap(range{all.offset, page}));
    REQUIRE(mapped(own, range{all.offset, page}));
    support::fill_from(2, pointer(all), page);
    CHECK(simulated_cuda::reports(finding::wrong_device).size() == 3);
    CHECK(map.unmap(range{all.offset, page}));
    CHECK(map.unmap(range{all.offset + page, page}));
    map.unreserve(all);
    simulated_cuda::clear_reports();
    for (simulated_cuda::report const& each : world.finish())
        FAIL_CHECK(each.sentence);
}
#endif

TEST_CASE("memory_map: a device that there is not cannot be let in, and then nothing is mapped") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    memory_map map(0, {});
    map.enable_access_from(devices);
    range const all = map.reserve(page);
    bool stuck = true;
    CHECK_THROWS_AS(static_cast<void>(map.map(all, stuck)), weir::cuda_error);
    CHECK_FALSE(stuck);
    memory_map own(0, {});
    CHECK(mapped(own, all)); // nothing is there
    CHECK(map.unmap(all));
    map.unreserve(all);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("memory_map: a device that cannot map memory says so") {
    simulated_cuda::world const world(simulated_cuda::config{}.without_virtual_memory());
    CHECK_FALSE(memory_map(0, {}).supported());
}

TEST_CASE("memory_map: a question that fails once is asked again, and for ever it is no answer that the device cannot") {
    struct state {
        std::optional<memory_map> map;
    };
    auto const runs =
        support::fault_sweep([] { return std::make_unique<state>(); },
                             [](state& x) { x.map.emplace(0, weir::upstream::detail::memory_wish{}); },
                             [](state& x, support::struck const& fault) {
                                 CHECK(fault.threw == (fault.for_ever && !fault.calls.empty()));
                                 CHECK((fault.threw || x.map->supported()));
                             });
    CHECK(runs >= 20);
}
#endif
