// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every pool must do is in tests/contract/pool.cpp. Here is how the pool binds its parts: growth, limit, trim,
// leaks, and what it says when something is wrong. A recorded upstream shows what is asked of the driver.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <new>
#include <random>
#include <reuse/stage.hpp>
#include <set>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/growth_numbers.hpp>
#include <support/noted.hpp>
#include <support/peers.hpp>
#include <support/recorded_upstream.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/fixed.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/placement/slab.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/from_pool.hpp>
#include <weir/upstream/host.hpp>
#include <weir/upstream/managed.hpp>
#include <weir/upstream/pinned.hpp>
#include <weir/upstream/span.hpp>
#include <weir/upstream/virtual_memory.hpp>

using support::recorded_upstream;
using support::sentence_of;
using support::upstream_ledger;
using weir::check_cuda;
using weir::KiB;
using weir::leak_action;
using weir::memory_space;
using weir::MiB;
using weir::on_host;
using weir::pool_options;
namespace growth = weir::growth;
namespace placement = weir::placement;
namespace reuse = weir::reuse;
namespace upstream = weir::upstream;

namespace {

using mixed = placement::by_size<64 * KiB, placement::bins<>, placement::best_fit<>>;

template <class Placement = mixed, class Growth = growth::exact, class Reuse = reuse::immediate>
using recorded_pool = weir::pool<recorded_upstream<>, Placement, Reuse, Growth>;
using device_pool = weir::pool<upstream::device, mixed, reuse::stream_ordered<>>;
using event_pool = weir::pool<upstream::device, mixed, reuse::after_event>;

template <class Call>
std::string refusal_of(Call&& call) {
    return sentence_of<weir::out_of_memory>(std::forward<Call>(call));
}
template <class Call>
std::string misuse_of(Call&& call) {
    return sentence_of<weir::usage_error>(std::forward<Call>(call));
}

// A placement that cannot take a chunk the second time.
struct full_placement : placement::best_fit<> {
    void add(weir::base::range chunk) {
        if (++adds == 2)
            throw std::bad_alloc();
        placement::best_fit<>::add(chunk);
    }
    int adds = 0;
};

template <class Pool>
struct upstream_type;
template <class Upstream, class Placement, class Reuse, class Growth>
struct upstream_type<weir::pool<Upstream, Placement, Reuse, Growth>> {
    using type = Upstream;
};
template <class Pool>
using upstream_of = typename upstream_type<Pool>::type;

template <class P, class = void>
struct can_mark : std::false_type {};
template <class P>
struct can_mark<P, std::void_t<decltype(std::declval<P&>().mark()), decltype(std::declval<P&>().clear())>> : std::true_type {};
template <class P, class = void>
struct can_used_on : std::false_type {};
template <class P>
struct can_used_on<P, std::void_t<decltype(std::declval<P&>().used_on(nullptr, cudaStream_t{}))>> : std::true_type {};

} // namespace

// What a pool says of itself, before it exists.
static_assert(!std::is_copy_constructible_v<device_pool> && !std::is_move_constructible_v<device_pool>);
static_assert(!std::is_copy_assignable_v<device_pool> && !std::is_move_assignable_v<device_pool>);
static_assert(std::is_default_constructible_v<device_pool> && std::is_constructible_v<device_pool, pool_options>);
static_assert(!std::is_convertible_v<pool_options, device_pool> && !std::is_convertible_v<upstream::device, device_pool>);
static_assert(!std::is_default_constructible_v<weir::pool<upstream::span<memory_space::host>, mixed, reuse::immediate>>);
static_assert(device_pool::space == memory_space::device && recorded_pool<>::space == memory_space::host);
static_assert(device_pool::thread_safe && event_pool::thread_safe && !recorded_pool<>::thread_safe);
static_assert(device_pool::stream_ordered && event_pool::stream_ordered && !recorded_pool<>::stream_ordered);
static_assert(device_pool::default_alignment == 256 && recorded_pool<>::default_alignment == alignof(std::max_align_t));
static_assert(noexcept(std::declval<device_pool&>().deallocate(on_host, nullptr, 1)));
static_assert(noexcept(std::declval<device_pool const&>().reserved_bytes()) &&
              noexcept(std::declval<device_pool const&>().owns(nullptr)));
// Members that only some parts make possible are absent elsewhere.
static_assert(can_mark<recorded_pool<placement::arena>>::value && !can_mark<recorded_pool<>>::value);
static_assert(can_used_on<device_pool>::value && can_used_on<event_pool>::value && !can_used_on<recorded_pool<>>::value);

// ---- state ------------------------------------------------------------------------------------------------------------

TEST_CASE("pool: holds nothing until it is asked, and knows what it holds") {
    upstream_ledger ledger;
    recorded_pool<placement::best_fit<>> pool(recorded_upstream<>(ledger), pool_options{}.name("frames").limit(2 * MiB));
    CHECK(pool.name() == "frames");
    CHECK(pool.limit_bytes() == 2 * MiB);
    CHECK(pool.device() == weir::any_device);
    CHECK(ledger.asked.empty());
    weir::memory_report state = pool.state();
    CHECK(state.name == "frames");
    CHECK(state.in_use_bytes == 0);
    CHECK(state.reserved_bytes == 0);
    CHECK(state.limit_bytes == 2 * MiB);
    CHECK(state.largest_free_bytes == 0);
    CHECK(state.live_blocks == 0);
    CHECK(state.chunks == 0);

    void* const a = pool.allocate_sync(1000);
    void* const b = pool.allocate_sync(5000);
    state = pool.state();
    CHECK(state.in_use_bytes == 1024 + 5120);
    CHECK(pool.in_use_bytes() == state.in_use_bytes);
    CHECK(state.live_blocks == 2);
    CHECK(state.reserved_bytes == 4096 + 8192);
    CHECK(pool.reserved_bytes() == state.reserved_bytes);
    CHECK(state.chunks == 2);
    CHECK(state.largest_free_bytes == 3072);
    CHECK(pool.report() == "pool 'frames' (host): 6 KiB in use in 2 blocks, 12 KiB reserved in 2 chunks, largest free 3 "
                           "KiB, limit 2 MiB");

    pool.deallocate_sync(a, 1000);
    pool.deallocate_sync(b, 5000);
    state = pool.state();
    CHECK(state.in_use_bytes == 0);
    CHECK(state.live_blocks == 0);
    CHECK(state.reserved_bytes == 4096 + 8192);
    CHECK(state.largest_free_bytes == 8192);
}

TEST_CASE("pool: owns the bytes of its chunks and nothing else") {
    upstream_ledger ledger;
    recorded_pool<> one{recorded_upstream<>(ledger)};
    recorded_pool<> other{recorded_upstream<>(ledger)};
    auto* const p = static_cast<char*>(one.allocate_sync(100 * KiB));
    auto* const q = static_cast<char*>(other.allocate_sync(100 * KiB));
    CHECK(one.owns(p));
    CHECK(one.owns(p + 100 * KiB - 1));
    CHECK_FALSE(one.owns(q));
    CHECK(other.owns(q));
    CHECK_FALSE(other.owns(p));
    CHECK_FALSE(one.owns(nullptr));
    int local = 0;
    CHECK_FALSE(one.owns(&local));
    one.deallocate_sync(p, 100 * KiB);
    CHECK(one.owns(p)); // the chunk is still there
    one.trim();
    CHECK_FALSE(one.owns(p));
    other.deallocate_sync(q, 100 * KiB);
}

TEST_CASE("pool: equals itself and no other") {
    support::every_schedule([] {
        device_pool a, b;
        CHECK(a == a);
        CHECK(a != b);
        CHECK_FALSE(b == a);
    });
}

TEST_CASE("pool: is on the device that was current, or its upstream's") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2));
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    device_pool current;
    device_pool last(upstream::device(devices - 1));
    CHECK(current.device() == 0);
    CHECK(last.device() == devices - 1);
    void* const p = last.allocate_sync(1 * MiB);
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, p), "cudaPointerGetAttributes");
    CHECK(attributes.device == devices - 1);
    last.deallocate_sync(p, 1 * MiB);
    CHECK(weir::runtime::current_device() == 0);
}

// ---- bad input --------------------------------------------------------------------------------------------------------

TEST_CASE("pool: an alignment that is no power of two is refused with a sentence, and nothing changes") {
    upstream_ledger ledger;
    recorded_pool<> pool{recorded_upstream<>(ledger)};
    for (std::size_t wrong : {std::size_t{0}, std::size_t{3}, std::size_t{12}, std::size_t{255}, SIZE_MAX, SIZE_MAX - 1}) {
        std::string const sentence = "weir: an alignment must be a power of two; got " + std::to_string(wrong);
        CHECK(misuse_of([&] { static_cast<void>(pool.allocate_sync(100, wrong)); }) == sentence);
        CHECK(misuse_of([&] { static_cast<void>(pool.try_allocate(on_host, 100, wrong)); }) == sentence);
        CHECK(misuse_of([&] { static_cast<void>(pool.try_allocate(on_host, 0, wrong)); }) == sentence);
    }
    CHECK(ledger.asked.empty());
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("pool: zero bytes are null, and freeing null does nothing") {
    upstream_ledger ledger;
    recorded_pool<> pool{recorded_upstream<>(ledger)};
    CHECK(pool.allocate_sync(0) == nullptr);
    CHECK(pool.try_allocate(on_host, 0) == nullptr);
    CHECK(pool.allocate_sync(0, 1 * MiB) == nullptr);
    pool.deallocate_sync(nullptr, 0);
    pool.deallocate_sync(nullptr, 100);
    CHECK(ledger.asked.empty());
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("pool: sizes that cannot be are refused before the driver is asked") {
    upstream_ledger ledger;
    ledger.room_bytes = 1 * MiB;
    recorded_pool<> pool{recorded_upstream<>(ledger)};
    for (std::size_t bytes : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 255, SIZE_MAX - 511}) {
        CHECK(pool.try_allocate(on_host, bytes) == nullptr);
        CHECK(pool.try_allocate(on_host, bytes, 1 * MiB) == nullptr);
        CHECK_SAYS(refusal_of([&] { static_cast<void>(pool.allocate_sync(bytes, 1 * MiB)); }),
                   "no block of this pool can have that size and alignment; ask for less");
    }
    CHECK(ledger.asked.empty());
    CHECK(pool.try_allocate(on_host, SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1) == nullptr); // could be, but is not
    CHECK(pool.try_allocate(on_host, 100, SIZE_MAX / 2 + 1) == nullptr);
    CHECK(pool.try_allocate(on_host, SIZE_MAX - 1 * MiB) == nullptr);
    CHECK(pool.reserved_bytes() == 0);
    void* const p = pool.allocate_sync(100); // still sound
    pool.deallocate_sync(p, 100);
}

TEST_CASE("pool: a block that the placement has not says so") {
    upstream_ledger ledger;
    recorded_pool<placement::slab<64>> pool{recorded_upstream<>(ledger)};
    CHECK_SAYS(refusal_of([&] { static_cast<void>(pool.allocate_sync(65)); }),
               "pool 'unnamed' cannot hand out 65 bytes: no block of this pool can have that size and alignment; ask for "
               "less, as its blocks have 64 bytes (in use 0 B, reserved 0 B, limit none, largest free 0 B)");
    CHECK_SAYS(refusal_of([&] { static_cast<void>(pool.allocate_sync(64, 128)); }), "can have that size and alignment");
    void* const p = pool.allocate_sync(64, 64);
    pool.deallocate_sync(p, 64, 64);
}

// ---- growth and limit ---------------------------------------------------------------------------------------------------

TEST_CASE("pool: asks the upstream for what its growth says, in whole pages") {
    upstream_ledger ledger;
    std::vector<void*> blocks;
    {
        recorded_pool<placement::best_fit<>, growth::fixed<10000>> pool(recorded_upstream<>(ledger),
                                                                         pool_options{}.on_leak(leak_action::ignore));
        for (int i = 0; i < 5; ++i)
            CHECK(pool.allocate_sync(4096) != nullptr);
        CHECK(pool.allocate_sync(20000) != nullptr);
        CHECK(ledger.asked == std::vector<std::size_t>{12288, 12288, 20480}); // three blocks a chunk
    }
    ledger.asked.clear();
    {
        recorded_pool<placement::best_fit<>, support::geometric_of<8192, 100, 64 * KiB>> pool(
            recorded_upstream<>(ledger), pool_options{}.on_leak(leak_action::ignore));
        for (int i = 0; i < 16; ++i)
            CHECK(pool.allocate_sync(4096) != nullptr);
        CHECK(ledger.asked == std::vector<std::size_t>{8192, 8192, 16384, 32768});
    }
}

TEST_CASE("pool: where the upstream has no room for a step, it is asked for half as many blocks, and at last for one") {
    for (std::size_t const room : {64 * KiB, 20 * KiB, 12 * KiB}) {
        CAPTURE(room);
        upstream_ledger ledger;
        ledger.room_bytes = room;
        recorded_pool<placement::best_fit<>, growth::fixed<256 * KiB>> pool{recorded_upstream<>(ledger)};
        void* const p = pool.allocate_sync(10000);
        std::vector<std::size_t> asked{256 * KiB, 120 * KiB, 60 * KiB}; // 25, 12 and 6 blocks of 10 KiB
        if (room < 60 * KiB)
            asked.push_back(32 * KiB);
        if (room < 32 * KiB)
            asked.push_back(12 * KiB);
        CHECK(ledger.asked == asked);
        pool.deallocate_sync(p, 10000);
    }
}

TEST_CASE("pool: below its limit by less than a step, it gets what is left in one chunk") {
    upstream_ledger ledger;
    recorded_pool<placement::best_fit<>, growth::fixed<1 * MiB>> pool(recorded_upstream<>(ledger),
                                                                       pool_options{}.limit(1 * MiB + 30000));
    std::vector<void*> blocks;
    while (void* const p = pool.try_allocate(on_host, 4096))
        blocks.push_back(p);
    CHECK(ledger.asked == std::vector<std::size_t>{1 * MiB, 28672});
    CHECK(blocks.size() == (1 * MiB + 28672) / 4096);
    for (void* each : blocks)
        pool.deallocate_sync(each, 4096);
}

TEST_CASE("pool: a wholly free chunk goes back, however much of it is no block") {
    upstream_ledger ledger;
    using coarse = recorded_upstream<weir::memory_space::host, 64 * KiB>;
    weir::pool<coarse, placement::slab<40 * KiB>, reuse::stream_ordered<>, growth::exact> pool{coarse(ledger)};
    void* const p = pool.allocate_sync(40 * KiB);
    pool.deallocate_sync(p, 40 * KiB);
    CHECK(pool.trim() == 64 * KiB);
    CHECK(pool.reserved_bytes() == 0);
}

TEST_CASE("pool: the limit is exact, to the last page") {
    for (std::size_t pages : {1u, 2u, 7u, 16u}) {
        upstream_ledger ledger;
        recorded_pool<placement::best_fit<>, growth::fixed<3 * 4096>> pool(
            recorded_upstream<>(ledger), pool_options{}.limit(pages * 4096).name("small"));
        std::vector<void*> blocks;
        for (std::size_t i = 0; i < pages; ++i) {
            blocks.push_back(pool.try_allocate(on_host, 4096));
            REQUIRE(blocks.back() != nullptr);
            CHECK(pool.reserved_bytes() <= pages * 4096);
        }
        CHECK(pool.reserved_bytes() == pages * 4096);
        CHECK(pool.try_allocate(on_host, 1) == nullptr);
        try {
            static_cast<void>(pool.allocate_sync(4097));
            FAIL_CHECK("nothing was thrown");
        } catch (weir::out_of_memory const& error) {
            CHECK(error.asked_bytes() == 4097);
            CHECK(error.limit_bytes() == pages * 4096);
            CHECK(error.in_use_bytes() == pages * 4096);
            CHECK(error.reserved_bytes() == pages * 4096);
            CHECK(error.largest_free_bytes() == 0);
            CHECK(error.pool_name() == "small");
            CHECK(error.reason() ==
                  (pages == 1 ? "it needs a chunk of 8192 bytes (8 KiB), more than the pool's limit of 4096 bytes (4 KiB); ask "
                                "for less or raise the pool's limit"
                              : "no free range is large enough and the pool's limit leaves no room for another chunk "
                                "of 8 KiB; raise the pool's limit or free something"));
            std::string const aligned = pool.refused(10, 8192).reason;
            CHECK(aligned.find(" (a block aligned to 8192)") != std::string::npos);
            std::string const usual = pool.refused(10, decltype(pool)::default_alignment).reason;
            CHECK(usual.find("alignment") == std::string::npos);
        }
        pool.deallocate_sync(blocks.back(), 4096);
        CHECK((blocks.back() = pool.try_allocate(on_host, 4096)) != nullptr);
        for (void* each : blocks)
            pool.deallocate_sync(each, 4096);
    }
}

TEST_CASE("pool: a limit below a page admits nothing, and the upstream is never asked") {
    upstream_ledger ledger;
    for (std::size_t limit : {std::size_t{0}, std::size_t{1}, std::size_t{4095}}) {
        recorded_pool<> pool(recorded_upstream<>(ledger), pool_options{}.limit(limit));
        CHECK(pool.try_allocate(on_host, 1) == nullptr);
        CHECK_SAYS(refusal_of([&] { static_cast<void>(pool.allocate_sync(1)); }), "raise the pool's limit");
    }
    CHECK(ledger.asked.empty());
}

TEST_CASE("pool: an upstream without room says which, and what to do") {
    upstream_ledger ledger;
    ledger.room_bytes = 8192;
    recorded_pool<placement::best_fit<>> pool{recorded_upstream<>(ledger)};
    void* const p = pool.allocate_sync(8192);
    CHECK_SAYS(refusal_of([&] { static_cast<void>(pool.allocate_sync(4096)); }),
               "no free range is large enough and the upstream (host memory) has no room for another chunk of 4 KiB; "
               "free something, here or in another pool");
    pool.deallocate_sync(p, 8192);
    CHECK(pool.try_allocate(on_host, 4096) == p);
    pool.deallocate_sync(p, 4096);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("pool: its state counts the allocations that waited for freed memory") {
    simulated_cuda::world const late(simulated_cuda::config{}.late(), support::report_all); // the memset is under way
    support::scoped_stream const a, b, c;
    device_pool pool(pool_options{}.limit(4 * MiB));
    pool.reserve(4 * MiB);
    void* const p = pool.allocate(a, 2 * MiB);
    void* const q = pool.allocate(b, 2 * MiB);
    check_cuda(cudaMemsetAsync(p, 1, 2 * MiB, a), "cudaMemsetAsync");
    pool.deallocate(a, p, 2 * MiB);
    pool.deallocate(b, q, 2 * MiB);
    CHECK(pool.state().waits == 0);
    void* const both = pool.allocate(c, 4 * MiB); // neither has as much
    CHECK(pool.state().waits == 1);
    pool.deallocate(c, both, 4 * MiB);
}
#endif

TEST_CASE("pool: what the upstream throws passes through, and the pool is as it was") {
    upstream_ledger ledger;
    recorded_pool<placement::best_fit<>> pool{recorded_upstream<>(ledger)};
    void* const p = pool.allocate_sync(4096);
    ledger.throw_at = 1;
    CHECK_THROWS_AS(static_cast<void>(pool.allocate_sync(4096)), support::upstream_failure);
    CHECK(pool.reserved_bytes() == 4096);
    CHECK(pool.state().chunks == 1);
    CHECK(pool.state().live_blocks == 1);
    void* const q = pool.allocate_sync(4096);
    pool.deallocate_sync(p, 4096);
    pool.deallocate_sync(q, 4096);
}

TEST_CASE("pool: a chunk that the placement cannot take goes back at once") {
    upstream_ledger ledger;
    recorded_pool<full_placement> pool{recorded_upstream<>(ledger)};
    void* const p = pool.allocate_sync(4096);
    CHECK_THROWS_AS(static_cast<void>(pool.allocate_sync(8192)), std::bad_alloc);
    CHECK(ledger.live.size() == 1);
    CHECK(pool.reserved_bytes() == 4096);
    void* const q = pool.allocate_sync(8192); // the third time it can
    CHECK(q != nullptr);
    pool.deallocate_sync(p, 4096);
    pool.deallocate_sync(q, 8192);
}

TEST_CASE("pool: chunks that nobody uses go back before more is asked for") {
    upstream_ledger ledger;
    ledger.room_bytes = 64 * KiB;
    recorded_pool<placement::best_fit<>> pool{recorded_upstream<>(ledger)};
    std::vector<void*> blocks;
    for (int i = 0; i < 16; ++i)
        blocks.push_back(pool.allocate_sync(4096));
    for (void* each : blocks)
        pool.deallocate_sync(each, 4096);
    CHECK(pool.reserved_bytes() == 64 * KiB);
    void* const large = pool.allocate_sync(60 * KiB); // no chunk has room: small ones make it
    CHECK(pool.reserved_bytes() <= 64 * KiB);
    CHECK(ledger.live_bytes() == pool.reserved_bytes());
    pool.deallocate_sync(large, 60 * KiB);
}

TEST_CASE("pool: a free chunk that is too small goes back before another is got, also where both have room") {
    upstream_ledger ledger;
    recorded_pool<placement::best_fit<>> pool{recorded_upstream<>(ledger)};
    pool.deallocate_sync(pool.allocate_sync(4096), 4096);
    CHECK(pool.reserved_bytes() == 4096);
    void* const p = pool.allocate_sync(8192);
    CHECK(ledger.returned == std::vector<std::size_t>{4096});
    CHECK(pool.reserved_bytes() == 8192);
    pool.deallocate_sync(p, 8192);
}

TEST_CASE("pool: one chunk makes room for the block that it was acquired for, whatever its alignment") {
    for (std::size_t alignment = 1; alignment <= 4 * MiB; alignment *= 2)
        for (std::size_t bytes : {std::size_t{1}, std::size_t{300}, 40 * KiB, 64 * KiB, 65 * KiB, 200 * KiB}) {
            upstream_ledger ledger;
            recorded_pool<> pool{recorded_upstream<>(ledger)};
            void* const p = pool.allocate_sync(bytes, alignment);
            REQUIRE(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
            REQUIRE(ledger.asked.size() == 1);
            REQUIRE(ledger.live_bytes() <= bytes + alignment + 2 * MiB);
            pool.deallocate_sync(p, bytes, alignment);
            REQUIRE(pool.in_use_bytes() == 0);
        }
}

TEST_CASE("pool: lives in memory that somebody else owns, and uses all of it") {
    std::vector<unsigned char> memory(256 * KiB + 255);
    weir::pool<upstream::span<memory_space::host>, placement::best_fit<>, reuse::immediate, growth::fixed<64 * KiB>> pool(
        upstream::span<memory_space::host>(memory.data(), memory.size()));
    std::vector<void*> blocks;
    for (void* p = pool.try_allocate(on_host, 16 * KiB, 512); p; p = pool.try_allocate(on_host, 16 * KiB, 512)) {
        CHECK(p >= memory.data());
        CHECK(static_cast<unsigned char*>(p) + 16 * KiB <= memory.data() + memory.size());
        blocks.push_back(p);
    }
    CHECK(blocks.size() >= 12); // a block a chunk is lost to its alignment at most
    CHECK(pool.owns(blocks[0]));
    for (void* each : blocks)
        pool.deallocate_sync(each, 16 * KiB, 512);
    std::size_t const reserved = pool.reserved_bytes();
    CHECK(reserved > 192 * KiB);
    CHECK(pool.trim() == reserved);
    void* const whole = pool.allocate_sync(255 * KiB); // what came back has joined
    CHECK(whole != nullptr);
    pool.deallocate_sync(whole, 255 * KiB);
}

// ---- trim and settle ----------------------------------------------------------------------------------------------------

TEST_CASE("pool: trim gives free chunks back, the largest first, and keeps what it is told to keep") {
    upstream_ledger ledger;
    recorded_pool<placement::best_fit<>> pool{recorded_upstream<>(ledger)};
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (std::size_t pages : {2u, 8u, 1u, 4u})
        blocks.emplace_back(pool.allocate_sync(pages * 4096), pages * 4096);
    CHECK(pool.trim() == 0); // all in use
    for (auto const& [p, bytes] : blocks)
        pool.deallocate_sync(p, bytes);
    CHECK(pool.trim(SIZE_MAX) == 0);
    CHECK(pool.trim(15 * 4096) == 0); // that is what it holds
    CHECK(pool.trim(15 * 4096 - 1) == 8 * 4096);
    CHECK(ledger.returned == std::vector<std::size_t>{8 * 4096});
    CHECK(pool.trim(3 * 4096) == 4 * 4096);
    CHECK(pool.reserved_bytes() == 3 * 4096);
    CHECK(pool.trim() == 3 * 4096);
    CHECK(pool.reserved_bytes() == 0);
    CHECK(pool.state().chunks == 0);
    CHECK(pool.trim() == 0);
    CHECK(ledger.live.empty());
}

TEST_CASE("pool: trim leaves a chunk of which one byte is in use") {
    upstream_ledger ledger;
    recorded_pool<mixed, growth::fixed<256 * KiB>> pool{recorded_upstream<>(ledger)};
    void* const small = pool.allocate_sync(1);
    void* const large = pool.allocate_sync(100 * KiB);
    pool.deallocate_sync(large, 100 * KiB);
    CHECK(pool.trim() == 0);
    CHECK(pool.reserved_bytes() == 256 * KiB);
    pool.deallocate_sync(small, 1);
    CHECK(pool.trim() == 256 * KiB);
}

TEST_CASE("pool: chunks that lie side by side stay two, so that each can go back") {
    std::vector<unsigned char> memory(64 * KiB + 4096);
    weir::pool<upstream::span<memory_space::host>, placement::best_fit<>, reuse::immediate, growth::exact> pool(
        upstream::span<memory_space::host>(memory.data(), memory.size()));
    void* const a = pool.allocate_sync(16 * KiB, 512);
    void* const b = pool.allocate_sync(16 * KiB, 512);
    std::size_t const reserved = pool.reserved_bytes();
    pool.deallocate_sync(a, 16 * KiB, 512);
    CHECK(pool.state().largest_free_bytes < 32 * KiB);
    CHECK(pool.trim() != 0); // the one that is free
    CHECK(pool.reserved_bytes() != 0);
    pool.deallocate_sync(b, 16 * KiB, 512);
    pool.trim();
    CHECK(pool.reserved_bytes() == 0);
    CHECK(reserved >= 32 * KiB);
}

TEST_CASE("pool: a chunk that the upstream refuses is used by nobody and offered again") {
    upstream_ledger ledger;
    recorded_pool<placement::best_fit<>> pool(recorded_upstream<>(ledger), pool_options{}.limit(4 * 4096));
    void* const p = pool.allocate_sync(2 * 4096);
    pool.deallocate_sync(p, 2 * 4096);
    ledger.refuse = 3;
    CHECK(pool.trim() == 0);
    CHECK(pool.reserved_bytes() == 2 * 4096); // still held, and still within the limit
    CHECK(pool.state().chunks == 1);
    CHECK_FALSE(pool.owns(p));
    CHECK(pool.state().largest_free_bytes == 0);
    CHECK(pool.trim() == 0);
    CHECK(pool.try_allocate(on_host, 3 * 4096) == nullptr); // refused for the third time
    CHECK_SAYS(pool.refused(3 * 4096, 16).reason, "leaves no room for another chunk of 12 KiB, while the upstream refuses to "
                                           "take 8 KiB of free memory back; raise the pool's limit or free something");
    CHECK(pool.reserved_bytes() == 2 * 4096);
    void* const q = pool.allocate_sync(3 * 4096); // taken: there is room
    CHECK(pool.reserved_bytes() == 3 * 4096);
    pool.deallocate_sync(q, 3 * 4096);
    ledger.refuse = 1;
    CHECK(pool.trim() == 0);
    CHECK(pool.trim() == 3 * 4096);
    CHECK(pool.reserved_bytes() == 0);
    void* const r = pool.allocate_sync(4096);
    pool.deallocate_sync(r, 4096);
    ledger.refuse = 1; // and at the end
}

TEST_CASE("pool: what the upstream refused is offered again beside free chunks, where there is no room without both") {
    upstream_ledger ledger;
    recorded_pool<placement::best_fit<>> pool{recorded_upstream<>(ledger)};
    ledger.refuse = 1;
    pool.deallocate(on_host, pool.allocate(on_host, 16 * KiB), 16 * KiB);
    CHECK(pool.trim() == 0); // refused
    CHECK(ledger.live.size() == 1);
    void* blocks[3];
    for (void*& each : blocks)
        each = pool.allocate(on_host, 16 * KiB);
    for (void* each : blocks)
        pool.deallocate(on_host, each, 16 * KiB);
    CHECK(ledger.live.size() == 4);
    ledger.room_bytes = 32 * KiB; // as where others took memory meanwhile
    void* const p = pool.try_allocate(on_host, 32 * KiB);
    CHECK(p != nullptr);
    CHECK(ledger.live.size() == 1);
    if (p)
        pool.deallocate(on_host, p, 32 * KiB);
}

TEST_CASE("pool: trim gives back what work still uses only after it has been waited for") {
    support::every_schedule([] {
        support::scoped_stream const s;
        device_pool pool;
        void* const p = support::take(pool, s, 20 * MiB);
        check_cuda(cudaMemsetAsync(p, 1, 20 * MiB, s), "cudaMemsetAsync");
        support::give(pool, s, p, 20 * MiB);
        pool.settle();
        CHECK(pool.reserved_bytes() == 20 * MiB);
        CHECK(pool.trim() == 20 * MiB);
        CHECK(pool.reserved_bytes() == 0);
    });
}

TEST_CASE("pool: settle makes everything that was freed anyone's") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        device_pool pool(pool_options{}.limit(32 * MiB));
        void* const p = support::take(pool, a, 30 * MiB);
        check_cuda(cudaMemsetAsync(p, 1, 30 * MiB, a), "cudaMemsetAsync");
        support::give(pool, a, p, 30 * MiB);
        pool.settle();
        void* const q = support::try_take(pool, b, 30 * MiB);
        CHECK(q == p);
        support::give(pool, b, q, 30 * MiB);
    });
}

// ---- leaks --------------------------------------------------------------------------------------------------------------

TEST_CASE("pool: one that ends with live blocks says so on standard error, and gives the memory back") {
    upstream_ledger ledger;
    std::string const text = support::standard_error_of([&] {
        recorded_pool<> pool(recorded_upstream<>(ledger), pool_options{}.name("leaky"));
        static_cast<void>(pool.allocate_sync(256));
        static_cast<void>(pool.allocate_sync(512));
        void* const freed = pool.allocate_sync(1024);
        pool.deallocate_sync(freed, 1024);
    });
    CHECK(text == "weir: pool 'leaky' ends with 768 bytes in 2 blocks still handed out; free them, or end their "
                  "containers, before the pool\n");
    CHECK(ledger.live.empty());
}

TEST_CASE("pool: one that ends without says nothing, nor does one that was told to ignore it") {
    upstream_ledger ledger;
    CHECK(support::standard_error_of([&] {
              recorded_pool<> pool{recorded_upstream<>(ledger)};
              void* const p = pool.allocate_sync(256);
              pool.deallocate_sync(p, 256);
          }).empty());
    CHECK(support::standard_error_of([&] {
              recorded_pool<> pool(recorded_upstream<>(ledger), pool_options{}.on_leak(leak_action::ignore));
              static_cast<void>(pool.allocate_sync(256));
          }).empty());
    CHECK(ledger.live.empty());
}

#ifdef WEIR_SIMULATED_CUDA // a CUDA context does not survive a fork
TEST_CASE("pool: one that was told to abort says so and aborts") {
    upstream_ledger ledger;
    int status = 0;
    std::string const text = support::standard_error_of([&] {
        pid_t const child = fork();
        if (child == 0) {
            std::signal(SIGABRT, SIG_DFL);
            {
                recorded_pool<> pool(recorded_upstream<>(ledger),
                                     pool_options{}.name("strict").on_leak(leak_action::abort));
                static_cast<void>(pool.allocate_sync(256));
            }
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
    CHECK_SAYS(text, "weir: pool 'strict' ends with 256 bytes in 1 block still handed out");
}
#endif

TEST_CASE("pool: one that ends waits for the work that uses its memory") {
    support::every_schedule([] {
        support::scoped_stream const s;
        {
            device_pool pool;
            void* const p = support::take(pool, s, 1 * MiB);
            check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, s), "cudaMemsetAsync");
            support::give(pool, s, p, 1 * MiB);
        }
        {
            // An upstream that does not wait when it takes memory back: the pool does.
            void* memory = nullptr;
            check_cuda(cudaMalloc(&memory, 4 * MiB), "cudaMalloc");
            {
                weir::pool<upstream::span<memory_space::device>, mixed, reuse::stream_ordered<>> pool(
                    upstream::span<memory_space::device>(memory, 4 * MiB));
                void* const p = support::take(pool, s, 1 * MiB);
                check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, s), "cudaMemsetAsync");
                support::give(pool, s, p, 1 * MiB);
            }
            CHECK(cudaStreamQuery(s) == cudaSuccess);
            check_cuda(cudaFree(memory), "cudaFree");
        }
    });
}

TEST_CASE("pool: a copy of its upstream opens its memory to a device, what it holds and what it gets, suspended or not") {
    support::two_devices const both{};
    if (!both)
        return;
    for (bool const suspended : {false, true}) {
        CAPTURE(suspended);
        upstream::virtual_memory<> memory(0);
        weir::pool<upstream::virtual_memory<>, mixed, reuse::stream_ordered<>> pool(memory);
        void* const before = pool.allocate(weir::on_host, 40 * MiB);
        if (suspended)
            pool.suspend();
        memory.enable_access_from(1);
        if (suspended)
            pool.resume();
        void* const after = pool.allocate(weir::on_host, 80 * MiB);
        support::fill_from(1, before, 40 * MiB);
        support::fill_from(1, after, 80 * MiB);
        pool.deallocate(weir::on_host, before, 40 * MiB);
        pool.deallocate(weir::on_host, after, 80 * MiB);
    }
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("pool: one that ends with live blocks waits for the devices that may use them") {
    for (bool const opened : {true, false}) {
        CAPTURE(opened);
        simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2).late(), support::report_all);
        support::scoped_stream const s;
        check_cuda(cudaSetDevice(1), "cudaSetDevice");
        support::scoped_stream const far;
        void* there = nullptr;
        check_cuda(cudaMalloc(&there, 1 * MiB), "cudaMalloc");
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        {
            upstream::virtual_memory<> memory(0);
            if (opened)
                memory.enable_access_from(1);
            weir::pool<upstream::virtual_memory<>, mixed, reuse::stream_ordered<>> pool(
                memory, pool_options{}.on_leak(weir::leak_action::ignore));
            void* const p = pool.allocate(s, 1 * MiB);
            simulated_cuda::note_allocate(p, 1 * MiB, s);
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            if (opened)
                check_cuda(simulated_cuda::launch(far, {}, {{p, 1 * MiB}}), "launch");
            else // which needs no access
                check_cuda(cudaMemcpyPeerAsync(p, 0, there, 1, 1 * MiB, far), "cudaMemcpyPeerAsync");
            CHECK(simulated_cuda::pending() != 0);
        }
        CHECK(simulated_cuda::pending() == 0);
        check_cuda(cudaFree(there), "cudaFree");
    }
}

TEST_CASE_TEMPLATE("pool: one that ends waits for the graph that uses what its capture freed", Reuse, reuse::stream_ordered<>,
                   reuse::after_event) {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t launchable = nullptr;
    {
        weir::pool<upstream::virtual_memory<>, mixed, Reuse> pool; // which unmaps without a wait
        void* const p = support::take(pool, s, 1 * MiB);
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, s), "cudaMemsetAsync");
        pool.deallocate(s, p, 1 * MiB);
        check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&launchable, graph, 0), "cudaGraphInstantiate");
        check_cuda(cudaGraphLaunch(launchable, s), "cudaGraphLaunch");
        simulated_cuda::note_free(p, 1 * MiB, s);
        CHECK(pool.state().live_blocks == 0);
        CHECK(simulated_cuda::pending() != 0);
    }
    CHECK(simulated_cuda::pending() == 0);
    check_cuda(cudaGraphExecDestroy(launchable), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

TEST_CASE("pool: one that ends waits for the last use of bytes that went out again and came back on the host") {
    for (bool const settles : {true, false}) {
        CAPTURE(settles);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const a;
        weir::pool<upstream::virtual_memory<>, mixed, reuse::stream_ordered<>> pool;
        for (unsigned frees = 0; frees < reuse::stream_ordered_tuning::young_frees; ++frees) {
            void* const young = support::take(pool, a, 1 * MiB);
            support::give(pool, a, young, 1 * MiB);
        }
        void* const q = support::take(pool, a, 1 * MiB);
        check_cuda(cudaMemsetAsync(q, 1, 1 * MiB, a), "cudaMemsetAsync");
        support::give(pool, a, q, 1 * MiB);
        void* const p = support::take(pool, a, 1 * MiB); // and nothing is enqueued that uses it
        CHECK(p == q);
        simulated_cuda::note_free(p, 1 * MiB, a); // what 'a' did before is over on the host's word alone
        pool.deallocate(on_host, p, 1 * MiB);
        CHECK(simulated_cuda::pending() != 0);
        if (settles) {
            pool.settle();
            CHECK(simulated_cuda::pending() == 0);
            CHECK(pool.trim() != 0);
        }
    }
}

TEST_CASE_TEMPLATE("pool: one that ends waits for nobody else's work", Reuse, reuse::stream_ordered<>, reuse::after_event) {
    for (bool const synchronised : {true, false}) {
        CAPTURE(synchronised);
        simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
        support::scoped_stream const s, stranger;
        simulated_cuda::gate gate;
        check_cuda(gate.close(stranger), "gate");
        {
            weir::pool<upstream::virtual_memory<>, mixed, Reuse> pool;
            std::vector<void*> blocks(1000);
            for (void*& p : blocks) {
                p = support::take(pool, s, 1000);
                check_cuda(cudaMemsetAsync(p, 1, 1000, s), "cudaMemsetAsync");
            }
            for (void* p : blocks)
                support::give(pool, s, p, 1000);
            if (synchronised)
                check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        }
        CHECK(cudaStreamQuery(s) == cudaSuccess);
        CHECK(cudaStreamQuery(stranger) == cudaErrorNotReady);
        gate.open();
    }
}
#endif

// ---- streams ------------------------------------------------------------------------------------------------------------

TEST_CASE("pool: what two streams freed, and others have used, joins for a third once that is over") {
    support::every_schedule([] {
        support::scoped_stream const a, b, c, user;
        weir::pool<upstream::device, placement::best_fit<>, reuse::stream_ordered<>, growth::exact> pool;
        pool.deallocate(c, pool.allocate(c, 4 * MiB), 4 * MiB);
        pool.settle();
        void* const p = pool.allocate(a, 2 * MiB);
        void* const q = pool.allocate(b, 2 * MiB);
        CHECK(pool.reserved_bytes() == 4 * MiB);
        pool.used_on(p, user);
        pool.used_on(q, user);
        pool.deallocate(a, p, 2 * MiB);
        pool.deallocate(b, q, 2 * MiB);
        for (cudaStream_t each : {static_cast<cudaStream_t>(a), static_cast<cudaStream_t>(b), static_cast<cudaStream_t>(user)})
            check_cuda(cudaStreamSynchronize(each), "cudaStreamSynchronize");
        void* const whole = pool.allocate(c, 4 * MiB);
        CHECK(pool.reserved_bytes() == 4 * MiB);
        pool.deallocate(c, whole, 4 * MiB);
    });
}

TEST_CASE_TEMPLATE("pool: the default streams are streams like others", Pool, device_pool, event_pool) {
    support::every_schedule([] {
        support::scoped_stream const own;
        Pool pool;
        for (cudaStream_t s : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread, static_cast<cudaStream_t>(own)}) {
            void* p = support::take(pool, s, 10000);
            check_cuda(cudaMemsetAsync(p, 1, 10000, s), "cudaMemsetAsync");
            support::give(pool, s, p, 10000);
            p = support::take(pool, s, 10000);
            check_cuda(cudaMemsetAsync(p, 2, 10000, s), "cudaMemsetAsync");
            support::give(pool, s, p, 10000);
        }
        std::thread([&] {
            void* const p = support::take(pool, cudaStreamPerThread, 10000);
            check_cuda(cudaMemsetAsync(p, 3, 10000, cudaStreamPerThread), "cudaMemsetAsync");
            support::give(pool, cudaStreamPerThread, p, 10000);
        }).join();
        void* const p = support::take(pool, cudaStreamPerThread, 10000);
        check_cuda(cudaMemsetAsync(p, 4, 10000, cudaStreamPerThread), "cudaMemsetAsync");
        support::give(pool, cudaStreamPerThread, p, 10000);
        CHECK(pool.in_use_bytes() == 0);
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("pool: memory of no one device comes back on a default stream without a question about devices, or an event") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    weir::pool<upstream::managed, mixed, reuse::stream_ordered<>> pool;
    CHECK(pool.device() == weir::any_device);
    pool.deallocate(cudaStreamLegacy, pool.allocate(cudaStreamLegacy, 1 * MiB), 1 * MiB);
    auto const records = simulated_cuda::calls("cudaEventRecord");
    auto const questions = simulated_cuda::calls("cudaGetDevice");
    std::set<void*> places;
    for (int i = 0; i < 100; ++i) {
        void* const p = pool.allocate(cudaStreamLegacy, 4 * KiB);
        places.insert(p);
        pool.deallocate(cudaStreamLegacy, p, 4 * KiB);
    }
    CHECK(places.size() < 20);
    CHECK(pool.in_use_bytes() == 0);
    CHECK(simulated_cuda::calls("cudaEventRecord") - records < 20);
    CHECK(simulated_cuda::calls("cudaGetDevice") - questions < 20);
}
#endif

TEST_CASE_TEMPLATE("pool: on the host, memory is nobody's when it comes and nobody's when it goes", Pool, device_pool,
                   event_pool) {
    support::every_schedule([] {
        support::scoped_stream const a;
        Pool pool(pool_options{}.limit(32 * MiB));
        void* const p = support::take(pool, a, 30 * MiB);
        check_cuda(cudaMemsetAsync(p, 1, 30 * MiB, a), "cudaMemsetAsync");
        support::give(pool, a, p, 30 * MiB);
        void* const q = pool.allocate_sync(30 * MiB); // waits for the work
        CHECK(q == p);
        CHECK(cudaStreamQuery(a) == cudaSuccess);
        support::note_taken(pool, on_host, q, 30 * MiB);
        support::give(pool, on_host, q, 30 * MiB);
        void* const r = support::take(pool, a, 30 * MiB); // and at once somebody else's
        CHECK(r == p);
        support::give(pool, a, r, 30 * MiB);
    });
}

TEST_CASE_TEMPLATE("pool: a block's free waits for the streams that it was used on", Pool, device_pool, event_pool) {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        Pool pool(pool_options{}.limit(32 * MiB));
        for (int round = 0; round < 5; ++round) {
            void* const p = support::take(pool, a, 30 * MiB);
            check_cuda(cudaMemsetAsync(p, 1, 30 * MiB, a), "cudaMemsetAsync");
            check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
            check_cuda(cudaMemsetAsync(p, 2, 30 * MiB, b), "cudaMemsetAsync");
            pool.used_on(p, b);
            pool.used_on(p, on_host); // the host's uses are over when it frees
            pool.used_on(nullptr, b);
#ifdef WEIR_SIMULATED_CUDA
            simulated_cuda::note_free(p, 30 * MiB, b);
#endif
            pool.deallocate(a, p, 30 * MiB);
        }
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE_TEMPLATE("pool: a stream of another device is refused with a sentence", Pool, device_pool) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2));
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    if (devices < 2)
        return;
    Pool pool(upstream::device(0));
    weir::runtime::device_scope const there(1);
    support::scoped_stream const s;
    for (int i = 0; i < 2; ++i) {
        CHECK(misuse_of([&] { static_cast<void>(pool.allocate(s, 100)); }) ==
              "weir: the stream belongs to device 1 and the pool to device 0; use a stream of the pool's device, or a "
              "pool of the stream's");
        CHECK_THROWS_AS(static_cast<void>(pool.allocate(cudaStreamPerThread, 100)), weir::usage_error);
    }
    CHECK(pool.reserved_bytes() == 0);
    weir::runtime::device_scope const here(0);
    support::scoped_stream const own;
    void* const p = support::take(pool, own, 100);
    support::give(pool, s, p, 100); // cannot be ordered there: the bytes wait for 'settle', and nothing breaks
    CHECK(pool.in_use_bytes() == 0);
    pool.settle();
    CHECK(pool.trim() > 0);
}

// ---- capture ------------------------------------------------------------------------------------------------------------

TEST_CASE("pool: memory is not allocated on a stream that is being captured, and the sentence says what to do") {
    support::every_schedule([] {
        support::scoped_stream const s, unknown;
        device_pool pool;
        void* const before = support::take(pool, s, 100);
        for (cudaStream_t each : {static_cast<cudaStream_t>(s), static_cast<cudaStream_t>(unknown)}) {
            support::capture graph(each);
            std::string const sentence = misuse_of([&] { static_cast<void>(pool.allocate(each, 100)); });
            CHECK_SAYS(sentence, "weir: pool 'unnamed': memory of this pool cannot be allocated or marked on a stream that is being "
                                 "captured into a graph; ");
            CHECK_SAYS(sentence, "before the capture begins, or allocate from a weir::graph_memory of the pool");
            CHECK(pool.allocate(each, 0) == nullptr);
            CHECK(graph.unbroken());
        }
        support::give(pool, s, before, 100);
        CHECK(pool.in_use_bytes() == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("pool: a trim on a full device gives back what is at rest before it waits, and breaks no capture") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2).with_memory(256 * MiB));
    support::scoped_stream const s, captured;
    weir::pool<upstream::virtual_memory<>, mixed, reuse::stream_ordered<>, growth::by_holes<>> pool;
    support::give(pool, s, support::take(pool, s, 100 * MiB), 100 * MiB);
    for (int i = 0; i < 20; ++i) // the last of them no event tells of
        support::give(pool, s, support::take(pool, s, 64 * KiB), 64 * KiB);
    std::vector<void*> others;
    for (std::size_t bytes = 64 * MiB; bytes != 0; bytes /= 2)
        for (void* p = nullptr; cudaMalloc(&p, bytes) == cudaSuccess;)
            others.push_back(p);
    static_cast<void>(cudaGetLastError());
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    {
        support::capture graph(captured);
        CHECK(pool.trim() >= 90 * MiB);
        CHECK(pool.reserved_bytes() == 0);
        CHECK(graph.unbroken());
    }
    for (void* each : others)
        check_cuda(cudaFree(each), "cudaFree");
}
#endif

TEST_CASE("pool: what a placement does not tell is not known") {
    struct silent : placement::slab<4096> {
        std::size_t largest() const = delete;
    };
    weir::pool<upstream::host, silent, reuse::immediate> pool;
    pool.deallocate_sync(pool.allocate_sync(4096), 4096);
    CHECK(pool.state().largest_free_bytes == SIZE_MAX);
    CHECK(std::string(pool.report()).find("largest free") == std::string::npos);
}

TEST_CASE("pool: a promised pool that has no block at hand asks whether the stream is captured") {
    using promised_pool = weir::pool<upstream::device, mixed, reuse::stream_ordered<weir::identity::promised>>;
    support::every_schedule([] {
        support::scoped_stream const s, other;
        promised_pool pool(pool_options{}.limit(64 * MiB));
        support::give(pool, s, support::take(pool, s, 1 * MiB), 1 * MiB); // now the stream is known
        void* const theirs = support::take(pool, other, 40 * MiB);
        void* const more = support::take(pool, other, 1 * MiB);
        std::size_t const before = pool.reserved_bytes();
        for (bool const freed : {false, true}) {
            support::capture graph(s);
            std::string const sentence = misuse_of([&] { static_cast<void>(pool.allocate(s, 20 * MiB)); });
            CHECK_SAYS(sentence, "weir: pool '");
            CHECK_SAYS(sentence, "on a stream that is being captured into a graph; ");
            CHECK(graph.unbroken());
            CHECK(pool.reserved_bytes() == before);
            if (!freed) // in flight, and the limit leaves nothing else
                support::give(pool, other, theirs, 40 * MiB);
        }
        support::give(pool, other, more, 1 * MiB);
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE_TEMPLATE("pool: frees on a captured stream do not break the capture, and nobody gets what its graph may use", Pool,
                   device_pool, event_pool) {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        Pool pool(pool_options{}.limit(64 * MiB));
        std::vector<void*> blocks;
        for (int i = 0; i < 8; ++i)
            blocks.push_back(support::take(pool, s, 4 * MiB));
        void* const small = support::take(pool, other, 1000);
        cudaGraph_t graphs[2] = {};
        REQUIRE(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess);
        for (void* each : blocks)
            pool.deallocate(s, each, 4 * MiB);
        REQUIRE(cudaStreamEndCapture(s, &graphs[0]) == cudaSuccess);
        REQUIRE(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal) == cudaSuccess);
        pool.deallocate(other, small, 1000);
        REQUIRE(cudaStreamEndCapture(other, &graphs[1]) == cudaSuccess);
        CHECK(pool.in_use_bytes() == 0);
        CHECK(pool.state().live_blocks == 0);
        CHECK(pool.state().lost_bytes == 32 * MiB + 1024);
        CHECK_SAYS(pool.report(), " MiB not handed out again");
        pool.settle();
        pool.trim();
        std::vector<void*> more;
        for (void* p = pool.try_allocate(s, 4 * MiB); p; p = pool.try_allocate(s, 4 * MiB)) {
            CHECK(std::find(blocks.begin(), blocks.end(), p) == blocks.end());
            more.push_back(p);
        }
        CHECK(more.size() <= 7); // of the 64 MiB, 32 and a bit are the graphs'
        for (void* each : more)
            pool.deallocate(s, each, 4 * MiB);
#ifdef WEIR_SIMULATED_CUDA
        for (void* each : blocks)
            simulated_cuda::note_free(each, 4 * MiB, s);
        simulated_cuda::note_free(small, 1000, other);
#endif
        for (cudaGraph_t const each : graphs)
            CHECK(cudaGraphDestroy(each) == cudaSuccess);
        for (int turns = 0; turns < 1'000'000 && pool.state().lost_bytes != 0; ++turns) // CUDA may take a while to tell
            static_cast<void>(cudaStreamQuery(s));
        CHECK(pool.state().lost_bytes == 0);
        CHECK(pool.state().unsettled_bytes >= 32 * MiB + 1024);
        pool.settle();
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
    });
}

TEST_CASE_TEMPLATE("pool: housekeeping does not break the capture of another stream", Pool, device_pool, event_pool) {
    support::every_schedule([] {
        support::scoped_stream const captured, a, b;
        Pool pool(pool_options{}.limit(64 * MiB));
        void* const seen = support::take(pool, captured, 1000); // a first chunk of 16 MiB
        support::capture graph(captured);
        std::vector<void*> blocks;
        for (int i = 0; i < 3; ++i)
            blocks.push_back(support::take(pool, a, 14 * MiB)); // grows
        for (void* each : blocks) {
            check_cuda(cudaMemsetAsync(each, 1, 14 * MiB, a), "cudaMemsetAsync");
            support::give(pool, a, each, 14 * MiB);
        }
        void* const p = support::take(pool, b, 14 * MiB); // from the other stream: queries, waits
        pool.used_on(p, a);
        void* const q = support::take(pool, b, 30 * MiB); // gives chunks back, grows again, at the limit
        support::give(pool, b, p, 14 * MiB);
        support::give(pool, b, q, 30 * MiB);
        pool.trim();
        std::thread([&] {
            void* const r = support::take(pool, cudaStreamPerThread, 2 * MiB);
            support::give(pool, cudaStreamPerThread, r, 2 * MiB);
            pool.trim();
        }).join();
        static_cast<void>(pool.state());
        CHECK(graph.unbroken());
        support::give(pool, captured, seen, 1000);
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    });
}

TEST_CASE("pool: one that ends while another stream is captured does not break the capture") {
    support::every_schedule([] {
        support::scoped_stream const captured, s;
        auto pool = std::make_unique<device_pool>();
        void* const p = support::take(*pool, s, 1 * MiB);
        support::give(*pool, s, p, 1 * MiB);
        support::capture graph(captured);
        pool.reset();
        CHECK(graph.unbroken());
    });
}

// ---- threads ------------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("pool: several threads share a pool, and the limit holds at every moment", Pool, device_pool,
                   event_pool) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.random(5), support::report_all);
#endif
    Pool pool(pool_options{}.limit(48 * MiB));
    std::atomic<std::size_t> taken_bytes{0};
    std::atomic<int> wrong{0};
    std::atomic<bool> over{false};
    std::thread watcher([&] {
        while (!over.load()) {
            if (pool.reserved_bytes() > 48 * MiB || pool.state().reserved_bytes > 48 * MiB)
                wrong.fetch_add(1);
            static_cast<void>(pool.owns(&pool));
            pool.set_limit(pool.limit_bytes() == 48 * MiB ? 40 * MiB : 48 * MiB);
            std::this_thread::yield();
        }
    });
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 4; ++t)
        crew.emplace_back([&, t] {
            support::scoped_stream const own;
            std::mt19937_64 draw(t);
            std::vector<std::pair<void*, std::size_t>> live;
            for (int step = 0; step < 400; ++step) {
                cudaStream_t const s = draw() % 4 == 0 ? cudaStreamPerThread : static_cast<cudaStream_t>(own);
                if (live.size() < 8 && draw() % 2 == 0) {
                    std::size_t const bytes = draw() % 5 == 0 ? (draw() % 6 + 1) * MiB : draw() % (100 * KiB) + 1;
                    if (void* const p = pool.try_allocate(s, bytes)) {
                        support::note_taken(pool, s, p, bytes);
                        taken_bytes.fetch_add(bytes);
                        if (cudaMemsetAsync(p, 1, bytes, s) != cudaSuccess)
                            wrong.fetch_add(1);
                        if (s != own && cudaStreamSynchronize(s) != cudaSuccess)
                            wrong.fetch_add(1);
                        live.emplace_back(p, bytes);
                    }
                } else if (!live.empty()) {
                    std::swap(live[draw() % live.size()], live.back());
                    support::give(pool, own, live.back().first, live.back().second);
                    live.pop_back();
                }
            }
            for (auto const& [p, bytes] : live)
                support::give(pool, own, p, bytes);
        });
    for (std::thread& each : crew)
        each.join();
    over.store(true);
    watcher.join();
    CHECK(wrong.load() == 0);
    CHECK(taken_bytes.load() > 5 * 48 * MiB); // the same memory, again and again
    CHECK(pool.in_use_bytes() == 0);
    CHECK(pool.state().live_blocks == 0);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    pool.settle();
    pool.trim();
    CHECK(pool.reserved_bytes() == 0);
}

// ---- faults -------------------------------------------------------------------------------------------------------------

namespace {

template <class Pool>
struct faulty {
    support::scoped_stream a, b;
    std::unique_ptr<Pool> pool = std::make_unique<Pool>(pool_options{}.limit(64 * MiB));
    void* held = pool->allocate(a, 1000);
    void* large = pool->allocate(a, 18 * MiB);
    void* got = nullptr;
    weir::memory_report before = pool->state();

    ~faulty() {
        if (pool) {
            pool->deallocate(a, held, 1000);
            if (large)
                pool->deallocate(a, large, 18 * MiB);
        }
    }
};

// Whatever failed: what is out is what it was, and the pool still works.
template <class Pool>
void is_sound(faulty<Pool>& x, std::size_t more_blocks) {
    weir::memory_report const now = x.pool->state();
    CHECK(now.live_blocks == x.before.live_blocks + more_blocks);
    CHECK(now.reserved_bytes <= 64 * MiB);
    void* const p = x.pool->allocate(x.b, 5000);
    x.pool->deallocate(x.b, p, 5000);
    CHECK(x.pool->state().live_blocks == now.live_blocks);
}

} // namespace

TEST_CASE_TEMPLATE("pool: every CUDA call of an allocation may fail: nothing is handed out then, nothing is lost", Pool,
                   device_pool, event_pool) {
    auto const prepare = [] { return std::make_unique<faulty<Pool>>(); };
    auto const judge = [](std::size_t bytes) {
        return [bytes](faulty<Pool>& x, support::struck const& fault) {
            CHECK((!fault.threw || x.got == nullptr));
            is_sound(x, x.got ? 1 : 0);
            if (x.got)
                x.pool->deallocate(x.b, x.got, bytes);
        };
    };
    std::uint64_t runs = 0;
    // From a set of its own, which is made; by growth; at the limit.
    for (std::size_t bytes : {std::size_t{1000}, 17 * MiB, 44 * MiB})
        runs += support::fault_sweep(prepare, [bytes](faulty<Pool>& x) { x.got = x.pool->try_allocate(x.b, bytes); },
                                     judge(bytes));
    // On the host.
    runs += support::fault_sweep(prepare, [](faulty<Pool>& x) { x.got = x.pool->try_allocate(on_host, 17 * MiB); },
                                 judge(17 * MiB));
    // Of memory that another stream freed.
    runs += support::fault_sweep(
        [] {
            auto fresh = std::make_unique<faulty<Pool>>();
            check_cuda(cudaMemsetAsync(fresh->large, 1, 18 * MiB, fresh->a), "cudaMemsetAsync");
            fresh->pool->deallocate(fresh->a, std::exchange(fresh->large, nullptr), 18 * MiB);
            fresh->before = fresh->pool->state();
            return fresh;
        },
        [](faulty<Pool>& x) { x.got = x.pool->try_allocate(x.b, 46 * MiB); },
        [](faulty<Pool>& x, support::struck const&) {
            is_sound(x, x.got ? 1 : 0);
            if (x.got)
                x.pool->deallocate(x.b, x.got, 46 * MiB);
        });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs > 40);
#endif
    static_cast<void>(runs);
}

TEST_CASE_TEMPLATE("pool: every CUDA call of a free may fail: the bytes are back, wait for settle, or may be a graph's", Pool,
                   device_pool, event_pool) {
    auto const runs = support::fault_sweep(
        [] { return std::make_unique<faulty<Pool>>(); },
        [](faulty<Pool>& x) { x.pool->deallocate(x.b, std::exchange(x.large, nullptr), 18 * MiB); },
        [](faulty<Pool>& x, support::struck const& fault) {
            CHECK_FALSE(fault.threw);
            CHECK(x.pool->state().live_blocks == x.before.live_blocks - 1);
            x.pool->settle();
            void* const p = x.pool->try_allocate(x.a, 46 * MiB); // only with those bytes is there room
            if (p)
                x.pool->deallocate(x.a, p, 46 * MiB);
            // Where CUDA never said that no graph may use them, nobody gets them.
            bool const untold = fault.for_ever && fault.hit("cudaStreamIsCapturing");
            CHECK((p != nullptr || untold));
            CHECK(x.pool->state().lost_bytes == (p ? 0 : 18 * MiB));
        });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 4);
#endif
    static_cast<void>(runs);
}

TEST_CASE_TEMPLATE("pool: every CUDA call of trim, settle and used_on may fail: the pool is as it was", Pool, device_pool,
                   event_pool) {
    auto const freed = [] {
        auto fresh = std::make_unique<faulty<Pool>>();
        check_cuda(cudaMemsetAsync(fresh->large, 1, 18 * MiB, fresh->a), "cudaMemsetAsync");
        fresh->pool->deallocate(fresh->a, std::exchange(fresh->large, nullptr), 18 * MiB);
        fresh->before = fresh->pool->state();
        return fresh;
    };
    auto const judge = [](faulty<Pool>& x, support::struck const&) {
        is_sound(x, 0);
        x.pool->settle();
        x.pool->trim();
        CHECK(x.pool->reserved_bytes() < 18 * MiB); // no chunk was lost on the way
        CHECK(x.pool->state().chunks == 1);
    };
    auto runs = support::fault_sweep(freed, [](faulty<Pool>& x) { x.pool->trim(); }, judge);
    runs += support::fault_sweep(freed, [](faulty<Pool>& x) { x.pool->settle(); }, judge);
    runs += support::fault_sweep(
        freed,
        [](faulty<Pool>& x) {
            x.pool->settle();
            x.pool->trim();
        },
        judge);
    runs += support::fault_sweep(freed, [](faulty<Pool>& x) { x.pool->used_on(x.held, x.b); },
                                 [&](faulty<Pool>& x, support::struck const& fault) {
                                     CHECK(fault.threw == !fault.calls.empty());
                                     judge(x, fault);
                                 });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs > 20);
#endif
    static_cast<void>(runs);
}

TEST_CASE_TEMPLATE("pool: every CUDA call of its end may fail once: no chunk is lost", Pool, device_pool, event_pool) {
#ifdef WEIR_SIMULATED_CUDA
    for (std::uint64_t k = 1;; ++k) {
        simulated_cuda::world world;
        std::uint64_t failed = 0;
        {
            faulty<Pool> x;
            x.pool->deallocate(x.a, x.held, 1000);
            x.pool->deallocate(x.a, std::exchange(x.large, nullptr), 18 * MiB);
            simulated_cuda::fail_call(k, cudaErrorUnknown);
            x.pool.reset();
            failed = simulated_cuda::failed_calls();
            simulated_cuda::clear_faults();
        }
        for (simulated_cuda::report const& each : world.finish())
            CHECK_MESSAGE(each.sentence.find("bytes") == std::string::npos, each.sentence);
        if (failed == 0)
            break;
    }
#endif
}

#ifdef WEIR_SIMULATED_CUDA
#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("pool: one that ends gives nothing back to its upstream while work may use it, whichever CUDA call fails") {
    using below_type = support::recording_pool<memory_space::device>; // which tells of a free that comes too early
    using pool_type = weir::pool<upstream::from_pool<below_type>, mixed, reuse::stream_ordered<>>;
    for (auto const how : {simulated_cuda::lasting::once, simulated_cuda::lasting::for_ever}) {
        bool broken = true;
        for (std::uint64_t k = 1; broken; ++k) {
            CAPTURE(k);
            CAPTURE(static_cast<int>(how));
            simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all_but_events);
            support::scoped_stream const s;
            below_type below;
            {
                pool_type pool(upstream::from_pool<below_type>(below, on_host));
                void* const p = pool.allocate(s, 1 * MiB);
                check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, s), "cudaMemsetAsync");
                pool.deallocate(s, p, 1 * MiB);
                simulated_cuda::fail_call(k, cudaErrorUnknown, how);
            }
            broken = simulated_cuda::failed_calls() != 0;
            simulated_cuda::clear_faults();
            CHECK((below.live_blocks() == 0 || how == simulated_cuda::lasting::for_ever)); // one failure is no lost device
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            support::recorded const chunk = below.allocations.back();
            if (below.live_blocks() != 0)
                below.deallocate(on_host, chunk.p, chunk.bytes, chunk.alignment);
        }
    }
}
#endif

TEST_CASE("pool: no GPU and an old driver say so where the pool is made") {
    {
        simulated_cuda::world world(simulated_cuda::config{}.with_devices(0));
        CHECK_SAYS(sentence_of<weir::cuda_error>([] { device_pool pool; }), "no GPU is visible");
        world.forgive();
    }
    {
        simulated_cuda::world world(simulated_cuda::config{}.with_driver(CUDART_VERSION / 1000 * 1000 - 10));
        CHECK_SAYS(sentence_of<weir::cuda_error>([] { device_pool pool; }), "update the driver");
        world.forgive();
    }
}

TEST_CASE("pool: a host pool needs neither GPU nor driver") {
    simulated_cuda::world world(simulated_cuda::config{}.with_devices(0));
    weir::pool<upstream::host, placement::by_size<64 * KiB, placement::bins<16>, placement::best_fit<64>>, reuse::immediate>
        pool;
    void* const p = pool.allocate_sync(1000);
    pool.deallocate_sync(p, 1000);
    pool.settle();
    CHECK(pool.trim() > 0);
    CHECK(simulated_cuda::calls() == 0);
    world.forgive();
}

TEST_CASE_TEMPLATE("pool: a device that is full is out_of_memory, with the upstream's name", Pool, device_pool, event_pool) {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(64 * MiB));
    support::scoped_stream const s;
    Pool pool(pool_options{}.name("training"));
    void* const p = pool.allocate(s, 60 * MiB);
    try {
        static_cast<void>(pool.allocate(s, 10 * MiB));
        FAIL_CHECK("nothing was thrown");
    } catch (weir::out_of_memory const& error) {
        CHECK(error.asked_bytes() == 10 * MiB);
        CHECK(error.limit_bytes() == SIZE_MAX);
        CHECK(error.reserved_bytes() == 60 * MiB);
        CHECK(error.in_use_bytes() == 60 * MiB);
        CHECK(error.pool_name() == "training");
        CHECK(error.device_free_bytes() == 4 * MiB);
        CHECK_SAYS(error.what(), ", free on the device 4 MiB)");
        CHECK_SAYS(error.reason(), "the upstream (device memory) has no room for another chunk of 10 MiB; free "
                                   "something, here or in another pool");
    }
    pool.deallocate(s, p, 60 * MiB);
    void* const q = pool.allocate(s, 64 * MiB); // the chunk goes back to make room
    CHECK(q != nullptr);
    pool.deallocate(s, q, 64 * MiB);
}

TEST_CASE_TEMPLATE("pool: the device is asked what it has left after a refusal only, and its silence is no error", Pool,
                   device_pool, event_pool, weir::pool<upstream::virtual_memory<>, mixed, reuse::stream_ordered<>>) {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(64 * MiB).with_devices(2), support::report_all);
    support::scoped_stream const s, other;
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    void* elsewhere = nullptr;
    check_cuda(cudaMalloc(&elsewhere, 32 * MiB), "cudaMalloc");
    Pool pool(upstream_of<Pool>(0), pool_options{}.limit(16 * MiB));
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    void* const p = pool.allocate(s, 8 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    std::uint64_t const asked = simulated_cuda::calls("cudaMemGetInfo");
    static_cast<void>(pool.state());
    static_cast<void>(pool.report());
    CHECK(pool.try_allocate(s, 10 * MiB) == nullptr);
    CHECK(simulated_cuda::calls("cudaMemGetInfo") == asked);
    {
        support::capture here(other);
        CHECK_SAYS(refusal_of([&] { static_cast<void>(pool.allocate(s, 10 * MiB)); }),
                   "largest free " + std::string(weir::base::bytes_text(pool.state().largest_free_bytes)) + ", free on the device " +
                       std::string(weir::base::bytes_text(64 * MiB - pool.reserved_bytes())) + ")");
        CHECK(here.unbroken());
    }
    CHECK(simulated_cuda::calls("cudaMemGetInfo") == asked + 1);
    simulated_cuda::fail_call("cudaMemGetInfo", 1, cudaErrorUnknown);
    try {
        static_cast<void>(pool.allocate(s, 10 * MiB));
        FAIL_CHECK("nothing was thrown");
    } catch (weir::out_of_memory const& error) {
        CHECK(error.device_free_bytes() == SIZE_MAX);
    }
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(weir::runtime::current_device() == 1);
    pool.deallocate(s, p, 8 * MiB);
    void* const q = pool.allocate(s, 16 * MiB); // it goes on working
    pool.deallocate(s, q, 16 * MiB);
    check_cuda(cudaFree(elsewhere), "cudaFree");
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
}

// A widely used allocator looks only at what it has waited for.
TEST_CASE_TEMPLATE("pool: a fitting block that another thread freed while the pool waited is found", Reuse, reuse::after_event,
                   reuse::stream_ordered<>, reuse::stream_ordered<weir::identity::promised>,
                   stage::stream_ordered<stage::checked, stage::grow_first, stage::closing>,
                   stage::stream_ordered<stage::checked, stage::wait_first, stage::closing>,
                   stage::stream_ordered<stage::checked, stage::grow_first, stage::grown_up>,
                   stage::stream_ordered<stage::checked, stage::wait_first, stage::grown_up>) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed)
        for (bool const by_host : {false, true}) {
            CAPTURE(seed);
            CAPTURE(by_host);
            stage::world const here(simulated_cuda::config{}.random(seed));
            support::scoped_stream const a, b, c;
            stage::watched<stage::pool_of<Reuse>> pool(pool_options{}.limit(6 * MiB));
            void* const fits = pool.write(c, 4 * MiB);
            void* const small = pool.write(a, 2 * MiB);
            check_cuda(cudaStreamSynchronize(c), "cudaStreamSynchronize");
            simulated_cuda::gate gate;
            check_cuda(gate.close(a), "gate");
            pool.deallocate(a, small, 2 * MiB); // in flight, and too small: whoever waits for it waits for the gate
            void* got = nullptr;
            simulated_cuda::run_threads({[&] { got = pool.try_allocate(b, 4 * MiB); },
                                         [&] {
                                             for (std::uint64_t i = 0; i < seed % 30; ++i)
                                                 simulated_cuda::yield();
                                             pool.deallocate(by_host ? weir::stream_ref(on_host) : weir::stream_ref(c), fits,
                                                             4 * MiB);
                                             gate.open();
                                         }});
            REQUIRE(got != nullptr);
            check_cuda(simulated_cuda::launch(b, {}, {{got, 4 * MiB}}), "launch");
            pool.deallocate(b, got, 4 * MiB);
            pool->settle();
            pool->trim();
            CHECK(pool->reserved_bytes() == 0);
        }
}

TEST_CASE("pool: what one thread settles, another one that looks at that moment finds") {
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        CAPTURE(seed);
        stage::world const here(simulated_cuda::config{}.random(seed));
        support::scoped_stream const a, b, c;
        device_pool pool(pool_options{}.limit(4 * MiB));
        for (int i = 0; i < 12; ++i) // then the stream is not young, and keeps blocks for itself
            pool.deallocate(c, pool.allocate(c, 512 * KiB), 512 * KiB);
        void* all[8];
        for (void*& each : all)
            each = pool.allocate(c, 512 * KiB);
        for (void* each : all)
            pool.deallocate(c, each, 512 * KiB);
        void* got[2] = {};
        simulated_cuda::run_threads({[&] { got[0] = pool.try_allocate(a, 512 * KiB); }, [&] { got[1] = pool.try_allocate(b, 512 * KiB); }});
        CHECK(got[0] != nullptr);
        CHECK(got[1] != nullptr);
        pool.deallocate(a, got[0], 512 * KiB);
        pool.deallocate(b, got[1], 512 * KiB);
    }
}

TEST_CASE("pool: once the device is lost nothing blocks, and every call says so") {
    simulated_cuda::world world(simulated_cuda::config{}.late());
    support::scoped_stream const s, other;
    device_pool pool;
    void* const p = pool.allocate(s, 1 * MiB);
    check_cuda(simulated_cuda::launch_failing(s, cudaErrorIllegalAddress), "launch");
    CHECK(cudaStreamSynchronize(s) == cudaErrorIllegalAddress);
    pool.deallocate(s, p, 1 * MiB);
    CHECK_SAYS(sentence_of<weir::cuda_error>([&] { static_cast<void>(pool.allocate(other, 100 * MiB)); }),
               "cudaErrorIllegalAddress (700): an earlier kernel faulted");
    CHECK_THROWS_AS(pool.settle(), weir::cuda_error);
    world.forgive();
}

TEST_CASE("pool: a free on a stream that was destroyed is kept for settle, and the pool stays sound") {
    simulated_cuda::world world;
    {
        device_pool pool;
        cudaStream_t gone = nullptr;
        check_cuda(cudaStreamCreate(&gone), "cudaStreamCreate");
        void* const p = pool.allocate(gone, 20 * MiB);
        check_cuda(cudaStreamDestroy(gone), "cudaStreamDestroy");
        CHECK_THROWS_AS(static_cast<void>(pool.allocate(gone, 100)), weir::cuda_error);
        pool.deallocate(gone, p, 20 * MiB);
        CHECK(pool.in_use_bytes() == 0);
        pool.settle();
        CHECK(pool.trim() == 20 * MiB);
    }
    world.forgive(); // the simulator reports the use of the handle: on a GPU it is the program's crash
}
#endif

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("pool: what is reserved is there before it is needed, whoever needs it") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(256 * MiB), support::report_all);
    support::scoped_stream const a, b;
    device_pool ahead(pool_options{}.reserve(32 * MiB));
    CHECK(ahead.reserved_bytes() == 32 * MiB);
    ahead.reserve(20 * MiB); // which it holds
    CHECK(ahead.reserved_bytes() == 32 * MiB);
    ahead.reserve(33 * MiB); // whole pages
    CHECK(ahead.reserved_bytes() == 34 * MiB);
    std::uint64_t const before = simulated_cuda::calls("cudaMalloc");
    void* const p = ahead.allocate(a, 16 * MiB);
    void* const q = ahead.allocate(b, 16 * MiB);
    CHECK(simulated_cuda::calls("cudaMalloc") == before);
    ahead.deallocate(a, p, 16 * MiB);
    ahead.deallocate(b, q, 16 * MiB);
    ahead.settle();
    CHECK(ahead.trim() == 34 * MiB);
}

TEST_CASE("pool: where there is no room to reserve, it says so and holds what it held") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(64 * MiB), support::report_all);
    device_pool limited(pool_options{}.limit(8 * MiB).name("small"));
    limited.reserve(8 * MiB);
    CHECK_SAYS(refusal_of([&] { limited.reserve(8 * MiB + 1); }),
               "it holds 8388608 bytes (8 MiB) and needs another 2097152 bytes (2 MiB), and its limit is 8388608 bytes (8 MiB); "
               "reserve less or raise the pool's limit");
    CHECK_SAYS(refusal_of([&] { limited.reserve(SIZE_MAX); }), "there are not so many addresses; reserve less");
    CHECK(limited.reserved_bytes() == 8 * MiB);
    device_pool all;
    CHECK_SAYS(refusal_of([&] { all.reserve(65 * MiB); }),
               "it needs 69206016 bytes (66 MiB), and of device memory there can be 67108864 bytes (64 MiB) in all; reserve less");
    CHECK(all.reserved_bytes() == 0);
    CHECK_SAYS(refusal_of([] { device_pool none(pool_options{}.reserve(65 * MiB)); }), "there can be 67108864 bytes (64 MiB) in all");
    device_pool late(pool_options{}.limit(60 * MiB)); // what it lacks is within the limit, and more than the device has left
    late.reserve(4 * MiB);
    CHECK_SAYS(refusal_of([&] { late.reserve(60 * MiB); }),
               "it holds 4194304 bytes (4 MiB) and needs another 58720256 bytes (56 MiB), and the upstream (device memory) has no room "
               "for that; reserve less or free something elsewhere");
    weir::pool<upstream::pinned<>, placement::slab<64>, reuse::immediate, growth::fixed<1 * MiB>> nodes; // no block has 1000 bytes
    simulated_cuda::fail_call("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
    CHECK_SAYS(refusal_of([&] { nodes.reserve(1000); }), "it needs 65536 bytes (64 KiB), and the upstream (pinned memory) has no room");
}

TEST_CASE("pool: the options name the device, and an upstream of another one is refused") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
    device_pool second(pool_options{}.device(1).reserve(2 * MiB));
    CHECK(second.device() == 1);
    CHECK(second.full_state().device_free_bytes == weir::runtime::device_free_bytes(1));
    device_pool both(upstream::device(1), pool_options{}.device(1));
    CHECK(both.device() == 1);
    CHECK(misuse_of([] { device_pool wrong(upstream::device(0), pool_options{}.device(1)); }) ==
          "weir: pool_options::device names a device that is not the upstream's; leave it out, or make the upstream of that device");
    CHECK(misuse_of([] { weir::pool<upstream::host, mixed, reuse::immediate> wrong(pool_options{}.device(1)); }) ==
          "weir: pool_options::device: memory of this kind (host) is not that of one device; leave it out");
    CHECK_SAYS(misuse_of([] { weir::pool<upstream::managed, mixed, reuse::immediate> wrong(pool_options{}.device(0)); }),
               "memory of this kind (managed) is not that of one device; leave it out");
    CHECK(misuse_of([] { device_pool none(pool_options{}.device(2)); }).find("there is no device 2") != std::string::npos);
    CHECK(weir::runtime::current_device() == 0);
}

#endif

TEST_CASE("pool: a request that fails was never in use, and a paged pool moves free pages as before") {
    using mapped_pool = weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>,
                                   weir::reuse::immediate, support::paged_of<512, 2 * MiB, 64 * MiB>>;
    support::every_schedule([] {
        for (bool const fails : {false, true}) {
            CAPTURE(fails);
            support::scoped_stream const stream;
            mapped_pool pool;
            void* const a = pool.try_allocate(stream, 20 * MiB);
            void* const b = pool.try_allocate(stream, 20 * MiB);
            void* const c = pool.try_allocate(stream, 20 * MiB);
            if (fails)
                CHECK_FALSE(pool.try_allocate(stream, weir::runtime::device_total_bytes(0))); // not while those are out
            CHECK(pool.reserved_bytes() == 60 * MiB);
            pool.deallocate(stream, b, 20 * MiB);
            void* const d = pool.try_allocate(stream, 30 * MiB); // b is too small, and its pages pay
            CHECK(d);
            CHECK(pool.reserved_bytes() <= 72 * MiB);
            pool.deallocate(stream, a, 20 * MiB);
            pool.deallocate(stream, c, 20 * MiB);
            pool.deallocate(stream, d, 30 * MiB);
        }
    });
}
