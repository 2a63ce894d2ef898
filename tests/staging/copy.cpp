// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "scene.hpp"

#include <algorithm>
#include <optional>
#include <random>
#include <weir/recipes.hpp>

using namespace scene;
using weir::staging::copy_to_device_async;
using weir::staging::copy_to_host_async;
using weir::staging::copy_to_host_sync;

TEST_CASE("copy: every size goes to the device and comes back through rings of every depth") {
    copy_threads helpers(2);
    for (bool const helped : {false, true})
        for (std::size_t const slots : {1u, 2u, 5u}) {
            CAPTURE(helped);
            CAPTURE(slots);
            support::every_schedule([&] {
                support::scoped_stream const s;
                ringed here(helped ? small(slots).threads(helpers, 300) : small(slots));
                for (std::size_t const bytes :
                     {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{257}, slot_bytes - 1, slot_bytes,
                      slot_bytes + 1, 3 * slot_bytes + 7, 17 * slot_bytes}) {
                    CAPTURE(bytes);
                    check_round_trip(here.ring, s, bytes);
                }
                CHECK(here.pool.allocations.size() == 1);
                CHECK(here.ring.state().direct_bytes == 0);
            });
        }
}

TEST_CASE("copy: the defaults work, and cut a copy so that its parts overlap") {
    support::every_schedule([] {
        support::scoped_stream const s;
        support::recording_pool<weir::memory_space::pinned> pool(65 * MiB);
        copy_threads helpers(3);
        pinned_ring ring(pool, pinned_ring_options{}.threads(helpers));
        check_round_trip(ring, s, 5 * MiB + 3);
        CHECK(ring.state().staged_chunks == 2 * 2);
        CHECK(ring.state().staged_bytes == 2 * (5 * MiB + 3));
        CHECK(ring.state().waits == 0);
    });
}

TEST_CASE("copy: runs after what is on the stream and before what comes later") {
    support::every_schedule([] {
        support::scoped_stream const s;
        ringed here;
        octets const row = counting(5 * slot_bytes);
        memory const there(row.size());
        weir::check_cuda(cudaMemsetAsync(there.at(), 1, row.size(), s), "cudaMemsetAsync");
        copy_to_device_async(here.ring, s, there.at(), row.data(), row.size());
        octets first(row.size());
        pending_copy copy = copy_to_host_async(here.ring, s, first.data(), there.at(), row.size());
        weir::check_cuda(cudaMemsetAsync(there.at(), 2, row.size(), s), "cudaMemsetAsync");
        copy.wait();
        CHECK(first == row);
        CHECK(there.contents(s) == octets(row.size(), 2));
    });
}

TEST_CASE("copy: copies to the host may be waited for in any order, by any thread, or not at all") {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        ringed here(small(4));
        octets const row = counting(slot_bytes);
        memory const there(row);
        octets targets[5];
        for (octets& each : targets)
            each.assign(row.size(), 0);
        auto begin = [&](int i) {
            return copy_to_host_async(here.ring, i % 2 ? weir::stream_ref(s) : weir::stream_ref(t), targets[i].data(),
                                      there.at(), row.size());
        };
        pending_copy a = begin(0), b = begin(1), c = begin(2);
        CHECK(static_cast<bool>(c));
        c.wait();
        CHECK_FALSE(static_cast<bool>(c));
        c.wait(); // nothing is left
        CHECK(targets[2] == row);
        std::thread([&] { a.wait(); }).join();
        CHECK(targets[0] == row);
        pending_copy moved = std::move(b);
        CHECK_FALSE(static_cast<bool>(b));
        moved = begin(3); // what it replaces ends as in its destructor
        CHECK(targets[1] == row);
        { pending_copy const d = begin(4); }
        CHECK(targets[4] == row);
        moved.wait();
        CHECK(targets[3] == row);
        CHECK(here.ring.state().used_slots == 0);
    });
}

TEST_CASE("copy: whoever needs the slot of a copy to the host copies out of it") {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        ringed here(small(3));
        octets const row = counting(slot_bytes), other = counting(slot_bytes, 9);
        memory const there(row);
        octets targets[3];
        pending_copy copies[3];
        for (int i = 0; i < 3; ++i) {
            targets[i].assign(row.size(), 0);
            copies[i] = copy_to_host_async(here.ring, s, targets[i].data(), there.at(), row.size());
        }
        check_round_trip(here.ring, t, 9 * slot_bytes); // the ring is full of copies that nobody waits for
        CHECK(here.ring.state().waits != 0);
        CHECK(targets[0] == row);
        for (int i = 2; i >= 0; --i) {
            copies[i].wait();
            CHECK(targets[i] == row);
        }
    });
}

TEST_CASE("copy: small copies of one stream share a slot") {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        ringed here(small(2));
        octets const row = counting(20 * 256, 3);
        memory const there(row.size());
        for (std::size_t i = 0; i < 16; ++i)
            copy_to_device_async(here.ring, s, there.at(i * 256), row.data() + i * 256, 200);
        for (std::size_t i = 16; i < 20; ++i)
            copy_to_device_async(here.ring, t, there.at(i * 256), row.data() + i * 256, 200);
        CHECK(here.ring.state().waits == 0);
        CHECK(here.ring.state().staged_chunks == 20);
        weir::synchronize(s);
        octets const now = there.contents(t);
        for (std::size_t i = 0; i < 20; ++i)
            CHECK(std::equal(now.begin() + static_cast<long>(i * 256), now.begin() + static_cast<long>(i * 256 + 200),
                             row.begin() + static_cast<long>(i * 256)));
    });
}

TEST_CASE("copy: a stream that was born under the handle of another shares none of its slots") {
    support::every_schedule([] {
        ringed here(small(1));
        octets const row = counting(600), next = counting(slot_bytes, 2);
        memory const there(row.size()), elsewhere(next.size());
        cudaStream_t stream = nullptr;
        for (std::size_t at = 0; at != 600; at += 200) {
            weir::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
            copy_to_device_async(here.ring, stream, there.at(at), row.data() + at, 200);
            weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
        }
        support::scoped_stream const s;
        copy_to_device_async(here.ring, s, elsewhere.at(), next.data(), next.size());
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        CHECK(there.contents(s) == row);
        CHECK(elsewhere.contents(s) == next);
    });
}

TEST_CASE("copy: page-locked memory is copied directly") {
    support::every_schedule([] {
        support::scoped_stream const s;
        ringed here;
        std::size_t const bytes = 3 * slot_bytes;
        octets const row = counting(bytes);
        memory const there(bytes);
        pinned_pool other;
        auto* const locked = static_cast<unsigned char*>(other.allocate(on_host, bytes));
        std::memcpy(locked, row.data(), bytes);
        copy_to_device_async(here.ring, s, there.at(), locked, bytes);
        CHECK(here.ring.state().used_slots == 0);
        CHECK(there.contents(s) == row);
        std::memset(locked, 0, bytes);
        pending_copy copy = copy_to_host_async(here.ring, s, locked, there.at(), bytes);
        CHECK(static_cast<bool>(copy));
        copy.wait();
        CHECK(std::memcmp(locked, row.data(), bytes) == 0);
        CHECK(here.ring.state().direct_bytes == 2 * bytes);
        CHECK(here.ring.state().staged_chunks == 0);
        std::memset(locked, 0, bytes);
        { pending_copy const ended = copy_to_host_async(here.ring, s, locked, there.at(), bytes); }
        CHECK(std::memcmp(locked, row.data(), bytes) == 0); // its end waited
        other.deallocate(on_host, locked, bytes);
    });
}

TEST_CASE("copy: where the caller blocks and nobody helps, a large piece to the host is left to CUDA") {
    copy_threads helpers(2);
    support::every_schedule([&] {
        support::scoped_stream const s;
        octets const row = counting(9 * slot_bytes);
        memory const there(row);
        for (bool const helped : {false, true})
            for (bool const waits : {false, true})
                for (std::size_t const bytes : {2 * slot_bytes - 1, 2 * slot_bytes, 3 * slot_bytes, 9 * slot_bytes}) {
                    pinned_ring_options options = small(3).leave_to_cuda_from(2 * slot_bytes);
                    ringed here(helped ? options.threads(helpers, 1) : options);
                    octets back(bytes);
                    if (waits)
                        copy_to_host_sync(here.ring, s, back.data(), there.at(), bytes);
                    else
                        copy_to_host_async(here.ring, s, back.data(), there.at(), bytes).wait();
                    CHECK(back == octets(row.begin(), row.begin() + static_cast<long>(bytes)));
                    bool const left = !helped && (bytes > 3 * slot_bytes || (waits && bytes >= 2 * slot_bytes));
                    CHECK(here.ring.state().direct_bytes == (left ? bytes : 0));
                    CHECK(here.ring.state().staged_bytes == (left ? 0 : bytes));
                }
    });
}

TEST_CASE("copy: default streams are those of the ring's device") {
    support::every_schedule([] {
        ringed here;
        check_round_trip(here.ring, cudaStreamLegacy, 5 * slot_bytes);
        check_round_trip(here.ring, cudaStreamPerThread, 5 * slot_bytes);
        std::thread([&] { check_round_trip(here.ring, cudaStreamPerThread, 5 * slot_bytes); }).join();
        CHECK(here.ring.state().used_slots <= 2);
    });
}

TEST_CASE("copy: what cannot be is refused with a sentence before anything is enqueued, and zero bytes do nothing") {
    support::every_schedule([] {
        support::scoped_stream const s, captured;
        ringed here;
        memory const there(5 * slot_bytes);
        octets const numbers = counting(5 * slot_bytes);
        octets row = numbers;
        auto both = [&](weir::stream_ref stream, void* device, void* host, std::size_t bytes) {
            std::string const to =
                support::sentence_of<weir::usage_error>([&] { copy_to_device_async(here.ring, stream, device, host, bytes); });
            std::string const from =
                support::sentence_of<weir::usage_error>([&] { copy_to_host_sync(here.ring, stream, host, device, bytes); });
            CHECK(to == from);
            return to;
        };
        CHECK_SAYS(both(on_host, there.at(), row.data(), 100), "'on_host' is none; name the stream");
        CHECK_SAYS(both(s, nullptr, row.data(), 100), "100 bytes cannot be copied from or to a null address");
        CHECK_SAYS(both(s, there.at(), nullptr, 100), "100 bytes cannot be copied from or to a null address");
        {
            support::capture graph(captured);
            CHECK_SAYS(both(captured, there.at(), row.data(), 100), "cannot be captured into a graph");
            octets back(row.size());
            copy_to_device_async(here.ring, s, there.at(), row.data(), row.size()); // beside it all goes on
            copy_to_host_sync(here.ring, s, back.data(), there.at(), row.size());
            CHECK(back == numbers);
            CHECK(graph.unbroken());
        }
        std::uint64_t const before = here.ring.state().staged_chunks;
#ifdef WEIR_SIMULATED_CUDA
        std::uint64_t const calls = simulated_cuda::calls();
#endif
        copy_to_device_async(here.ring, s, nullptr, nullptr, 0);
        copy_to_device_async(here.ring, on_host, there.at(), row.data(), 0);
        copy_to_host_sync(here.ring, captured, nullptr, nullptr, 0);
#ifdef WEIR_SIMULATED_CUDA
        CHECK(simulated_cuda::calls() == calls);
#endif
        CHECK(here.ring.state().staged_chunks == before);
    });
}

#ifdef WEIR_SIMULATED_CUDA

namespace device = simulated_cuda;

namespace {

/// Fills the ring with copies on `stream`, which a gate holds up.
void fill(pinned_ring& ring, cudaStream_t stream, device::gate& gate, memory const& there, octets const& row) {
    CHECK(gate.close(stream) == cudaSuccess);
    for (std::size_t i = ring.state().used_slots; i != ring.state().slots; ++i)
        copy_to_device_async(ring, stream, there.at(), row.data(), row.size());
    CHECK(ring.state().used_slots == ring.state().slots);
}

} // namespace

TEST_CASE("copy: a stream of another device is refused") {
    device::world const world(device::config{}.late().with_devices(2), support::report_all);
    ringed here;
    octets row(100);
    memory const there(100);
    weir::check_cuda(cudaSetDevice(1), "cudaSetDevice");
    support::scoped_stream const other;
    std::uint64_t const waits = device::calls("cudaStreamSynchronize");
    CHECK_SAYS(
        support::sentence_of<weir::usage_error>([&] { copy_to_device_async(here.ring, other, there.at(), row.data(), 100); }),
        "the stream belongs to another device than the ring, which copies to and from device 0; make a ring for each");
    copy_to_device_async(here.ring, cudaStreamLegacy, there.at(), row.data(), 100); // device 0's
    int current = 0;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 1);
    CHECK(device::calls("cudaStreamSynchronize") == waits); // the event was recorded: it is of the stream's device
    weir::check_cuda(cudaSetDevice(0), "cudaSetDevice");
    CHECK(there.contents(cudaStreamLegacy) == row);
}

TEST_CASE("copy: a full ring waits, and copies of other streams go on meanwhile") {
    for (std::uint64_t seed = 1; seed != 20; ++seed) {
        device::config settings = device::config{}.random(seed);
        settings.watchdog_seconds = 2; // for what would wait for ever
        device::world const world(settings, support::report_all);
        support::scoped_stream const a, b;
        ringed here(small(2));
        octets const row = counting(slot_bytes), other = counting(7 * slot_bytes, 4);
        memory const there(row.size()), elsewhere(other.size());
        device::gate gate;
        copy_to_device_async(here.ring, b, elsewhere.at(), other.data(), slot_bytes);
        CHECK(gate.close(a) == cudaSuccess);
        copy_to_device_async(here.ring, a, there.at(), row.data(), row.size()); // older than what b does from now on
        copy_to_device_async(here.ring, b, elsewhere.at(), other.data(), other.size());
        CHECK(elsewhere.contents(b) == other);
        octets const third = counting(slot_bytes, 8);
        bool done = false;
        device::run_threads({[&] {
                                 copy_to_device_async(here.ring, a, there.at(), row.data(), row.size());
                                 copy_to_device_async(here.ring, a, there.at(), third.data(), row.size());
                                 done = true;
                             },
                             [&] {
                                 CHECK_FALSE(done); // two slots, and three copies of a stream that does not move
                                 gate.open();
                             }});
        CHECK(there.contents(a) == third);
    }
}

TEST_CASE("copy: a full ring leaves copies to CUDA or refuses them, if it is to") {
    for (full_action const action : {full_action::copy_directly, full_action::refuse}) {
        device::world const world(device::config{}.late(), support::report_all);
        support::scoped_stream const a, b;
        ringed here(small(2).on_full(action));
        octets const row = counting(slot_bytes);
        octets const large = counting(6 * slot_bytes, 3);
        memory const there(row.size()), elsewhere(large.size());
        device::gate gate;
        fill(here.ring, a, gate, there, row);
        std::size_t const pending = device::pending();
        octets back(large.size());
        pinned_pool other; // for a copy to there a slot's event is needed
        auto* const locked = static_cast<unsigned char*>(other.allocate(on_host, large.size()));
        if (action == full_action::refuse) {
            for (bool const to_device : {true, false})
                CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] {
                               if (to_device)
                                   copy_to_device_async(here.ring, b, elsewhere.at(), large.data(), large.size());
                               else
                                   copy_to_host_sync(here.ring, b, back.data(), elsewhere.at(), large.size());
                           }),
                           "ring 'small' cannot hand out 4096 bytes (4 KiB): every slot of the ring is in use");
            CHECK_SAYS(support::sentence_of<weir::out_of_memory>(
                           [&] { copy_to_host_sync(here.ring, b, locked, elsewhere.at(), large.size()); }),
                       "ring 'small' cannot hand out 24576 bytes (24 KiB): every slot of the ring is in use");
            CHECK(device::pending() == pending);
            CHECK(here.ring.state().refusals == 3);
        } else {
            copy_to_device_async(here.ring, b, elsewhere.at(), large.data(), large.size());
            CHECK_FALSE(static_cast<bool>(copy_to_host_async(here.ring, b, back.data(), elsewhere.at(), large.size())));
            CHECK(back == large);
            CHECK_FALSE(static_cast<bool>(copy_to_host_async(here.ring, b, locked, elsewhere.at(), large.size())));
            CHECK(octets(locked, locked + large.size()) == large);
            CHECK(here.ring.state().direct_bytes == large.size());
            CHECK(here.ring.state().left_to_cuda == 3);
        }
        CHECK(here.ring.state().waits == 0);
        other.deallocate(on_host, locked, large.size());
        gate.open();
        weir::synchronize(a);
        copy_to_device_async(here.ring, b, elsewhere.at(), large.data(), large.size());
        CHECK(here.ring.state().waits == 4); // once it has begun, a copy waits for its own parts
        CHECK(elsewhere.contents(b) == large);
        CHECK(here.ring.state().refusals + here.ring.state().left_to_cuda == 3);
    }
}

TEST_CASE("copy: steady copying allocates nothing, on the host or on the device, and waits for no stream") {
    device::world const world(device::config{}.late(), support::report_all);
    support::scoped_stream const s;
    copy_threads helpers(2);
    for (bool const helped : {false, true}) {
        ringed here(helped ? small(3).threads(helpers, 1) : small(3));
        octets row = counting(7 * slot_bytes), back(7 * slot_bytes);
        memory const there(row.size());
        std::vector<piece> to, from;
        for (std::size_t i = 0; i != 70; ++i) {
            to.push_back({there.at((69 - i) * 400), row.data() + i * 400, 300});
            from.push_back({back.data() + i * 400, there.at((69 - i) * 400), 300});
        }
        char const* const forbidden[] = {"cudaMalloc",
                                         "cudaMallocManaged",
                                         "cudaHostAlloc",
                                         "cudaFree",
                                         "cudaFreeHost",
                                         "cudaEventCreateWithFlags",
                                         "cudaMallocAsync",
                                         "cudaStreamSynchronize",
                                         "cudaDeviceSynchronize",
                                         "cudaStreamWaitEvent",
                                         "cudaHostRegister",
                                         "cudaHostUnregister"};
        std::vector<std::uint64_t> before;
        for (char const* each : forbidden)
            before.push_back(device::calls(each));
        for (int i = 0; i < 20; ++i) {
            std::optional<support::failing_new> none;
            if (support::host_memory_can_fail)
                none.emplace(0);
            copy_to_device_async(here.ring, s, there.at(), row.data(), row.size());
            copy_to_host_sync(here.ring, s, back.data(), there.at(), row.size());
            weir::staging::copy_batch_to_device_async(here.ring, s, to.data(), to.size());
            weir::staging::copy_batch_to_host_sync(here.ring, s, from.data(), from.size());
        }
        for (std::size_t i = 0; i != before.size(); ++i)
            CHECK_MESSAGE(device::calls(forbidden[i]) == before[i], forbidden[i]);
        CHECK(here.pool.allocations.size() == 1);
    }
}

TEST_CASE("copy: many threads share a ring") {
    copy_threads helpers(2);
    for (std::uint64_t seed = 1; seed != 25; ++seed) {
        CAPTURE(seed);
        device::world const world(device::config{}.random(seed), support::report_all);
        support::scoped_stream const streams[3];
        ringed here(seed % 2 ? small(1 + seed % 4) : small(1 + seed % 4).threads(helpers, slot_bytes));
        std::vector<std::unique_ptr<memory>> memories;
        for (int i = 0; i < 4; ++i)
            memories.push_back(std::make_unique<memory>(4 * slot_bytes));
        auto producer = [&](unsigned who) {
            cudaStream_t const on = who < 3 ? static_cast<cudaStream_t>(streams[who]) : cudaStreamPerThread;
            std::mt19937 random(static_cast<unsigned>(seed) * 10 + who);
            for (unsigned round = 0; round != 5; ++round) {
                std::size_t const bytes = 1 + random() % (4 * slot_bytes);
                octets row = counting(bytes, who * 50 + round), back(bytes);
                octets const was = row;
                copy_to_device_async(here.ring, on, memories[who]->at(), row.data(), bytes);
                std::fill(row.begin(), row.end(), static_cast<unsigned char>(0));
                pending_copy copy = copy_to_host_async(here.ring, on, back.data(), memories[who]->at(), bytes);
                device::yield();
                copy.wait();
                CHECK(back == was);
            }
        };
        device::run_threads({[&] { producer(0); }, [&] { producer(1); }, [&] { producer(2); }, [&] { producer(3); }});
        CHECK(here.ring.state().stranded_slots == 0);
    }
}

namespace {

/// A ring in the midst of things: a copy to the device on another stream, and one to the host that nobody has waited for.
struct busy : ringed {
    busy()
        : ringed(small(3)), row(counting(5 * slot_bytes, 2)), there(row), elsewhere(row.size()), other(row.size()),
          back(row.size(), 0), earlier(row.size(), 0) {
        copy_to_device_async(ring, b, other.at(), row.data(), slot_bytes);
        pending = copy_to_host_async(ring, b, earlier.data(), there.at(), slot_bytes);
    }
    /// The ring works, and nobody writes what the copies of a call that failed were about.
    void judge(bool failed) {
        octets const was = back;
        pending.wait();
        CHECK(std::equal(earlier.begin(), earlier.begin() + static_cast<long>(slot_bytes), row.begin()));
        check_round_trip(ring, a, 7 * slot_bytes);
        check_round_trip(ring, b, 7 * slot_bytes);
        CHECK((!failed || back == was));
        CHECK(there.contents(a) == row);
        CHECK(ring.state().used_slots == ring.state().stranded_slots);
    }

    support::scoped_stream a, b;
    octets row;
    memory there, elsewhere, other;
    octets back, earlier;
    pending_copy pending;
};

} // namespace

TEST_CASE("copy: wherever a call fails, the copy is whole or the error is told, and the ring goes on") {
    auto const scene = [] { return std::make_unique<busy>(); };
    auto const to_device = support::fault_sweep(
        scene, [](busy& s) { copy_to_device_async(s.ring, s.a, s.elsewhere.at(), s.row.data(), s.row.size()); },
        [](busy& s, support::struck const& fault) {
            if (!fault.threw)
                CHECK(s.elsewhere.contents(s.a) == s.row);
            s.judge(fault.threw);
        },
        support::faults::pairs_too);
    CHECK(to_device > 30);
    auto const to_host = support::fault_sweep(
        scene, [](busy& s) { copy_to_host_sync(s.ring, s.a, s.back.data(), s.there.at(), s.row.size()); },
        [](busy& s, support::struck const& fault) {
            if (!fault.threw)
                CHECK(s.back == s.row);
            s.judge(fault.threw);
        },
        support::faults::pairs_too);
    CHECK(to_host > 30);
    auto const waiting = support::fault_sweep(
        scene, [](busy& s) { s.pending.wait(); },
        [](busy& s, support::struck const& fault) { s.judge(fault.threw); }); // what failed is repeated there
    CHECK(waiting > 3);
    auto const direct = support::fault_sweep(
        scene,
        [](busy& s) {
            void* const locked = s.pool.allocate(on_host, s.row.size());
            try {
                copy_to_host_sync(s.ring, s.a, locked, s.there.at(), s.row.size());
                CHECK(std::memcmp(locked, s.row.data(), s.row.size()) == 0);
            } catch (...) {
                s.pool.deallocate(s.a, locked, s.row.size());
                throw;
            }
            s.pool.deallocate(on_host, locked, s.row.size());
        },
        [](busy& s, support::struck const& fault) { s.judge(fault.threw); });
    CHECK(direct > 10);
}

TEST_CASE("copy: where nothing tells when a copy is over its slot is stranded, until the device was waited for") {
    for (std::size_t const slots : {2u, 1u}) {
        device::world const world(device::config{}.late(), support::report_all);
        support::scoped_stream const a, b;
        ringed here(small(slots));
        octets const row = counting(slot_bytes), other = counting(slot_bytes, 6);
        memory const there(row.size()), elsewhere(row.size());
        device::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
        device::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
        CHECK_THROWS_AS(copy_to_device_async(here.ring, a, there.at(), row.data(), row.size()), weir::cuda_error);
        CHECK(here.ring.state().stranded_slots == 1);
        for (int i = 0; i < 3; ++i) // it takes the other slot, or else waits for the device
            copy_to_device_async(here.ring, b, elsewhere.at(), other.data(), other.size());
        CHECK(here.ring.state().stranded_slots == (slots == 2 ? 1 : 0));
        weir::synchronize(a);
        CHECK(elsewhere.contents(b) == other);
        CHECK(there.contents(a) == row); // whose copy read its own slot
    }
}

TEST_CASE("copy: an event that cannot be recorded is made up for by a wait") {
    device::world const world(device::config{}.late(), support::report_all);
    support::scoped_stream const a;
    ringed here(small(1));
    octets const row = counting(3 * slot_bytes);
    memory const there(row);
    octets back(row.size());
    device::fail_call("cudaEventRecord", 1, cudaErrorUnknown, device::lasting::for_ever);
    copy_to_host_sync(here.ring, a, back.data(), there.at(), row.size());
    CHECK(back == row);
    device::clear_faults();
    CHECK(here.ring.state().used_slots == 0);
}

TEST_CASE("copy: after an error that lasts nothing blocks, and all say so") {
    device::world world(device::config{}.late(), [](auto const&) {});
    support::scoped_stream const a;
    weir::pinned_pool pool{weir::pool_options{}.on_leak(weir::leak_action::ignore)};
    std::optional<pinned_ring> ring(std::in_place, pool, small(2));
    octets row = counting(slot_bytes), back(row.size());
    memory const there(row);
    pending_copy pending = copy_to_host_async(*ring, a, back.data(), there.at(), row.size());
    device::inject_sticky(cudaErrorIllegalAddress);
    CHECK_THROWS_AS(pending.wait(), weir::cuda_error);
    CHECK_THROWS_AS(copy_to_device_async(*ring, a, there.at(), row.data(), row.size()), weir::cuda_error);
    CHECK_THROWS_AS(copy_to_host_sync(*ring, a, back.data(), there.at(), row.size()), weir::cuda_error);
    pending = pending_copy();
    ring.reset();
    CHECK(pool.state().live_blocks == 1); // copies may be under way for ever
    world.forgive();
}

#endif
