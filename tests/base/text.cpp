// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <array>
#include <cstdint>
#include <cstdlib>
#include <doctest/doctest.h>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <support/failing_new.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/base/text.hpp>

using weir::GiB;
using weir::KiB;
using weir::MiB;
using weir::base::number_text;
using weir::text;

namespace {

// Another library's strings, whose sizes are int.
class house_string {
public:
    house_string(char const* first, std::size_t size) : kept_(first, size) {}
    char const* data() const { return kept_.data(); }
    int size() const { return static_cast<int>(kept_.size()); }
    std::string kept_;
};

// Has an address and a size, but not of characters.
struct numbers {
    numbers(char const*, std::size_t) {}
    int const* data() const { return nullptr; }
    std::size_t size() const { return 0; }
};

// Knows 'write' and nothing else of a stream.
struct sink {
    void write(char const* first, std::ptrdiff_t size) { got.append(first, static_cast<std::size_t>(size)); }
    std::string got;
};

template <class Stream, class = void>
inline constexpr bool prints = false;
template <class Stream>
inline constexpr bool prints<Stream, std::void_t<decltype(std::declval<Stream&>() << std::declval<text const&>())>> = true;

std::string taken(std::string const& string) {
    return string;
}
std::size_t length(std::string_view string) {
    return string.size();
}

using namespace std::string_view_literals;

} // namespace

// Exceptions carry texts.
static_assert(std::is_nothrow_default_constructible_v<text>);
static_assert(std::is_nothrow_copy_constructible_v<text> && std::is_nothrow_copy_assignable_v<text>);
static_assert(std::is_nothrow_move_constructible_v<text> && std::is_nothrow_move_assignable_v<text>);
static_assert(noexcept(text() == text()) && noexcept(text() != "a") && noexcept("a" == text()));

static_assert(std::is_convertible_v<char const*, text> && std::is_convertible_v<char (&)[8], text>);
static_assert(std::is_convertible_v<std::string, text> && std::is_convertible_v<std::string_view, text>);
static_assert(std::is_convertible_v<house_string, text> && std::is_convertible_v<std::vector<char>, text>);
static_assert(!std::is_constructible_v<text, char> && !std::is_constructible_v<text, std::size_t>);
static_assert(!std::is_constructible_v<text, std::vector<int>> && !std::is_constructible_v<text, numbers>);

static_assert(std::is_convertible_v<text, std::string> && std::is_convertible_v<text, std::string_view>);
static_assert(std::is_convertible_v<text, house_string>);
static_assert(!std::is_convertible_v<text, bool> && !std::is_convertible_v<text, char const*>);
static_assert(!std::is_convertible_v<text, std::wstring> && !std::is_convertible_v<text, std::vector<char>>);
static_assert(!std::is_convertible_v<text, numbers> && !std::is_convertible_v<text, doctest::String>);

static_assert(prints<std::ostream> && prints<std::ostringstream> && prints<sink>);
static_assert(!prints<std::wostream> && !prints<std::string> && !prints<int>);

TEST_CASE("text: the empty one has no characters and a zero behind them") {
    text const none;
    CHECK(none.empty());
    CHECK(none.size() == 0);
    CHECK(*none.c_str() == '\0');
    CHECK(none.begin() == none.end());
    CHECK(none == "");
    CHECK(none == text(""));
    CHECK(none == text(std::string()));
    CHECK(none == text(std::string_view())); // whose address is null
    CHECK(none + none == none);
    CHECK(std::string(none).empty());
    CHECK(text(static_cast<char const*>(nullptr)) == "");
}

TEST_CASE("text: has the characters that it was made of, and a zero behind them") {
    char buffer[] = "frames";
    text const said = buffer;
    buffer[0] = 'g'; // a copy of them
    CHECK_FALSE(said.empty());
    CHECK(said.size() == 6);
    CHECK(std::string(said.c_str()) == "frames");
    CHECK(said.data() == said.c_str());
    CHECK(std::string(said.begin(), said.end()) == "frames");
    CHECK(*said.end() == '\0');
    std::string seen;
    for (char each : said)
        seen += each;
    CHECK(seen == "frames");
}

TEST_CASE("text: is made from every class of strings, zeros among the characters included") {
    std::string const with_zero("a\0b", 3);
    text const said = with_zero;
    CHECK(said.size() == 3);
    CHECK(said.data()[1] == '\0');
    CHECK(said.data()[2] == 'b');
    CHECK(said.data()[3] == '\0');
    CHECK(text("frames and more"sv.substr(0, 6)) == "frames"); // no zero behind them
    CHECK(text(house_string("abc", 2)) == "ab");
    CHECK(text(std::vector<char>{'x', 'y'}) == "xy");
    CHECK(text(std::array<char, 2>{{'x', 'y'}}) == "xy");
    text assigned;
    assigned = "b";
    CHECK(assigned == "b");
    assigned = std::string("c");
    CHECK(assigned == "c");
}

TEST_CASE("text: turns into every class of strings, zeros among the characters included") {
    text const said = "a\0b"sv;
    std::string const whole("a\0b", 3);
    std::string const copied = said;
    CHECK(copied == whole);
    std::string const made(said);
    CHECK(made == whole);
    std::string string = "x";
    string += said;
    CHECK(string == "x" + whole);
    string = said;
    CHECK(string == whole);
    std::string const& bound = text("abc");
    CHECK(bound == "abc");
    CHECK(taken(said) == whole);
    CHECK(length(said) == 3);
    std::string_view const seen = said;
    CHECK(seen.data() == said.data());
    CHECK(seen == whole);
    house_string const other = said;
    CHECK(other.kept_ == whole);
    CHECK(static_cast<std::string>(said) == whole);
    std::vector<std::string> const list{said, text("b")};
    CHECK(list[0] == whole);
    CHECK(list[1] == "b");
}

TEST_CASE("text: equal is what has the same characters, all of them") {
    text const said = "frames";
    text const same = std::string("frames");
    CHECK(said == same);
    CHECK_FALSE(said != same);
    for (char const* other : {"frame", "frames ", "Frames", "framez", ""}) {
        CHECK(said != other);
        CHECK(other != said);
        CHECK_FALSE(said == text(other));
        CHECK_FALSE(std::string(other) == said);
    }
    text const zero_a = "x\0a"sv;
    text const zero_b = "x\0b"sv;
    CHECK(zero_a != zero_b);
    CHECK(zero_a != "x");
    CHECK(zero_a == "x\0a"sv);
}

TEST_CASE("text: is compared with other strings from either side, without a copy") {
    text const said = "a name that is longer than what a string keeps in place";
    std::string const string = said;
    std::string_view const view = string;
    support::allocations_left = 0;
    bool const all = said == string && string == said && said == view && view == said && said == string.c_str() &&
                     string.c_str() == said;
    bool const none =
        said != string || string != said || said != view || view != said || said != string.c_str() || string.c_str() != said;
    support::allocations_left = -1;
    CHECK(all);
    CHECK_FALSE(none);
}

TEST_CASE("text: '+' says one after the other, from strings of every kind") {
    text const a = "ab";
    text const b = "cd";
    CHECK(a + b == "abcd");
    CHECK(b + a == "cdab");
    CHECK(a + "x" == "abx");
    CHECK("x" + a == "xab");
    CHECK(a + std::string("x") == "abx");
    CHECK(std::string("x") + a == "xab");
    CHECK(a + "xyz"sv.substr(0, 1) == "abx");
    CHECK("xyz"sv.substr(0, 1) + a == "xab");
    CHECK(a + "" == a);
    CHECK("" + a == a);
    CHECK(text() + a + text() + b == "abcd");
    CHECK("weir: " + a + " and " + b + "." == "weir: ab and cd.");
    text const with_zeros = "\0"sv + a + "\0"sv;
    CHECK(with_zeros == "\0ab\0"sv);
    CHECK(with_zeros.size() == 4);
    CHECK(a == "ab"); // as before
}

TEST_CASE("text: may be added to itself") {
    text said = "ab";
    text const before = said;
    said = said + said;
    CHECK(said == "abab");
    said = said + said.c_str();
    CHECK(said == "abababab");
    said = said.c_str();
    CHECK(said == "abababab");
    CHECK(before == "ab");
}

TEST_CASE("text: copies share the characters, which stay until the last is gone") {
    text first = "frames";
    char const* const where = first.data();
    text const copy = first;
    CHECK(copy.data() == where);
    first = text("else");
    CHECK(first == "else");
    CHECK(copy == "frames");
    CHECK(copy.data() == where);
    text other;
    other = copy;
    CHECK(other.data() == where);
    text const& same = other;
    other = same;
    CHECK(other.data() == where);
    CHECK(other == "frames");
}

TEST_CASE("text: a move takes the characters along, and leaves an empty text") {
    text first = "frames";
    char const* const where = first.data();
    text moved = std::move(first);
    CHECK(moved.data() == where);
    CHECK(first.empty());
    first = std::move(moved);
    CHECK(first.data() == where);
    CHECK(moved.empty());
    moved = "again";
    CHECK(moved == "again");
}

TEST_CASE("text: copies in several threads come and go") {
    text const original = "frames";
    std::vector<std::thread> threads;
    std::array<int, 4> wrong{};
    for (int& mine : wrong)
        threads.emplace_back([original, &mine] {
            for (int round = 0; round < 10000; ++round) {
                text const copy = original;
                mine += copy == "frames" ? 0 : 1;
            }
        });
    for (std::thread& each : threads)
        each.join();
    CHECK(wrong == std::array<int, 4>{});
}

TEST_CASE("text: without memory for it none is made, and what there is stays as it was") {
    if (!support::host_memory_can_fail)
        return;
    struct scene {
        text a = "ab";
        text b = "cd";
    };
    auto const make = [] { return scene(); };
    auto const unchanged = [](scene const& s) {
        CHECK(s.a == "ab");
        CHECK(s.b == "cd");
    };
    CHECK(support::each_failure(make, [](scene& s) { s.a = s.a + s.b + s.a; }, unchanged) > 0);
    CHECK(support::each_failure(make, [](scene& s) { s.a = "else"; }, unchanged) > 0);
    CHECK(support::each_failure(make, [](scene& s) { s.b = "else"sv; }, unchanged) > 0);
    CHECK(support::each_failure(make, [](scene& s) { s.b = number_text(7); }, unchanged) > 0);
    auto const no_need = [](scene& s) { // copies and empty ones
        s.a = s.b;
        s.b = text();
        s.b = "";
        s.b = text() + "";
        text const moved = std::move(s.a);
    };
    CHECK(support::each_failure(make, no_need, unchanged) == 0);
}

TEST_CASE("text: goes to streams as it is") {
    std::ostringstream out;
    out << text("a\0b"sv) << ' ' << text() << text("c") << 7;
    CHECK(out.str() == std::string("a\0b c7", 6));
    sink plain;
    plain << text("ab") << text("cd");
    CHECK(plain.got == "abcd");
    CHECK(doctest::toString(text("frames")) == "frames"); // what a failed test shows
}

TEST_CASE("text: one thing is no plural, and none is") {
    CHECK(weir::base::count_text(0, " byte") == "0 bytes");
    CHECK(weir::base::count_text(1, " byte") == "1 byte");
    CHECK(weir::base::count_text(2, " byte") == "2 bytes");
    CHECK(weir::base::count_text(11, " free range") == "11 free ranges");
    CHECK(weir::base::count_text(SIZE_MAX, " block") == "18446744073709551615 blocks");
}

TEST_CASE("text: a number is its decimal digits") {
    CHECK(number_text(0) == "0");
    CHECK(number_text(9) == "9");
    CHECK(number_text(10) == "10");
    CHECK(number_text(100) == "100");
    CHECK(number_text(SIZE_MAX) == "18446744073709551615");
    std::mt19937_64 draw(7);
    for (int i = 0; i < 2000; ++i) {
        std::size_t const number = static_cast<std::size_t>(draw() >> (draw() % 64));
        REQUIRE(number_text(number) == std::to_string(number));
    }
}

TEST_CASE("text: bytes read with the largest unit that fits") {
    CHECK(weir::base::bytes_text(0) == "0 B");
    CHECK(weir::base::bytes_text(1) == "1 B");
    CHECK(weir::base::bytes_text(256) == "256 B");
    CHECK(weir::base::bytes_text(1023) == "1023 B");
    CHECK(weir::base::bytes_text(KiB) == "1 KiB");
    CHECK(weir::base::bytes_text(MiB - 1) == "1023.99 KiB");
    CHECK(weir::base::bytes_text(MiB) == "1 MiB");
    CHECK(weir::base::bytes_text(GiB) == "1 GiB");
    CHECK(weir::base::bytes_text(80 * GiB) == "80 GiB");
    CHECK(weir::base::bytes_text(KiB * GiB - 1) == "1023.99 GiB");
    CHECK(weir::base::bytes_text(std::size_t{1} << 45) == "32 TiB");
    CHECK(weir::base::bytes_text(MiB * GiB) == "1 PiB");
    CHECK(weir::base::bytes_text(GiB * GiB) == "1 EiB");
}

TEST_CASE("text: two decimals where the number is not whole, and never one") {
    CHECK(weir::base::bytes_text(KiB + KiB / 2) == "1.50 KiB");
    CHECK(weir::base::bytes_text(MiB + MiB / 2) == "1.50 MiB");
    CHECK(weir::base::bytes_text(MiB + 16 * KiB) == "1.01 MiB");
    CHECK(weir::base::bytes_text(MiB + 103 * KiB) == "1.10 MiB");
    CHECK(weir::base::bytes_text(GiB + 52 * MiB) == "1.05 GiB");
    CHECK(weir::base::bytes_text(KiB + 1) == "1 KiB"); // less than a hundredth is cut
}

TEST_CASE("text: the largest size there is does not overflow") {
    CHECK(weir::base::bytes_text(SIZE_MAX) == "15.99 EiB");
}

TEST_CASE("text: what is printed is the size, cut to hundredths of its unit") {
    std::mt19937_64 draw(7);
    for (int i = 0; i < 2000; ++i) {
        std::size_t const bytes = static_cast<std::size_t>(draw() >> (draw() % 60));
        std::string const said = weir::base::bytes_text(bytes);
        std::size_t unit = 1;
        char const* const names[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
        char const* const* each = names;
        for (; unit < GiB * GiB && bytes >= unit * KiB; unit *= KiB)
            ++each;
        std::string const name = *each;
        REQUIRE(said.size() > name.size());
        REQUIRE(said.substr(said.size() - name.size()) == name);
        std::size_t whole = std::strtoull(said.c_str(), nullptr, 10);
        std::size_t hundredths = 0;
        if (auto const point = said.find('.'); point != std::string::npos) {
            REQUIRE(said.find(' ') == point + 3);
            hundredths = std::strtoull(said.c_str() + point + 1, nullptr, 10);
        }
        REQUIRE(whole == bytes / unit);
        REQUIRE(hundredths == static_cast<std::size_t>(static_cast<unsigned __int128>(bytes % unit) * 100 / unit));
    }
}

TEST_CASE("text: sizes that are nearly equal differ to the byte") {
    CHECK(weir::base::exact_bytes_text(0) == "0 bytes");
    CHECK(weir::base::exact_bytes_text(1) == "1 byte");
    CHECK(weir::base::exact_bytes_text(1023) == "1023 bytes");
    CHECK(weir::base::exact_bytes_text(KiB) == "1024 bytes (1 KiB)");
    CHECK(weir::base::exact_bytes_text(8 * GiB) == "8589934592 bytes (8 GiB)");
    CHECK(weir::base::exact_bytes_text(8 * GiB + 1) == "8589934593 bytes (8 GiB)");
}
