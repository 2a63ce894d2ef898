// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "scene.hpp"

#include <algorithm>
#include <random>

using namespace scene;
using weir::staging::copy_batch_to_device_async;
using weir::staging::copy_batch_to_host_async;
using weir::staging::copy_batch_to_host_sync;
using weir::staging::copy_to_device_async;

namespace {

enum class layout { contiguous, scattered };

/// Pieces of a row of the host's and of device memory that hold the same bytes. Where they are scattered, they lie in another
/// order, with gaps.
struct pieces {
    pieces(std::size_t count, std::size_t bytes, layout host_side, layout device_side)
        : sizes(count), row(counting(count * (bytes + gap))), there(row.size()) {
        std::mt19937 random(static_cast<unsigned>(count + bytes));
        for (std::size_t& each : sizes)
            each = host_side == layout::contiguous && device_side == layout::contiguous && bytes % 2 == 0
                       ? bytes
                       : random() % (bytes + 1); // some have none
        std::vector<std::size_t> const at = offsets(host_side, bytes);
        device_at = offsets(device_side, bytes);
        back = octets(row.size(), 0);
        expected = octets(row.size(), 0);
        for (std::size_t i = 0; i != count; ++i) {
            to_device.push_back({there.at(device_at[i]), row.data() + at[i], sizes[i]});
            to_host.push_back({back.data() + at[i], there.at(device_at[i]), sizes[i]});
            std::copy_n(row.begin() + static_cast<long>(at[i]), sizes[i], expected.begin() + static_cast<long>(at[i]));
            total += sizes[i];
        }
    }

    static constexpr std::size_t gap = 32;
    std::vector<std::size_t> sizes, device_at;
    octets row, back, expected;
    memory there;
    std::vector<piece> to_device, to_host;
    std::size_t total = 0;

private:
    std::vector<std::size_t> offsets(layout how, std::size_t bytes) const {
        std::vector<std::size_t> at;
        for (std::size_t i = 0, end = 0; i != sizes.size(); end += sizes[i++])
            at.push_back(how == layout::contiguous ? end : (sizes.size() - 1 - i) * (bytes + gap));
        return at;
    }
};

} // namespace

TEST_CASE("copy_batch: pieces of every layout go to the device and come back") {
    copy_threads helpers(2);
    for (bool const helped : {false, true})
        for (layout const host : {layout::contiguous, layout::scattered})
            for (layout const device : {layout::contiguous, layout::scattered})
                for (auto const& each :
                     {std::pair<std::size_t, std::size_t>{1, 100}, {70, 300}, {9, 3 * slot_bytes}, {700, 9}}) {
                    CAPTURE(helped);
                    CAPTURE(static_cast<int>(host));
                    CAPTURE(static_cast<int>(device));
                    CAPTURE(each.first);
                    support::every_schedule([&] {
                        support::scoped_stream const s;
                        ringed here(helped ? small(3).threads(helpers, 1) : small(3));
                        pieces batch(each.first, each.second, host, device);
                        octets const row = batch.row;
                        std::vector<piece> list = batch.to_device;
                        copy_batch_to_device_async(here.ring, s, list.data(), list.size());
                        std::fill(batch.row.begin(), batch.row.end(), static_cast<unsigned char>(0)); // they were read,
                        list.clear();                                                                 // and so was the list
                        octets const there = batch.there.contents(s);
                        for (std::size_t i = 0; i != batch.sizes.size(); ++i)
                            CHECK(std::equal(
                                there.begin() + static_cast<long>(batch.device_at[i]),
                                there.begin() + static_cast<long>(batch.device_at[i] + batch.sizes[i]),
                                row.begin() + (static_cast<unsigned char const*>(batch.to_device[i].from) - batch.row.data())));
                        copy_batch_to_host_sync(here.ring, s, batch.to_host.data(), batch.to_host.size());
                        CHECK(batch.back == batch.expected);
                        CHECK(here.ring.state().staged_bytes == 2 * batch.total);
                    });
                }
}

TEST_CASE("copy_batch: no pieces, and pieces without bytes, do nothing; a null address is refused") {
    support::every_schedule([] {
        support::scoped_stream const s;
        ringed here;
        memory const there(100);
        octets row(100);
        piece const none[] = {{}, {there.at(), nullptr, 0}};
        copy_batch_to_device_async(here.ring, s, nullptr, 0);
        copy_batch_to_device_async(here.ring, s, none, 2);
        CHECK_FALSE(static_cast<bool>(copy_batch_to_host_async(here.ring, s, none, 2)));
        piece const wrong[] = {{there.at(), row.data(), 100}, {there.at(), nullptr, 100}};
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { copy_batch_to_device_async(here.ring, s, wrong, 2); }),
                   "100 bytes cannot be copied from or to a null address");
        CHECK(here.ring.state().staged_chunks == 0);
    });
}

TEST_CASE("copy_batch: pieces of page-locked memory are copied directly") {
    support::every_schedule([] {
        support::scoped_stream const s;
        ringed here;
        pinned_pool other;
        auto* const locked = static_cast<unsigned char*>(other.allocate(on_host, 1000));
        octets const row = counting(1000);
        std::memcpy(locked, row.data(), 1000);
        memory const there(1000);
        std::vector<piece> to, from;
        to.push_back({}); // where memory is of is asked of the first piece that has bytes
        for (std::size_t i = 0; i != 10; ++i) {
            to.push_back({there.at(i * 100), locked + (9 - i) * 100, 100});
            from.push_back({locked + (9 - i) * 100, there.at(i * 100), 100});
        }
        copy_batch_to_device_async(here.ring, s, to.data(), to.size());
        weir::synchronize(s);
        std::memset(locked, 0, 1000);
        pending_copy copy = copy_batch_to_host_async(here.ring, s, from.data(), from.size());
        copy.wait();
        CHECK(std::memcmp(locked, row.data(), 1000) == 0);
        CHECK(here.ring.state().staged_chunks == 0);
        CHECK(here.ring.state().direct_bytes == 2000);
        other.deallocate(on_host, locked, 1000);
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("copy_batch: what lies side by side on the device is one copy a chunk, what does not is one list a chunk") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    ringed here(small(8));
    auto calls = [](char const* name) { return simulated_cuda::calls(name); };
    pieces row(64, 256, layout::scattered, layout::contiguous), scattered(64, 256, layout::contiguous, layout::scattered);
    std::size_t const chunks = (row.total + slot_bytes - 1) / slot_bytes;
    std::uint64_t const copies = calls("cudaMemcpyAsync");
    copy_batch_to_device_async(here.ring, s, row.to_device.data(), 64);
    copy_batch_to_host_sync(here.ring, s, row.to_host.data(), 64);
    CHECK(calls("cudaMemcpyAsync") == copies + 2 * chunks);
    CHECK(calls("cudaMemcpyBatchAsync") == 0);
    copy_batch_to_device_async(here.ring, s, scattered.to_device.data(), 64);
    copy_batch_to_host_sync(here.ring, s, scattered.to_host.data(), 64);
    CHECK(calls("cudaMemcpyAsync") == copies + 2 * chunks);
    CHECK(calls("cudaMemcpyBatchAsync") == 2 * ((scattered.total + slot_bytes - 1) / slot_bytes));
}

TEST_CASE("copy_batch: wherever a call fails, the batch is whole or the error is told, and the ring goes on") {
    struct state {
        explicit state(bool own) : stream(own ? weir::stream_ref(s) : weir::stream_ref(cudaStreamLegacy)) {}
        support::scoped_stream s;
        weir::stream_ref stream; // the legacy stream takes no lists, so that a part of a chunk may have been enqueued
        ringed here{small(2)};
        pieces batch{60, 300, layout::scattered, layout::scattered};
        octets const later = counting(2 * slot_bytes, 77);
        memory elsewhere{later.size()};
    };
    for (bool const own : {true, false}) {
        auto const runs = support::fault_sweep(
            [own] { return std::make_unique<state>(own); },
            [](state& x) {
                copy_batch_to_device_async(x.here.ring, x.stream, x.batch.to_device.data(), x.batch.to_device.size());
                copy_batch_to_host_sync(x.here.ring, x.stream, x.batch.to_host.data(), x.batch.to_host.size());
            },
            [](state& x, support::struck const& fault) {
                if (!fault.threw)
                    CHECK(x.batch.back == x.batch.expected);
                copy_to_device_async(x.here.ring, x.s, x.elsewhere.at(), x.later.data(), x.later.size()); // into each slot
                octets const there = x.batch.there.contents(x.stream);
                for (std::size_t i = 0; i != x.batch.sizes.size(); ++i) { // it came whole, or not at all
                    auto const* const from = static_cast<unsigned char const*>(x.batch.to_device[i].from);
                    auto const first = there.begin() + static_cast<long>(x.batch.device_at[i]);
                    auto const last = first + static_cast<long>(x.batch.sizes[i]);
                    bool const cut = std::find(first, last, 0xAA) != last; // at a chunk's end
                    CHECK((cut || std::equal(first, last, from)));
                }
                CHECK(x.elsewhere.contents(x.s) == x.later);
            },
            own ? support::faults::pairs_too : support::faults::single);
        CHECK(runs > 50);
    }
}

#endif
