// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <map>
#include <random>
#include <set>
#include <support/failing_new.hpp>
#include <vector>
#include <weir/placement/bins/slab_table.hpp>

using weir::placement::detail::slab_table;

TEST_CASE("slab_table: a base has one record a class, which keeps what it knows") {
    slab_table table;
    auto const s = table.record_of(0, 3); // base 0 is a base like any other
    auto const t = table.record_of(16384, 4);
    CHECK(s != 0);
    CHECK(t != 0);
    CHECK(s != t);
    table[s].free = 5;
    table.woke();
    CHECK(table.record_of(0, 3) == s);
    CHECK(table[s].free == 5);
    CHECK(table[s].base == 0);
    auto const other = table.record_of(16384, 7);
    CHECK(other != t);
    CHECK(table[other].in == 7);
    CHECK(table.record_of(16384, 4) == t);
    CHECK(table[t].in == 4);
    table.retire(s);
    auto const again = table.record_of(0, 1);
    CHECK(again == s); // its place is used again
    CHECK(table[again].free == 0);
}

TEST_CASE("slab_table: sleepers make room for others, waking records stay") {
    slab_table table;
    std::map<std::size_t, slab_table::index_type> awake;
    for (std::size_t n = 0; n < 5000; ++n) {
        auto const s = table.record_of(n * 16384, 2);
        if (n % 50 == 0) {
            table[s].free = n + 1;
            table.woke();
            awake[n * 16384] = s;
        }
    }
    // 5,000 slabs were seen, 100 of them have a say.
    CHECK(table.capacity() < 500);
    CHECK(table.size() <= table.capacity());
    CHECK(table.bookkeeping_bytes() < 500 * 100);
    for (auto const& one : awake) {
        CHECK(table.record_of(one.first, 2) == one.second);
        CHECK(table[one.second].free == one.first / 16384 + 1);
    }
    std::size_t with_bits = 0;
    for (slab_table::record const& record : table)
        with_bits += record.free != 0;
    CHECK(with_bits == awake.size());
}

TEST_CASE("slab_table: falling asleep and waking are counted, so that nothing awake is forgotten") {
    std::mt19937_64 random(1);
    slab_table table;
    std::map<std::size_t, std::uint64_t> model;
    for (int n = 0; n < 20000; ++n) {
        std::size_t const base = random() % 2000 * 4096;
        auto const s = table.record_of(base, 1);
        std::uint64_t const known = model.count(base) != 0 ? model[base] : 0;
        CHECK(table[s].free == known);
        if (known == 0) {
            table[s].free = random() | 1;
            table.woke();
            model[base] = table[s].free;
        } else if (random() % 3 != 0) {
            table[s].free = 0;
            table.fell_asleep();
            model.erase(base);
        } else {
            table.retire(s);
            model.erase(base);
        }
    }
}

TEST_CASE("slab_table: without host memory no record is made and none is lost") {
    if (!support::host_memory_can_fail)
        return;
    support::each_failure(
        [] {
            slab_table table;
            table[table.record_of(4096, 1)].free = 9;
            table.woke();
            return table;
        },
        [](slab_table& table) {
            for (std::size_t n = 2; n < 100; ++n)
                table.record_of(n * 4096, 1);
        },
        [](slab_table& table) {
            CHECK(table[table.record_of(4096, 1)].free == 9);
            for (std::size_t n = 2; n < 100; ++n)
                CHECK(table[table.record_of(n * 4096, 1)].base == n * 4096);
        });
    slab_table table;
    table.reserve(64);
    support::failing_new const fails(0);
    for (std::size_t n = 0; n < 64; ++n)
        table.record_of(n * 4096, 1);
}

namespace {

slab_table::index_type wake(slab_table& table, std::size_t base) {
    auto const s = table.record_of(base, 2);
    table[s].free = base + 1;
    table.woke();
    return s;
}

void lull(slab_table& table, slab_table::index_type s) {
    table[s].free = 0;
    table.fell_asleep();
}

bool knows(slab_table const& table, std::size_t base) {
    for (slab_table::record const& record : table)
        if (record.base == base && record.in == 2)
            return true;
    return false;
}

} // namespace

TEST_CASE("slab_table: a record that woke and fell asleep again makes room like any sleeper") {
    slab_table table;
    for (std::size_t n = 1; n <= 5000; ++n)
        lull(table, wake(table, n * 16384));
    CHECK(table.capacity() < 64);
}

TEST_CASE("slab_table: while few sleep, growth forgets none of them") {
    slab_table table;
    auto const fill = [&](std::size_t from) {
        for (std::size_t n = from; n < from + 50; ++n)
            wake(table, n * 16384);
        table.record_of(from * 16384 + 4096, 2);
        table.reserve(table.capacity() + 1);
        CHECK(knows(table, from * 16384 + 4096));
    };
    fill(1);
    for (std::size_t n = 1000; n < 1500; ++n)
        table.record_of(n * 16384, 2); // most sleep
    table.reserve(table.capacity() + 1);
    CHECK_FALSE(knows(table, 1000 * 16384));
    table.reserve(table.capacity() + 1);
    fill(2000); // those that were forgotten count no more
}

TEST_CASE("slab_table: the places of forgotten records are handed out once each") {
    slab_table table;
    std::set<slab_table::index_type> places;
    auto const first = wake(table, 0);
    places.insert(first);
    std::vector<slab_table::index_type> made;
    for (std::size_t n = 1; n <= 64; ++n)
        made.push_back(wake(table, n * 16384));
    for (std::size_t n = 0; n < 20; ++n)
        table.retire(made[n]);
    for (std::size_t n = 20; n < 60; ++n)
        lull(table, made[n]);
    for (std::size_t n = 60; n < 64; ++n)
        places.insert(made[n]);
    table.reserve(1000);
    for (std::size_t n = 0; n < 1000; ++n)
        CHECK(places.insert(table.record_of((n + 100) * 16384, 2)).second);
    CHECK(table.record_of(0, 2) == first);
    CHECK(table[first].free == 1);
    for (std::size_t n = 60; n < 64; ++n)
        CHECK(table.record_of((n + 1) * 16384, 2) == made[n]);
}

TEST_CASE("slab_table: room that was made holds that many records and forgets none of them") {
    for (std::size_t awake : {0u, 1u, 7u, 40u})
        for (std::size_t more : {1u, 2u, 5u, 64u}) {
            slab_table table;
            for (std::size_t n = 1; n <= awake; ++n)
                wake(table, n << 30);
            table.reserve(more);
            std::size_t const bytes = table.bookkeeping_bytes();
            for (std::size_t n = 1; n <= more; ++n)
                table.record_of(n * 4096, 2);
            CHECK(table.bookkeeping_bytes() == bytes);
            for (std::size_t n = 1; n <= more; ++n)
                CHECK(knows(table, n * 4096));
        }
}
