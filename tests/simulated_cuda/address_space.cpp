// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Regions of addresses, their backing and the first-fit ranges in them: see address_space.hpp. System calls
// are made directly so that the sanitizers keep no books on gigabytes that nobody touches.

#include "address_space.hpp"

#include <cstdio>
#include <cstdlib>
#include <iterator>

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace simulated_device::inside {

namespace {

constexpr std::size_t system_page = 4096;

std::uintptr_t map(std::uintptr_t hint, std::size_t bytes, int protection, int flags, int file,
                   std::size_t offset = 0) {
    long const at = syscall(SYS_mmap, hint, bytes, protection, flags, file, offset);
    return at == -1 ? 0 : static_cast<std::uintptr_t>(at);
}

std::uintptr_t map_or_die(std::uintptr_t hint, std::size_t bytes, int protection, int flags, int file) {
    std::uintptr_t at = 0;
    if (hint != 0)
        at = map(hint, bytes, protection, flags | MAP_FIXED_NOREPLACE, file);
    if (at == 0)
        at = map(0, bytes, protection, flags, file);
    if (at == 0) {
        std::fprintf(stderr, "simulated device: %zu bytes of address space are not to be had\n", bytes);
        std::abort();
    }
    syscall(SYS_madvise, at, bytes, MADV_DONTDUMP); // a core file has no device's memory, here as with a GPU
    return at;
}

constexpr int open_protection = PROT_READ | PROT_WRITE;

int protection(access how) {
    return how == access::open ? open_protection : PROT_NONE;
}

} // namespace

bool addresses_left(std::size_t bytes) {
    std::uintptr_t const at = map(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    if (at != 0)
        syscall(SYS_munmap, at, bytes);
    return at != 0;
}

offset_ranges::offset_ranges(std::size_t bytes) {
    if (bytes != 0)
        free_.emplace(0, bytes);
}

std::size_t offset_ranges::take(std::size_t bytes, std::size_t alignment) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        std::size_t const start = round_up(it->first, alignment);
        std::size_t const end = it->first + it->second;
        if (start >= end || end - start < bytes)
            continue;
        std::size_t const before = start - it->first;
        std::size_t const after = end - start - bytes;
        if (before != 0)
            it->second = before;
        else
            free_.erase(it);
        if (after != 0)
            free_.emplace(start + bytes, after);
        return start;
    }
    return npos;
}

bool offset_ranges::take_at(std::size_t offset, std::size_t bytes) {
    auto it = free_.upper_bound(offset);
    if (it == free_.begin())
        return false;
    --it;
    std::size_t const start = it->first;
    std::size_t const end = it->first + it->second;
    if (end <= offset || end - offset < bytes)
        return false;
    free_.erase(it);
    if (offset != start)
        free_.emplace(start, offset - start);
    if (offset + bytes != end)
        free_.emplace(offset + bytes, end - offset - bytes);
    return true;
}

void offset_ranges::give(std::size_t offset, std::size_t bytes) {
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + bytes) {
        bytes += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        auto const before = std::prev(next);
        if (before->first + before->second == offset) {
            before->second += bytes;
            return;
        }
    }
    free_.emplace(offset, bytes);
}

region::region(std::size_t bytes, access how, bool aliased, std::uintptr_t hint)
    : pages(round_up(bytes, page_bytes)), bytes_(round_up(bytes, page_bytes)), aliased_(aliased) {
    // One page more than asked for: views start at a multiple of a page, as device memory does.
    std::size_t const reserved = bytes_ + page_bytes;
    if (aliased_) {
        file_ = static_cast<int>(syscall(SYS_memfd_create, "simulated_device", 1u /* close on exec */));
        if (file_ < 0 || ftruncate(file_, static_cast<off_t>(reserved)) != 0) {
            std::fprintf(stderr, "simulated device: no sparse file of %zu bytes is to be had\n", reserved);
            std::abort();
        }
        std::uintptr_t const first =
            map_or_die(hint, reserved, protection(how), MAP_SHARED | MAP_NORESERVE, file_);
        std::uintptr_t const second =
            map_or_die(0, reserved, open_protection, MAP_SHARED | MAP_NORESERVE, file_);
        mapped_ = first;
        delta_ = second - first;
    } else {
        mapped_ =
            map_or_die(hint, reserved, protection(how), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    }
    base_ = round_up(mapped_, page_bytes);
}

region::~region() {
    syscall(SYS_munmap, mapped_, bytes_ + page_bytes);
    if (aliased_) {
        syscall(SYS_munmap, mapped_ + delta_, bytes_ + page_bytes);
        close(file_);
    }
}

void region::protect(access how) {
    syscall(SYS_mprotect, base_, bytes_, protection(how));
}

void region::protect(std::uintptr_t at, std::size_t bytes, access how) {
    syscall(SYS_mprotect, at, round_up(bytes, system_page), protection(how));
}

void region::discard(std::uintptr_t at, std::size_t bytes) {
    std::uintptr_t const start = round_up(at, system_page);
    std::uintptr_t const end = (at + bytes) / system_page * system_page;
    if (start >= end)
        return;
    if (aliased_)
        syscall(SYS_madvise, start + delta_, end - start, MADV_REMOVE);
    else
        syscall(SYS_madvise, start, end - start, MADV_DONTNEED);
}

void region::show(std::uintptr_t at, std::size_t bytes, region const* source, std::size_t offset,
                  access how) {
    int const flags = source != nullptr ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    int const file = source != nullptr ? source->file_ : -1;
    if (source != nullptr)
        offset += source->base_ - source->mapped_;
    map(at, bytes, source != nullptr ? protection(how) : PROT_NONE, flags | MAP_FIXED | MAP_NORESERVE, file,
        offset);
    map(at + delta_, bytes, source != nullptr ? open_protection : PROT_NONE,
        flags | MAP_FIXED | MAP_NORESERVE, file, offset);
}

// Twice the memory in addresses, so that holes between large blocks never make memory unreachable in
// practice.
device_space::device_space(std::size_t memory_bytes, access how, std::uintptr_t hint)
    : memory_region(2 * memory_bytes + 16 * page_bytes, how, true, hint), memory_(memory_bytes) {}

std::size_t device_space::rounded(std::size_t bytes) {
    return round_up(bytes, bytes < page_bytes / 2 ? alignment_bytes : page_bytes);
}

bool device_space::charge(std::size_t bytes) {
    if (bytes > memory_ - used_)
        return false;
    used_ += bytes;
    return true;
}

std::uintptr_t device_space::take(std::size_t bytes) {
    if (bytes > memory_)
        return 0;
    std::size_t const size = rounded(bytes);
    if (size >= page_bytes) {
        if (!charge(size))
            return 0;
        std::size_t const offset = memory_region.pages.take(size, page_bytes);
        if (offset == offset_ranges::npos) {
            refund(size);
            return 0;
        }
        return memory_region.base() + offset;
    }
    for (auto& [at, page] : shared_) {
        std::size_t const offset = page.room.take(size, alignment_bytes);
        if (offset != offset_ranges::npos) {
            ++page.live;
            return at + offset;
        }
    }
    if (!charge(page_bytes))
        return 0;
    std::size_t const offset = memory_region.pages.take(page_bytes, page_bytes);
    if (offset == offset_ranges::npos) {
        refund(page_bytes);
        return 0;
    }
    shared_page& page = shared_[memory_region.base() + offset];
    page.room = offset_ranges(page_bytes);
    page.live = 1;
    return memory_region.base() + offset + page.room.take(size, alignment_bytes);
}

void device_space::give(std::uintptr_t at, std::size_t bytes, bool written) {
    std::size_t const size = rounded(bytes);
    if (size >= page_bytes) {
        memory_region.pages.give(at - memory_region.base(), size);
        refund(size);
        if (written)
            memory_region.discard(at, size);
        return;
    }
    auto const it = std::prev(shared_.upper_bound(at));
    shared_page& page = it->second;
    page.room.give(at - it->first, size);
    page.written |= written;
    if (--page.live != 0)
        return;
    memory_region.pages.give(it->first - memory_region.base(), page_bytes);
    refund(page_bytes);
    if (page.written)
        memory_region.discard(it->first, page_bytes);
    shared_.erase(it);
}

} // namespace simulated_device::inside
