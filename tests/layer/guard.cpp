// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <doctest/doctest.h>
#include <memory>
#include <mutex>
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

// A guarded pool whose complaints are collected.
struct listener {
    listener() {
        heard.clear();
        pool.on_violation(&hear);
    }
    ~listener() { CHECK_MESSAGE(heard.empty(), "complaints that no test expected: ", heard.empty() ? "" : heard.front()); }
    std::string last() {
        REQUIRE(heard.size() == 1);
        std::string const sentence = heard.front();
        heard.clear();
        return sentence;
    }
    guarded pool;
};

std::string address(void const* p) {
    char text[32];
    std::snprintf(text, sizeof text, "%p", p);
    return text;
}

// Has one block, which costs it no host memory.
struct one_block : weir::resource::pool_base<one_block> {
    static constexpr weir::memory_space space = weir::memory_space::host;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = 16;
    void* try_allocate(weir::stream_ref, std::size_t bytes, std::size_t = default_alignment) {
        if (bytes > sizeof place)
            throw support::pool_failure{};
        return bytes == sizeof place ? place : nullptr;
    }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t = default_alignment) noexcept {}
    bool owns(void const* p) const { return p == place; }
    weir::memory_report state() const { return weir::memory_report{"one"}; }
    weir::text refusal(std::size_t, std::size_t) const { return "one block is all"; }
    alignas(16) unsigned char place[64] = {};
};

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
    listener here;
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

TEST_CASE("guard: a second free is said and goes no further") {
    listener here;
    void* const p = here.pool.allocate(on_host, 100);
    here.pool.deallocate(on_host, p, 100);
    here.pool.deallocate(on_host, p, 100);
    CHECK(here.last() == "weir: layer::guard: pool 'counting': the block at " + address(p) + " is freed already; free each block once");
    CHECK(here.pool.inner().frees == 1);
}

TEST_CASE("guard: a free of memory from elsewhere is said and goes no further") {
    listener here;
    guarded other;
    other.on_violation(&hear);
    int local = 0;
    void* const theirs = other.allocate(on_host, 100);
    for (void* each : {static_cast<void*>(&local), theirs}) {
        here.pool.deallocate(on_host, each, 100);
        CHECK(here.last() == "weir: layer::guard: pool 'counting': the block at " + address(each) +
                                 " was not handed out by this pool; free it where it was allocated");
    }
    CHECK(here.pool.inner().frees == 0);
    other.deallocate(on_host, theirs, 100);
    CHECK(other.inner().frees == 1);
}

TEST_CASE("guard: an address inside a block is said, with how far inside") {
    listener here;
    auto* const p = static_cast<char*>(here.pool.allocate(on_host, 1000));
    for (std::size_t inside : {std::size_t{1}, std::size_t{16}, std::size_t{999}}) {
        here.pool.deallocate(on_host, p + inside, 1000 - inside);
        CHECK(here.last() == "weir: layer::guard: pool 'counting': the block at " + address(p + inside) + " is " + std::to_string(inside) +
                                 (inside == 1 ? " byte" : " bytes") + " inside a live block; pass the pointer that 'allocate' returned");
    }
    CHECK(here.pool.inner().frees == 0);
    here.pool.deallocate(on_host, p, 1000);
    CHECK(here.pool.inner().frees == 1);
}

TEST_CASE("guard: a wrong size or alignment is said, and the block freed with the right ones") {
    listener here;
    struct wrong {
        std::size_t bytes, alignment;
    };
    for (wrong each : {wrong{99, 64}, wrong{101, 64}, wrong{0, 64}, wrong{100, 32}, wrong{100, 128}, wrong{1, 1}}) {
        void* const p = here.pool.allocate(on_host, 100, 64);
        here.pool.deallocate(on_host, p, each.bytes, each.alignment); // the pool below checks what it is given
        CHECK(here.last() == "weir: layer::guard: pool 'counting': the block at " + address(p) +
                                 " was allocated with 100 bytes at alignment 64 and is freed with " +
                                 std::to_string(each.bytes) + (each.bytes == 1 ? " byte" : " bytes") + " at alignment " + std::to_string(each.alignment) +
                                 "; pass the allocation's (freed with those)");
    }
    CHECK(here.pool.inner().frees == 6);
    CHECK(here.pool.inner().live_blocks() == 0);
}

TEST_CASE("guard: knows a block that is handed out again at an address that was freed") {
    listener here;
    void* first = here.pool.allocate(on_host, 256);
    std::vector<void*> others;
    here.pool.deallocate(on_host, first, 256);
    for (int i = 0; i < 50; ++i) {
        void* const p = here.pool.allocate(on_host, 256); // the heap may give the same address
        here.pool.deallocate(on_host, p, 256);
    }
    CHECK(here.pool.inner().frees == 51);
}

TEST_CASE("guard: 'used_on' of a block that is not live is refused, and the pool not told") {
    listener here;
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
    heard.clear();
    support::upstream_ledger ledger;
    guarded_arena pool{support::recorded_upstream<>(ledger)};
    pool.on_violation(&hear);
    auto const last = [] {
        REQUIRE(heard.size() == 1);
        std::string const sentence = heard.front();
        heard.clear();
        return sentence;
    };
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
    CHECK(heard.empty());
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
        REQUIRE(heard.size() == 1);
        CHECK_SAYS(heard.front(), "ended already");
        heard.clear();
    }
    CHECK(pool.state().live_blocks == 2);
    second.deallocate(on_host, kept, 50);
    pool.deallocate(on_host, others, 1000);
    CHECK(heard.empty());
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("guard: what ended behind its back harms no other block, and its address may come again") {
    heard.clear();
    support::upstream_ledger ledger;
    guarded_arena pool{support::recorded_upstream<>(ledger)};
    pool.on_violation(&hear);
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
    CHECK(heard.size() == 1);
    heard.clear();
    pool.deallocate(on_host, d, 100);
    pool.deallocate(on_host, a, 100);
    CHECK(heard.empty());
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.full_state().largest_live.empty());
}

TEST_CASE("guard: 'rewind' to a mark that is none any more is said, and ends nothing") {
    heard.clear();
    support::upstream_ledger ledger;
    guarded_arena pool{support::recorded_upstream<>(ledger)};
    pool.on_violation(&hear);
    auto const outer = pool.mark();
    CHECK(pool.allocate(on_host, 10) != nullptr);
    auto const inner = pool.mark();
    pool.rewind(outer);
    void* const p = pool.allocate(on_host, 100);
    auto const fresh = pool.mark(); // in the other's place, and further on
    void* const q = pool.allocate(on_host, 100);
    pool.rewind(inner);
    REQUIRE(heard.size() == 1);
    CHECK(heard.front() == "weir: layer::guard: 'rewind' ended none of the blocks since the mark: an older mark was rewound to "
                           "before, or they ended by 'inner()'");
    heard.clear();
    CHECK(pool.state().live_blocks == 2);
    pool.rewind(fresh);
    CHECK(pool.state().live_blocks == 1);
    pool.deallocate(on_host, q, 100);
    CHECK(heard.size() == 1);
    pool.deallocate(on_host, p, 100);
    CHECK(heard.size() == 1);
    pool.rewind(outer);
    CHECK(heard.size() == 1); // nothing to end
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
        heard.clear();
        std::mt19937 draw(seed);
        support::upstream_ledger ledger;
        guarded_arena pool{support::recorded_upstream<>(ledger)};
        pool.on_violation(&hear);
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
                        REQUIRE(heard.size() == 1);
                        REQUIRE(support::contains(heard.front(), "ended already"));
                        heard.clear();
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
    listener here;
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
    weir::layer::guard<one_block> pool;
    auto const round = [&] {
        pool.deallocate(on_host, pool.try_allocate(on_host, 64), 64);
        CHECK(pool.try_allocate(on_host, 1) == nullptr);
        CHECK_THROWS_AS(static_cast<void>(pool.try_allocate(on_host, 65)), support::pool_failure);
    };
    round();
    support::failing_new const none(0);
    for (int i = 0; i < 1000; ++i)
        round();
}

TEST_CASE("guard: an out_of_memory tells what the pool knows besides") {
    struct asked : counting_pool<> {
        using counting_pool<>::counting_pool;
        void examine(weir::memory_report& now) const noexcept { now.device_free_bytes = 12345; }
        weir::memory_report refused_state(std::size_t, std::size_t) const { // counting_pool's own knows nothing of this class
            weir::memory_report now = state();
            examine(now);
            return now;
        }
    };
    weir::layer::guard<asked> pool(std::size_t{10});
    CHECK(pool.full_state().device_free_bytes == 12345);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(on_host, 100)); }),
               ", free on the device 12.05 KiB");
}

TEST_CASE("guard: without host memory an allocation changes nothing, and a wrong free is still said") {
    struct scene {
        listener here;
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
    std::string const nothing = "weir: layer::guard: a block is freed wrongly, and the host has no memory to say how\n";
    std::string text;
    bool said_without_the_name = false;
    for (long successes = 0; text.find("pool '") == std::string::npos; ++successes) { // the more memory, the more it says
        REQUIRE(successes < 100);
        text = support::standard_error_of([&] {
            support::failing_new const fails(successes);
            pool.deallocate(on_host, &local, 4);
        });
        CHECK((successes > 0 || text == nothing));
        if (text == nothing) {
            CHECK(!said_without_the_name);
            continue;
        }
        CHECK(text.find("was not handed out by this pool") != std::string::npos);
        said_without_the_name = said_without_the_name || text.find("pool '") == std::string::npos;
    }
    CHECK(said_without_the_name);
}

TEST_CASE("guard: finds every wrong free among many right ones") {
    std::mt19937_64 draw(41);
    listener here;
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
            REQUIRE(support::contains(here.last(), "inside a live block"));
            break;
        case 1:
            here.pool.deallocate(on_host, p, bytes + 1);
            REQUIRE(support::contains(here.last(), "was allocated with"));
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
    listener here;
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
        CHECK(support::contains(here.last(), "is freed already"));
    }
    CHECK(here.pool.inner().frees == 200);
}

TEST_CASE("guard: threads share its ledger, and its largest blocks are told meanwhile") {
    listener here;
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

namespace {
// Hands out what it is told to.
struct told_pool : weir::resource::pool_base<told_pool> {
    static constexpr weir::memory_space space = weir::memory_space::host;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = 16;
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t = default_alignment) { return ++live, next; }
    void deallocate(weir::stream_ref, void* p, std::size_t bytes, std::size_t = default_alignment) noexcept {
        --live;
        freed.emplace_back(p, bytes);
    }
    weir::memory_report state() const {
        if (fails)
            throw support::pool_failure{};
        weir::memory_report now;
        if (has_name)
            now.name = "told";
        now.live_blocks = live;
        return now;
    }
    weir::text refusal(std::size_t, std::size_t) const { return ""; }
    void* next = nullptr;
    std::size_t live = 0;
    bool fails = false, has_name = true;
    std::vector<std::pair<void*, std::size_t>> freed;
};

void* at(std::uintptr_t address) {
    return reinterpret_cast<void*>(address);
}
} // namespace

TEST_CASE("guard: bytes that a pool hands out twice are the pool's mistake, at once, and nobody's who frees") {
    struct {
        std::uintptr_t address;
        std::size_t bytes;
        bool twice;
    } const rows[] = {{0x1000, 100, true},  {0x1000, 50, true},  {0x1000, 300, true}, {0x1040, 16, true},  {0x0F00, 257, true},
                      {0x0F00, 300, true},  {0x1063, 1, true},   {0x1063, 99, true},  {0x0F00, 256, false}, {0x1064, 100, false},
                      {0x5000, 100, false}, {0x0010, 16, false}};
    for (auto const& row : rows)
        for (bool first_freed_first : {true, false}) {
            CAPTURE(row.address);
            CAPTURE(row.bytes);
            weir::layer::guard<told_pool> pool;
            pool.on_violation(&hear);
            heard.clear();
            std::pair<void*, std::size_t> const blocks[] = {{at(0x1000), 100}, {at(row.address), row.bytes}};
            for (auto const& [p, bytes] : blocks) {
                pool.inner().next = p;
                CHECK(pool.allocate(on_host, bytes) == p);
            }
            REQUIRE(heard.size() == std::size_t{row.twice});
            if (row.twice)
                CHECK(heard.front() == "weir: layer::guard: pool 'told': it handed out " + std::to_string(row.bytes) + " B at " +
                                           address(at(row.address)) +
                                           " on the host, and a live block has some of those bytes: 100 B at 0x1000 "
                                           "('allocate' on the host); the mistake is in the pool, its placement or what is "
                                           "below it, and not with those who free the blocks");
            for (bool first : {first_freed_first, !first_freed_first})
                pool.deallocate(on_host, blocks[!first].first, blocks[!first].second);
            CHECK(heard.size() == std::size_t{row.twice});
            CHECK(pool.inner().freed.size() == 2);
            CHECK(pool.inner().freed.front() == blocks[!first_freed_first]);
            CHECK(pool.inner().freed.back() == blocks[first_freed_first]);
            heard.clear();
            pool.deallocate(on_host, at(0x1000), 100);
            REQUIRE(heard.size() == 1);
            CHECK_SAYS(heard.front(), "is freed already");
        }
    heard.clear();
}

TEST_CASE("guard: bytes of a block that ended behind its back, or might have, are no mistake") {
    for (bool fails : {false, true}) {
        weir::layer::guard<told_pool> pool;
        pool.on_violation(&hear);
        heard.clear();
        for (std::uintptr_t const address : {0x1000u, 0x1040u}) {
            pool.inner().next = at(address);
            CHECK(pool.allocate(on_host, 64) == at(address));
        }
        pool.inner().live = 0;
        pool.inner().fails = fails;
        pool.inner().next = at(0x1010);
        CHECK(pool.allocate(on_host, 64) == at(0x1010)); // bytes of both
        pool.inner().fails = false;
        CHECK(heard.empty());
        pool.deallocate(on_host, at(0x1010), 64);
        CHECK(heard.empty());
        pool.deallocate(on_host, at(0x1040), 64);
        REQUIRE(heard.size() == 1);
        CHECK_SAYS(heard.front(), "ended already");
        heard.clear();
    }
    if (!support::host_memory_can_fail)
        return;
    static char const* said = nullptr;
    weir::layer::guard<told_pool> pool;
    pool.on_violation([](char const* sentence) { said = sentence; });
    pool.inner().next = at(0x1000);
    CHECK(pool.allocate(on_host, 64) == at(0x1000));
    CHECK(pool.allocate(on_host, 64) == at(0x1000)); // so that its ledger has room
    pool.inner().has_name = false;
    {
        support::failing_new const at_once(0);
        CHECK(pool.allocate(on_host, 64) == at(0x1000));
    }
    CHECK(std::string(said) == "weir: layer::guard: a pool handed out bytes of a live block; the host has no memory to say which");
    for (int i = 0; i < 3; ++i)
        pool.deallocate(on_host, at(0x1000), 64);
    CHECK(pool.inner().freed.size() == 3);
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

using host_pool = weir::pool<weir::upstream::host, weir::placement::arena, weir::reuse::immediate,
                             weir::growth::fixed<64 * weir::KiB>>;

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
    CHECK(calls.device() == weir::any_device);
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
using frames = weir::pool<weir::upstream::host, weir::placement::arena, weir::reuse::immediate,
                          weir::growth::fixed<64 * weir::KiB>>;
TEST_CASE_TEMPLATE("guard: a pool whose options say so aborts at a wrong free, through layers too, and says why before", Pool,
                   frames, weir::layer::statistics<frames>) {
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
