// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Small programs, and all that can happen to them: every sequence of a few operations on two streams, with the work run
// early, late and at random; and for a few programs every order in which the device and the threads may go on, until
// all were tried or a bound is reached. What goes wrong with a handful of operations is found here whatever a seed
// would have chosen.

#include <cstdlib>
#include <doctest/doctest.h>
#include <reuse/stage.hpp>
#include <set>
#include <string>
#include <support/sanitized.hpp>
#include <utility>
#include <vector>

namespace {

namespace device = simulated_cuda;
using namespace stage;

bool quick() { return support::sanitized || std::getenv("WEIR_QUICK"); }
std::uint64_t bounded(std::uint64_t runs) { return quick() ? runs / 10 : runs; }

/// A block of one of two streams.
struct held {
    void* p;
    std::size_t bytes;
    std::size_t on;
};

/// The operations that the digits of `code` say, the first a hand-out. False: an operation has nothing to work on.
template <class Pool>
bool run_program(std::size_t code, std::size_t steps, std::size_t& reuses) {
    constexpr std::size_t sizes[] = {1 * MiB, 2 * MiB};
    stream streams[2];
    {
        watched<Pool> pool(weir::pool_options{}.limit(4 * MiB).on_leak(weir::leak_action::ignore));
        std::vector<held> live;
        std::set<void*> places;
        for (std::size_t step = 0; step < steps; ++step) {
            std::size_t const what = code % 8;
            std::size_t const on = what % 2;
            code /= 8;
            if (what >= 4 && live.empty())
                return false;
            if (what < 4) { // allocate and write
                std::size_t const bytes = sizes[what / 2];
                if (void* const p = pool.try_allocate(streams[on], bytes)) {
                    reuses += !places.insert(p).second;
                    device::launch(streams[on], {}, {{p, bytes}});
                    live.push_back({p, bytes, on});
                }
            } else if (what == 4) { // free
                pool.deallocate(streams[live.back().on], live.back().p, live.back().bytes);
                live.pop_back();
            } else if (what == 5) { // use on the other stream as well, and free at once
                held const last = live.back();
                live.pop_back();
                cudaEvent_t written = nullptr;
                cudaEventCreateWithFlags(&written, cudaEventDisableTiming);
                cudaEventRecord(written, streams[last.on]);
                cudaStreamWaitEvent(streams[1 - last.on], written, 0);
                cudaEventDestroy(written);
                bool const marks = step % 2 == 0; // before the launch, or is told of it behind it
                if (marks)
                    pool->used_on(last.p, streams[1 - last.on]);
                device::launch(streams[1 - last.on], {{last.p, last.bytes}}, {});
                if (!marks)
                    pool->last_used_on(last.p, streams[1 - last.on]);
                pool.deallocate(streams[last.on], last.p, last.bytes);
            } else if (what == 6) { // the stream ends, another begins under its handle
                std::size_t const which = live.back().on;
                for (held const& each : live)
                    if (each.on == which)
                        pool.deallocate(streams[which], each.p, each.bytes);
                std::vector<held> others;
                for (held const& each : live)
                    if (each.on != which)
                        others.push_back(each);
                live = others;
                cudaStream_t fresh = nullptr;
                streams[which].destroy();
                cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking);
                streams[which].reset(fresh);
            } else {
                pool->trim();
            }
        }
        for (held const& each : live)
            pool.deallocate(streams[each.on], each.p, each.bytes);
        pool->settle();
        pool->trim();
        CHECK(pool->reserved_bytes() == 0);
    }
    return true;
}

template <class Body>
std::uint64_t explore(std::uint64_t bound, Body const& body) {
    device::config settings;
    settings.log = true;
    std::uint64_t const runs = device::explore(settings, bounded(bound), body);
    std::string text;
    for (device::report const& each : device::reports())
        text += each.sentence + "\n";
    CHECK_MESSAGE(text.empty(), text, device::log());
    CHECK(runs > 100);
    device::reset();
    return runs;
}

} // namespace

TEST_CASE_TEMPLATE("explore: every program of five operations", Pool, pool_of<stream_ordered<checked, grow_first, closing>>,
                   pool_of<stream_ordered<checked, wait_first, closing>>, pool_of<stream_ordered<checked>, sized>,
                   pool_of<weir::reuse::after_event>) {
    std::size_t const steps = quick() ? 4 : 5;
    std::size_t codes = 1;
    for (std::size_t step = 0; step < steps; ++step)
        codes *= 8;
    std::size_t programs = 0;
    std::size_t reuses = 0; // of a block's place
    for (std::size_t code = 0; code < codes; ++code) {
        if (code % 8 >= 4)
            continue;
        CAPTURE(code);
        device::config const settings = code / 8 % 3 == 0   ? device::config{}.late()
                                        : code / 8 % 3 == 1 ? device::config{}.random(code)
                                                            : device::config{}.eager();
        device::world const world(settings, support::report_all);
        programs += run_program<Pool>(code, steps, reuses);
    }
    CHECK(programs > codes / 4);
    CHECK(reuses > programs / 10);
}

TEST_CASE_TEMPLATE("explore: two moves of a block, in every order", Pool,
                   pool_of<stream_ordered<checked, wait_first, closing>>,
                   pool_of<stream_ordered<checked, wait_first, closing>, sized>) {
    for (std::size_t const bytes : {4 * KiB, 2 * MiB})
        explore(20000, [&] {
            stream a, b;
            watched<Pool> pool(weir::pool_options{}.limit(2 * MiB));
            for (cudaStream_t on : {static_cast<cudaStream_t>(a), static_cast<cudaStream_t>(b),
                                    static_cast<cudaStream_t>(a)}) {
                void* const p = pool.try_allocate(on, bytes);
                CHECK(p != nullptr);
                device::launch(on, {}, {{p, bytes}});
                pool.deallocate(on, p, bytes);
            }
        });
}

TEST_CASE_TEMPLATE("explore: two threads, a block freed by one and taken by the other", Pool,
                   pool_of<stream_ordered<checked, grow_first, closing>>, pool_of<stream_ordered<checked>, sized>,
                   pool_of<weir::reuse::after_event>) {
    std::uint64_t taken = 0; // of the one block
    std::uint64_t const runs = explore(3000, [&] {
        stream a, b;
        watched<Pool> pool(weir::pool_options{}.limit(2 * MiB));
        auto const loop = [&](cudaStream_t on) {
            if (void* const p = pool.try_allocate(on, 2 * MiB)) {
                ++taken;
                device::launch(on, {}, {{p, 2 * MiB}});
                pool.deallocate(on, p, 2 * MiB);
            }
        };
        device::run_threads({[&] { loop(a), loop(a); }, [&] { loop(b); }});
    });
    CHECK(taken > 2 * runs);
}

#endif
