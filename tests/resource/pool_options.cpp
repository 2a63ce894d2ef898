// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cstdio>
#include <doctest/doctest.h>
#include <string>
#include <string_view>
#include <support/standard_error.hpp>
#include <sys/socket.h>
#include <type_traits>
#include <unistd.h>
#include <weir/resource/pool_options.hpp>

using weir::leak_action;
using weir::pool_options;

static_assert(std::is_copy_constructible_v<pool_options> && std::is_nothrow_move_constructible_v<pool_options>);

TEST_CASE("pool_options: by default no limit, no name to speak of, and a report of leaks") {
    pool_options const options;
    CHECK(options.limit_bytes() == SIZE_MAX);
    CHECK(options.name() == "unnamed");
    CHECK(options.on_leak() == leak_action::report);
}

TEST_CASE("pool_options: are set in a chain, each without touching the others") {
    pool_options const options = pool_options{}
                                     .limit(1 << 20)
                                     .name("frames")
                                     .on_leak(leak_action::abort)
                                     .device(3)
                                     .reserve(4096)
                                     .on_violation(weir::violation_action::abort);
    CHECK(options.limit_bytes() == 1 << 20);
    CHECK(options.name() == "frames");
    CHECK(options.on_leak() == leak_action::abort);
    CHECK(options.device() == 3);
    CHECK(options.reserve_bytes() == 4096);
    CHECK(options.on_violation() == weir::violation_action::abort);

    pool_options named;
    named.name("a");
    CHECK(named.limit_bytes() == SIZE_MAX);
    CHECK(named.device() == weir::any_device);
    CHECK(named.reserve_bytes() == 0);
    CHECK(named.on_violation() == weir::violation_action::report);
    CHECK(named.on_leak() == leak_action::report);
    named.on_leak(leak_action::ignore).limit(0);
    CHECK(named.name() == "a");
    CHECK(named.limit_bytes() == 0);
    CHECK(named.on_leak() == leak_action::ignore);
}

TEST_CASE("pool_options: the last word counts, and a copy keeps its own") {
    pool_options first = pool_options{}.name("a").name("b");
    pool_options second = first;
    second.name("c").limit(5);
    CHECK(first.name() == "b");
    CHECK(first.limit_bytes() == SIZE_MAX);
    CHECK(second.name() == "c");
    std::string const drawn = "frame " + std::to_string(7);
    CHECK(second.name(drawn).name() == drawn);
    CHECK(second.name(std::string_view(drawn).substr(0, 5)).name() == "frame");
}

TEST_CASE("pool_options: live blocks at the end are told, unless there are none or the program does not care") {
    using support::standard_error_of;
    CHECK(standard_error_of([] { weir::resource::tell_leaks("a", leak_action::report, 2, 768); }) ==
          "weir: pool 'a' ends with 768 bytes in 2 blocks still handed out; free them, or end their containers, before the "
          "pool\n");
    CHECK(standard_error_of([] { weir::resource::tell_leaks("a", leak_action::report, 2, 0); }) ==
          "weir: pool 'a' ends with 2 blocks still handed out; free them, or end their containers, before the pool\n");
    CHECK(standard_error_of([] { weir::resource::tell_leaks("a", leak_action::report, 1, 256); }) ==
          "weir: pool 'a' ends with 256 bytes in 1 block still handed out; free it, or end its container, before the pool\n");
    CHECK(standard_error_of([] { weir::resource::tell_leaks("a", leak_action::report, 1, 1); }) ==
          "weir: pool 'a' ends with 1 byte in 1 block still handed out; free it, or end its container, before the pool\n");
    CHECK(standard_error_of([] { weir::resource::tell_leaks("a", leak_action::report, SIZE_MAX, SIZE_MAX); }) ==
          "weir: pool 'a' ends with 18446744073709551615 bytes in 18446744073709551615 blocks still handed out; free them, or "
          "end their containers, before the pool\n");
    CHECK(standard_error_of([] { weir::resource::tell_leaks("a", leak_action::report, 0, 0); }).empty());
    CHECK(standard_error_of([] { weir::resource::tell_leaks("a", leak_action::abort, 0, 0); }).empty());
    CHECK(standard_error_of([] { weir::resource::tell_leaks("a", leak_action::ignore, 2, 768); }).empty());
}

TEST_CASE("pool_options: live blocks are told in one piece, which the sentence of another thread cannot part") {
    int ends[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0); // keeps what was written apart, piece by piece
    std::fflush(stderr);
    int const kept = ::dup(STDERR_FILENO);
    ::dup2(ends[0], STDERR_FILENO);
    weir::resource::tell_leaks("a", leak_action::report, 2, 768);
    std::fflush(stderr);
    ::dup2(kept, STDERR_FILENO);
    ::close(kept);
    char first[200];
    ssize_t const bytes = ::recv(ends[1], first, sizeof first, MSG_DONTWAIT);
    REQUIRE(bytes > 0);
    CHECK(std::string(first, static_cast<std::size_t>(bytes)) ==
          "weir: pool 'a' ends with 768 bytes in 2 blocks still handed out; free them, or end their containers, before the "
          "pool\n");
    ::close(ends[0]);
    ::close(ends[1]);
}
