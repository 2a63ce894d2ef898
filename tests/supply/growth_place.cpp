// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstdint>
#include <doctest/doctest.h>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>
#include <weir/placement/best_fit.hpp>
#include <weir/supply/chunk_list.hpp>
#include <weir/supply/growth_place.hpp>

using weir::supply::chunk_list;
using weir::supply::growth_place;
using weir::base::range;
using best_fit = weir::placement::best_fit<512>;

static_assert(noexcept(weir::supply::cheapest_growth_place(std::declval<chunk_list const&>(),
                                                std::declval<best_fit const&>(), 1, 1, 1)));

namespace {

constexpr std::size_t page = 4096;

// Chunks of whole pages, all in use but what is set free.
struct scene {
    chunk_list chunks;
    best_fit free;

    scene(std::initializer_list<range> held) {
        chunks.reserve(held.size());
        for (range const& each : held)
            chunks.add(each);
    }
    growth_place best(std::size_t bytes, std::size_t alignment = 512) const {
        return weir::supply::cheapest_growth_place(chunks, free, bytes, alignment, page);
    }
};

constexpr range pages(std::size_t first, std::size_t count) {
    return range{first * page, count * page};
}

} // namespace

TEST_CASE("growth_place: without chunks there is none, and with all in use the whole block is needed") {
    CHECK(scene{}.best(512).end == 0);
    scene s{pages(10, 4)};
    growth_place const one = s.best(512);
    CHECK(one.end == 14 * page);
    CHECK(one.bytes == page); // whole pages
    CHECK(one.gap_bytes == SIZE_MAX - 14 * page);
    CHECK(one.counted == range{14 * page, page});
    CHECK(s.best(page).bytes == page);
    CHECK(s.best(page + 512).bytes == 2 * page);
    CHECK(s.best(100 * page).bytes == 100 * page);
}

TEST_CASE("growth_place: what is free before the end counts, and what is free elsewhere does not") {
    scene s{pages(10, 10)};
    s.free.add({11 * page, 6 * page}); // in the middle
    CHECK(s.best(8 * page).bytes == 8 * page);
    s.free.add({18 * page + 512, 2 * page - 512});
    growth_place const one = s.best(4 * page);
    CHECK(one.end == 20 * page);
    CHECK(one.bytes == 3 * page); // 2 pages and 512 bytes, in whole pages
    CHECK(one.counted == range{18 * page + 512, 5 * page - 512});
    CHECK(s.best(4 * page - 512).bytes == 2 * page);
    CHECK(s.best(2 * page).bytes == page);
}

TEST_CASE("growth_place: where the block fits before the end already, nothing is extended there") {
    scene s{pages(10, 10)};
    s.free.add(pages(18, 2));
    CHECK(s.best(2 * page).end == 0);
    CHECK(s.best(512).end == 0);
    CHECK(s.best(2 * page + 512).bytes == page);
    CHECK(s.best(2 * page, 2 * page).end == 0);
    CHECK(s.best(2 * page, 4 * page).bytes == 2 * page); // 20 is a multiple of 4, 18 is none
    scene t{pages(10, 10), pages(30, 2)};
    t.free.add(pages(18, 2));
    CHECK(t.best(2 * page).end == 32 * page); // elsewhere it would, and takes the whole block
}

TEST_CASE("growth_place: what the alignment skips does not count") {
    scene s{pages(10, 10)};
    s.free.add({17 * page + 512, 3 * page - 512});
    CHECK(s.best(4 * page, 512).bytes == 2 * page);
    CHECK(s.best(4 * page, page).bytes == 2 * page);
    CHECK(s.best(4 * page, 2 * page).bytes == 2 * page);
    growth_place const one = s.best(4 * page, 4 * page); // at 20
    CHECK(one.bytes == 4 * page);
    CHECK(one.counted.contains(pages(20, 4)));
    CHECK(s.best(4 * page, 8 * page).bytes == 8 * page);   // at 24
    CHECK(s.best(4 * page, 32 * page).bytes == 16 * page); // at 32
    CHECK(s.best(512, 32 * page).bytes == 13 * page);
    scene t{pages(10, 1)}; // nothing free: the end itself is aligned or not
    CHECK(t.best(page, page).bytes == page);
    CHECK(t.best(page, 4 * page).bytes == 2 * page);
}

TEST_CASE("growth_place: a gap is filled as far as is needed, and all of it where it is just enough") {
    scene s{pages(10, 2), pages(16, 2)};
    growth_place const part = s.best(3 * page);
    CHECK(part.end == 12 * page);
    CHECK(part.bytes == 3 * page);
    CHECK(part.gap_bytes == 4 * page);
    CHECK(part.counted == pages(12, 3));
    growth_place const whole = s.best(4 * page);
    CHECK(whole.end == 12 * page);
    CHECK(whole.bytes == 4 * page);
    CHECK(whole.counted == pages(12, 4));
    CHECK(s.best(4 * page + 512).end == 18 * page); // too small, and nothing free behind it
}

TEST_CASE("growth_place: behind a gap that is too small what is free counts as well") {
    scene s{pages(10, 2), pages(13, 4)};
    s.free.add(pages(11, 1));
    s.free.add({13 * page, page + 512});
    growth_place const one = s.best(3 * page);
    CHECK(one.end == 12 * page);
    CHECK(one.bytes == page); // not 2: the gap is taken once, whole
    CHECK(one.gap_bytes == page);
    CHECK(one.counted == pages(11, 3));
    CHECK(s.best(3 * page + 512).bytes == page);
    CHECK(s.best(3 * page + 512).counted == range{11 * page, 3 * page + 512});
    CHECK(s.best(3 * page + 1024).end == 17 * page); // 512 bytes more than there are
    CHECK(s.best(2 * page).counted == pages(11, 2)); // needs nothing behind
    // What is free behind, but not right behind, is none.
    scene t{pages(10, 2), pages(13, 4)};
    t.free.add({13 * page + 512, 2 * page});
    CHECK(t.best(2 * page).end == 17 * page);
}

TEST_CASE("growth_place: the alignment counts where a gap is filled, too") {
    scene s{pages(10, 5), pages(16, 8)};
    s.free.add(pages(13, 2));
    s.free.add(pages(16, 3));
    CHECK(s.best(6 * page, page).end == 15 * page);
    CHECK(s.best(4 * page, 2 * page).counted.contains(pages(14, 4)));
    CHECK(s.best(5 * page, 2 * page).end == 15 * page); // 14 to 19
    CHECK(s.best(6 * page, 2 * page).end == 24 * page); // 14 to 20 is not free
    CHECK(s.best(6 * page, 2 * page).bytes == 6 * page);
    CHECK(s.best(4 * page, 4 * page).end == 24 * page); // would start behind the gap, at 16, and not fit
}

TEST_CASE("growth_place: nothing counts across a fence") {
    // At the start of the chunk behind the gap.
    scene s{pages(10, 2), pages(13, 4)};
    s.free.fence({13 * page, page});
    s.free.add(pages(13, 2));
    CHECK(s.best(2 * page).end == 17 * page);
    CHECK(s.best(page).end == 12 * page);
    // At the end: somebody's chunk starts there, or will.
    scene t{pages(10, 2), pages(20, 2)};
    t.free.add(pages(11, 1));
    CHECK(t.best(2 * page).bytes == page);
    t.free.fence({12 * page, page});
    growth_place const one = t.best(2 * page);
    CHECK(one.end == 12 * page);
    CHECK(one.bytes == 2 * page);
    CHECK(one.counted == pages(12, 2));
}

TEST_CASE("growth_place: chunks that lie side by side have no gap between them") {
    scene s{pages(10, 2), pages(12, 2), pages(14, 2)};
    s.free.add(pages(11, 1));
    s.free.add(pages(13, 1));
    growth_place const one = s.best(2 * page);
    CHECK(one.end == 16 * page);
    CHECK(one.bytes == 2 * page);
    // Free bytes may reach over several of them.
    scene t{pages(10, 2), pages(12, 2), pages(14, 2)};
    t.free.add(pages(11, 5));
    CHECK(t.best(8 * page).bytes == 3 * page);
    CHECK(t.best(8 * page).counted == pages(11, 8));
    // And over several behind a gap.
    scene u{pages(8, 1), pages(10, 2), pages(12, 2)};
    u.free.add(pages(10, 3));
    CHECK(u.best(4 * page).end == 9 * page);
    CHECK(u.best(4 * page).bytes == page);
}

TEST_CASE("growth_place: of several places the cheapest, of equals the smallest gap, of equals the lowest") {
    scene s{pages(10, 4), pages(20, 4), pages(30, 4), pages(40, 4)};
    s.free.add(pages(12, 2));
    s.free.add(pages(21, 3));
    s.free.add(pages(33, 1));
    CHECK(s.best(6 * page).end == 24 * page); // 3 more; 4, 5 and 6 elsewhere
    CHECK(s.best(6 * page).bytes == 3 * page);
    s.free.add(pages(31, 2));
    CHECK(s.best(6 * page).end == 24 * page); // as cheap, gaps as large, lower
    scene small{pages(10, 4), pages(20, 4), pages(26, 4)};
    CHECK(small.best(2 * page).end == 24 * page); // all as cheap; the gap of 2 is filled
    scene equal{pages(10, 4), pages(20, 4), pages(30, 4)};
    CHECK(equal.best(2 * page).end == 14 * page); // gaps of 6 both, and what is behind the last is larger
    // At the end of the last chunk where that is cheapest.
    scene last{pages(10, 4), pages(20, 4)};
    last.free.add(pages(23, 1));
    CHECK(last.best(2 * page).end == 24 * page);
    CHECK(last.best(2 * page).bytes == page);
    // A small gap that is filled whole is cheaper than fewer bytes in front of a large one.
    scene filled{pages(10, 2), pages(13, 4), pages(30, 4)};
    filled.free.add(pages(13, 3));
    filled.free.add(pages(33, 1));
    CHECK(filled.best(4 * page).end == 12 * page);
    CHECK(filled.best(4 * page).bytes == page);
}

TEST_CASE("growth_place: what no address has room for is extended nowhere") {
    scene s{pages(10, 4), pages(20, 4)};
    CHECK(s.best(SIZE_MAX).end == 0);
    CHECK(s.best(SIZE_MAX - 511).end == 0);
    CHECK(s.best(SIZE_MAX - 24 * page).end == 0); // not in whole pages
    std::size_t const most = weir::base::align_down(SIZE_MAX - 24 * page, page);
    CHECK(s.best(most).bytes == most);
    CHECK(s.best(most + 1).end == 0);
    CHECK(s.best(512, std::size_t{1} << 63).bytes == (std::size_t{1} << 63) - 24 * page + page);
    CHECK(s.best(std::size_t{1} << 63, std::size_t{1} << 63).end == 0); // would end where addresses do
    s.free.add(pages(22, 2));
    CHECK(s.best(SIZE_MAX - 511).end == 0);
    CHECK(s.best(most).bytes == most - 2 * page);
}

TEST_CASE("growth_place: where no aligned address is left, nothing is extended") {
    std::size_t const half = std::size_t{1} << 63;
    scene s{range{half, page}};
    CHECK(s.best(512, half).end == 0);
    CHECK(s.best(half + 4 * page, half).end == 0);
    CHECK(s.best(half + 4 * page, page).end == 0);
    // Nor where the block's end wraps, and comes out behind the chunk's.
    scene low{pages(10, 4)};
    CHECK(low.best(half + 100 * page, half).end == 0);
    CHECK(low.best(half - page, half).bytes == SIZE_MAX - page + 1 - 14 * page);
    CHECK(s.best(half - 4 * page, page).bytes == half - 4 * page);
}

TEST_CASE("growth_place: agrees with growing everywhere page by page, and a block fits then") {
    for (unsigned seed = 0; seed < 10; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 draw(seed);
        for (int turn = 0; turn < 400; ++turn) {
            CAPTURE(turn);
            chunk_list chunks;
            best_fit free;
            std::size_t at = (8 + draw() % 8) * page;
            std::size_t const count = 1 + draw() % 8;
            chunks.reserve(count);
            for (std::size_t n = 0; n < count; ++n) {
                range const chunk{at, (1 + draw() % 6) * page};
                chunks.add(chunk);
                if (draw() % 4 == 0)
                    free.fence(chunk);
                at = chunk.end() + (draw() % 3 == 0 ? 0 : draw() % 7 * page);
            }
            for (range const& chunk : chunks) { // its start, its end, all of it or its middle
                std::size_t const cut = draw() % (chunk.bytes / 512) * 512;
                switch (draw() % 6) {
                case 0:
                    free.add({chunk.offset, cut});
                    break;
                case 1:
                    free.add({chunk.offset + cut, chunk.bytes - cut});
                    break;
                case 2:
                    free.add(chunk);
                    break;
                case 3:
                    free.add({chunk.offset + 512, cut});
                    break;
                case 4:
                    free.add({chunk.offset, cut / 2});
                    free.add({chunk.offset + cut, chunk.bytes - cut});
                    break;
                default:
                    break;
                }
            }
            std::size_t const bytes = (1 + draw() % (draw() % 2 == 0 ? 40 : 120)) * 512;
            std::size_t const alignment = std::size_t{512} << (draw() % 2 == 0 ? 0 : draw() % 7);

            growth_place expected;
            for (range const* each = chunks.begin(); each != chunks.end(); ++each) {
                bool const is_last = each + 1 == chunks.end();
                std::size_t const gap = is_last ? SIZE_MAX - each->end() : each[1].offset - each->end();
                std::size_t const tail = free.free_before(each->end());
                if (weir::base::has_room({each->end() - tail, tail}, bytes, alignment))
                    continue;
                for (std::size_t more = page; more <= gap && more < 200 * page; more += page) {
                    std::size_t const behind = more == gap ? free.free_after(each[1].offset) : 0;
                    if (!weir::base::has_room({each->end() - tail, tail + more + behind}, bytes, alignment))
                        continue;
                    if (expected.end == 0 || more < expected.bytes ||
                        (more == expected.bytes && gap < expected.gap_bytes)) {
                        expected.end = each->end();
                        expected.bytes = more;
                        expected.gap_bytes = gap;
                    }
                    break;
                }
            }
            growth_place const found = weir::supply::cheapest_growth_place(chunks, free, bytes, alignment, page);
            REQUIRE(found.end == expected.end);
            REQUIRE(found.bytes == expected.bytes);
            REQUIRE(found.gap_bytes == expected.gap_bytes);
            if (found.end == 0)
                continue;
            range const block{weir::base::align_up(found.counted.offset, alignment), bytes};
            REQUIRE(found.counted.contains(block));
            REQUIRE(found.counted.offset == found.end - free.free_before(found.end));
            range const grown{found.end, found.bytes};
            std::size_t const counted_free = found.counted.bytes; // before, the gap, and behind
            REQUIRE(counted_free <= free.free_before(found.end) + grown.bytes + free.free_after(grown.end()));
            free.add(grown);
            REQUIRE(free.take(bytes, alignment));
        }
    }
}

TEST_CASE("growth_place: grows no further than there are addresses, whatever follows them") {
    scene s{pages(10, 2), pages(16, 4)};
    s.free.add(pages(16, 3)); // would count behind the gap of four pages
    auto const best = [&](std::size_t bytes, std::size_t reach_of_first, std::size_t reach_of_last) {
        return weir::supply::cheapest_growth_place(s.chunks, s.free, bytes, 512, page, [&](std::size_t end) {
            return end == 12 * page ? reach_of_first : reach_of_last;
        });
    };
    CHECK(best(6 * page, 100 * page, 100 * page).bytes == 4 * page);
    growth_place const up_to_next = best(6 * page, 4 * page, 100 * page); // the next one begins where the addresses end
    CHECK(up_to_next.end == 20 * page);
    CHECK(up_to_next.bytes == 6 * page);
    CHECK(best(4 * page, 4 * page, 0).end == 12 * page);
    growth_place const near = best(2 * page, 3 * page, 0);
    CHECK(near.end == 12 * page);
    CHECK(near.gap_bytes == 3 * page);
    CHECK(best(3 * page + 1, 3 * page, 3 * page).end == 0);
    CHECK(best(3 * page, 0, 3 * page).end == 20 * page);
    CHECK(best(3 * page, 0, 2 * page).end == 0);
}
