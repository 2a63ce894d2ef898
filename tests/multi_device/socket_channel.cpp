// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "processes.hpp"

#include <cstdint>
#include <doctest/doctest.h>
#include <memory>
#include <support/sentence.hpp>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>
#include <weir/multi_device/socket_channel.hpp>

namespace {

using support::absent_in;
using support::child;
using weir::multi_device::socket_channel;

constexpr std::uint64_t for_ever = UINT64_MAX;

// Two connected sockets.
struct line {
    line() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); }
    line(line const&) = delete;
    line& operator=(line const&) = delete;
    ~line() { hang_up(0), hang_up(1); }
    void hang_up(int end) {
        if (ends[end] >= 0)
            close(ends[end]);
        ends[end] = -1;
    }
    int ends[2];
};

// Ranks 1 and so on, as processes that call body(channel); this one is rank 0.
struct star {
    template <class Body>
    star(int ranks, Body const& body) {
        for (int rank = 1; rank < ranks; ++rank) {
            lines.push_back(std::make_unique<line>());
            line& own = *lines.back();
            others.push_back(std::make_unique<child>([&] {
                own.hang_up(0);
                socket_channel channel(own.ends[1], rank, ranks, for_ever);
                return body(channel);
            }));
            own.hang_up(1); // the child alone has it, so that it ends with it
            sockets.push_back(own.ends[0]);
        }
    }
    std::vector<std::unique_ptr<line>> lines;
    std::vector<std::unique_ptr<child>> others;
    std::vector<int> sockets;
};

} // namespace

TEST_CASE("socket_channel: ranks that are processes get what each gave, exchange after exchange") {
    for (int const ranks : {1, 2, 4}) {
        CAPTURE(ranks);
        star all(ranks, [](socket_channel& channel) { return support::exchange_all(channel, 50); });
        socket_channel channel(all.sockets, for_ever);
        CHECK(channel.ranks() == ranks);
        CHECK(support::exchange_all(channel, 50) == 0);
        for (auto const& each : all.others)
            CHECK(each->code() == 0);
    }
}

TEST_CASE("socket_channel: a rank that dies is named to all, without a deadline") {
    star all(3, [](socket_channel& channel) {
        if (support::exchange_all(channel, 2) != 0 || channel.rank() == 1)
            return 50; // dies
        return absent_in(channel);
    });
    socket_channel channel(all.sockets, for_ever);
    CHECK(support::exchange_all(channel, 2) == 0);
    CHECK(absent_in(channel) == 1);
    CHECK(absent_in(channel) == 1); // at once
    CHECK(all.others[0]->code() == 50);
    CHECK(all.others[1]->code() == 1);
}

TEST_CASE("socket_channel: a rank that does not come by the deadline is named, also to itself when it comes later") {
    line to_first, to_second;
    socket_channel first(std::vector<int>{to_first.ends[0], to_second.ends[0]}, 2'000'000);
    CHECK(absent_in(first) == 1);
    socket_channel late(to_first.ends[1], 1, 3, for_ever), other(to_second.ends[1], 2, 3, for_ever);
    CHECK(absent_in(late) == 1);
    CHECK(absent_in(other) == 1);
    line alone;
    socket_channel without_first(alone.ends[1], 1, 2, 1'000'000);
    CHECK(absent_in(without_first) == 0);
    CHECK(absent_in(without_first) == 0);
    socket_channel deserted(std::vector<int>{alone.ends[0]}, for_ever);
    CHECK(absent_in(deserted) == -1); // its record had come
    CHECK(absent_in(deserted) == 1);
}

TEST_CASE("socket_channel: records that are larger than a socket takes arrive piece by piece") {
    star all(40, [](socket_channel& channel) {
        std::vector<char> own(4096, static_cast<char>(channel.rank())), every(4096 * 40);
        return channel.exchange(own.data(), own.size(), every.data()) == -1 && every[4096 * 39] == 39 ? 0 : 1;
    });
    for (int const each : all.sockets) {
        int const small = 1;
        CHECK(setsockopt(each, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    }
    socket_channel channel(all.sockets, for_ever);
    std::vector<char> own(4096), every(4096 * 40);
    CHECK(channel.exchange(own.data(), own.size(), every.data()) == -1);
    for (int rank = 0; rank < 40; ++rank)
        CHECK(every[4096 * static_cast<std::size_t>(rank) + 4095] == rank);
    for (auto const& each : all.others)
        CHECK(each->code() == 0);
}

TEST_CASE("socket_channel: what is wrong is said") {
    line between;
    socket_channel channel(std::vector<int>{between.ends[0]}, for_ever);
    struct row {
        char const* says;
        void (*what)(socket_channel&, int);
    };
    char const* const number = "weir: a rank with a socket to rank 0 has a number from 1 to one less than the count of ranks; "
                               "rank 0 names its sockets to all others";
    for (row const& each : {
             row{number, [](auto&, int socket) { socket_channel none(socket, 0, 2); }},
             row{number, [](auto&, int socket) { socket_channel none(socket, 2, 2); }},
             row{"weir: ranks exchange records of at most 4096 bytes; send data by the device",
                 [](auto& first, int) {
                     char record[5000] = {}, all[10000];
                     static_cast<void>(first.exchange(record, sizeof record, all));
                 }},
         })
        CHECK(support::sentence_of<weir::usage_error>([&] { each.what(channel, between.ends[1]); }) == each.says);
}

TEST_CASE("socket_channel: ranks whose records differ in size get one sentence, and the next exchange is as any other") {
    char const* const says = "weir: rank 0 exchanges 4 bytes and rank 2 8: they make different calls, such as one that grows a "
                             "pool and one that makes a communicator; make the same calls in the same order on every rank";
    auto const differs = [&](socket_channel& channel) {
        char record[8] = {}, all[32];
        std::size_t const bytes = channel.rank() >= 2 ? 8 : 4;
        return support::sentence_of<weir::usage_error>([&] { static_cast<void>(channel.exchange(record, bytes, all)); }) == says
                   ? support::exchange_all(channel, 2)
                   : 100;
    };
    star all(4, differs);
    socket_channel channel(all.sockets, for_ever);
    CHECK(differs(channel) == 0);
    for (auto const& each : all.others)
        CHECK(each->code() == 0);
    // What no rank of ours would say is no record.
    line between;
    socket_channel deceived(std::vector<int>{between.ends[0]}, for_ever);
    std::vector<unsigned char> const noise(64, 0xff);
    CHECK(write(between.ends[1], noise.data(), noise.size()) == 64);
    CHECK(absent_in(deceived) == 1);
    // Who may not wait does not.
    line other;
    socket_channel hasty(other.ends[1], 1, 2, 0);
    CHECK(absent_in(hasty) == 0);
}
