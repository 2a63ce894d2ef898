// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pages of physical memory are there, behind which addresses, and whose are they?
//
// Each page is behind addresses of some vector's span, from its making to its end. It is the vector's, or it was given back and
// is still where it was: 'returned' while work may use it, 'ready' when no work does. A ready page can be mapped elsewhere. The
// vector whose addresses these are can take back a page of either kind.
//
// invariant: an address has at most one page. A page is owned, or in exactly one of the two lists.
// invariant: a page that was given back in a capture and taken back by its vector goes nowhere else before that graph is gone.
// invariant: span.pages and span.returned are the numbers of its pages and of those in the list 'returned'.
// order:     one thread at a time.
// cost:      O(1) a call, but for 'poll', which walks the returned pages; 56 bytes of host memory a page.
// not for:   the driver's calls, which page_core makes.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/stable/page_pool/last_use.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

/// The addresses of one vector, and after its end those where its pages still are.
struct span {
    base::range addresses;
    std::size_t pages = 0;    ///< that are behind the addresses, owned or not
    std::size_t returned = 0; ///< of those: given back, and work may use them
    bool ended = false;
};

/// One thread at a time.
class page_table {
public:
    page_table() noexcept = default;
    page_table(page_table const&) = delete;
    page_table& operator=(page_table const&) = delete;

    /// The number of a page; 'none': there is no such page.
    using number = std::uint32_t;
    static constexpr number none = base::address_map::none;

    /// Makes room, so that the next call of 'add' does not throw. Throws std::bad_alloc.
    void make_room() {
        if (!spare_.empty())
            return;
        by_address_.reserve(pages_.size() + 1);
        spare_.reserve_more(pages_.size() + 1); // all of them may become spare
        pages_.push_back(page());
        spare_.push_back(static_cast<number>(pages_.size() - 1));
    }

    /// A fresh page, owned, behind `address` of `home`. Call 'make_room' first, and 'keep' or 'disown' afterwards.
    void add(std::size_t address, span& home) noexcept {
        number const at = spare_.back();
        spare_.pop_back();
        pages_[at].is_fresh = true;
        put(at, address, home);
        ++size_;
    }
    /// Forgets a ready page, whose memory is gone.
    void remove(number at) noexcept {
        own(at);
        leave(at);
        spare_.push_back(at);
        --size_;
    }
    /// A ready page is behind other addresses now, and owned. 'keep' or 'disown' must follow.
    void move(number at, std::size_t address, span& home) noexcept {
        own(at);
        leave(at);
        put(at, address, home);
    }

    /// The page behind `address`; none: there is none.
    number find(std::size_t address) const noexcept { return by_address_.find(address); }
    std::size_t address_of(number at) const noexcept { return pages_[at].address; }
    span& home_of(number at) noexcept { return *pages_[at].home; }

    /// Takes a page out of its list: it is owned then. 'keep' or 'disown' must follow.
    void own(number at) noexcept {
        page& each = pages_[at];
        if (each.in == &returned_)
            --each.home->returned;
        if (each.in)
            unlink(at);
    }
    /// The owner keeps the page. A graph that may use it is remembered for the next give-back.
    void keep(number at) noexcept {
        pages_[at].is_fresh = false;
        if (pages_[at].until && !pages_[at].until->is_of_graph())
            pages_[at].until = {};
    }
    /// The owner does not keep the page after all: it is in the list from which it was taken. Whether it was made for the
    /// owner: it is ready then.
    bool disown(number at) noexcept {
        bool const was_fresh = pages_[at].is_fresh;
        pages_[at].is_fresh = false;
        if (pages_[at].until)
            return_to_list(at);
        else
            make_ready(at);
        return was_fresh;
    }
    /// An owned page becomes returned: it is ready once `until` is over, and any graph that is remembered.
    /// `with_graph`: a record for that, which pages that are given back together share; none at first.
    void give_back(number at, base::shared<last_use> const& until, base::shared<last_use>& with_graph) noexcept {
        base::shared<last_use> const earlier = std::exchange(pages_[at].until, until);
        if (earlier && earlier->is_of_graph()) {
            if (!with_graph)
                with_graph = also_of_graph(until);
            with_graph->note_earlier(earlier);
            pages_[at].until = with_graph;
        }
        return_to_list(at);
    }
    /// An owned page becomes ready: no work uses it. One for which a graph is remembered only becomes returned: it stays where
    /// it is, so that its owner finds it there, and with it the graph.
    void give_ready(number at) noexcept {
        if (pages_[at].until && pages_[at].until->is_of_graph())
            return return_to_list(at);
        pages_[at].until = {};
        make_ready(at);
    }

    /// A ready page, if possible one of a span that has ended; none if there is none.
    number ready() const noexcept { return ready_.first; }
    /// The record of the returned page that has waited longest and can be waited for; none if there is none.
    base::shared<last_use> oldest() const noexcept {
        for (number at = returned_.first; at != none; at = pages_[at].next)
            if (!pages_[at].until->is_of_graph())
                return pages_[at].until;
        return {};
    }
    /// Makes those returned pages ready whose work is over. Never blocks. Throws cuda_error.
    void poll() {
        last_use const* running = nullptr;
        for (number at = returned_.first; at != none;) {
            number const next = pages_[at].next;
            base::shared<last_use> const until = pages_[at].until;
            if (&*until == running || !until->is_over()) {
                running = &*until;
            } else {
                own(at);
                pages_[at].until = {};
                make_ready(at);
            }
            at = next;
        }
    }
    /// How many of the returned pages nothing that can be waited for makes ready.
    std::size_t lost_count() const noexcept {
        std::size_t count = 0;
        for (number at = returned_.first; at != none; at = pages_[at].next)
            count += pages_[at].until->is_of_graph();
        return count;
    }

    /// How many pages there are, and of these how many are returned and how many are ready.
    std::size_t size() const noexcept { return size_; }
    std::size_t returned_count() const noexcept { return returned_.count; }
    std::size_t ready_count() const noexcept { return ready_.count; }

    /// Calls visit(address) for each page.
    template <class Visit>
    void visit(Visit const& visit) const {
        by_address_.visit([&](std::uint64_t address, number) { visit(static_cast<std::size_t>(address)); });
    }

private:
    struct page_list {
        number first = none;
        number last = none;
        std::size_t count = 0;
    };
    struct page {
        std::size_t address = 0;
        span* home = nullptr;
        page_list* in = nullptr; // null: it is owned
        base::shared<last_use> until;
        number previous = none;
        number next = none;
        bool is_fresh = false;
    };

    void put(number at, std::size_t address, span& home) noexcept {
        pages_[at].address = address;
        pages_[at].home = &home;
        ++home.pages;
        by_address_.insert(address, at); // there is room: see 'make_room'
    }
    void leave(number at) noexcept {
        by_address_.erase(pages_[at].address);
        --pages_[at].home->pages;
    }

    // A record that is over once `until` is, and to which graphs can be added that pages of `until` alone do not wait for. If
    // the host has no memory, it is that one itself, which then is never over.
    static base::shared<last_use> also_of_graph(base::shared<last_use> const& until) noexcept {
        base::shared<last_use> fresh;
        if (base::try_twice([&] { return fresh = base::shared<last_use>::make(), true; })) { // it waits for all devices
            fresh->note_earlier(until);
            return fresh;
        }
        until->note_graph(on_host);
        return until;
    }
    // An owned page becomes returned.
    void return_to_list(number at) noexcept {
        ++pages_[at].home->returned;
        link(at, returned_, false);
    }
    // An owned page becomes ready: no work uses it.
    void make_ready(number at) noexcept { link(at, ready_, pages_[at].home->ended); }

    void link(number at, page_list& into, bool first) noexcept {
        page& each = pages_[at];
        each.in = &into;
        each.previous = first ? none : into.last;
        each.next = first ? into.first : none;
        neighbour(each.previous, &page::next, into.first) = at;
        neighbour(each.next, &page::previous, into.last) = at;
        ++into.count;
    }
    void unlink(number at) noexcept {
        page& each = pages_[at];
        page_list& from = *each.in;
        neighbour(each.previous, &page::next, from.first) = each.next;
        neighbour(each.next, &page::previous, from.last) = each.previous;
        each.in = nullptr;
        --from.count;
    }
    // What names a page from its neighbour `at`; from the list's end where there is no neighbour.
    number& neighbour(number at, number page::*side, number& end) noexcept {
        return at == none ? end : pages_[at].*side;
    }

    base::growing_array<page> pages_;
    base::growing_array<number> spare_; // places in pages_ that no page has
    base::address_map by_address_;
    page_list returned_; // in the order in which they were given back
    page_list ready_;
    std::size_t size_ = 0;
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
