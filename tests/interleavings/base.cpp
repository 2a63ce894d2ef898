// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Small programs over what many threads use in base/.

#include "explore.hpp"

#include <array>
#include <cstdint>
#include <weir/base/shared.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/placement/best_fit/fence_set.hpp>
#include <weir/reuse/stream_ordered/lookup_table.hpp>
#include <weir/supply/held_chunks.hpp>

using interleavings::always;
using interleavings::choose;
using interleavings::explore;
using interleavings::require;
using interleavings::threads;
using interleavings::yield;

namespace {

/// A section in which there may be one thread.
struct section {
    int inside = 0;
    int passed = 0;
    void pass() {
        require(inside == 0, "two threads are in a section of one");
        ++inside;
        yield();
        --inside;
        ++passed;
    }
};

/// What a table points to: it knows its key.
struct thing {
    std::uint64_t key = 0;
};

/// Keys that look at the same slot of a table of 16 first: multiplied by lookup_table's factor, bits 32 to 35 agree.
template <std::size_t Count>
std::array<std::uint64_t, Count> colliding() {
    std::array<std::uint64_t, Count> keys{};
    std::size_t found = 0;
    for (std::uint64_t key = 16; found < Count; key += 16)
        if (((key * 0x9E3779B97F4A7C15u) >> 32 & 15) == 7)
            keys[found++] = key;
    return keys;
}

} // namespace

// ---- spin_lock ------------------------------------------------------------------------------------------------------

TEST_CASE("interleavings: spin_lock: two threads twice") {
    explore([] {
        weir::base::spin_lock lock;
        section only;
        auto const twice = [&] {
            for (int i = 0; i < 2; ++i) {
                weir::base::lock_guard<weir::base::spin_lock> const held(lock);
                only.pass();
            }
        };
        threads(twice, twice);
        require(only.passed == 4, "a thread did not pass");
        require(lock.try_lock(), "the lock is held by nobody");
    });
}

TEST_CASE("interleavings: spin_lock: three threads, one of which only tries") {
    explore([] {
        weir::base::spin_lock lock;
        section only;
        int tried = 0;
        auto const once = [&] {
            weir::base::lock_guard<weir::base::spin_lock> const held(lock);
            only.pass();
        };
        threads(once, once, [&] {
            for (int i = 0; i < 2; ++i)
                if (lock.try_lock()) {
                    only.pass();
                    ++tried;
                    lock.unlock();
                }
        });
        require(only.passed == 2 + tried, "a thread did not pass");
    });
}

// ---- lookup_table ---------------------------------------------------------------------------------------------------

TEST_CASE("interleavings: lookup_table: keys that share a slot are found while others are added") {
    explore([] {
        auto const keys = colliding<3>();
        thing things[3] = {{keys[0]}, {keys[1]}, {keys[2]}};
        weir::reuse::detail::lookup_table<thing> table;
        table.assign(keys[0], &things[0]);
        auto const read = [&] {
            bool seen[3] = {true, false, false};
            for (std::size_t i : {2u, 1u, 0u, 2u}) {
                thing const* const found = table.find(keys[i]);
                require(!found || found->key == keys[i], "the pointer of another key");
                require(found || !seen[i], "a key that was there is not");
                seen[i] |= found != nullptr;
            }
        };
        threads([&] { table.assign(keys[1], &things[1]), table.assign(keys[2], &things[2]); }, read, read);
        for (std::size_t i = 0; i < 3; ++i)
            require(table.find(keys[i]) == &things[i], "a key is lost");
    });
}

TEST_CASE("interleavings: lookup_table: what is there stays found while the table grows") {
    explore([] {
        thing things[10];
        weir::reuse::detail::lookup_table<thing> table;
        auto const add = [&](std::size_t i) {
            things[i].key = (i + 1) * 64;
            table.assign(things[i].key, &things[i]);
        };
        for (std::size_t i = 0; i < 7; ++i)
            add(i);
        auto const read = [&](std::size_t i, std::size_t fresh) {
            require(table.find((i + 1) * 64) == &things[i], "a key is lost as the table grows");
            thing const* const found = table.find((fresh + 1) * 64);
            require(!found || found == &things[fresh], "the pointer of another key");
            require(table.find((i + 1) * 64) == &things[i], "a key is lost as the table grows");
        };
        threads([&] { add(7), add(8); }, [&] { read(0, 7); }, [&] { read(6, 8); });
        for (std::size_t i = 0; i < 9; ++i)
            require(table.find((i + 1) * 64) == &things[i], "a key is lost");
    });
}

TEST_CASE("interleavings: lookup_table: while dead keys are dropped a reader may miss, and then all are there again") {
    explore([] {
        thing things[4];
        weir::reuse::detail::lookup_table<thing> table;
        auto const add = [&](std::size_t i) {
            things[i].key = (i + 1) * 64;
            table.assign(things[i].key, &things[i]);
        };
        add(0), add(1);
        auto const come_and_go = [&](std::size_t dead) {
            table.assign(dead * 64, &things[3]);
            table.assign(dead * 64, nullptr);
        };
        for (std::size_t dead = 100; dead < 104; ++dead)
            come_and_go(dead);
        std::size_t const before = table.bookkeeping_bytes();
        auto const read = [&](std::size_t i) {
            thing const* const found = table.find((i + 1) * 64);
            require(!found || found == &things[0] || found == &things[1] || found == &things[2], "a pointer that nobody gave");
        };
        threads([&] { come_and_go(104), add(2); }, [&] { read(0); }, [&] { read(1); });
        require(table.bookkeeping_bytes() == before, "the table grew");
        for (std::size_t i = 0; i < 3; ++i)
            require(table.find((i + 1) * 64) == &things[i], "a key is lost");
    });
}

TEST_CASE("interleavings: lookup_table: a key gets other pointers, and readers see them in that order") {
    explore([] {
        thing a{48}, b{48};
        weir::reuse::detail::lookup_table<thing> table;
        for (std::uint64_t other = 1; other <= 6; ++other)
            table.assign(other << 20, &a);
        table.assign(48, &a);
        // At first a, then nothing (the table may grow without the key), then b, then a again.
        auto const moment_of = [&](thing const* found, int last) {
            return found == &b ? 2 : !found ? 1 : last == 0 ? 0 : 3;
        };
        auto const read = [&] {
            for (int i = 0, last = 0; i < 3; ++i) {
                int const now = moment_of(table.find(48), last);
                require(now >= last, "an earlier pointer is back");
                last = now;
            }
        };
        threads(
            [&] {
                table.assign(48, nullptr);
                table.assign(7u << 20, &a); // grows
                table.assign(48, &b);
                table.assign(48, &a);
            },
            read);
        require(table.find(48) == &a, "the last pointer is lost");
    });
}

// ---- shared ---------------------------------------------------------------------------------------------------------

namespace {

/// Knows whether it lives, and counts its ends.
struct mortal {
    explicit mortal(int& ends) : ends_(ends) {}
    mortal(mortal const&) = delete;
    ~mortal() { ++ends_; }
    void use() { uses.fetch_add(1, std::memory_order_relaxed); }
    weir::base::atomic<int> uses{0};

private:
    int& ends_;
};

} // namespace

TEST_CASE("interleavings: shared: the last owner of three ends the object, and no other") {
    explore([] {
        int ends = 0;
        auto first = weir::base::shared<mortal>::make(ends);
        auto second = first;
        auto third = first;
        auto const drop = [&](weir::base::shared<mortal>& own) {
            own->use();
            own = weir::base::shared<mortal>();
        };
        threads([&] { drop(first); }, [&] { drop(second); }, [&] { drop(third); });
        require(ends == 1, "the object did not end once");
    });
}

TEST_CASE("interleavings: shared: copies against releases, and another object in the place of the first") {
    explore([] {
        int ends = 0, other_ends = 0;
        auto first = weir::base::shared<mortal>::make(ends);
        auto second = first;
        threads(
            [&] {
                auto copy = first;
                first = weir::base::shared<mortal>();
                require(ends == 0, "the object ended while it had an owner");
                copy->use();
                first = copy;
                copy = weir::base::shared<mortal>();
                first->use();
                first = weir::base::shared<mortal>();
            },
            [&] {
                second->use();
                second = weir::base::shared<mortal>::make(other_ends); // the heap gives what was just freed
                second->use();
                auto const copy = second;
                require(other_ends == 0, "an object ended while it had owners");
            });
        require(ends == 1, "the object did not end once");
        second = weir::base::shared<mortal>();
        require(other_ends == 1, "the other object did not end once");
    });
}

// ---- fence_set ------------------------------------------------------------------------------------------------------

TEST_CASE("interleavings: fence_set: a fence is seen from its insertion to its end, whatever others add and erase") {
    explore([] {
        constexpr std::size_t lasting = std::size_t{1} << 21;
        weir::placement::detail::fence_set fences;
        if (choose(2) == 1)
            fences.insert(lasting);
        bool const is_there = fences.contains(lasting);
        auto const come_and_go = [&](std::size_t at) {
            fences.insert(at);
            require(fences.contains(at), "a fence that was inserted is not seen");
            require(fences.contains(lasting) == is_there, "a fence of nobody's is seen, or one that is there is not");
            fences.erase(at);
            require(!fences.contains(at), "a fence that was erased is seen");
        };
        threads([&] { come_and_go(4096); }, [&] { come_and_go(512); });
        require(fences.contains(lasting) == is_there, "a fence is lost");
    });
}

// ---- held_chunks -------------------------------------------------------------------------------------------------------

namespace {

/// Two chunks, of which it knows who has them; it may refuse to take one back once.
struct two_chunks {
    static constexpr std::size_t alignment = 4096;
    static constexpr weir::memory_space space = weir::memory_space::host;
    struct state {
        bool lent[2] = {false, false};
        int times[2] = {0, 0}; // it was lent
        bool refuses = false;
    };
    explicit two_chunks(state& of) : books(&of) {}
    static std::size_t address(std::size_t i) { return (i + 1) << 20; }
    void* acquire(std::size_t) {
        yield();
        for (std::size_t i = 0; i < 2; ++i)
            if (!books->lent[i]) {
                books->lent[i] = true;
                ++books->times[i];
                return reinterpret_cast<void*>(address(i));
            }
        return nullptr;
    }
    bool release(void* chunk, std::size_t) noexcept {
        yield();
        if (std::exchange(books->refuses, false))
            return false;
        std::size_t const i = reinterpret_cast<std::uintptr_t>(chunk) == address(0) ? 0 : 1;
        require(books->lent[i], "a chunk is given back twice");
        books->lent[i] = false;
        return true;
    }
    state* books;
};

} // namespace

TEST_CASE("interleavings: held_chunks: no peak is below what is held, whoever starts a new one") {
    explore([] {
        two_chunks::state books;
        weir::supply::held_chunks<two_chunks, weir::base::spin_lock> chunks(two_chunks(books), SIZE_MAX);
        constexpr std::size_t page = decltype(chunks)::granularity();
        threads([&] { require(bool(chunks.acquire(page)), "there is room"); }, [&] { chunks.reset_peak(); });
        require(chunks.peak_bytes() == page, "the peak is not what is held");
    });
}

TEST_CASE_TEMPLATE("interleavings: held_chunks: whoever asks hears of chunks that are held", Lock, weir::base::spin_lock,
                   weir::base::mutex) {
    constexpr std::size_t page = weir::supply::held_chunks<two_chunks, Lock>::granularity();
    explore([] {
        two_chunks::state books;
        books.refuses = choose(2) == 1;
        {
            weir::supply::held_chunks<two_chunks, Lock> chunks(two_chunks(books), 2 * page);
            weir::base::range const lasting = chunks.acquire(page);
            always([&] { require(chunks.bytes() <= 2 * page, "more is held than the limit allows"); });
            auto const ask = [&] {
                for (int i = 0; i < 2; ++i) {
                    bool const was_lent = books.lent[1];
                    int const times = books.times[1];
                    bool const owned = chunks.owns(two_chunks::address(1));
                    require(!owned || was_lent || books.times[1] != times, "a chunk is owned that the upstream has");
                    require(chunks.owns(lasting.offset), "a chunk that is held is not owned");
                    std::size_t const count = chunks.count();
                    require(count == 1 || count == 2, "a count that never was");
                    require(chunks.bytes() >= page, "bytes that are held are not counted");
                    require(chunks.refused_bytes() <= page, "more is set aside than was refused");
                }
            };
            threads(
                [&] {
                    for (int i = 0; i < 2; ++i) {
                        weir::base::range const chunk = chunks.acquire(page);
                        if (chunk)
                            chunks.release(chunk);
                        chunks.offer_again();
                    }
                },
                ask);
            require(chunks.count() == 1 && chunks.bytes() == page, "a chunk was not given back");
        }
        require(!books.lent[0] && !books.lent[1], "a chunk was not given back at the end");
    });
}
