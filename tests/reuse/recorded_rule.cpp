// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every rule must do is in tests/contract/reuse.cpp.

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <type_traits>
#include <vector>
#include <weir/base/size.hpp>
#include <weir/recipes/recorded_device_pool.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/reuse/recorded_rule.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/trace/recorder.hpp>

using weir::MiB;
using weir::on_host;
using weir::base::range;
using weir::trace::event;
using weir::trace::event_kind;
using weir::trace::hand_over_order;

namespace {

namespace reuse = weir::reuse;
template <class Rule>
inline constexpr bool promises_the_same = std::is_base_of_v<Rule, reuse::recorded<Rule>> &&
                                          reuse::recorded<Rule>::thread_safe == Rule::thread_safe &&
                                          reuse::recorded<Rule>::orders_streams == Rule::orders_streams;
static_assert(promises_the_same<reuse::immediate> && promises_the_same<reuse::after_event> &&
              promises_the_same<reuse::stream_ordered<>>);

std::vector<event> events_of(weir::trace::recorder& tape) {
    std::vector<event> all;
    tape.ring()->drain([&](event const* first, std::size_t count) { all.insert(all.end(), first, first + count); });
    return all;
}

// A rule that hands over and waits as it is told.
struct obedient_rule {
    template <class>
    struct over {
        explicit over(int) {}
        template <class Told>
        range take(std::size_t bytes, std::size_t, weir::stream_ref, Told told) {
            if (crosses)
                told(range{4096, bytes}, makes_wait);
            return range{4096, bytes};
        }
        template <class Told>
        range borrow(std::size_t bytes, std::size_t alignment, weir::stream_ref stream, Told told) {
            return fails ? range{} : take(bytes, alignment, stream, told);
        }
        range borrow(std::size_t, std::size_t, weir::stream_ref) { return {}; }
        void gather(weir::stream_ref, bool) {}
        bool wait() { return !fails; }
        void settle() { ++settled; }
        bool crosses = true, fails = false, makes_wait = false;
        int settled = 0;
    };
};
struct tape_of {
    weir::trace::recorder& tape;
    weir::trace::recorder& recorder() const { return tape; }
    static std::uint16_t source() { return 3; }
};
using obedient = reuse::recorded<obedient_rule>::over<int>;

} // namespace

TEST_CASE("recorded_rule: a block that changes streams is written, and one that does not is not") {
    weir::trace::recorder tape;
    obedient unheard(0), rule(0, tape_of{tape});
    weir::stream_ref const stream = cudaStreamLegacy;
    rule.take(20, 1, stream); // it is off
    tape.start();
    unheard.take(10, 1, stream);
    rule.take(30, 1, stream);
    rule.makes_wait = true;
    rule.borrow(40, 1, stream);
    rule.crosses = false;
    rule.take(50, 1, stream);
    rule.gather(stream, true);
    std::vector<event> const all = events_of(tape);
    REQUIRE(all.size() == 3);
    for (event const& each : all) {
        CHECK(each.kind == event_kind::hand_over);
        CHECK(each.address == (&each == &all[2] ? 0 : 4096));
        CHECK(each.stream == reinterpret_cast<std::uintptr_t>(stream.get()));
        CHECK(each.source == 3);
        CHECK(order_of(each) == (&each == &all[1] ? hand_over_order::wait : hand_over_order::none));
    }
    CHECK(all[0].bytes == 30);
    CHECK(all[1].bytes == 40);
    CHECK(all[2].bytes == 0);
}

TEST_CASE("recorded_rule: what the host waited for is written, with its time, and nothing if it did not wait") {
    weir::trace::recorder tape;
    obedient unheard(0), rule(0, tape_of{tape});
    rule.crosses = false;
    rule.settle();
    tape.start();
    CHECK(unheard.wait());
    unheard.settle();
    CHECK(rule.wait());
    rule.settle();
    CHECK(rule.borrow(10, 1, on_host)); // the host waits where a stream would be made to
    CHECK(rule.settled == 2);
    std::vector<event> const all = events_of(tape);
    REQUIRE(all.size() == 3);
    for (event const& each : all) {
        CHECK(each.kind == event_kind::wait);
        CHECK(each.stream == 0);
        CHECK(each.bytes <= each.ticks - tape.begun().ticks);
    }
    rule.fails = true;
    CHECK_FALSE(rule.wait());
    CHECK_FALSE(rule.borrow(10, 1, on_host));
    CHECK(events_of(tape).empty());
}

TEST_CASE("recorded_rule: a pool's recording says who got what another stream had freed") {
    support::every_schedule([] {
        weir::trace::recorder tape;
        support::scoped_stream const a, b;
        weir::recorded_device_pool pool(tape, weir::pool_options{}.limit(64 * MiB));
        tape.start();
        auto const next_hand_over = [&] {
            event found;
            for (event const& each : events_of(tape))
                if (each.kind == event_kind::hand_over)
                    found = each;
            return found;
        };
        void* const first = pool.allocate(a, 4096);
        pool.deallocate(a, first, 4096);
        next_hand_over();
        pool.deallocate(a, pool.allocate(a, 4096), 4096); // its own
        CHECK(next_hand_over().kind == event_kind::none);
        pool.settle();
        events_of(tape);
        void* const second = pool.allocate(b, 4096);
        event const small = next_hand_over();
        CHECK(small.kind == event_kind::hand_over);
        CHECK(small.address == reinterpret_cast<std::uintptr_t>(second));
        CHECK(small.bytes == 4096);
        CHECK(small.stream == reinterpret_cast<std::uintptr_t>(static_cast<cudaStream_t>(b)));
        CHECK(small.source == 0);
        CHECK(order_of(small) == hand_over_order::none); // all work is over
        CHECK(tape.source_of(0).name == "chunks of device");
        pool.deallocate(b, second, 4096);
        pool.deallocate(a, pool.allocate(a, 64 * MiB), 64 * MiB); // all of it
        CHECK(next_hand_over().stream == reinterpret_cast<std::uintptr_t>(static_cast<cudaStream_t>(a)));
        pool.settle();
        std::vector<event> const all = events_of(tape);
        REQUIRE(all.size() == 2);
        CHECK(all[0].kind == event_kind::settle);
        CHECK(all[1].kind == event_kind::wait);
    });
}
