// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A layer on a pool is a pool: it does what every pool must do. A new layer adds a line. Then each CUDA call under a
// layer is made to fail, and the layer's own counts must be right.

#include "pool_subject.hpp"
#include <support/fault_sweep.hpp>
#include <weir/growth/exact.hpp>
#include <weir/layer/failure_handler.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/record.hpp>
#include <weir/layer/sized.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/layer/watch.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/trace/watch_board.hpp>
#include <weir/upstream/from_pool.hpp>

namespace pool_contract {
namespace layer = weir::layer;

using unguarded = weir::pool<weir::upstream::device, weir::recipes::general_placement, weir::reuse::stream_ordered<>>;
using pinned = weir::pool<weir::upstream::pinned<>, weir::recipes::general_placement, weir::reuse::after_event>;
using counted = layer::statistics<weir::device_pool>;
using limited = layer::limit<weir::pinned_pool>;
using guarded = layer::guard<unguarded>;
using noted = layer::sized<weir::device_pool>;
using shared_heap = layer::synchronized<weir::host_pool>;
using spilling = layer::fallback<unguarded, pinned>;
using tower = layer::statistics<layer::limit<layer::guard<layer::fallback<unguarded, weir::driver_pool>>>>;
using visitor = layer::statistics<unguarded&>;
using recorded = layer::record<weir::device_pool>;
using watched = layer::watch<weir::device_pool>;

// Asks for two more tries and frees nothing: what the pool refuses, the layer does.
struct persistent {
    bool operator()(weir::failed_allocation const& failed) const { return failed.attempt < 2; }
};
using handled = layer::failure_handler<weir::device_pool, persistent>;

struct any_bounds {
    static constexpr std::size_t largest_bytes = SIZE_MAX;
    static constexpr std::size_t largest_alignment = SIZE_MAX / 2 + 1;
    static constexpr bool frees = true;
};

inline weir::driver_pool_options driver_limit(std::size_t bytes) {
    weir::driver_pool_options options;
    options.limit(bytes);
    return options;
}

template <>
struct subject<limited> : any_bounds {
    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(SIZE_MAX, weir::pool_options{}.limit(limit_bytes)) {}
    limited pool{SIZE_MAX, weir::pool_options{}.name("subject")};
};
template <>
struct subject<handled> : any_bounds {
    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(persistent{}, weir::pool_options{}.limit(limit_bytes)) {}
    handled pool{persistent{}, weir::pool_options{}.name("subject")};
};
template <>
struct subject<spilling> : any_bounds {
    subject() : pool(weir::pool_options{}, weir::pool_options{}) {}
    explicit subject(std::size_t limit_bytes)
        : pool(weir::pool_options{}.limit(limit_bytes / 2), weir::pool_options{}.limit(limit_bytes - limit_bytes / 2)) {}
    spilling pool;
};
template <>
struct subject<tower> : any_bounds {
    subject() : pool(SIZE_MAX, weir::pool_options{}, weir::driver_pool_options{}) {}
    explicit subject(std::size_t limit_bytes)
        : pool(limit_bytes, weir::pool_options{}.limit(limit_bytes / 2), driver_limit(limit_bytes / 2)) {}
    tower pool;
};
template <>
struct subject<recorded> : any_bounds {
    subject() { tape.start(); }
    explicit subject(std::size_t limit_bytes) : pool(tape, weir::pool_options{}.limit(limit_bytes)) { tape.start(); }
    weir::trace::recorder tape{1000};
    recorded pool{tape, weir::pool_options{}.name("subject")};
};
template <>
struct subject<watched> : any_bounds {
    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(board, weir::pool_options{}.limit(limit_bytes)) {}
    weir::trace::watch_board board;
    watched pool{board, weir::pool_options{}.name("subject")};
};
template <>
struct subject<visitor> : any_bounds {
    subject() = default;
    explicit subject(std::size_t limit_bytes) : below(weir::pool_options{}.limit(limit_bytes)) {}
    unguarded below;
    visitor pool{below};
};

} // namespace pool_contract

#define WEIR_TEST_POOLS                                                                                                \
    pool_contract::counted, pool_contract::limited, pool_contract::guarded, pool_contract::shared_heap,                \
        pool_contract::noted, pool_contract::spilling, pool_contract::tower, pool_contract::visitor, pool_contract::handled, \
        pool_contract::recorded, pool_contract::watched

#include "pool_suite.hpp"

namespace {

void no_complaint(char const* sentence) { FAIL_CHECK(sentence); }

struct faulty {
    support::scoped_stream a, b;
    std::unique_ptr<tower> pool = std::make_unique<tower>(60 * MiB, weir::pool_options{}.limit(32 * MiB),
                                                          weir::driver_pool_options{});
    void* held = pool->allocate(a, 1000);
    void* got = nullptr;

    faulty() { pool->inner().inner().on_violation(&no_complaint); }
    ~faulty() {
        if (held)
            pool->deallocate(a, held, 1000);
        pool->settle();
    }
};

void is_sound(faulty& x, std::size_t blocks, std::size_t bytes) {
    CHECK(x.pool->live_blocks() == blocks);
    CHECK(x.pool->requested_bytes() == bytes);
    CHECK(x.pool->inner().requested_bytes() == bytes);
    CHECK(x.pool->inner().inner().inner().first().state().live_blocks +
              x.pool->inner().inner().inner().second().state().live_blocks ==
          blocks);
    void* const p = x.pool->allocate(x.b, 5000);
    x.pool->deallocate(x.b, p, 5000);
    CHECK(x.pool->live_blocks() == blocks);
}

} // namespace

TEST_CASE("layer contract: whatever call fails below, every layer's counts are right, and the error names the call") {
    auto const prepare = [] { return std::make_unique<faulty>(); };
    std::uint64_t runs = 0;
    for (std::size_t bytes : {std::size_t{100}, 20 * MiB, 40 * MiB, 70 * MiB}) // first, first, second, none
        runs += support::fault_sweep(prepare, [&](faulty& x) { x.got = x.pool->try_allocate(x.b, bytes); },
                                     [&](faulty& x, support::struck const& fault) {
                                         CHECK((!fault.threw || x.got == nullptr));
                                         is_sound(x, x.got ? 2 : 1, x.got ? bytes + 1000 : 1000);
                                         if (x.got)
                                             x.pool->deallocate(x.b, x.got, bytes);
                                         is_sound(x, 1, 1000);
                                     });
    runs += support::fault_sweep(prepare, [](faulty& x) { x.pool->deallocate(x.b, std::exchange(x.held, nullptr), 1000); },
                                 [](faulty& x, support::struck const& fault) {
                                     CHECK_FALSE(fault.threw);
                                     is_sound(x, 0, 0);
                                 });
    runs += support::fault_sweep(prepare, [](faulty& x) { x.pool->used_on(x.held, x.b); },
                                 [](faulty& x, support::struck const& fault) {
                                     CHECK(fault.threw == !fault.calls.empty());
                                     is_sound(x, 1, 1000);
                                 });
    runs += support::fault_sweep(prepare,
                                 [](faulty& x) {
                                     x.pool->settle();
                                     x.pool->trim();
                                 },
                                 [](faulty& x, support::struck const&) { is_sound(x, 1, 1000); });
    runs += support::fault_sweep(prepare, [](faulty& x) { static_cast<void>(x.pool->report()); },
                                 [](faulty& x, support::struck const&) { is_sound(x, 1, 1000); });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs > 60);
#endif
    static_cast<void>(runs);
}

TEST_CASE("layer contract: a tower of layers says which part refused and why") {
    support::every_schedule([] {
        support::scoped_stream const s;
        tower pool(60 * MiB, weir::pool_options{}.limit(32 * MiB).name("first"), driver_limit(32 * MiB));
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(s, 61 * MiB)); }),
                   "layer::limit allows 62914560 bytes (60 MiB) at a time, and its pool 'first, then driver' (0 B in use, 0 B "
                   "reserved, limit 64 MiB) refuses: first: it needs a chunk of "); // no limit is to be raised in vain
        std::string const both =
            support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(s, 50 * MiB)); });
        CHECK_SAYS(both, "pool 'first, then driver' cannot hand out 52428800 bytes (50 MiB): first: it needs a chunk of 52428800 bytes "
                         "(50 MiB), more than the pool's limit of 33554432 bytes (32 MiB); ask for less or raise the pool's limit; then: CUDA's memory pool "
                         "found no 52428800 bytes (50 MiB)");
        CHECK(pool.failures() == 2);
        CHECK(pool.requested_bytes() == 0);
        void* const p = pool.allocate(s, 20 * MiB);
        void* const q = pool.allocate(s, 20 * MiB);
        CHECK(pool.inner().inner().inner().first().owns(p));
        CHECK_FALSE(pool.inner().inner().inner().first().owns(q));
        CHECK(pool.peak_requested_bytes() == 40 * MiB);
        pool.deallocate(s, p, 20 * MiB);
        pool.deallocate(s, q, 20 * MiB);
    });
}

TEST_CASE("layer contract: one pool, many layers on it, and each counts its own") {
    support::every_schedule([] {
        support::scoped_stream const s;
        unguarded below;
        layer::statistics<unguarded&> one(below), other(below);
        layer::limit<unguarded&> third(1000, below);
        void* const p = one.allocate(s, 100);
        void* const q = other.allocate(s, 200);
        void* const r = third.allocate(s, 1000);
        CHECK(third.try_allocate(s, 1) == nullptr);
        CHECK(one.requested_bytes() == 100);
        CHECK(other.requested_bytes() == 200);
        CHECK(below.state().live_blocks == 3);
        CHECK(one.report() == other.report());
        one.deallocate(s, p, 100);
        other.deallocate(s, q, 200);
        third.deallocate(s, r, 1000);
        CHECK(below.state().live_blocks == 0);
        CHECK(one.requested_bytes() + other.requested_bytes() + third.requested_bytes() == 0);
    });
}

TEST_CASE("layer contract: a request's arena draws on its tenant, and that on the card; scopes and counts work through layers") {
    support::every_schedule([] {
        support::scoped_stream const s;
        unguarded card(weir::pool_options{}.limit(24 * MiB).name("card"));
        using tenant = layer::limit<layer::statistics<unguarded&>>;
        tenant a(weir::layer_options{}.name("tenant a"), 16 * MiB, card), b(weir::layer_options{}.name("tenant b"), 16 * MiB, card);
        using chunks = weir::upstream::from_pool<tenant>;
        using arena = weir::pool<chunks, weir::placement::arena, weir::reuse::immediate, weir::growth::exact>;
        layer::statistics<layer::limit<arena>> request(14 * MiB, chunks(a, s), weir::pool_options{}.name("request"));
        void* const whole = request.allocate(s, 1 * MiB);
        {
            weir::scope const frame(request);
            for (int i = 0; i < 3; ++i)
                CHECK(request.try_allocate(s, 3 * MiB) != nullptr);
            CHECK(request.requested_bytes() == 10 * MiB);
            CHECK(request.inner().requested_bytes() == 10 * MiB);
            CHECK(request.try_allocate(s, 5 * MiB) == nullptr); // the request's own limit
            CHECK(a.requested_bytes() == 10 * MiB);             // in chunks
            CHECK(a.inner().live_blocks() == 4);
            void* const beside = a.allocate(s, 6 * MiB); // what is left of the tenant's share
            CHECK(request.try_allocate(s, 3 * MiB) == nullptr);
            CHECK(b.requested_bytes() == 0);
            CHECK(b.try_allocate(s, 12 * MiB) == nullptr); // within its share, and the card has no more
            CHECK(card.reserved_bytes() <= 24 * MiB);
            a.deallocate(s, beside, 6 * MiB);
        }
        CHECK(request.requested_bytes() == 1 * MiB);
        CHECK(request.live_blocks() == 1);
        CHECK(request.peak_requested_bytes() == 10 * MiB);
        CHECK(request.inner().requested_bytes() == 1 * MiB);
        CHECK(request.try_allocate(s, 9 * MiB) != nullptr); // chunks that the scope left go back to the tenant for it
        request.deallocate(s, whole, 1 * MiB);
        request.clear();
        CHECK(request.requested_bytes() == 0);
        CHECK(request.inner().requested_bytes() == 0);
        request.trim();
        CHECK(a.requested_bytes() == 0);
        CHECK(a.inner().live_blocks() == 0);
    });
}
