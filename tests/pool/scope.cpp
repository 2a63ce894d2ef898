// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstddef>
#include <doctest/doctest.h>
#include <stdexcept>
#include <support/recorded_upstream.hpp>
#include <support/sentence.hpp>
#include <type_traits>
#include <utility>
#include <weir/growth/fixed.hpp>
#include <weir/placement/arena.hpp>
#include <weir/pool/pool.hpp>
#include <weir/pool/scope.hpp>
#include <weir/reuse/immediate.hpp>

using support::recorded_upstream;
using support::upstream_ledger;
using weir::KiB;
using frame_pool =
    weir::pool<recorded_upstream<>, weir::placement::arena, weir::reuse::immediate, weir::growth::fixed<64 * KiB>>;

static_assert(!std::is_copy_constructible_v<weir::scope<frame_pool>> && !std::is_copy_assignable_v<weir::scope<frame_pool>>);
static_assert(!std::is_convertible_v<frame_pool&, weir::scope<frame_pool>>);
static_assert(std::is_nothrow_destructible_v<weir::scope<frame_pool>>);

TEST_CASE("scope: ends every block that was allocated in it, and none from before") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger)};
    void* const before = pool.allocate_sync(1000, 16);
    for (int frame_number = 0; frame_number < 100; ++frame_number) {
        weir::scope const frame(pool);
        CHECK(pool.state().live_blocks == 1);
        void* const first = pool.allocate_sync(5000, 64);
        CHECK(first != before);
        for (int i = 0; i < 20; ++i)
            CHECK(pool.allocate_sync(2000, 8) != nullptr);
        CHECK(pool.state().live_blocks == 22);
        CHECK(pool.in_use_bytes() == 1000 + 5000 + 40000);
    }
    CHECK(pool.state().live_blocks == 1);
    CHECK(pool.in_use_bytes() == 1000);
    CHECK(ledger.asked.size() == 1); // the same memory, frame for frame
    pool.clear();
}

TEST_CASE("scope: a block from before that is freed in it stays freed, and more frees than blocks count nothing") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger)};
    void* const before = pool.allocate_sync(1000);
    {
        weir::scope const frame(pool);
        pool.deallocate_sync(before, 1000);
    }
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.in_use_bytes() == 0);
    void* const kept = pool.allocate_sync(300);
    void* const freed = pool.allocate_sync(200);
    {
        weir::scope const frame(pool);
        pool.deallocate_sync(freed, 200);
    }
    CHECK(pool.state().live_blocks == 1);
    CHECK(pool.in_use_bytes() == 300);
    pool.deallocate_sync(kept, 300);
    void* late = nullptr;
    {
        weir::scope const frame(pool);
        late = pool.allocate_sync(500);
    }
    pool.deallocate_sync(late, 500); // a mistake: it ended with the frame
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE("scope: the same addresses come again in every frame") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger)};
    void* first[3] = {};
    for (int round = 0; round < 10; ++round) {
        weir::scope const frame(pool);
        for (std::size_t i = 0; i < 3; ++i) {
            void* const p = pool.allocate_sync(i * 100 + 1);
            if (round == 0)
                first[i] = p;
            CHECK(p == first[i]);
        }
    }
}

TEST_CASE("scope: nests like blocks of code") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger)};
    weir::scope const outer(pool);
    void* const a = pool.allocate_sync(100);
    void* b = nullptr;
    {
        weir::scope const inner(pool);
        b = pool.allocate_sync(100);
        {
            weir::scope const innermost(pool);
            CHECK(pool.allocate_sync(40 * KiB) != nullptr);
            CHECK(pool.state().live_blocks == 3);
        }
        CHECK(pool.state().live_blocks == 2);
    }
    CHECK(pool.state().live_blocks == 1);
    CHECK(pool.allocate_sync(100) == b);
    static_cast<void>(a);
}

TEST_CASE("scope: a frame may outgrow a chunk, and the next one finds the room") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger)};
    for (int round = 0; round < 5; ++round) {
        weir::scope const frame(pool);
        for (int i = 0; i < 10; ++i)
            CHECK(pool.allocate_sync(30 * KiB) != nullptr);
        CHECK(pool.allocate_sync(200 * KiB) != nullptr); // more than a chunk
    }
    CHECK(pool.state().live_blocks == 0);
    CHECK(ledger.asked.size() == 6); // two blocks a chunk of 64 KiB, and one of its own
}

TEST_CASE("scope: ends its blocks also when an exception passes") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger)};
    try {
        weir::scope const frame(pool);
        static_cast<void>(pool.allocate_sync(100));
        throw std::runtime_error("in a frame");
    } catch (std::runtime_error const&) {
    }
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("scope: a pool that is full says what ends blocks there") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger), weir::pool_options{}.limit(64 * KiB)};
    static_cast<void>(pool.allocate_sync(60 * KiB));
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate_sync(60 * KiB)); }),
               "; raise the pool's limit or end a scope ('rewind' and 'clear' do as well, frees do not)");
    pool.clear();
    CHECK(pool.allocate_sync(60 * KiB) != nullptr);
    pool.clear();
}

TEST_CASE("scope: clear ends all blocks and keeps the chunks, trim gives them back") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger)};
    for (int i = 0; i < 10; ++i)
        CHECK(pool.allocate_sync(30 * KiB) != nullptr);
    CHECK(pool.reserved_bytes() == 5 * 64 * KiB);
    pool.clear();
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.in_use_bytes() == 0);
    CHECK(pool.reserved_bytes() == 5 * 64 * KiB);
    for (int i = 0; i < 10; ++i)
        CHECK(pool.allocate_sync(30 * KiB) != nullptr);
    CHECK(ledger.asked.size() == 5);
    CHECK(pool.trim() == 0); // all in use
    pool.clear();
    CHECK(pool.trim() == 5 * 64 * KiB);
    CHECK(ledger.live.empty());
}

TEST_CASE("scope: blocks that take the place of freed ones from before end with it, frame after frame") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger)};
    for (int frame_number = 0; frame_number < 100; ++frame_number) {
        void* const before = pool.allocate_sync(5000);
        weir::scope const frame(pool);
        pool.deallocate_sync(before, 5000);
        CHECK(pool.allocate_sync(4500) == before);
    }
    CHECK(pool.in_use_bytes() == 0);
    CHECK(pool.state().live_blocks == 0);
    CHECK(ledger.asked.size() == 1);
}

TEST_CASE("scope: what is live after it is what was live before, less what was freed, whatever it allocated") {
    upstream_ledger ledger;
    frame_pool pool{recorded_upstream<>(ledger)};
    void* const kept = pool.allocate_sync(100);
    void* const first = pool.allocate_sync(200);
    void* const last = pool.allocate_sync(300);
    {
        weir::scope const outer(pool);
        pool.deallocate_sync(last, 300);
        CHECK(pool.allocate_sync(50) == last);
        {
            weir::scope const inner(pool);
            pool.deallocate_sync(first, 200); // no place of it is handed out
            for (int i = 0; i < 40; ++i)
                CHECK(pool.allocate_sync(4000) != nullptr); // and other chunks
        }
        CHECK(pool.state().live_blocks == 2);
        CHECK(pool.in_use_bytes() == 150);
    }
    CHECK(pool.state().live_blocks == 1);
    CHECK(pool.in_use_bytes() == 100);
    {
        weir::scope const frame(pool);
        pool.clear();
        CHECK(pool.allocate_sync(70) == kept);
    }
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.in_use_bytes() == 0);
}
