// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp.

#include <atomic>
#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <string>
#include <support/counting_pool.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/growth/geometric.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/limit.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/from_pool.hpp>
#include <weir/upstream/host.hpp>
#include <weir/upstream/span.hpp>

using support::counting_pool;
using weir::memory_space;
using weir::on_host;
using weir::layer::fallback;
using both = fallback<counting_pool<>, counting_pool<>>;
template <memory_space A, memory_space B>
using mixed = fallback<counting_pool<A>, counting_pool<B>>;

// The space says where memory of either can be used.
static_assert(mixed<memory_space::device, memory_space::device>::space == memory_space::device);
static_assert(mixed<memory_space::device, memory_space::managed>::space == memory_space::device);
static_assert(mixed<memory_space::managed, memory_space::device>::space == memory_space::device);
static_assert(mixed<memory_space::device, memory_space::pinned>::space == memory_space::device);
static_assert(mixed<memory_space::pinned, memory_space::device>::space == memory_space::device);
static_assert(mixed<memory_space::pinned, memory_space::host>::space == memory_space::host);
static_assert(mixed<memory_space::host, memory_space::managed>::space == memory_space::host);
static_assert(mixed<memory_space::host, memory_space::host>::space == memory_space::host);
static_assert(weir::base::host_accessible(mixed<memory_space::pinned, memory_space::managed>::space) &&
              weir::base::device_accessible(mixed<memory_space::pinned, memory_space::managed>::space));
static_assert(both::thread_safe && both::stream_ordered && both::default_alignment == 16);
static_assert(!std::is_copy_constructible_v<both> && !std::is_copy_assignable_v<both>);
static_assert(std::is_same_v<decltype(fallback(std::declval<counting_pool<>&>(), std::declval<both&>())),
                             fallback<counting_pool<>&, both&>>);

namespace {

// Answers less than a fallback may pass on.
struct plain : weir::resource::pool_base<plain> {
    static constexpr memory_space space = memory_space::host;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = false;
    static constexpr std::size_t default_alignment = 64;
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {full_state(), "plain never has"}; }
    int device() const { return 0; }
};
template <class P, class = void>
struct has_rest : std::false_type {};
template <class P>
struct has_rest<P, std::void_t<decltype(std::declval<P&>().owns(nullptr))>> : std::true_type {};
template <class P, class = void>
struct can_trim : std::false_type {};
template <class P>
struct can_trim<P, std::void_t<decltype(std::declval<P&>().trim()), decltype(std::declval<P&>().settle())>> : std::true_type {};
template <class P, class = void>
struct can_used_on : std::false_type {};
template <class P>
struct can_used_on<P, std::void_t<decltype(std::declval<P&>().used_on(nullptr, cudaStreamLegacy))>> : std::true_type {};

} // namespace

// What one of the two cannot do, both together cannot.
using less = fallback<counting_pool<>, plain>;
static_assert(!has_rest<less>::value && !can_trim<less>::value && !can_used_on<less>::value);
static_assert(has_rest<both>::value && can_trim<both>::value && can_used_on<both>::value);
static_assert(!less::thread_safe && !less::stream_ordered && less::default_alignment == 64);

TEST_CASE("fallback: is made from what makes its pools, and from nothing else") {
    using pool = counting_pool<>;
    CHECK(std::is_constructible_v<both, std::size_t, std::size_t>);
    CHECK(std::is_default_constructible_v<both>);
    CHECK_FALSE(std::is_default_constructible_v<fallback<pool&, pool>>);
    CHECK_FALSE(std::is_default_constructible_v<fallback<pool, pool&>>);
    both of_nothing;
    void* const p = of_nothing.allocate(on_host, 10);
    CHECK(of_nothing.first().owns(p));
    of_nothing.deallocate(on_host, p, 10);
    CHECK(std::is_default_constructible_v<fallback<both, both>>);
    CHECK_FALSE(std::is_constructible_v<both, int*, std::size_t>);
    CHECK_FALSE(std::is_constructible_v<both, std::size_t, int*>);
    CHECK(std::is_constructible_v<fallback<pool&, pool>, pool&, std::size_t>);
    CHECK_FALSE(std::is_constructible_v<fallback<pool&, pool>, pool const&, std::size_t>);
    CHECK_FALSE(std::is_constructible_v<fallback<pool&, pool&>, pool&, pool>);
}

TEST_CASE("fallback: the first is asked first, and what it refuses the second may grant") {
    both pool(std::size_t{100}, std::size_t{1000});
    void* const a = pool.try_allocate(on_host, 100);
    CHECK(pool.first().owns(a));
    CHECK(pool.second().allocations == 0);
    void* const b = pool.try_allocate(on_host, 100);
    CHECK(pool.second().owns(b));
    CHECK_FALSE(pool.first().owns(b));
    CHECK(pool.try_allocate(on_host, 1000) == nullptr);
    pool.deallocate(on_host, a, 100);
    void* const c = pool.try_allocate(on_host, 60);
    CHECK(pool.first().owns(c));
    pool.deallocate(on_host, b, 100);
    pool.deallocate(on_host, c, 60);
    CHECK(pool.first().frees == 2);
    CHECK(pool.second().frees == 1);
}

TEST_CASE("fallback: a block goes back where it came from, and second uses go where the block lives") {
    both pool(std::size_t{100}, std::size_t{1000});
    void* const a = pool.allocate(cudaStreamLegacy, 100);
    void* const b = pool.allocate(cudaStreamPerThread, 100);
    pool.used_on(a, cudaStreamPerThread);
    CHECK(pool.first().last_used == a);
    CHECK(pool.second().last_used == nullptr);
    pool.used_on(b, cudaStreamLegacy);
    CHECK(pool.second().last_used == b);
    CHECK(pool.first().last_uses + pool.second().last_uses == 0);
    pool.last_used_on(a, cudaStreamLegacy);
    CHECK(pool.first().last_uses == 1);
    CHECK(pool.second().last_uses == 0);
    pool.last_used_on(b, cudaStreamLegacy);
    CHECK(pool.second().last_uses == 1);
    CHECK(pool.owns(a));
    CHECK(pool.owns(b));
    CHECK_FALSE(pool.owns(&pool));
    pool.deallocate(on_host, b, 100);
    CHECK(pool.second().live_blocks() == 0);
    CHECK(pool.first().live_blocks() == 1);
    pool.deallocate(on_host, a, 100);
    pool.deallocate(on_host, nullptr, 100);
    CHECK(pool.allocate(on_host, 0) == nullptr);
}

TEST_CASE("fallback: an error of the first is no reason to ask the second") {
    both pool(std::size_t{100}, std::size_t{1000});
    pool.first().throw_at = 1;
    CHECK_THROWS_AS(static_cast<void>(pool.try_allocate(on_host, 10)), support::pool_failure);
    CHECK(pool.second().allocations == 0);
    CHECK(pool.first().live_blocks() == 0);
}

TEST_CASE("fallback: refuses with the reasons of both, and knows both") {
    fallback<counting_pool<>, counting_pool<>> pool(std::size_t{100}, std::size_t{1000});
    try {
        static_cast<void>(pool.allocate(on_host, 2000));
        FAIL_CHECK("nothing was thrown");
    } catch (weir::out_of_memory const& error) {
        CHECK(error.reason() == "first: counting has no 2000; then: counting has no 2000");
        CHECK(error.pool_name() == "counting, then counting");
        CHECK(error.limit_bytes() == 1100);
    }
    pool.first().reserved_bytes = 30;
    pool.second().reserved_bytes = 12;
    void* const p = pool.allocate(on_host, 50);
    weir::memory_report const state = pool.state();
    CHECK(state.in_use_bytes == 50);
    CHECK(state.reserved_bytes == 42);
    CHECK(state.largest_free_bytes == 7);
    for (std::size_t const known : {std::size_t{5}, SIZE_MAX}) { // SIZE_MAX: a pool that does not know
        pool.first().largest_free_bytes = known;
        pool.second().largest_free_bytes = SIZE_MAX;
        CHECK(pool.state().largest_free_bytes == known);
        std::swap(pool.first().largest_free_bytes, pool.second().largest_free_bytes);
        CHECK(pool.state().largest_free_bytes == known);
    }
    CHECK(state.live_blocks == 1);
    CHECK(state.chunks == 4);
    CHECK(pool.in_use_bytes() == 50);
    CHECK(pool.reserved_bytes() == 42);
    CHECK(pool.limit_bytes() == 1100);
    CHECK(pool.name() == "counting, then counting");
    CHECK(pool.device() == 5);
    CHECK_SAYS(pool.report(), "pool 'counting, then counting' (two pools): 50 B in use in 1 block, 42 B reserved");
    pool.deallocate(on_host, p, 50);
    CHECK(both(std::size_t{1}, SIZE_MAX).limit_bytes() == SIZE_MAX);
    CHECK(both(SIZE_MAX, SIZE_MAX).state().limit_bytes == SIZE_MAX);
    CHECK(both(std::size_t{0}, std::size_t{100}).state().limit_bytes == 100);
    CHECK(both(std::size_t{100}, SIZE_MAX).state().limit_bytes == SIZE_MAX); // one does not tell: nor do both
}

TEST_CASE("fallback: settles both, and trims the second before the first") {
    both pool(SIZE_MAX, SIZE_MAX);
    pool.settle();
    CHECK(pool.first().settled == 1);
    CHECK(pool.second().settled == 1);
    struct expected {
        std::size_t keep, first, second;
    };
    for (expected each : {expected{0, 0, 0}, expected{50, 50, 0}, expected{100, 100, 0}, expected{130, 100, 30},
                          expected{300, 100, 200}, expected{SIZE_MAX, 100, 200}}) {
        pool.first().reserved_bytes = 100;
        pool.second().reserved_bytes = 200;
        CHECK(pool.trim(each.keep) == 300 - each.first - each.second);
        CHECK(pool.first().reserved_bytes == each.first);
        CHECK(pool.second().reserved_bytes == each.second);
    }
    CHECK(pool.trim() == 300);
}

TEST_CASE("fallback: where the second keeps more than it was told to, the first keeps less") {
    struct in_use : counting_pool<> {
        std::size_t trim(std::size_t = 0) { return 0; }
    };
    counting_pool<> free;
    in_use other;
    fallback<counting_pool<>&, in_use&> pool(free, other);
    free.reserved_bytes = 100;
    other.reserved_bytes = 50;
    CHECK(pool.trim(120) == 30);
    CHECK(free.reserved_bytes == 70);
    CHECK(pool.trim(49) == 70);
}

TEST_CASE("fallback: the blocks of both are live, and what either lost is lost") {
    struct lossy : counting_pool<> {
        explicit lossy(std::size_t bytes) : counting_pool(std::size_t{10}), lost(bytes) {}
        weir::memory_report state() const {
            weir::memory_report now = counting_pool::state();
            now.lost_bytes = lost;
            return now;
        }
        std::size_t lost;
    };
    fallback<lossy, lossy> pool(std::size_t{5}, std::size_t{2});
    void* const a = pool.allocate(on_host, 10);
    void* const b = pool.allocate(on_host, 10);
    CHECK(pool.state().live_blocks == 2);
    CHECK(pool.state().lost_bytes == 7);
    pool.deallocate(on_host, a, 10);
    pool.deallocate(on_host, b, 10);
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("fallback: nests for more than two, and stands on pools that live elsewhere") {
    counting_pool<> a(std::size_t{10}, "a"), b(std::size_t{10}, "b"), c(std::size_t{10}, "c");
    using first_two = fallback<counting_pool<>&, counting_pool<>&>;
    first_two two(a, b);
    fallback<first_two&, counting_pool<>&> pool(two, c);
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i)
        blocks.push_back(pool.allocate(on_host, 10));
    CHECK(a.owns(blocks[0]));
    CHECK(b.owns(blocks[1]));
    CHECK(c.owns(blocks[2]));
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(on_host, 10)); }),
               "pool 'a, then b, then c' cannot hand out 10 bytes: first: first: a has no 10; then: b has no 10; then: c "
               "has no 10");
    for (void* each : blocks)
        pool.deallocate(on_host, each, 10);
    CHECK(a.live_blocks() + b.live_blocks() + c.live_blocks() == 0);
    auto const& fixed = pool;
    CHECK(&fixed.second() == &c);
    CHECK(&fixed.first() == &two);
}

TEST_CASE("fallback: tells what either pool can, and of the device's bytes what the first says") {
    struct telling : counting_pool<> {
        telling(std::size_t left, std::size_t bytes) : counting_pool<>(std::size_t{100}), left_(left), bytes_(bytes) {}
        void examine(weir::memory_report& now) const noexcept {
            now.device_free_bytes = left_;
            now.largest_live.offer({this, bytes_});
        }
        std::size_t left_, bytes_;
    };
    telling a(5, 50), b(6, 60);
    counting_pool<> silent;
    weir::memory_report const now = fallback<telling&, telling&>(a, b).full_state();
    CHECK(now.device_free_bytes == 5);
    REQUIRE(now.largest_live.size() == 2);
    CHECK(now.largest_live[0].bytes == 60);
    CHECK(fallback<counting_pool<>&, telling&>(silent, b).full_state().device_free_bytes == 6);
    CHECK(fallback<counting_pool<>&, counting_pool<>&>(silent, silent).full_state().device_free_bytes == SIZE_MAX);
}

TEST_CASE("fallback: a refusal's state is the sum of what both tell of theirs") {
    counting_pool<> card(std::size_t{1000});
    void* const others = card.allocate(on_host, 500);
    using tenant = weir::layer::limit<counting_pool<>&>;
    tenant a(weir::layer_options{}.name("a"), 100, card), b(weir::layer_options{}.name("b"), 200, card);
    fallback<tenant&, tenant&> pool(a, b);
    void* const p = b.allocate(on_host, 70);
    weir::memory_report const told = pool.refused(150, 16).state;
    CHECK(told.name == "a, then b");
    CHECK(told.in_use_bytes == SIZE_MAX); // not known of both
    CHECK(told.requested_bytes == 70);
    CHECK(told.limit_bytes == 300);
    CHECK(pool.state().in_use_bytes == 2 * 570);
    b.deallocate(on_host, p, 70);
    card.deallocate(on_host, others, 500);

    struct telling : counting_pool<> {
        explicit telling(std::size_t bytes) : bytes_(bytes) {}
        weir::refusal refused(std::size_t, std::size_t) const {
            weir::refusal said{state(), "no"};
            said.state.largest_live.offer({this, bytes_});
            return said;
        }
        std::size_t bytes_;
    };
    telling c(50), d(60);
    weir::memory_report const of_both = fallback<telling&, telling&>(c, d).refused(1, 1).state;
    REQUIRE(of_both.largest_live.size() == 2);
    CHECK(of_both.largest_live[0].address == &d);
    CHECK(of_both.largest_live[1].address == &c);
}

namespace {

struct silent : counting_pool<> {
    silent() : counting_pool<>(std::size_t{100}) {}
};

struct opinionated : silent {
    explicit opinionated(weir::leak_action at_leak, weir::violation_action at_violation)
        : at_leak_(at_leak), at_violation_(at_violation) {}
    weir::leak_action on_leak() const noexcept { return at_leak_; }
    weir::violation_action on_violation() const noexcept { return at_violation_; }
    weir::leak_action at_leak_;
    weir::violation_action at_violation_;
};

std::vector<std::string> heard;
void hear(char const* sentence) {
    heard.push_back(sentence);
}

} // namespace

TEST_CASE("fallback: the stricter of what the options of both pools say holds for a guard around them") {
    using leak = weir::leak_action;
    using wrong = weir::violation_action;
    struct {
        leak first, second, both;
    } const leaks[] = {{leak::ignore, leak::ignore, leak::ignore}, {leak::ignore, leak::report, leak::report},
                       {leak::report, leak::abort, leak::abort},   {leak::abort, leak::ignore, leak::abort},
                       {leak::report, leak::report, leak::report}};
    for (auto const& each : leaks) {
        opinionated a(each.first, wrong::report), b(each.second, wrong::report);
        weir::layer::guard<fallback<opinionated&, opinionated&>> const pool(a, b);
        CHECK(pool.on_leak() == each.both);
        CHECK(pool.on_violation() == wrong::report);
    }
    opinionated quiet(leak::ignore, wrong::report), strict(leak::ignore, wrong::abort);
    silent none;
    CHECK(fallback<opinionated&, opinionated&>(quiet, strict).on_violation() == wrong::abort);
    CHECK(fallback<opinionated&, opinionated&>(strict, quiet).on_violation() == wrong::abort);
    CHECK(fallback<silent&, opinionated&>(none, strict).on_violation() == wrong::abort);
    CHECK(fallback<silent&, opinionated&>(none, strict).on_leak() == leak::report); // as who says nothing does
    CHECK(fallback<silent&, silent&>(none, none).on_leak() == leak::report);
    CHECK(fallback<silent&, silent&>(none, none).on_violation() == wrong::report);
}

TEST_CASE("fallback: a handler for mistakes reaches the guards of both pools") {
    using guarded = weir::layer::guard<counting_pool<>>;
    fallback<guarded, guarded> pool(std::size_t{100}, std::size_t{1000});
    pool.on_violation(&hear);
    void* const blocks[] = {pool.allocate(on_host, 50), pool.allocate(on_host, 500)};
    REQUIRE(pool.first().owns(blocks[0]));
    REQUIRE_FALSE(pool.first().owns(blocks[1]));
    for (std::size_t i = 0; i != 2; ++i) {
        pool.deallocate(on_host, blocks[i], 1);
        REQUIRE(heard.size() == i + 1);
        CHECK_SAYS(heard[i], "and is freed with 1 byte");
    }
}

TEST_CASE("fallback: threads share it, and every block finds its way home") {
    both pool(std::size_t{5000}, SIZE_MAX);
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 4; ++t)
        crew.emplace_back([&, t] {
            std::mt19937_64 draw(t);
            std::vector<std::pair<void*, std::size_t>> live;
            for (int step = 0; step < 1500; ++step) {
                if (draw() % 2 == 0) {
                    std::size_t const bytes = draw() % 1000 + 1;
                    live.emplace_back(pool.allocate(on_host, bytes), bytes);
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
    CHECK(pool.first().live_blocks() == 0);
    CHECK(pool.second().live_blocks() == 0);
    CHECK(pool.first().frees > 0);
    CHECK(pool.second().frees > 0);
}

namespace {
template <class Upstream>
using plain_pool = weir::pool<Upstream, weir::placement::best_fit<>, weir::reuse::immediate>;
using card = plain_pool<weir::upstream::host>;
template <class Pool>
using over = plain_pool<weir::upstream::from_pool<Pool>>;
using piece = plain_pool<weir::upstream::span<memory_space::host>>;

template <class Upper, class Lower>
constexpr bool within = weir::layer::detail::lies_within<Upper, Lower>::value;
struct derived_card : card {};
using limited = weir::layer::limit<card&>;
using limited_over = weir::layer::limit<over<card>>;

static_assert(within<over<card>, card> && !within<card, over<card>> && !within<card, card>);
static_assert(!within<over<card>, counting_pool<>> && !within<over<card>, over<card>>);
static_assert(within<over<over<card>>, card> && within<over<over<card>>, over<card>>);
static_assert(within<over<limited>, card> && within<over<card>, limited> && within<limited_over, card>);
static_assert(within<over<derived_card>, card> && within<over<card>, derived_card>);
static_assert(within<fallback<counting_pool<>&, over<card>&>, card> && within<over<card>, fallback<counting_pool<>&, card&>>);
static_assert(within<over<fallback<counting_pool<>&, card&>>, card>);
static_assert(within<over<fallback<card&, both&>>, fallback<both&, card&>>);
static_assert(!within<over<fallback<counting_pool<>&, both&>>, fallback<piece&, card&>>);
static_assert(within<piece, card>);
} // namespace

TEST_CASE_TEMPLATE("fallback: a second pool that stands on the first gets its own blocks back", Second, over<card>, over<limited>,
                   limited_over, piece) {
    constexpr std::size_t chunk = 1 << 20;
    card first{weir::pool_options{}.limit(2 * chunk)};
    limited tenant(SIZE_MAX, first);
    auto const run = [&](auto&& second) {
        auto& owner = static_cast<Second&>(second);
        owner.reserve(chunk);
        fallback<card&, Second&> pool(first, owner);
        void* const filler = first.allocate_sync(chunk);
        void* const block = pool.allocate_sync(1000);
        REQUIRE(first.owns(block));
        REQUIRE(owner.owns(block));
        CHECK(owner.state().live_blocks == 1);
        std::size_t const of_first = first.in_use_bytes();
        pool.deallocate_sync(block, 1000);
        CHECK(owner.state().live_blocks == 0);
        CHECK(first.in_use_bytes() == of_first); // the chunk is still the second pool's
        pool.deallocate_sync(filler, chunk);
        CHECK(first.in_use_bytes() == of_first - chunk);
    };
    if constexpr (std::is_same_v<Second, over<card>>)
        run(over<card>(weir::upstream::from_pool<card>(first, on_host)));
    else if constexpr (std::is_same_v<Second, over<limited>>)
        run(over<limited>(weir::upstream::from_pool<limited>(tenant, on_host)));
    else if constexpr (std::is_same_v<Second, limited_over>)
        run(limited_over(SIZE_MAX, weir::upstream::from_pool<card>(first, on_host)));
    else {
        void* const memory = first.allocate_sync(chunk, 512);
        run(piece(weir::upstream::span<memory_space::host>(memory, chunk)));
        first.deallocate_sync(memory, chunk, 512);
    }
    CHECK(first.in_use_bytes() == 0);
}

TEST_CASE("fallback: a first pool that stands on the second keeps its own blocks") {
    card below;
    over<card> first(weir::upstream::from_pool<card>(below, on_host), weir::pool_options{}.limit(1 << 20));
    fallback<over<card>&, card&> pool(first, below);
    void* const a = pool.allocate_sync(1000);
    void* const b = pool.allocate_sync(2 << 20);
    CHECK(first.state().live_blocks == 1);
    pool.deallocate_sync(a, 1000);
    pool.deallocate_sync(b, 2 << 20);
    CHECK(first.state().live_blocks == 0);
    CHECK(first.trim() != 0);
    CHECK(below.in_use_bytes() == 0);
}

namespace {
struct failure {};
// Its optional members throw as often as they are told to; no contract forbids that.
struct throwing : counting_pool<> {
    bool owns(void const* p) const { return fail(), counting_pool<>::owns(p); }
    std::size_t before_destroy(weir::stream_ref) { return fail(), std::size_t{1}; }
    void in_container(void*, weir::stream_ref) { fail(), ++containers; }
    void examine(weir::memory_report& now) const { fail(), now.device_free_bytes = 5; }
    weir::violation_action on_violation() const { return fail(), weir::violation_action::abort; }
    void on_violation(void (*)(char const*)) { fail(); }
    weir::leak_action on_leak() const { return fail(), weir::leak_action::abort; }
    void fail() const {
        if (failures != 0 && --failures + 1 != 0)
            throw failure();
    }
    mutable int failures = 0;
    int containers = 0;
};
} // namespace

TEST_CASE("fallback: what a pool's optional members throw is its caller's, or a free that waits for the pool's end") {
    using pool_type = fallback<throwing, throwing>;
    pool_type pool;
    throwing& first = pool.first();
    void* const p = pool.allocate(on_host, 100);
    first.failures = 1;
    pool.in_container(p, on_host); // once more
    CHECK(first.containers == 1);
    first.failures = 2;
    pool.in_container(p, on_host);
    CHECK(first.containers == 1);
    auto const throws = [&](auto const& call) {
        first.failures = 1;
        CHECK_THROWS_AS(call(), failure);
    };
    throws([&] { static_cast<void>(pool.before_destroy(on_host)); });
    throws([&] { static_cast<void>(pool.on_violation()); });
    throws([&] { static_cast<void>(pool.on_leak()); });
    throws([&] { pool.on_violation([](char const*) {}); });
    first.failures = 1;
    CHECK(pool.full_state().device_free_bytes == 5); // the second pool's
    first.failures = 1;
    pool.deallocate(on_host, p, 100);
    CHECK(first.live_blocks() == 0);
    void* const q = pool.allocate(on_host, 100);
    first.failures = 2;
    pool.deallocate(on_host, q, 100);
    CHECK(first.live_blocks() == 1);
    CHECK(pool.second().frees == 0);
}
