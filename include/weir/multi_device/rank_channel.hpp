// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do the ranks of a program tell one another something on the host?
//
// A rank is one of the program's parts that work together: a thread or a process, mostly one a device. Before ranks call
// something that all must call, each tells the others what it is about to do. One call is all that this takes: every rank
// gives a record of one size, and gets everybody's. Two channels stand here, for ranks that are threads of a process and for
// ranks that are processes of a machine; socket_channel.hpp has one for ranks on several machines. Derive one of your own from
// rank_channel for what else there is, such as MPI.
//
// A rank that never comes must not make the others wait for ever: at the deadline they are all told which one it was.
//
// invariant: an exchange succeeds on every rank or on none; after one that failed all fail at once.
// order:     what a rank did before an exchange happens before what any rank does after it.
// cost:      an exchange takes a few microseconds once the last rank has come. Who waits reads memory, and sleeps in between.
// not for:   data: a record is a few KiB at most.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weir/base/error.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/multi_device/rank_channel/rank_board.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// What every rank has one of. One thread at a time.
class rank_channel {
public:
    rank_channel() = default;
    rank_channel(rank_channel const&) = delete;
    rank_channel& operator=(rank_channel const&) = delete;
    virtual ~rank_channel() = default;

    /// This rank's number, from 0, and how many there are.
    virtual int rank() const noexcept = 0;
    virtual int ranks() const noexcept = 0;

    /// Gives `bytes` bytes at `mine` to every rank, and puts what all gave into `all`, in the order of their ranks. `bytes` is
    /// the same on each, 4096 at most. Blocks until the last one came, or until a deadline. Returns -1, or else the first rank
    /// that did not come; the channel is of no use any more then, on any rank. Throws what a channel of your own may throw.
    virtual int exchange(void const* mine, std::size_t bytes, void* all) = 0;

    /// The number of a thing that every rank makes, such as a pool, from 1 on in the order in which they are made.
    std::uint32_t next_number() noexcept { return ++numbers_; }

protected:
    /// Throws usage_error: rank 0's record has `first_bytes` bytes, and another rank's has `bytes`.
    [[noreturn]] static void refuse_sizes(std::size_t first_bytes, int other, std::size_t bytes) {
        throw usage_error("weir: rank 0 exchanges " + base::number_text(first_bytes) + " bytes and rank " +
                          base::number_text(static_cast<std::size_t>(other)) + " " + base::number_text(bytes) +
                          ": they make different calls, such as one that grows a pool and one that makes a communicator; "
                          "make the same calls in the same order on every rank");
    }

private:
    std::uint32_t numbers_ = 0;
};

/// A channel over memory that all ranks see.
class board_channel : public rank_channel {
public:
    /// Exchanges give up after `deadline_ns` nanoseconds of waiting.
    static constexpr std::uint64_t usual_deadline_ns = 30'000'000'000;

    int rank() const noexcept override { return rank_; }
    int ranks() const noexcept override { return ranks_; }
    /// As rank_channel's. Throws usage_error, on every rank, if their records are not of one size.
    int exchange(void const* mine, std::size_t bytes, void* all) override {
        if (bytes > detail::rank_board::most_bytes)
            throw usage_error("weir: ranks exchange records of at most 4096 bytes; send data by the device");
        int const absent = board_->exchange(rank_, ranks_, ++round_, mine, bytes, all,
                                            [this](std::uint64_t turns) { return waits(turns); });
        if (int const other = absent < 0 ? board_->other_size(ranks_, round_) : -1; other >= 0)
            refuse_sizes(board_->size_of(0, round_), other, board_->size_of(other, round_));
        return absent;
    }

protected:
    /// Throws usage_error for a number that is none, and one that another rank has, and where others named another count.
    board_channel(detail::rank_board* board, int rank, int ranks, std::uint64_t deadline_ns) : deadline_ns_(deadline_ns) {
        attach(board, rank, ranks);
    }

    /// Asked again and again while a rank is missing: whether to wait on. `turns`: how often it was asked in this exchange.
    virtual bool waits(std::uint64_t turns) {
        constexpr std::uint64_t turns_before_sleep = 1000;
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        std::uint64_t const now_ns =
            static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
        if (turns == 0)
            began_ns_ = now_ns;
        if (now_ns - began_ns_ >= deadline_ns_)
            return false;
        timespec const pause{0, 20'000};
        if (turns < turns_before_sleep)
            sched_yield();
        else
            nanosleep(&pause, nullptr);
        return true;
    }

    static void require_rank(int rank, int ranks) {
        if (ranks < 1 || ranks > detail::rank_board::most_ranks || rank < 0 || rank >= ranks)
            throw usage_error("weir: ranks are numbered from 0 to one less than their count, which is at most 1024");
    }

private:
    void attach(detail::rank_board* board, int rank, int ranks) {
        require_rank(rank, ranks);
        if (!board->meet(ranks))
            throw usage_error("weir: other ranks named another number of ranks than " +
                              base::number_text(static_cast<std::size_t>(ranks)) +
                              " where they meet, or the file is of something else: give all ranks one number, and each run a "
                              "file of its own");
        if (!board->take(rank))
            throw usage_error("weir: there is a rank " + base::number_text(static_cast<std::size_t>(rank)) +
                              " already: give each thread or process a number of its own, and each run a file of its own");
        board_ = board;
        rank_ = rank;
        ranks_ = ranks;
    }

    detail::rank_board* board_ = nullptr;
    int rank_ = 0;
    int ranks_ = 0;
    std::uint64_t round_ = 0;
    std::uint64_t deadline_ns_;
    std::uint64_t began_ns_ = 0;
};

/// The memory in which ranks meet that are threads of one process. Copies are the same place.
class thread_ranks {
public:
    /// Throws usage_error for a count that is none, std::bad_alloc.
    explicit thread_ranks(int ranks) : ranks_(ranks) {
        if (ranks < 1 || ranks > detail::rank_board::most_ranks)
            throw usage_error("weir: ranks are at least 1 and at most 1024");
        memory_ = base::shared<memory>::make(detail::rank_board::bytes(ranks));
    }
    int size() const noexcept { return ranks_; }

private:
    friend class thread_channel;
    struct memory {
        explicit memory(std::size_t bytes) : at(operator new(bytes, std::align_val_t{alignof(detail::rank_board)})) {
            std::memset(at, 0, bytes);
        }
        memory(memory const&) = delete;
        memory& operator=(memory const&) = delete;
        ~memory() { operator delete(at, std::align_val_t{alignof(detail::rank_board)}); }
        void* at;
    };
    int ranks_;
    base::shared<memory> memory_;
};

/// A rank that is a thread.
class thread_channel : public board_channel {
public:
    /// Throws usage_error if there is no such rank in `place`, or it is taken.
    thread_channel(thread_ranks const& place, int rank, std::uint64_t deadline_ns = usual_deadline_ns)
        : board_channel(static_cast<detail::rank_board*>(place.memory_->at), rank, place.ranks_, deadline_ns), place_(place) {}

private:
    thread_ranks place_;
};

namespace detail {
/// A file that several processes have mapped, all zeros at first.
class mapped_file {
public:
    mapped_file(char const* path, std::size_t bytes) : path_(path), bytes_(bytes) {
        int const file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        struct stat now {};
        if (file >= 0 && fstat(file, &now) == 0 && // never shorter: others may have mapped it
            (static_cast<std::size_t>(now.st_size) >= bytes || ftruncate(file, static_cast<off_t>(bytes)) == 0))
            at_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (file >= 0)
            close(file);
        if (at_ == MAP_FAILED)
            throw usage_error("weir: ranks cannot meet in the file '" + path_ +
                              "'; name one in /dev/shm, or on a disk of this machine, that all ranks may write");
    }
    mapped_file(mapped_file const&) = delete;
    mapped_file& operator=(mapped_file const&) = delete;
    ~mapped_file() { munmap(at_, bytes_); }

    void* data() const noexcept { return at_; }
    /// The file has no name any more; who has mapped it keeps it.
    void remove_name() const noexcept { static_cast<void>(unlink(path_.c_str())); }

private:
    text path_;
    std::size_t bytes_;
    void* at_ = MAP_FAILED;
};
} // namespace detail

/// A rank that is a process of this machine, or a thread of one.
class process_channel : private detail::mapped_file, public board_channel {
public:
    /// `path`: a file in which the ranks meet, such as one in /dev/shm; all name the same one, and each run another. It need
    /// not be there. Rank 0 removes its name after the first exchange. Throws usage_error if it cannot be had, the rank is
    /// taken, or others named another number of ranks.
    process_channel(char const* path, int rank, int ranks, std::uint64_t deadline_ns = usual_deadline_ns)
        : mapped_file(path, (require_rank(rank, ranks), detail::rank_board::bytes(ranks))),
          board_channel(static_cast<detail::rank_board*>(mapped_file::data()), rank, ranks, deadline_ns) {}

    int exchange(void const* mine, std::size_t bytes, void* all) override {
        int const absent = board_channel::exchange(mine, bytes, all);
        if (absent < 0 && rank() == 0 && !has_met_)
            remove_name();
        has_met_ = true;
        return absent;
    }

private:
    bool has_met_ = false;
};

} // namespace multi_device
} // namespace v0
} // namespace weir
