// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a newer weir has to read of an older one: numbers that stand in files.

#include <cstring>
#include <doctest/doctest.h>
#include <limits>
#include <weir/trace/file_format.hpp>

namespace trace = weir::trace;
using trace::record_kind;

TEST_CASE("file_format: a signed number is folded so that small ones stay small, and unfolded") {
    struct {
        std::int64_t number;
        std::uint64_t folded;
    } const cases[] = {{0, 0},
                       {-1, 1},
                       {1, 2},
                       {-2, 3},
                       {1000, 2000},
                       {std::numeric_limits<std::int64_t>::max(), UINT64_MAX - 1},
                       {std::numeric_limits<std::int64_t>::min(), UINT64_MAX}};
    for (auto const& each : cases) {
        CHECK(trace::folded(each.number) == each.folded);
        CHECK(trace::unfolded(each.folded) == each.number);
    }
}

TEST_CASE("file_format: a number is shifted by the zeros that it ends in, 15 at most") {
    struct {
        std::uint64_t number;
        unsigned shift;
    } const cases[] = {{0, 0}, {1, 0}, {2, 1}, {12, 2}, {1u << 14, 14}, {1u << 15, 15}, {1u << 16, 15}, {std::uint64_t{1} << 63, 15}, {UINT64_MAX, 0}};
    for (auto const& each : cases)
        CHECK(trace::shift_of(each.number) == each.shift);
}

TEST_CASE("file_format: a checksum is what it was, and each bit counts") {
    struct {
        char const* text;
        std::uint64_t sum;
    } const cases[] = {{"", 0xaf63bd4c29620a93u}, {"a", 0xaf63dc4c296230c0u}, {"12345678", 0x991b59351ed9dd43u}, {"weir writes events", 0x99fbd3f68dd7caccu}};
    for (auto const& each : cases) {
        unsigned char bytes[32] = {};
        std::size_t const count = std::strlen(each.text);
        std::memcpy(bytes, each.text, count);
        CHECK(trace::checksum_of(bytes, count) == each.sum);
        for (std::size_t bit = 0; bit < 8 * count; ++bit) {
            bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ 1u << bit % 8);
            CHECK(trace::checksum_of(bytes, count) != each.sum);
            bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ 1u << bit % 8);
        }
        if (count != 0)
            CHECK(trace::checksum_of(bytes, count - 1) != each.sum);
    }
}

TEST_CASE("file_format: contexts are equal if all of their parts are") {
    trace::event_context const one{1, 2, 3, 4, 5, 6};
    CHECK(one == trace::event_context{1, 2, 3, 4, 5, 6});
    trace::event_context const others[] = {{0, 2, 3, 4, 5, 6}, {1, 0, 3, 4, 5, 6}, {1, 2, 0, 4, 5, 6},
                                           {1, 2, 3, 0, 5, 6}, {1, 2, 3, 4, 0, 6}, {1, 2, 3, 4, 5, 0}};
    for (auto const& each : others)
        CHECK_FALSE(one == each);
}

TEST_CASE("file_format: the numbers of records are those that stand in files") {
    struct {
        record_kind kind;
        unsigned number;
    } const cases[] = {{record_kind::moment, 1}, {record_kind::frame, 2},   {record_kind::source, 3}, {record_kind::stream, 4}, {record_kind::thread, 5},
                       {record_kind::context, 6}, {record_kind::lost, 7}, {record_kind::base, 8},   {record_kind::forget, 9}, {record_kind::first_event, 16}};
    for (auto const& each : cases)
        CHECK(static_cast<unsigned>(each.kind) == each.number);
    CHECK(trace::file_version == 1);
    CHECK(std::memcmp(trace::file_mark, "\x89weir\r\n\x1a", sizeof trace::file_mark) == 0);
    CHECK(trace::segment_mark == 0x53726577);
    CHECK(trace::file_head_bytes == sizeof trace::file_mark + 4);
    CHECK(trace::segment_head_bytes == 16);
    CHECK(trace::most_slots == 1u << 20); // the writer forgets there, and so the reader
}
