// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The order of the rungs, seen from below: a rule and a supply that say 'no' and note who asked. What the rungs do is in
// tests/reuse and in tests/supply.

#include <cstddef>
#include <doctest/doctest.h>
#include <string>
#include <weir/base/range.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/pool/pool/ladder.hpp>
#include <weir/runtime/stream.hpp>

namespace {

struct placement {};

struct notes {
    std::string asked;
    std::string finds; // the rung that finds a block, in the words below
    int in_flight = 0; // waits that have something to wait for
    std::size_t unsettled = 0;
    std::string settled_elsewhere = ""; // the rung after which another thread has settled what is unsettled

    weir::base::range answer(char const* who) {
        asked += std::string(asked.empty() ? "" : " ") + who;
        if (asked == settled_elsewhere)
            unsettled = 0;
        return asked == finds ? weir::base::range{64, 64} : weir::base::range{};
    }
};

struct rule {
    notes* note;
    weir::base::range take(std::size_t, std::size_t, weir::stream_ref) { return note->answer("take"); }
    weir::base::range borrow(std::size_t, std::size_t, weir::stream_ref) { return note->answer("borrow"); }
    void gather(weir::stream_ref, bool grows) { note->answer(grows ? "gather" : "join"); }
    void reclaim() { note->answer("reclaim"); }
    bool wait() {
        note->answer("wait");
        return note->in_flight-- > 0;
    }
    std::size_t unsettled_bytes() const { return note->unsettled; }
    void settle() {
        note->answer("settle");
        note->unsettled = 0;
    }
};

struct squeezing_rule : rule {
    weir::base::range squeeze(std::size_t, std::size_t, weir::stream_ref) { return note->answer("squeeze"); }
};

// Of a rule that knows no waits.
struct plain_rule {
    notes* note;
    weir::base::range take(std::size_t, std::size_t, weir::stream_ref) { return note->answer("take"); }
};

struct supply {
    notes* note;
    int grows = 0;
    std::size_t limit = 1000;

    struct held_chunks {
        std::size_t bytes() const { return 0; }
        void note_wait() const {}
    };
    int asks_before_suspension = 1000000; // of the ladder
    bool suspended() { return asks_before_suspension-- <= 0; }
    held_chunks held() const { return {}; }
    bool can_hold(std::size_t bytes, std::size_t) { return bytes != 0 && bytes <= limit && !suspended(); }
    template <class Rule>
    bool grow(Rule&, std::size_t, std::size_t, weir::stream_ref, bool again) {
        note->answer(again ? "grow-again" : "grow");
        return grows-- > 0;
    }
    template <class Rule>
    bool grow_least(Rule&, std::size_t, std::size_t, weir::stream_ref) {
        note->answer("grow-least");
        return grows-- > 0;
    }
    template <class Rule>
    void give_back(Rule&, std::size_t) {
        note->answer("give-back");
    }
};

template <bool WaitsFirst, class Rule = rule>
std::string climb(notes note, int grows = 0, std::size_t bytes = 64, int asks_before_suspension = 1000000) {
    Rule r{&note};
    supply s{&note, grows};
    s.asks_before_suspension = asks_before_suspension;
    weir::base::no_lock lock;
    bool const found = static_cast<bool>(
        weir::pools::detail::ladder<placement, Rule, supply, weir::base::no_lock, WaitsFirst>(r, s, lock).climb(bytes, 1, weir::on_host));
    return note.asked + (found ? " found" : " none");
}

} // namespace

TEST_CASE("ladder: what is within reach, growth, another stream's memory, and at last a wait") {
    CHECK(climb<false>({}) == "reclaim take gather take grow give-back borrow wait take gather take grow give-back none");
    CHECK(climb<false>({"", "reclaim take"}) == "reclaim take found");
    CHECK(climb<false>({"", "reclaim take gather take"}) == "reclaim take gather take found");
    CHECK(climb<false>({"", "reclaim take gather take grow take"}, 1) == "reclaim take gather take grow take found");
}

TEST_CASE("ladder: another stream's memory comes before growth where the rule wants it") {
    CHECK(climb<true>({}) == "reclaim take join take borrow take gather take grow give-back borrow wait take gather take "
                             "grow give-back none");
    CHECK(climb<true>({"", "reclaim take join take borrow"}) == "reclaim take join take borrow found");
}

TEST_CASE("ladder: what others took is grown for again, eight times at most, and what did not help goes back") {
    std::string const eight = climb<false>({}, 100);
    CHECK(eight.find("grow take grow-again take grow-again take") != std::string::npos);
    std::size_t grows = 0;
    for (std::size_t at = eight.find("grow"); at != std::string::npos && at < eight.find("give-back"); at = eight.find("grow", at + 1))
        ++grows;
    CHECK(grows == 8);
}

TEST_CASE("ladder: a wait that found something in flight is followed by another, but not for ever") {
    notes busy;
    busy.in_flight = 3;
    auto const waits = [](std::string const& asked) {
        std::size_t count = 0;
        for (std::size_t at = asked.find("wait"); at != std::string::npos; at = asked.find("wait", at + 1))
            ++count;
        return count;
    };
    CHECK(waits(climb<false>(busy)) == 4);
    busy.in_flight = 1000000;
    CHECK(waits(climb<false>(busy)) == 16);
}

TEST_CASE("ladder: nobody waits for a rule that knows no waits") {
    CHECK(climb<false, plain_rule>({}) == "take grow give-back none");
    CHECK(climb<false, plain_rule>({"", "take grow take"}, 1) == "take grow take found");
}

TEST_CASE("ladder: what only the end of all work frees is settled, where there is any") {
    notes stranded;
    stranded.unsettled = 64;
    CHECK(climb<false>(stranded).find("wait take gather take grow give-back settle wait take") != std::string::npos);
}

TEST_CASE("ladder: what another thread settles after the search is searched for again") {
    notes stranded;
    stranded.unsettled = 64;
    stranded.settled_elsewhere = "reclaim take gather take grow give-back borrow wait take gather take grow give-back";
    stranded.finds = stranded.settled_elsewhere + " settle wait take";
    CHECK(climb<false>(stranded) == stranded.finds + " found");
}

TEST_CASE("ladder: where there is no more memory the placement squeezes, and at last gets room for just the block") {
    CHECK(climb<false, squeezing_rule>({"", "reclaim take gather take grow squeeze"}) ==
          "reclaim take gather take grow squeeze found");
    CHECK(climb<false, squeezing_rule>({}).find("grow squeeze grow-least give-back borrow wait") != std::string::npos);
}

TEST_CASE("ladder: a block that no chunk can hold asks nobody") {
    CHECK(climb<false>({}, 0, 0) == " none");
    CHECK(climb<false>({}, 0, 1001) == " none");
    CHECK(climb<false>({}, 0, 1000).size() > 10);
}

TEST_CASE("ladder: of a suspended pool nothing is taken, and nothing is got for it") {
    CHECK(climb<false>({}, 100, 64, 0) == " none");
    CHECK(climb<false>({}, 100, 64, 1) == "reclaim borrow wait none"); // suspended while it waited for the lock
}
