// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <doctest/doctest.h>
#include <map>
#include <new>
#include <random>
#include <support/failing_new.hpp>
#include <support/interval_oracle.hpp>
#include <vector>
#include <weir/placement/best_fit.hpp>

using support::interval_oracle;
using weir::GiB;
using weir::KiB;
using weir::MiB;
using weir::base::range;
using best_fit = weir::placement::best_fit<512>;

static_assert(best_fit::rounded(1, 1) == 512 && best_fit::rounded(512, 4096) == 512 && best_fit::rounded(0, 1) == 0);
static_assert(best_fit::grain(1) == 512 && best_fit::grain(SIZE_MAX) == 512); // what by_size reckons with
static_assert(best_fit::rounded(SIZE_MAX, 1) == 0 && best_fit::rounded(SIZE_MAX - 511, 1) == SIZE_MAX - 511);
static_assert(best_fit::needs(1, 1, 512) == 512 && best_fit::needs(1, 1, 256) == 768 && best_fit::needs(1, 4096, 512) == 4096);
static_assert(best_fit::needs(SIZE_MAX - 511, 4096, 512) == 0 && best_fit::needs(0, 1, 512) == 0);

namespace {

// The free ranges as they should be: sorted, joined, fenced.
class free_map {
public:
    void fence(std::size_t at) { fences_.push_back(at); }
    void give(range r) {
        auto next = free_.lower_bound(r.offset);
        if (next != free_.end() && next->first == r.end() && !fenced(r.end())) {
            r.bytes += next->second;
            next = free_.erase(next);
        }
        if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == r.offset && !fenced(r.offset)) {
            r = {std::prev(next)->first, std::prev(next)->second + r.bytes};
            free_.erase(std::prev(next));
        }
        free_[r.offset] = r.bytes;
    }
    void take(range r) {
        auto const holder = std::prev(free_.upper_bound(r.offset));
        range const whole{holder->first, holder->second};
        REQUIRE(whole.contains(r));
        free_.erase(holder);
        if (r.offset != whole.offset)
            free_[whole.offset] = r.offset - whole.offset;
        if (r.end() != whole.end())
            free_[r.end()] = whole.end() - r.end();
    }
    std::size_t closest(std::size_t bytes, std::size_t alignment) const {
        std::size_t best = 0;
        for (auto const& one : free_)
            if (weir::base::has_room({one.first, one.second}, bytes, alignment) && (best == 0 || one.second < best))
                best = one.second;
        return best;
    }
    std::size_t holder_bytes(range r) const { return std::prev(free_.upper_bound(r.offset))->second; }
    std::size_t count() const { return free_.size(); }
    std::size_t largest() const {
        std::size_t most = 0;
        for (auto const& one : free_)
            most = std::max(most, one.second);
        return most;
    }

private:
    bool fenced(std::size_t at) const { return std::count(fences_.begin(), fences_.end(), at) != 0; }
    std::map<std::size_t, std::size_t> free_;
    std::vector<std::size_t> fences_;
};

} // namespace

TEST_CASE("best_fit: splits the closest fit and joins on both sides") {
    best_fit p;
    p.add({0, 64 * KiB});
    range const a = p.take(1024, 1);
    range const b = p.take(2048, 1);
    range const c = p.take(4096, 1);
    range const d = p.take(512, 1);
    CHECK(a == range{0, 1024});
    CHECK(b == range{1024, 2048});
    CHECK(c == range{3072, 4096});
    CHECK(d == range{7168, 512});
    CHECK(p.free_ranges() == 1);
    p.give(a);
    CHECK(p.free_ranges() == 2);
    p.give(c);
    CHECK(p.free_ranges() == 3);
    CHECK(p.take(513, 1) == range{0, 1024});
    CHECK(p.take(2 * KiB, 1) == range{3072, 2 * KiB});
    p.give({3072, 2 * KiB}); // joins to the right
    p.give({0, 1024});
    p.give(b); // joins both
    CHECK(p.free_ranges() == 2);
    CHECK(p.take(7 * KiB, 1) == range{0, 7 * KiB});
    p.give({0, 7 * KiB});
    p.give(d);
    CHECK(p.free_ranges() == 1);
    CHECK(p.largest() == 64 * KiB);
    CHECK(p.free_bytes() == 64 * KiB);
}

TEST_CASE("best_fit: free ranges are joined as they should be, and the fit is close") {
    for (unsigned seed = 0; seed < 12; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        best_fit p;
        free_map model;
        interval_oracle oracle;
        std::size_t at = 1 * GiB;
        for (std::size_t n = 0; n < 4; ++n) { // adjacent chunks, of odd sizes too
            range const chunk{at, 8 * MiB + n * 512};
            p.fence(chunk);
            model.fence(chunk.offset);
            p.add(chunk);
            model.give(chunk);
            oracle.add(chunk);
            at = chunk.end();
        }
        std::size_t const most = seed % 3 == 0 ? 64 * KiB : seed % 3 == 1 ? 1 * MiB : 4 * MiB;
        for (int n = 0; n < 3000; ++n) {
            if (random() % 2 == 0 || oracle.live() == 0) {
                std::size_t const bytes = 1 + random() % (random() % 4 == 0 ? most : most / 16);
                std::size_t const alignment = random() % 3 == 0 ? std::size_t{512} << random() % 12 : 1;
                std::size_t const size = best_fit::rounded(bytes, alignment);
                std::size_t const closest = model.closest(size, std::max<std::size_t>(alignment, 512));
                range const block = p.take(bytes, alignment);
                CHECK((closest != 0) == (block.bytes != 0)); // room is found exactly where there is some
                if (!block)
                    continue;
                if (alignment <= 512) // at most a class's width from the best
                    CHECK(model.holder_bytes(block) <= closest + closest / 128 + 512);
                oracle.take(block, size, alignment);
                model.take(block);
            } else {
                range const block = oracle.give(random);
                p.give(block);
                model.give(block);
            }
            CHECK(p.free_ranges() == model.count());
            CHECK(p.free_bytes() == oracle.managed_bytes() - oracle.live_bytes());
            if (n % 16 == 0)
                CHECK(p.largest() == model.largest());
        }
    }
}

TEST_CASE("best_fit: nothing joins across a fence, until it is dropped with its chunk") {
    best_fit p;
    for (std::size_t n = 0; n < 4; ++n) {
        p.fence({n * 2 * MiB, 2 * MiB});
        p.add({n * 2 * MiB, 2 * MiB});
    }
    CHECK(p.free_ranges() == 4);
    CHECK_FALSE(p.take(2 * MiB + 1, 1));
    CHECK(p.largest() == 2 * MiB);
    // Blocks right at both sides of a fence.
    range const low = p.take(2 * MiB, 1);
    range const high = p.take(2 * MiB, 1);
    p.give(low);
    p.give(high);
    CHECK(p.free_ranges() == 4);
    CHECK(p.remove({2 * MiB, 2 * MiB}));
    CHECK(p.free_ranges() == 3);
    p.add({2 * MiB, 2 * MiB}); // no fence any more at its start; there is one at its end
    CHECK(p.free_ranges() == 3);
    CHECK(p.largest() == 4 * MiB);
    CHECK_FALSE(p.remove({2 * MiB + 512, 2 * MiB})); // would reach across a fence
}

TEST_CASE("best_fit: a chunk without a whole granule leaves no fence behind") {
    weir::placement::best_fit<8192> p;
    p.fence({4096, 8192}); // from 8192 on nothing is whole
    p.add({4096, 8192});
    CHECK(p.free_bytes() == 0);
    CHECK(p.remove({4096, 8192}));
    p.fence({0, 32768}); // a later chunk, over the same addresses
    p.add({0, 32768});
    range const low = p.take(8192, 1), rest = p.take(24576, 1);
    REQUIRE((low && rest));
    p.give(low);
    p.give(rest);
    CHECK(p.free_ranges() == 1);
    CHECK(p.remove({0, 32768}));
}

TEST_CASE("best_fit: siblings share fences, and a family grown in any order does") {
    best_fit one;
    best_fit two = one.sibling();
    best_fit three = two.sibling();
    three.fence({4 * MiB, 2 * MiB});
    one.add({2 * MiB, 2 * MiB});
    one.add({4 * MiB, 2 * MiB});
    CHECK(one.free_ranges() == 2);
    two.absorb(one);
    CHECK(two.free_ranges() == 2);
    best_fit stranger;
    stranger.add({2 * MiB, 2 * MiB});
    stranger.add({4 * MiB, 2 * MiB});
    CHECK(stranger.free_ranges() == 1);
}

TEST_CASE("best_fit: removes exactly what is asked, out of the start, the middle and the end") {
    best_fit p;
    p.add({0, 10 * KiB});
    CHECK(p.remove({0, 100})); // no whole granule: nothing of it was ever free
    CHECK(p.free_bytes() == 10 * KiB);
    CHECK_FALSE(p.remove({0, 20 * KiB}));
    CHECK(p.remove({4 * KiB, 1 * KiB}));
    CHECK_FALSE(p.remove({4 * KiB, 1 * KiB}));
    CHECK(p.free_ranges() == 2);
    CHECK(p.remove({0, 1 * KiB}));
    CHECK(p.remove({9 * KiB, 1 * KiB}));
    CHECK(p.free_bytes() == 7 * KiB);
    CHECK_FALSE(p.remove({3 * KiB, 2 * KiB}));
    CHECK(p.take(3 * KiB, 1) == range{1 * KiB, 3 * KiB});
    CHECK(p.take(4 * KiB, 1) == range{5 * KiB, 4 * KiB});
    CHECK(p.free_bytes() == 0);
    // Where a fence stands, what is asked can only start a free range; that is not searched for.
    best_fit q;
    q.fence({4 * KiB, 4 * KiB});
    q.add({0, 2 * KiB});
    q.add({8 * KiB, 2 * KiB});
    CHECK_FALSE(q.remove({4 * KiB, 2 * KiB}));
    CHECK_FALSE(q.remove({6 * KiB, 2 * KiB}));
    CHECK(q.free_bytes() == 4 * KiB);
}

TEST_CASE("best_fit: what is outside whole granules stays unused") {
    best_fit p;
    p.add({100, 1000}); // 512 to 1024
    CHECK(p.free_bytes() == 512);
    p.add({2000, 500}); // no whole granule
    CHECK(p.free_bytes() == 512);
    p.add({SIZE_MAX - 300, 300});
    CHECK(p.free_bytes() == 512);
    CHECK(p.take(1, 1) == range{512, 512});
    p.give({512, 512});
    CHECK(p.remove({100, 1000}));
    p.fence({4000, 608}); // stands at 4096, where a range from 4000 on would start
    p.add({3584, 512});
    p.add({4000, 608});
    CHECK(p.free_ranges() == 2);
}

TEST_CASE("best_fit: an aligned block is found wherever it just fits, and what is before it stays free") {
    for (std::size_t alignment = 1024; alignment <= 4 * MiB; alignment *= 2) {
        CAPTURE(alignment);
        best_fit p;
        p.add({16 * MiB - 512, alignment + 1024});
        range const block = p.take(alignment, alignment);
        CHECK(block == range{16 * MiB, alignment});
        CHECK(p.free_bytes() == 1024);
        CHECK(p.free_ranges() == 2);
        CHECK_FALSE(p.take(1024, 1));
        p.give(block);
        CHECK(p.free_ranges() == 1);
        CHECK(p.take(512, alignment) == range{16 * MiB, 512});
        p.give({16 * MiB, 512});
        CHECK_FALSE(p.take(alignment + 1024, alignment));
        // At the very end of a range, and at its start.
        best_fit q;
        q.add({16 * MiB, alignment});
        CHECK(q.take(alignment, alignment) == range{16 * MiB, alignment});
        q.add({32 * MiB - 512, 1024});
        CHECK(q.take(512, alignment) == range{32 * MiB, 512});
        CHECK(q.take(512, 1) == range{32 * MiB - 512, 512});
    }
}

TEST_CASE("best_fit: blocks that are aligned further leave any number of holes, and all of them join again") {
    best_fit p;
    range const chunk{1 * MiB + 512, 4 * MiB};
    p.add(chunk);
    std::vector<range> blocks;
    while (range const block = p.take(512, 4096))
        blocks.push_back(block);
    CHECK(blocks.size() == 1024);
    CHECK(p.free_ranges() == 1024); // one before each, and with the last block the chunk ends
    for (range const& each : blocks)
        p.give(each);
    CHECK(p.free_ranges() == 1);
    CHECK(p.largest() == chunk.bytes);
}

TEST_CASE("best_fit: a block that is aligned further is taken as a whole or, without host memory, not at all") {
    best_fit p;
    p.add({1 * MiB + 512, 4 * MiB});
    for (int n = 0; n < 300; ++n) {
        std::size_t const bytes = p.free_bytes();
        std::size_t const ranges = p.free_ranges();
        range block;
        try {
            support::failing_new const fails(0);
            block = p.take(512, 4096);
        } catch (std::bad_alloc const&) {
            CHECK(p.free_bytes() == bytes);
            CHECK(p.free_ranges() == ranges);
            block = p.take(512, 4096);
        }
        CHECK(block == range{1 * MiB + (static_cast<std::size_t>(n) + 1) * 4096, 512});
    }
}

TEST_CASE("best_fit: an aligned block is found behind any number of ranges that are not") {
    best_fit p;
    // Many ranges of a fitting size at places that do not fit, in many classes; then one that does.
    for (std::size_t n = 0; n < 600; ++n)
        p.add({n * MiB + 512, 64 * KiB + n * 512});
    CHECK_FALSE(p.take(64 * KiB, 4 * MiB));
    p.add({800 * MiB, 64 * KiB});
    for (std::size_t n = 0; n < 40; ++n)
        p.add({(900 + n) * MiB + 512, 64 * KiB});
    CHECK(p.take(64 * KiB, 4 * MiB) == range{800 * MiB, 64 * KiB});
}

TEST_CASE("best_fit: a range that fits is found behind any number of its class that do not") {
    best_fit p;
    std::size_t const coarse = 1024 * 512; // sizes from here on share classes
    p.add({1 * GiB, coarse + 512});
    for (std::size_t n = 0; n < 100; ++n)
        p.add({2 * GiB + n * 2 * MiB, coarse});
    CHECK(p.take(coarse + 512, 1) == range{1 * GiB, coarse + 512});
    CHECK_FALSE(p.take(coarse + 512, 1));
    CHECK(p.take(coarse, 1));
}

TEST_CASE("best_fit: ranges beyond the last class are told apart") {
    best_fit p;
    std::size_t const terabyte = std::size_t{1} << 40;
    for (std::size_t n = 1; n <= 20; ++n)
        p.add({n * terabyte, 512 * GiB - (n * 7 % 20) * GiB});
    for (std::size_t n = 0; n < 20; ++n) {
        std::size_t const bytes = (512 - n) * GiB;
        CHECK(p.largest() == bytes);
        CHECK(p.take(bytes, 1).bytes == bytes);
    }
    CHECK(p.free_bytes() == 0);
    p.add({terabyte, 16 * GiB});
    CHECK_FALSE(p.take(17 * GiB, 1));
    CHECK_FALSE(p.take(16 * GiB, 32 * GiB * 64));
    CHECK(p.take(16 * GiB, 1 * GiB));
}

TEST_CASE("best_fit: records cost at most 48 bytes for each live block") {
    std::mt19937_64 random(1);
    best_fit p;
    p.add({1 * GiB, 1024 * GiB});
    std::vector<range> live;
    for (int n = 0; n < 100000; ++n)
        live.push_back(p.take(1 + random() % MiB, 1));
    for (int n = 0; n < 200000; ++n) {
        range& one = live[random() % live.size()];
        p.give(one);
        one = p.take(1 + random() % MiB, 1);
    }
    CHECK(p.bookkeeping_bytes() <= 48 * live.size());
}

TEST_CASE("best_fit: knows what is free before an address and after it") {
    best_fit p;
    CHECK(p.free_before(4096) == 0); // nothing was ever free here
    CHECK(p.free_after(4096) == 0);
    CHECK(p.free_before(0) == 0);
    CHECK(p.free_after(SIZE_MAX) == 0);
    p.add({4096, 2048});
    CHECK(p.free_before(6144) == 2048);
    CHECK(p.free_after(4096) == 2048);
    CHECK(p.free_before(4096) == 0);
    CHECK(p.free_after(6144) == 0);
    CHECK(p.free_before(5120) == 0); // in the middle: neither end
    CHECK(p.free_after(5120) == 0);
    p.add({8192, 512});
    CHECK(p.free_before(8192) == 0);
    CHECK(p.free_after(8192) == 512);
    p.give({6144, 2048}); // all join
    CHECK(p.free_before(8704) == 4608);
    CHECK(p.free_after(4096) == 4608);
    CHECK(p.free_before(6144) == 0);
    CHECK(p.take(4608, 1));
    CHECK(p.free_before(8704) == 0);
    CHECK(p.free_after(4096) == 0);
}

TEST_CASE("best_fit: at a fence nothing is free before or after: it would not join") {
    best_fit p;
    p.fence({8192, 4096});
    p.add({4096, 4096});
    p.add({8192, 4096});
    CHECK(p.free_ranges() == 2);
    CHECK(p.free_before(8192) == 0);
    CHECK(p.free_after(8192) == 0);
    CHECK(p.free_after(4096) == 4096);
    CHECK(p.free_before(12288) == 4096);
    best_fit other = p.sibling();
    other.fence({12288, 4096}); // a sibling's fence is everyone's
    CHECK(p.free_before(12288) == 0);
    CHECK(p.remove({8192, 4096})); // and its fence
    CHECK(p.free_before(8192) == 4096);
}

TEST_CASE("best_fit: what is said to be free at an end is what a range joins there") {
    for (unsigned seed = 0; seed < 6; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        best_fit p;
        std::vector<range> used;
        for (std::size_t n = 0; n < 4; ++n) {
            range const chunk{1 * GiB + n * 256 * KiB, 256 * KiB};
            if (random() % 2 == 0)
                p.fence(chunk);
            used.push_back(chunk);
        }
        for (int n = 0; n < 3000; ++n) {
            if (random() % 2 == 0 || used.empty()) {
                range const block = p.take(512 + random() % (32 * KiB), std::size_t{512} << random() % 5);
                if (block)
                    used.push_back(block);
                continue;
            }
            std::swap(used[random() % used.size()], used.back());
            range block = used.back();
            used.pop_back();
            if (block.bytes > 1024 && random() % 2 == 0) {
                std::size_t const size = (1 + random() % (block.bytes / 512 - 1)) * 512;
                used.push_back({block.offset + size, block.bytes - size});
                block.bytes = size;
            }
            std::size_t const before = p.free_before(block.offset);
            std::size_t const after = p.free_after(block.end());
            std::size_t const ranges = p.free_ranges();
            p.give(block);
            REQUIRE(p.free_ranges() == ranges + 1 - (before != 0) - (after != 0));
            range const joined{block.offset - before, before + block.bytes + after};
            bool found = false;
            p.for_each_free(joined.bytes, [&](range each) { found = found || each == joined; });
            REQUIRE(found);
        }
    }
}

TEST_CASE("best_fit: removes out of the free range that starts at an address, and out of no other") {
    best_fit p;
    CHECK_FALSE(p.remove({0, 4096}, 0)); // nothing is free here
    p.add({0, 8 * KiB});
    p.add({16 * KiB, 8 * KiB});
    CHECK_FALSE(p.remove({0, 100}, 0)); // no whole granule
    CHECK_FALSE(p.remove({0, 0}, 0));
    CHECK_FALSE(p.remove({0, 9 * KiB}, 0));         // longer than the range
    CHECK_FALSE(p.remove({16 * KiB, 1 * KiB}, 0));  // in another one
    CHECK_FALSE(p.remove({1 * KiB, 1 * KiB}, 512)); // where no range starts
    CHECK_FALSE(p.remove({1 * KiB, 1 * KiB}, 1 * KiB));
    CHECK_FALSE(p.remove({8 * KiB, 1 * KiB}, 0));
    CHECK(p.free_bytes() == 16 * KiB);
    CHECK(p.free_ranges() == 2);
    CHECK(p.remove({2 * KiB, 1 * KiB}, 0)); // the middle
    CHECK(p.free_after(0) == 2 * KiB);
    CHECK(p.free_after(3 * KiB) == 5 * KiB);
    CHECK_FALSE(p.remove({4 * KiB, 1 * KiB}, 0)); // what lies behind the hole starts elsewhere
    CHECK(p.remove({4 * KiB, 1 * KiB}, 3 * KiB));
    CHECK(p.remove({16 * KiB, 1 * KiB}, 16 * KiB)); // the start
    CHECK(p.remove({23 * KiB, 1 * KiB}, 17 * KiB)); // the end
    CHECK(p.free_after(17 * KiB) == 6 * KiB);
    CHECK(p.remove({17 * KiB, 6 * KiB}, 17 * KiB)); // the whole
    CHECK(p.free_bytes() == 6 * KiB);
    CHECK(p.remove({100, 1100}, 0)); // what lies in whole granules: 512 to 1024
    CHECK(p.free_after(0) == 512);
    CHECK(p.free_after(1024) == 1 * KiB);
}

TEST_CASE("best_fit: a removed chunk takes the fence at its start along, and no other") {
    best_fit p;
    for (std::size_t n = 0; n < 3; ++n) {
        p.fence({n * 4096, 4096});
        p.add({n * 4096, 4096});
    }
    CHECK_FALSE(p.remove({4096, 8192}, 4096)); // across a fence
    CHECK(p.remove({4096, 4096}, 4096));
    CHECK(p.free_before(4096) == 4096); // no fence there any more
    CHECK(p.free_after(8192) == 0);     // there is one still
    p.add({4096, 4096});
    CHECK(p.free_ranges() == 2);
    // A chunk in the middle of a range that has joined: its start is no fence, and so it stays.
    p.add({20480, 12288});
    CHECK(p.remove({24576, 4096}, 20480));
    CHECK(p.free_after(20480) == 4096);
    CHECK(p.free_after(28672) == 4096);
    // What could not be removed keeps its fence.
    best_fit q;
    q.fence({4096, 4096});
    q.add({4096, 4096});
    range const block = q.take(512, 1);
    CHECK_FALSE(q.remove({4096, 4096}, 4096));
    CHECK_FALSE(q.remove({4096, 4096}, 4608));
    q.give(block);
    q.add({0, 4096});
    CHECK(q.free_ranges() == 2);
}

TEST_CASE("best_fit: both ways to remove agree") {
    for (unsigned seed = 0; seed < 6; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        best_fit one, two;
        std::vector<range> gone;
        one.add({1 * GiB, 1 * MiB});
        two.add({1 * GiB, 1 * MiB});
        for (int n = 0; n < 2000; ++n) {
            if (!gone.empty() && random() % 2 == 0) {
                std::swap(gone[random() % gone.size()], gone.back());
                one.give(gone.back());
                two.give(gone.back());
                gone.pop_back();
                continue;
            }
            range const wanted{1 * GiB + random() % 2048 * 512, (1 + random() % 64) * 512};
            std::size_t start = SIZE_MAX;
            one.for_each_free(512, [&](range each) { start = each.contains(wanted) ? each.offset : start; });
            bool const there = start != SIZE_MAX;
            REQUIRE(one.remove(wanted) == there);
            REQUIRE(two.remove(wanted, there ? start : wanted.offset) == there);
            if (there)
                gone.push_back(wanted);
            REQUIRE(one.free_bytes() == two.free_bytes());
            REQUIRE(one.free_ranges() == two.free_ranges());
        }
        std::vector<range> a, b;
        one.for_each_free(0, [&](range each) { a.push_back(each); });
        two.for_each_free(0, [&](range each) { b.push_back(each); });
        auto const lower = [](range x, range y) { return x.offset < y.offset; };
        std::sort(a.begin(), a.end(), lower);
        std::sort(b.begin(), b.end(), lower);
        CHECK(a == b);
    }
}

TEST_CASE("best_fit: visits every free range that is large enough, once, the smallest first") {
    best_fit p;
    int visits = 0;
    p.for_each_free(0, [&](range) { ++visits; });
    CHECK(visits == 0);
    std::vector<std::size_t> sizes;
    std::size_t at = 0;
    for (std::size_t granules = 1; granules < 40000; granules += 1 + granules / 3) {
        p.add({at, granules * 512});
        sizes.push_back(granules * 512);
        at += granules * 512 + 512;
    }
    for (std::size_t const least : sizes)
        for (std::size_t const asked : {least - 1, least, least + 1}) {
            std::vector<std::size_t> found;
            p.for_each_free(asked, [&](range each) { found.push_back(each.bytes); });
            std::vector<std::size_t> const expected(std::lower_bound(sizes.begin(), sizes.end(), asked),
                                                    sizes.end());
            CHECK(found == expected); // classes apart, so just in order
        }
    p.for_each_free(SIZE_MAX, [&](range) { ++visits; });
    CHECK(visits == 0);
}

TEST_CASE("best_fit: where the host has no memory, a removal out of a range's middle changes nothing") {
    if (!support::host_memory_can_fail)
        return;
    std::size_t ranges = 0;
    auto const scene = [] {
        best_fit p;
        for (std::size_t n = 0; n < 16; ++n) { // as many as there is room for at first
            p.fence({n * 8192, 8192});
            p.add({n * 8192, 8192});
        }
        return p;
    };
    long const failures = support::each_failure(
        scene,
        [](best_fit& p) {
            static_cast<void>(p.remove({4096, 512}, 0));
        },
        [&](best_fit& p) {
            CHECK(p.free_bytes() == 16 * 8192);
            CHECK(p.free_ranges() == 16);
            CHECK(p.free_before(8192) == 0);
            CHECK(p.remove({4096, 512}, 0));
            CHECK(p.free_ranges() == 17);
            ++ranges;
        });
    CHECK(failures > 0);
    CHECK(ranges == static_cast<std::size_t>(failures));
}
