// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp.

#include <atomic>
#include <cstdint>
#include <functional>
#include <doctest/doctest.h>
#include <random>
#include <string>
#include <support/counting_pool.hpp>
#include <support/one_block.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/layer/guard.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>

using support::counting_pool;
using weir::MiB;
using weir::on_host;
using limited = weir::layer::limit<counting_pool<>>;

TEST_CASE("limit: is made from what makes its pool, and from nothing else") {
    using pool = counting_pool<>;
    using by_reference = weir::layer::limit<pool&>;
    CHECK(std::is_constructible_v<limited, std::size_t>);
    CHECK(std::is_constructible_v<by_reference, std::size_t, pool&>);
    CHECK_FALSE(std::is_constructible_v<by_reference, std::size_t, pool const&>);
    CHECK_FALSE(std::is_constructible_v<limited, std::size_t, int*, int, int>);
    CHECK_FALSE(std::is_constructible_v<limited, std::size_t, limited&>);
    CHECK_FALSE(std::is_constructible_v<limited, std::size_t, limited>);
}

TEST_CASE("limit: is exact, to the byte") {
    limited pool(1000);
    CHECK(pool.limit_bytes() == 1000);
    CHECK(pool.try_allocate(on_host, 1001) == nullptr);
    CHECK(pool.inner().allocations == 0); // the pool is not asked
    void* const a = pool.try_allocate(on_host, 600);
    void* const b = pool.try_allocate(on_host, 400);
    REQUIRE(a != nullptr);
    REQUIRE(b != nullptr);
    CHECK(pool.requested_bytes() == 1000);
    CHECK(pool.try_allocate(on_host, 1) == nullptr);
    pool.deallocate(on_host, b, 400);
    CHECK(pool.requested_bytes() == 600);
    CHECK(pool.try_allocate(on_host, 401) == nullptr);
    void* const c = pool.try_allocate(on_host, 400);
    CHECK(c != nullptr);
    pool.deallocate(on_host, a, 600);
    pool.deallocate(on_host, c, 400);
    CHECK(pool.requested_bytes() == 0);
}

TEST_CASE("limit: a new one takes nothing back, and is exact from then on") {
    limited pool(std::size_t{1} << 40); // of which each shard may keep some
    void* const a = pool.try_allocate(on_host, 600);
    void* const b = pool.try_allocate(on_host, 400);
    pool.deallocate(on_host, b, 400);
    pool.set_limit(500);
    CHECK(pool.limit_bytes() == 500);
    CHECK(pool.state().limit_bytes == 500);
    CHECK(pool.requested_bytes() == 600);
    CHECK(pool.try_allocate(on_host, 1) == nullptr);
    CHECK_SAYS(std::string(pool.refused(5, 1).reason), "free 105 bytes of its blocks");
    pool.deallocate(on_host, a, 600);
    CHECK(pool.try_allocate(on_host, 501) == nullptr);
    void* const c = pool.try_allocate(on_host, 500);
    CHECK(c != nullptr);
    pool.set_limit(501);
    void* const d = pool.try_allocate(on_host, 1);
    CHECK(d != nullptr);
    pool.deallocate(on_host, c, 500);
    pool.deallocate(on_host, d, 1);
}

TEST_CASE("limit: what is freed above a new limit makes no room until all above it is freed") {
    limited pool(std::size_t{1} << 40);
    std::vector<void*> blocks(400); // each so small beside the new limit that shards would keep some
    for (void*& each : blocks)
        each = pool.try_allocate(on_host, 1000);
    pool.set_limit(300 * 1000);
    while (blocks.size() >= 300) {
        CAPTURE(blocks.size());
        CHECK(pool.try_allocate(on_host, 1000) == nullptr);
        pool.deallocate(on_host, blocks.back(), 1000);
        blocks.pop_back();
    }
    blocks.push_back(pool.try_allocate(on_host, 1000));
    CHECK(blocks.back() != nullptr);
    for (void* each : blocks)
        pool.deallocate(on_host, each, 1000);
}

TEST_CASE("limit: zero bytes are no bytes, and null takes nothing off") {
    limited pool(10);
    void* const p = pool.try_allocate(on_host, 10);
    CHECK(pool.allocate(on_host, 0) == nullptr);
    CHECK(pool.requested_bytes() == 10);
    pool.deallocate(on_host, nullptr, 10);
    CHECK(pool.requested_bytes() == 10);
    pool.deallocate(on_host, p, 10);
}

TEST_CASE("limit: frees that were none, or of another size, make no room beyond the limit") {
    struct heedless : support::counting_pool<> { // it takes what it is given
        void* try_allocate(weir::stream_ref, std::size_t, std::size_t = default_alignment) { return this; }
        void deallocate(weir::stream_ref, void*, std::size_t, std::size_t = default_alignment) noexcept {}
    };
    weir::layer::limit<heedless> pool(100);
    void* const p = pool.try_allocate(on_host, 60);
    pool.deallocate(on_host, p, 60);
    pool.deallocate(on_host, p, 60);
    CHECK(pool.requested_bytes() == 0);
    CHECK(pool.try_allocate(on_host, 101) == nullptr);
    void* const q = pool.try_allocate(on_host, 60);
    pool.deallocate(on_host, q, 100);
    CHECK(pool.requested_bytes() == 0);
    void* const r = pool.try_allocate(on_host, 100);
    CHECK(r != nullptr);
    CHECK(pool.try_allocate(on_host, 1) == nullptr);
    pool.deallocate(on_host, r, 100);
}

TEST_CASE("limit: sizes near the end of the number line do not wrap") {
    limited pool(1000);
    void* const p = pool.try_allocate(on_host, 999);
    for (std::size_t bytes : {SIZE_MAX, SIZE_MAX - 998, SIZE_MAX - 999, SIZE_MAX / 2})
        CHECK(pool.try_allocate(on_host, bytes) == nullptr);
    CHECK(pool.requested_bytes() == 999);
    pool.deallocate(on_host, p, 999);
    limited none(0);
    CHECK(none.try_allocate(on_host, 1) == nullptr);
    limited all(SIZE_MAX, std::size_t{100});
    void* const q = all.try_allocate(on_host, 100);
    CHECK(q != nullptr);
    CHECK(all.try_allocate(on_host, SIZE_MAX) == nullptr);
    CHECK(all.requested_bytes() == 100);
    all.deallocate(on_host, q, 100);
}

TEST_CASE("limit: what the pool refuses or throws is not counted") {
    limited pool(1000, std::size_t{500});
    CHECK(pool.try_allocate(on_host, 501) == nullptr);
    CHECK(pool.requested_bytes() == 0);
    pool.inner().throw_at = 1;
    CHECK_THROWS_AS(static_cast<void>(pool.try_allocate(on_host, 100)), support::pool_failure);
    CHECK(pool.requested_bytes() == 0);
    void* const p = pool.try_allocate(on_host, 500);
    CHECK(pool.requested_bytes() == 500);
    pool.deallocate(on_host, p, 500);
}

TEST_CASE("limit: says who refused, and what to do") {
    limited pool(1000, std::size_t{2000}, "shared");
    void* const others = pool.inner().try_allocate(on_host, 1500);
    void* const p = pool.allocate(on_host, 400);
    try {
        static_cast<void>(pool.allocate(on_host, 601));
        FAIL_CHECK("nothing was thrown");
    } catch (weir::out_of_memory const& error) {
        CHECK(error.reason() == "layer::limit allows 1000 bytes at a time, of which 400 bytes are requested; ask for at most 600 bytes, "
                                "free 1 byte of its blocks, or raise the layer's limit");
        CHECK(error.asked_bytes() == 601);
        CHECK(error.limit_bytes() == 1000); // its own, not the pool's
        CHECK(error.requested_bytes() == 400);
        CHECK(error.in_use_bytes() == SIZE_MAX); // the pool's to know, as what is reserved
        CHECK(error.reserved_bytes() == SIZE_MAX);
        CHECK(error.pool_name() == "shared");
    }
    CHECK(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(on_host, 101)); })
              .find("cannot hand out 101 bytes: shared has no 101 (") != std::string::npos); // within this limit
    CHECK(pool.refused(600, 16).reason == "shared has no 600"); // which would fill this one
    CHECK(pool.refused(1000, 16).reason == "layer::limit allows 1000 bytes at a time, of which 400 bytes are requested; ask for at most 600 bytes, "
                                    "free 400 bytes of its blocks, or raise the layer's limit");
    CHECK(pool.refused(1001, 16).reason == "layer::limit allows 1000 bytes at a time, of which 400 bytes are requested; ask for at most 600 "
                                    "bytes, or raise the layer's limit"); // whatever is freed
    CHECK(pool.refused(2001, 16).reason == "layer::limit allows 1000 bytes at a time, of which 400 bytes are requested, and its pool 'shared' "
                                    "(1.85 KiB in use, 0 B reserved, limit 1.95 KiB) refuses: shared has no 2001");
    pool.deallocate(on_host, p, 400);
    pool.inner().deallocate(on_host, others, 1500);
    CHECK(limited(100, std::size_t{500}).state().limit_bytes == 100);
    limited one(1);
    CHECK(one.refused(2, 16).reason == "layer::limit allows 1 byte at a time; ask for at most 1 byte, or raise the layer's limit");
    void* const q = one.allocate(on_host, 1); // now nothing less would help
    CHECK(one.refused(1, 16).reason == "layer::limit allows 1 byte at a time, of which 1 byte is requested; free 1 byte of its blocks, or raise "
                                "the layer's limit");
    CHECK(one.refused(2, 16).reason == "layer::limit allows 1 byte at a time, of which 1 byte is requested; raise the layer's limit");
    one.deallocate(on_host, q, 1);
}

TEST_CASE("limit: what the pool below could never hold is refused with that pool's reason, and no limit is to be raised for it") {
    weir::host_pool card(weir::pool_options{}.name("card").limit(2 * MiB));
    weir::layer::limit<weir::host_pool&> tenant(weir::layer_options{}.name("tenant"), 1 * MiB, card);
    std::string const said = "layer::limit 'tenant' allows 1048576 bytes (1 MiB) at a time";
    std::string const below = ", and its pool 'card' (0 B in use, 0 B reserved, limit 2 MiB) refuses: it needs a chunk of ";
    std::string const never = tenant.refused(3 * MiB, 16).reason.c_str();
    CHECK(never.find(said + below) == 0);
    CHECK(never.find("more than the pool's limit of 2097152 bytes (2 MiB); ask for less or raise the pool's limit") !=
          std::string::npos);
    CHECK(never.find("the layer's limit") == std::string::npos);
    CHECK(tenant.refused(3 * MiB / 2, 16).reason == (said + "; ask for at most 1048576 bytes (1 MiB), or raise the layer's limit").c_str());
    weir::layer::limit<weir::layer::limit<weir::host_pool&>&> inner(512 * weir::KiB, tenant); // and so through several
    CHECK(std::string(inner.refused(2 * MiB, 16).reason.c_str()).find("refuses: " + said + "; ask for at most") != std::string::npos);
    CHECK(std::string(inner.refused(3 * MiB, 16).reason.c_str()).find("refuses: " + said + below) != std::string::npos);
}

TEST_CASE("limit: a tenant is refused by its name, with its own counts and its own largest blocks") {
    weir::layer::guard<counting_pool<>> card(100 * MiB, "card"); // lists everybody's blocks
    using tenant = weir::layer::limit<weir::layer::statistics<decltype(card)&>>;
    tenant a(weir::layer_options{}.name("tenant a"), 4 * MiB, card), b(8 * MiB, card);
    CHECK(a.name() == "tenant a");
    CHECK(a.state().name == "tenant a");
    CHECK(b.name() == "card");
    void* const p = a.allocate(on_host, 3 * MiB);
    void* const q = b.allocate(on_host, 5 * MiB);
    CHECK(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(a.allocate(on_host, 2 * MiB)); })
              .find("weir: out of memory: pool 'tenant a' cannot hand out 2097152 bytes (2 MiB): layer::limit 'tenant a' allows "
                    "4194304 bytes (4 MiB) at a time, of which 3145728 bytes (3 MiB) are requested; ask for at most 1048576 bytes (1 "
                    "MiB), free 1048576 bytes (1 MiB) of its blocks, or raise the layer's limit (requested 3 MiB, "
                    "limit 4 MiB); the largest live blocks: 3 MiB at 0x") == 0);
    weir::memory_report own = a.refused(2 * MiB, 16).state;
    CHECK(own.largest_live.size() == 1);
    CHECK(own.largest_live[0].address == p);
    CHECK(a.full_state().largest_live.size() == 2);             // what may be another's is told where it is no refusal of this one's
    CHECK(a.refused(1 * MiB, 16).state.largest_live.size() == 2); // nor where the pool below has no room
    weir::layer::limit<decltype(card)&> wide(weir::layer_options{}.name("wide"), 500 * MiB, card);
    weir::memory_report const full = wide.refused(200 * MiB, 16).state; // the card is full, not the tenant
    CHECK(full.name == "card");
    CHECK(full.limit_bytes == card.state().limit_bytes);
    weir::layer::statistics<weir::layer::guard<weir::layer::limit<decltype(card)&>>> outside(
        weir::layer_options{}.name("counts"), weir::layer_options{}.name("tenant c"), 3 * MiB, card);
    void* const o = outside.allocate(on_host, 1 * MiB);
    weir::memory_report const told = outside.refused(2 * MiB + 1, 16).state; // a layer outside adds nobody else's figures
    CHECK(told.name == "tenant c");
    CHECK(told.requested_bytes == 1 * MiB);
    CHECK(told.limit_bytes == 3 * MiB);
    REQUIRE(told.largest_live.size() == 1); // listed by the layers outside
    CHECK(told.largest_live[0].address == o);
    CHECK(outside.refused(2 * MiB, 16).state.name == "card");
    outside.deallocate(on_host, o, 1 * MiB);
    weir::layer::limit<weir::layer::guard<counting_pool<>>> alone(weir::layer_options{}.name("alone"), 100);
    void* const r = alone.allocate(on_host, 70);
    CHECK(alone.refused(50, 16).state.largest_live.size() == 1); // a pool of its own has no others' blocks
    alone.deallocate(on_host, r, 70);
    a.deallocate(on_host, p, 3 * MiB);
    b.deallocate(on_host, q, 5 * MiB);
}

TEST_CASE("limit: what a scope ends is room again") {
    weir::layer::limit<weir::frame_pool> pool(1000, weir::pool_options{}.device(0));
    void* const before = pool.allocate_sync(100);
    {
        weir::scope const frame(pool);
        static_cast<void>(pool.allocate_sync(900));
        pool.deallocate_sync(before, 100);
        CHECK(pool.requested_bytes() == 900);
        CHECK(pool.try_allocate(on_host, 101) == nullptr);
    }
    CHECK(pool.requested_bytes() == 0);
    static_cast<void>(pool.allocate_sync(1000));
    pool.clear();
    CHECK(pool.requested_bytes() == 0);
}

namespace {

struct telling : counting_pool<> {
    using counting_pool<>::counting_pool;
    std::string report() const { return "a line of its own"; }
};
} // namespace

TEST_CASE("limit: a report ends with what this layer allows and how much of that is requested") {
    weir::layer::limit<telling> pool(2048);
    void* const p = pool.allocate(on_host, 1000);
    CHECK(pool.report() == "a line of its own; through layer::limit: 1000 B requested, limit 2 KiB");
    CHECK(pool.full_report() == pool.report());
    weir::layer::limit<weir::layer::limit<telling>&> above(SIZE_MAX, pool);
    CHECK(above.report() == pool.report() + "; through layer::limit: 0 B requested, limit none");
    weir::layer::limit<telling> named(weir::layer_options{}.name("a"), 10);
    CHECK(named.report() == "a line of its own; through layer::limit 'a': 0 B requested, limit 10 B");
    pool.deallocate(on_host, p, 1000);
    CHECK(pool.report() == "a line of its own; through layer::limit: 0 B requested, limit 2 KiB");
}

TEST_CASE("limit: several stand on one pool, each with its own share") {
    counting_pool<> shared;
    weir::layer::limit<counting_pool<>&> a(100, shared), b(200, shared);
    void* const p = a.try_allocate(on_host, 100);
    CHECK(a.try_allocate(on_host, 1) == nullptr);
    void* const q = b.try_allocate(on_host, 200);
    CHECK(q != nullptr);
    CHECK(a.requested_bytes() == 100);
    CHECK(b.requested_bytes() == 200);
    CHECK(shared.live_blocks() == 2);
    a.deallocate(on_host, p, 100);
    b.deallocate(on_host, q, 200);
    CHECK(&a.inner() == &b.inner());
}

TEST_CASE("limit: is never exceeded, at no moment and with any threads") {
    counting_pool<> shared;
    weir::layer::limit<counting_pool<>&> pool(10000, shared);
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::thread watcher([&] {
        while (!over.load())
            if (pool.requested_bytes() > 10000 || shared.state().in_use_bytes > 10000)
                wrong.fetch_add(1);
    });
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 4; ++t)
        crew.emplace_back([&, t] {
            std::mt19937_64 draw(t);
            std::vector<std::pair<void*, std::size_t>> live;
            for (int step = 0; step < 3000; ++step) {
                if (draw() % 2 == 0) {
                    std::size_t const bytes = draw() % 3000 + 1;
                    if (void* const p = pool.try_allocate(on_host, bytes))
                        live.emplace_back(p, bytes);
                } else if (!live.empty()) {
                    pool.deallocate(on_host, live.back().first, live.back().second);
                    live.pop_back();
                }
            }
            for (auto const& [p, bytes] : live)
                pool.deallocate(on_host, p, bytes);
        });
    for (std::thread& each : crew)
        each.join();
    over.store(true);
    watcher.join();
    CHECK(wrong.load() == 0);
    CHECK(pool.requested_bytes() == 0);
}

TEST_CASE("limit: what idle threads hold is collected before anybody is refused") {
    constexpr std::size_t bytes = 64 * MiB; // of which each thread may keep a part after it freed
    weir::layer::limit<counting_pool<>> pool(bytes);
    std::atomic<unsigned> turn{0};
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 8; ++t)
        crew.emplace_back([&, t] {
            while (turn.load() != t)
                std::this_thread::yield();
            void* const p = pool.try_allocate(on_host, 100'000 + t);
            void* const rest = pool.try_allocate(on_host, bytes - 100'000 - t);
            bool const all_of_it = p && rest && !pool.try_allocate(on_host, 1); // whatever the others have kept
            pool.deallocate(on_host, p, 100'000 + t);
            pool.deallocate(on_host, rest, bytes - 100'000 - t);
            turn.store(all_of_it ? t + 1 : 100);
            while (turn.load() < 8) // all threads live until the last has had its turn
                std::this_thread::yield();
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(turn.load() == 8);
    CHECK(pool.requested_bytes() == 0);
}

TEST_CASE("limit: a wrong free while an allocation is under way makes no room without end") {
    struct refusing : support::counting_pool<> {
        void* try_allocate(weir::stream_ref, std::size_t, std::size_t = default_alignment) {
            meanwhile();
            return nullptr;
        }
        void deallocate(weir::stream_ref, void*, std::size_t, std::size_t = default_alignment) noexcept {}
        std::function<void()> meanwhile;
    };
    weir::layer::limit<refusing> pool(100);
    int block = 0;
    pool.inner().meanwhile = [&] { pool.deallocate(on_host, &block, 100); };
    CHECK(pool.try_allocate(on_host, 60) == nullptr);
    CHECK(pool.requested_bytes() == 0);
    CHECK(pool.try_allocate(on_host, 101) == nullptr);
}

TEST_CASE("limit: a block counts until the pool has it back") {
    weir::layer::limit<support::one_block> pool(100);
    void* const p = pool.try_allocate(weir::on_host, 100);
    std::size_t meanwhile = 0;
    pool.inner().at_free = [&] { meanwhile = pool.requested_bytes(); };
    pool.deallocate(weir::on_host, p, 100);
    CHECK(meanwhile == 100);
    CHECK(pool.requested_bytes() == 0);
}
