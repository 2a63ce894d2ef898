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
        void expect_at_most(std::size_t);
        bool wait();
        std::size_t unsettled_bytes();
        void strand(range) noexcept;
        void lose(range) noexcept;
    };
};
struct pool {
    static constexpr memory_space space = memory_space::host;
    void* try_allocate(on_host_t, std::size_t, std::size_t);
    void deallocate(on_host_t, void*, std::size_t, std::size_t) noexcept;
    weir::text full_report() const; // as resource::pool_base, which has more
};
struct whole_pool : pool {
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = false;
    static constexpr std::size_t default_alignment = 16;
    weir::memory_report state() const;
    weir::refusal refused(std::size_t, std::size_t) const;
};

// All that a part may add.
struct rich_upstream : upstream {
    [[maybe_unused]] static constexpr std::size_t granularity = 4096;
    bool release(void*, std::size_t) noexcept;
    int device_number() const;
};
struct rich_placement : placement {
    std::size_t largest() const;
    [[maybe_unused]] static constexpr std::size_t granularity = 1;
    void fence(weir::base::range);
    bool remove(range);
    bool remove(range, std::size_t);
    std::size_t free_before(std::size_t) const;
    std::size_t free_after(std::size_t) const;
    void for_each_free(std::size_t, void (*)(range));
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
struct not_const_owner : pool {
    bool owns(void const*);
};
struct owner : pool {
    bool owns(void const*) const;
};
struct promises_at_run_time {
    bool thread_safe = true; // of an object, not of the type
    [[maybe_unused]] static constexpr bool orders_streams = true;
    [[maybe_unused]] static constexpr bool waits_before_growing = false;
    template <class>
    struct over {};
};
struct waits_silently : rule::over<placement> {
    using rule::over<placement>::over;
    void wait();
};
struct frees_loudly : rule::over<placement> {
    using rule::over<placement>::over;
    void give(range, on_host_t);
};
struct user_of_second_streams : pool {
    void used_on(void*, on_host_t);
    void last_used_on(void*, on_host_t);
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
struct answering_alone : answering {
    static constexpr bool thread_safe = false;
};

struct joining_rule {
    void add(range, on_host_t, bool joins);
};

// What an upstream may bound.
struct plain_upstream {
    [[maybe_unused]] static constexpr std::size_t alignment = 64;
    [[maybe_unused]] static constexpr weir::memory_space space = weir::memory_space::host;
    void* acquire(std::size_t);
    void release(void*, std::size_t) noexcept;
};
struct bounded_upstream : plain_upstream {
    std::size_t most_bytes() const noexcept;
};
struct half_bounded : plain_upstream {
    int most_bytes() const noexcept;
};

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
                                 &contract::require_handler<answering_alone, int>};
    for (auto const clause : clauses)
        CHECK(clause());
}

TEST_CASE("slots: a member fits where the library's call compiles and returns what it should") {
    struct row {
        char const* what;
        bool sound, broken;
    };
    row const rows[] = {
        {"acquire", contract::returns<void*, contract::has_acquire, upstream>,
         contract::returns<void*, contract::has_acquire, answers_bytes> || contract::holds<contract::has_acquire, placement>},
        {"release", contract::holds<contract::has_release, upstream> && contract::holds<contract::has_release, rich_upstream>,
         contract::holds<contract::has_release, may_throw>},
        {"space", contract::holds<contract::has_space, upstream>,
         contract::holds<contract::has_space, no_space> || contract::holds<contract::has_space, space_as_number>},
        {"take", contract::returns<range, contract::has_take, placement>,
         contract::returns<range, contract::has_take, takes_pointer>},
        {"give", contract::holds<contract::has_give, placement>, contract::holds<contract::has_give, upstream>},
        {"rounded", contract::holds<contract::has_rounded, placement>, contract::holds<contract::has_rounded, upstream>},
        {"largest", contract::returns<std::size_t, contract::has_largest, rich_placement>,
         contract::holds<contract::has_largest, placement>},
        {"fence", contract::holds<contract::has_fence, rich_placement>, contract::holds<contract::has_fence, placement>},
        {"remove", contract::returns<bool, contract::has_remove, rich_placement>,
         contract::returns<bool, contract::has_remove, removes_silently> ||
             contract::holds<contract::has_remove, rule::over<placement>>},
        {"sibling", contract::holds<contract::has_sibling, rich_placement>,
         contract::holds<contract::has_sibling, sibling_of_another>},
        {"absorb", contract::holds<contract::has_absorb, rich_placement>, contract::holds<contract::has_absorb, placement>},
        {"mark", contract::holds<contract::has_mark, rich_placement, weir::base::usage>,
         contract::holds<contract::has_mark, placement, weir::base::usage>},
        {"thread_safe", contract::returns<bool const, contract::has_thread_safe, rule>,
         contract::returns<bool const, contract::has_thread_safe, promises_at_run_time> ||
             contract::holds<contract::has_thread_safe, placement>},
        {"a rule's give", contract::holds<contract::has_give, rule::over<placement>, on_host_t>,
         contract::holds<contract::has_give, frees_loudly, on_host_t>},
        {"wait", contract::returns<bool, contract::has_wait, rich_rule::over<placement>>,
         contract::returns<bool, contract::has_wait, waits_silently>},
        {"try_allocate", contract::returns<void*, contract::has_try_allocate, pool, on_host_t>,
         contract::holds<contract::has_try_allocate, upstream, on_host_t>},
        {"owns", contract::returns<bool, contract::has_owns, owner>, contract::holds<contract::has_owns, not_const_owner>},
        {"used_on", contract::holds<contract::has_used_on, user_of_second_streams, void*, on_host_t>,
         contract::holds<contract::has_used_on, pool, void*, on_host_t>},
        {"trim", contract::returns<std::size_t, contract::has_trim, trimmer>,
         contract::returns<std::size_t, contract::has_trim, silent_trimmer>},
        {"stream_ordered", contract::returns<bool const, contract::has_stream_ordered, whole_pool>,
         contract::holds<contract::has_stream_ordered, pool>},
        {"most_bytes", contract::returns<std::size_t, contract::has_most_bytes, bounded_upstream>,
         contract::returns<std::size_t, contract::has_most_bytes, half_bounded>},
    };
    for (row const& each : rows) {
        INFO(each.what);
        CHECK(each.sound);
        CHECK_FALSE(each.broken);
    }
}

TEST_CASE("slots: absence is information, and what is there but wrong is not absent") {
    using bound = rule::over<placement>;
    for (bool const found :
         {contract::holds<contract::has_granularity, upstream>, contract::holds<contract::has_device_number, upstream>,
          contract::holds<contract::has_most_bytes, upstream>, contract::holds<contract::has_extends, upstream>,
          contract::holds<contract::has_placement, bound>, contract::holds<contract::has_borrow, bound, on_host_t>,
          contract::holds<contract::has_wait, bound>,
          contract::holds<contract::has_used_on, bound, range, on_host_t>,
          contract::holds<contract::has_used_on, pool, void*, on_host_t>, contract::holds<contract::has_mark, pool>,
          contract::holds<contract::has_default_alignment, pool>, contract::holds<contract::has_thread_safe, answering>})
        CHECK_FALSE(found);
    CHECK(contract::absent_or<bool, contract::has_remove, placement>);
    CHECK(contract::absent_or<bool, contract::has_remove, rich_placement>);
    for (bool const passed_over :
         {contract::absent_or<bool, contract::has_remove, removes_silently>,
          contract::absent_or<std::size_t, contract::has_trim, silent_trimmer>,
          contract::absent_or<std::size_t, contract::has_most_bytes, half_bounded>})
        CHECK_FALSE(passed_over);
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
