// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is a page made, moved behind other addresses, and given back to the device?
//
// Each of these is a few calls of the driver, of which any may fail. Then the memory that was mapped is unmapped again. If CUDA
// refuses even that, the addresses are noted as stuck: nothing else is put there before they can be cleared. A span whose
// vector has ended stays here while pages are behind its addresses. It goes to the next vector of the same size, pages and all,
// or its addresses become free when its last page has left.
//
// invariant: what fails changes no page. An address that is stuck has no page of the table's.
// order:     one thread at a time, except for 'memory', whose members any thread may call.
// cost:      35 to 50 us a page; a walk over the ended spans for each vector that begins.
// not for:   choosing which of these to do: see page_core.

#include <cstddef>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/stable/page_pool/last_use.hpp>
#include <weir/stable/page_pool/page_table.hpp>
#include <weir/upstream/virtual_memory.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

/// One thread at a time.
class page_mapper {
public:
    /// Throws usage_error if there is no such device; cuda_error; std::bad_alloc.
    page_mapper(int device, std::size_t page_bytes) : memory_(device), page_bytes_(page_bytes) {}
    page_mapper(page_mapper const&) = delete;
    page_mapper& operator=(page_mapper const&) = delete;
    /// No work may use any page.
    ~page_mapper() {
        table_.visit([this](std::size_t address) { take_away(address); });
        for (std::size_t const each : stuck_)
            take_away(each);
    }

    upstream::virtual_memory<>& memory() noexcept { return memory_; }
    upstream::virtual_memory<> const& memory() const noexcept { return memory_; }
    page_table& table() noexcept { return table_; }

    /// Makes those pages ready whose last use is over. Never blocks. Throws cuda_error.
    void poll() {
        if (table_.returned_count() == 0)
            return;
        runtime::capture_mode_scope const relaxed;
        table_.poll();
    }

    /// Makes room, so that 'move', 'make' and what they leave behind never allocate. Throws std::bad_alloc.
    void make_room() {
        table_.make_room();
        stuck_.reserve_more(1);
    }

    /// Maps a ready page behind `address` of `to`, which owns it then. False if CUDA refused, or the host has no memory.
    bool move(page_table::number ready, std::size_t address, span& to) noexcept {
        span& home = table_.home_of(ready);
        if (!memory_.remap(pointer(table_.address_of(ready)), page_bytes_, pointer(address))) {
            clear(address);
            return false;
        }
        table_.move(ready, address, to);
        forget_if_empty(home);
        return true;
    }

    /// Makes a page behind `address` of `to`, which owns it. False if the device has no room. Throws cuda_error,
    /// std::bad_alloc.
    bool make(std::size_t address, span& to) {
        try {
            if (memory_.restore(pointer(address), page_bytes_))
                return table_.add(address, to), true;
        } catch (...) {
            clear(address);
            throw;
        }
        clear(address);
        return false;
    }

    /// The owner does not keep the page behind `address` after all. If it was made for that, it goes back to the device, unless
    /// CUDA refuses.
    void undo(std::size_t address) noexcept {
        page_table::number const at = table_.find(address);
        if (table_.disown(at))
            static_cast<void>(drop(at));
    }

    /// Gives a ready page back to the device. False if CUDA refused.
    bool drop(page_table::number ready) noexcept {
        span& home = table_.home_of(ready);
        if (!memory_.withdraw(pointer(table_.address_of(ready)), page_bytes_))
            return false;
        table_.remove(ready);
        forget_if_empty(home);
        return true;
    }

    /// Whether memory is behind `address` that CUDA refused to take away.
    bool is_stuck(std::size_t address) const noexcept {
        for (std::size_t const each : stuck_)
            if (each == address)
                return true;
        return false;
    }
    /// Tries that again for each address.
    void release_stuck() noexcept {
        for (std::size_t i = stuck_.size(); i-- > 0;)
            if (memory_.withdraw(pointer(stuck_[i]), page_bytes_))
                stuck_.erase(stuck_.begin() + i);
    }

    /// A span of `bytes` bytes for a new vector: one that has ended, with pages that no work uses, or a new one. Null if the
    /// process has no addresses left, or the device cannot map memory. `live`: how many vectors there are. Throws cuda_error,
    /// std::bad_alloc.
    base::shared<span> open(std::size_t bytes, std::size_t live) {
        ended_.reserve_more(live + 1); // so that 'close' never allocates
        base::shared<span> found = take_ended(bytes);
        if (found)
            return found;
        found = base::shared<span>::make();
        void* at = memory_.take_addresses(bytes);
        if (!at && empty_ended())
            at = memory_.take_addresses(bytes);
        if (!at)
            return {};
        found->addresses = base::range{reinterpret_cast<std::size_t>(at), bytes};
        return found;
    }
    /// The span's vector has ended, and given back its pages.
    void close(base::shared<span> const& ended) noexcept {
        ended->ended = true;
        if (ended->pages == 0)
            abandon(*ended);
        else
            ended_.push_back(ended);
    }

private:
    static void* pointer(std::size_t address) noexcept { return reinterpret_cast<void*>(address); }

    // After a failure there may still be memory behind `address`.
    void clear(std::size_t address) noexcept {
        if (!memory_.withdraw(pointer(address), page_bytes_))
            stuck_.push_back(address); // see 'make_room'
    }
    void take_away(std::size_t address) noexcept {
        base::try_twice([&] { return memory_.withdraw(pointer(address), page_bytes_); });
    }

    void abandon(span const& ended) noexcept { memory_.abandon(pointer(ended.addresses.offset), ended.addresses.bytes); }
    void forget_if_empty(span& home) noexcept {
        if (!home.ended || home.pages != 0)
            return;
        abandon(home);
        std::size_t at = 0;
        while (&*ended_[at] != &home)
            ++at;
        ended_.erase(ended_.begin() + at);
    }

    base::shared<span> take_ended(std::size_t bytes) {
        bool has_polled = false;
        for (std::size_t i = ended_.size(); i-- > 0;) {
            if (ended_[i]->addresses.bytes != bytes)
                continue;
            if (ended_[i]->returned != 0 && !has_polled)
                poll(), has_polled = true;
            if (ended_[i]->returned != 0)
                continue;
            base::shared<span> found = ended_[i];
            ended_.erase(ended_.begin() + i);
            found->ended = false;
            return found;
        }
        return {};
    }

    // Gives the memory of ended spans back to the device, and their addresses. Whether there were any.
    bool empty_ended() {
        poll();
        std::size_t const before = ended_.size();
        for (std::size_t i = ended_.size(); i-- > 0;) {
            base::shared<span> const each = ended_[i];
            std::size_t at = each->addresses.offset;
            while (each->returned == 0 && each->pages != 0 && (table_.find(at) == page_table::none || drop(table_.find(at))))
                at += page_bytes_;
        }
        return ended_.size() != before;
    }

    upstream::virtual_memory<> memory_;
    std::size_t page_bytes_;
    page_table table_;
    base::growing_array<std::size_t> stuck_; // addresses of pages; mapped only because CUDA refused to unmap them
    base::growing_array<base::shared<span>> ended_; // in which pages are
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
