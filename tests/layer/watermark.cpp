// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp; every order of threads, in tests/interleavings/layer.cpp.

#include <atomic>
#include <cstdint>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <string>
#include <support/capture.hpp>
#include <support/counting_pool.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/noted.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/growth/exact.hpp>
#include <weir/layer/watermark.hpp>
#include <weir/recipes.hpp>

using support::counting_pool;
using weir::KiB;
using weir::MiB;
using weir::on_host;

namespace {

/// What a pool holds grows with what is in use, and goes back by 'trim' alone.
struct holding_pool : counting_pool<> {
    using counting_pool<>::counting_pool;
    void* try_allocate(weir::stream_ref on, std::size_t bytes, std::size_t alignment = default_alignment) {
        void* const p = counting_pool::try_allocate(on, bytes, alignment);
        std::size_t const in_use = p ? state().in_use_bytes + stuck_bytes : 0;
        if (held < in_use) {
            held = in_use;
            ++growths;
        }
        return p;
    }
    std::size_t trim(std::size_t keep_bytes = 0) {
        ++trims;
        kept = keep_bytes;
        if (trim_throws)
            throw support::pool_failure{};
        std::size_t const in_use = state().in_use_bytes + stuck_bytes;
        std::size_t const least = keep_bytes > in_use ? keep_bytes : in_use;
        std::size_t const before = held;
        held = held > least ? least : held;
        return before - held;
    }
    std::size_t reserved_bytes() const { return held; }

    std::size_t held = 0;
    std::size_t stuck_bytes = 0; // of which some work is in flight
    std::size_t kept = 0;
    int growths = 0;
    int trims = 0;
    bool trim_throws = false;
};

struct small : weir::layer::watermark_tuning {
    static constexpr std::size_t allocations_between_looks = 5;
    static constexpr std::size_t looks_in_half_window = 2;
    static constexpr std::size_t slack_percent = 25;
    static constexpr std::size_t slack_bytes = 1000;
};
struct endless : small {
    static constexpr std::size_t slack_bytes = SIZE_MAX;
};
struct tiny : small {
    static constexpr std::size_t allocations_between_looks = 3;
    static constexpr std::size_t looks_in_half_window = 1;
};
using marked = weir::layer::watermark<holding_pool, small>;

/// Allocates `blocks` blocks, and then frees them.
template <class Pool>
void step(Pool& pool, int blocks, std::size_t bytes, weir::stream_ref on = on_host) {
    std::vector<void*> all;
    for (int i = 0; i < blocks; ++i) {
        all.push_back(pool.allocate(on, bytes));
        support::note_taken(pool, on, all.back(), bytes);
    }
    for (void* const each : all)
        support::give(pool, on, each, bytes);
}

/// Allocates and frees one block after the other.
template <class Pool>
void one_by_one(Pool& pool, int blocks, std::size_t bytes, weir::stream_ref on = on_host) {
    for (int i = 0; i < blocks; ++i)
        step(pool, 1, bytes, on);
}

} // namespace

static_assert(marked::thread_safe && marked::default_alignment == 16);

TEST_CASE("watermark: is made from what makes its pool, and from nothing else") {
    using by_reference = weir::layer::watermark<holding_pool&>;
    CHECK(std::is_constructible_v<marked>);
    CHECK(std::is_constructible_v<marked, std::size_t>);
    CHECK(std::is_constructible_v<by_reference, holding_pool&>);
    CHECK_FALSE(std::is_constructible_v<by_reference, holding_pool const&>);
    CHECK_FALSE(std::is_constructible_v<marked, int*, int, int>);
    CHECK_FALSE(std::is_constructible_v<marked, marked&>);
    CHECK_FALSE(std::is_constructible_v<marked, marked>);
}

TEST_CASE("watermark: a need that shrinks gives back, down to the mark and its slack, within three half windows") {
    for (int phase = 0; phase < 10; ++phase) { // wherever in a half window it shrinks
        marked pool;
        one_by_one(pool, phase, 16);
        void* const most = pool.allocate(on_host, 100'000);
        CHECK(pool.reserved_bytes() == 100'000);
        pool.deallocate(on_host, most, 100'000);
        int calls = 0;
        for (; pool.reserved_bytes() == 100'000 && calls < 100; ++calls)
            one_by_one(pool, 1, 8000);
        CHECK(calls <= 30);
        CHECK(calls > 10);
        CHECK(pool.reserved_bytes() == 10'000);
        CHECK(pool.peak_in_use_bytes() == 8000);
        CHECK(pool.given_back_bytes() == 90'000);
        one_by_one(pool, 200, 8000);
        CHECK(pool.inner().trims == 1);
    }
}

TEST_CASE("watermark: the slack is a part of the mark, or so many bytes where that is more") {
    marked pool;
    step(pool, 1, 100'000);
    one_by_one(pool, 30, 800);
    CHECK(pool.reserved_bytes() == 1800);
    marked other;
    step(other, 1, 100'000);
    one_by_one(other, 30, 80'000);
    CHECK(other.reserved_bytes() == 100'000); // all within the slack
    CHECK(other.inner().trims == 0);
    one_by_one(other, 30, 79'984); // and a little more, when slack is a part
    CHECK(other.inner().kept == 79'984 + 79'900 / 4);
}

TEST_CASE("watermark: what is live through many windows stays under the mark") {
    marked pool;
    void* const all_along = pool.allocate(on_host, 50'000);
    step(pool, 1, 100'000);
    one_by_one(pool, 100, 160);
    CHECK(pool.peak_in_use_bytes() == 50'160);
    CHECK(pool.inner().kept == 50'160 + 501 * 25);
    pool.deallocate(on_host, all_along, 50'000);
    one_by_one(pool, 30, 160);
    CHECK(pool.peak_in_use_bytes() == 160);
    CHECK(pool.reserved_bytes() == 1160);
}

TEST_CASE("watermark: blocks count as rounded up to the pool's alignment; nothing, null and refusals count for nothing") {
    marked pool(std::size_t{100'000});
    for (int i = 0; i < 100; ++i) {
        CHECK(pool.allocate(on_host, 0) == nullptr);
        CHECK(pool.try_allocate(on_host, 100'001) == nullptr);
        pool.deallocate(on_host, nullptr, 77);
    }
    CHECK(pool.peak_in_use_bytes() == 0);
    pool.inner().throw_at = 1;
    CHECK_THROWS_AS(static_cast<void>(pool.try_allocate(on_host, 10)), support::pool_failure);
    step(pool, 9, 1);
    CHECK(pool.peak_in_use_bytes() == 0); // no look yet
    one_by_one(pool, 1, 1);
    CHECK(pool.peak_in_use_bytes() == 9 * 16);
}

TEST_CASE("watermark: equal steps no longer than the window give nothing back, wherever looks fall") {
    for (int blocks : {1, 2, 3, 7, 10, 13, 19, 20})
        for (int phase = 0; phase < 10; ++phase) {
            marked pool;
            one_by_one(pool, phase, 16);
            for (int i = 0; i < 50; ++i) {
                CAPTURE(blocks);
                step(pool, blocks, 10'000); // all is free at its end
                REQUIRE(pool.inner().trims == 0);
            }
        }
}

TEST_CASE("watermark: nothing goes back while the need grows, or stays; one fall is one trim") {
    marked pool;
    pool.inner().held = 1'000'000; // more than was ever in use: the growth of the pool, not the program's
    for (std::size_t bytes = 160; bytes < 16'000; bytes += 160)
        one_by_one(pool, 10, bytes);
    CHECK(pool.inner().trims == 0);
    CHECK(pool.reserved_bytes() == 1'000'000);
    for (int i = 0; i < 20; ++i) { // steps longer than the window
        one_by_one(pool, 10, 16'000);
        one_by_one(pool, 40, 160);
    }
    CHECK(pool.inner().trims == 20);
}

TEST_CASE("watermark: what is in flight goes back at a later look, which come less often where they find nothing") {
    marked pool;
    step(pool, 1, 100'000);
    pool.inner().stuck_bytes = 50'000;
    one_by_one(pool, 30, 160);
    CHECK(pool.inner().trims == 1);
    CHECK(pool.reserved_bytes() >= 50'000);
    CHECK(pool.reserved_bytes() < 51'000);
    one_by_one(pool, 5, 160); // the next look
    CHECK(pool.inner().trims == 2);
    pool.inner().stuck_bytes = 0;
    one_by_one(pool, 10, 160); // the next but one: the last one found nothing
    CHECK(pool.inner().trims == 3);
    CHECK(pool.reserved_bytes() == 1160);
    one_by_one(pool, 1000, 160);
    CHECK(pool.inner().trims == 3); // that was all

    step(pool, 1, 100'000);
    pool.inner().stuck_bytes = 100'000;
    pool.inner().held = 200'000;
    one_by_one(pool, 10'000, 160);
    CHECK(pool.inner().trims - 3 > 120);
    CHECK(pool.inner().trims - 3 < 130); // of 2,000 looks
}

TEST_CASE("watermark: what had to be got again after a trim is needed, and is not asked for again") {
    marked pool;
    step(pool, 1, 100'000);
    one_by_one(pool, 25, 160);
    void* const more = pool.allocate(on_host, 320); // such as no free bytes were fit for
    pool.inner().held += 5000;
    pool.deallocate(on_host, more, 320);
    one_by_one(pool, 5, 160);
    CHECK(pool.inner().trims == 1);
    for (int i = 0; i < 100; ++i) {
        pool.inner().held += 5000;
        one_by_one(pool, 10, 160);
    }
    CHECK(pool.inner().trims == 1);
}

TEST_CASE("watermark: a trim that throws is no failure of the allocation, and the next look tries again") {
    marked pool;
    step(pool, 1, 100'000);
    pool.inner().trim_throws = true;
    one_by_one(pool, 60, 160);
    CHECK(pool.inner().trims >= 3);
    CHECK(pool.inner().live_blocks() == 0);
    pool.inner().trim_throws = false;
    one_by_one(pool, 10, 160);
    CHECK(pool.reserved_bytes() == 1160);
}

TEST_CASE("watermark: slack that would pass the number line's end is the end") {
    weir::layer::watermark<holding_pool, endless> pool;
    step(pool, 1, 100'000);
    one_by_one(pool, 100, 160);
    CHECK(pool.inner().trims == 0);
}

namespace {

/// Any thread may use it, and at most one trims.
struct shared_pool : counting_pool<> {
    std::size_t trim(std::size_t keep_bytes = 0) {
        if (trimming.fetch_add(1) != 0)
            wrong.fetch_add(1);
        std::this_thread::yield();
        trims.fetch_add(1);
        held.store(keep_bytes);
        trimming.fetch_sub(1);
        return 0;
    }
    std::size_t reserved_bytes() const { return held.load(); }
    std::atomic<std::size_t> held{SIZE_MAX};
    std::atomic<int> trimming{0}, trims{0}, wrong{0};
};

} // namespace

TEST_CASE("watermark: threads may meet in it, and one trims at a time") {
    weir::layer::watermark<shared_pool, tiny> pool;
    for (int round = 0; round < 20; ++round) {
        step(pool, 1, 100'000);
        pool.inner().held.store(SIZE_MAX / 2);
        std::vector<std::thread> crew;
        for (unsigned t = 0; t < 4; ++t)
            crew.emplace_back([&] { one_by_one(pool, 100, 160); });
        for (std::thread& each : crew)
            each.join();
    }
    CHECK(pool.inner().wrong.load() == 0);
    CHECK(pool.inner().trims.load() >= 20);
    one_by_one(pool, 12, 160);
    CHECK(pool.peak_in_use_bytes() == 160); // nothing that is free stays counted
}

#ifdef WEIR_SIMULATED_CUDA

namespace {

namespace device = simulated_cuda;

/// Calls that map, make, free or wait.
std::uint64_t driver_calls() {
    std::uint64_t sum = 0;
    for (char const* each : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressReserve",
                             "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaMemPoolTrimTo", "cudaMemGetInfo",
                             "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"})
        sum += device::calls(each);
    return sum;
}
/// Calls that wait for work on the device.
std::uint64_t waits() {
    std::uint64_t sum = 0;
    for (char const* each : {"cudaFree", "cudaFreeHost", "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize",
                             "cudaStreamWaitEvent"})
        sum += device::calls(each);
    return sum;
}

using mapped_pool = weir::device_pool;
using allocated_pool =
    weir::pool<weir::upstream::device, weir::recipe::general_placement, weir::reuse::stream_ordered<>, weir::growth::exact>;
using event_pool = weir::pool<weir::upstream::device, weir::recipe::general_placement, weir::reuse::after_event>;

struct eager_tuning : weir::layer::watermark_tuning {
    static constexpr std::size_t allocations_between_looks = 4;
    static constexpr std::size_t looks_in_half_window = 10;
    static constexpr std::size_t slack_bytes = 2 * MiB;
};

/// A step of a program: blocks of many sizes, drawn alike each time, live for a while, all free at its end.
template <class Pool>
void program_step(Pool& pool, weir::stream_ref on) {
    std::mt19937_64 draw(5);
    std::vector<std::pair<void*, std::size_t>> live;
    for (int i = 0; i < 40; ++i) {
        std::size_t const bytes = std::size_t{1} << (8 + draw() % 16);
        live.emplace_back(support::take(pool, on, bytes), bytes);
        CHECK(device::launch(on.get(), {}, {{live.back().first, bytes}}) == cudaSuccess);
        if (draw() % 3 == 0) {
            std::swap(live[draw() % live.size()], live.back());
            support::give(pool, on, live.back().first, live.back().second);
            live.pop_back();
        }
    }
    for (auto const& [p, bytes] : live)
        support::give(pool, on, p, bytes);
}

} // namespace

TEST_CASE_TEMPLATE("watermark: of 1,000 equal steps the second and later make no driver call", Pool,
                   weir::layer::watermark<mapped_pool>, weir::layer::watermark<mapped_pool, eager_tuning>,
                   weir::layer::watermark<allocated_pool, eager_tuning>, weir::layer::watermark<event_pool, eager_tuning>) {
    for (device::config const& schedule : {device::config{}.eager(), device::config{}.late()}) {
        if (schedule.mode == device::schedule::late && std::is_same_v<typename Pool::pool_type, event_pool>)
            continue; // what is in flight is nobody's there, so that later steps need more
        device::world const world(schedule, support::report_all);
        support::scoped_stream const s;
        Pool pool;
        program_step(pool, s);
        std::uint64_t const before = driver_calls();
        for (int i = 0; i < 999; ++i)
            program_step(pool, s);
        CHECK(driver_calls() == before);
        CHECK(pool.given_back_bytes() == 0);
        CHECK(pool.peak_in_use_bytes() > 0);
    }
}

TEST_CASE_TEMPLATE("watermark: a program that shrinks gives a pool's memory back", Pool,
                   weir::layer::watermark<mapped_pool, eager_tuning>, weir::layer::watermark<allocated_pool, eager_tuning>,
                   weir::layer::watermark<event_pool, eager_tuning>, weir::layer::watermark<weir::driver_pool, eager_tuning>) {
    support::every_schedule([] {
        support::scoped_stream const s;
        Pool pool;
        step(pool, 10, 16 * MiB, s);
        weir::check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(pool.reserved_bytes() >= 160 * MiB);
        for (int i = 0; i < 50; ++i) { // a program that waits for its stream now and then
            weir::check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            one_by_one(pool, 4, 1 * MiB, s);
        }
        CHECK(pool.reserved_bytes() <= 40 * MiB); // what the growth rounds up to stays whole
        CHECK(pool.given_back_bytes() >= 120 * MiB);
    });
}

TEST_CASE("watermark: bytes in flight stay, the others go, and nobody waits for the device") {
    device::world const world(device::config{}.eager(), support::report_all);
    support::scoped_stream const s, busy;
    weir::layer::watermark<mapped_pool, eager_tuning> pool;
    device::gate closed;
    void* const held_up = support::take(pool, busy, 64 * MiB);
    CHECK(closed.close(busy) == cudaSuccess);
    CHECK(device::launch(busy, {}, {{held_up, 64 * MiB}}) == cudaSuccess);
    support::give(pool, busy, held_up, 64 * MiB);
    step(pool, 4, 32 * MiB, s);
    weir::check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    std::size_t const most = pool.reserved_bytes();
    std::uint64_t const before = waits();
    one_by_one(pool, 200, 1 * MiB, s);
    CHECK(waits() == before); // a wait for the gate would never end
    CHECK(pool.reserved_bytes() <= most - 100 * MiB);
    CHECK(pool.reserved_bytes() >= 64 * MiB);
    closed.open(); // the kernel's bytes are still there, or it is reported
    weir::check(cudaStreamSynchronize(busy), "cudaStreamSynchronize");
    one_by_one(pool, 4000, 1 * MiB, s);
    CHECK(pool.reserved_bytes() <= 40 * MiB);
}

TEST_CASE_TEMPLATE("watermark: a trim while a stream is captured breaks no capture", Pool,
                   weir::layer::watermark<mapped_pool, eager_tuning>, weir::layer::watermark<allocated_pool, eager_tuning>,
                   weir::layer::watermark<event_pool, eager_tuning>, weir::layer::watermark<weir::pinned_pool, eager_tuning>,
                   weir::layer::watermark<weir::managed_pool, eager_tuning>,
                   weir::layer::watermark<weir::driver_pool, eager_tuning>) {
    for (auto const mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed})
        support::every_schedule([&] {
            support::scoped_stream const s, captured;
            Pool pool;
            step(pool, 4, 32 * MiB, s);
            weir::check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            one_by_one(pool, 60, 1 * MiB, s);
            CHECK(pool.given_back_bytes() == 0);
            weir::check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            support::capture here(captured, mode);
            one_by_one(pool, 80, 1 * MiB, s);
            CHECK(here.unbroken());
            CHECK(pool.given_back_bytes() > 0);
        });
}

TEST_CASE("watermark: whatever call of CUDA's fails in a trim, the block is handed out, and a later trim does it") {
    using pool_type = weir::layer::watermark<mapped_pool, eager_tuning>;
    struct scene {
        support::scoped_stream s;
        std::unique_ptr<pool_type> pool = std::make_unique<pool_type>();
        void* got = nullptr;
        scene() {
            step(*pool, 4, 32 * MiB, s);
            weir::check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            one_by_one(*pool, 115, 1 * MiB, s);
            weir::check(cudaStreamSynchronize(s), "cudaStreamSynchronize"); // the next allocation trims
        }
    };
    std::uint64_t const runs = support::fault_sweep([] { return std::make_unique<scene>(); },
                                                    [](scene& x) { x.got = support::try_take(*x.pool, x.s, 1 * MiB); },
                                                    [](scene& x, support::struck const& fault) {
                                                        CHECK(fault.threw == (x.got == nullptr));
                                                        CHECK(x.pool->state().live_blocks == (x.got ? 1 : 0));
                                                        if (x.got)
                                                            support::give(*x.pool, x.s, x.got, 1 * MiB);
                                                        for (int i = 0; i < 100; ++i) {
                                                            one_by_one(*x.pool, 4, 1 * MiB, x.s);
                                                            weir::check(cudaStreamSynchronize(x.s), "cudaStreamSynchronize");
                                                        }
                                                        CHECK(x.pool->reserved_bytes() <= 40 * MiB);
                                                    });
    CHECK(runs > 5);
}

#endif

TEST_CASE("watermark: frees that were none do not end it") {
    using guarded = weir::layer::watermark<weir::layer::guard<weir::host_pool>, small>;
    guarded pool;
    pool.inner().on_violation([](char const*) {});
    void* const p = pool.allocate(on_host, 100'000);
    pool.deallocate(on_host, p, 100'000);
    pool.deallocate(on_host, p, 100'000); // refused below
    step(pool, 20, 100'000);
    one_by_one(pool, 200, 1000);
    CHECK(pool.peak_in_use_bytes() <= 10'000);
    CHECK(pool.given_back_bytes() > 0);
}
