// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are pages made, moved behind other addresses, and given back to the device?
//
// Each of these is a few calls of the driver, of which any may fail. Then the memory that was mapped is unmapped again. If CUDA
// refuses even that, the addresses are noted as stuck: nothing else is put there before they can be cleared. Making and moving
// have two halves: all pages that a vector needs are put behind its addresses first ('begin_...'), and opened to the devices
// together then ('finish'), so that pages side by side cost one call for that. A span whose vector has ended stays here while
// pages are behind its addresses. It goes to the next vector of the same size, pages and all, or its addresses become free when
// its last page has left.
//
// invariant: what fails changes no page: a page leaves its addresses only when the new ones are open. An address that is stuck
//            has no page of the table's.
// order:     one thread at a time, except for 'memory', whose members any thread may call.
// cost:      a page: cuMemCreate, or two calls that name its memory anew; cuMemMap, and cuMemRelease. Each row of pages side by
//            side: one cuMemSetAccess where it comes, and one cuMemUnmap where it was. A walk over the ended spans for each
//            vector that begins.
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

    /// Makes room, so that the next 'begin_...' and what it leaves behind never allocate. Throws std::bad_alloc.
    void make_room() {
        table_.make_room();
        begun_.reserve_more(1);
        stuck_.reserve_more(begun_.size() + 1);
    }

    /// Maps a ready page behind `address` of `to`, too, which owns it after 'finish'. False if CUDA refused, or the host has no
    /// memory.
    bool begin_move(page_table::number ready, std::size_t address, span& to) noexcept {
        if (!memory_.place_again(pointer(table_.address_of(ready)), page_bytes_, pointer(address)))
            return false;
        table_.own(ready); // so that nobody else gets it
        begun_.push_back(change{ready, address, &to});
        return true;
    }
    /// Makes a page behind `address` of `to`, which may use it after 'finish'. False if the device has no room. Throws
    /// cuda_error, std::bad_alloc.
    bool begin_make(std::size_t address, span& to) {
        if (!memory_.place(pointer(address), page_bytes_))
            return false;
        table_.add(address, to);
        begun_.push_back(change{table_.find(address), address, nullptr});
        return true;
    }
    bool has_begun() const noexcept { return !begun_.empty(); }

    /// What came of 'finish'.
    enum class outcome : unsigned char {
        done,
        some_stayed, ///< CUDA refused to take some of the pages away from where they were; these are ready there
        no_room      ///< the device refused to open the pages: all was undone
    };
    /// Opens what was begun, pages side by side by one call, and takes those that move away from where they were. Throws
    /// cuda_error; all that was begun is undone then.
    outcome finish() {
        try {
            for (std::size_t i = 0, end = 0; i != begun_.size(); i = end) {
                end = end_of_row(i);
                if (!memory_.open(pointer(begun_[i].address), (end - i) * page_bytes_))
                    return undo_begun(), outcome::no_room;
            }
        } catch (...) {
            undo_begun();
            throw;
        }
        outcome what = outcome::done;
        for (std::size_t i = 0, end = 0; i != begun_.size(); i = end)
            if (!leave_row(i, end = end_of_old_row(i)))
                what = outcome::some_stayed;
        begun_.clear();
        return what;
    }
    /// Unmaps what was begun. The pages that were to move are ready where they were.
    void undo_begun() noexcept {
        for (std::size_t i = 0, end = 0; i != begun_.size(); i = end) {
            end = end_of_row(i);
            bool const gone = memory_.withdraw(pointer(begun_[i].address), (end - i) * page_bytes_);
            for (std::size_t each = i; each != end; ++each) {
                if (!gone)
                    clear(begun_[each].address);
                if (begun_[each].to)
                    static_cast<void>(table_.disown(begun_[each].page));
                else
                    table_.remove(begun_[each].page);
            }
        }
        begun_.clear();
    }

    /// The owner does not keep a page after all. If it was made for that, it goes back to the device, unless CUDA refuses.
    void undo(page_table::number at) noexcept {
        if (table_.disown(at))
            static_cast<void>(drop(at));
    }

    /// Gives a ready page back to the device, with those beside it of the same span that are ready, too: `most` in all. False
    /// if CUDA refused.
    bool drop_row(page_table::number ready, std::size_t most) noexcept {
        span& home = table_.home_of(ready);
        std::size_t begin = table_.address_of(ready), end = begin + page_bytes_;
        auto const takes = [&](std::size_t beside) {
            return end - begin < most * page_bytes_ && table_.is_ready(table_.find(beside), home);
        };
        while (takes(begin - page_bytes_))
            begin -= page_bytes_;
        while (takes(end))
            end += page_bytes_;
        if (!memory_.withdraw(pointer(begin), end - begin))
            return end - begin != page_bytes_ && drop(ready);
        for (; begin != end; begin += page_bytes_)
            table_.remove(table_.find(begin));
        forget_if_empty(home);
        return true;
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
    struct change {
        page_table::number page;
        std::size_t address; // where it comes
        span* to;            // of that address; null: the page is made, and is there for the table
    };

    static void* pointer(std::size_t address) noexcept { return reinterpret_cast<void*>(address); }

    // Where the row of begun pages ends that starts with number `from` and comes side by side.
    std::size_t end_of_row(std::size_t from) const noexcept {
        std::size_t end = from + 1;
        while (end != begun_.size() && begun_[end].address == begun_[end - 1].address + page_bytes_)
            ++end;
        return end;
    }
    // The same for pages that move and are side by side where they are, in either direction; one that was made is alone.
    std::size_t end_of_old_row(std::size_t from) noexcept {
        std::size_t end = from + 1;
        if (end == begun_.size() || !begun_[from].to)
            return end;
        std::size_t const up = old_address(end) - old_address(from); // may be negative
        if (up != page_bytes_ && up + page_bytes_ != 0)
            return end;
        while (end != begun_.size() && begun_[end].to && old_address(end) - old_address(end - 1) == up &&
               &table_.home_of(begun_[end].page) == &table_.home_of(begun_[from].page))
            ++end;
        return end;
    }
    std::size_t old_address(std::size_t at) const noexcept { return table_.address_of(begun_[at].page); }

    // Takes such a row away from where it was. What CUDA refuses to take away stays there, and is ready. Whether all are away.
    bool leave_row(std::size_t from, std::size_t end) noexcept {
        if (!begun_[from].to)
            return true;
        std::size_t const first = old_address(from), last = old_address(end - 1);
        bool const gone = memory_.withdraw(pointer(first < last ? first : last), (end - from) * page_bytes_);
        bool all = true;
        for (; from != end; ++from) {
            change const& each = begun_[from];
            span& home = table_.home_of(each.page);
            if (gone || (first != last && memory_.withdraw(pointer(old_address(from)), page_bytes_))) {
                table_.move(each.page, each.address, *each.to);
                forget_if_empty(home);
            } else {
                clear(each.address);
                static_cast<void>(table_.disown(each.page));
                all = false;
            }
        }
        return all;
    }

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
            while (each->returned == 0 && each->pages != 0 &&
                   (table_.find(at) == page_table::none || drop_row(table_.find(at), each->pages)))
                at += page_bytes_;
        }
        return ended_.size() != before;
    }

    upstream::virtual_memory<> memory_;
    std::size_t page_bytes_;
    page_table table_;
    base::growing_array<change> begun_;      // in the order of their addresses
    base::growing_array<std::size_t> stuck_; // addresses of pages; mapped only because CUDA refused to unmap them
    base::growing_array<base::shared<span>> ended_; // in which pages are
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
