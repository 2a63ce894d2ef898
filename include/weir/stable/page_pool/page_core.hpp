// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does memory get behind a vector's addresses, and away from them?
//
// A vector has a span of addresses. Growing puts pages behind it, shrinking and ending give them back. A page that was given
// back stays where it is until somebody needs it elsewhere. So a vector that grows again has its own pages at once, and a
// vector that begins where one of the same size ended has that one's. Where a page is needed, the steps are:
//   1. the page that this vector gave back at that very address;
//   2. a page that no work uses, wherever it is: it is mapped anew, and not made anew;
//   3. a fresh page, within the limit, if the device has room; if CUDA refused step 2, in place of a page that no work uses;
//   4. a page that work still uses: the host waits for the oldest such work, since no stream can change a mapping.
//
// invariant: no page leaves its addresses before its last use is over (last_use.hpp).
// invariant: a call that throws leaves the vector's memory as it was. Pages that it made have gone back to the device, unless
//            CUDA refused, and those that it moved are ready again, where it moved them.
// order:     one thread at a time for each span. Step 4 waits without the pool's lock.
// cost:      step 1: nothing but locks. Steps 2 and 3: 35 to 50 us a page (page_mapper.hpp), with the pool's lock.
// not for:   which bytes of a vector are in use: see mapped_bytes.

#include <cstddef>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/stable/page_pool/last_use.hpp>
#include <weir/stable/page_pool/page_mapper.hpp>
#include <weir/stable/page_pool/page_table.hpp>
#include <weir/stable/page_pool_options.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

/// What a pool of pages and its vectors share. Any thread.
class page_core {
public:
    /// Throws usage_error for a page size that is none, for a device that there is not, and if the device cannot map memory;
    /// cuda_error; std::bad_alloc.
    explicit page_core(page_pool_options const& options)
        : options_(options), pages_(options.device(), page_size(options)), table_(pages_.table()) {
        require_mapping();
    }
    page_core(page_core const&) = delete;
    page_core& operator=(page_core const&) = delete;
    /// Blocks until no work uses what was given back.
    ~page_core() {
        base::try_twice([this] { return settle(), true; });
        if (table_.returned_count() != 0) // graphs may use the rest
            base::try_twice([] { return runtime::wait_for_device(any_device), true; });
    }

    page_pool_options const& options() const noexcept { return options_; }
    std::size_t page_bytes() const noexcept { return options_.page_bytes(); }
    int device() const noexcept { return pages_.memory().device_number(); }
    std::size_t most_bytes() const noexcept { return pages_.memory().most_bytes(); }
    void enable_access_from(int peer) { pages_.memory().enable_access_from(peer); }

    /// A span of `bytes` bytes of addresses, whole pages, for a new vector. Throws out_of_memory if the process has no
    /// addresses left; cuda_error; std::bad_alloc; usage_error if it shows that the device cannot map memory.
    base::shared<span> open(std::size_t bytes) {
        base::lock_guard<base::mutex> const lock(lock_);
        base::shared<span> found = pages_.open(bytes, live_);
        require_mapping();
        if (!found)
            refuse(bytes, "the process has no addresses left for a vector of so many bytes at most; name less, or end others");
        ++live_;
        return found;
    }

    /// Ends the vector of a span, which has given back all of its pages.
    void close(base::shared<span> const& ended) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        pages_.close(ended);
        --live_;
    }

    /// A vector falls asleep, or one that slept wakes or ends.
    void note_sleep(bool begins) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        asleep_ += begins ? std::size_t{1} : ~std::size_t{0};
    }
    /// How many vectors sleep.
    std::size_t asleep() noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        return asleep_;
    }

    /// Makes the span's bytes from `before` on up to `bytes` the vector's: whole pages, within the span. Throws out_of_memory,
    /// cuda_error, std::bad_alloc; usage_error if it shows that the device cannot map memory.
    void commit(span& of, std::size_t before, std::size_t bytes) {
        base::lock_guard<base::mutex> const lock(lock_);
        pages_.release_stuck();
        require_hope(of, before, bytes);
        std::size_t done = before;
        try {
            for (; done != bytes; done += page_bytes())
                fill(of, of.addresses.offset + done, bytes - before);
        } catch (...) {
            while (done != before)
                pages_.undo(of.addresses.offset + (done -= page_bytes()));
            throw;
        }
        while (done != before)
            table_.keep(table_.find(of.addresses.offset + (done -= page_bytes())));
    }

    /// Gives back the vector's bytes from `kept` on up to `bytes`, whole pages. They are ready once `until` is over.
    void give(span const& of, std::size_t kept, std::size_t bytes, base::shared<last_use> const& until) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        base::shared<last_use> with_graph;
        while (bytes != kept)
            table_.give_back(table_.find(of.addresses.offset + (bytes -= page_bytes())), until, with_graph);
    }

    /// Gives back the vector's first `bytes` bytes, whole pages that no work uses: they are ready at once, but for a graph's.
    void give_ready(span const& of, std::size_t bytes) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        while (bytes != 0)
            table_.give_ready(table_.find(of.addresses.offset + (bytes -= page_bytes())));
    }

    /// Gives ready pages back to the device until at most `kept_bytes` bytes are held. Returns how many bytes went. Never
    /// waits. Throws cuda_error.
    std::size_t trim(std::size_t kept_bytes) {
        base::lock_guard<base::mutex> const lock(lock_);
        pages_.release_stuck();
        pages_.poll();
        std::size_t const before = held_bytes();
        bool done = true;
        while (done && held_bytes() > kept_bytes && table_.ready_count() != 0)
            done = pages_.drop(table_.ready());
        return before - held_bytes();
    }

    /// Blocks until no work uses what was given back before the call, unless a graph may. Throws cuda_error.
    void settle() {
        base::lock_guard<base::mutex> const lock(lock_);
        pages_.poll();
        for (std::size_t left = table_.returned_count(); left != 0 && wait_for_oldest();)
            --left;
    }

    /// Never blocks on a device. Throws std::bad_alloc, cuda_error.
    memory_report state() {
        base::lock_guard<base::mutex> const lock(lock_);
        return known_state();
    }

private:
    static constexpr std::size_t most_page_bytes = 64 * MiB;

    // Does without a lock for a while.
    class unlocked {
    public:
        explicit unlocked(base::mutex& held) noexcept : lock_(held) { lock_.unlock(); }
        unlocked(unlocked const&) = delete;
        unlocked& operator=(unlocked const&) = delete;
        ~unlocked() { lock_.lock(); }

    private:
        base::mutex& lock_;
    };

    static std::size_t page_size(page_pool_options const& options) {
        std::size_t const bytes = options.page_bytes();
        if (!base::is_power_of_two(bytes) || bytes < upstream::virtual_memory<>::granularity || bytes > most_page_bytes)
            throw usage_error("weir: page_pool '" + options.name() +
                              "': a page has a power of two of bytes, from 2 to 64 MiB; got " + base::exact_bytes_text(bytes));
        return bytes;
    }

    // All that follow need the lock.

    std::size_t held_bytes() const noexcept { return table_.size() * page_bytes(); }
    // Whether the limit has room for `bytes` bytes more.
    bool is_within_limit(std::size_t bytes) const noexcept {
        return bytes <= options_.limit_bytes() && held_bytes() <= options_.limit_bytes() - bytes;
    }

    // Waits until the pages that were given back first are ready. Without the lock meanwhile, so others may take them. False if
    // no wait makes any page ready.
    bool wait_for_oldest() {
        base::shared<last_use> const oldest = table_.oldest();
        if (!oldest)
            return false;
        last_use::until const what = oldest->waits_for();
        {
            unlocked const meanwhile(lock_);
            oldest->wait(what);
        }
        oldest->note_wait(what);
        pages_.poll();
        return true;
    }

    // Puts a page behind `address`. `wanted`: how many bytes the whole call adds, for the message.
    void fill(span& of, std::size_t address, std::size_t wanted) {
        for (bool moves = true;;) {
            page_table::number const here = table_.find(address);
            if (here != page_table::none)
                return table_.own(here);
            if (pages_.is_stuck(address))
                refuse(wanted, "CUDA refuses to take the memory away that is behind its addresses; try again");
            pages_.make_room();
            if (table_.ready_count() == 0)
                pages_.poll();
            if (table_.ready_count() != 0 && moves) {
                moves = pages_.move(table_.ready(), address, of);
                if (moves)
                    return;
                continue; // is its memory here as well now?
            }
            if (is_within_limit(page_bytes()) && pages_.make(address, of))
                return;
            require_mapping();
            if (!moves && table_.ready_count() != 0 && pages_.drop(table_.ready()))
                continue; // a process with no mapping left has none for the second place of a page that moves
            if (!wait_for_oldest())
                refuse(wanted, moves ? why_not() : "CUDA refuses to move a page that is free; try again");
        }
    }

    // Refuses at once what cannot succeed, before it takes all that there is.
    void require_hope(span const& of, std::size_t before, std::size_t bytes) {
        std::size_t lacking = 0;
        for (std::size_t each = before; each != bytes; each += page_bytes())
            lacking += table_.find(of.addresses.offset + each) == page_table::none;
        std::size_t const there = table_.ready_count() + table_.returned_count();
        if (lacking < 2 || lacking <= there)
            return;
        std::size_t const fresh = (lacking - there) * page_bytes();
        if (!is_within_limit(fresh))
            refuse(bytes - before, over_limit);
        if (fresh > runtime::device_free_bytes(device()))
            refuse(bytes - before, no_room);
    }

    static constexpr char const* over_limit = "the limit leaves no room for so many pages; raise it, or end other vectors";
    static constexpr char const* no_room = "the device has no room for so many pages; end other vectors, or free other memory";
    char const* why_not() const noexcept {
        if (table_.lost_count() != 0)
            return "graphs may still use pages that were given back; destroy those graphs, or do not give back in a capture";
        return is_within_limit(page_bytes()) ? no_room : over_limit;
    }
    [[noreturn]] void refuse(std::size_t bytes, char const* reason) {
        throw out_of_memory(bytes, refusal{known_state(), reason}, "page_pool");
    }
    void require_mapping() const {
        if (!pages_.memory().extends())
            throw usage_error("weir: page_pool '" + options_.name() + "': device " +
                              base::number_text(static_cast<std::size_t>(device())) +
                              " cannot map memory, so no vector can grow in place there; use a device_vector of a device_pool");
    }

    memory_report known_state() {
        pages_.poll();
        memory_report now;
        now.name = options_.name();
        now.reserved_bytes = held_bytes();
        now.in_use_bytes = held_bytes() - (table_.ready_count() + table_.returned_count()) * page_bytes();
        now.limit_bytes = options_.limit_bytes();
        now.live_blocks = live_ - asleep_;
        now.chunks = table_.size();
        now.lost_bytes = table_.lost_count() * page_bytes();
        now.unsettled_bytes = table_.returned_count() * page_bytes() - now.lost_bytes;
        return now;
    }

    page_pool_options const options_;
    base::mutex lock_; // guards the rest
    page_mapper pages_;
    page_table& table_;    // of 'pages_'
    std::size_t live_ = 0;   // spans of vectors
    std::size_t asleep_ = 0; // of those: what a sleep_group put to sleep
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
