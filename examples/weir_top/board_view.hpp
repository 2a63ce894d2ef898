// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A program's board as somebody else reads it: the segment of shared memory, opened, checked, asked and read.
//
// Nothing in it is trusted: what cannot be used is a sentence, and nobody waits for a process that may be gone.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/usage.hpp>
#include <weir/trace/board_layout.hpp>
#include <weir/trace/watch_board/process_start.hpp>

namespace weir_top {

/// Why a board cannot be used: what() is a sentence.
struct unusable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// What a pool said last.
struct pool_sample {
    std::size_t place = 0;    ///< on the board
    std::uint32_t life = 0;   ///< another number: another pool
    std::uint64_t answers = 0; ///< how often it has said something; 0: the rest is empty
    bool torn = false;        ///< its figures are being written, and that does not end
    weir::trace::pool_figures figures;
    std::vector<weir::base::stream_usage> streams;
};

/// The bytes of the character at `at`, in UTF-8; 0: there is none that a terminal shows.
inline std::size_t shown_bytes(std::string const& said, std::size_t at) {
    auto const byte = [&](std::size_t i) { return i < said.size() ? static_cast<unsigned char>(said[i]) : 0u; };
    unsigned const first = byte(at);
    if (first < 0x80)
        return first >= ' ' && first != 0x7f ? 1 : 0;
    std::size_t const size = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
    for (std::size_t i = 1; i < size; ++i)
        if ((byte(at + i) & 0xc0) != 0x80)
            return 0;
    return first == 0xc2 && byte(at + 1) < 0xa0 ? 0 : size; // those are control characters, too
}

/// The characters up to the zero, fit for a terminal.
template <std::size_t Size>
std::string printable(char const (&characters)[Size]) {
    std::string said(characters, ::strnlen(characters, Size));
    for (std::size_t at = 0; at < said.size();) {
        std::size_t const size = shown_bytes(said, at);
        if (size == 0)
            said[at] = '?';
        at += size == 0 ? 1 : size;
    }
    return said;
}

class board_view {
public:
    /// `segment`: its name, such as 'weir.1234.0x7f00'. Throws unusable.
    explicit board_view(std::string const& segment) : segment_(segment) {
        using weir::trace::board_head;
        using weir::trace::board_layout;
        int const file = ::shm_open(("/" + segment).c_str(), O_RDWR, 0);
        if (file < 0 && errno == ENOENT)
            throw unusable("there is no board '" + segment + "': its program has ended, or runs in another container");
        if (file < 0 && errno == EACCES)
            throw unusable("the board '" + segment + "' belongs to another user; run weir_top as that user");
        if (file < 0)
            throw unusable("the board '" + segment + "' cannot be opened: " + std::strerror(errno));
        struct stat about {};
        std::size_t const bytes = ::fstat(file, &about) == 0 ? static_cast<std::size_t>(about.st_size) : 0;
        board_head first; // mark and version stand at the same place in every version
        bool const has_head = ::pread(file, &first, offsetof(board_head, process), 0) ==
                              static_cast<ssize_t>(offsetof(board_head, process));
        void* const memory = has_head && bytes >= sizeof(board_layout)
                                 ? ::mmap(nullptr, sizeof(board_layout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                                 : MAP_FAILED;
        ::close(file);
        bool const has_mark = has_head && std::memcmp(first.mark, weir::trace::board_mark, sizeof first.mark) == 0;
        if (has_mark && first.version != weir::trace::board_version) {
            if (memory != MAP_FAILED)
                ::munmap(memory, sizeof(board_layout));
            throw unusable("the board '" + segment + "' is of version " + std::to_string(first.version) +
                           ", and this weir_top reads version " + std::to_string(weir::trace::board_version) +
                           "; use the one that comes with the program's weir");
        }
        if (memory == MAP_FAILED)
            throw unusable("'" + segment + "' is no board of weir's, or its program is making it at this moment");
        layout_ = static_cast<board_layout*>(memory);
        if (!has_mark || layout_->head.is_ready.load(weir::base::memory_order_acquire) == 0) {
            ::munmap(layout_, sizeof(board_layout));
            throw unusable("'" + segment + "' is no board of weir's, or its program is making it at this moment");
        }
    }
    board_view(board_view const&) = delete;
    board_view& operator=(board_view const&) = delete;
    ~board_view() { ::munmap(layout_, sizeof(weir::trace::board_layout)); }

    std::string const& segment() const { return segment_; }
    std::uint64_t process() const { return layout_->head.process; }
    std::string name() const { return printable(layout_->head.name); }
    /// How many pools found no place.
    std::uint32_t pools_without_place() const {
        return layout_->head.pools_without_place.load(weir::base::memory_order_relaxed);
    }
    std::string without_place_text() const {
        return std::string(weir::base::count_text(pools_without_place(), " pool")) + " for which the board has no place";
    }
    bool is_alive() const {
        std::uint64_t const start = layout_->head.process_start;
        return start != 0 && weir::trace::detail::process_start(process()) == start;
    }
    /// Of a process that has ended, and could not take its board away.
    std::string ended_text() const {
        return "the process " + std::to_string(process()) + " ('" + name() + "') has ended and left its board behind: rm /dev/shm/" +
               segment_;
    }

    /// Asks each pool for its figures. They are there once 'answers' has grown: after an allocation, or 'poll'.
    void ask() {
        for (weir::trace::board_pool& each : layout_->pools)
            if (each.life.load(weir::base::memory_order_acquire) % 2 != 0)
                each.asked.store(1, weir::base::memory_order_release);
    }

    /// What each pool said last, and may have said before the last 'ask'.
    std::vector<pool_sample> read() const {
        std::vector<pool_sample> all;
        for (std::size_t place = 0; place < weir::trace::most_board_pools; ++place) {
            weir::trace::board_pool const& from = layout_->pools[place];
            pool_sample one;
            one.place = place;
            one.life = from.life.load(weir::base::memory_order_acquire);
            if (one.life % 2 == 0)
                continue;
            one.answers = from.answers.load(weir::base::memory_order_acquire);
            one.torn = !read(from.figures, one.figures);
            std::size_t const streams = one.figures.streams < weir::trace::most_board_streams
                                            ? static_cast<std::size_t>(one.figures.streams)
                                            : weir::trace::most_board_streams;
            for (std::size_t i = 0; i < streams; ++i) {
                weir::base::stream_usage row;
                if (read(from.streams[i], row))
                    one.streams.push_back(row);
                else
                    one.torn = true;
            }
            all.push_back(one);
        }
        return all;
    }

    /// Asks for a dump at `path`, an absolute one. Throws unusable if it is too long, or another watcher waits for a dump.
    void ask_dump(std::string const& path) {
        using weir::trace::dump_state;
        weir::trace::board_head& head = layout_->head;
        if (path.size() >= sizeof head.dump_path)
            throw unusable("the dump's path is longer than " + std::to_string(sizeof head.dump_path - 1) + " characters");
        auto const own = static_cast<std::uint64_t>(::getpid());
        for (std::uint64_t by = head.dump_by.load(weir::base::memory_order_acquire);;) {
            if (by != 0 && by != own && weir::trace::detail::process_start(by) != 0)
                throw unusable("process " + std::to_string(by) + " waits for a dump of this program; try again later");
            if (head.dump_by.compare_exchange_weak(by, own, weir::base::memory_order_acq_rel))
                break;
        }
        // What this one, or a watcher that has ended, asked for and did not get is taken back first.
        if (!head.change_dump(dump_state::asked, dump_state::none) && dump_now() == dump_state::writing) {
            end_dump();
            throw unusable("the program is writing a dump; try again later");
        }
        std::memcpy(head.dump_path, path.c_str(), path.size() + 1);
        head.dump.store(static_cast<std::uint32_t>(dump_state::asked), weir::base::memory_order_release);
        ask();
    }
    weir::trace::dump_state dump_now() const {
        return weir::trace::dump_state{layout_->head.dump.load(weir::base::memory_order_acquire)};
    }
    /// What was written, or why nothing was.
    std::string dump_said() const { return printable(layout_->head.dump_said); }
    /// This watcher waits for no dump any more.
    void end_dump() {
        auto own = static_cast<std::uint64_t>(::getpid());
        static_cast<void>(layout_->head.dump_by.compare_exchange_weak(own, 0, weir::base::memory_order_acq_rel));
    }

private:
    // False: the writer does not end. It writes a few hundred bytes; if it lost its core, it gets one back.
    template <class T>
    static bool read(weir::trace::detail::sequenced<T> const& from, T& to) {
        constexpr int tries = 1000;
        for (int i = 0; i < tries; ++i) {
            if (from.read(to))
                return true;
            sched_yield();
        }
        return false;
    }

    std::string segment_;
    weir::trace::board_layout* layout_ = nullptr;
};

/// The segments on this machine that bear a board's name; of `process` alone, unless that is empty. Others have names there that
/// they chose: what no board has in its name is left out, so that a terminal or a shell finds nothing to obey.
inline std::vector<std::string> segments(std::string const& process = "") {
    std::string const prefix = weir::trace::board_prefix + (process.empty() ? process : process + ".");
    std::vector<std::string> found;
    std::error_code none;
    for (auto const& each : std::filesystem::directory_iterator("/dev/shm", none))
        if (std::string const name = each.path().filename().string();
            name.compare(0, prefix.size(), prefix) == 0 &&
            name.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz.") == std::string::npos)
            found.push_back(name);
    std::sort(found.begin(), found.end());
    return found;
}

/// The segment that a process's number, the name of a board or that of its segment stands for. Throws unusable.
inline std::string segment_of(std::string const& given) {
    auto const only = [&](std::vector<std::string> const& all, std::string const& whose) {
        if (all.size() > 1)
            throw unusable(whose + "; name one by the last column of the list: " + all[0] + ", " + all[1] + (all.size() > 2 ? ", ..." : ""));
        return all.empty() ? std::string() : all[0];
    };
    bool const is_number = given.find_first_not_of("0123456789") == std::string::npos;
    if (std::string const found = is_number ? only(segments(given), "process " + given + " has several boards") : ""; !found.empty())
        return found;
    if (given.compare(0, sizeof weir::trace::board_prefix - 1, weir::trace::board_prefix) == 0 && given.find('/') == std::string::npos)
        return given;
    std::vector<std::string> living, dead;
    std::string unread; // why the first one was not looked at
    for (std::string const& each : segments())
        try {
            board_view const board(each);
            if (board.name() == given)
                (board.is_alive() ? living : dead).push_back(each);
        } catch (unusable const& error) {
            unread = unread.empty() ? error.what() : unread;
        }
    std::string const found = only(living.empty() ? dead : living, "several boards are called '" + given + "'");
    if (found.empty())
        throw unusable((is_number ? "process " + given + " has no board here, and none is called so" : "no board here is called '" + given + "'") +
                       "; 'weir_top' alone lists those that there are" + (unread.empty() ? "" : " (not all could be read: " + unread + ")"));
    return found;
}

} // namespace weir_top
