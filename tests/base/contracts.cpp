// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a broken part is told is in tests/refuse; here is that the traits know a sound part from a broken one.

#include <cstddef>
#include <doctest/doctest.h>
#include <weir/base/contracts.hpp>
#include <weir/base/memory_space.hpp>

namespace contracts = weir::contracts;
using weir::memory_space;
using weir::on_host_t;
using weir::range;

namespace {

// The least that fits each slot.
struct upstream {
    static constexpr std::size_t alignment = 256;
    static constexpr memory_space space = memory_space::host;
    void* acquire(std::size_t);
    void release(void*, std::size_t) noexcept;
};
struct placement {
    range take(std::size_t, std::size_t);
    void give(range);
    void add(range);
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) { return bytes; }
    static constexpr std::size_t needs(std::size_t bytes, std::size_t, std::size_t) { return bytes; }
    std::size_t free_bytes() const;
};
struct growth {
    static std::size_t next(std::size_t needed_bytes, std::size_t) { return needed_bytes; }
};
struct rule {
    static constexpr bool thread_safe = true;
    static constexpr bool orders_streams = true;
    static constexpr bool waits_before_growing = false;
    template <class>
    struct over {
        over(int);
        range take(std::size_t, std::size_t, on_host_t);
        void give(range, on_host_t) noexcept;
        void add(range, on_host_t);
        void settle();
        weir::usage used();
    };
};
struct rich_rule {
    static constexpr bool thread_safe = true;
    static constexpr bool orders_streams = true;
    static constexpr bool waits_before_growing = true;
    template <class Placement>
    struct over : rule::over<Placement> {
        using rule::over<Placement>::over;
        range borrow(std::size_t, std::size_t, on_host_t);
        void gather(on_host_t, bool);
        void reclaim();
        bool wait();
        std::size_t unsettled_bytes();
    };
};
struct pool {
    static constexpr memory_space space = memory_space::host;
    void* try_allocate(on_host_t, std::size_t, std::size_t);
    void deallocate(on_host_t, void*, std::size_t, std::size_t) noexcept;
};
struct whole_pool : pool {
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = false;
    static constexpr std::size_t default_alignment = 16;
    weir::memory_report facts() const;
    weir::text refusal(std::size_t, std::size_t) const;
};

// All that a part may add.
struct rich_upstream : upstream {
    static constexpr std::size_t granularity = 4096;
    bool release(void*, std::size_t) noexcept;
    int ordinal() const;
};
struct rich_placement : placement {
    std::size_t largest() const;
    void fence(weir::range);
    bool remove(range);
    rich_placement sibling() const;
    void absorb(rich_placement&);
    range lend(std::size_t, std::size_t);
    int mark(weir::usage);
    weir::usage rewind(int, weir::usage);
    void clear();
};

// One fault each.
struct answers_bytes : upstream {
    std::byte* acquire(std::size_t);
};
struct may_throw : upstream {
    void release(void*, std::size_t);
};
struct no_space {
    void* acquire(std::size_t);
    void release(void*, std::size_t) noexcept;
};
struct space_as_number : upstream {
    static constexpr int space = 3;
};
struct takes_pointer : placement {
    void* take(std::size_t, std::size_t);
};
struct removes_silently : placement {
    void remove(range);
};
struct sibling_of_another : placement {
    placement sibling() const;
};
struct rewinds_only : placement {
    void rewind(int);
};
struct free_may_throw : pool {
    void deallocate(on_host_t, void*, std::size_t, std::size_t);
};
struct not_const_owner : pool {
    bool owns(void const*);
};
struct owner : pool {
    bool owns(void const*) const;
};
struct promises_at_run_time {
    bool thread_safe = true; // of an object, not of the type
    static constexpr bool orders_streams = true;
    static constexpr bool waits_before_growing = false;
    template <class>
    struct over {};
};
struct waits_silently : rule::over<placement> {
    using rule::over<placement>::over;
    void wait();
};
struct user_of_second_streams : pool {
    void used_on(void*, on_host_t);
    void last_used_on(void*, on_host_t);
};
struct marks_only : pool { // or records at once, as the name meant before
    void used_on(void*, on_host_t);
};
struct trimmer : pool {
    std::size_t trim(std::size_t keep_bytes = 0);
};
struct silent_trimmer : pool {
    void trim();
};

// Failure handlers; what failed is a number here.
struct answering {
    bool operator()(int const&);
};
struct answering_bytes {
    std::size_t operator()(int const&);
};
struct changing {
    bool operator()(int&);
};
struct walking {
    static constexpr bool thread_safe = false;
    template <class Retry>
    void* ask(int const&, Retry const&);
};

} // namespace

// Sound parts are accepted.
static_assert(contracts::require_upstream<upstream>() && contracts::require_upstream<rich_upstream>());
static_assert(contracts::require_placement<placement>() && contracts::require_placement<rich_placement>());
static_assert(contracts::require_rule<rule, placement>());
static_assert(contracts::require_reuse<rule::over<placement>, on_host_t>());
static_assert(contracts::require_rule<rich_rule, placement>());
static_assert(contracts::require_reuse<rich_rule::over<placement>, on_host_t>());
static_assert(contracts::require_pool<pool, on_host_t>() && contracts::require_layered<whole_pool, on_host_t>());

TEST_CASE("contracts: what keeps every clause is let in, asked at run time too") {
    bool (*const clauses[])() = {&contracts::require_upstream<upstream>,
                                 &contracts::require_placement<placement>,
                                 &contracts::require_rule<rule, placement>,
                                 &contracts::require_reuse<rule::over<placement>, on_host_t>,
                                 &contracts::require_rule<rich_rule, placement>,
                                 &contracts::require_reuse<rich_rule::over<placement>, on_host_t>,
                                 &contracts::require_growth<growth>,
                                 &contracts::require_pool<pool, on_host_t>,
                                 &contracts::require_layered<whole_pool, on_host_t>,
                                 &contracts::require_handler<answering, int>,
                                 &contracts::require_handler<walking, int>};
    for (auto const clause : clauses)
        CHECK(clause());
}

TEST_CASE("contracts: a clause holds for what it names and for nothing less") {
    CHECK(contracts::holds<contracts::acquires, upstream>);
    CHECK_FALSE(contracts::holds<contracts::acquires, answers_bytes>);
    CHECK_FALSE(contracts::holds<contracts::acquires, placement>);
    CHECK(contracts::holds<contracts::releases, upstream>);
    CHECK(contracts::holds<contracts::releases, rich_upstream>);
    CHECK_FALSE(contracts::holds<contracts::releases, may_throw>);
    CHECK(contracts::holds<contracts::says_alignment, upstream>);
    CHECK_FALSE(contracts::holds<contracts::says_alignment, placement>);
    CHECK_FALSE(contracts::holds<contracts::says_space, no_space>);
    CHECK_FALSE(contracts::holds<contracts::says_space, space_as_number>);
    CHECK_FALSE(contracts::holds<contracts::takes, takes_pointer>);
    CHECK(contracts::holds<contracts::takes, placement>);
    CHECK(contracts::holds<contracts::gives, placement>);
    CHECK_FALSE(contracts::holds<contracts::gives, upstream>);
    CHECK_FALSE(contracts::holds<contracts::rounds, upstream>);
    CHECK_FALSE(contracts::holds<contracts::says_needs, upstream>);
    CHECK_FALSE(contracts::holds<contracts::frees, free_may_throw, on_host_t>);
    CHECK(contracts::holds<contracts::frees, pool, on_host_t>);
    CHECK(contracts::holds<contracts::tries, pool, on_host_t>);
    CHECK_FALSE(contracts::holds<contracts::tries, upstream, on_host_t>);
}

TEST_CASE("contracts: absence is information") {
    CHECK_FALSE(contracts::holds<contracts::may_refuse, upstream>);
    CHECK(contracts::holds<contracts::may_refuse, rich_upstream>);
    CHECK_FALSE(contracts::holds<contracts::says_granularity, upstream>);
    CHECK(contracts::holds<contracts::says_granularity, rich_upstream>);
    CHECK_FALSE(contracts::holds<contracts::says_ordinal, upstream>);
    CHECK(contracts::holds<contracts::says_ordinal, rich_upstream>);

    CHECK_FALSE(contracts::has_largest<placement>);
    CHECK_FALSE(contracts::fences<placement>);
    CHECK_FALSE(contracts::has_remove<placement>);
    CHECK_FALSE(contracts::has_remove<removes_silently>);
    CHECK_FALSE(contracts::has_sibling<placement>);
    CHECK_FALSE(contracts::has_sibling<sibling_of_another>);
    CHECK_FALSE(contracts::migrates<placement>);
    CHECK_FALSE(contracts::has_mark<placement>);
    CHECK_FALSE(contracts::has_mark<rewinds_only>);
    CHECK_FALSE(contracts::has_clear<placement>);
    CHECK(contracts::has_largest<rich_placement>);
    CHECK(contracts::fences<rich_placement>);
    CHECK(contracts::has_remove<rich_placement>);
    CHECK(contracts::has_sibling<rich_placement>);
    CHECK(contracts::migrates<rich_placement>);
    CHECK(contracts::has_mark<rich_placement>);
    CHECK(contracts::has_clear<rich_placement>);
}

TEST_CASE("contracts: a rule says what it promises, as constants") {
    CHECK(contracts::holds<contracts::says_what_it_promises, rule>);
    CHECK_FALSE(contracts::holds<contracts::says_what_it_promises, promises_at_run_time>);
    CHECK_FALSE(contracts::holds<contracts::says_what_it_promises, placement>);
    CHECK(contracts::holds<contracts::binds, rule, placement>);
    CHECK_FALSE(contracts::holds<contracts::binds, placement, placement>);
    using bound = rule::over<placement>;
    CHECK(contracts::holds<contracts::counts_uses, bound>);
    CHECK_FALSE(contracts::holds<contracts::ends_many, bound>);
    CHECK_FALSE(contracts::holds<contracts::borrows, bound, on_host_t>);
    CHECK_FALSE(contracts::holds<contracts::gathers, bound, on_host_t>);
    CHECK_FALSE(contracts::holds<contracts::marks_users, bound, range, on_host_t>);
    CHECK_FALSE(contracts::holds<contracts::notes_last_uses, bound, range, on_host_t>);
    CHECK_FALSE(contracts::holds<contracts::removes, bound>);
}

TEST_CASE("contracts: a rule that gathers and borrows can wait, and counts what a wait does not free") {
    using bound = rule::over<placement>;
    using rich = rich_rule::over<placement>;
    CHECK_FALSE(contracts::holds<contracts::waits, bound>);
    CHECK_FALSE(contracts::holds<contracts::waits, waits_silently>);
    CHECK_FALSE(contracts::holds<contracts::counts_unsettled, bound>);
    CHECK_FALSE(contracts::holds<contracts::reclaims, bound>);
    CHECK(contracts::holds<contracts::borrows, rich, on_host_t>);
    CHECK(contracts::holds<contracts::gathers, rich, on_host_t>);
    CHECK(contracts::holds<contracts::reclaims, rich>);
    CHECK(contracts::holds<contracts::waits, rich>);
    CHECK(contracts::holds<contracts::counts_unsettled, rich>);
}

TEST_CASE("contracts: a pool is asked for what it may have") {
    CHECK_FALSE(contracts::has_owns<pool>);
    CHECK_FALSE(contracts::has_owns<not_const_owner>);
    CHECK(contracts::has_owns<owner>);
    CHECK_FALSE((contracts::has_used_on<pool, on_host_t>));
    CHECK((contracts::has_used_on<user_of_second_streams, on_host_t>));
    CHECK_FALSE((contracts::has_used_on<marks_only, on_host_t>));
    CHECK_FALSE(contracts::holds<contracts::marks_pool, pool>);
    CHECK_FALSE(contracts::holds<contracts::says_default_alignment, pool>);
    CHECK_FALSE(contracts::holds<contracts::says_what_its_users_may, pool>);
    CHECK(contracts::holds<contracts::says_what_its_users_may, whole_pool>);
    CHECK_FALSE(contracts::holds<contracts::trims, pool>);
    CHECK_FALSE(contracts::holds<contracts::trims, silent_trimmer>);
    CHECK(contracts::holds<contracts::trims, trimmer>);
}

TEST_CASE("contracts: a failure handler answers yes or no, or walks through others") {
    CHECK(contracts::holds<contracts::answers, answering, int>);
    CHECK(contracts::holds<contracts::answers, bool (*)(int const&), int>);
    CHECK_FALSE(contracts::holds<contracts::answers, answering_bytes, int>);
    CHECK_FALSE(contracts::holds<contracts::answers, changing, int>);
    CHECK_FALSE(contracts::holds<contracts::answers, walking, int>);
    CHECK_FALSE(contracts::holds<contracts::walks, answering, int>);
    CHECK(contracts::holds<contracts::walks, walking, int>);
    CHECK_FALSE(contracts::holds<contracts::says_thread_safe, answering>);
    CHECK_FALSE(contracts::holds<contracts::says_thread_safe, promises_at_run_time>);
    CHECK(contracts::holds<contracts::says_thread_safe, walking>);
}
