// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <set>
#include <support/failing_new.hpp>
#include <utility>
#include <vector>
#include <weir/upstream/virtual_memory/free_addresses.hpp>

using weir::upstream::detail::free_addresses;
using weir::base::range;
using ranges = std::vector<range>;

static_assert(
    noexcept(std::declval<free_addresses&>().add(range{})) && noexcept(std::declval<free_addresses&>().take(
        1)) && noexcept(std::declval<free_addresses&>()
                            .take_at(range{})) && noexcept(std::declval<free_addresses&>().give(range{},
                                                                                                range{})));

namespace {

void add(free_addresses& gaps, range reservation) {
    gaps.reserve(1);
    gaps.add(reservation);
}

void give(free_addresses& gaps, range freed, range reservation) {
    gaps.reserve(1);
    gaps.give(freed, reservation);
}

ranges all(free_addresses const& gaps) {
    return ranges(gaps.begin(), gaps.end());
}

// Which pages are free, one by one: gaps are what one sees when walking along each reservation.
class page_model {
public:
    static constexpr std::size_t page = 4096;

    void add(range reservation) {
        reservations_.push_back(reservation);
        std::sort(reservations_.begin(), reservations_.end(),
                  [](range a, range b) { return a.offset < b.offset; });
        give(reservation);
    }
    void give(range freed) {
        for (std::size_t at = freed.offset; at != freed.end(); at += page)
            CHECK(free_.insert(at).second);
    }
    void take(range taken) {
        for (std::size_t at = taken.offset; at != taken.end(); at += page)
            CHECK(free_.erase(at) == 1);
    }
    ranges gaps() const {
        ranges found;
        for (range const& each : reservations_) {
            range gap;
            for (std::size_t at = each.offset; at != each.end(); at += page) {
                if (free_.count(at) != 0) {
                    gap = gap ? range{gap.offset, gap.bytes + page} : range{at, page};
                } else if (gap) {
                    found.push_back(gap);
                    gap = {};
                }
            }
            if (gap)
                found.push_back(gap);
        }
        return found;
    }
    range holder(std::size_t address) const {
        for (range const& each : reservations_)
            if (each.contains(address))
                return each;
        return {};
    }

private:
    ranges reservations_;
    std::set<std::size_t> free_;
};

} // namespace

TEST_CASE("free_addresses: without a reservation there is nothing to take") {
    free_addresses gaps;
    CHECK(gaps.begin() == gaps.end());
    CHECK_FALSE(gaps.take(0));
    CHECK_FALSE(gaps.take(1));
    CHECK_FALSE(gaps.take(SIZE_MAX));
    CHECK_FALSE(gaps.take_at({0, 1}));
    CHECK_FALSE(gaps.take_at({SIZE_MAX, 1}));
    gaps.reserve(1); // room is no gap
    CHECK(gaps.begin() == gaps.end());
    CHECK_FALSE(gaps.take(1));
}

TEST_CASE("free_addresses: takes out of the smallest gap that suffices, from its start") {
    free_addresses gaps;
    add(gaps, {10000, 300});
    add(gaps, {20000, 100});
    add(gaps, {30000, 200});
    CHECK(gaps.take(150) == range{30000, 150});
    CHECK(all(gaps) == ranges{{10000, 300}, {20000, 100}, {30150, 50}});
    CHECK(gaps.take(50) == range{30150, 50}); // all of it
    CHECK(all(gaps) == ranges{{10000, 300}, {20000, 100}});
    CHECK(gaps.take(101) == range{10000, 101});
    CHECK_FALSE(gaps.take(200));
    CHECK(gaps.take(199) == range{10101, 199});
    CHECK(gaps.take(100) == range{20000, 100});
    CHECK(gaps.begin() == gaps.end());
    CHECK_FALSE(gaps.take(1));
}

TEST_CASE("free_addresses: of gaps of one size takes the one at the lowest address, whatever came first") {
    free_addresses gaps;
    add(gaps, {30000, 100});
    add(gaps, {10000, 100});
    add(gaps, {20000, 100});
    CHECK(all(gaps) == ranges{{10000, 100}, {20000, 100}, {30000, 100}});
    CHECK(gaps.take(60) == range{10000, 60});
    CHECK(gaps.take(60) == range{20000, 60});
    CHECK(gaps.take(40) == range{10060, 40});
    CHECK(gaps.take(40) == range{20060, 40});
    CHECK(gaps.take(40) == range{30000, 40});
}

TEST_CASE("free_addresses: takes no bytes, and no more than there are") {
    free_addresses gaps;
    add(gaps, {4096, 8192});
    CHECK_FALSE(gaps.take(0));
    CHECK_FALSE(gaps.take(8193));
    CHECK_FALSE(gaps.take(SIZE_MAX));
    CHECK_FALSE(gaps.take_at({4096, 8193}));
    CHECK_FALSE(gaps.take_at({4096, SIZE_MAX}));
    CHECK_FALSE(gaps.take_at({4096, SIZE_MAX - 4096})); // would wrap
    CHECK(all(gaps) == ranges{{4096, 8192}});
    CHECK(gaps.take(8192) == range{4096, 8192});
}

TEST_CASE("free_addresses: takes at an address only where a gap starts there and is long enough") {
    free_addresses gaps;
    add(gaps, {1000, 100});
    add(gaps, {2000, 100});
    CHECK_FALSE(gaps.take_at({0, 1}));
    CHECK_FALSE(gaps.take_at({999, 1}));
    CHECK_FALSE(gaps.take_at({999, 2}));
    CHECK_FALSE(gaps.take_at({1001, 1})); // free, but in the middle
    CHECK_FALSE(gaps.take_at({1099, 1}));
    CHECK_FALSE(gaps.take_at({1100, 1}));
    CHECK_FALSE(gaps.take_at({1000, 101}));
    CHECK_FALSE(gaps.take_at({1000, 1100})); // there is a gap there as well, but not in between
    CHECK_FALSE(gaps.take_at({2100, 1}));
    CHECK(all(gaps) == ranges{{1000, 100}, {2000, 100}});
    CHECK(gaps.take_at({2000, 30}));
    CHECK_FALSE(gaps.take_at({2000, 30}));
    CHECK(gaps.take_at({2030, 70})); // all that is left
    CHECK(gaps.take_at({1000, 100}));
    CHECK(gaps.begin() == gaps.end());
}

TEST_CASE("free_addresses: what comes back joins the gaps on both sides") {
    range const home{1000, 600};
    range const parts[] = {{1000, 100}, {1100, 200}, {1300, 300}};
    int order[] = {0, 1, 2};
    do {
        free_addresses gaps;
        add(gaps, home);
        for (range const& each : parts)
            CHECK(gaps.take_at(each));
        CHECK(gaps.begin() == gaps.end());
        give(gaps, parts[order[0]], home);
        CHECK(all(gaps) == ranges{parts[order[0]]});
        give(gaps, parts[order[1]], home);
        bool const touch = order[2] != 1;
        range const low = parts[std::min(order[0], order[1])];
        range const high = parts[std::max(order[0], order[1])];
        CHECK(all(gaps) == (touch ? ranges{{low.offset, low.bytes + high.bytes}} : ranges{low, high}));
        give(gaps, parts[order[2]], home);
        CHECK(all(gaps) == ranges{home});
    } while (std::next_permutation(order, order + 3));
}

TEST_CASE("free_addresses: no gap reaches across two reservations that lie side by side") {
    range const low{1000, 500}, high{1500, 500};
    for (bool const high_first : {false, true}) {
        free_addresses gaps;
        add(gaps, high_first ? high : low);
        add(gaps, high_first ? low : high);
        CHECK(all(gaps) == ranges{low, high});
        CHECK_FALSE(gaps.take(501));
        CHECK_FALSE(gaps.take_at({1000, 501}));
        CHECK_FALSE(gaps.take_at({1000, 1000}));
        // Wholly taken, and given back in either order.
        CHECK(gaps.take(500) == low);
        CHECK(gaps.take(500) == high);
        give(gaps, high_first ? high : low, high_first ? high : low);
        give(gaps, high_first ? low : high, high_first ? low : high);
        CHECK(all(gaps) == ranges{low, high});
        // The parts at the border.
        CHECK(gaps.take_at(low));
        CHECK(gaps.take_at(high));
        give(gaps, {1400, 100}, low);
        give(gaps, {1500, 100}, high);
        CHECK(all(gaps) == ranges{{1400, 100}, {1500, 100}});
        give(gaps, {1600, 400}, high);
        give(gaps, {1000, 400}, low);
        CHECK(all(gaps) == ranges{low, high});
        // A part at the border whose own reservation has a gap on its other side.
        CHECK(gaps.take_at(low));
        give(gaps, {1000, 400}, low);
        give(gaps, {1400, 100}, low); // joins what is before it, and not what is behind
        CHECK(all(gaps) == ranges{low, high});
        CHECK(gaps.take_at(high));
        give(gaps, {1600, 400}, high);
        give(gaps, {1500, 100}, high); // the reverse
        CHECK(all(gaps) == ranges{low, high});
    }
}

TEST_CASE("free_addresses: a reservation may be the first or the last of all addresses") {
    free_addresses gaps;
    range const first{0, 4096};
    range const last{SIZE_MAX - 8191, 8191};
    add(gaps, last);
    add(gaps, first);
    CHECK(all(gaps) == ranges{first, last});
    CHECK(gaps.take_at({0, 1}));
    CHECK(gaps.take(8191) == last);
    give(gaps, {0, 1}, first);
    give(gaps, {SIZE_MAX - 1, 1}, last);
    give(gaps, {SIZE_MAX - 8191, 8190}, last);
    CHECK(all(gaps) == ranges{first, last});
    CHECK_FALSE(gaps.take_at({SIZE_MAX, 1}));
}

TEST_CASE("free_addresses: agrees with a set of free pages") {
    constexpr std::size_t page = page_model::page;
    for (unsigned seed = 0; seed < 8; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 draw(seed);
        free_addresses gaps;
        page_model model;
        ranges taken;
        std::size_t next = 64 * page;
        for (int step = 0; step < 3000; ++step) {
            std::size_t const what = draw() % 16;
            if (what == 0 && next < 400 * page) { // beside the last one, or apart
                range const reservation{next + (draw() % 2) * 3 * page, (1 + draw() % 40) * page};
                add(gaps, reservation);
                model.add(reservation);
                next = reservation.end();
            } else if (what < 6) {
                std::size_t const bytes = (draw() % (draw() % 4 == 0 ? 30 : 6)) * page;
                range best;
                for (range const& each : model.gaps())
                    if (bytes != 0 && each.bytes >= bytes && (!best || each.bytes < best.bytes))
                        best = each;
                range const got = gaps.take(bytes);
                REQUIRE(got == (best ? range{best.offset, bytes} : range{}));
                if (got) {
                    model.take(got);
                    taken.push_back(got);
                }
            } else if (what < 9) {
                range wanted{(60 + draw() % 400) * page, (1 + draw() % 8) * page};
                ranges const there = model.gaps();
                if (draw() % 2 == 0 && !there.empty())
                    wanted.offset = there[draw() % there.size()].offset;
                bool const expected = std::any_of(there.begin(), there.end(), [&](range r) {
                    return r.offset == wanted.offset && r.bytes >= wanted.bytes;
                });
                REQUIRE(gaps.take_at(wanted) == expected);
                if (expected) {
                    model.take(wanted);
                    taken.push_back(wanted);
                }
            } else if (!taken.empty()) {
                std::swap(taken[draw() % taken.size()], taken.back());
                range back = taken.back();
                taken.pop_back();
                if (draw() % 3 == 0 && back.bytes > page) { // a part, and the rest later
                    std::size_t const cut = (1 + draw() % (back.bytes / page - 1)) * page;
                    range const rest{back.offset + cut, back.bytes - cut};
                    bool const low = draw() % 2 == 0;
                    taken.push_back(low ? rest : range{back.offset, cut});
                    back = low ? range{back.offset, cut} : rest;
                }
                give(gaps, back, model.holder(back.offset));
                model.give(back);
            }
            REQUIRE(all(gaps) == model.gaps());
        }
        for (range const& each : taken) {
            give(gaps, each, model.holder(each.offset));
            model.give(each);
        }
        REQUIRE(all(gaps) == model.gaps());
    }
}

TEST_CASE("free_addresses: only making room needs host memory, and where there is none nothing changes") {
    if (!support::host_memory_can_fail)
        return;
    free_addresses gaps;
    for (std::size_t n = 0; n < 40; ++n) {
        range const reservation{n * 1000 + 1000, 300};
        ranges const before = all(gaps);
        bool failed = false;
        try {
            support::failing_new const fails(0);
            gaps.reserve(1);
        } catch (std::bad_alloc const&) {
            failed = true;
        }
        CHECK(all(gaps) == before);
        if (failed)
            gaps.reserve(1);
        {
            support::failing_new const fails(0);
            gaps.reserve(1); // there is room already
            gaps.add(reservation);
        }
        CHECK(all(gaps).size() == before.size() + 1);
    }
    // Takes never need any, and a place that was taken has room when it comes back at once.
    range const home{1000, 300};
    {
        support::failing_new const fails(0);
        range const whole = gaps.take(300);
        gaps.give(whole, home);
        range const part = gaps.take(200);
        gaps.give(part, home);
        static_cast<void>(gaps.take_at({1000, 100}));
        gaps.give({1000, 100}, home);
    }
    CHECK(*gaps.begin() == home);
    // A middle that comes back makes a gap more: the room for it was made.
    CHECK(gaps.take_at(home));
    gaps.reserve(1);
    {
        support::failing_new const fails(0);
        gaps.give({1100, 100}, home);
    }
    CHECK(*gaps.begin() == range{1100, 100});
}
