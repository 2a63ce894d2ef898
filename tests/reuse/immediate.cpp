// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Needs no device: the rule looks at no stream.

#include <cstdint>
#include <cstdlib>
#include <doctest/doctest.h>
#include <map>
#include <new>
#include <random>
#include <type_traits>
#include <weir/base/size.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/placement/slab.hpp>
#include <weir/reuse/immediate.hpp>

using weir::KiB;
using weir::on_host;
using weir::base::range;
using weir::reuse::immediate;

static_assert(!immediate::thread_safe && !immediate::orders_streams && !immediate::waits_before_growing);
static_assert(!std::is_copy_constructible_v<immediate::over<weir::placement::best_fit<>>>);

namespace {

constexpr range chunk{1 << 20, 1 << 20};

/// Whether the chunk was wholly free; it is then taken out.
template <class Rule>
bool removed(Rule& rule, range wanted) {
    bool done = false;
    rule.visit_unused([&](auto& free) { return done = free.remove(wanted); });
    return done;
}

/// A placement whose 'give' fails when it is told to.
struct brittle {
    range free{};
    bool fails = false;
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) { return bytes; }
    range take(std::size_t bytes, std::size_t) {
        range const taken{free.offset, bytes};
        free = {free.offset + bytes, free.bytes - bytes};
        return taken;
    }
    void give(range) {
        if (fails)
            throw std::bad_alloc();
    }
    void add(range r) { free = r; }
    std::size_t free_bytes() const { return free.bytes; }
};

} // namespace

TEST_CASE_TEMPLATE("immediate: a freed block is there at once, for any stream", Placement, weir::placement::best_fit<>,
                   weir::placement::slab<4096>,
                   weir::placement::by_size<64 * KiB, weir::placement::bins<>, weir::placement::best_fit<>>) {
    immediate::over<Placement> rule(0);
    CHECK_FALSE(rule.take(4096, 256, on_host));
    rule.add(chunk, on_host);
    range const a = rule.take(4096, 256, cudaStream_t{});
    range const b = rule.take(4096, 256, cudaStreamLegacy);
    CHECK(chunk.contains(a));
    CHECK(chunk.contains(b));
    CHECK_FALSE(a.overlaps(b));
    CHECK(rule.used().blocks == 2);
    CHECK(rule.used().bytes == a.bytes + b.bytes);
    rule.give(b, on_host);
    CHECK(rule.take(4096, 256, cudaStreamPerThread) == b);
    rule.give(a, on_host);
    rule.give(b, on_host);
    rule.settle();
    CHECK(rule.used().blocks == 0);
    CHECK(rule.used().bytes == 0);
    CHECK(rule.used().lost_bytes == 0);
}

TEST_CASE("immediate: a chunk leaves when all of it is free, and does not join its neighbour") {
    immediate::over<weir::placement::best_fit<>> rule(0);
    range const first{1 << 20, 1 << 20};
    range const second{2 << 20, 1 << 20};
    rule.add(first, on_host);
    rule.add(second, on_host);
    CHECK(rule.used().largest_free_bytes == 1 << 20);
    CHECK_FALSE(rule.take((1 << 20) + 1, 256, on_host)); // across the fence
    range const block = rule.take(1000, 256, on_host);
    range const& at = first.contains(block) ? first : second;
    range const& other = first.contains(block) ? second : first;
    CHECK_FALSE(removed(rule, at));
    CHECK(removed(rule, other));
    CHECK_FALSE(removed(rule, other));
    rule.give(block, on_host);
    CHECK(removed(rule, at));
    CHECK(rule.used().largest_free_bytes == 0);
}

TEST_CASE("immediate: an arena ends many blocks at once") {
    immediate::over<weir::placement::arena> rule(0);
    rule.add(chunk, on_host);
    auto const point = rule.placement().mark();
    weir::base::usage const counts = rule.counts();
    range const a = rule.take(100, 1, on_host);
    CHECK(rule.take(100, 1, on_host));
    rule.placement().rewind(point);
    rule.counts() = counts;
    CHECK(rule.used().blocks == 0);
    CHECK(rule.take(100, 1, on_host) == a);
}

TEST_CASE("immediate: what the host has no memory to book is counted as lost") {
    immediate::over<brittle> rule(0);
    rule.add(chunk, on_host);
    range const block = rule.take(512, 1, on_host);
    rule.placement().fails = true;
    rule.give(block, on_host);
    CHECK(rule.used().blocks == 0);
    CHECK(rule.used().lost_bytes == 512);
}

TEST_CASE("immediate: more frees than blocks count nothing below zero") {
    immediate::over<weir::placement::arena> rule(0);
    rule.add(chunk, on_host);
    auto const point = rule.placement().mark();
    weir::base::usage const counts = rule.counts();
    range const block = rule.take(64, 1, on_host);
    REQUIRE(block);
    rule.placement().rewind(point);
    rule.counts() = counts;
    rule.give(block, on_host); // a mark has ended it
    CHECK(rule.used().blocks == 0);
    CHECK(rule.used().bytes == 0);
}

TEST_CASE("immediate: counts follow a model") {
    immediate::over<weir::placement::best_fit<>> rule(0);
    rule.add(chunk, on_host);
    std::mt19937_64 random(11);
    std::map<std::size_t, range> live;
    std::size_t bytes = 0;
    unsigned taken = 0;
    for (int i = 0; i < 20000; ++i) {
        if (live.empty() || random() % 2 == 0) {
            range const block = rule.take(1 + random() % (32 * KiB), std::size_t{1} << (random() % 13), on_host);
            if (block) {
                ++taken;
                auto const above = live.lower_bound(block.offset);
                REQUIRE((above == live.end() || block.end() <= above->first));
                REQUIRE((above == live.begin() || std::prev(above)->second.end() <= block.offset));
                live[block.offset] = block;
                bytes += block.bytes;
            }
        } else {
            auto at = live.begin();
            std::advance(at, static_cast<std::ptrdiff_t>(random() % live.size()));
            rule.give(at->second, on_host);
            bytes -= at->second.bytes;
            live.erase(at);
        }
        REQUIRE(rule.used().bytes == bytes);
        REQUIRE(rule.used().blocks == live.size());
    }
    CHECK(taken > 5000);
    for (auto const& each : live)
        rule.give(each.second, on_host);
    CHECK(removed(rule, chunk));
}
