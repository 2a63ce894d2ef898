// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "processes.hpp"
#include "ranks.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <doctest/doctest.h>
#include <fstream>
#include <memory>
#include <string>
#include <support/sentence.hpp>
#include <unistd.h>
#include <vector>
#include <weir/multi_device/rank_channel.hpp>

namespace {

using support::absent_in;
using support::child;
using support::exchange_all;
using support::fresh_path;
using weir::multi_device::process_channel;
using weir::multi_device::thread_channel;
using weir::multi_device::thread_ranks;

} // namespace

TEST_CASE("rank_channel: each rank gets what each gave, exchange after exchange") {
    for (int const count : {1, 2, 5}) {
        CAPTURE(count);
        support::ranks here(count);
        std::vector<int> wrong(static_cast<std::size_t>(count), -1);
        here.run([&](auto& channel) { wrong[static_cast<std::size_t>(channel.rank())] = exchange_all(channel, 50); });
        CHECK(wrong == std::vector<int>(static_cast<std::size_t>(count), 0));
    }
}

TEST_CASE("rank_channel: ranks that are processes meet in a file, whose name is gone then") {
    std::string const path = fresh_path();
    child other([&] {
        process_channel channel(path.c_str(), 1, 2);
        return exchange_all(channel, 50);
    });
    {
        process_channel channel(path.c_str(), 0, 2);
        CHECK(exchange_all(channel, 50) == 0);
    }
    CHECK(other.code() == 0);
    CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("rank_channel: a process that dies, or that never comes, is named") {
    std::string const path = fresh_path();
    child dies([&] {
        process_channel channel(path.c_str(), 1, 2);
        return exchange_all(channel, 1) == 0 ? 7 : 1;
    });
    support::knowing_channel channel(path.c_str(), 0, 2);
    CHECK(exchange_all(channel, 1) == 0);
    CHECK(dies.code() == 7);
    channel.one_has_ended = true;
    CHECK(absent_in(channel) == 1);
    std::string const other = fresh_path();
    process_channel alone(other.c_str(), 0, 2, 2'000'000); // two milliseconds
    CHECK(absent_in(alone) == 1);
    std::remove(other.c_str());
}

TEST_CASE("rank_channel: a rank that never comes is named to all, and to itself if it comes later") {
    support::ranks here(3);
    std::vector<int> said(2, -1);
    here.absent(1);
    here.run([&](auto& channel) {
        unsigned own = 0, all[3];
        int& answer = said[channel.rank() == 0 ? 0 : 1];
        answer = channel.exchange(&own, sizeof own, all);
        CHECK(channel.exchange(&own, sizeof own, all) == answer); // at once, as the channel is of no use any more
    });
    CHECK(said == std::vector<int>{1, 1});
    std::atomic<int> waiting{0};
    support::patient_channel late(here.place(), 1, waiting, 0);
    unsigned own = 0, all[3];
    CHECK(late.exchange(&own, sizeof own, all) == 1);
}

TEST_CASE("rank_channel: an exchange that was complete stays so for a rank that looks when the next one has failed") {
    thread_ranks const place(2);
    alignas(64) unsigned char memory[weir::multi_device::detail::rank_board::bytes(2)] = {};
    auto& board = *reinterpret_cast<weir::multi_device::detail::rank_board*>(memory);
    unsigned own = 7, all[2] = {};
    // Rank 1 comes, and looks only after rank 0 has ended this exchange, and given up on the next one.
    int turns = 0;
    int const answer = board.exchange(1, 2, 1, &own, sizeof own, all, [&](std::uint64_t) {
        unsigned mine = 8, theirs[2] = {};
        if (turns++ == 0) {
            CHECK(board.exchange(0, 2, 1, &mine, sizeof mine, theirs, [](std::uint64_t) { return false; }) == -1);
            CHECK(board.exchange(0, 2, 2, &mine, sizeof mine, theirs, [](std::uint64_t) { return false; }) == 1);
        }
        return true;
    });
    CHECK(answer == -1);
    CHECK(all[0] == 8);
    CHECK(all[1] == 7);
    CHECK(board.exchange(1, 2, 2, &own, sizeof own, all, [](std::uint64_t) { return true; }) == 1);
}

TEST_CASE("rank_channel: by default it waits by the clock, first awake and then with pauses") {
    struct watched : thread_channel {
        using thread_channel::thread_channel;
        using thread_channel::waits;
    };
    thread_ranks const place(2);
    watched patient(place, 0, UINT64_MAX);
    watched hasty(place, 1, 0);
    for (std::uint64_t const turns : {0u, 1u, 5000u}) {
        CHECK(patient.waits(turns));
        CHECK_FALSE(hasty.waits(turns));
    }
}

TEST_CASE("rank_channel: what is wrong is said") {
    thread_ranks const place(2);
    CHECK(place.size() == 2);
    thread_channel first(place, 0);
    std::string const path = fresh_path();
    process_channel const meets(path.c_str(), 0, 2);
    struct row {
        char const* says;
        void (*what)(thread_ranks const&, thread_channel&, char const*);
    };
    char const* const numbers = "weir: ranks are numbered from 0 to one less than their count, which is at most 1024";
    char const* const others = "weir: other ranks named another number of ranks than 3 where they meet, or the file is of "
                               "something else: give all ranks one number, and each run a file of its own";
    char const* const taken = "weir: there is a rank 0 already: give each thread or process a number of its own, and each run a "
                              "file of its own";
    for (row const& each : {
             row{"weir: ranks are at least 1 and at most 1024", [](auto&, auto&, auto) { thread_ranks none(0); }},
             row{numbers, [](auto& here, auto&, auto) { thread_channel none(here, 2); }},
             row{numbers, [](auto&, auto&, auto file) { process_channel none(file, -1, 2); }},
             row{taken, [](auto& here, auto&, auto) { thread_channel none(here, 0); }},
             row{taken, [](auto&, auto&, auto file) { process_channel none(file, 0, 2); }},
             row{others, [](auto&, auto&, auto file) { process_channel none(file, 2, 3); }},
             row{others,
                 [](auto&, auto&, auto file) {
                     std::ofstream(file + std::string(".txt")) << std::string(100'000, 'x'); // somebody's
                     process_channel none((file + std::string(".txt")).c_str(), 1, 3);
                 }},
             row{"weir: ranks cannot meet in the file '/nowhere/at/all'; name one in /dev/shm, or on a disk of this machine, that "
                 "all ranks may write",
                 [](auto&, auto&, auto) { process_channel none("/nowhere/at/all", 0, 2); }},
             row{"weir: ranks exchange records of at most 4096 bytes; send data by the device",
                 [](auto&, auto& channel, auto) {
                     char record[5000] = {}, all[10000];
                     static_cast<void>(channel.exchange(record, sizeof record, all));
                 }},
         })
        CHECK(support::sentence_of<weir::usage_error>([&] { each.what(place, first, path.c_str()); }) == each.says);
    std::string const text = path + ".txt";
    CHECK(std::ifstream(text, std::ios::ate).tellg() == 100'000); // as it was
    std::remove(text.c_str());
    std::remove(path.c_str());
}

TEST_CASE("rank_channel: a file is never made shorter than other ranks have mapped it") {
    std::string const path = fresh_path();
    process_channel const first(path.c_str(), 0, 4);
    long const before = static_cast<long>(std::ifstream(path, std::ios::ate).tellg());
    CHECK_THROWS_AS(process_channel(path.c_str(), 1, 2), weir::usage_error);
    CHECK(std::ifstream(path, std::ios::ate).tellg() == before);
    std::remove(path.c_str());
}
