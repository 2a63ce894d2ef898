// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <random>
#include <support/failing_new.hpp>
#include <support/interval_oracle.hpp>
#include <vector>
#include <weir/placement/bins/piece_list.hpp>

using weir::placement::detail::piece_list;
using weir::base::range;

TEST_CASE("piece_list: cuts a range into few naturally aligned powers of two, and all of it") {
    for (range const r : {range{0, 1 << 20}, range{16384, 16384}, range{48 << 10, 5 << 20}, range{1 << 20, (3 << 20) - 16384}}) {
        piece_list list;
        CHECK(list.empty());
        list.add(r, 0);
        CHECK(list.size() <= piece_list::most_pieces);
        std::vector<range> pieces; // the last first
        std::size_t const largest = list.largest();
        while (!list.empty()) {
            pieces.push_back(list.back());
            list.drop_back();
        }
        std::size_t at = r.offset;
        std::size_t seen = 0;
        for (std::size_t n = pieces.size(); n-- > 0;) {
            CHECK(pieces[n].offset == at);
            CHECK(weir::base::is_power_of_two(pieces[n].bytes));
            CHECK(at % pieces[n].bytes == 0);
            at = pieces[n].end();
            seen = pieces[n].bytes > seen ? pieces[n].bytes : seen;
        }
        CHECK(at == r.end());
        CHECK(seen == largest);
    }
    piece_list list;
    list.add({}, 0);
    CHECK(list.empty());
    CHECK(list.largest() == 0);
}

TEST_CASE("piece_list: takes the smallest piece that is large enough, and halves it") {
    piece_list list;
    list.reserve(2);
    list.put({1 << 20, 1 << 20});
    list.put({1 << 16, 1 << 16});
    CHECK(list.take(1 << 14, 0) == range{1 << 16, 1 << 14});
    CHECK(list.size() == 3); // the megabyte, 16 KiB and 32 KiB
    CHECK(list.take(1 << 15, 0) == range{(1 << 16) + (1 << 15), 1 << 15});
    CHECK(list.take(1 << 14, 0) == range{(1 << 16) + (1 << 14), 1 << 14});
    CHECK(list.size() == 1);
    CHECK_FALSE(list.take(1 << 21, 0));
    CHECK(list.take(1 << 20, 0) == range{1 << 20, 1 << 20});
    CHECK_FALSE(list.take(1, 0));
}

TEST_CASE("piece_list: pieces stay apart, and all pieces of a range leave together or not at all") {
    std::mt19937_64 random(1);
    for (int round = 0; round < 50; ++round) {
        piece_list list;
        support::interval_oracle oracle;
        range const chunks[] = {{4 << 20, 2 << 20}, {6 << 20, 3 << 20}};
        for (range const chunk : chunks) {
            list.add(chunk, 0);
            oracle.add(chunk);
        }
        for (int n = 0; n < 40; ++n) {
            std::size_t const bytes = std::size_t{1} << (12 + random() % 8);
            if (range const piece = list.take(bytes, 0))
                oracle.take(piece, bytes, bytes);
        }
        CHECK(list.take_all({})); // which lacks nothing
        for (range const chunk : chunks) {
            std::size_t const before = list.size();
            if (oracle.live_in(chunk) != 0) {
                CHECK_FALSE(list.take_all(chunk));
                CHECK(list.size() == before);
            }
        }
        while (oracle.live() != 0) {
            list.reserve(1);
            list.put(oracle.give_last());
        }
        CHECK_FALSE(list.take_all({4 << 20, 6 << 20})); // more than there is
        CHECK(list.take_all(chunks[0]));
        CHECK_FALSE(list.take_all(chunks[0]));
        CHECK(list.take_all(chunks[1]));
        CHECK(list.empty());
    }
}

TEST_CASE("piece_list: keeps the room that it was asked to keep, and a failed call changes nothing") {
    if (!support::host_memory_can_fail)
        return;
    support::each_failure([] { return piece_list(); }, [](piece_list& list) { list.add({0, 1 << 20}, 100); },
                          [](piece_list& list) { CHECK(list.empty()); });
    piece_list list;
    list.add({0, 1 << 20}, 100);
    {
        support::failing_new const fails(0);
        for (std::size_t n = 0; n < 100; ++n)
            list.put({n, 1});
    }
    CHECK(list.bookkeeping_bytes() >= 101 * sizeof(range));
    piece_list full;
    full.reserve(1);
    full.put({0, 1 << 20});
    CHECK_THROWS_AS(([&] {
                        support::failing_new const fails(0);
                        full.take(4096, 0);
                    }()),
                    std::bad_alloc);
    CHECK(full.back() == range{0, 1 << 20});
}

TEST_CASE("piece_list: add and take keep the room that they are asked for") {
    for (std::size_t spare : {0u, 1u, 100u, 1000u}) {
        weir::placement::detail::piece_list pieces;
        pieces.add({0, std::size_t{1} << 40}, 0);
        CHECK(pieces.take(1, spare) == weir::base::range{0, 1});
        std::size_t bytes = pieces.bookkeeping_bytes();
        for (std::size_t n = 0; n < spare; ++n)
            pieces.put({n, 1});
        CHECK(pieces.bookkeeping_bytes() == bytes);
        pieces.add({1, std::size_t{1} << 40}, spare);
        bytes = pieces.bookkeeping_bytes();
        for (std::size_t n = 0; n < spare; ++n)
            pieces.put({n, 1});
        CHECK(pieces.bookkeeping_bytes() == bytes);
    }
}
