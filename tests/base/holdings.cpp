// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <cstdint>
#include <doctest/doctest.h>
#include <new>
#include <random>
#include <support/failing_new.hpp>
#include <support/recorded_upstream.hpp>
#include <thread>
#include <type_traits>
#include <vector>
#include <weir/base/holdings.hpp>
#include <weir/base/spin_lock.hpp>

using support::recorded_upstream;
using support::upstream_ledger;
using weir::range;
using held = weir::holdings<recorded_upstream<>, weir::no_lock>;

namespace {

// Says nothing of granularity, and its release never fails.
struct plain_upstream {
    static constexpr std::size_t alignment = 64;
    void* acquire(std::size_t bytes) { return ::operator new(bytes, std::align_val_t{alignment}); }
    void release(void* chunk, std::size_t) noexcept { ::operator delete(chunk, std::align_val_t{alignment}); }
};

} // namespace

static_assert(!std::is_copy_constructible_v<held> && !std::is_copy_assignable_v<held>);
static_assert(held::granularity() == 4096);
static_assert(weir::holdings<plain_upstream, weir::no_lock>::granularity() == 64); // its alignment

TEST_CASE("holdings: holds what it acquired until it is released") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), SIZE_MAX);
    CHECK(chunks.size() == 0);
    CHECK(chunks.count() == 0);
    CHECK(chunks.bytes() == 0);
    range const a = chunks.acquire(8192);
    range const b = chunks.acquire(4096);
    CHECK(a.bytes == 8192);
    CHECK(chunks.bytes() == 12288);
    CHECK(chunks.size() == 2);
    CHECK(chunks[0] == b); // the smallest first
    CHECK(chunks[1] == a);
    CHECK(chunks.owns(a.offset));
    CHECK(chunks.owns(a.end() - 1));
    CHECK(chunks.release(a));
    CHECK_FALSE(chunks.owns(a.offset));
    CHECK(chunks.bytes() == 4096);
    CHECK(ledger.live.size() == 1);
}

TEST_CASE("holdings: everything goes back at the end") {
    upstream_ledger ledger;
    {
        held chunks(recorded_upstream<>(ledger), SIZE_MAX);
        for (std::size_t i = 1; i <= 20; ++i)
            CHECK(chunks.acquire(i * 4096));
        CHECK(ledger.live.size() == 20);
    }
    CHECK(ledger.live.empty());
    CHECK(ledger.returned.size() == 20);
}

TEST_CASE("holdings: the limit is exact, and the upstream is not asked beyond it") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), 5 * 4096);
    CHECK(chunks.limit_bytes() == 5 * 4096);
    CHECK(chunks.has_room(5 * 4096));
    CHECK_FALSE(chunks.has_room(5 * 4096 + 1));
    CHECK_FALSE(chunks.has_room(SIZE_MAX));
    CHECK_FALSE(chunks.acquire(6 * 4096));
    CHECK(ledger.asked.empty());
    range const a = chunks.acquire(3 * 4096);
    CHECK(chunks.acquire(2 * 4096));
    CHECK(chunks.has_room(0));
    CHECK_FALSE(chunks.has_room(1));
    CHECK_FALSE(chunks.acquire(4096));
    CHECK(ledger.asked.size() == 2);
    chunks.release(a);
    CHECK(chunks.has_room(3 * 4096));
    CHECK_FALSE(chunks.has_room(3 * 4096 + 1));
    CHECK(chunks.acquire(3 * 4096));
}

TEST_CASE("holdings: a limit of nothing holds nothing, and no limit holds the most there is") {
    upstream_ledger ledger;
    held none(recorded_upstream<>(ledger), 0);
    CHECK_FALSE(none.acquire(4096));
    CHECK_FALSE(none.has_room(1));
    held all(recorded_upstream<>(ledger), SIZE_MAX);
    CHECK(all.has_room(SIZE_MAX));
    CHECK(all.acquire(4096));
    CHECK_FALSE(all.has_room(SIZE_MAX));
    CHECK(all.has_room(SIZE_MAX - 4096));
}

TEST_CASE("holdings: where the upstream has no room or throws, nothing changes") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), SIZE_MAX);
    CHECK(chunks.acquire(4096));
    ledger.room_bytes = 4096;
    CHECK_FALSE(chunks.acquire(4096));
    ledger.room_bytes = SIZE_MAX;
    ledger.throw_at = 1;
    CHECK_THROWS_AS(chunks.acquire(4096), support::upstream_failure);
    CHECK(chunks.bytes() == 4096);
    CHECK(chunks.size() == 1);
    CHECK(chunks.acquire(4096));
    CHECK(chunks.bytes() == 8192);
}

TEST_CASE("holdings: a chunk that the upstream refuses is set aside, used by nobody, and offered again") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), 4 * 4096);
    range const a = chunks.acquire(2 * 4096);
    range const b = chunks.acquire(4096);
    ledger.refuse = 1;
    CHECK_FALSE(chunks.release(a));
    CHECK(chunks.size() == 1); // not to be used
    CHECK(chunks.count() == 2);
    CHECK_FALSE(chunks.owns(a.offset));
    CHECK(chunks.bytes() == 3 * 4096); // but held, within the limit
    CHECK_FALSE(chunks.acquire(2 * 4096));
    ledger.refuse = 1;
    CHECK_FALSE(chunks.offer_again());
    CHECK(chunks.bytes() == 3 * 4096);
    CHECK(chunks.offer_again());
    CHECK(chunks.bytes() == 4096);
    CHECK(chunks.count() == 1);
    CHECK_FALSE(chunks.offer_again()); // nothing is left to offer
    CHECK(chunks.acquire(2 * 4096));
    CHECK(chunks.release(b));
}

TEST_CASE("holdings: of several that were refused, each is offered") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), SIZE_MAX);
    std::vector<range> all;
    for (std::size_t i = 1; i <= 6; ++i)
        all.push_back(chunks.acquire(i * 4096));
    ledger.refuse = 6;
    for (range const& each : all)
        CHECK_FALSE(chunks.release(each));
    CHECK(chunks.count() == 6);
    ledger.refuse = 2;
    CHECK(chunks.offer_again()); // two are refused once more, four are taken
    CHECK(chunks.refused_bytes() == chunks.bytes());
    CHECK(chunks.count() == 2);
    CHECK(chunks.offer_again());
    CHECK(chunks.count() == 0);
    CHECK(chunks.bytes() == 0);
}

TEST_CASE("holdings: what is refused at the end is offered once more") {
    for (int refusals = 0; refusals <= 3; ++refusals) {
        upstream_ledger ledger;
        {
            held chunks(recorded_upstream<>(ledger), SIZE_MAX);
            for (int i = 0; i < 3; ++i)
                CHECK(chunks.acquire(4096));
            ledger.refuse = refusals;
        }
        CHECK(ledger.live.empty());
    }
}

TEST_CASE("holdings: an upstream whose release answers nothing takes everything") {
    weir::holdings<plain_upstream, weir::no_lock> chunks(plain_upstream{}, SIZE_MAX);
    range const a = chunks.acquire(64);
    CHECK(chunks.release(a));
    CHECK(chunks.bytes() == 0);
    CHECK(chunks.acquire(128));
    CHECK(chunks.upstream().alignment == 64);
}

TEST_CASE("holdings: any thread may ask while one acquires and releases") {
    upstream_ledger ledger;
    weir::holdings<recorded_upstream<>, weir::spin_lock> chunks(recorded_upstream<>(ledger), 64 * 4096);
    range const kept = chunks.acquire(4096);
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> crew;
    for (int t = 0; t < 2; ++t)
        crew.emplace_back([&] {
            while (!over.load()) {
                if (!chunks.owns(kept.offset) || chunks.owns(1))
                    wrong.fetch_add(1);
                std::size_t const bytes = chunks.bytes();
                if (bytes < 4096 || bytes > 64 * 4096 || chunks.count() < 1)
                    wrong.fetch_add(1);
            }
        });
    std::mt19937_64 draw(9);
    std::vector<range> live;
    for (int step = 0; step < 3000; ++step) {
        if (live.empty() || draw() % 2 == 0) {
            if (range const chunk = chunks.acquire((draw() % 4 + 1) * 4096))
                live.push_back(chunk);
        } else {
            std::swap(live[draw() % live.size()], live.back());
            chunks.release(live.back());
            live.pop_back();
        }
    }
    over.store(true);
    for (std::thread& each : crew)
        each.join();
    CHECK(wrong.load() == 0);
    CHECK(chunks.count() == live.size() + 1);
}

TEST_CASE("holdings: where the host has no memory for the lists, nothing is acquired, and releasing needs none") {
    if (!support::host_memory_can_fail)
        return;
    for (long k = 0;; ++k) {
        upstream_ledger ledger;
        held chunks(recorded_upstream<>(ledger), SIZE_MAX);
        CHECK(chunks.acquire(4096));
        bool failed = false;
        try {
            ledger.asked.reserve(100); // the test's own memory is there
            support::failing_new const fails(k);
            static_cast<void>(chunks.acquire(8192));
        } catch (std::bad_alloc const&) {
            failed = true;
        }
        CHECK(chunks.count() == (failed ? 1 : 2));
        CHECK(chunks.bytes() == (failed ? 4096 : 12288));
        CHECK(ledger.live.size() == chunks.count());
        if (!failed)
            break;
    }
    weir::holdings<plain_upstream, weir::no_lock> chunks(plain_upstream{}, SIZE_MAX);
    range const one = chunks.acquire(64), two = chunks.acquire(128);
    support::failing_new const fails(0);
    CHECK(chunks.release(two));
    CHECK(chunks.release(one));
}
