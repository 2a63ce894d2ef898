// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <doctest/doctest.h>
#include <iterator>
#include <map>
#include <new>
#include <random>
#include <support/failing_new.hpp>
#include <support/recorded_upstream.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <vector>
#include <weir/base/error.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/supply/held_chunks.hpp>

using support::recorded_upstream;
using support::upstream_ledger;
using weir::base::range;
using held = weir::supply::held_chunks<recorded_upstream<>, weir::base::no_lock>;

namespace {

// Says nothing of granularity, and its release never fails.
struct plain_upstream {
    static constexpr std::size_t alignment = 64;
    [[maybe_unused]] static constexpr weir::memory_space space = weir::memory_space::host;
    void* acquire(std::size_t bytes) { return ::operator new(bytes, std::align_val_t{alignment}); }
    void release(void* chunk, std::size_t) noexcept { ::operator delete(chunk, std::align_val_t{alignment}); }
};

constexpr std::size_t page = 4096;

// What an upstream that grows in place did and shall do. Nothing is behind its addresses: nobody touches them.
struct address_ledger {
    std::map<std::size_t, std::size_t> live; // pieces that are out
    std::size_t end = std::size_t{1} << 40;  // of the addresses that there are
    int calls = 0;
    int fail_at = 0; // the k-th piece from now on fails; 0: none
    bool throws = false;
    int refuse = 0;           // so many releases from now on are refused
    bool counts_only = false; // keeps no list, which would need memory
    std::size_t fresh = std::size_t{1} << 30;
};

class paged_upstream {
public:
    [[maybe_unused]] static constexpr std::size_t alignment = page;
    [[maybe_unused]] static constexpr weir::memory_space space = weir::memory_space::device;
    [[maybe_unused]] static constexpr std::size_t granularity = page;

    explicit paged_upstream(address_ledger& ledger) : ledger_(&ledger) {}

    bool extends() const noexcept { return true; }
    void* acquire(std::size_t bytes) { return acquire(bytes, bytes); }
    void* acquire(std::size_t bytes, std::size_t piece_bytes) {
        range const place{ledger_->fresh, bytes};
        if (!fill(place, piece_bytes))
            return nullptr;
        ledger_->fresh += bytes + 64 * page; // with room to extend
        return reinterpret_cast<void*>(place.offset);
    }
    bool extend(void* end, std::size_t bytes, std::size_t piece_bytes) {
        range const place{reinterpret_cast<std::size_t>(end), bytes};
        auto const next = ledger_->live.lower_bound(place.offset);
        if (bytes > ledger_->end - place.offset || (next != ledger_->live.end() && next->first < place.end()))
            return false;
        return fill(place, piece_bytes);
    }
    bool move(void* chunk, std::size_t bytes, void* to) noexcept {
        auto const at = reinterpret_cast<std::size_t>(to);
        auto const next = ledger_->live.lower_bound(at);
        if (ledger_->refuse > 0 || (next != ledger_->live.end() && next->first < at + bytes))
            return false;
        CHECK(ledger_->live.erase(reinterpret_cast<std::size_t>(chunk)) == 1);
        ledger_->live[at] = bytes;
        return true;
    }
    bool release(void* chunk, std::size_t bytes) noexcept {
        if (ledger_->refuse > 0) {
            --ledger_->refuse;
            return false;
        }
        if (ledger_->counts_only)
            return true;
        auto const found = ledger_->live.find(reinterpret_cast<std::size_t>(chunk));
        CHECK_MESSAGE(found != ledger_->live.end(), "a chunk came back that is not out");
        if (found == ledger_->live.end())
            return true;
        CHECK(found->second == bytes);
        ledger_->live.erase(found);
        return true;
    }

private:
    bool fill(range place, std::size_t piece_bytes) {
        ++ledger_->calls;
        CHECK(place.bytes != 0);
        if (ledger_->counts_only)
            return true;
        std::map<std::size_t, std::size_t> got;
        for (std::size_t at = 0; at < place.bytes; at += piece_bytes) {
            if (ledger_->fail_at > 0 && --ledger_->fail_at == 0) {
                if (ledger_->throws)
                    throw support::upstream_failure{};
                return false;
            }
            got[place.offset + at] = place.bytes - at < piece_bytes ? place.bytes - at : piece_bytes;
        }
        ledger_->live.insert(got.begin(), got.end());
        return true;
    }

    address_ledger* ledger_;
};

using growing = weir::supply::held_chunks<paged_upstream, weir::base::no_lock>;

std::map<std::size_t, std::size_t> contents(growing const& chunks) {
    std::map<std::size_t, std::size_t> found;
    for (range const& each : chunks.chunks())
        found[each.offset] = each.bytes;
    return found;
}

template <class Holdings, class = void>
inline constexpr bool can_extend = false;
template <class Holdings>
inline constexpr bool can_extend<Holdings, std::void_t<decltype(std::declval<Holdings&>().extend(1, 1, 1))>> =
    true;
template <class Holdings, class = void>
inline constexpr bool has_pieces = false;
template <class Holdings>
inline constexpr bool has_pieces<Holdings, std::void_t<decltype(std::declval<Holdings&>().acquire(1, 1))>> =
    true;

} // namespace

static_assert(!std::is_copy_constructible_v<held> && !std::is_copy_assignable_v<held>);
static_assert(held::granularity() == 4096);
static_assert(weir::supply::held_chunks<plain_upstream, weir::base::no_lock>::granularity() == 64); // its alignment

TEST_CASE("held_chunks: chunks are multiples of the upstream's granularity, or of its alignment") {
    std::size_t (*const of_pages)() noexcept = &held::granularity; // asked while the program runs
    std::size_t (*const of_plain)() noexcept = &weir::supply::held_chunks<plain_upstream, weir::base::no_lock>::granularity;
    CHECK(of_pages() == 4096);
    CHECK(of_plain() == 64);
}

TEST_CASE("held_chunks: holds what it acquired until it is released") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), SIZE_MAX);
    CHECK(chunks.size() == 0);
    CHECK(chunks.count() == 0);
    CHECK(chunks.bytes() == 0);
    range const a = chunks.acquire(8192);
    range const b = chunks.acquire(4096);
    CHECK(a.bytes == 8192);
    CHECK(chunks.bytes() == 12288);
    CHECK(chunks.size() == 2);
    CHECK(chunks[0] == b); // the smallest first
    CHECK(chunks[1] == a);
    CHECK(chunks.owns(a.offset));
    CHECK(chunks.owns(a.end() - 1));
    CHECK(chunks.release(a));
    CHECK_FALSE(chunks.owns(a.offset));
    CHECK(chunks.bytes() == 4096);
    CHECK(chunks.peak_bytes() == 12288);
    chunks.reset_peak();
    CHECK(chunks.peak_bytes() == 4096);
    CHECK(ledger.live.size() == 1);
}

TEST_CASE("held_chunks: everything goes back at the end") {
    upstream_ledger ledger;
    {
        held chunks(recorded_upstream<>(ledger), SIZE_MAX);
        for (std::size_t i = 1; i <= 20; ++i)
            CHECK(chunks.acquire(i * 4096));
        CHECK(ledger.live.size() == 20);
    }
    CHECK(ledger.live.empty());
    CHECK(ledger.returned.size() == 20);
}

TEST_CASE("held_chunks: the limit is exact, and the upstream is not asked beyond it") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), 5 * 4096);
    CHECK(chunks.limit_bytes() == 5 * 4096);
    CHECK(chunks.has_room(5 * 4096));
    CHECK_FALSE(chunks.has_room(5 * 4096 + 1));
    CHECK_FALSE(chunks.has_room(SIZE_MAX));
    CHECK_FALSE(chunks.acquire(6 * 4096));
    CHECK(ledger.asked.empty());
    range const a = chunks.acquire(3 * 4096);
    CHECK(chunks.acquire(2 * 4096));
    CHECK(chunks.has_room(0));
    CHECK_FALSE(chunks.has_room(1));
    CHECK_FALSE(chunks.acquire(4096));
    CHECK(ledger.asked.size() == 2);
    chunks.release(a);
    CHECK(chunks.has_room(3 * 4096));
    CHECK_FALSE(chunks.has_room(3 * 4096 + 1));
    CHECK(chunks.acquire(3 * 4096));
}

TEST_CASE("held_chunks: a limit of nothing holds nothing, and no limit holds the most there is") {
    upstream_ledger ledger;
    held none(recorded_upstream<>(ledger), 0);
    CHECK_FALSE(none.acquire(4096));
    CHECK_FALSE(none.has_room(1));
    held all(recorded_upstream<>(ledger), SIZE_MAX);
    CHECK(all.has_room(SIZE_MAX));
    CHECK(all.acquire(4096));
    CHECK_FALSE(all.has_room(SIZE_MAX));
    CHECK(all.has_room(SIZE_MAX - 4096));
}

TEST_CASE("held_chunks: where the upstream has no room or throws, nothing changes") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), SIZE_MAX);
    CHECK(chunks.acquire(4096));
    ledger.room_bytes = 4096;
    CHECK_FALSE(chunks.acquire(4096));
    ledger.room_bytes = SIZE_MAX;
    ledger.throw_at = 1;
    CHECK_THROWS_AS(chunks.acquire(4096), support::upstream_failure);
    CHECK(chunks.bytes() == 4096);
    CHECK(chunks.size() == 1);
    CHECK(chunks.acquire(4096));
    CHECK(chunks.bytes() == 8192);
}

TEST_CASE("held_chunks: a chunk that the upstream refuses is set aside, used by nobody, and offered again") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), 4 * 4096);
    range const a = chunks.acquire(2 * 4096);
    range const b = chunks.acquire(4096);
    ledger.refuse = 1;
    CHECK_FALSE(chunks.release(a));
    CHECK(chunks.size() == 1); // not to be used
    CHECK(chunks.count() == 2);
    CHECK_FALSE(chunks.owns(a.offset));
    CHECK(chunks.bytes() == 3 * 4096); // but held, within the limit
    CHECK_FALSE(chunks.acquire(2 * 4096));
    ledger.refuse = 1;
    CHECK_FALSE(chunks.offer_again());
    CHECK(chunks.bytes() == 3 * 4096);
    CHECK(chunks.offer_again());
    CHECK(chunks.bytes() == 4096);
    CHECK(chunks.count() == 1);
    CHECK_FALSE(chunks.offer_again()); // nothing is left to offer
    CHECK(chunks.acquire(2 * 4096));
    CHECK(chunks.release(b));
}

TEST_CASE("held_chunks: of several that were refused, each is offered") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), SIZE_MAX);
    std::vector<range> all;
    for (std::size_t i = 1; i <= 6; ++i)
        all.push_back(chunks.acquire(i * 4096));
    ledger.refuse = 6;
    for (range const& each : all)
        CHECK_FALSE(chunks.release(each));
    CHECK(chunks.count() == 6);
    ledger.refuse = 2;
    CHECK(chunks.offer_again()); // two are refused once more, four are taken
    CHECK(chunks.refused_bytes() == chunks.bytes());
    CHECK(chunks.count() == 2);
    CHECK(chunks.offer_again());
    CHECK(chunks.count() == 0);
    CHECK(chunks.bytes() == 0);
}

TEST_CASE("held_chunks: what is refused at the end is offered once more") {
    for (int refusals = 0; refusals <= 3; ++refusals) {
        upstream_ledger ledger;
        {
            held chunks(recorded_upstream<>(ledger), SIZE_MAX);
            for (int i = 0; i < 3; ++i)
                CHECK(chunks.acquire(4096));
            ledger.refuse = refusals;
        }
        CHECK(ledger.live.empty());
    }
}

TEST_CASE("held_chunks: an upstream whose release answers nothing takes everything") {
    weir::supply::held_chunks<plain_upstream, weir::base::no_lock> chunks(plain_upstream{}, SIZE_MAX);
    range const a = chunks.acquire(64);
    CHECK(chunks.release(a));
    CHECK(chunks.bytes() == 0);
    CHECK(chunks.acquire(128));
    CHECK(chunks.upstream().alignment == 64);
}

TEST_CASE("held_chunks: a chunk moves behind another, and is held there") {
    address_ledger ledger;
    growing chunks(paged_upstream(ledger), 8 * page);
    range const all = chunks.acquire(6 * page, 2 * page);
    std::size_t const end = all.end();
    range const middle{all.offset + 2 * page, 2 * page};
    CHECK(chunks.move(middle, end));
    CHECK(chunks.bytes() == 6 * page);
    CHECK(chunks.size() == 3);
    CHECK_FALSE(chunks.owns(middle.offset));
    CHECK(chunks.owns(end));
    CHECK(chunks.owns(end + 2 * page - 1));
    CHECK(ledger.live == contents(chunks));
    // Refused: it is where it was.
    ledger.refuse = 1;
    CHECK_FALSE(chunks.move(range{end, 2 * page}, middle.offset));
    CHECK(ledger.live == contents(chunks));
    ledger.refuse = 0;
    CHECK_FALSE(chunks.move(range{all.offset, 2 * page}, end)); // taken
    CHECK(chunks.move(range{end, 2 * page}, middle.offset));
    CHECK(ledger.live == contents(chunks));
    CHECK(chunks.release(middle));
}

TEST_CASE("held_chunks: any thread may ask while one acquires and releases") {
    upstream_ledger ledger;
    weir::supply::held_chunks<recorded_upstream<>, weir::base::spin_lock> chunks(recorded_upstream<>(ledger), 64 * 4096);
    range const kept = chunks.acquire(4096);
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> crew;
    for (int t = 0; t < 2; ++t)
        crew.emplace_back([&] {
            while (!over.load()) {
                if (!chunks.owns(kept.offset) || chunks.owns(1))
                    wrong.fetch_add(1);
                std::size_t const bytes = chunks.bytes();
                if (bytes < 4096 || bytes > 64 * 4096 || chunks.count() < 1)
                    wrong.fetch_add(1);
            }
        });
    std::mt19937_64 draw(9);
    std::vector<range> live;
    for (int step = 0; step < 3000; ++step) {
        if (live.empty() || draw() % 2 == 0) {
            if (range const chunk = chunks.acquire((draw() % 4 + 1) * 4096))
                live.push_back(chunk);
        } else {
            std::swap(live[draw() % live.size()], live.back());
            chunks.release(live.back());
            live.pop_back();
        }
    }
    over.store(true);
    for (std::thread& each : crew)
        each.join();
    CHECK(wrong.load() == 0);
    CHECK(chunks.count() == live.size() + 1);
}

TEST_CASE("held_chunks: where the host has no memory for the lists, nothing is acquired, and releasing needs none") {
    if (!support::host_memory_can_fail)
        return;
    for (long k = 0;; ++k) {
        upstream_ledger ledger;
        held chunks(recorded_upstream<>(ledger), SIZE_MAX);
        CHECK(chunks.acquire(4096));
        bool failed = false;
        try {
            ledger.asked.reserve(100); // the test's own memory is there
            support::failing_new const fails(k);
            static_cast<void>(chunks.acquire(8192));
        } catch (std::bad_alloc const&) {
            failed = true;
        }
        CHECK(chunks.count() == (failed ? 1 : 2));
        CHECK(chunks.bytes() == (failed ? 4096 : 12288));
        CHECK(ledger.live.size() == chunks.count());
        if (!failed)
            break;
    }
    weir::supply::held_chunks<plain_upstream, weir::base::no_lock> chunks(plain_upstream{}, SIZE_MAX);
    range const one = chunks.acquire(64), two = chunks.acquire(128);
    support::failing_new const fails(0);
    CHECK(chunks.release(two));
    CHECK(chunks.release(one));
}

TEST_CASE("held_chunks: no bytes are no chunk") {
    upstream_ledger ledger;
    held chunks(recorded_upstream<>(ledger), SIZE_MAX);
    CHECK_FALSE(chunks.acquire(0));
    CHECK(ledger.asked.empty());
    address_ledger addresses;
    growing grown(paged_upstream(addresses), SIZE_MAX);
    CHECK_FALSE(grown.acquire(0));
    CHECK_FALSE(grown.acquire(0, page));
    range const one = grown.acquire(page);
    CHECK_FALSE(grown.extend(one.end(), 0, page));
    CHECK(grown.size() == 1);
}

TEST_CASE("held_chunks: only where the upstream can are there pieces") {
    static_assert(can_extend<growing> && !can_extend<held>);
    static_assert(has_pieces<growing> && !has_pieces<held>);
}

TEST_CASE("held_chunks: chunks are acquired in pieces side by side, the last one with the rest") {
    for (std::size_t pages = 1; pages <= 12; ++pages)
        for (std::size_t piece = 1; piece <= 13; ++piece) {
            CAPTURE(pages);
            CAPTURE(piece);
            address_ledger ledger;
            growing chunks(paged_upstream(ledger), SIZE_MAX);
            range const all = chunks.acquire(pages * page, piece * page);
            CHECK(all.bytes == pages * page);
            CHECK(chunks.bytes() == all.bytes);
            CHECK(chunks.size() == (pages + piece - 1) / piece);
            CHECK(chunks.count() == chunks.size());
            std::size_t at = all.offset;
            for (range const& each : chunks.chunks()) {
                CHECK(each.offset == at);
                CHECK(each.bytes == std::min(piece * page, all.end() - at));
                at = each.end();
            }
            CHECK(at == all.end());
            CHECK(ledger.live == contents(chunks)); // as the upstream sees it
            CHECK(chunks.owns(all.offset));
            CHECK(chunks.owns(all.end() - 1));
            CHECK_FALSE(chunks.owns(all.end()));
        }
}

TEST_CASE("held_chunks: a chunk is extended right behind its end, and nowhere else") {
    address_ledger ledger;
    growing chunks(paged_upstream(ledger), SIZE_MAX);
    range const a = chunks.acquire(4 * page, 4 * page);
    range const more = chunks.extend(a.end(), 5 * page, 2 * page);
    CHECK(more == range{a.end(), 5 * page});
    CHECK(chunks.size() == 4);
    CHECK(chunks.bytes() == 9 * page);
    CHECK(ledger.live == contents(chunks));
    CHECK_FALSE(chunks.extend(a.end(), page, page)); // something is there
    CHECK_FALSE(chunks.extend(a.offset, page, page));
    ledger.end = more.end() + 2 * page;
    CHECK_FALSE(chunks.extend(more.end(), 3 * page, page)); // no addresses
    CHECK(chunks.bytes() == 9 * page);
    CHECK(chunks.size() == 4);
    CHECK(chunks.extend(more.end(), 2 * page, page));
    // A piece in the middle goes, and its place is filled again.
    range const middle{more.offset + 2 * page, 2 * page};
    CHECK(chunks.release(middle));
    CHECK_FALSE(chunks.owns(middle.offset));
    CHECK_FALSE(chunks.extend(middle.offset, 3 * page, page));
    CHECK(chunks.extend(middle.offset, 2 * page, 8 * page) == middle); // in one piece
    CHECK(chunks.bytes() == 11 * page);
    CHECK(ledger.live == contents(chunks));
}

TEST_CASE("held_chunks: all pieces together are within the limit") {
    address_ledger ledger;
    growing chunks(paged_upstream(ledger), 8 * page);
    CHECK_FALSE(chunks.acquire(9 * page, page));
    CHECK(ledger.calls == 0);
    range const a = chunks.acquire(5 * page, page);
    CHECK(a);
    CHECK_FALSE(chunks.acquire(4 * page, page));
    CHECK_FALSE(chunks.extend(a.end(), 4 * page, page));
    CHECK_FALSE(chunks.acquire(SIZE_MAX & ~(page - 1), page)); // nor does anything wrap
    CHECK_FALSE(chunks.extend(a.end(), SIZE_MAX & ~(page - 1), page));
    CHECK(ledger.calls == 1);
    CHECK(chunks.extend(a.end(), 3 * page, page));
    CHECK(chunks.bytes() == 8 * page);
    CHECK_FALSE(chunks.has_room(1));
    CHECK_FALSE(chunks.acquire(page, page));
    // What is set aside counts as held.
    ledger.refuse = 1;
    CHECK_FALSE(chunks.release(chunks[0]));
    CHECK_FALSE(chunks.acquire(page, page));
    CHECK(chunks.offer_again());
    CHECK(chunks.acquire(page, page));
}

TEST_CASE("held_chunks: where a piece finds no room, or throws, nothing is held that was not before") {
    for (bool const throws : {false, true})
        for (bool const extends : {false, true})
            for (int k = 1; k <= 6; ++k) {
                CAPTURE(throws);
                CAPTURE(extends);
                CAPTURE(k);
                address_ledger ledger;
                growing chunks(paged_upstream(ledger), SIZE_MAX);
                range const a = chunks.acquire(3 * page, page);
                auto const before = contents(chunks);
                auto const grow = [&] {
                    return extends ? chunks.extend(a.end(), 9 * page, 2 * page)
                                   : chunks.acquire(9 * page, 2 * page);
                };
                ledger.fail_at = k;
                ledger.throws = throws;
                bool const fails = k <= 5; // pieces
                if (fails && throws)
                    CHECK_THROWS_AS(grow(), support::upstream_failure);
                else
                    CHECK(bool(grow()) == !fails);
                if (fails) {
                    CHECK(contents(chunks) == before);
                    CHECK(chunks.bytes() == 3 * page);
                    CHECK(chunks.count() == 3);
                    ledger.fail_at = 0;
                    CHECK(grow());
                }
                CHECK(chunks.bytes() == 12 * page);
                CHECK(chunks.count() == 8);
                CHECK(ledger.live == contents(chunks));
            }
}

TEST_CASE("held_chunks: gives back just the chunks that lie within, and sets aside those that are refused") {
    for (int refused = 0; refused <= 4; ++refused) {
        CAPTURE(refused);
        address_ledger ledger;
        growing chunks(paged_upstream(ledger), SIZE_MAX);
        range const all = chunks.acquire(10 * page, 2 * page);
        range const apart = chunks.acquire(2 * page, page);
        ledger.refuse = refused;
        chunks.release_within({all.offset + 2 * page, 6 * page});
        int const kept = std::min(refused, 3);
        CHECK(chunks.size() == 4);
        CHECK(chunks.owns(all.offset));
        CHECK_FALSE(chunks.owns(all.offset + 2 * page));
        CHECK_FALSE(chunks.owns(all.offset + 8 * page - 1));
        CHECK(chunks.owns(all.offset + 8 * page));
        CHECK(chunks.owns(apart.offset));
        CHECK(chunks.refused_bytes() == static_cast<std::size_t>(kept) * 2 * page);
        CHECK(chunks.bytes() == 6 * page + chunks.refused_bytes());
        ledger.refuse = 0;
        CHECK(chunks.offer_again() == (kept != 0));
        CHECK(chunks.bytes() == 6 * page);
        CHECK(ledger.live == contents(chunks));
    }
}

TEST_CASE("held_chunks: chunks that lie within only in part stay") {
    address_ledger ledger;
    growing chunks(paged_upstream(ledger), SIZE_MAX);
    range const all = chunks.acquire(8 * page, 2 * page);
    for (range const within : {range{all.offset, 0}, range{all.offset, 2 * page - 1},
                               range{all.offset + 1, 2 * page}, range{all.offset + page, 2 * page},
                               range{all.end(), 8 * page}, range{0, page}, range{SIZE_MAX - page, page}}) {
        chunks.release_within(within);
        CHECK(chunks.bytes() == 8 * page);
    }
    chunks.release_within({all.offset + page, 4 * page}); // the second one alone
    CHECK(chunks.size() == 3);
    CHECK_FALSE(chunks.owns(all.offset + 2 * page));
    chunks.release_within({0, all.end() - 1}); // behind a hole as well: all but the last
    CHECK(chunks.size() == 1);
    CHECK(chunks.owns(all.offset + 6 * page));
    chunks.release_within({0, SIZE_MAX});
    CHECK(chunks.size() == 0);
    CHECK(chunks.bytes() == 0);
    chunks.release_within({0, SIZE_MAX});
}

TEST_CASE("held_chunks: pieces agree with what the upstream has out, whatever fails") {
    for (unsigned seed = 0; seed < 8; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 draw(seed);
        address_ledger ledger;
        std::size_t const limit = (40 + draw() % 100) * page;
        {
            growing chunks(paged_upstream(ledger), limit);
            std::map<std::size_t, std::size_t> usable; // as it should be
            std::map<std::size_t, std::size_t> aside;
            auto const note = [&](range got, std::size_t piece) {
                for (std::size_t at = 0; at < got.bytes; at += piece)
                    usable[got.offset + at] = std::min(piece, got.bytes - at);
            };
            auto const gone = [&](range chunk) { // released
                usable.erase(chunk.offset);
                if (ledger.live.count(chunk.offset) != 0)
                    aside[chunk.offset] = chunk.bytes;
            };
            for (int step = 0; step < 2500; ++step) {
                std::size_t const bytes = (1 + draw() % 20) * page;
                std::size_t const piece = (1 + draw() % 8) * page;
                ledger.fail_at = draw() % 6 == 0 ? 1 + static_cast<int>(draw() % 4) : 0;
                ledger.throws = draw() % 2 == 0;
                ledger.refuse = draw() % 5 == 0 ? static_cast<int>(draw() % 3) : 0;
                std::size_t const what = draw() % 10;
                if (what < 4) {
                    try {
                        bool const at_end = draw() % 2 == 0 && chunks.size() != 0;
                        if (at_end) {
                            std::size_t const end = chunks[draw() % chunks.size()].end();
                            range const got = chunks.extend(end, bytes, piece);
                            CHECK((!got || got == range{end, bytes}));
                            note(got, piece);
                        } else {
                            note(chunks.acquire(bytes, piece), piece);
                        }
                    } catch (support::upstream_failure const&) {
                    }
                } else if (what < 7 && chunks.size() != 0) {
                    range const chunk = chunks[draw() % chunks.size()];
                    bool const taken = chunks.release(chunk);
                    CHECK(taken == (ledger.live.count(chunk.offset) == 0));
                    gone(chunk);
                } else if (what < 8 && chunks.size() != 0) {
                    range const from = chunks.chunks().begin()[draw() % chunks.size()];
                    range const within{from.offset - draw() % 2 * page, (1 + draw() % 12) * page};
                    std::vector<range> inside;
                    for (auto const& each : usable)
                        if (within.contains(range{each.first, each.second}))
                            inside.push_back({each.first, each.second});
                    chunks.release_within(within);
                    for (range const& each : inside)
                        gone(each);
                } else if (what < 9) {
                    std::size_t const before = aside.size();
                    bool const any = chunks.offer_again();
                    for (auto each = aside.begin(); each != aside.end();)
                        each = ledger.live.count(each->first) == 0 ? aside.erase(each) : std::next(each);
                    CHECK(any == (aside.size() != before));
                }
                std::size_t sum = 0, refused = 0;
                for (auto const& each : usable)
                    sum += each.second;
                for (auto const& each : aside)
                    refused += each.second;
                REQUIRE(contents(chunks) == usable);
                REQUIRE(chunks.refused_bytes() == refused);
                REQUIRE(chunks.bytes() == sum + refused);
                REQUIRE(chunks.bytes() <= limit);
                REQUIRE(chunks.count() == usable.size() + aside.size());
                REQUIRE(ledger.live.size() == chunks.count());
            }
            ledger.refuse = 3;
        }
        CHECK(ledger.live.empty());
    }
}

TEST_CASE(
    "held_chunks: where the host has no memory for the lists, no piece is acquired, and releasing needs none") {
    if (!support::host_memory_can_fail)
        return;
    for (bool const extends : {false, true})
        for (std::size_t const pieces : {1u, 2u, 3u, 8u, 33u}) {
            CAPTURE(extends);
            CAPTURE(pieces);
            for (long k = 0;; ++k) {
                address_ledger ledger;
                ledger.counts_only = true; // the test's own lists need memory, too
                growing chunks(paged_upstream(ledger), SIZE_MAX);
                range const a = chunks.acquire(2 * page, page);
                int const calls = ledger.calls;
                bool failed = false;
                try {
                    support::failing_new const fails(k);
                    if (extends)
                        static_cast<void>(chunks.extend(a.end(), pieces * page, page));
                    else
                        static_cast<void>(chunks.acquire(pieces * page, page));
                } catch (std::bad_alloc const&) {
                    failed = true;
                }
                CHECK(chunks.count() == (failed ? 2 : 2 + pieces));
                CHECK(chunks.bytes() == (failed ? 2 : 2 + pieces) * page);
                CHECK(ledger.calls == (failed ? calls : calls + 1));
                ledger.refuse = 1000;
                support::failing_new const fails(0);
                chunks.release_within({0, SIZE_MAX}); // all are set aside
                CHECK(chunks.size() == 0);
                CHECK(chunks.refused_bytes() == chunks.bytes());
                ledger.refuse = 0;
                CHECK(chunks.offer_again());
                if (!failed)
                    break;
                CHECK(k < 3);
            }
        }
}

TEST_CASE("held_chunks: ask once what their upstream can ever have, and again only while it does not know") {
    struct bounded : plain_upstream {
        explicit bounded(int& asked) : asked_(&asked) {}
        std::size_t most_bytes() const noexcept { return ++*asked_ < 3 ? SIZE_MAX : 5 * page; }
        int* asked_;
    };
    int asked = 0;
    weir::supply::held_chunks<bounded, weir::base::no_lock> const here(bounded(asked), SIZE_MAX);
    CHECK(here.most_bytes() == weir::base::most_addresses);
    CHECK(here.most_bytes() == weir::base::most_addresses);
    for (int i = 0; i < 3; ++i)
        CHECK(here.most_bytes() == 5 * page);
    CHECK(asked == 3);
    weir::supply::held_chunks<plain_upstream, weir::base::no_lock> const silent(plain_upstream{}, page);
    CHECK(silent.most_bytes() == weir::base::most_addresses);
    CHECK(silent.addresses_behind(page) == SIZE_MAX - page);
    CHECK_FALSE(silent.out_of_addresses());
}

TEST_CASE("held_chunks: pass on which addresses their upstream has") {
    struct narrow : plain_upstream {
        bool extends() const noexcept { return true; } // by which it is known
        std::size_t addresses_behind(void const* end) const noexcept { return 9 * page - reinterpret_cast<std::size_t>(end); }
        bool out_of_addresses() const noexcept { return true; }
    };
    weir::supply::held_chunks<narrow, weir::base::no_lock> const here(narrow{}, page);
    CHECK(here.addresses_behind(7 * page) == 2 * page);
    CHECK(here.out_of_addresses());
}

TEST_CASE("held_chunks: a chunk that is less aligned than its upstream promises goes back, and is told from a lack of room") {
    struct misaligned : recorded_upstream<> {
        explicit misaligned(upstream_ledger& ledger) : recorded_upstream<>(ledger) {}
        void* acquire(std::size_t bytes) {
            return static_cast<char*>(recorded_upstream<>::acquire(bytes)) + 256;
        }
        bool release(void* chunk, std::size_t bytes) noexcept {
            return recorded_upstream<>::release(static_cast<char*>(chunk) - 256, bytes);
        }
    };
    upstream_ledger ledger;
    weir::supply::held_chunks<misaligned, weir::base::no_lock> chunks(misaligned(ledger), SIZE_MAX);
    std::string const said =
        support::sentence_of<weir::usage_error>([&] { static_cast<void>(chunks.acquire(2 * page)); });
    CHECK_SAYS(said, "weir: the upstream (host memory) handed out a chunk at 0x");
    CHECK_SAYS(said, "which is no multiple of its 'alignment' of 4096; lower that constant, or let 'acquire' keep it");
    CHECK(ledger.live.empty());
    CHECK(chunks.bytes() == 0);
    CHECK(chunks.count() == 0);
}
