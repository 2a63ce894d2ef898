// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Small programs over what stream-ordered pools are made of: who has which set, what a set offers, and second uses.

#include "device.hpp"

#ifdef WEIR_SIMULATED_CUDA

#include <cstddef>
#include <utility>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/order/stream_answers.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/reuse/after_event/pending_frees.hpp>
#include <weir/reuse/identity.hpp>
#include <weir/reuse/stream_ordered/stream_directory.hpp>
#include <weir/reuse/stream_ordered/stream_exchange.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>
#include <weir/reuse/tuning.hpp>
#include <weir/runtime/event.hpp>

using interleavings::explore_on_device;
using interleavings::plan;
using interleavings::require;
using interleavings::stream;
using interleavings::threads;
using weir::KiB;
using weir::MiB;
using weir::base::range;

namespace {

/// Of programs that make sixteen streams first.
constexpr plan large{2, 5'000};

// ---- second_uses ----------------------------------------------------------------------------------------------------

TEST_CASE("interleavings: second_uses: a free finds its block's events, all of them and no other's") {
    explore_on_device([] {
        stream const s;
        weir::order::second_uses uses;
        weir::base::atomic<bool> freed{false}; // the first thread's block: another may have it now
        threads(
            [&] {
                uses.add(4096, s);
                uses.add(4096, s);
                require(uses.any(), "a mark is not seen by who made it");
                require(uses.take(4096, weir::on_host).events.size() == 2, "a free does not find its block's events");
                freed.store(true, std::memory_order_release);
            },
            [&] {
                require(uses.take(8192, weir::on_host).empty(), "events of a block that has none");
                uses.add(8192, s);
                std::size_t const at = freed.load(std::memory_order_acquire) ? 4096 : 12288;
                uses.add(at, s);
                require(uses.take(at, weir::on_host).events.size() == 1, "events of the block that was there before");
                require(uses.take(8192, weir::on_host).events.size() == 1, "a free does not find its block's events");
            });
        require(!uses.any(), "marks are counted that nobody has");
    });
}

TEST_CASE("interleavings: second_uses: what is known to be recorded before another event is reached before it") {
    for (bool const backwards : {false, true})
        explore_on_device([backwards] {
            stream const s;
            weir::order::second_uses uses;
            simulated_cuda::gate first, second;
            auto const mark = [&](std::size_t offset, simulated_cuda::gate& behind) {
                uses.add(offset, s);
                require(behind.close(s) == cudaSuccess, "no gate");
            };
            threads([&] { mark(1, first); }, [&] { mark(2, second); });
            weir::base::growing_array<weir::runtime::event> const one = uses.take(1, weir::on_host).events, two = uses.take(2, weir::on_host).events;
            weir::runtime::event const& a = backwards ? two[0] : one[0];
            weir::runtime::event const& b = backwards ? one[0] : two[0];
            weir::order::stream_answers answers;
            require(answers.reached(a) == a.reached(), "an event is not what CUDA says");
            require(answers.reached(b) == b.reached(), "an answer tells of an event that it says nothing about");
            first.open();
            second.open();
        });
}

// ---- pending_frees --------------------------------------------------------------------------------------------------

TEST_CASE("interleavings: pending_frees: no free is over before its stream has passed it") {
    explore_on_device([] {
        stream const s;
        unsigned long long const id = weir::runtime::id_of(s);
        weir::reuse::detail::pending_frees frees;
        weir::base::mutex guard;
        simulated_cuda::gate held;
        auto const free_at = [&](std::size_t offset) {
            auto made = weir::base::shared<weir::reuse::detail::pending_free>::make();
            made->block = range{offset, 1};
            made->passed = weir::runtime::event(0);
            made->device = 0;
            frees.record(*made, s, id);
            weir::base::lock_guard<weir::base::mutex> const lock(guard);
            frees.add(std::move(made));
        };
        std::size_t told = 0;
        auto const poll = [&] {
            weir::base::lock_guard<weir::base::mutex> const lock(guard);
            frees.poll([&](weir::base::shared<weir::reuse::detail::pending_free> const& each) {
                require(each->passed.reached(), "a free is over that the stream has not passed");
                ++told;
            });
        };
        free_at(1);
        free_at(2);
        threads([&] { free_at(3); },
                [&] {
                    require(held.close(s) == cudaSuccess, "a stream cannot be held");
                    free_at(4);
                    poll();
                });
        simulated_cuda::drain();
        poll();
        require(told == 2 || told == 3, "a free that the stream has passed is not over");
        held.open();
        simulated_cuda::drain();
        poll();
        require(told == 4 && frees.empty(), "a free is lost");
    });
}

// ---- stream_set -----------------------------------------------------------------------------------------------------

struct tuning : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 8;
    static constexpr std::size_t recent_bytes = 0; // every free records the event
    static constexpr unsigned young_frees = 0;
    static constexpr std::size_t aside_bytes = 1 * MiB;
};

using directory = weir::reuse::detail::stream_directory<weir::placement::best_fit<512>, weir::identity::checked, tuning>;
using set = directory::set;
using caller = directory::caller;

TEST_CASE("interleavings: stream_set: what is hint is what is there whenever the lock is free") {
    explore_on_device([] {
        stream const s;
        set of_s = set(weir::placement::best_fit<512>());
        of_s.name(caller(s), 0);
        of_s.covered().add(range{1 * MiB, 1 * MiB});
        of_s.update_hint();
        auto const exact = [&] {
            require(of_s.hint.bytes() == of_s.covered().free_bytes(), "what is hint is not what is there");
        };
        threads(
            [&] {
                range block;
                {
                    weir::base::lock_guard<weir::base::spin_lock> const own(of_s.lock);
                    exact();
                    block = of_s.take(512 * KiB, 256, s);
                    require(block.bytes == 512 * KiB, "there is room, and none is found");
                }
                weir::base::lock_guard<weir::base::spin_lock> const own(of_s.lock);
                exact();
                of_s.put(block, s);
            },
            [&] {
                for (int i = 0; i < 2; ++i) {
                    bool const more = of_s.hint.may_hold(600 * KiB);
                    weir::base::lock_guard<weir::base::spin_lock> const own(of_s.lock);
                    exact();
                    if (!more)
                        continue;
                    if (range const block = of_s.covered().take(100 * KiB, 256)) {
                        of_s.update_hint();
                        of_s.put_back(block, false);
                    }
                }
            });
        exact();
        require(of_s.hint.bytes() == 1 * MiB, "bytes are lost");
    });
}

// ---- stream_directory ----------------------------------------------------------------------------------------------------

/// Enters the set of `s` and looks whether it is that.
set* enter(directory& sets, cudaStream_t s, bool frees = false) {
    auto const own = sets.enter(frees ? caller::that_frees(s) : caller(s));
    require(own->key.load(std::memory_order_relaxed) == caller(s).key(), "the set of another key");
    require(own->id() == caller(s).id(), "the set of another stream");
    return own.get();
}

/// Sets that cannot be used again, so that the next new stream looks for one that can.
void fill(directory& sets, stream const* streams, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        auto const own = sets.enter(caller(streams[i]));
        own->covered().add(range{(i + 1) * 16 * MiB, 1 * MiB});
        own->update_hint();
    }
}

std::size_t free_bytes(directory& sets) {
    std::size_t sum = 0;
    for (set& each : sets)
        sum += each.covered().free_bytes();
    return sum;
}

TEST_CASE("interleavings: stream_directory: threads that see a stream first make it one set") {
    explore_on_device([] {
        stream const a, b;
        directory sets(0);
        set* found[3] = {};
        std::size_t most = 0;
        threads([&] { found[0] = enter(sets, a); }, [&] { found[1] = enter(sets, a), found[2] = enter(sets, b); },
                [&] {
                    for (int i = 0; i < 2; ++i) {
                        std::size_t count = 0;
                        set* last = nullptr;
                        for (set& each : sets)
                            ++count, last = &each;
                        require(count >= most && count <= 3, "a set that was listed is not");
                        require(last == sets.host().get(), "the host's set is not the last");
                        most = count;
                    }
                });
        require(found[0] == found[1] && found[1] != found[2], "a stream has two sets, or shares one");
    });
}

TEST_CASE("interleavings: stream_directory: a handle comes back at once, in the same thread or another") {
    explore_on_device([] {
        stream a, b;
        directory sets(0);
        {
            auto const own = sets.enter(caller(a));
            own->covered().add(range{1 * MiB, 1 * MiB});
            own->update_hint();
        }
        enter(sets, b);
        auto const reborn = [&](stream& mine) {
            mine.again();
            set* const own = enter(sets, mine);
            require(enter(sets, mine, true) == own, "a stream that was just seen has another set");
        };
        threads([&] { reborn(a); }, [&] { reborn(b); });
        require(enter(sets, a) != enter(sets, b), "two streams share a set");
        require(free_bytes(sets) == 1 * MiB, "bytes are lost with their stream");
    });
}

// A stream is gone, and another bears its handle. Two threads that use the new one, and one with a stream of its own,
// all want the old one's set, which nobody uses: some find it by the handle, some look for a set to use again.
void old_set_is_wanted(bool by_two, bool by_other) {
    stream const full[14];
    stream a, b;
    directory sets(0);
    fill(sets, full, 14);
    enter(sets, a); // the host's and this one make 16
    a.again();
    set* found[2] = {};
    auto const first = [&] { found[0] = enter(sets, a); };
    auto const second = [&] { found[1] = enter(sets, a); };
    auto const other = [&] { enter(sets, b); };
    if (by_two && by_other)
        threads(first, second, other);
    else if (by_two)
        threads(first, second);
    else
        threads(first, other);
    require(!by_two || found[0] == found[1], "a stream has two sets");
    require(enter(sets, a, true) == found[0] && enter(sets, b, true) != found[0], "two streams share a set");
    require(free_bytes(sets) == 14 * MiB, "bytes are lost");
}

TEST_CASE("interleavings: stream_directory: a set is used again while another thread finds it by the old handle") {
    explore_on_device([] { old_set_is_wanted(true, false); }, large);
}

TEST_CASE("interleavings: stream_directory: a set is used again while another stream looks for one") {
    explore_on_device([] { old_set_is_wanted(false, true); }, large);
}

TEST_CASE("interleavings: stream_directory: a set is used again while two threads find it and another stream looks for one") {
    plan fewer = large;
    fewer.preemptions = 1;
    explore_on_device([] { old_set_is_wanted(true, true); }, fewer);
}

TEST_CASE("interleavings: stream_directory: the set of a default stream is taken away while its stream comes to it") {
    explore_on_device(
        [] {
            stream const full[14];
            stream b;
            directory sets(0);
            fill(sets, full, 14);
            enter(sets, cudaStreamLegacy); // a new stream may have it
            std::uint64_t const key = caller(cudaStreamLegacy).key();
            threads(
                [&] {
                    for (bool const frees : {true, false}) {
                        auto const own = sets.enter(frees ? caller::that_frees(cudaStreamLegacy) : caller(cudaStreamLegacy));
                        require(own->key.load(std::memory_order_relaxed) == key, "the set of another stream");
                        own->covered().add(range{(frees ? 1024 : 2048) * MiB, 1 * MiB});
                        own->update_hint();
                        require(own->key.load(std::memory_order_relaxed) == key, "a set is taken while it is in use");
                    }
                },
                [&] { enter(sets, b); });
            require(enter(sets, b, true) != enter(sets, cudaStreamLegacy, true), "two streams share a set");
            require(free_bytes(sets) == 16 * MiB, "bytes are lost");
        },
        large);
}

TEST_CASE("interleavings: stream_directory: whoever looks at every set misses no byte that is set aside meanwhile") {
    for (bool const reached : {false, true})
        explore_on_device([reached] {
            stream const a, b;
            directory sets(0);
            set* const own = enter(sets, a);
            own->covered().add(range{1 * MiB, 1 * MiB});
            own->update_hint();
            if (!reached)
                require(own->close(a), "cannot close"); // and nobody has asked since
            threads(
                [&] {
                    sets.add_older(*own);
                    weir::base::locked<set> const mine(*own);
                    mine->wanted.store(true, std::memory_order_relaxed);
                    require(mine->close(a), "cannot close");
                    require(mine->covered().free_bytes() == 0, "nothing was set aside");
                },
                [&] { enter(sets, b); },
                [&] {
                    std::size_t seen = 0, all = 0;
                    for (set& each : sets)
                        seen += weir::base::locked<set>(each)->covered().free_bytes(), ++all;
                    require(seen >= 1 * MiB, "bytes were missed");
                    require(all >= 2 && all <= 4, "a set is listed twice, or not");
                });
            require((reached ? *own->host : *own->older).covered().free_bytes() == 1 * MiB, "bytes are elsewhere");
            require(free_bytes(sets) == 1 * MiB, "bytes are lost");
        });
}

// ---- stream_exchange ------------------------------------------------------------------------------------------------

using exchange_of_sets = weir::reuse::detail::stream_exchange<weir::placement::best_fit<512>, weir::identity::checked, tuning>;

/// Bytes of 'a' are aside, unless its work is over: 'b' wanted them before it grew.
struct aside_of_a {
    explicit aside_of_a(range bytes) {
        own->covered().add(bytes);
        own->update_hint();
        require(own->close(a), "cannot close");
        exchange.gather(caller(b), true);
    }
    void require_reached(char const* else_what) {
        for (set& each : sets)
            require(weir::base::locked<set>(each)->reached(), else_what);
    }
    stream const a, b;
    directory sets{0};
    exchange_of_sets exchange{sets};
    set* const own = enter(sets, a);
    set* const other = enter(sets, b);
};

TEST_CASE("interleavings: stream_exchange: who searches finds what another thread gathers meanwhile") {
    explore_on_device([] {
        stream const a, b;
        directory sets(0);
        exchange_of_sets exchange(sets);
        enter(sets, a);
        set* const mine = enter(sets, b);
        sets.host()->covered().add(range{16 * MiB, 512 * KiB});
        sets.host()->update_hint();
        bool const grows = interleavings::choose(2) == 0;
        range block;
        bool waits = false;
        threads([&] { exchange.gather(caller(a), grows); },
                [&] { block = exchange.take(mine, {caller(b), 512 * KiB, 256, 512 * KiB, false, &waits}); });
        require(block.bytes == 512 * KiB && !waits, "bytes were there, and were missed");
        require(free_bytes(sets) == 0, "bytes are twice");
    });
}

TEST_CASE("interleavings: stream_exchange: who waits misses no event of bytes that come back meanwhile") {
    explore_on_device([] {
        aside_of_a here(range{16 * MiB, 1 * MiB});
        threads([&] { here.exchange.recall(caller(here.a)); },
                [&] {
                    here.exchange.wait();
                    here.require_reached("an event was missed");
                });
    });
}

TEST_CASE("interleavings: stream_exchange: a settle leaves nothing in use that comes back meanwhile") {
    explore_on_device([] {
        aside_of_a here(range{16 * MiB, 1 * MiB});
        threads([&] { here.exchange.recall(caller(here.a)); },
                [&] {
                    here.exchange.settle();
                    here.require_reached("bytes are in use behind a settle");
                });
    });
}

TEST_CASE("interleavings: stream_exchange: what was lent comes back in use, where no event can be recorded any more") {
    explore_on_device([] {
        aside_of_a here(range{32 * MiB, 2 * MiB});
        stream const c; // has no set, and can have none
        set* const own = here.own;
        require(own->close(here.a), "cannot close");
        own->covered().add(range{64 * MiB, 1 * MiB + 512 * KiB}); // for 'c', which asks for this alignment
        own->covered().add(range{24 * MiB, 1 * MiB});
        own->update_hint();
        if (own->reached() || !own->older)
            return;
        auto const passed = own->safe().passed();
        for (char const* each : {"cudaEventRecord", "cudaStreamGetDevice"})
            simulated_cuda::fail_call(each, 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
        threads(
            [&] {
                weir::base::locked<set> const mine(*own);
                if (mine->take(2 * MiB, 256, here.a)) { // what is aside
                    mine->wanted.store(true, std::memory_order_relaxed);
                    static_cast<void>(mine->close(here.a));
                }
            },
            [&] {
                bool waits = false;
                try { // 4 KiB are a stock for a block of 1 KiB
                    static_cast<void>(here.exchange.take(nullptr, {caller(c), 4 * KiB, 64 * MiB, 1 * KiB, true, &waits}));
                } catch (weir::cuda_error const&) {
                }
            });
        simulated_cuda::clear_faults();
        require(own->covered().free_bytes() == 0 || !own->reached() || passed->reached(), "bytes in use are said to be free");
    });
}

} // namespace

#endif
