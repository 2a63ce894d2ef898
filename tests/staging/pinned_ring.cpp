// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "scene.hpp"

#include <type_traits>
#include <weir/recipes.hpp>

using namespace scene;
using weir::staging::copy_to_device_async;
using weir::staging::copy_to_host_async;

static_assert(!std::is_copy_constructible_v<pinned_ring> && !std::is_copy_assignable_v<pinned_ring>);
static_assert(!std::is_copy_constructible_v<pending_copy> && std::is_nothrow_move_constructible_v<pending_copy>);

TEST_CASE("pinned_ring: takes its memory once, from any pool of pinned memory, and gives it back when its copies are over") {
    support::every_schedule([] {
        support::scoped_stream const s;
        octets const row = counting(2 * slot_bytes);
        memory const there(row.size());
        pinned_pool pool;
        {
            pinned_ring ring(pool, small(3).slot_bytes(slot_bytes - 100));
            CHECK(ring.slot_bytes() == slot_bytes);
            CHECK(ring.device() == 0);
            CHECK(pool.live_bytes() == 3 * slot_bytes);
            copy_to_device_async(ring, s, there.at(), row.data(), row.size());
        } // its end waits for what is under way
        CHECK(pool.live_blocks() == 0);
        CHECK(pool.frees.at(0).stream.is_host());
        CHECK(there.contents(s) == row);

        weir::pinned_pool recipe;
        pinned_ring over_recipe(recipe, small());
        check_round_trip(over_recipe, s, row.size());
        weir::pinned_driver_pool of_driver;
        pinned_ring over_driver(of_driver, small());
        check_round_trip(over_driver, s, row.size());
    });
}

TEST_CASE("pinned_ring: tells what it did") {
    support::every_schedule([] {
        support::scoped_stream const s;
        ringed here(small(2).name("told"));
        memory const there(100);
        octets row(100);
        copy_to_device_async(here.ring, s, there.at(), row.data(), 100);
        CHECK(here.ring.report() ==
              "ring 'told': 2 slots of 4 KiB, 1 in use, 0 stranded; 100 B staged in 1 chunk, 0 B copied directly; full: 0 "
              "waited, 0 left to CUDA, 0 refused");
    });
}

TEST_CASE("pinned_ring: what cannot be is refused with a sentence") {
    support::every_schedule([] {
        pinned_pool pool;
        support::recording_pool<weir::memory_space::managed> managed;
        auto said = [&](pinned_ring_options const& options) {
            return support::sentence_of<weir::usage_error>([&] { pinned_ring const ring(pool, options); });
        };
        CHECK_SAYS(said(small(0)), "a ring has 1 to 1024 slots; got 0");
        CHECK_SAYS(said(small(1025)), "a ring has 1 to 1024 slots; got 1025");
        CHECK_SAYS(said(small().slot_bytes(0)), "a slot of a ring has 1 byte to 256 GiB; got 0 bytes");
        CHECK_SAYS(said(small().slot_bytes(SIZE_MAX)), "a slot of a ring has 1 byte to 256 GiB; got");
        CHECK_SAYS(said(small().device(77)), "there is no device 77");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { pinned_ring const ring(managed, small()); }),
                   "managed memory moves to whoever touches it; give the ring a pinned pool");
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { pinned_ring const ring(pool, small().slot_bytes(64 * MiB)); }),
                   "it is for ring 'small' with 2 slots of 64 MiB, so fewer or smaller ones need less "
                   "('pinned_ring_options::slots', 'slot_bytes')");
        CHECK(pool.live_blocks() == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("pinned_ring: wherever a call fails as it begins or ends, no memory is lost while copies may use it") {
    struct state {
        support::scoped_stream s;
        octets row = counting(slot_bytes);
        memory there{slot_bytes};
        weir::pinned_pool pool{weir::pool_options{}.on_leak(weir::leak_action::ignore)};
    };
    auto const runs = support::fault_sweep([] { return std::make_unique<state>(); },
                                           [](state& x) {
                                               pinned_ring ring(x.pool, small());
                                               copy_to_device_async(ring, x.s, x.there.at(), x.row.data(), x.row.size());
                                           },
                                           [](state& x, support::struck const& fault) {
                                               if (!fault.threw)
                                                   CHECK(x.there.contents(x.s) == x.row);
                                               CHECK((x.pool.state().live_blocks == 0 || fault.for_ever || fault.pair));
                                               x.pool.settle();
                                           },
                                           support::faults::pairs_too);
    CHECK(runs > 30);
}

#endif
