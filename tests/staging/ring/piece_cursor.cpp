// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "../scene.hpp"

#include <algorithm>

using namespace scene;
using weir::staging::detail::direction;
using weir::staging::detail::bytes_of;
using weir::staging::detail::copy_by_host;
using weir::staging::detail::piece_cursor;
using weir::staging::detail::piece_span;

TEST_CASE("piece_cursor: a row is cut into chunks that together are the row, and any part of a chunk can be copied alone") {
    octets const row = counting(100);
    std::size_t const lists[][6] = {{0, 0, 0, 0, 0, 0}, {100, 0, 0, 0, 0, 0}, {1, 0, 0, 30, 64, 5}, {0, 50, 0, 0, 50, 0}};
    for (auto const& sizes : lists)
        for (std::size_t const most : {1u, 7u, 30u, 1000u})
            for (std::size_t const step : {1u, 3u, 1000u}) {
                octets there(100, 0), back(100, 0);
                std::vector<piece> pieces;
                std::size_t total = 0;
                for (std::size_t each : sizes) {
                    pieces.push_back({there.data() + total, row.data() + total, each});
                    total += each;
                }
                CHECK(bytes_of(pieces.data(), pieces.size()) == total);
                piece_cursor cursor(pieces.data(), pieces.size());
                std::size_t sum = 0;
                octets slot(1000);
                for (piece_span chunk = cursor.next(most); chunk.bytes != 0; chunk = cursor.next(most)) {
                    CHECK(chunk.bytes == std::min(most, total - sum));
                    for (direction const way : {direction::to_device, direction::to_host})
                        for (std::size_t begin = 0; begin < chunk.bytes; begin += step)
                            copy_by_host(chunk, reinterpret_cast<std::byte*>(slot.data()), way, begin,
                                         std::min(begin + step, chunk.bytes));
                    sum += chunk.bytes;
                }
                CHECK(sum == total);
                CHECK(cursor.next(most).bytes == 0);
                CHECK(std::equal(row.begin(), row.begin() + static_cast<long>(total), there.begin()));
            }
}

TEST_CASE("piece_cursor: sizes add up to no less than there is") {
    char x = 0;
    piece const large[] = {{&x, &x, SIZE_MAX - 1}, {&x, &x, 1}, {&x, &x, 1}};
    CHECK(bytes_of(large, 2) == SIZE_MAX);
    CHECK(bytes_of(large, 3) == SIZE_MAX);
    CHECK_THROWS_AS(bytes_of(std::vector<piece>{{nullptr, &x, 1}}.data(), 1), weir::usage_error);
}
