// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Small programs over whole pools: what the simulated device has to say of every hand-out, and nobody is refused what is
// there, however the turns fall.

#include "device.hpp"

#ifdef WEIR_SIMULATED_CUDA

#include <cstddef>
#include <type_traits>
#include <weir/base/size.hpp>
#include <weir/driver/driver_pool.hpp>
#include <weir/growth/exact.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/pool/pool.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/reuse/tuning.hpp>
#include <weir/upstream/device.hpp>

using interleavings::explore_on_device;
using interleavings::plan;
using interleavings::require;
using interleavings::stream;
using interleavings::threads;
using weir::KiB;
using weir::MiB;
namespace device = simulated_cuda;

namespace {

/// Every free records its event at once.
struct closing : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 1;
    static constexpr std::size_t recent_bytes = 0;
    static constexpr std::size_t gather_bytes = 2 * MiB;
    static constexpr std::size_t aside_bytes = 512 * KiB;
};

/// The same, where blocks of another's slabs come before a slab.
struct splintering : closing {
    static constexpr std::size_t splinter_bytes = 4 * KiB;
};

/// Streams keep what they free.
struct keeping : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned young_frees = 0;
    static constexpr std::size_t gather_bytes = 2 * MiB;
    static constexpr std::size_t aside_bytes = 512 * KiB;
};

using weir::handover::grow_first;
using weir::handover::wait_first;
using weir::identity::checked;
template <class Reuse, class Placement = weir::placement::best_fit<>>
using pool_of = weir::pool<weir::upstream::device, Placement, Reuse, weir::growth::exact>;
using sized = weir::placement::by_size<64 * KiB, weir::placement::bins<>, weir::placement::best_fit<>>;

using open_pool = pool_of<weir::reuse::stream_ordered<checked, grow_first, keeping>>;
using closed_pool = pool_of<weir::reuse::stream_ordered<checked, grow_first, closing>>;
using waiting_pool = pool_of<weir::reuse::stream_ordered<checked, wait_first, closing>>;
using sized_pool = pool_of<weir::reuse::stream_ordered<checked, wait_first, closing>, sized>;
using splintered_pool = pool_of<weir::reuse::stream_ordered<checked, wait_first, splintering>, sized>;
using closed_sized_pool = pool_of<weir::reuse::stream_ordered<checked, grow_first, closing>, sized>;
using event_pool = pool_of<weir::reuse::after_event>;

/// A pool whose hand-outs the simulated device knows, and the blocks' kernels.
template <class Pool>
class watched {
public:
    explicit watched(std::size_t limit_bytes)
        : pool(weir::pool_options{}.limit(limit_bytes).on_leak(weir::leak_action::ignore)) {}
    void* write(cudaStream_t on, std::size_t bytes) {
        void* const p = pool.try_allocate(on, bytes);
        if (!p)
            return nullptr;
        device::note_allocate(p, bytes, on);
        require(device::launch(on, {}, {{p, bytes}}) == cudaSuccess, "a kernel cannot be launched");
        return p;
    }
    void give(cudaStream_t on, void* p, std::size_t bytes) {
        device::note_free(p, bytes, on);
        pool.deallocate(on, p, bytes);
    }
    /// Writes a block and gives it back.
    void once(cudaStream_t on, std::size_t bytes) {
        void* const p = write(on, bytes);
        require(p != nullptr, "an allocation is refused while there is room");
        give(on, p, bytes);
    }
    /// Everything was given back: all of it goes to the driver.
    void end() {
        require(pool.in_use_bytes() == 0, "blocks are counted that nobody has");
        pool.settle();
        pool.trim();
        require(pool.reserved_bytes() == 0, "bytes are lost");
    }
    Pool pool;
};

constexpr plan few{2, 5'000};

} // namespace

TEST_CASE_TEMPLATE("interleavings: two threads share a stream", Pool, open_pool, closed_pool, sized_pool, event_pool) {
    explore_on_device(
        [] {
            stream const a;
            watched<Pool> pool(4 * MiB);
            pool.once(a, 2 * KiB);
            threads([&] { pool.once(a, 2 * KiB), pool.once(a, 4 * KiB); }, [&] { pool.once(a, 2 * KiB); });
            pool.end();
        },
        few);
}

TEST_CASE_TEMPLATE("interleavings: a block freed by one stream and wanted by another", Pool, open_pool, closed_pool,
                   waiting_pool, event_pool) {
    explore_on_device(
        [] {
            stream const a, b;
            watched<Pool> pool(2 * MiB);
            void* const p = pool.write(a, 1 * MiB);
            threads([&] { pool.give(a, p, 1 * MiB), pool.once(a, 512 * KiB); }, [&] { pool.once(b, 1 * MiB); });
            pool.end();
        },
        few);
}

TEST_CASE_TEMPLATE("interleavings: a stream ends and its handle comes back while another takes its bytes", Pool, open_pool,
                   closed_pool, event_pool) {
    explore_on_device(
        [] {
            stream a;
            stream const b;
            watched<Pool> pool(2 * MiB);
            pool.once(a, 1 * MiB);
            threads(
                [&] {
                    a.again();
                    pool.once(a, 1 * MiB);
                },
                [&] { pool.once(b, 1 * MiB); });
            pool.end();
        },
        std::is_same_v<Pool, closed_pool> ? plan{1, 10'000} : few); // a climb to the limit: with two, 150,000
}

TEST_CASE_TEMPLATE("interleavings: a block that a second stream uses", Pool, open_pool, waiting_pool, event_pool) {
    explore_on_device(
        [] {
            stream const a, b;
            watched<Pool> pool(2 * MiB);
            void* const p = pool.write(a, 1 * MiB);
            static_cast<void>(cudaStreamSynchronize(a));
            threads(
                [&] {
                    pool.pool.used_on(p, b);
                    require(device::launch(b, {{p, 1 * MiB}}, {}) == cudaSuccess, "a kernel cannot be launched");
                    pool.give(a, p, 1 * MiB);
                },
                [&] { pool.once(a, 1 * MiB); });
            pool.end();
        },
        few);
}

TEST_CASE_TEMPLATE("interleavings: large blocks are gathered from several streams, and nobody is refused", Pool, open_pool,
                   waiting_pool) {
    explore_on_device(
        [] {
            stream const a, b;
            watched<Pool> pool(8 * MiB);
            pool.once(a, 8 * MiB); // one chunk, of which each stream has a half now
            void* const p = pool.write(a, 4 * MiB);
            void* const q = pool.write(b, 4 * MiB);
            pool.give(a, p, 4 * MiB);
            pool.give(b, q, 4 * MiB);
            if (interleavings::choose(2) == 0)
                pool.pool.settle();
            threads([&] { pool.once(a, 4 * MiB); }, [&] { pool.once(b, 4 * MiB); });
            pool.end();
        },
        few);
}

TEST_CASE_TEMPLATE("interleavings: bytes are set aside while their stream goes on, another wants them and a third settles",
                   Pool, closed_pool, closed_sized_pool) {
    explore_on_device(
        [] {
            stream const a, b;
            watched<Pool> pool(6 * MiB);
            pool.once(a, 2 * MiB);
            pool.once(b, 1 * MiB); // grows, and 'a' has bytes aside from now on
            threads([&] { pool.once(a, 1 * MiB), pool.once(a, 1 * MiB); }, [&] { pool.once(b, 2 * MiB); },
                    [&] { pool.pool.settle(); });
            pool.end();
        },
        plan{1, 5'000});
}

TEST_CASE_TEMPLATE("interleavings: two streams want small blocks of the last slab, and nobody is refused", Pool, sized_pool,
                   splintered_pool) {
    explore_on_device(
        [] {
            stream const a, b, c;
            watched<Pool> pool(2 * MiB);
            std::size_t const all_but_a_slab = 2 * MiB - 32 * KiB;
            void* const p = pool.write(a, all_but_a_slab);
            pool.once(a, 2 * KiB);
            void* const kept = interleavings::choose(2) == 0 ? nullptr : pool.write(a, 2 * KiB); // blocks, not the slab, are wanted
            pool.pool.settle();
            threads([&] { pool.once(b, 2 * KiB); }, [&] { pool.once(c, 2 * KiB); });
            if (kept)
                pool.give(a, kept, 2 * KiB);
            pool.give(a, p, all_but_a_slab);
            pool.end();
        },
        few);
}

TEST_CASE_TEMPLATE("interleavings: one thread settles and trims what others use", Pool, open_pool, sized_pool, event_pool) {
    explore_on_device(
        [] {
            stream const a, b;
            watched<Pool> pool(6 * MiB);
            pool.once(a, 2 * MiB);
            threads([&] { pool.once(b, 2 * MiB); },
                    [&] {
                        pool.pool.settle();
                        pool.pool.trim();
                        require(pool.pool.state().live_blocks <= 1, "blocks are counted that nobody has");
                    });
            pool.end();
        },
        few);
}

TEST_CASE("interleavings: driver_pool: its blocks are counted, whoever takes them") {
    explore_on_device(
        [] {
            stream const a;
            weir::driver_pool pool;
            auto const once = [&] {
                void* const p = pool.try_allocate(a, 2 * MiB);
                require(p != nullptr, "an allocation is refused while there is room");
                std::size_t const blocks = pool.state().live_blocks;
                require(blocks >= 1 && blocks <= 2, "a count of blocks that never was");
                pool.deallocate(a, p, 2 * MiB);
            };
            threads(once, once);
            require(pool.state().live_blocks == 0, "blocks are counted that nobody has");
        },
        few);
}

#endif
