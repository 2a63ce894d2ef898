// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do ranks that share no memory tell one another something, such as those of several machines?
//
// Over sockets that you have connected. Rank 0 is in the middle: it has a socket to each other rank, and each of them one to
// rank 0. All send it their records, and it answers with those of all, or with the number of the first rank that is missing.
//
//     weir::multi_device::socket_channel channel(sockets);                    // on rank 0: those to ranks 1, 2, ... in order
//     weir::multi_device::socket_channel channel(socket, rank, ranks);        // on the others
//
// A rank whose process has ended is missed at once, since its socket says so; one that never comes at the deadline.
//
// invariant: rank 0 decides whether an exchange was complete. After one that was not all fail at once.
// order:     what a rank did before an exchange happens before what any rank does after it.
// cost:      a message to rank 0 and one back; rank 0 makes two for each other rank.
// not for:   ranks of one machine (rank_channel.hpp): memory is faster. Sockets that others read or write, too.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <poll.h>
#include <sys/socket.h>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/fwd.hpp>
#include <weir/multi_device/rank_channel.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// The sockets stay yours: streams, connected, of any family, which outlive this. It shuts them down when an exchange fails.
class socket_channel : public rank_channel {
public:
    static constexpr std::uint64_t usual_deadline_ns = board_channel::usual_deadline_ns;

    /// Rank 0: `others` has its sockets to ranks 1, 2 and so on. Exchanges give up when a rank is missing for `deadline_ns`
    /// nanoseconds. Throws std::bad_alloc.
    template <class Sockets>
    explicit socket_channel(Sockets const& others, std::uint64_t deadline_ns = usual_deadline_ns) : deadline_ns_(deadline_ns) {
        for (int const each : others)
            sockets_.push_back(each);
        ranks_ = static_cast<int>(sockets_.size()) + 1;
    }
    /// Another rank, and its socket to rank 0. It waits twice as long, since rank 0 may wait for others first. Throws
    /// usage_error for a number that is none, std::bad_alloc.
    socket_channel(int to_first, int rank, int ranks, std::uint64_t deadline_ns = usual_deadline_ns)
        : rank_(rank), ranks_(ranks), deadline_ns_(deadline_ns > UINT64_MAX / 2 ? UINT64_MAX : 2 * deadline_ns) {
        if (rank < 1 || rank >= ranks)
            throw usage_error("weir: a rank with a socket to rank 0 has a number from 1 to one less than the count of ranks; "
                              "rank 0 names its sockets to all others");
        sockets_.push_back(to_first);
    }

    int rank() const noexcept override { return rank_; }
    int ranks() const noexcept override { return ranks_; }
    /// As rank_channel's. Throws usage_error, on every rank, if their records are not of one size; the channel is as good as
    /// before then.
    int exchange(void const* mine, std::size_t bytes, void* all) override {
        if (bytes > most_bytes)
            throw usage_error("weir: ranks exchange records of at most 4096 bytes; send data by the device");
        if (absent_ >= 0)
            return absent_;
        head const verdict = rank_ == 0 ? collect(mine, bytes, static_cast<char*>(all)) : ask(mine, bytes, all);
        absent_ = static_cast<int>(verdict.absent);
        if (absent_ >= 0)
            for (int const each : sockets_)
                shutdown(each, SHUT_RDWR); // so the other side does not wait
        else if (verdict.other >= 0)
            refuse_sizes(verdict.bytes, static_cast<int>(verdict.other), verdict.other_bytes);
        return absent_;
    }

private:
    static constexpr std::size_t most_bytes = 4096;
    // What stands before a record, and rank 0's verdict, which stands before all of them.
    struct head {
        std::uint64_t bytes;       // of the record; rank 0's
        std::int64_t absent;       // the first rank that did not come; -1: none
        std::int64_t other;        // the first rank whose record has another size than rank 0's; -1: none
        std::uint64_t other_bytes; // that size
    };

    head collect(void const* mine, std::size_t bytes, char* all) {
        char misfit[most_bytes]; // a record of another size is read, so that the next exchange finds its own
        std::memcpy(all, mine, bytes);
        head verdict{bytes, -1, -1, 0};
        began_ns_ = now_ns();
        for (int each = 1; each < ranks_ && verdict.absent < 0; ++each) {
            head its{};
            int const from = sockets_[static_cast<std::size_t>(each - 1)];
            bool const came = receive(from, &its, sizeof its) && its.bytes <= most_bytes;
            char* const record = its.bytes == bytes ? all + static_cast<std::size_t>(each) * bytes : misfit;
            if (!came || !receive(from, record, its.bytes))
                verdict.absent = each;
            else if (its.bytes != bytes && verdict.other < 0)
                verdict.other = each, verdict.other_bytes = its.bytes;
        }
        began_ns_ = now_ns();
        for (int const each : sockets_) // who does not take it is missed in the next exchange
            if (send(each, &verdict, sizeof verdict) && verdict.absent < 0 && verdict.other < 0)
                static_cast<void>(send(each, all, static_cast<std::size_t>(ranks_) * bytes));
        return verdict;
    }

    head ask(void const* mine, std::size_t bytes, void* all) {
        head const own{bytes, -1, -1, 0};
        head verdict{};
        int const first = sockets_[0];
        began_ns_ = now_ns();
        // It may have answered and ended before this one comes.
        static_cast<void>(send(first, &own, sizeof own) && send(first, mine, bytes));
        if (!receive(first, &verdict, sizeof verdict) ||
            (verdict.absent < 0 && verdict.other < 0 && !receive(first, all, static_cast<std::size_t>(ranks_) * bytes)))
            verdict.absent = 0;
        return verdict;
    }

    bool send(int socket, void const* data, std::size_t bytes) const {
        return transfer(socket, POLLOUT, bytes, [&](std::size_t done) {
            return ::send(socket, static_cast<char const*>(data) + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        });
    }
    bool receive(int socket, void* data, std::size_t bytes) const {
        return transfer(socket, POLLIN, bytes, [&](std::size_t done) {
            return ::recv(socket, static_cast<char*>(data) + done, bytes - done, MSG_DONTWAIT);
        });
    }
    // Calls move(done) until all bytes are moved. False if the socket has ended, or at the deadline.
    template <class Move>
    bool transfer(int socket, short events, std::size_t bytes, Move const& move) const {
        for (std::size_t done = 0; done != bytes;) {
            auto const moved = move(done);
            if (moved > 0) {
                done += static_cast<std::size_t>(moved);
                continue;
            }
            bool const has_ended = moved == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
            if (has_ended || now_ns() - began_ns_ >= deadline_ns_)
                return false;
            pollfd one{socket, events, 0};
            constexpr int ms = 1; // the deadline is looked at as often
            poll(&one, 1, ms);
        }
        return true;
    }

    static std::uint64_t now_ns() noexcept {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
    }

    base::growing_array<int> sockets_;
    int rank_ = 0;
    int ranks_ = 0;
    int absent_ = -1; // the rank for which an exchange failed
    std::uint64_t deadline_ns_;
    std::uint64_t began_ns_ = 0;
};

} // namespace multi_device
} // namespace v0
} // namespace weir
