// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <random>
#include <set>
#include <support/failing_new.hpp>
#include <vector>
#include <weir/base/range.hpp>
#include <weir/placement/best_fit/boundary_map.hpp>

using weir::placement::detail::boundary_map;
using weir::base::range;
using side = weir::placement::detail::boundary_map::side;

namespace {

// Ranges by index, with both ends tagged, as a placement keeps them.
struct tagged_ranges {
    std::vector<range> ranges{range{}};
    boundary_map tags;

    std::size_t address(std::uint32_t n, side which) const {
        return which == side::start ? ranges[n].offset : ranges[n].end();
    }
    void reserve(std::size_t count) {
        tags.reserve(count, [this](std::uint32_t n, side which) { return address(n, which); });
    }
    std::uint32_t find(std::size_t at, side which) const {
        return tags.find(at, which, [&](std::uint32_t n) { return address(n, which) == at; });
    }
};

} // namespace

TEST_CASE("boundary_map: tells starts from ends, and knows addresses that nobody has") {
    tagged_ranges t;
    t.reserve(1);
    CHECK(t.find(512, side::start) == 0);
    t.ranges.push_back({512, 512});
    t.ranges.push_back({1024, 512});
    t.reserve(4);
    t.tags.insert(512, side::start, 1);
    t.tags.insert(1024, side::end, 1);
    t.tags.insert(1024, side::start, 2);
    t.tags.insert(1536, side::end, 2);
    CHECK(t.tags.size() == 4);
    CHECK(t.find(512, side::start) == 1);
    CHECK(t.find(512, side::end) == 0);
    CHECK(t.find(1024, side::end) == 1);
    CHECK(t.find(1024, side::start) == 2);
    CHECK(t.find(1536, side::end) == 2);
    CHECK(t.find(1536, side::start) == 0);
    t.tags.reassign(1536, side::end, 2, 1);
    t.ranges[1] = {512, 1024};
    t.tags.erase(1024, side::end, 1);
    t.tags.erase(1024, side::start, 2);
    CHECK(t.find(1536, side::end) == 1);
    CHECK(t.find(1024, side::end) == 0);
    CHECK(t.find(1024, side::start) == 0);
    CHECK(t.tags.size() == 2);
}

TEST_CASE("boundary_map: agrees with a plain search, at every load and stride") {
    for (std::size_t const stride : {16u, 512u, 4096u, 65536u, 2097152u, 12345u})
        for (unsigned seed = 0; seed < 4; ++seed) {
            CAPTURE(stride);
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            tagged_ranges t;
            std::set<std::uint32_t> here;
            std::size_t const most = 20u << 2 * seed;
            for (int n = 0; n < 3000; ++n) {
                if (here.empty() || (here.size() < most && random() % 2 == 0)) {
                    auto const index = static_cast<std::uint32_t>(t.ranges.size());
                    t.ranges.push_back({stride * (std::size_t{2} * index), stride}); // no two meet
                    t.reserve(t.tags.size() + 2);
                    t.tags.prefetch(t.ranges.back().offset);
                    t.tags.insert(t.ranges.back().offset, side::start, index);
                    t.tags.insert(t.ranges.back().end(), side::end, index);
                    here.insert(index);
                } else {
                    auto const gone = here.lower_bound(static_cast<std::uint32_t>(random() % t.ranges.size()));
                    std::uint32_t const index = gone == here.end() ? *here.begin() : *gone;
                    t.tags.erase(t.ranges[index].offset, side::start, index);
                    t.tags.erase(t.ranges[index].end(), side::end, index);
                    here.erase(index);
                }
                auto const any = static_cast<std::uint32_t>(1 + random() % (t.ranges.size() - 1));
                std::uint32_t const expected = here.count(any) != 0 ? any : 0;
                CHECK(t.find(t.ranges[any].offset, side::start) == expected);
                CHECK(t.find(t.ranges[any].end(), side::end) == expected);
                CHECK(t.find(t.ranges[any].offset, side::end) == 0);
                CHECK(t.tags.size() == 2 * here.size());
            }
            for (std::uint32_t n = 1; n < t.ranges.size(); ++n)
                CHECK(t.find(t.ranges[n].offset, side::start) == (here.count(n) != 0 ? n : 0));
        }
}

TEST_CASE("boundary_map: full buckets send tags on, and forget it when the tags are gone") {
    // Ends that share an address share a home: far more than a bucket has places for.
    tagged_ranges t;
    std::uint32_t const many = 40;
    for (std::uint32_t n = 1; n <= many; ++n)
        t.ranges.push_back({0, 1 << 20});
    t.reserve(many);
    for (int round = 0; round < 5; ++round) {
        for (std::uint32_t n = 1; n <= many; ++n)
            t.tags.insert(1 << 20, side::end, n);
        for (std::uint32_t n = 1; n <= many; ++n)
            CHECK(t.tags.find(1 << 20, side::end, [&](std::uint32_t candidate) { return candidate == n; }) == n);
        t.tags.reassign(1 << 20, side::end, many, many + 1);
        t.tags.reassign(1 << 20, side::end, many + 1, many);
        std::mt19937_64 random(static_cast<unsigned>(round));
        std::vector<std::uint32_t> order;
        for (std::uint32_t n = 1; n <= many; ++n)
            order.insert(order.begin() + static_cast<std::ptrdiff_t>(random() % (order.size() + 1)), n);
        for (std::uint32_t const n : order) {
            t.tags.erase(1 << 20, side::end, n);
            CHECK(t.tags.find(1 << 20, side::end, [&](std::uint32_t candidate) { return candidate == n; }) == 0);
        }
        CHECK(t.tags.size() == 0);
    }
    // With nothing sent on any more, a search asks nobody.
    int asked = 0;
    t.tags.find(1 << 20, side::end, [&](std::uint32_t) { return ++asked != 0; });
    CHECK(asked == 0);
}

TEST_CASE("boundary_map: reserved room needs no more host memory, and a failed growth changes nothing") {
    if (!support::host_memory_can_fail)
        return;
    tagged_ranges t;
    t.reserve(100);
    for (std::uint32_t n = 1; n <= 400; ++n)
        t.ranges.push_back({n * 1024, 512});
    {
        support::failing_new const fails(0);
        for (std::uint32_t n = 1; n <= 50; ++n) {
            t.tags.insert(t.ranges[n].offset, side::start, n);
            t.tags.insert(t.ranges[n].end(), side::end, n);
        }
    }
    CHECK(t.tags.bookkeeping_bytes() <= 100 * 22 + 128);
    bool failed = false;
    try {
        support::failing_new const fails(0);
        t.reserve(800);
    } catch (std::bad_alloc const&) {
        failed = true;
    }
    CHECK(failed);
    for (int round = 0; round < 2; ++round) {
        for (std::uint32_t n = 1; n <= 400; ++n)
            CHECK(t.find(t.ranges[n].offset, side::start) == (n <= 50 ? n : 0));
        t.reserve(800);
    }
}
