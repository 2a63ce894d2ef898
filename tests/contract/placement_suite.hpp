// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What every placement promises. A file lists its placements in WEIR_TEST_PLACEMENTS, specialises 'usual' where need be, and
// includes this page last.

#include "placement_subject.hpp"
#include <algorithm>
#include <doctest/doctest.h>
#include <random>
#include <support/failing_new.hpp>
#include <support/interval_oracle.hpp>
#include <vector>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/upstream_slot.hpp>

namespace placement_contract {

namespace contract = weir::contract;
using support::interval_oracle;
using weir::base::range;

inline constexpr std::size_t base = 16 * GiB; // where the tests' chunks start

template <class Placement>
std::size_t random_bytes(std::mt19937_64& random) {
    std::size_t const octave = std::size_t{1} << random() % (weir::base::floor_log2(usual<Placement>::most_bytes) + 1);
    return 1 + random() % std::min(2 * octave, usual<Placement>::most_bytes);
}

template <class Placement>
std::size_t random_alignment(std::mt19937_64& random) {
    if (random() % 4 != 0)
        return 1;
    return std::size_t{1} << random() % (weir::base::floor_log2(usual<Placement>::most_alignment) + 1);
}

template <class Placement>
void add_fenced(Placement& p, range chunk) {
    if constexpr (contract::holds<contract::has_fence, Placement>)
        p.fence(chunk);
    p.add(chunk);
}

template <class Placement>
bool take_one(Placement& p, interval_oracle& oracle, std::mt19937_64& random) {
    std::size_t const bytes = random_bytes<Placement>(random);
    std::size_t const alignment = random_alignment<Placement>(random);
    range const block = p.take(bytes, alignment);
    if (!block)
        return false;
    CHECK(block.bytes >= bytes);
    oracle.take(block, Placement::rounded(bytes, alignment), alignment);
    return true;
}

// Chunks that lie side by side, and some apart.
template <class Placement>
std::vector<range> chunks_for(std::size_t count) {
    std::vector<range> chunks;
    std::size_t at = base;
    for (std::size_t n = 0; n < count; ++n) {
        chunks.push_back({at, weir::base::align_up(usual<Placement>::chunk_bytes, 2 * MiB)});
        at = chunks.back().end() + (n % 3 == 2 ? 2 * MiB : 0);
    }
    return chunks;
}

} // namespace placement_contract

using namespace placement_contract;

TEST_CASE_TEMPLATE("placement: has the members that its slot needs", Placement, WEIR_TEST_PLACEMENTS) {
    static_assert(contract::require_placement<Placement>());
    static_assert(std::is_nothrow_move_constructible_v<Placement>);
    Placement p;
    CHECK(p.free_bytes() == 0);
    CHECK_FALSE(p.take(1, 1));
    if constexpr (contract::holds<contract::has_largest, Placement>)
        CHECK(p.largest() == 0);
    if constexpr (contract::holds<contract::has_remove, Placement>)
        CHECK_FALSE(p.remove({base, usual<Placement>::chunk_bytes}));
    if constexpr (contract::holds<contract::has_absorb, Placement>) {
        CHECK_FALSE(p.lend(1, 1));
        Placement other = p.sibling();
        p.absorb(other);
        p.absorb(p);
        CHECK(p.free_bytes() == 0);
    }
}

TEST_CASE_TEMPLATE("placement: rounds up, stays as large when rounded again, and never wraps", Placement, WEIR_TEST_PLACEMENTS) {
    std::mt19937_64 random(1);
    for (int n = 0; n < 2000; ++n) {
        std::size_t const bytes = random_bytes<Placement>(random);
        std::size_t const alignment = random_alignment<Placement>(random);
        std::size_t const rounded = Placement::rounded(bytes, alignment);
        CHECK(rounded >= bytes);
        CHECK(Placement::rounded(rounded, alignment) == rounded);
        CHECK(Placement::needs(bytes, alignment, 256) >= rounded);
    }
    CHECK(Placement::rounded(0, 1) == 0);
    CHECK(Placement::needs(0, 1, 256) == 0);
    for (std::size_t const huge : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 255, SIZE_MAX - 511, SIZE_MAX / 2 + 2}) {
        for (std::size_t alignment = 1; alignment != 0; alignment *= 2) {
            std::size_t const rounded = Placement::rounded(huge, alignment);
            CHECK((rounded == 0 || rounded >= huge));
            std::size_t const needed = Placement::needs(huge, alignment, 256);
            CHECK((needed == 0 || needed >= huge));
        }
    }
}

TEST_CASE_TEMPLATE("placement: has no room for nothing and for too much", Placement, WEIR_TEST_PLACEMENTS) {
    Placement p;
    add_fenced(p, chunks_for<Placement>(1)[0]);
    std::size_t const free = p.free_bytes();
    CHECK_FALSE(p.take(0, 1));
    CHECK_FALSE(p.take(0, 4096));
    for (std::size_t alignment = 1; alignment != 0; alignment *= 2)
        for (std::size_t const huge : {SIZE_MAX, SIZE_MAX - 511, SIZE_MAX / 2 + 1, 1 * GiB})
            CHECK_FALSE(p.take(huge, alignment));
    CHECK_FALSE(p.take(1, SIZE_MAX / 2 + 1));
    CHECK(p.free_bytes() == free);
    CHECK(p.take(1, 1));
}

TEST_CASE_TEMPLATE("placement: what 'needs' says is enough, wherever the chunk starts", Placement, WEIR_TEST_PLACEMENTS) {
    std::mt19937_64 random(2);
    for (std::size_t base_alignment = 16; base_alignment <= 4 * MiB; base_alignment *= 4) {
        for (int n = 0; n < 60; ++n) {
            std::size_t const bytes = random_bytes<Placement>(random);
            std::size_t const alignment = random_alignment<Placement>(random);
            std::size_t const offset = base + base_alignment * (random() % 1000);
            Placement p;
            add_fenced(p, {offset, Placement::needs(bytes, alignment, base_alignment)});
            range const block = p.take(bytes, alignment);
            CHECK(block);
            CHECK(block.offset >= offset);
            CHECK(block.offset % alignment == 0);
        }
    }
}

TEST_CASE_TEMPLATE("placement: blocks are apart, aligned and inside one chunk; bytes are not lost", Placement, WEIR_TEST_PLACEMENTS) {
    for (unsigned seed = 0; seed < 6; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        Placement p;
        interval_oracle oracle;
        std::vector<range> const chunks = chunks_for<Placement>(seed + 1);
        for (range const& chunk : chunks) {
            add_fenced(p, chunk);
            oracle.add(chunk);
        }
        std::size_t const all = p.free_bytes();
        CHECK(all <= oracle.managed_bytes());
        CHECK(all >= oracle.managed_bytes() / 10 * 9);
        for (int n = 0; n < 3000; ++n) {
            // Waves: mostly taking, then mostly giving.
            bool const rising = n / 500 % 2 == 0;
            if (oracle.live() == 0 || random() % 8 < (rising ? 5u : 3u))
                take_one(p, oracle, random);
            else
                p.give(oracle.give(random));
            CHECK(p.free_bytes() <= all - oracle.live_bytes());
        }
        while (oracle.live() != 0)
            p.give(oracle.give_last());
        if constexpr (contract::holds<contract::has_mark, Placement, weir::base::usage>)
            p.clear();
        if constexpr (contract::holds<contract::has_remove, Placement>) {
            for (range const& chunk : chunks)
                CHECK(p.remove(chunk));
            CHECK(p.free_bytes() == 0);
            CHECK_FALSE(p.take(1, 1));
            for (range const& chunk : chunks) {
                CHECK_FALSE(p.remove(chunk));
                add_fenced(p, chunk); // as if the driver handed it out again
            }
            CHECK(p.free_bytes() == all);
        }
    }
}

TEST_CASE_TEMPLATE("placement: hands out everything, then says so, then serves again", Placement, WEIR_TEST_PLACEMENTS) {
    for (std::size_t const bytes : {std::size_t{1}, usual<Placement>::most_bytes / 3 + 1, usual<Placement>::most_bytes}) {
        Placement p;
        interval_oracle oracle;
        for (range const& chunk : chunks_for<Placement>(3)) {
            add_fenced(p, chunk);
            oracle.add(chunk);
        }
        std::size_t const most = 20000;
        range last;
        while (oracle.live() < most) {
            range const block = p.take(bytes, 1);
            if (!block)
                break;
            oracle.take(block, Placement::rounded(bytes, 1), 1);
            last = block;
        }
        if (oracle.live() == most)
            continue;
        // At most an eighth of a slab's class, and the slabs' ends, are lost.
        CHECK(oracle.live_bytes() >= oracle.managed_bytes() / 10 * 8);
        CHECK_FALSE(p.take(bytes, 1));
        if constexpr (contract::holds<contract::has_largest, Placement>)
            CHECK(p.largest() < Placement::rounded(bytes, 1));
        p.give(last);
        if constexpr (contract::holds<contract::has_largest, Placement>)
            CHECK(p.largest() >= bytes);
        CHECK(p.take(bytes, 1) == last);
        CHECK_FALSE(p.take(bytes, 1));
    }
}

TEST_CASE_TEMPLATE("placement: 'largest' can be had", Placement, WEIR_TEST_PLACEMENTS) {
    if constexpr (contract::holds<contract::has_largest, Placement>) {
        std::mt19937_64 random(3);
        Placement p;
        interval_oracle oracle;
        for (range const& chunk : chunks_for<Placement>(2)) {
            add_fenced(p, chunk);
            oracle.add(chunk);
        }
        for (int n = 0; n < 400; ++n) {
            if (random() % 3 != 0 || oracle.live() == 0)
                take_one(p, oracle, random);
            else
                p.give(oracle.give(random));
            std::size_t const largest = p.largest();
            if (largest == 0)
                continue;
            range const block = p.take(largest, 1);
            CHECK(block.bytes == largest);
            p.give(block);
        }
    }
}

TEST_CASE_TEMPLATE("placement: a chunk is removed exactly when no block is in it", Placement, WEIR_TEST_PLACEMENTS) {
    if constexpr (contract::holds<contract::has_remove, Placement>) {
        for (unsigned seed = 0; seed < 4; ++seed) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            Placement p;
            interval_oracle oracle;
            std::vector<range> const chunks = chunks_for<Placement>(6);
            std::vector<bool> here(chunks.size());
            for (int n = 0; n < 1500; ++n) {
                std::size_t const at = random() % chunks.size();
                if (random() % 10 == 0 && !here[at]) {
                    add_fenced(p, chunks[at]);
                    oracle.add(chunks[at]);
                    here[at] = true;
                } else if (random() % 10 == 0 && here[at]) {
                    bool const empty = oracle.live_in(chunks[at]) == 0;
                    std::size_t const before = p.free_bytes();
                    if (contract::holds<contract::has_mark, Placement, weir::base::usage> && !empty)
                        continue;
                    bool const removed = p.remove(chunks[at]);
                    if (!contract::holds<contract::has_mark, Placement, weir::base::usage>)
                        CHECK(removed == empty);
                    if (removed) {
                        oracle.remove(chunks[at]);
                        here[at] = false;
                        CHECK(p.free_bytes() < before);
                    } else {
                        CHECK(p.free_bytes() >= before); // a slab in pieces may count its tail
                    }
                } else if (random() % 2 == 0 || oracle.live() == 0) {
                    take_one(p, oracle, random);
                } else {
                    p.give(oracle.give(random));
                }
            }
        }
    }
}

TEST_CASE_TEMPLATE("placement: siblings take, give, lend and absorb one another's blocks", Placement, WEIR_TEST_PLACEMENTS) {
    if constexpr (contract::holds<contract::has_absorb, Placement>) {
        for (unsigned seed = 0; seed < 6; ++seed) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            std::vector<Placement> family(1);
            while (family.size() < 4)
                family.push_back(family[0].sibling());
            interval_oracle oracle;
            std::vector<range> const chunks = chunks_for<Placement>(4);
            for (range const& chunk : chunks) {
                add_fenced(family[random() % family.size()], chunk);
                oracle.add(chunk);
            }
            std::size_t all = 0;
            for (Placement const& p : family)
                all += p.free_bytes();
            for (int n = 0; n < 2500; ++n) {
                Placement& one = family[random() % family.size()];
                Placement& other = family[random() % family.size()];
                std::size_t const what = random() % 100;
                if (what < 3) {
                    std::size_t const bytes = &one == &other ? one.free_bytes() : one.free_bytes() + other.free_bytes();
                    one.absorb(other);
                    CHECK(one.free_bytes() >= bytes);
                    if (&one != &other)
                        CHECK(other.free_bytes() == 0);
                } else if (what < 10) {
                    std::size_t const bytes = random_bytes<Placement>(random);
                    std::size_t const alignment = random_alignment<Placement>(random);
                    Placement fresh = one.sibling();
                    if (range const lent = one.lend(bytes, alignment)) {
                        fresh.add(lent);
                        range const block = fresh.take(bytes, alignment);
                        REQUIRE(block);
                        oracle.take(block, Placement::rounded(bytes, alignment), alignment);
                        other.absorb(fresh);
                    }
                } else if (what < 55 || oracle.live() == 0) {
                    take_one(one, oracle, random);
                } else {
                    one.give(oracle.give(random));
                }
            }
            while (oracle.live() != 0)
                family[random() % family.size()].give(oracle.give_last());
            Placement whole = family[0].sibling();
            for (Placement& p : family)
                whole.absorb(p);
            CHECK(whole.free_bytes() <= all);
            for (range const& chunk : chunks)
                CHECK(whole.remove(chunk));
            CHECK(whole.free_bytes() == 0);
        }
    }
}

TEST_CASE_TEMPLATE("placement: moves, and what it held moves along", Placement, WEIR_TEST_PLACEMENTS) {
    Placement p;
    add_fenced(p, chunks_for<Placement>(1)[0]);
    range const block = p.take(1, 1);
    std::size_t const free = p.free_bytes();
    Placement q(std::move(p));
    CHECK(q.free_bytes() == free);
    Placement r;
    r = std::move(q);
    CHECK(r.free_bytes() == free);
    r.give(block);
    CHECK(r.take(1, 1) == block);
}

TEST_CASE_TEMPLATE("placement: without host memory a call changes nothing", Placement, WEIR_TEST_PLACEMENTS) {
    struct scene_type {
        Placement p;
        interval_oracle oracle;
        std::size_t free = 0;
        std::size_t failed_at = 0;
    };
    std::vector<range> const chunks = chunks_for<Placement>(2);
    auto const make_scene = [&](std::size_t steps) {
        return [&chunks, steps] {
            scene_type scene;
            std::mt19937_64 random(steps);
            add_fenced(scene.p, chunks[0]);
            scene.oracle.add(chunks[0]);
            for (std::size_t n = 0; n < steps; ++n)
                if (random() % 3 != 0 || scene.oracle.live() == 0)
                    take_one(scene.p, scene.oracle, random);
                else
                    scene.p.give(scene.oracle.give(random));
            scene.free = scene.p.free_bytes();
            return scene;
        };
    };
    auto const unchanged = [](scene_type& scene) { CHECK(scene.p.free_bytes() == scene.free); };
    for (unsigned const steps : {0u, 1u, 5u, 40u, 300u}) {
        CAPTURE(steps);
        // A fresh chunk. 'fence' and 'add' are two calls; a fence too many harms nobody.
        support::each_failure(make_scene(steps), [&](scene_type& s) { add_fenced(s.p, chunks[1]); },
                              [&](scene_type& s) {
                                  unchanged(s);
                                  add_fenced(s.p, chunks[1]);
                                  CHECK(s.p.free_bytes() > s.free);
                              });
        // Many takes: each that throws leaves all as it was, and works the second time.
        for (long k = 0; k < 12; ++k) {
            scene_type s = make_scene(steps)();
            std::mt19937_64 random(7);
            for (int n = 0; n < 50; ++n) {
                std::size_t const bytes = random_bytes<Placement>(random);
                std::size_t const alignment = random_alignment<Placement>(random);
                std::size_t const before = s.p.free_bytes();
                range block;
                bool failed = false;
                try {
                    support::failing_new const fails(k);
                    block = s.p.take(bytes, alignment);
                } catch (std::bad_alloc const&) {
                    failed = true;
                }
                if (failed) {
                    CHECK(s.p.free_bytes() == before);
                    block = s.p.take(bytes, alignment);
                }
                if (block)
                    s.oracle.take(block, Placement::rounded(bytes, alignment), alignment);
            }
        }
        // Gives: in random order, and each that throws is repeated.
        for (long k = 0; k < 12; ++k) {
            scene_type s = make_scene(steps)();
            std::mt19937_64 random(steps + 1);
            while (s.oracle.live() != 0) {
                range const block = s.oracle.give(random);
                std::size_t const before = s.p.free_bytes();
                bool failed = false;
                try {
                    support::failing_new const fails(k);
                    s.p.give(block);
                } catch (std::bad_alloc const&) {
                    failed = true;
                }
                if (failed) {
                    CHECK(s.p.free_bytes() == before);
                    s.p.give(block);
                }
            }
            if constexpr (contract::holds<contract::has_mark, Placement, weir::base::usage>)
                s.p.clear();
            if constexpr (contract::holds<contract::has_remove, Placement>)
                CHECK(s.p.remove(chunks[0]));
        }
        if constexpr (contract::holds<contract::has_absorb, Placement>) {
            auto const with_sibling = [&] {
                auto both = std::make_pair(make_scene(steps)(), scene_type{});
                both.second.p = both.first.p.sibling();
                add_fenced(both.second.p, chunks[1]);
                both.second.oracle.add(chunks[1]);
                std::mt19937_64 random(9);
                for (int n = 0; n < 60; ++n)
                    take_one(both.second.p, both.second.oracle, random);
                for (int n = 0; n < 30 && both.second.oracle.live() != 0; ++n)
                    both.second.p.give(both.second.oracle.give(random));
                both.second.free = both.second.p.free_bytes();
                return both;
            };
            using pair_type = std::pair<scene_type, scene_type>;
            support::each_failure(with_sibling, [](pair_type& both) { both.first.p.absorb(both.second.p); },
                                  [&](pair_type& both) {
                                      std::size_t const sum = both.first.free + both.second.free;
                                      CHECK(both.first.p.free_bytes() + both.second.p.free_bytes() >= sum);
                                      both.first.p.absorb(both.second.p);
                                      CHECK(both.second.p.free_bytes() == 0);
                                      while (both.first.oracle.live() != 0)
                                          both.first.p.give(both.first.oracle.give_last());
                                      while (both.second.oracle.live() != 0)
                                          both.first.p.give(both.second.oracle.give_last());
                                      CHECK(both.first.p.remove(chunks[0]));
                                      CHECK(both.first.p.remove(chunks[1]));
                                  });
            support::each_failure(make_scene(steps), [](scene_type& s) { s.p.lend(1, 1); },
                                  [&](scene_type& s) { CHECK(s.p.free_bytes() >= s.free); });
        }
        if constexpr (contract::holds<contract::has_remove, Placement>) {
            support::each_failure(
                [&] {
                    scene_type s = make_scene(steps)();
                    while (s.oracle.live() != 0)
                        s.p.give(s.oracle.give_last());
                    if constexpr (contract::holds<contract::has_mark, Placement, weir::base::usage>)
                        s.p.clear();
                    return s;
                },
                [&](scene_type& s) { s.p.remove(chunks[0]); }, [&](scene_type& s) { CHECK(s.p.remove(chunks[0])); });
        }
    }
}
