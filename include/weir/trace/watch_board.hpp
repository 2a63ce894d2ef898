// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does somebody look into a program's pools while it runs?
//
// The program makes a board, a small segment of shared memory with its process's number, and wraps its pools in layer::watch.
// The example 'weir_top', a terminal program, finds the board and shows pools and streams.
//
//     weir::trace::watch_board board("server");
//     weir::layer::watch<weir::device_pool> pool(board, weir::pool_options{}.name("frames"));
//     // ... the program
//     board.poll(); // now and then, if it may go without an allocation for long
//
// The watcher asks, and the program answers in its next allocation or 'poll' (board_layout.hpp). It may also ask for a dump: a
// recording, if a pool's layer::record has one, or else the pools' reports as text. That, too, the program itself writes there.
//
// invariant: nothing is written while nobody asks; no lock is shared with another process; no thread is started.
// order:     an allocation answers for its own pool alone, before it begins; 'poll' for all that any thread may ask.
// cost:      of an allocation: a load and a branch. Of an answer: about what 'state' costs; of a dump: what writing it does.
// not for:   other users, whom the system keeps out (mode 0600); processes of another container; a child of 'fork', which makes
//            a board of its own.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/trace/board_layout.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/trace/recording_file.hpp>
#include <weir/trace/watch_board/process_start.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// What a board asks of a pool: layer::watch tells it.
class watched_pool {
public:
    /// Writes the figures of the pool to its place. May throw.
    virtual void publish(board_pool& to) const = 0;
    /// What the pool says of itself. May throw.
    virtual text report() const = 0;
    /// To which its calls are written; null: none.
    virtual recorder* tape() const noexcept = 0;
    /// Whether any thread may ask it at any time.
    virtual bool any_thread() const noexcept = 0;

protected:
    ~watched_pool() = default;
};

/// Any thread may call any member. It outlives the pools that it shows.
class watch_board {
public:
    /// `name`: what watchers call the program; its first 63 characters. Throws usage_error if the system gives no shared
    /// memory, std::bad_alloc.
    explicit watch_board(text const& name = {}) : process_(static_cast<std::uint64_t>(::getpid())) {
        std::uint64_t const start = detail::process_start(process_);
        if (start == 0)
            throw usage_error("weir: a watch_board needs /proc, which tells when this process began; mount it");
        // No other board of this process has this address.
        segment_ = text("/") + board_prefix + base::number_text(process_) + "." + base::address_text(this);
        layout_ = new (made_segment()) board_layout;
        board_head& head = layout_->head;
        std::memcpy(head.mark, board_mark, sizeof board_mark);
        head.version = board_version;
        head.segment_bytes = sizeof(board_layout);
        head.process = process_;
        head.process_start = start;
        copy(head.name, name);
        head.is_ready.store(1, base::memory_order_release);
    }
    watch_board(watch_board const&) = delete; // weir: a board is neither copied nor moved: its pools refer to it
    watch_board& operator=(watch_board const&) = delete;
    ~watch_board() {
        ::munmap(layout_, sizeof(board_layout));
        if (is_own())
            ::shm_unlink(segment_.c_str());
    }

    /// Answers whoever watches, if somebody has asked: for all pools that any thread may use, and with the dump. Else it costs
    /// a system call, a mutex and a load a pool. Does not wait for another thread that answers.
    void poll() noexcept { answer(nullptr); }

    /// The segment's name, as for shm_open.
    text const& segment() const noexcept { return segment_; }

    // For layer::watch.

    /// Shows a pool. Returns its place; null: there is none left, and the pool is only counted. Throws std::bad_alloc.
    board_pool* join(watched_pool& pool) {
        if (!is_own())
            return nullptr; // in a child of fork
        base::lock_guard<base::mutex> const lock(mutex_);
        pools_.reserve_more(1);
        board_pool* place = nullptr;
        for (board_pool& each : layout_->pools)
            if (!place && each.life.load(base::memory_order_relaxed) % 2 == 0)
                place = &each;
        if (place) {
            place->figures.write(pool_figures()); // an earlier pool's are gone
            place->answers.store(0, base::memory_order_relaxed);
            place->life.fetch_add(1, base::memory_order_release);
        } else
            layout_->head.pools_without_place.fetch_add(1, base::memory_order_relaxed);
        pools_.push_back(shown{&pool, place});
        return place;
    }
    /// The pool ends. Waits for a thread that answers.
    void leave(watched_pool& pool) noexcept {
        if (!is_own())
            return; // in a child of fork
        base::lock_guard<base::mutex> const lock(mutex_);
        std::size_t at = 0;
        while (pools_[at].pool != &pool)
            ++at;
        if (board_pool* const place = pools_[at].place)
            place->life.fetch_add(1, base::memory_order_release);
        else
            layout_->head.pools_without_place.fetch_sub(1, base::memory_order_relaxed);
        pools_[at] = pools_[pools_.size() - 1];
        pools_.resize(pools_.size() - 1);
    }
    /// Answers for the pool `caller`, in whose allocation this is, and with the dump. Null: as poll.
    void answer(watched_pool const* caller) noexcept {
        if (!is_own() || !mutex_.try_lock())
            return; // the question stays
        unlocked const at_end{mutex_};
        for (shown const& each : pools_)
            if (each.place && may_ask(each, caller) && each.place->asked.exchange(0, base::memory_order_acquire) != 0)
                try {
                    each.pool->publish(*each.place);
                } catch (...) { // the watcher sees that the figures are old
                }
        if (layout_->head.change_dump(dump_state::asked, dump_state::writing))
            write_dump(caller);
    }

private:
    struct shown {
        watched_pool* pool;
        board_pool* place;
    };
    struct unlocked {
        base::mutex& of;
        ~unlocked() { of.unlock(); }
    };

    // No in a child of 'fork', whose pools are copies: its parent alone writes, and only there the mutex is sure to be free.
    bool is_own() const noexcept { return static_cast<std::uint64_t>(::getpid()) == process_; }

    [[noreturn]] static void refuse(char const* call, int error) {
        throw usage_error(text("weir: a watch_board gets no shared memory (") + call + ": " + std::strerror(error) +
                          "); mount /dev/shm with some room, or go without a board");
    }

    // Its pages are there: a full /dev/shm fails here, and not with a signal later on.
    void* made_segment() const {
        ::shm_unlink(segment_.c_str()); // of an earlier process with this number
        int const file = ::shm_open(segment_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
        if (file < 0)
            refuse("shm_open", errno);
        int const error = ::posix_fallocate(file, 0, sizeof(board_layout));
        void* const memory =
            error == 0 ? ::mmap(nullptr, sizeof(board_layout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
        int const failed = error == 0 ? errno : error;
        ::close(file);
        if (memory == MAP_FAILED) {
            ::shm_unlink(segment_.c_str());
            refuse(error == 0 ? "mmap" : "posix_fallocate", failed);
        }
        return memory;
    }

    // Within an allocation another pool may have a lock that this thread holds.
    static bool may_ask(shown const& each, watched_pool const* caller) noexcept {
        return caller ? each.pool == caller : each.pool->any_thread();
    }

    void dump_is(dump_state now) noexcept {
        layout_->head.dump.store(static_cast<std::uint32_t>(now), base::memory_order_release);
    }

    void write_dump(watched_pool const* caller) noexcept {
        char path[sizeof board_head::dump_path];
        std::memcpy(path, layout_->head.dump_path, sizeof path);
        path[sizeof path - 1] = '\0';
        dump_state became = dump_state::failed;
        try {
            copy(layout_->head.dump_said, dumped(path, caller));
            became = dump_state::written;
        } catch (std::exception const& error) { // usage_error says what; others come of memory, or of CUDA
            copy(layout_->head.dump_said, error.what());
        }
        dump_is(became);
    }

    // Writes to `path`, and returns what that is.
    text dumped(char const* path, watched_pool const* caller) const {
        require_file(path);
        text reports;
        for (shown const& each : pools_) {
            recorder* const tape = each.pool->tape();
            if (tape && tape->ring()) {
                dump(*tape, path);
                return "a recording";
            }
            reports = reports + (may_ask(each, caller) ? each.pool->report() : as_published(each)) + "\n";
        }
        write(path, reports);
        return "the report of " + base::count_text(pools_.size(), " pool");
    }
    static text as_published(shown const& each) {
        pool_figures last;
        if (!each.place || !each.place->figures.read(last) || last.time_ns == 0)
            return "a pool that was not asked: it answers in its own allocations";
        last.name[sizeof last.name - 1] = '\0'; // whoever may write there may have
        return text("pool '") + last.name + "' (before): " + base::bytes_text(last.in_use_bytes) + " in use in " +
               base::count_text(last.live_blocks, " block") + ", " + base::bytes_text(last.reserved_bytes) + " reserved";
    }
    // A pipe would make the program wait for whoever reads it.
    static void require_file(char const* path) {
        struct stat about {};
        if (::stat(path, &about) == 0 && !S_ISREG(about.st_mode))
            refuse_dump(path, "it is no file");
    }
    [[noreturn]] static void refuse_dump(char const* path, char const* why) {
        throw usage_error(text("weir: the dump '") + path + "' cannot be written (" + why + "); give another path");
    }
    static void write(char const* path, text const& what) {
        int const file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        std::size_t written = 0;
        int error = file < 0 ? errno : 0;
        while (error == 0 && written < what.size()) {
            ssize_t const count = ::write(file, what.data() + written, what.size() - written);
            error = count < 0 && errno != EINTR ? errno : 0;
            written += count < 0 ? 0 : static_cast<std::size_t>(count);
        }
        if (file >= 0)
            ::close(file);
        if (error != 0)
            refuse_dump(path, std::strerror(error));
    }

    template <std::size_t Size>
    static void copy(char (&to)[Size], text const& from) noexcept {
        std::size_t const size = from.size() < Size ? from.size() : Size - 1;
        std::memcpy(to, from.data(), size);
        to[size] = '\0';
    }
    template <std::size_t Size>
    static void copy(char (&to)[Size], char const* from) noexcept {
        std::strncpy(to, from, Size - 1);
        to[Size - 1] = '\0';
    }

    std::uint64_t const process_;
    text segment_;
    board_layout* layout_ = nullptr;
    base::mutex mutex_;
    base::growing_array<shown> pools_;
};

} // namespace trace
} // namespace v0
} // namespace weir
