// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does an event name a line of the program, a stack of calls or a scope, in four bytes?
//
// By a number. The table gives one number to each frame: a file, a function and a line, and the number of the frame that called
// it. So a call site is a frame without a caller, a stack is its innermost frame, and two stacks share the frames that they
// have in common. A scope is a frame that has a name in place of a function. Equal frames get the same number.
//
// A call site is looked up by the address of its file's name, without a lock. Only the first call from a line takes one.
//
// invariant: number 0 is no frame; a number never changes its meaning; a frame's caller has a smaller number.
// order:     a number that one thread got is known to every thread that learns it from that thread.
// cost:      2 to 4 ns for a call site that was seen before; a lock and an allocation for a new one.
// not for:   more than 'most_call_sites' lines that allocate: those beyond have no name.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/call_site.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// A place in a program, or a scope.
struct frame {
    std::uint32_t caller = 0; ///< the number of the frame that called this one; 0: not known
    std::uint32_t line = 0;   ///< 0: not known
    text file;                ///< "": not known
    text function;            ///< or the scope's name
};

/// Any thread may call any member.
class name_table {
public:
    static constexpr std::size_t most_call_sites = 4096 / 8 * 7;

    name_table() noexcept = default;
    name_table(name_table const&) = delete;
    name_table& operator=(name_table const&) = delete;

    /// The number of a call site, whose texts are literals; 0 if its line is not known, or if there is no room for it.
    std::uint32_t number_of(call_site const& where) noexcept {
        if (where.line == 0)
            return 0;
        std::uint64_t const key = key_of(where);
        for (std::size_t at = home(key);; at = (at + 1) % places) {
            std::uint64_t const seen = sites_[at].key.load(base::memory_order_acquire);
            if (seen == key)
                return sites_[at].number;
            if (seen == 0)
                return enter(where, key);
        }
    }

    /// The number of a frame, whose texts are copied; 0 if the host has no memory for it. `caller`: its caller's number.
    std::uint32_t number_of(std::uint32_t caller, char const* file, char const* function, std::uint32_t line) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return number_with_lock(caller, file, function, line);
    }

    /// The number of a scope's name, as above.
    std::uint32_t number_of_scope(char const* name) noexcept { return number_of(0, "", name, 0); }

    /// How many frames there are: they have the numbers 1 to size().
    std::size_t size() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return frames_.size();
    }
    /// The frame of a number from 1 to size().
    frame operator[](std::size_t number) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return frames_[number - 1];
    }

private:
    static constexpr std::size_t places = 4096;
    struct site {
        base::atomic<std::uint64_t> key{0}; // written last
        std::uint32_t number = 0;
    };

    // Lines from 65535 on of one file are one call site.
    static std::uint64_t key_of(call_site const& where) noexcept {
        std::uint64_t const line = where.line < 0xffff ? where.line : 0xffff;
        return reinterpret_cast<std::uintptr_t>(where.file) ^ line << 48; // addresses of a process have 48 bits
    }
    static std::size_t home(std::uint64_t key) noexcept { return static_cast<std::size_t>((key * golden_ratio) >> 52); }

    [[gnu::noinline]] std::uint32_t enter(call_site const& where, std::uint64_t key) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        std::size_t at = home(key);
        std::uint64_t there = sites_[at].key.load(base::memory_order_relaxed);
        while (there != 0 && there != key) {
            at = (at + 1) % places;
            there = sites_[at].key.load(base::memory_order_relaxed);
        }
        bool const is_new = there == 0; // or else another thread was faster
        if (is_new && entered_ != most_call_sites)
            sites_[at].number = number_with_lock(0, where.file, where.function, where.line);
        if (is_new && sites_[at].number != 0) {
            ++entered_;
            sites_[at].key.store(key, base::memory_order_release);
        }
        return sites_[at].number;
    }

    std::uint32_t number_with_lock(std::uint32_t caller, char const* file, char const* function, std::uint32_t line) noexcept {
        std::uint64_t const key = hash(hash(hash(hash(0, caller + 1), line), file), function) | 1;
        std::uint32_t const known = by_contents_.find(key);
        if (known != base::address_map::none)
            return known;
        try {
            frames_.reserve_more(1);
            frame fresh{caller, line, text(file), text(function)};
            by_contents_.insert(key, static_cast<std::uint32_t>(frames_.size() + 1));
            frames_.push_back(std::move(fresh));
        } catch (...) { // the event goes without a name
            return 0;
        }
        return static_cast<std::uint32_t>(frames_.size());
    }

    // Two frames in 2^32 get one number by accident; nothing but a name is wrong then.
    static std::uint64_t hash(std::uint64_t before, std::uint64_t more) noexcept {
        before = (before ^ more) * golden_ratio;
        return before ^ before >> 29;
    }
    static std::uint64_t hash(std::uint64_t before, char const* characters) noexcept {
        for (; *characters != '\0'; ++characters)
            before = hash(before, static_cast<unsigned char>(*characters));
        return hash(before, 256);
    }

    static constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u; // multiplicative hashing (Knuth, TAOCP 6.4)

    mutable base::mutex mutex_;
    base::growing_array<frame> frames_;
    base::address_map by_contents_;
    std::size_t entered_ = 0;
    site sites_[places];
};

} // namespace trace
} // namespace v0
} // namespace weir
