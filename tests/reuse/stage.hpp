// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do the tests of reuse rules stand on?
//
// A pool whose hand-outs and frees are noted, so that the simulated device reports a wrong reuse at the operation that
// did it; streams that end with their scope; and a count of the CUDA calls that a piece of code makes, which tells the
// rung of the ladder that gave the bytes.

#ifdef WEIR_SIMULATED_CUDA

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <simulated_cuda/simulated_cuda.hpp>
#include <support/every_schedule.hpp>
#include <utility>
#include <vector>
#include <weir/base/size.hpp>
#include <weir/growth/exact.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/managed.hpp>
#include <weir/upstream/pinned.hpp>

namespace stage {

namespace device = simulated_cuda;
using weir::KiB;
using weir::MiB;

/// Small blocks in slabs, larger ones by best fit; and best fit alone, where every block is the bytes themselves.
/// A limit stands for all the memory that there is, so the first neither squeezes nor knows of limits.
class sized : public weir::placement::by_size<64 * KiB, weir::placement::bins<>, weir::placement::best_fit<>> {
public:
    sized() = default;
    sized sibling() const { return sized(by_size::sibling()); }
    void absorb(sized& other) { by_size::absorb(other); }
    void expect_at_most(std::size_t) noexcept {}

private:
    explicit sized(by_size&& empty) : by_size(std::move(empty)) {}
    using by_size::squeeze;
};
using fitted = weir::placement::best_fit<>;

/// Every free records its event at once: nothing stays open.
struct closing : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 1;
    static constexpr std::size_t recent_bytes = 0;
};

/// Streams keep what they free from their first free on.
struct grown_up : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned young_frees = 0;
};

using weir::handover::grow_first;
using weir::handover::wait_first;
using weir::identity::checked;
using weir::identity::promised;
using weir::reuse::stream_ordered;

/// Chunks of just what is needed, in whole pages of 2 MiB.
template <class Reuse, class Placement = fitted, class Upstream = weir::upstream::device>
using pool_of = weir::pool<Upstream, Placement, Reuse, weir::growth::exact>;

/// A world under one schedule; what it reports fails the test.
struct world : device::world {
    explicit world(device::config const& settings = device::config{}.late())
        : device::world(settings, support::report_all) {}
};

/// A stream for the life of a scope, or until 'destroy'.
class stream {
public:
    explicit stream(unsigned flags = cudaStreamNonBlocking) {
        REQUIRE(cudaStreamCreateWithFlags(&stream_, flags) == cudaSuccess);
    }
    stream(stream const&) = delete;
    stream& operator=(stream const&) = delete;
    ~stream() { destroy(); }
    void destroy() {
        if (stream_)
            CHECK(cudaStreamDestroy(std::exchange(stream_, nullptr)) == cudaSuccess);
    }
    /// Owns another stream instead.
    void reset(cudaStream_t other) {
        destroy();
        stream_ = other;
    }
    operator cudaStream_t() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

/// A pool whose hand-outs are noted.
template <class Pool>
class watched {
public:
    template <class... Arguments>
    explicit watched(Arguments&&... arguments) : pool_(std::forward<Arguments>(arguments)...) {}
    static watched limited(std::size_t bytes) { return watched(weir::pool_options{}.limit(bytes)); }

    void* try_allocate(weir::stream_ref on, std::size_t bytes, std::size_t alignment = Pool::default_alignment) {
        void* const p = pool_.try_allocate(on, bytes, alignment);
        if (p && on.is_host())
            device::note_allocate_host(p, bytes);
        else if (p)
            device::note_allocate(p, bytes, on.get());
        return p;
    }
    void* allocate(weir::stream_ref on, std::size_t bytes, std::size_t alignment = Pool::default_alignment) {
        void* const p = try_allocate(on, bytes, alignment);
        REQUIRE(p != nullptr);
        return p;
    }
    /// The same, and a kernel that writes the block.
    void* write(cudaStream_t on, std::size_t bytes) {
        void* const p = allocate(on, bytes);
        CHECK(device::launch(on, {}, {{p, bytes}}) == cudaSuccess);
        return p;
    }
    void deallocate(weir::stream_ref on, void* p, std::size_t bytes, std::size_t alignment = Pool::default_alignment) {
        if (on.is_host())
            device::note_free_host(p, bytes);
        else
            device::note_free(p, bytes, on.get());
        pool_.deallocate(on, p, bytes, alignment);
    }
    Pool* operator->() noexcept { return &pool_; }
    Pool& operator*() noexcept { return pool_; }

private:
    Pool pool_;
};

/// CUDA calls since construction.
class tally {
public:
    std::uint64_t of(char const* function) const {
        for (std::size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
            if (std::string(names[i]) == function)
                return device::calls(function) - before_[i];
        FAIL("no such name: " << function);
        return 0;
    }
    std::uint64_t chunks() const { return of("cudaMalloc"); }
    /// Waits for the device, and chunks that went back.
    std::uint64_t device_waits() const { return of("cudaDeviceSynchronize") + of("cudaFree"); }
    std::uint64_t waits() const { return of("cudaStreamWaitEvent"); }
    std::uint64_t records() const { return of("cudaEventRecord"); }
    std::uint64_t queries() const { return of("cudaEventQuery"); }
    /// Calls that make the host wait.
    std::uint64_t host_waits() const {
        return of("cudaEventSynchronize") + device_waits() + of("cudaStreamSynchronize");
    }

private:
    static constexpr char const* names[] = {
        "cudaMalloc",           "cudaFree",          "cudaStreamWaitEvent",   "cudaEventRecord",
        "cudaEventQuery",       "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaStreamSynchronize",
        "cudaStreamGetId",      "cudaStreamGetDevice",  "cudaStreamIsCapturing"};
    std::vector<std::uint64_t> before_ = [] {
        std::vector<std::uint64_t> counts;
        for (char const* each : names)
            counts.push_back(device::calls(each));
        return counts;
    }();
};

/// All blocks of a watched pool are back: so are its chunks.
template <class Pool>
void check_all_returns(Pool& pool) {
    pool->settle();
    pool->trim();
    CHECK(pool->reserved_bytes() == 0);
    CHECK(pool->state().live_blocks == 0);
}

/// One thread waits at the limit for a stream that goes on when another thread, which wants memory too, opens its gate.
/// 'also(pool)' runs in a third thread.
template <class Pool, class Also>
void check_waits_in_nobodys_way(std::uint64_t seed, Also const& also) {
    CAPTURE(seed);
    world const here(device::config{}.random(seed));
    stream a, b, c;
    auto pool = watched<Pool>::limited(6 * MiB);
    device::gate gate;
    void* const p = pool.write(a, 4 * MiB);
    CHECK(gate.close(a) == cudaSuccess);
    pool.deallocate(a, p, 4 * MiB);
    device::run_threads({[&] {
                             void* const q = pool.write(b, 6 * MiB);
                             pool.deallocate(b, q, 6 * MiB);
                         },
                         [&] { also(pool); },
                         [&] {
                             device::yield();
                             if (void* const q = pool.try_allocate(c, 2 * MiB))
                                 pool.deallocate(c, q, 2 * MiB);
                             static_cast<void>(pool->state());
                             gate.open();
                         }});
    check_all_returns(pool);
}

} // namespace stage

#endif
