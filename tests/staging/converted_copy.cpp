// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "scene.hpp"

#include <algorithm>
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <limits>
#include <stdexcept>
#include <weir/recipes.hpp>

using namespace scene;
using weir::converting_view;
using weir::staging::copy_converted_to_device_async;
using weir::staging::copy_converted_to_host_async;
using weir::staging::copy_stored_to_host_async;
using weir::staging::copy_to_device_async;
using weir::staging::copy_to_host_async;
using weir::staging::copy_to_host_sync;

namespace {

/// Numbers that differ from their neighbours, and that every format has.
template <class Element>
std::vector<Element> small_numbers(std::size_t count, std::size_t seed = 0) {
    std::vector<Element> row(count);
    for (std::size_t i = 0; i != count; ++i)
        row[i] = static_cast<Element>(static_cast<int>((i * 7 + i / 16 * 5 + seed) % 15) - 7);
    return row;
}

/// Numbers of the device.
template <class T>
struct numbers : memory {
    explicit numbers(std::size_t size) : memory(size * sizeof(T)), count(size) {}
    explicit numbers(std::vector<T> const& row)
        : memory(octets(reinterpret_cast<unsigned char const*>(row.data()),
                        reinterpret_cast<unsigned char const*>(row.data() + row.size()))),
          count(row.size()) {}
    T* data() const { return reinterpret_cast<T*>(at()); }
    std::vector<T> contents_of(weir::stream_ref after) const {
        octets const bytes = contents(after);
        std::vector<T> row(count);
        if (count != 0)
            std::memcpy(static_cast<void*>(row.data()), bytes.data(), bytes.size());
        return row;
    }
    std::size_t count;
};

/// `row` as elements of the scale, for rows of storage on the host.
template <class Element, class Storage>
std::vector<Element> elements(std::vector<Storage> const& row, Element scale) {
    converting_view<Element, Storage const> const view(row, scale);
    return std::vector<Element>(view.begin(), view.end());
}

/// Stands in for a kernel: enqueues the conversion as an operation of the stream, on a GPU as a copy, a wait and a copy. Counts
/// its calls.
struct converter {
    template <class Element, class Storage>
    void operator()(weir::stream_ref stream, converting_view<Element, Storage> to, Element const* from) const {
        ++calls;
        if (calls == fails_at)
            throw std::runtime_error("no kernel");
#ifdef WEIR_SIMULATED_CUDA
        namespace device = simulated_cuda;
        device::bytes const read{from, to.size() * sizeof(Element)}, written{to.data(), to.size_bytes()};
        weir::check_cuda(device::launch(stream.get(), {read}, {written},
                                   [=] {
                                       auto const* const all = static_cast<Element const*>(device::backing(from));
                                       std::copy(all, all + to.size(), to.begin());
                                   }),
                    "launch");
#else
        std::vector<Element> host(to.size());
        weir::check_cuda(cudaMemcpyAsync(host.data(), from, to.size() * sizeof(Element), cudaMemcpyDefault, stream.get()), "copy");
        weir::synchronize(stream);
        std::copy(host.begin(), host.end(), to.begin());
#endif
    }
    mutable std::size_t calls = 0;
    std::size_t fails_at = 0;
};

/// A row goes to the device, is stored there, and comes back, both ways that are.
template <class Element, class Storage>
void check_all_ways(pinned_ring& ring, weir::stream_ref stream, std::size_t count, Element scale) {
    std::vector<Element> const row = small_numbers<Element>(count);
    std::vector<Element> expected = row;
    for (Element& each : expected)
        each *= scale;
    numbers<Storage> const there(count);
    converting_view<Element, Storage> const view(there.data(), count, scale);
    std::vector<Element> source = expected;
    std::uint64_t const before = ring.state().staged_bytes;
    copy_converted_to_device_async(ring, stream, view, source.data(), count);
    CHECK(ring.state().staged_bytes - before == view.size_bytes()); // what travels
    std::fill(source.begin(), source.end(), Element{9}); // it was read
    CHECK(elements<Element, Storage>(there.contents_of(stream), scale) == expected);
    std::vector<Element> back(count);
    copy_converted_to_host_async(ring, stream, back.data(), view, count).wait();
    CHECK(back == expected);
    numbers<Element> const whole(expected);
    std::vector<Storage> stored(count);
    copy_stored_to_host_async(ring, stream, converting_view<Element, Storage>(stored, scale),
                              static_cast<Element const*>(whole.data()), count, converter{})
        .wait();
    CHECK(elements<Element, Storage>(stored, scale) == expected);
    CHECK(ring.state().staged_bytes - before == 3 * view.size_bytes());
}

} // namespace

TEST_CASE_TEMPLATE("converted_copy: every size goes each way through rings of every depth", Storage, __half, __nv_bfloat16,
                   __nv_fp8_e4m3, __nv_fp8_e5m2, float) {
    copy_threads helpers(2);
    for (bool const helped : {false, true})
        for (std::size_t const slots : {1u, 3u}) {
            CAPTURE(helped);
            CAPTURE(slots);
            support::every_schedule([&] {
                support::scoped_stream const s;
                ringed here(helped ? small(slots).threads(helpers, 300) : small(slots));
                std::size_t const fit = slot_bytes / sizeof(Storage);
                for (std::size_t const count : {std::size_t{0}, std::size_t{1}, std::size_t{129}, fit, fit + 1, 5 * fit + 3})
                    check_all_ways<float, Storage>(here.ring, s, count, 0.25f);
                CHECK(here.pool.allocations.size() == 1);
            });
        }
}

TEST_CASE("converted_copy: doubles are elements, too, and chunks of any size are cut between numbers") {
    copy_threads helpers(1);
    support::every_schedule([&] {
        support::scoped_stream const s;
        for (std::size_t const least : {1u, 301u, 4095u}) {
            ringed here(small(4).least_chunk(least).threads(helpers, 1));
            check_all_ways<double, float>(here.ring, s, 2999, 1);
            check_all_ways<double, __half>(here.ring, s, 2999, 3);
            check_all_ways<float, __half>(here.ring, s, 1 << 17, 1); // in shares for the threads
        }
    });
}

TEST_CASE("converted_copy: runs after what is on the stream and before what comes later") {
    support::every_schedule([] {
        support::scoped_stream const s;
        ringed here;
        std::size_t const count = 3 * slot_bytes;
        std::vector<float> const row = small_numbers<float>(count);
        numbers<__half> const there(count);
        numbers<float> const whole(row);
        converting_view<float, __half> const view(there.data(), count);
        weir::check_cuda(cudaMemsetAsync(there.data(), 1, view.size_bytes(), s), "cudaMemsetAsync");
        copy_converted_to_device_async(here.ring, s, view, row.data(), count);
        std::vector<float> back(count);
        std::vector<__half> stored(count);
        pending_copy copy = copy_converted_to_host_async(here.ring, s, back.data(), view, count);
        weir::check_cuda(cudaMemsetAsync(there.data(), 0, view.size_bytes(), s), "cudaMemsetAsync");
        pending_copy other = copy_stored_to_host_async(here.ring, s, converting_view<float, __half>(stored),
                                                       static_cast<float const*>(whole.data()), count, converter{});
        weir::check_cuda(cudaMemsetAsync(whole.data(), 0, count * sizeof(float), s), "cudaMemsetAsync");
        other.wait();
        copy.wait();
        CHECK(back == row);
        CHECK(elements<float, __half>(stored, 1) == row);
        CHECK(elements<float, __half>(there.contents_of(s), 1) == std::vector<float>(count));
    });
}

TEST_CASE("converted_copy: page-locked targets take one kernel, and page-locked sources are converted by the host") {
    support::every_schedule([] {
        support::scoped_stream const s;
        ringed here;
        pinned_pool other;
        std::size_t const count = 3 * slot_bytes;
        std::vector<float> const row = small_numbers<float>(count);
        auto* const locked = static_cast<float*>(other.allocate(on_host, count * sizeof(float)));
        auto* const halves = static_cast<__half*>(other.allocate(on_host, count * sizeof(__half)));
        std::copy(row.begin(), row.end(), locked);
        numbers<__half> const there(count);
        numbers<float> const whole(row);
        converting_view<float, __half> const view(there.data(), count), of_host(halves, count);
        copy_converted_to_device_async(here.ring, s, view, static_cast<float const*>(locked), count);
        std::fill(locked, locked + count, 0.f); // it was read
        copy_converted_to_host_async(here.ring, s, locked, view, count).wait();
        CHECK(std::equal(row.begin(), row.end(), locked));
        CHECK(here.ring.state().staged_bytes == 2 * view.size_bytes());
        converter const once;
        pending_copy copy =
            copy_stored_to_host_async(here.ring, s, of_host, static_cast<float const*>(whole.data()), count, once);
        CHECK(static_cast<bool>(copy));
        copy.wait();
        CHECK(once.calls == 1);
        CHECK(std::equal(row.begin(), row.end(), of_host.begin()));
        CHECK(here.ring.state().direct_bytes == view.size_bytes());
        other.deallocate(on_host, locked, count * sizeof(float));
        other.deallocate(on_host, halves, count * sizeof(__half));
    });
}

TEST_CASE("converted_copy: a full ring waits, whatever else it does, unless it refuses") {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        std::size_t const count = slot_bytes;
        std::vector<float> const row = small_numbers<float>(count);
        numbers<__half> const there(count);
        converting_view<float, __half> const view(there.data(), count);
        octets target(slot_bytes);
        memory const bytes(slot_bytes);
        for (full_action const action : {full_action::wait, full_action::copy_directly, full_action::refuse}) {
            ringed here(small(1).on_full(action));
            pending_copy filling =
                weir::staging::copy_to_host_async(here.ring, t, target.data(), bytes.at(), slot_bytes);
            std::vector<float> back(count);
            if (action == full_action::refuse) {
                CHECK_THROWS_AS(copy_converted_to_device_async(here.ring, s, view, row.data(), count), weir::out_of_memory);
                CHECK_THROWS_AS(copy_converted_to_host_async(here.ring, s, back.data(), view, count).wait(),
                                weir::out_of_memory);
                continue;
            }
            copy_converted_to_device_async(here.ring, s, view, row.data(), count);
            copy_converted_to_host_async(here.ring, s, back.data(), view, count).wait();
            CHECK(back == row);
            CHECK(here.ring.state().left_to_cuda == 0);
            CHECK(here.ring.state().waits != 0);
        }
    });
}

TEST_CASE("converted_copy: what cannot be is refused before anything is enqueued") {
    support::every_schedule([] {
        support::scoped_stream const s;
        ringed here;
        std::vector<float> row(10);
        std::vector<__half> halves(10);
        numbers<__half> const there(10);
        numbers<float> const whole(10);
        converting_view<float, __half> const view(there.data(), 9), of_host(halves.data(), 9), nine(there.data(), 9);
        converter const convert;
        float const* const none = nullptr;
        auto says = [](auto const& call, char const* what) {
            CHECK_SAYS(support::sentence_of<weir::usage_error>(call), what);
        };
        char const* const sizes = "got a view of 9 and 10 elements";
        says([&] { copy_converted_to_device_async(here.ring, s, view, row.data(), 10); }, sizes);
        says([&] { copy_converted_to_host_async(here.ring, s, row.data(), view, 10).wait(); }, sizes);
        says([&] { copy_stored_to_host_async(here.ring, s, of_host, row.data(), 10, convert).wait(); }, sizes);
        says([&] { copy_converted_to_device_async(here.ring, s, view, none, 9); }, "null");
        says([&] { copy_converted_to_host_async(here.ring, s, static_cast<float*>(nullptr), view, 9).wait(); }, "null");
        says([&] { copy_stored_to_host_async(here.ring, s, of_host, none, 9, convert).wait(); }, "null");
        says([&] { copy_converted_to_device_async(here.ring, on_host, view, row.data(), 9); }, "'on_host'");
        CHECK(convert.calls == 0);
        CHECK(here.ring.state().staged_chunks == 0);
        CHECK(here.ring.state().used_slots == 0);
    });
}

TEST_CASE("converted_copy: what a kernel's launch throws comes out, and the target is written no more") {
    for (bool const locked : {false, true})
        for (std::size_t const fails_at : {1u, 2u, 3u}) {
            CAPTURE(locked);
            CAPTURE(fails_at);
            if (locked && fails_at != 1)
                continue; // there is one launch
            support::every_schedule([&] {
                support::scoped_stream const s;
                ringed here(small(2));
                pinned_pool other;
                std::size_t const count = 2 * slot_bytes; // four chunks
                numbers<float> const whole(small_numbers<float>(count));
                std::vector<__half> halves(count);
                void* const memory = other.allocate(on_host, count * sizeof(__half));
                converting_view<float, __half> const to(locked ? static_cast<__half*>(memory) : halves.data(), count);
                converter convert;
                convert.fails_at = fails_at;
                CHECK_THROWS_AS(
                    copy_stored_to_host_async(here.ring, s, to, static_cast<float const*>(whole.data()), count, convert).wait(),
                    std::runtime_error);
                std::fill(to.begin(), to.end(), 77.f);
                weir::synchronize(s);
                check_round_trip(here.ring, s, 5 * slot_bytes); // the ring works
                CHECK(std::all_of(to.begin(), to.end(), [](float x) { return x == 77; }));
                other.deallocate(on_host, memory, count * sizeof(__half));
            });
        }
}

TEST_CASE("converted_copy: a kernel's launch copies through another ring than the one whose slot it fills") {
    for (bool const locked : {false, true})
        for (std::size_t const slots : {1u, 3u}) {
            CAPTURE(locked);
            CAPTURE(slots);
            support::every_schedule([&] {
                support::scoped_stream const s;
                ringed here(small(slots)), other(small(1));
                pinned_pool pinned;
                std::size_t const count = slot_bytes; // two chunks
                std::vector<float> const row = small_numbers<float>(count);
                numbers<float> const whole(row);
                std::vector<__half> halves(count);
                void* const memory = pinned.allocate(on_host, count * sizeof(__half));
                converting_view<float, __half> const to(locked ? static_cast<__half*>(memory) : halves.data(), count);
                scene::memory const table(100);
                octets const fresh = counting(100);
                octets back(100);
                pending_copy before = copy_to_host_async(here.ring, s, back.data(), table.at(), slots == 1 ? 0 : 100);
                char const* const sentence = "holds one of its slots meanwhile; let it copy through another ring";
                auto const through = [&](pinned_ring& ring, bool waits) {
                    return [&, waits](weir::stream_ref on, auto view, float const* from) {
                        if (waits)
                            before.wait();
                        copy_to_device_async(ring, on, table.at(), fresh.data(), fresh.size());
                        copy_to_host_sync(ring, on, back.data(), table.at(), back.size());
                        converter{}(on, view, from);
                    };
                };
                auto const copy = [&](auto const& convert) {
                    copy_stored_to_host_async(here.ring, s, to, static_cast<float const*>(whole.data()), count, convert).wait();
                };
                CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { copy(through(here.ring, false)); }), sentence);
                if (before)
                    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { copy(through(other.ring, true)); }), sentence);
                check_round_trip(here.ring, s, 5 * slot_bytes); // the ring works
                copy(through(other.ring, false));
                CHECK(back == fresh);
                CHECK(std::equal(row.begin(), row.end(), to.begin()));
                before.wait();
                pinned.deallocate(on_host, memory, count * sizeof(__half));
            });
        }
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("converted_copy: whatever call fails, a copy is made or says so, and the ring goes on") {
    struct state {
        ringed here;
        support::scoped_stream s;
        std::vector<float> row = small_numbers<float>(3 * slot_bytes), back = std::vector<float>(row.size());
        std::vector<__half> halves = std::vector<__half>(row.size());
        numbers<__half> there{row.size()};
        numbers<float> whole{row};
        converting_view<float, __half> view{there.data(), row.size()};
    };
    auto const tried = support::fault_sweep(
        [] { return std::make_unique<state>(); },
        [](state& x) {
            copy_converted_to_device_async(x.here.ring, x.s, x.view, x.row.data(), x.row.size());
            copy_converted_to_host_async(x.here.ring, x.s, x.back.data(), x.view, x.row.size()).wait();
            copy_stored_to_host_async(x.here.ring, x.s, converting_view<float, __half>(x.halves),
                                      static_cast<float const*>(x.whole.data()), x.row.size(), converter{})
                .wait();
        },
        [](state& x, support::struck const& fault) {
            if (!fault.threw) {
                CHECK(x.back == x.row);
                CHECK(elements<float, __half>(x.halves, 1) == x.row);
            }
            weir::synchronize(x.s);
            check_round_trip(x.here.ring, x.s, 5 * slot_bytes);
        });
    CHECK(tried > 30);
}
#endif
