// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every upstream must do is in tests/contract/upstream.cpp; here is how a span is cut and joined.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <doctest/doctest.h>
#include <random>
#include <string>
#include <support/sentence.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/upstream/span.hpp>

using support::sentence_of;
using weir::memory_space;
using span = weir::upstream::span<memory_space::host>;

static_assert(span::space == memory_space::host);
static_assert(weir::upstream::span<memory_space::device>::space == memory_space::device);
static_assert(noexcept(std::declval<span&>().release(nullptr, 1)));
static_assert(!std::is_default_constructible_v<span>); // there is no memory of nobody

namespace {

// Numbers that stand for addresses: a span never looks at its memory.
void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
std::uintptr_t number(void* p) { return reinterpret_cast<std::uintptr_t>(p); }

} // namespace

TEST_CASE("span: cuts chunks from the front until nothing is left") {
    span upstream(at(0x10000), 0x1000);
    CHECK(upstream.most_bytes() == 0x1000);
    CHECK(span(at(0x10100), 0x1000).most_bytes() == 0xE00); // whole units of 512 bytes
    CHECK(span(at(0x10100), 0x100).most_bytes() == 0);
    CHECK(upstream.acquire(0x400) == at(0x10000));
    CHECK(upstream.acquire(0x800) == at(0x10400));
    CHECK(upstream.acquire(0x800) == nullptr);
    CHECK(upstream.acquire(0x400) == at(0x10C00));
    CHECK(upstream.acquire(0x100) == nullptr);
}

TEST_CASE("span: the whole of it can be one chunk, and again") {
    span upstream(at(0x10000), 0x1000);
    for (int i = 0; i < 3; ++i) {
        CHECK(upstream.acquire(0x1100) == nullptr);
        CHECK(upstream.acquire(0x1000) == at(0x10000));
        CHECK(upstream.acquire(0x100) == nullptr);
        upstream.release(at(0x10000), 0x1000);
    }
}

TEST_CASE("span: ends that are not aligned are cut away") {
    for (std::uintptr_t begin : {0x10000u, 0x10001u, 0x101FFu}) {
        span upstream(at(begin), 0x10600 - begin);
        std::uintptr_t const first = begin == 0x10000 ? 0x10000 : 0x10200;
        CHECK(upstream.acquire(0x10600 - first + 0x200) == nullptr);
        CHECK(upstream.acquire(0x10600 - first) == at(first));
    }
    span odd_end(at(0x10000), 0x5FF);
    CHECK(odd_end.acquire(0x600) == nullptr);
    CHECK(odd_end.acquire(0x400) == at(0x10000));
}

TEST_CASE("span: one that is too short for any chunk has none") {
    for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{511}}) {
        span upstream(at(0x10000), bytes);
        CHECK(upstream.acquire(512) == nullptr);
    }
    span across(at(0x101FF), 512); // long enough, but not where it lies
    CHECK(across.acquire(512) == nullptr);
}

TEST_CASE("span: null and ranges that wrap around are refused with a sentence") {
    std::string const sentence = "weir: upstream::span needs the address and length of memory that exists; got null or "
                                 "a range that wraps around";
    CHECK(sentence_of<weir::usage_error>([] { span(nullptr, 4096); }) == sentence);
    CHECK(sentence_of<weir::usage_error>([] { span(nullptr, 0); }) == sentence);
    CHECK(sentence_of<weir::usage_error>([] { span(at(0x1000), SIZE_MAX); }) == sentence);
    CHECK(sentence_of<weir::usage_error>([] { span(at(SIZE_MAX - 10), 100); }) == sentence);
    CHECK(sentence_of<weir::usage_error>([] { span(at(SIZE_MAX - 10), 5); }) == sentence); // rounds past the end
    CHECK_NOTHROW(span(at(SIZE_MAX - 511), 511));
}

TEST_CASE("span: what comes back joins its neighbours, in any order, and can be cut anew") {
    std::vector<int> order{0, 1, 2, 3};
    do {
        span upstream(at(0x10000), 0x1000);
        for (std::uintptr_t i = 0; i < 4; ++i)
            REQUIRE(upstream.acquire(0x400) == at(0x10000 + i * 0x400));
        for (int i : order)
            upstream.release(at(0x10000 + static_cast<std::uintptr_t>(i) * 0x400), 0x400);
        CHECK(upstream.acquire(0x1000) == at(0x10000));
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("span: a hole is found by whoever fits into it") {
    span upstream(at(0x10000), 0x1000);
    for (std::uintptr_t i = 0; i < 4; ++i)
        REQUIRE(upstream.acquire(0x400) == at(0x10000 + i * 0x400));
    upstream.release(at(0x10400), 0x400);
    CHECK(upstream.acquire(0x800) == nullptr);
    CHECK(upstream.acquire(0x100) == at(0x10400));
    CHECK(upstream.acquire(0x300) == at(0x10500));
    CHECK(upstream.acquire(0x100) == nullptr);
}

TEST_CASE("span: agrees with a map of its bytes") {
    std::mt19937_64 draw(23);
    constexpr std::size_t units = 64;
    span upstream(at(0x100000), units * 256);
    std::vector<bool> taken(units, false);
    std::vector<std::pair<std::size_t, std::size_t>> chunks; // first unit, units
    for (int step = 0; step < 6000; ++step) {
        if (chunks.empty() || draw() % 2 == 0) {
            std::size_t const wanted = draw() % 12 + 1;
            std::size_t first = units; // first fit
            for (std::size_t i = 0; i + wanted <= units && first == units; ++i)
                if (std::none_of(taken.begin() + static_cast<long>(i), taken.begin() + static_cast<long>(i + wanted),
                                 [](bool t) { return t; }))
                    first = i;
            void* const chunk = upstream.acquire(wanted * 256);
            if (first == units) {
                REQUIRE(chunk == nullptr);
                continue;
            }
            REQUIRE(number(chunk) == 0x100000 + first * 256);
            std::fill_n(taken.begin() + static_cast<long>(first), wanted, true);
            chunks.emplace_back(first, wanted);
        } else {
            std::swap(chunks[draw() % chunks.size()], chunks.back());
            auto const [first, count] = chunks.back();
            chunks.pop_back();
            upstream.release(at(0x100000 + first * 256), count * 256);
            std::fill_n(taken.begin() + static_cast<long>(first), count, false);
        }
    }
}
