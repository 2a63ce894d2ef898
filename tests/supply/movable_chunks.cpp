// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <weir/supply/movable_chunks.hpp>

using weir::base::range;
using weir::supply::movable_chunk;
using weir::supply::movable_chunks;

namespace {

constexpr std::size_t any_size = SIZE_MAX;

movable_chunks some(std::initializer_list<std::size_t> sizes) {
    movable_chunks all;
    std::size_t at = 1000;
    for (std::size_t each : sizes) {
        all.add(movable_chunk{range{at, each}, at}); // each in a free range of its own
        at += 1000;
    }
    return all;
}

} // namespace

TEST_CASE("movable_chunks: the largest of those that are not more than is lacking, and then the smallest") {
    movable_chunks all = some({4, 16, 8, 64, 32});
    CHECK(all.bytes() == 124);
    CHECK(all.next(20, any_size).chunk.bytes == 16);
    CHECK(all.bytes() == 108);
    CHECK(all.next(20, any_size).chunk.bytes == 8);
    CHECK(all.next(2, any_size).chunk.bytes == 4);
    CHECK(all.next(2, any_size).chunk.bytes == 32);
    CHECK(all.next(64, any_size).chunk.bytes == 64);
    CHECK_FALSE(all.next(1, any_size).chunk);
}

TEST_CASE("movable_chunks: of the same size the first, and none larger than there is room for") {
    movable_chunks all = some({8, 8, 32});
    CHECK(all.next(8, any_size).chunk.offset == 1000);
    CHECK(all.next(100, 31).chunk.offset == 2000);
    CHECK_FALSE(all.next(100, 31).chunk);
    CHECK(all.next(1, 32).chunk.bytes == 32);
}

TEST_CASE("movable_chunks: what is behind one that is gone lies in a free range that starts there") {
    movable_chunks all;
    for (std::size_t at = 100; at < 150; at += 10)
        all.add(movable_chunk{range{at, at == 120 ? 9u : 10u}, 100}); // five side by side
    all.add(movable_chunk{range{200, 7}, 200});
    movable_chunk const middle = all.next(9, any_size);
    CHECK(middle.chunk == range{120, 9});
    CHECK(middle.free_from == 100);
    all.gone(middle);
    movable_chunk const other = all.next(7, any_size);
    CHECK(other.free_from == 200);
    all.gone(other); // none of the rest lies there
    for (std::size_t from : {100u, 100u, 129u, 129u})
        CHECK(all.next(10, any_size).free_from == from);
}
