// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a process get memory whose pages are all there, soon?
//
// mmap gives addresses; the system gives a page when it is touched first. One thread touches some 4 GB/s, and most of that is
// the system's time, so several threads touch the pages together. They end before the call does. The memory starts at a
// multiple of a huge page, so that the system can make huge pages of nearly all of it. A child process does not get it: after
// a fork the system would copy pages that a device writes to.
//
// invariant: a call that fails leaves nothing mapped, and no thread.
// cost:      the system's calls, and touching each page.
// not for:   more memory than is free: the system might end the process. So the call asks first, and refuses.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weir/base/error.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>

namespace weir {
inline namespace v0 {
namespace upstream::detail {

/// What a user may wish of the pages.
struct page_options {
    static constexpr unsigned most_threads = 256;
    static constexpr int most_nodes = 1024; // of Linux

    unsigned threads = 4; ///< that touch them, the calling one included
    int numa_node = -1;   ///< where they should be; -1: where the system puts them
    bool huge = true;     ///< whether the system should make them huge pages
};

/// The bytes of host memory that the system can hand out without taking them from others, or half of all addresses if it does
/// not say.
inline std::size_t available_host_bytes() noexcept {
    std::size_t kibibytes = SIZE_MAX / 2 / KiB;
    if (std::FILE* const file = std::fopen("/proc/meminfo", "r")) {
        std::size_t found = 0;
        if (std::fscanf(file, "MemTotal: %*u kB MemFree: %*u kB MemAvailable: %zu", &found) == 1)
            kibibytes = found;
        std::fclose(file);
    }
    return kibibytes * KiB;
}

// The number in the file `folder`/`name`; SIZE_MAX: none ("max", or no such file).
inline std::size_t number_in(char const* folder, char const* name) noexcept {
    char path[4096 + 128];
    std::size_t number = SIZE_MAX;
    bool const fits = std::snprintf(path, sizeof path, "%s/%s", folder, name) < static_cast<int>(sizeof path);
    if (std::FILE* const file = fits ? std::fopen(path, "r") : nullptr) {
        if (std::fscanf(file, "%zu", &number) != 1)
            number = SIZE_MAX;
        std::fclose(file);
    }
    return number;
}

/// The bytes that the limits of this process's control groups (those of a container, or of a batch job) leave to it, counting
/// what the system keeps of files as used; SIZE_MAX: they have no limit. `list`: which groups these are; `mount`: where their
/// files lie.
inline std::size_t room_in_groups(char const* list = "/proc/self/cgroup", char const* mount = "/sys/fs/cgroup") noexcept {
    std::size_t room = SIZE_MAX;
    std::FILE* const file = std::fopen(list, "r");
    if (!file)
        return room;
    char line[4096]; // "number:controllers:path"; without controllers in version 2
    while (std::fgets(line, sizeof line, file)) {
        char* const controllers = std::strchr(line, ':');
        char* const path = controllers ? std::strchr(controllers + 1, ':') : nullptr;
        bool const second = path && path == controllers + 1;
        if (!path || (!second && std::strncmp(controllers, ":memory:", 8) != 0))
            continue;
        path[std::strcspn(path, "\n")] = '\0';
        char folder[4096 + 64]; // the group's, then those of the groups that it lies in
        std::snprintf(folder, sizeof folder, "%s%s%s", mount, second ? "" : "/memory", path + 1);
        std::size_t const least = std::strlen(mount);
        for (char* end = folder; end; end = std::strrchr(folder, '/')) {
            if (end != folder)
                *end = '\0';
            if (std::strlen(folder) < least)
                break;
            std::size_t const limit = number_in(folder, second ? "memory.max" : "memory.limit_in_bytes");
            std::size_t const used = number_in(folder, second ? "memory.current" : "memory.usage_in_bytes");
            if (limit != SIZE_MAX && used != SIZE_MAX) {
                std::size_t const left = limit > used ? limit - used : 0;
                room = left < room ? left : room;
            }
        }
    }
    std::fclose(file);
    return room;
}

/// Pages that several threads touch.
class touched_pages {
public:
    static constexpr std::size_t huge_page = 2 * MiB;

    /// `bytes` bytes, a multiple of 64 KiB, that start at a multiple of a huge page; null if there is no room. Throws
    /// usage_error if the system has no such NUMA node.
    static void* map(std::size_t bytes, page_options const& wanted) {
        void* const all = bytes <= available_host_bytes() ? mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE,
                                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                                          : MAP_FAILED;
        if (all == MAP_FAILED)
            return nullptr;
        auto const start = reinterpret_cast<std::uintptr_t>(all);
        std::size_t const before = base::align_up(start, huge_page) - start;
        char* const begin = static_cast<char*>(all) + before;
        unmap(all, before);
        unmap(begin + bytes, huge_page - before);
        static_cast<void>(madvise(begin, bytes, MADV_DONTFORK)); // advice that an old system does not know costs no more
        if (wanted.huge && bytes >= huge_page)
            static_cast<void>(madvise(begin, bytes, MADV_HUGEPAGE));
        if (wanted.numa_node >= 0)
            prefer_node(begin, bytes, wanted.numa_node);
        touched_pages(begin, bytes).touch_all(wanted.threads);
        return begin;
    }

    static void unmap(void* begin, std::size_t bytes) noexcept { static_cast<void>(munmap(begin, bytes)); }

private:
    static constexpr std::size_t share_bytes = 4 * MiB; // what a thread takes at a time
    static constexpr std::size_t page_bytes = 4 * KiB;  // the smallest of any system

    touched_pages(char* begin, std::size_t bytes) noexcept : begin_(begin), bytes_(bytes) {}

    // By a system call, since the function for it is in a library of its own. If the node has no room, others do.
    static void prefer_node(char* begin, std::size_t bytes, int node) {
        constexpr int preferred = 1; // MPOL_PREFERRED
        constexpr int bits = 8 * sizeof(unsigned long);
        unsigned long nodes[page_options::most_nodes / bits] = {};
        nodes[node / bits] = 1ul << node % bits;
        if (syscall(SYS_mbind, begin, bytes, preferred, nodes, page_options::most_nodes + 1ul, 0u) == 0)
            return;
        unmap(begin, bytes);
        throw usage_error("weir: the system does not let this process prefer memory of NUMA node " +
                          base::number_text(static_cast<std::size_t>(node)) +
                          "; name a node that it has ('numactl --hardware'), or leave 'numa_node' out");
    }

    void touch_all(unsigned threads) noexcept {
        pthread_t others[page_options::most_threads];
        unsigned started = 0; // if the system starts fewer, these do more
        while (started + 1 < threads && started < bytes_ / share_bytes &&
               pthread_create(&others[started], nullptr, &touched_pages::touch, this) == 0)
            ++started;
        touch(this);
        while (started != 0)
            pthread_join(others[--started], nullptr);
    }

    static void* touch(void* of) noexcept {
        auto& self = *static_cast<touched_pages*>(of);
        for (std::size_t at; (at = self.begun_.fetch_add(share_bytes, base::memory_order_relaxed)) < self.bytes_;)
            for (std::size_t const end = at + share_bytes; at < end && at < self.bytes_; at += page_bytes)
                *static_cast<char volatile*>(self.begin_ + at) = 0;
        return nullptr;
    }

    char* begin_;
    std::size_t bytes_;
    base::atomic<std::size_t> begun_{0};
};

} // namespace upstream::detail
} // namespace v0
} // namespace weir
