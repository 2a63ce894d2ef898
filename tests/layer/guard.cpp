// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <sys/wait.h>
#include <support/counting_pool.hpp>
#include <support/failing_new.hpp>
#include <support/one_block.hpp>
#include <support/recorded_upstream.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>
#include <weir/growth/fixed.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/placement/arena.hpp>
#include <weir/pool/pool.hpp>
#include <weir/pool/scope.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/host.hpp>

using support::counting_pool;
using weir::on_host;
using guarded = weir::layer::guard<counting_pool<>>;
using guarded_arena = weir::layer::guard<weir::pool<support::recorded_upstream<>, weir::placement::arena,
                                                    weir::reuse::immediate, weir::growth::fixed<64 * weir::KiB>>>;

namespace {

std::mutex heard_mutex;
std::vector<std::string> heard;

void hear(char const* sentence) {
    std::lock_guard<std::mutex> const lock(heard_mutex);
    heard.push_back(sentence);
}

// The only complaint so far.
std::string last() {
    REQUIRE(heard.size() == 1);
    std::string const sentence = heard.front();
    heard.clear();
    return sentence;
}

// A guarded pool whose complaints are collected.
template <class Pool = guarded>
struct listener {
    template <class... Arguments>
    explicit listener(Arguments&&... arguments) : pool(std::forward<Arguments>(arguments)...) {
        heard.clear();
        pool.on_violation(&hear);
    }
    ~listener() { CHECK_MESSAGE(heard.empty(), "complaints that no test expected: ", heard.empty() ? "" : heard.front()); }
    Pool pool;
};

// The same of an arena, for scopes.
struct arena_listener {
    support::upstream_ledger ledger;
    listener<guarded_arena> here{support::recorded_upstream<>(ledger)};
    guarded_arena& pool = here.pool;
};

std::string address(void const* p) {
    char text[32];
    std::snprintf(text, sizeof text, "%p", p);
    return text;
}

using host_pool = weir::pool<weir::upstream::host, weir::placement::arena, weir::reuse::immediate,
                             weir::growth::fixed<64 * weir::KiB>>;

} // namespace

TEST_CASE("guard: is made from what makes its pool, and from nothing else") {
    using pool = counting_pool<>;
    using by_reference = weir::layer::guard<pool&>;
    CHECK(std::is_constructible_v<guarded>);
    CHECK(std::is_constructible_v<by_reference, pool&>);
    CHECK_FALSE(std::is_constructible_v<by_reference, pool const&>);
    CHECK_FALSE(std::is_constructible_v<guarded, int*, int, int>);
    CHECK_FALSE(std::is_constructible_v<guarded, guarded&>);
    CHECK_FALSE(std::is_constructible_v<guarded, guarded>);
}

TEST_CASE("guard: right frees pass without a word") {
    listener<> here;
    for (int round = 0; round < 3; ++round) {
        void* const a = here.pool.allocate(on_host, 100);
        void* const b = here.pool.allocate(on_host, 200, 1024);
        here.pool.deallocate(on_host, a, 100);
        here.pool.deallocate(on_host, nullptr, 5);
        here.pool.deallocate(on_host, b, 200, 1024);
    }
    CHECK(here.pool.inner().frees == 6);
    CHECK(here.pool.allocate(on_host, 0) == nullptr);
}

TEST_CASE("guard: a wrong free is said, and goes no further") {
    listener<> here;
    guarded other;
    int local = 0;
    auto* const p = static_cast<char*>(here.pool.allocate(on_host, 1000));
    void* const theirs = other.allocate(on_host, 1000);
    void* const freed = here.pool.allocate(on_host, 1000);
    here.pool.deallocate(on_host, freed, 1000);
    struct {
        void* p;
        char const* says;
    } const rows[] = {{freed, " is freed already; free each block once"},
                      {&local, " was not handed out by this pool; free it where it was allocated"},
                      {theirs, " was not handed out by this pool; free it where it was allocated"},
                      {p + 1, " is 1 byte inside a live block; pass the pointer that 'allocate' returned"},
                      {p + 16, " is 16 bytes inside a live block; pass the pointer that 'allocate' returned"},
                      {p + 999, " is 999 bytes inside a live block; pass the pointer that 'allocate' returned"}};
    for (auto const& row : rows) {
        here.pool.deallocate(on_host, row.p, 1000);
        CHECK(last() == "weir: layer::guard: pool 'counting': the block at " + address(row.p) + row.says);
    }
    CHECK(here.pool.inner().frees == 1);
    here.pool.deallocate(on_host, p, 1000);
    other.deallocate(on_host, theirs, 1000);
}

TEST_CASE("guard: a wrong size or alignment is said, and the block freed with the right ones") {
    listener<> here;
    struct {
        std::size_t bytes, alignment;
        char const* says;
    } const rows[] = {{99, 64, "99 bytes at alignment 64"},   {101, 64, "101 bytes at alignment 64"},
                      {0, 64, "0 bytes at alignment 64"},     {100, 32, "100 bytes at alignment 32"},
                      {100, 128, "100 bytes at alignment 128"}, {1, 1, "1 byte at alignment 1"}};
    for (auto const& row : rows) {
        void* const p = here.pool.allocate(on_host, 100, 64);
        here.pool.deallocate(on_host, p, row.bytes, row.alignment); // the pool below checks what it is given
        CHECK(last() == "weir: layer::guard: pool 'counting': the block at " + address(p) +
                            " was allocated with 100 bytes at alignment 64 and is freed with " + row.says +
                            "; pass the allocation's (freed with those)");
    }
    CHECK(here.pool.inner().frees == 6);
    CHECK(here.pool.inner().live_blocks() == 0);
}

TEST_CASE("guard: 'used_on' of a block that is not live is refused, and the pool not told") {
    listener<> here;
    void* const p = here.pool.allocate(on_host, 100);
    here.pool.used_on(p, cudaStreamLegacy);
    CHECK(here.pool.inner().last_used == p);
    CHECK(here.pool.inner().last_stream == cudaStreamLegacy);
    here.pool.deallocate(on_host, p, 100);
    here.pool.inner().last_used = nullptr;
    CHECK(support::sentence_of<weir::usage_error>([&] { here.pool.used_on(p, cudaStreamLegacy); }) ==
          "weir: layer::guard: 'used_on' of the block at " + address(p) + ", which is freed already; free each block once");
    int local = 0;
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { here.pool.used_on(&local, cudaStreamLegacy); }),
               "was not handed out by this pool");
    CHECK(here.pool.inner().last_used == nullptr);
    CHECK(support::sentence_of<weir::usage_error>([&] { here.pool.last_used_on(p, cudaStreamLegacy); }) ==
          "weir: layer::guard: 'last_used_on' of the block at " + address(p) + ", which is freed already; free each block once");
    CHECK(here.pool.inner().last_uses == 0);
    here.pool.used_on(nullptr, cudaStreamLegacy); // nothing
    here.pool.last_used_on(nullptr, cudaStreamLegacy);
}

TEST_CASE("guard: a block that ended with its scope needs no free, and one that is made is said") {
    arena_listener here;
    guarded_arena& pool = here.pool;
    void* const before = pool.allocate(on_host, 100);
    void* const freed = pool.allocate(on_host, 200);
    void* inside = nullptr;
    {
        weir::scope const frame(pool);
        inside = pool.allocate(on_host, 300);
        pool.deallocate(on_host, freed, 200);
        CHECK(pool.state().live_blocks == 2);
    }
    CHECK(pool.state().live_blocks == 1);
    CHECK(pool.full_state().largest_live.size() == 1);
    pool.deallocate(on_host, inside, 300);
    CHECK(last() == "weir: layer::guard: pool 'unnamed': the block at " + address(inside) +
                        " ended already, with its scope, 'rewind' or 'clear'; such a block needs no free");
    pool.deallocate(on_host, freed, 200);
    CHECK(last() == "weir: layer::guard: pool 'unnamed': the block at " + address(freed) + " is freed already; free each block once");
    pool.deallocate(on_host, before, 99);
    CHECK_SAYS(last(), "was allocated with 100 bytes");
    CHECK(pool.in_use_bytes() == 0);

    pool.clear();
    void* const cleared = pool.allocate(on_host, 400);
    pool.clear();
    pool.deallocate(on_host, cleared, 400);
    CHECK_SAYS(last(), "ended already, with its scope, 'rewind' or 'clear'");
    CHECK(pool.allocate(on_host, 400) == cleared);
    pool.deallocate(on_host, cleared, 400); // it is a block again
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE("guard: knows which of its blocks a scope ended also where others use the pool") {
    heard.clear();
    support::upstream_ledger ledger;
    guarded_arena::pool_type pool{support::recorded_upstream<>(ledger)};
    weir::layer::guard<guarded_arena::pool_type&> first(pool), second(pool);
    first.on_violation(&hear);
    second.on_violation(&hear);
    void* const others = pool.allocate(on_host, 1000);
    void* const kept = second.allocate(on_host, 50);
    void* ended = nullptr;
    void* also = nullptr;
    {
        weir::scope const frame(first);
        ended = first.allocate(on_host, 100);
        CHECK(pool.allocate(on_host, 10) != nullptr);
        also = first.allocate(on_host, 100);
    }
    CHECK(pool.state().live_blocks == 2);
    for (void* each : {ended, also}) {
        first.deallocate(on_host, each, 100);
        CHECK_SAYS(last(), "ended already");
    }
    CHECK(pool.state().live_blocks == 2);
    second.deallocate(on_host, kept, 50);
    pool.deallocate(on_host, others, 1000);
    CHECK(heard.empty());
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("guard: what ended behind its back harms no other block, and its address may come again") {
    arena_listener here;
    guarded_arena& pool = here.pool;
    void* const a = pool.allocate(on_host, 100);
    void* b = nullptr;
    {
        weir::scope const frame(pool.inner());
        b = pool.allocate(on_host, 100);
        CHECK(pool.allocate(on_host, 100) != nullptr);
    }
    void* const d = pool.allocate(on_host, 100);
    CHECK(d == b);
    {
        weir::scope const frame(pool);
        CHECK(pool.allocate(on_host, 100) != nullptr); // where the second of them was
    }
    CHECK(pool.full_state().largest_live.size() == 2);
    int local = 0;
    pool.deallocate(on_host, &local, 4); // which looks through all live blocks
    CHECK_SAYS(last(), "was not handed out");
    pool.deallocate(on_host, d, 100);
    pool.deallocate(on_host, a, 100);
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.full_state().largest_live.empty());
}

TEST_CASE("guard: 'rewind' to a mark that is none any more ends nothing") {
    arena_listener here;
    guarded_arena& pool = here.pool;
    auto const outer = pool.mark();
    CHECK(pool.allocate(on_host, 10) != nullptr);
    auto const inner = pool.mark();
    pool.rewind(outer);
    void* const p = pool.allocate(on_host, 100);
    CHECK(pool.mark().second == inner.second + 1); // in the other's place, and further on
    void* const q = pool.allocate(on_host, 100);
    pool.rewind(inner);
    CHECK(pool.state().live_blocks == 2);
    pool.deallocate(on_host, q, 100);
    pool.deallocate(on_host, p, 100);
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE("guard: knows what is live through any marks, rewinds and clears") {
    using mark = decltype(std::declval<guarded_arena&>().mark());
    struct one {
        void* p;
        std::size_t bytes;
    };
    struct level {
        mark point;
        std::size_t taken; // of 'live', which is in the order of taking
    };
    for (unsigned seed = 0; seed < 40; ++seed) {
        std::mt19937 draw(seed);
        arena_listener here;
        guarded_arena& pool = here.pool;
        std::vector<one> live;
        std::vector<level> levels;
        auto const all_are_known = [&] {
            REQUIRE(heard.empty());
            REQUIRE(pool.state().live_blocks == live.size());
            REQUIRE(pool.full_state().largest_live.size() == std::min(live.size(), std::size_t{10}));
        };
        for (int step = 0; step < 400; ++step)
            switch (draw() % 10) {
            case 0: levels.push_back(level{pool.mark(), live.size()}); break;
            case 1:
                if (!levels.empty()) {
                    levels.resize(draw() % levels.size() + 1, levels.back());
                    pool.rewind(levels.back().point);
                    std::vector<one> const gone(live.begin() + static_cast<std::ptrdiff_t>(levels.back().taken), live.end());
                    live.resize(levels.back().taken, one{});
                    for (one const& each : gone) {
                        pool.deallocate(on_host, each.p, each.bytes);
                        REQUIRE(support::contains(last(), "ended already"));
                    }
                    all_are_known();
                }
                break;
            case 2:
                if (draw() % 10 == 0) {
                    pool.clear();
                    live.clear();
                    levels.clear();
                    all_are_known();
                }
                break;
            case 3:
            case 4:
                if (!live.empty()) {
                    std::size_t const at = draw() % live.size();
                    pool.deallocate(on_host, live[at].p, live[at].bytes);
                    live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
                    for (level& each : levels)
                        each.taken -= each.taken > at;
                    REQUIRE(heard.empty());
                }
                break;
            default: {
                std::size_t const bytes = draw() % 9000 + 1;
                live.push_back(one{pool.allocate(on_host, bytes), bytes});
            }
            }
        all_are_known();
        for (one const& each : live)
            pool.deallocate(on_host, each.p, each.bytes);
        live.clear();
        all_are_known();
    }
}

TEST_CASE("guard: an out_of_memory names the ten largest live blocks, and so does a full report") {
    guarded pool(std::size_t{100'000}, "full");
    std::vector<void*> live;
    for (std::size_t i = 1; i <= 12; ++i)
        live.push_back(pool.allocate(on_host, 16 * i));
    pool.deallocate(on_host, live[11], 16 * 12);
    live[11] = pool.allocate(on_host, 16); // perhaps at the same address: its bytes are the new ones
    try {
        static_cast<void>(pool.allocate(on_host, 200'000));
        FAIL_CHECK("nothing was thrown");
    } catch (weir::out_of_memory const& error) {
        REQUIRE(error.largest_live().size() == 10);
        for (std::size_t i = 0; i < 10; ++i) {
            CHECK(error.largest_live()[i].bytes == 16 * (11 - i));
            CHECK(error.largest_live()[i].address == live[10 - i]);
        }
        CHECK_SAYS(error.what(), "; the largest live blocks: 176 B at " + address(live[10]) + ", 160 B at ");
    }
    CHECK(pool.state().largest_live.empty()); // a question that costs
    CHECK(pool.full_state().largest_live.size() == 10);
    for (std::size_t i = 0; i < 12; ++i)
        pool.deallocate(on_host, live[i], i == 11 ? 16 : 16 * (i + 1));
    CHECK(pool.full_state().largest_live.empty());
}

TEST_CASE("guard: by default the sentence goes to standard error") {
    guarded pool;
    int local = 0;
    std::string const text = support::standard_error_of([&] { pool.deallocate(on_host, &local, 4); });
    CHECK(text == "weir: layer::guard: pool 'counting': the block at " + address(&local) +
                      " was not handed out by this pool; free it where it was allocated\n");
}

TEST_CASE("guard: what the pool refuses or throws leaves no trace") {
    listener<> here;
    here.pool.inner().throw_at = 1;
    CHECK_THROWS_AS(static_cast<void>(here.pool.try_allocate(on_host, 100)), support::pool_failure);
    guarded small(std::size_t{10});
    small.on_violation(&hear);
    CHECK(small.try_allocate(on_host, 100) == nullptr);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(small.allocate(on_host, 100)); }),
               "counting has no 100");
}

TEST_CASE("guard: its ledger grows with the addresses that were handed out, not with the calls") {
    if (!support::host_memory_can_fail)
        return;
    weir::layer::guard<support::one_block> pool;
    pool.deallocate(on_host, pool.try_allocate(on_host, 64), 64);
    support::failing_new const none(0);
    for (int i = 0; i < 1000; ++i)
        pool.deallocate(on_host, pool.try_allocate(on_host, 64), 64);
}

TEST_CASE("guard: an out_of_memory tells what the pool knows besides") {
    struct asked : counting_pool<> {
        using counting_pool<>::counting_pool;
        void examine(weir::memory_report& now) const noexcept { now.device_free_bytes = 12345; }
        weir::refusal refused(std::size_t, std::size_t) const { // counting_pool's own knows nothing of this class
            weir::refusal said{state(), "no"};
            examine(said.state);
            return said;
        }
    };
    weir::layer::guard<asked> pool(std::size_t{10});
    CHECK(pool.full_state().device_free_bytes == 12345);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(on_host, 100)); }),
               ", free on the device 12.05 KiB");
}

TEST_CASE("guard: without host memory an allocation changes nothing, and a wrong free is still said") {
    struct scene {
        listener<> here;
        std::vector<void*> live;
    };
    long const failures = support::each_failure(
        [] {
            auto fresh = std::make_unique<scene>();
            for (int i = 0; i < 40; ++i) // until the ledger is full
                fresh->live.push_back(fresh->here.pool.allocate(on_host, 100));
            return fresh;
        },
        [](std::unique_ptr<scene>& s) { s->live.push_back(s->here.pool.allocate(on_host, 100)); },
        [](std::unique_ptr<scene>& s) {
            CHECK(s->here.pool.inner().frees == 0); // nothing was handed out and taken back
            CHECK(s->here.pool.inner().live_blocks() == 40);
            void* const p = s->here.pool.allocate(on_host, 100);
            s->here.pool.deallocate(on_host, p, 100);
        });
    if (!support::host_memory_can_fail)
        return;
    CHECK(failures > 0);
    guarded pool;
    int local = 0;
    std::string text;
    for (long successes = 0; !support::contains(text, "was not handed out by this pool"); ++successes) {
        CHECK((text.empty() || text == "weir: layer::guard: a mistake, and the host has no memory to say which\n"));
        REQUIRE(successes < 100);
        text = support::standard_error_of([&] {
            support::failing_new const fails(successes);
            pool.deallocate(on_host, &local, 4);
        });
    }
}

TEST_CASE("guard: of a pool that does not tell its state a mistake is said without its name, and no owners at its end") {
    struct silent : counting_pool<> {
        weir::memory_report state() const { throw support::pool_failure{}; }
    };
    {
        listener<weir::layer::guard<silent>> here;
        int local = 0;
        here.pool.deallocate(on_host, &local, 4);
        CHECK(last() == "weir: layer::guard: the block at " + address(&local) +
                            " was not handed out by this pool; free it where it was allocated");
        CHECK(here.pool.try_allocate(on_host, 8) != nullptr);
    }
    CHECK(heard.empty());
}

TEST_CASE("guard: where others took the ledger's room meanwhile, and the host has none, the block goes back") {
    if (!support::host_memory_can_fail)
        return;
    struct crowded : counting_pool<> {
        void* try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
            void* const p = counting_pool<>::try_allocate(stream, bytes, alignment);
            if (auto const now = std::exchange(meanwhile, nullptr))
                now();
            return p;
        }
        std::function<void()> meanwhile;
    };
    weir::layer::guard<crowded> pool;
    std::vector<void*> others(10); // as many as the ledger had room for
    pool.inner().meanwhile = [&] {
        for (void*& each : others)
            each = pool.allocate(on_host, 8);
        support::allocations_left = 0;
    };
    bool threw = false;
    try {
        static_cast<void>(pool.try_allocate(on_host, 100));
    } catch (std::bad_alloc const&) {
        threw = true;
    }
    support::allocations_left = -1;
    CHECK(threw);
    CHECK(pool.inner().live_blocks() == others.size());
    CHECK(pool.full_state().largest_live[0].bytes == 8);
    for (void* const each : others)
        pool.deallocate(on_host, each, 8);
}

TEST_CASE("guard: finds every wrong free among many right ones") {
    std::mt19937_64 draw(41);
    listener<> here;
    std::vector<std::pair<char*, std::size_t>> live;
    for (int step = 0; step < 4000; ++step) {
        if (live.size() < 20 || (live.size() < 200 && draw() % 2 == 0)) {
            std::size_t const bytes = draw() % 500 + 2;
            live.emplace_back(static_cast<char*>(here.pool.allocate(on_host, bytes)), bytes);
            continue;
        }
        std::swap(live[draw() % live.size()], live.back());
        auto const [p, bytes] = live.back();
        switch (draw() % 8) {
        case 0:
            here.pool.deallocate(on_host, p + 1 + draw() % (bytes - 1), bytes);
            REQUIRE(support::contains(last(), "inside a live block"));
            break;
        case 1:
            here.pool.deallocate(on_host, p, bytes + 1);
            REQUIRE(support::contains(last(), "was allocated with"));
            live.pop_back();
            break;
        default:
            here.pool.deallocate(on_host, p, bytes);
            live.pop_back();
        }
        REQUIRE(here.pool.inner().live_blocks() == live.size());
    }
    for (auto const& [p, bytes] : live)
        here.pool.deallocate(on_host, p, bytes);
}

TEST_CASE("guard: of threads that free one block, one does, and the others hear of it") {
    listener<> here;
    for (int round = 0; round < 200; ++round) {
        void* const p = here.pool.allocate(on_host, 64);
        std::atomic<int> ready{0};
        std::vector<std::thread> crew;
        for (int t = 0; t < 2; ++t)
            crew.emplace_back([&] {
                ready.fetch_add(1);
                while (ready.load() < 2)
                    std::this_thread::yield();
                here.pool.deallocate(on_host, p, 64);
            });
        for (std::thread& each : crew)
            each.join();
        CHECK(support::contains(last(), "is freed already"));
    }
    CHECK(here.pool.inner().frees == 200);
}

TEST_CASE("guard: threads share its ledger, and its largest blocks are told meanwhile") {
    listener<> here;
    std::atomic<int> wrong{0};
    std::vector<std::thread> crew;
    for (int t = 0; t < 4; ++t)
        crew.emplace_back([&, t] {
            for (int i = 0; i < 300; ++i) {
                void* const a = here.pool.allocate(on_host, 32);
                void* const b = here.pool.allocate(on_host, 64);
                if (t == 0 && here.pool.full_state().largest_live.size() < 2)
                    wrong.fetch_add(1);
                here.pool.deallocate(on_host, a, 32);
                here.pool.deallocate(on_host, b, 64);
            }
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(wrong.load() == 0);
    CHECK(here.pool.inner().live_blocks() == 0);
    CHECK(here.pool.inner().frees == 4 * 300 * 2);
}

TEST_CASE("guard: an address that is handed out again before the free has returned is the next owner's") {
    static int told = 0;
    told = 0;
    weir::layer::guard<support::one_block> pool;
    pool.on_violation([](char const*) { ++told; });
    void* const p = pool.try_allocate(weir::on_host, 100);
    void* next = nullptr;
    pool.inner().at_free = [&] { next = pool.try_allocate(weir::on_host, 50); };
    pool.deallocate(weir::on_host, p, 100);
    CHECK(next == p);
    pool.deallocate(weir::on_host, next, 50);
    CHECK(told == 0);
}

// The memory of a pool that ended, which nobody uses for something else.
template <class Pool>
struct ended_pool {
    template <class Use>
    explicit ended_pool(weir::pool_options const& options, Use const& use) {
        Pool* const pool = new (memory) Pool(options);
        use(*pool);
        pool->~Pool();
    }
    alignas(Pool) unsigned char memory[sizeof(Pool)];
};

TEST_CASE("guard: a free after the end of the pool is said, and touches nothing of it") {
    using pool_type = weir::layer::guard<host_pool>;
    heard.clear();
    std::vector<void*> blocks;
    weir::pool_options const options = weir::pool_options{}.on_leak(weir::leak_action::ignore);
    auto const pool = std::make_unique<ended_pool<pool_type>>(options, [&](pool_type& alive) {
        alive.on_violation(&hear);
        for (int i = 0; i < 100; ++i)
            blocks.push_back(alive.allocate_sync(100));
    });
    auto& gone = reinterpret_cast<pool_type&>(pool->memory);
    weir::pool_ref<weir::memory_space::host> const calls(gone);
    for (void* const each : blocks)
        calls.deallocate(on_host, each, 100);
    CHECK(heard.size() == 100);
    CHECK(heard.back() == "weir: layer::guard: the block at " + address(blocks.back()) +
                              " is freed after the end of its pool, with which it went back; free it before, or end its container");
    CHECK_THROWS_AS(static_cast<void>(calls.allocate(on_host, 100)), weir::usage_error);
    heard.clear();
    if (!support::host_memory_can_fail)
        return;
    heard.reserve(1);
    static char const* said = nullptr;
    auto const short_of_memory = std::make_unique<ended_pool<pool_type>>(options, [&](pool_type& alive) {
        alive.on_violation([](char const* sentence) { said = sentence; });
        blocks[0] = alive.allocate_sync(100);
    });
    {
        support::failing_new const at_once(0);
        reinterpret_cast<pool_type&>(short_of_memory->memory).deallocate_sync(blocks[0], 100);
    }
    CHECK(std::string(said) == "weir: layer::guard: a block is freed after the end of its pool");
}

TEST_CASE("guard: the options can be asked for what they say, also through the layer") {
    weir::layer::guard<host_pool> const pool(weir::pool_options{}.on_violation(weir::violation_action::abort));
    CHECK(pool.on_violation() == weir::violation_action::abort);
}

#ifdef WEIR_SIMULATED_CUDA // a CUDA context does not survive a fork
TEST_CASE_TEMPLATE("guard: a pool whose options say so aborts at a wrong free, through layers too, and says why before", Pool,
                   host_pool, weir::layer::statistics<host_pool>) {
    weir::layer::guard<Pool> pool(weir::pool_options{}.on_violation(weir::violation_action::abort));
    int status = 0;
    std::string const said = support::standard_error_of([&] {
        pid_t const child = fork();
        if (child == 0) {
            std::signal(SIGABRT, SIG_DFL);
            int elsewhere = 0;
            pool.deallocate_sync(&elsewhere, sizeof elsewhere);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
    });
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
    CHECK(said.find("was not handed out by this pool") != std::string::npos);
}
#endif
