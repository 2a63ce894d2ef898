// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a broken part is told is in tests/refuse; here is that the traits know a sound part from a broken one.

#include <cstddef>
#include <doctest/doctest.h>
#include <weir/base/memory_space.hpp>
#include <weir/contract/growth_slot.hpp>
#include <weir/contract/handler_slot.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/contract/upstream_slot.hpp>

namespace contract = weir::contract;
using weir::memory_space;
using weir::on_host_t;
using weir::base::range;

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
        weir::base::usage used();
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
    weir::memory_report state() const;
    weir::text refusal(std::size_t, std::size_t) const;
};

// All that a part may add.
struct rich_upstream : upstream {
    static constexpr std::size_t granularity = 4096;
    bool release(void*, std::size_t) noexcept;
    int device_number() const;
};
struct rich_placement : placement {
    std::size_t largest() const;
    void fence(weir::base::range);
    bool remove(range);
    rich_placement sibling() const;
    void absorb(rich_placement&);
    range lend(std::size_t, std::size_t);
    int mark(weir::base::usage);
    weir::base::usage rewind(int, weir::base::usage);
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

struct joining_rule {
    void add(range, on_host_t, bool joins);
};

// What an upstream may bound.
struct plain_upstream {
    static constexpr std::size_t alignment = 64;
    static constexpr weir::memory_space space = weir::memory_space::host;
    void* acquire(std::size_t);
    void release(void*, std::size_t) noexcept;
};
struct bounded_upstream : plain_upstream {
    std::size_t most_bytes() const noexcept;
    std::size_t addresses_behind(void const*) const noexcept;
    bool out_of_addresses() const noexcept;
};
struct throws_bounds : plain_upstream {
    std::size_t most_bytes() const;
    std::size_t addresses_behind(void const*) const;
    bool out_of_addresses() const;
};
struct half_bounded : plain_upstream {
    int most_bytes() const noexcept;
    std::size_t addresses_behind(void const*) const noexcept;
};

static_assert(contract::require_upstream<plain_upstream>() && contract::require_upstream<bounded_upstream>());

} // namespace

// Sound parts are accepted.
static_assert(contract::require_upstream<upstream>() && contract::require_upstream<rich_upstream>());
static_assert(contract::require_placement<placement>() && contract::require_placement<rich_placement>());
static_assert(contract::require_rule<rule, placement>());
static_assert(contract::require_reuse<rule::over<placement>, on_host_t>());
static_assert(contract::require_rule<rich_rule, placement>());
static_assert(contract::require_reuse<rich_rule::over<placement>, on_host_t>());
static_assert(contract::require_pool<pool, on_host_t>() && contract::require_layered<whole_pool, on_host_t>());

TEST_CASE("slots: what keeps every clause is let in, asked at run time too") {
    bool (*const clauses[])() = {&contract::require_upstream<upstream>,
                                 &contract::require_placement<placement>,
                                 &contract::require_rule<rule, placement>,
                                 &contract::require_reuse<rule::over<placement>, on_host_t>,
                                 &contract::require_rule<rich_rule, placement>,
                                 &contract::require_reuse<rich_rule::over<placement>, on_host_t>,
                                 &contract::require_reuse_in_place<joining_rule, on_host_t>,
                                 &contract::require_growth<growth>,
                                 &contract::require_pool<pool, on_host_t>,
                                 &contract::require_layered<whole_pool, on_host_t>,
                                 &contract::require_handler<answering, int>,
                                 &contract::require_handler<walking, int>};
    for (auto const clause : clauses)
        CHECK(clause());
}

TEST_CASE("slots: a clause holds for what it names and for nothing less") {
    CHECK(contract::holds<contract::acquires, upstream>);
    CHECK_FALSE(contract::holds<contract::acquires, answers_bytes>);
    CHECK_FALSE(contract::holds<contract::acquires, placement>);
    CHECK(contract::holds<contract::releases, upstream>);
    CHECK(contract::holds<contract::releases, rich_upstream>);
    CHECK_FALSE(contract::holds<contract::releases, may_throw>);
    CHECK(contract::holds<contract::says_alignment, upstream>);
    CHECK_FALSE(contract::holds<contract::says_alignment, placement>);
    CHECK_FALSE(contract::holds<contract::says_space, no_space>);
    CHECK_FALSE(contract::holds<contract::says_space, space_as_number>);
    CHECK_FALSE(contract::holds<contract::takes, takes_pointer>);
    CHECK(contract::holds<contract::takes, placement>);
    CHECK(contract::holds<contract::gives, placement>);
    CHECK_FALSE(contract::holds<contract::gives, upstream>);
    CHECK_FALSE(contract::holds<contract::rounds, upstream>);
    CHECK_FALSE(contract::holds<contract::says_needs, upstream>);
    CHECK_FALSE(contract::holds<contract::frees, free_may_throw, on_host_t>);
    CHECK(contract::holds<contract::frees, pool, on_host_t>);
    CHECK(contract::holds<contract::tries, pool, on_host_t>);
    CHECK_FALSE(contract::holds<contract::tries, upstream, on_host_t>);
}

TEST_CASE("slots: absence is information") {
    CHECK_FALSE(contract::holds<contract::may_refuse, upstream>);
    CHECK(contract::holds<contract::may_refuse, rich_upstream>);
    CHECK_FALSE(contract::holds<contract::says_granularity, upstream>);
    CHECK(contract::holds<contract::says_granularity, rich_upstream>);
    CHECK_FALSE(contract::holds<contract::says_device_number, upstream>);
    CHECK(contract::holds<contract::says_device_number, rich_upstream>);

    CHECK_FALSE(contract::has_largest<placement>);
    CHECK_FALSE(contract::fences<placement>);
    CHECK_FALSE(contract::has_remove<placement>);
    CHECK_FALSE(contract::has_remove<removes_silently>);
    CHECK_FALSE(contract::has_sibling<placement>);
    CHECK_FALSE(contract::has_sibling<sibling_of_another>);
    CHECK_FALSE(contract::migrates<placement>);
    CHECK_FALSE(contract::has_mark<placement>);
    CHECK_FALSE(contract::has_mark<rewinds_only>);
    CHECK_FALSE(contract::has_clear<placement>);
    CHECK(contract::has_largest<rich_placement>);
    CHECK(contract::fences<rich_placement>);
    CHECK(contract::has_remove<rich_placement>);
    CHECK(contract::has_sibling<rich_placement>);
    CHECK(contract::migrates<rich_placement>);
    CHECK(contract::has_mark<rich_placement>);
    CHECK(contract::has_clear<rich_placement>);
}

TEST_CASE("slots: a rule says what it promises, as constants") {
    CHECK(contract::holds<contract::says_what_it_promises, rule>);
    CHECK_FALSE(contract::holds<contract::says_what_it_promises, promises_at_run_time>);
    CHECK_FALSE(contract::holds<contract::says_what_it_promises, placement>);
    CHECK(contract::holds<contract::binds, rule, placement>);
    CHECK_FALSE(contract::holds<contract::binds, placement, placement>);
    using bound = rule::over<placement>;
    CHECK(contract::holds<contract::counts_uses, bound>);
    CHECK_FALSE(contract::holds<contract::ends_many, bound>);
    CHECK_FALSE(contract::holds<contract::borrows, bound, on_host_t>);
    CHECK_FALSE(contract::holds<contract::gathers, bound, on_host_t>);
    CHECK_FALSE(contract::holds<contract::marks_users, bound, range, on_host_t>);
    CHECK_FALSE(contract::holds<contract::notes_last_uses, bound, range, on_host_t>);
    CHECK_FALSE(contract::holds<contract::removes, bound>);
}

TEST_CASE("slots: a rule that gathers and borrows can wait, and counts what a wait does not free") {
    using bound = rule::over<placement>;
    using rich = rich_rule::over<placement>;
    CHECK_FALSE(contract::holds<contract::waits, bound>);
    CHECK_FALSE(contract::holds<contract::waits, waits_silently>);
    CHECK_FALSE(contract::holds<contract::counts_unsettled, bound>);
    CHECK_FALSE(contract::holds<contract::reclaims, bound>);
    CHECK(contract::holds<contract::borrows, rich, on_host_t>);
    CHECK(contract::holds<contract::gathers, rich, on_host_t>);
    CHECK(contract::holds<contract::reclaims, rich>);
    CHECK(contract::holds<contract::waits, rich>);
    CHECK(contract::holds<contract::counts_unsettled, rich>);
}

TEST_CASE("slots: a pool is asked for what it may have") {
    CHECK_FALSE(contract::has_owns<pool>);
    CHECK_FALSE(contract::has_owns<not_const_owner>);
    CHECK(contract::has_owns<owner>);
    CHECK_FALSE((contract::has_used_on<pool, on_host_t>));
    CHECK((contract::has_used_on<user_of_second_streams, on_host_t>));
    CHECK_FALSE((contract::has_used_on<marks_only, on_host_t>));
    CHECK_FALSE(contract::holds<contract::marks_pool, pool>);
    CHECK_FALSE(contract::holds<contract::says_default_alignment, pool>);
    CHECK_FALSE(contract::holds<contract::says_what_its_users_may, pool>);
    CHECK(contract::holds<contract::says_what_its_users_may, whole_pool>);
    CHECK_FALSE(contract::holds<contract::trims, pool>);
    CHECK_FALSE(contract::holds<contract::trims, silent_trimmer>);
    CHECK(contract::holds<contract::trims, trimmer>);
}

TEST_CASE("slots: a failure handler answers yes or no, or walks through others") {
    CHECK(contract::holds<contract::answers, answering, int>);
    CHECK(contract::holds<contract::answers, bool (*)(int const&), int>);
    CHECK_FALSE(contract::holds<contract::answers, answering_bytes, int>);
    CHECK_FALSE(contract::holds<contract::answers, changing, int>);
    CHECK_FALSE(contract::holds<contract::answers, walking, int>);
    CHECK_FALSE(contract::holds<contract::walks, answering, int>);
    CHECK(contract::holds<contract::walks, walking, int>);
    CHECK_FALSE(contract::holds<contract::says_thread_safe, answering>);
    CHECK_FALSE(contract::holds<contract::says_thread_safe, promises_at_run_time>);
    CHECK(contract::holds<contract::says_thread_safe, walking>);
}

TEST_CASE("slots: a device is told to an upstream that says one, and to no other that takes a number") {
    struct numbered {
        numbered() = default;
        explicit numbered(int given) : number(given) {}
        int number = 7;
    };
    struct placed : numbered {
        using numbered::numbered;
        int device_number() const { return number; }
    };
    CHECK(contract::upstream_on<numbered>(1).number == 7);
    CHECK(contract::upstream_on<placed>(1).number == 1);
    CHECK(contract::device_number_of(numbered()) == weir::any_device);
    CHECK(contract::device_number_of(placed(3)) == 3);
}

TEST_CASE("slots: what an upstream bounds is told by members, all or none") {
    CHECK_FALSE(contract::holds<contract::says_most_bytes, plain_upstream>);
    CHECK_FALSE(contract::holds<contract::bounds_addresses, plain_upstream>);
    CHECK(contract::holds<contract::says_most_bytes, bounded_upstream>);
    CHECK(contract::holds<contract::bounds_addresses, bounded_upstream>);
    for (bool const wrong : {contract::holds<contract::says_most_bytes, throws_bounds>, contract::holds<contract::bounds_addresses, throws_bounds>,
                             contract::holds<contract::says_most_bytes, half_bounded>, contract::holds<contract::bounds_addresses, half_bounded>})
        CHECK_FALSE(wrong);
    for (bool const seen : {contract::holds<contract::has_most_bytes, throws_bounds>, contract::holds<contract::has_addresses_behind, throws_bounds>,
                            contract::holds<contract::has_most_bytes, half_bounded>, contract::holds<contract::has_addresses_behind, half_bounded>})
        CHECK(seen); // so that its author is told
}
