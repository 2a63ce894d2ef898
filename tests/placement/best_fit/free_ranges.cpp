// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <doctest/doctest.h>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <support/failing_new.hpp>
#include <utility>
#include <vector>
#include <weir/placement/best_fit/free_ranges.hpp>

using weir::placement::detail::fence_set;
using weir::KiB;
using weir::MiB;
using weir::base::range;
using weir::base::shared;
using weir::placement::detail::size_lists;
using ranges = weir::placement::detail::free_ranges<512>;

static_assert(
    noexcept(std::declval<ranges&>().insert(range{})) && noexcept(std::declval<ranges&>().carve(1, range{})));

namespace {

ranges make() {
    return ranges(shared<fence_set>::make());
}

void put(ranges& free, range r) {
    free.reserve(free.size() + 1);
    free.insert(r);
}

void cut(ranges& free, std::size_t start, range block) {
    free.reserve(free.size() + 1);
    ranges::index_type const n = free.starting_at(start);
    REQUIRE(n != 0);
    REQUIRE(free[n].free.contains(block));
    free.carve(n, block);
}

std::vector<range> all(ranges const& free, std::size_t least = 0) {
    std::vector<range> found;
    free.for_each(least, [&](range each) { found.push_back(each); });
    std::sort(found.begin(), found.end(), [](range a, range b) { return a.offset < b.offset; });
    return found;
}

using list = std::vector<range>;

// Free ranges as a sorted map: joined, fenced.
struct model {
    std::map<std::size_t, std::size_t> free;
    std::set<std::size_t> fences;

    void insert(range r) {
        auto next = free.lower_bound(r.offset);
        if (next != free.end() && next->first == r.end() && fences.count(r.end()) == 0) {
            r.bytes += next->second;
            next = free.erase(next);
        }
        if (next != free.begin() && fences.count(r.offset) == 0) {
            auto const before = std::prev(next);
            if (before->first + before->second == r.offset) {
                r = {before->first, before->second + r.bytes};
                free.erase(before);
            }
        }
        free[r.offset] = r.bytes;
    }
    void carve(range whole, range block) {
        free.erase(whole.offset);
        if (block.offset != whole.offset)
            free[whole.offset] = block.offset - whole.offset;
        if (block.end() != whole.end())
            free[block.end()] = whole.end() - block.end();
    }
    list all(std::size_t least = 0) const {
        list found;
        for (auto const& each : free)
            if (each.second >= least)
                found.push_back({each.first, each.second});
        return found;
    }
};

// Each free range has one record, one list and two tags, and there is nothing else.
void check_records(ranges const& free) {
    std::size_t records = 0;
    std::size_t bytes = 0;
    for (ranges::index_type n = 0; n < free.nodes().size(); ++n) {
        range const r = free[n].free;
        if (!r)
            continue;
        ++records;
        bytes += r.bytes;
        REQUIRE(free.starting_at(r.offset) == n);
        REQUIRE(free.ending_at(r.end()) == n);
        REQUIRE(free[n].in == ranges::class_of(r.bytes));
        std::size_t listed = 0;
        for (ranges::index_type at = free.lists().head(free[n].in); at != 0; at = free[at].next)
            listed += at == n;
        REQUIRE(listed == 1);
    }
    REQUIRE(records == free.size());
    REQUIRE(bytes == free.bytes());
    std::size_t in_lists = 0;
    for (unsigned in = free.lists().occupied_from(0); in != size_lists::classes;
         in = free.lists().occupied_from(in + 1))
        for (ranges::index_type at = free.lists().head(in); at != 0; at = free[at].next)
            ++in_lists;
    REQUIRE(in_lists == free.size());
}

} // namespace

TEST_CASE("free_ranges: at first there is none, and no host memory is held") {
    ranges free = make();
    CHECK(free.size() == 0);
    CHECK(free.bytes() == 0);
    CHECK(free.largest() == 0);
    CHECK(free.bookkeeping_bytes() == 0);
    CHECK(all(free).empty());
    CHECK(all(free, SIZE_MAX).empty());
    free.reserve(0);
    CHECK(free.bookkeeping_bytes() == 0);
    free.reserve(1);
    CHECK(free.bookkeeping_bytes() != 0);
    CHECK(free.starting_at(0) == 0);
    CHECK(free.ending_at(512) == 0);
    CHECK_FALSE(free[0].free); // nobody's
    CHECK(free.size() == 0);
}

TEST_CASE("free_ranges: finds a range by either end, and not by what lies between") {
    ranges free = make();
    put(free, {4096, 1024});
    ranges::index_type const n = free.starting_at(4096);
    CHECK(n != 0);
    CHECK(free.ending_at(5120) == n);
    CHECK(free[n].free == range{4096, 1024});
    CHECK(free.starting_at(5120) == 0);
    CHECK(free.ending_at(4096) == 0);
    CHECK(free.starting_at(4608) == 0);
    CHECK(free.ending_at(4608) == 0);
    CHECK_FALSE(free[0].free);
}

TEST_CASE("free_ranges: what is put in joins before, behind, on both sides and on none") {
    ranges free = make();
    put(free, {10 * KiB, 1 * KiB});
    CHECK(all(free) == list{{10 * KiB, 1 * KiB}});
    put(free, {11 * KiB, 1 * KiB}); // before it is one
    CHECK(all(free) == list{{10 * KiB, 2 * KiB}});
    check_records(free);
    put(free, {9 * KiB, 1 * KiB}); // behind it
    CHECK(all(free) == list{{9 * KiB, 3 * KiB}});
    check_records(free);
    put(free, {14 * KiB, 1 * KiB});
    CHECK(free.size() == 2);
    put(free, {12 * KiB, 2 * KiB}); // both
    CHECK(all(free) == list{{9 * KiB, 6 * KiB}});
    check_records(free);
    put(free, {15 * KiB + 512, 512}); // a granule apart
    CHECK(free.size() == 2);
    CHECK(free.bytes() == 6 * KiB + 512);
    CHECK(free.largest() == 6 * KiB);
    check_records(free);
}

TEST_CASE("free_ranges: nothing joins across a fence, on either side") {
    ranges free = make();
    free.fences()->insert(8 * KiB);
    free.fences()->insert(16 * KiB);
    put(free, {4 * KiB, 4 * KiB});
    put(free, {16 * KiB, 4 * KiB});
    put(free, {8 * KiB, 8 * KiB}); // between two fences
    CHECK(all(free) == list{{4 * KiB, 4 * KiB}, {8 * KiB, 8 * KiB}, {16 * KiB, 4 * KiB}});
    check_records(free);
    // What lies side by side at a fence has two tags at one address.
    CHECK(free[free.ending_at(8 * KiB)].free.offset == 4 * KiB);
    CHECK(free[free.starting_at(8 * KiB)].free.bytes == 8 * KiB);
    cut(free, 8 * KiB, {8 * KiB, 8 * KiB});
    free.fences()->erase(8 * KiB);
    put(free, {8 * KiB, 8 * KiB}); // one fence less: joins what is before it, and only that
    CHECK(all(free) == list{{4 * KiB, 12 * KiB}, {16 * KiB, 4 * KiB}});
    cut(free, 4 * KiB, {4 * KiB, 12 * KiB});
    free.fences()->erase(16 * KiB);
    free.fences()->insert(8 * KiB);
    put(free, {4 * KiB, 4 * KiB});
    put(free, {8 * KiB, 8 * KiB}); // the reverse
    CHECK(all(free) == list{{4 * KiB, 4 * KiB}, {8 * KiB, 12 * KiB}});
    check_records(free);
}

TEST_CASE("free_ranges: cuts the whole, the start, the end and the middle") {
    ranges free = make();
    put(free, {0, 8 * KiB});
    cut(free, 0, {0, 1 * KiB}); // the start
    CHECK(all(free) == list{{1 * KiB, 7 * KiB}});
    check_records(free);
    cut(free, 1 * KiB, {7 * KiB, 1 * KiB}); // the end
    CHECK(all(free) == list{{1 * KiB, 6 * KiB}});
    check_records(free);
    cut(free, 1 * KiB, {3 * KiB, 1 * KiB}); // the middle
    CHECK(all(free) == list{{1 * KiB, 2 * KiB}, {4 * KiB, 3 * KiB}});
    check_records(free);
    cut(free, 1 * KiB, {1 * KiB, 2 * KiB}); // the whole
    CHECK(all(free) == list{{4 * KiB, 3 * KiB}});
    CHECK(free.starting_at(1 * KiB) == 0);
    CHECK(free.ending_at(3 * KiB) == 0);
    check_records(free);
    cut(free, 4 * KiB, {4 * KiB, 3 * KiB});
    CHECK(free.size() == 0);
    CHECK(free.bytes() == 0);
    CHECK(free.largest() == 0);
    check_records(free);
}

TEST_CASE("free_ranges: spare records are used again") {
    ranges free = make();
    for (std::size_t n = 0; n < 10; ++n)
        put(free, {n * 4096, 512});
    std::size_t const records = free.nodes().size();
    for (int turn = 0; turn < 50; ++turn) {
        for (std::size_t n = 0; n < 10; ++n)
            cut(free, n * 4096, {n * 4096, 512});
        for (std::size_t n = 10; n-- > 0;)
            put(free, {n * 4096, 512});
    }
    CHECK(free.nodes().size() == records);
    check_records(free);
}

TEST_CASE("free_ranges: visits each range that is large enough once, the smallest class first") {
    ranges free = make();
    std::size_t at = 0;
    std::vector<std::size_t> sizes;
    // Sizes with a class of their own, sizes that share one, and sizes beyond the last class.
    for (std::size_t const granules : {1u, 2u, 2u, 3u, 511u, 512u, 513u, 600u, 601u, 1024u, 1025u, 1026u,
                                       1029u, 1u << 23, (1u << 23) + 7u})
        sizes.push_back(granules * std::size_t{512});
    std::mt19937_64 draw(4);
    std::shuffle(sizes.begin(), sizes.end(), draw);
    for (std::size_t const bytes : sizes) {
        put(free, {at, bytes});
        at += bytes + 512;
    }
    std::vector<std::size_t> asked = {0, 1, 511};
    for (std::size_t const bytes : sizes)
        for (std::size_t const least : {bytes - 512, bytes - 1, bytes, bytes + 1, bytes + 512})
            asked.push_back(least);
    for (std::size_t const least : asked) {
        CAPTURE(least);
        std::size_t const expected = static_cast<std::size_t>(
            std::count_if(sizes.begin(), sizes.end(), [&](std::size_t bytes) { return bytes >= least; }));
        CHECK(all(free, least).size() == expected);
        unsigned before = 0;
        std::size_t count = 0;
        free.for_each(least, [&](range each) {
            CHECK(each.bytes >= least);
            CHECK(ranges::class_of(each.bytes) >= before);
            before = ranges::class_of(each.bytes);
            ++count;
        });
        CHECK(count == expected);
    }
    CHECK(all(free, SIZE_MAX).empty());
    CHECK(free.largest() == *std::max_element(sizes.begin(), sizes.end()));
}

TEST_CASE("free_ranges: the largest is told apart from others of its class") {
    ranges free = make();
    put(free, {1 * MiB, 1025 * 512});
    put(free, {3 * MiB, 1027 * 512});
    put(free, {5 * MiB, 1024 * 512});
    CHECK(ranges::class_of(1024 * 512) == ranges::class_of(1027 * 512));
    CHECK(free.largest() == 1027 * 512);
    cut(free, 3 * MiB, {3 * MiB, 1027 * 512});
    CHECK(free.largest() == 1025 * 512);
}

TEST_CASE("free_ranges: agrees with a sorted map") {
    for (unsigned seed = 0; seed < 12; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 draw(seed);
        ranges free = make();
        model expected;
        std::vector<range> used;
        std::size_t const unit = seed % 3 == 0 ? 512 : seed % 3 == 1 ? 4096 : 300 * 512;
        for (std::size_t n = 0; n < 6; ++n) { // regions side by side, fenced or not
            range const region{(n + 1) * 400 * unit, 400 * unit};
            if (n % 2 == 0) {
                free.fences()->insert(region.offset);
                expected.fences.insert(region.offset);
            }
            used.push_back(region);
        }
        for (int step = 0; step < 2500; ++step) {
            bool const giving = used.empty() ? false : expected.free.empty() || draw() % 2 == 0;
            if (giving) {
                std::swap(used[draw() % used.size()], used.back());
                range r = used.back();
                used.pop_back();
                if (r.bytes > unit && draw() % 4 != 0) { // only a part of it
                    std::size_t const size = (1 + draw() % (r.bytes / unit)) * unit;
                    if (size != r.bytes) {
                        used.push_back({r.offset + size, r.bytes - size});
                        r.bytes = size;
                    }
                }
                put(free, r);
                expected.insert(r);
            } else {
                auto at = expected.free.begin();
                std::advance(at, static_cast<std::ptrdiff_t>(draw() % expected.free.size()));
                range const whole{at->first, at->second};
                std::size_t const granules = whole.bytes / unit;
                std::size_t const first = draw() % 3 == 0 ? 0 : draw() % granules;
                std::size_t const count =
                    draw() % 4 == 0 ? granules - first : 1 + draw() % (granules - first);
                range const block{whole.offset + first * unit, count * unit};
                free.reserve(free.size() + 1);
                free.carve(draw() % 2 == 0 ? free.starting_at(whole.offset) : free.ending_at(whole.end()),
                           block);
                expected.carve(whole, block);
                used.push_back(block);
            }
            std::size_t bytes = 0;
            std::size_t largest = 0;
            for (auto const& each : expected.free) {
                bytes += each.second;
                largest = std::max(largest, each.second);
            }
            REQUIRE(free.size() == expected.free.size());
            REQUIRE(free.bytes() == bytes);
            REQUIRE(free.largest() == largest);
            std::size_t const asked = (400 + draw() % 2500) * unit;
            auto const there = expected.free.find(asked);
            ranges::index_type const found = free.starting_at(asked);
            REQUIRE((found != 0) == (there != expected.free.end()));
            if (found != 0)
                REQUIRE(free[found].free == range{there->first, there->second});
            if (step % 16 == 0) {
                std::size_t const least = draw() % (20 * unit);
                REQUIRE(all(free, least) == expected.all(least));
                REQUIRE(all(free) == expected.all());
                check_records(free);
            }
        }
        // As many ranges as the unit allows need 45 to 90 bytes each, beside the lists.
        CHECK(free.bookkeeping_bytes() <= 90 * (free.nodes().size() + 16) * 2 + 17 * KiB);
    }
}

TEST_CASE("free_ranges: room for many at once, and a range costs at most 90 bytes") {
    for (std::size_t const count : {1u, 15u, 16u, 17u, 100u, 1000u, 5000u}) {
        CAPTURE(count);
        ranges free = make();
        free.reserve(count);
        {
            support::failing_new const fails(0);
            for (std::size_t n = 0; n < count; ++n)
                free.insert({n * 4096, 512});
        }
        CHECK(free.size() == count);
        if (count >= 100)
            CHECK(free.bookkeeping_bytes() - 17 * KiB <= 90 * (count + 16));
        check_records(free);
    }
}

TEST_CASE(
    "free_ranges: where the host has no memory for records nothing changes, and what follows needs none") {
    if (!support::host_memory_can_fail)
        return;
    for (std::size_t const count : {0u, 1u, 16u, 40u, 200u}) {
        CAPTURE(count);
        auto const scene = [&] {
            ranges free = make();
            for (std::size_t n = 0; n < count; ++n)
                put(free, {(n + 1) * 8192, 4096});
            return free;
        };
        list const before = all(scene());
        long const failures = support::each_failure(
            scene, [](ranges& free) { free.reserve(2 * free.size() + 1); },
            [&](ranges& free) {
                CHECK(all(free) == before);
                check_records(free);
                free.reserve(2 * free.size() + 1); // the second time it is there
                support::failing_new const fails(0);
                std::size_t const size = free.size();
                for (std::size_t n = 0; n < size; ++n) // each in two
                    free.carve(free.starting_at((n + 1) * 8192), {(n + 1) * 8192 + 1024, 1024});
                free.insert({0, 4096});
            });
        CHECK((failures != 0) == (count != 1)); // one leaves room for more
    }
}

TEST_CASE("free_ranges: 'clear' forgets every range, and what comes next needs no memory") {
    std::mt19937 random(3);
    ranges free = make();
    for (int turn = 0; turn < 20; ++turn) {
        CAPTURE(turn);
        std::size_t const count = 1 + random() % 60;
        list expected;
        for (std::size_t i = 0; i < count; ++i) // apart, so that nothing joins
            expected.push_back({i * 64 * KiB, (1 + random() % 100) * 512});
        free.reserve(count);
        std::size_t const before = free.bookkeeping_bytes();
        list shuffled = expected;
        std::shuffle(shuffled.begin(), shuffled.end(), random);
        {
            support::failing_new const fails(0);
            for (range each : shuffled)
                free.insert(each);
            CHECK(free.size() == count);
        }
        CHECK(all(free) == expected);
        cut(free, 0, {0, 512});
        free.clear();
        CHECK(free.size() == 0);
        CHECK(free.bytes() == 0);
        CHECK(free.largest() == 0);
        CHECK(all(free).empty());
        CHECK(free.starting_at(64 * KiB) == 0);
        CHECK(free.bookkeeping_bytes() == before);
        {
            support::failing_new const fails(0);
            for (std::size_t i = 0; i < count; ++i) // where the others ended, with which nothing joins
                free.insert({expected[i].end(), 512});
        }
        CHECK(free.size() == count);
        free.clear();
    }
}

TEST_CASE("free_ranges: what held many ranges keeps no room when it is cleared") {
    ranges free = make();
    std::size_t const many = 20'000;
    free.reserve(many);
    for (std::size_t i = 0; i < many; ++i)
        free.insert({i * 64 * KiB, 512});
    CHECK(free.bookkeeping_bytes() > 500 * KiB);
    free.clear();
    CHECK(free.bookkeeping_bytes() == 0);
    CHECK(all(free).empty());
    put(free, {0, 64 * KiB});
    put(free, {64 * KiB, 64 * KiB});
    CHECK(all(free) == list{{0, 128 * KiB}});
}
