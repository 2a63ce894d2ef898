// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "scene.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <unistd.h>
#include <weir/recipes.hpp>

using namespace scene;
using namespace weir::staging;
using device_pool = support::recording_pool<weir::memory_space::device>;
using chunk = device_chunk<unsigned char>;

namespace {

constexpr std::size_t chunk_bytes = 10000; // two slots and a half
streaming_options<> small_chunks(std::size_t depth = 3) {
    return streaming_options<>{}.chunk_bytes(chunk_bytes).depth(depth);
}

/// A file that ends with the test.
struct file {
    explicit file(octets const& with) {
        int const it = mkstemp(path);
        REQUIRE(it >= 0);
        CHECK(write(it, with.data(), with.size()) == static_cast<ssize_t>(with.size()));
        close(it);
    }
    ~file() { unlink(path); }
    char path[32] = "/tmp/weir-streaming-XXXXXX";
};

/// A callable that hands on a row.
auto reader_of(octets const& row) {
    return from_callable<unsigned char>([&row, at = std::size_t{0}](unsigned char* to, std::size_t most) mutable {
        std::size_t const count = std::min({most, row.size() - at, std::size_t{3000}});
        if (count != 0)
            std::memcpy(to, row.data() + at, count);
        at += count;
        return count;
    });
}

/// What all tests stand on: a ring, a pool, a stream, and compute that adds the chunks to `seen`, in order, and marks the
/// first byte of each, so that results differ from what was read.
struct stage : ringed {
    explicit stage(octets const& with, pinned_ring_options const& options = small(3))
        : ringed(options), row(with), marked(with), seen(with.size()) {
        for (std::size_t i = 0; i < marked.size(); i += chunk_bytes)
            marked[i] = 0x5A;
    }
    auto compute() {
        return [this](weir::stream_ref on, chunk const& c) {
            CHECK(c.index == chunks++);
            CHECK(c.first == (c.index == 0 ? 0 : bytes));
            bytes = c.first + c.size;
            weir::check_cuda(cudaMemcpyAsync(seen.at(c.first), c.data, c.size, cudaMemcpyDeviceToDevice, on.get()), "cudaMemcpyAsync");
            weir::check_cuda(cudaMemsetAsync(c.data, 0x5A, 1, on.get()), "cudaMemsetAsync");
        };
    }
    /// Nothing of the pools is handed out but the ring, which works.
    void check_at_rest() {
        CHECK(device.frees.size() == device.allocations.size());
        check_round_trip(ring, stream, 5 * slot_bytes);
    }

    octets row, marked;
    memory seen;
    device_pool device;
    support::scoped_stream stream;
    std::size_t chunks = 0, bytes = 0;
};

} // namespace

TEST_CASE("streaming: every source goes through every sink, in order") {
    copy_threads helpers(2);
    for (std::size_t const bytes : {std::size_t{0}, std::size_t{1}, chunk_bytes, 7 * chunk_bytes + 11})
        for (std::size_t const depth : {1u, 2u, 4u})
            for (int source = 0; source != 4; ++source)
                for (int sink = 0; sink != 4; ++sink) {
                    CAPTURE(bytes);
                    CAPTURE(depth);
                    CAPTURE(source);
                    CAPTURE(sink);
                    support::every_schedule([&] {
                        stage here(counting(bytes), depth == 2 ? small(2).threads(helpers, 100) : small(3));
                        octets back(bytes), gathered;
                        pinned_pool locked;
                        auto* const a = static_cast<unsigned char*>(locked.allocate(on_host, bytes + 1));
                        auto* const b = static_cast<unsigned char*>(locked.allocate(on_host, bytes + 1));
                        std::copy(here.row.begin(), here.row.end(), a);
                        file const on_disk(here.row);
                        streaming_progress end;
                        auto to = [&](auto from, auto into) {
                            end = stream_chunks(here.ring, here.device, here.stream, std::move(from), into, small_chunks(depth),
                                                here.compute());
                        };
                        auto through = [&](auto from) {
                            if (sink == 0)
                                to(std::move(from), no_sink{});
                            else if (sink == 1)
                                to(std::move(from), to_memory(bytes ? back.data() : nullptr, bytes));
                            else if (sink == 2)
                                to(std::move(from), to_memory(b, bytes));
                            else
                                to(std::move(from), to_callable([&](unsigned char const* p, std::size_t count) {
                                       gathered.insert(gathered.end(), p, p + count);
                                   }));
                        };
                        if (source == 0)
                            through(from_memory(here.row.data(), bytes));
                        else if (source == 1)
                            through(from_memory(a, bytes));
                        else if (source == 2)
                            through(from_file<unsigned char>(on_disk.path));
                        else
                            through(reader_of(here.row));
                        CHECK(end.done_count == bytes);
                        CHECK(end.done_chunks == (bytes + chunk_bytes - 1) / chunk_bytes);
                        CHECK(end.total_count == (source == 3 ? unknown_count : bytes));
                        CHECK_FALSE(end.cancelled);
                        CHECK(here.seen.contents(here.stream) == here.row);
                        octets const got = sink == 1 ? back : sink == 2 ? octets(b, b + bytes) : gathered;
                        CHECK((sink == 0 || got == here.marked));
                        here.check_at_rest();
                        locked.deallocate(on_host, a, bytes + 1);
                        locked.deallocate(on_host, b, bytes + 1);
                    });
                }
}

TEST_CASE("streaming: a sink needs no options") {
    support::every_schedule([] {
        stage s(counting(30000, 6));
        octets results(s.row.size());
        auto const done = stream_chunks(s.ring, s.pool, s.stream, from_memory(s.row.data(), s.row.size()),
                                        to_memory(results.data(), results.size()), [](weir::stream_ref, chunk const&) {});
        CHECK(done.done_count == s.row.size());
        CHECK(results == s.row);
    });
}

TEST_CASE("streaming: a capture that begins on its way is left alone, and what was under way ends") {
    for (bool const on_legacy : {false, true})
        for (bool const by_source : {false, true})
            support::every_schedule([&] {
                stage s(counting(60000, 7));
                cudaStream_t blocking = nullptr;
                weir::check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
                weir::stream_ref const stream = on_legacy ? weir::stream_ref(cudaStreamLegacy) : weir::stream_ref(blocking);
                std::optional<support::capture> graph;
                auto const begin = [&](std::size_t chunks) {
                    if (chunks == 1 && !graph)
                        graph.emplace(blocking);
                };
                std::size_t computed = 0;
                auto read = reader_of(s.row);
                auto source = from_callable<unsigned char>([&](unsigned char* to, std::size_t most) {
                    if (by_source)
                        begin(computed);
                    return read.fill(to, most);
                });
                CHECK_SAYS(support::sentence_of<weir::usage_error>([&] {
                               stream_chunks(s.ring, s.pool, stream, source, small_chunks(), [&](weir::stream_ref, chunk const&) {
                                   if (!by_source)
                                       begin(computed);
                                   ++computed;
                               });
                           }),
                           "is being captured into a graph by now");
                CHECK(computed < 3);
                std::size_t nodes = 0;
                CHECK(graph->unbroken(&nodes));
                CHECK(nodes == 0);
                weir::synchronize(blocking);
                weir::check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
            });
}

TEST_CASE("streaming: the first error wins, what is under way ends, and the pool gets its memory back") {
    enum class place { source, compute, sink, progress };
    for (place const where : {place::source, place::compute, place::sink, place::progress}) {
        CAPTURE(static_cast<int>(where));
        support::every_schedule([&] {
            stage here(counting(12 * chunk_bytes));
            auto compute = here.compute();
            auto source = reader_of(here.row);
            std::size_t told = 0, given = 0;
            auto fail_at = [&](place at, std::size_t done) {
                if (at == where && done == 7)
                    throw std::runtime_error("seven");
            };
            auto read = [&, calls = std::size_t{0}](unsigned char* to, std::size_t most) mutable {
                fail_at(place::source, calls++);
                return source.fill(to, most);
            };
            CHECK_SAYS(support::sentence_of<std::runtime_error>([&] {
                           stream_chunks(
                               here.ring, here.device, here.stream, from_callable<unsigned char>(read),
                               to_callable([&](unsigned char const*, std::size_t) { fail_at(place::sink, given++); }),
                               small_chunks().progress([&](streaming_progress const& now) {
                                   CHECK(now.done_chunks == told + 1);
                                   CHECK(now.done_count == now.done_chunks * chunk_bytes);
                                   fail_at(place::progress, told++);
                               }),
                               [&](weir::stream_ref on, chunk const& c) {
                                   fail_at(place::compute, c.index);
                                   compute(on, c);
                               });
                       }),
                       "seven");
            CHECK((where == place::source || told >= 4));
            here.check_at_rest();
        });
    }
}

TEST_CASE("streaming: a file that cannot be read says so, also one that becomes shorter") {
    support::every_schedule([] {
        octets const row = counting(20 * chunk_bytes);
        stage here(row);
        file const on_disk(row);
        auto const told = support::sentence_of<weir::usage_error>([&] {
            stream_chunks(here.ring, here.device, here.stream, from_file<unsigned char>(on_disk.path),
                          small_chunks().progress([&](streaming_progress const& now) {
                              if (now.done_chunks == 2)
                                  CHECK(truncate(on_disk.path, 12345) == 0);
                          }),
                          here.compute());
        });
        CHECK_SAYS(told, "of 200000 bytes: it became shorter while it was read");
        here.check_at_rest();
        CHECK_SAYS(support::sentence_of<weir::usage_error>([] { from_file<int>("/nowhere/at/all"); }),
                   "the file '/nowhere/at/all' cannot be read: No such file");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { from_file<double>(on_disk.path); }),
                   "has 12345 bytes, no whole number of elements of 8 bytes");
        for (char const* each : {"/dev/zero", "/tmp"})
            CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { from_file<int>(each); }), "is no regular file");
    });
}

TEST_CASE("streaming: a flag cancels, and what was read is finished") {
    support::every_schedule([] {
        stage here(counting(20 * chunk_bytes));
        std::atomic<bool> enough{false};
        octets gathered;
        streaming_progress const end = stream_chunks(
            here.ring, here.device, here.stream, from_memory(here.row.data(), here.row.size()),
            to_callable([&](unsigned char const* p, std::size_t count) { gathered.insert(gathered.end(), p, p + count); }),
            small_chunks().cancel_on(enough).progress(
                [&](streaming_progress const& now) { enough = now.done_chunks == 4; }),
            here.compute());
        CHECK(end.cancelled);
        CHECK(end.done_chunks == here.chunks);
        CHECK(end.done_chunks == 6); // three were on the device when the fourth was done: two went on
        CHECK(gathered == octets(here.marked.begin(), here.marked.begin() + static_cast<long>(6 * chunk_bytes)));
        here.check_at_rest();
    });
}

TEST_CASE("streaming: chunks fit the pool's limit and the source, or the error says how much is needed") {
    support::every_schedule([] {
        weir::pinned_pool pinned;
        pinned_ring ring(pinned, small(4).slot_bytes(256 * KiB));
        support::scoped_stream const s;
        octets const row = counting(9 * MiB);
        auto const chunk_of = [&](std::size_t limit, streaming_options<> const& options, std::size_t count) {
            weir::device_pool pool{weir::pool_options{}.limit(limit).name("narrow")};
            std::size_t sum = 0;
            streaming_progress const end =
                stream_chunks(ring, pool, s, from_memory(row.data(), count), options,
                              [&](weir::stream_ref, chunk const& c) { sum += c.size; });
            CHECK(sum == count);
            CHECK(pool.in_use_bytes() == 0);
            return end.chunk_bytes;
        };
        CHECK(chunk_of(256 * MiB, {}, row.size()) == row.size() / 4 + 1); // overlapping parts of a small source
        CHECK(chunk_of(256 * MiB, {}, 100) == 64 * KiB);
        std::size_t const narrow = chunk_of(4 * MiB, {}, row.size());
        CHECK(narrow <= 1 * MiB);
        CHECK(narrow >= 512 * KiB);
        CHECK(chunk_of(4 * MiB, streaming_options<>{}.depth(2).chunk_bytes(2 * MiB), row.size()) == 2 * MiB);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>(
                       [&] { chunk_of(4 * MiB, streaming_options<>{}.chunk_bytes(2 * MiB), row.size()); }),
                   "streaming needs at least 8 MiB at once, 4 chunks of 2 MiB; ask for smaller chunks or less depth; the pool said: ");
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>(
                       [&] { chunk_of(100 * KiB, {}, row.size()); }),
                   "streaming needs at least 256 KiB at once, 4 chunks of 64 KiB; the pool said: "); // it has no block at all
    });
}

TEST_CASE("streaming: what cannot be is refused with a sentence, before anything is enqueued") {
    support::every_schedule([] {
        stage here(counting(3 * chunk_bytes));
        octets target(2 * chunk_bytes);
        auto says = [&](weir::stream_ref stream, auto source, auto sink, streaming_options<> const& options) {
            return support::sentence_of<weir::usage_error>([&] {
                stream_chunks(here.ring, here.device, stream, source, sink, options,
                              [](weir::stream_ref, auto const&) { FAIL("nothing is to be computed"); });
            });
        };
        auto const row = from_memory(here.row.data(), here.row.size());
        CHECK_SAYS(says(here.stream, row, no_sink{}, small_chunks(0)), "1 to 64 chunks on the device; got a depth of 0");
        CHECK_SAYS(says(here.stream, row, no_sink{}, small_chunks(65)), "got a depth of 65");
        CHECK_SAYS(says(here.stream, row, to_memory(target.data(), target.size()), small_chunks()), "the sink is too small");
        CHECK_SAYS(says(on_host, row, no_sink{}, small_chunks()), "'on_host' is none; name the stream");
        struct large {
            char bytes[2 * slot_bytes];
        };
        std::vector<large> rows(2);
        CHECK_SAYS(says(here.stream, from_memory(rows.data(), 2), no_sink{}, small_chunks()), "does not fit a slot of the ring");
        CHECK_SAYS(says(here.stream, from_memory(reinterpret_cast<int const*>(here.row.data()), 9), no_sink{},
                        small_chunks().chunk_bytes(3)),
                   "a chunk of 3 bytes holds no element");
        for (std::size_t const bytes : {SIZE_MAX, std::size_t{1} << 62})
            CHECK_SAYS(says(here.stream, row, no_sink{}, small_chunks(4).chunk_bytes(bytes)), "are together more than can be counted");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([] { from_memory<int>(nullptr, 1); }), "null address");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([] { to_memory<int>(nullptr, 1); }), "null address");
        pinned_ring refusing(here.pool, small(3).on_full(full_action::refuse));
        CHECK_SAYS(support::sentence_of<weir::usage_error>(
                       [&] { stream_chunks(refusing, here.device, here.stream, row, [](weir::stream_ref, chunk const&) {}); }),
                   "waits for copies of its own, and this ring refuses instead");
        CHECK(here.device.allocations.empty());
        auto const lies = from_callable<unsigned char>([](unsigned char*, std::size_t most) { return most + 1; });
        CHECK_SAYS(says(here.stream, lies, no_sink{}, small_chunks()), "elements where there is room for 4096");
        here.check_at_rest();
        {
            support::scoped_stream const captured;
            support::capture graph(captured);
            CHECK_SAYS(says(captured, row, no_sink{}, small_chunks()), "cannot be captured into a graph");
            stream_chunks(here.ring, here.device, here.stream, row, small_chunks(), here.compute()); // beside it all goes on
            CHECK(graph.unbroken());
        }
        auto const endless = reader_of(here.row);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] {
                       stream_chunks(here.ring, here.device, here.stream, endless,
                                     to_memory(target.data(), target.size()), small_chunks(),
                                     [](weir::stream_ref, chunk const&) {});
                   }),
                   "the sink is too small"); // it is known only when the third chunk was read
        here.check_at_rest();
    });
}

TEST_CASE("streaming: source, compute and sink may use the ring, and wait for others who do") {
    for (std::size_t const slots : {std::size_t{1}, std::size_t{3}})
        support::every_schedule([slots] {
            stage first(counting(5 * chunk_bytes), small(slots));
            device_pool second;
            support::scoped_stream const s;
            std::mutex mutex;
            std::condition_variable more;
            octets between, end;
            bool over = false;
            std::thread producer([&] {
                stream_chunks(first.ring, first.device, first.stream, from_memory(first.row.data(), first.row.size()),
                              to_callable([&](unsigned char const* p, std::size_t count) {
                                  check_round_trip(first.ring, first.stream, 3 * slot_bytes);
                                  std::lock_guard<std::mutex> const lock(mutex);
                                  between.insert(between.end(), p, p + count);
                                  more.notify_one();
                              }),
                              small_chunks(2), first.compute());
                std::lock_guard<std::mutex> const lock(mutex);
                over = true;
                more.notify_one();
            });
            std::size_t at = 0;
            stream_chunks(first.ring, second, s, from_callable<unsigned char>([&](unsigned char* to, std::size_t most) {
                              std::unique_lock<std::mutex> lock(mutex);
                              more.wait(lock, [&] { return at != between.size() || over; });
                              std::size_t const count = std::min(most, between.size() - at);
                              std::copy_n(between.begin() + static_cast<long>(at), count, to);
                              at += count;
                              return count;
                          }),
                          to_callable([&](unsigned char const* p, std::size_t count) { end.insert(end.end(), p, p + count); }),
                          small_chunks(2), [](weir::stream_ref, chunk const&) {});
            producer.join();
            CHECK(end == first.marked);
            first.check_at_rest();
        });
}

#ifdef WEIR_SIMULATED_CUDA

namespace device = simulated_cuda;

namespace {
/// Notes how much work of the device is under way when a block comes back.
struct watched_pool : weir::resource::layered<watched_pool, weir::device_pool> {
    using wrapper = weir::resource::layered<watched_pool, weir::device_pool>;
    watched_pool() : wrapper(std::in_place, weir::pool_options{}.on_leak(weir::leak_action::ignore)) {}
    void* try_allocate(weir::stream_ref on, std::size_t bytes, std::size_t alignment = default_alignment) {
        return pool_.try_allocate(on, bytes, alignment);
    }
    void deallocate(weir::stream_ref on, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        under_way = device::pending();
        pool_.deallocate(on, p, bytes, alignment);
    }
    std::size_t under_way = 0;
};
} // namespace

TEST_CASE("streaming: chunks go back only when both ways of the link and the stream have been waited for") {
    struct waits {
        std::vector<std::uint64_t> that_fail;
        bool lost;
    };
    // Each of three streams is tried twice, and then all of them once more.
    for (waits const& each :
         {waits{{1}, false}, {{2}, false}, {{3}, false}, {{1, 2}, false}, {{2, 3}, false}, {{3, 4}, false}, {{1, 2, 5, 6}, true},
          {{2, 3, 6, 7}, true}, {{3, 4, 7, 8}, true}, {{1, 2, 3, 4, 5, 6}, false}}) {
        CAPTURE(each.that_fail.size());
        CAPTURE(each.that_fail.front());
        device::world world(device::config{}.late(), support::report_all);
        support::scoped_stream const s;
        weir::pinned_pool pinned;
        watched_pool pool;
        pinned_ring ring(pinned, small(3));
        octets const row = counting(9 * chunk_bytes);
        octets back(row.size());
        struct thrown {};
        void const* first = nullptr;
        CHECK_THROWS_AS(stream_chunks(ring, pool, s, from_memory(row.data(), row.size()), to_memory(back.data(), back.size()),
                                      small_chunks(),
                                      [&](weir::stream_ref, chunk const& c) {
                                          if (c.index == 0)
                                              first = c.data;
                                          if (c.index == 4) {
                                              for (std::uint64_t const call : each.that_fail)
                                                  device::fail_call("cudaStreamSynchronize", call, cudaErrorUnknown);
                                              throw thrown{};
                                          }
                                      }),
                        thrown);
        CHECK(device::failed_calls() == each.that_fail.size());
        device::clear_faults();
        CHECK(pool.under_way == 0);
        CHECK(pool.state().live_blocks == (each.lost ? 1 : 0));
        std::size_t const all = 3 * weir::base::align_up(chunk_bytes, 256);
        void* const next = pool.allocate(s, all);
        CHECK((next == first) == !each.lost);
        pool.deallocate(s, next, all);
    }
}

TEST_CASE("streaming: a default stream is that of the ring's device, whichever is current") {
    for (cudaStream_t const each : {cudaStreamLegacy, cudaStreamPerThread}) {
        device::world const world(device::config{}.with_devices(2).late(), support::report_all);
        weir::check_cuda(cudaSetDevice(1), "cudaSetDevice");
        weir::managed_pool pool;
        weir::pinned_pool pinned;
        pinned_ring ring(pinned, small(3));
        weir::check_cuda(cudaSetDevice(0), "cudaSetDevice");
        void* const before = pool.allocate(each, 1 * MiB);
        weir::check_cuda(cudaMemsetAsync(before, 1, 1 * MiB, each), "cudaMemsetAsync");
        pool.deallocate(each, before, 1 * MiB);
        octets const row = counting(9 * chunk_bytes);
        octets back(row.size());
        stream_chunks(ring, pool, each, from_memory(row.data(), row.size()), to_memory(back.data(), back.size()), small_chunks(),
                      [](weir::stream_ref, chunk const&) {});
        CHECK(back == row);
    }
}

TEST_CASE("streaming: a chunk more costs no allocation and no wait but one for its own memory") {
    for (bool const pinned : {false, true})
        for (bool const back : {false, true}) {
            CAPTURE(pinned);
            CAPTURE(back);
            char const* const steady[] = {"cudaMalloc",
                                          "cudaHostAlloc",
                                          "cudaHostRegister",
                                          "cudaMallocManaged",
                                          "cudaFree",
                                          "cudaFreeHost",
                                          "cudaMallocAsync",
                                          "cudaEventCreateWithFlags",
                                          "cudaStreamCreateWithFlags",
                                          "cudaStreamSynchronize",
                                          "cudaDeviceSynchronize"};
            device::world const world(device::config{}.late(), support::report_all);
            stage here(counting(40 * chunk_bytes), small(8));
            pinned_pool locked;
            auto* const target = static_cast<unsigned char*>(locked.allocate(on_host, here.row.size()));
            octets loose(here.row.size());
            auto run = [&](std::size_t chunks) {
                std::vector<std::uint64_t> counts;
                for (char const* each : steady)
                    counts.push_back(device::calls(each));
                counts.push_back(device::calls("cudaStreamWaitEvent"));
                counts.push_back(device::calls("cudaEventSynchronize"));
                auto const source = from_memory(pinned ? target : here.row.data(), chunks * chunk_bytes);
                here.chunks = 0;
                if (back)
                    stream_chunks(here.ring, here.device, here.stream, source,
                                  to_memory(pinned ? target : loose.data(), loose.size()), small_chunks(), here.compute());
                else
                    stream_chunks(here.ring, here.device, here.stream, source, small_chunks(), here.compute());
                std::size_t i = 0;
                for (char const* each : steady)
                    counts[i] = device::calls(each) - counts[i], ++i;
                counts[i] = device::calls("cudaStreamWaitEvent") - counts[i], ++i;
                counts[i] = device::calls("cudaEventSynchronize") - counts[i];
                return counts;
            };
            std::vector<std::uint64_t> const few = run(10), many = run(30);
            for (std::size_t i = 0; i != std::size(steady); ++i)
                CHECK_MESSAGE(few[i] == many[i], steady[i]);
            CHECK(many[std::size(steady)] - few[std::size(steady)] == (back ? 40 : 20)); // arrived; computed
            if (pinned)
                CHECK(many.back() - few.back() == 20);
            locked.deallocate(on_host, target, here.row.size());
        }
}

TEST_CASE("streaming: a device error in the midst is told, and nothing blocks") {
    device::world world(device::config{}.late(), [](auto const&) {});
    support::scoped_stream const s;
    weir::pinned_pool pinned{weir::pool_options{}.on_leak(weir::leak_action::ignore)};
    weir::device_pool pool{weir::pool_options{}.on_leak(weir::leak_action::ignore)};
    pinned_ring ring(pinned, small(3));
    octets const row = counting(20 * chunk_bytes);
    std::size_t told = 0;
    CHECK_THROWS_AS(stream_chunks(ring, pool, s, from_memory(row.data(), row.size()),
                                  small_chunks().progress([&](streaming_progress const& now) { told = now.done_chunks; }),
                                  [&](weir::stream_ref on, chunk const& c) {
                                      if (c.index == 7)
                                          device::launch_failing(on.get(), cudaErrorIllegalAddress);
                                  }),
                    weir::cuda_error);
    CHECK(told >= 4);
    CHECK(told <= 7);
    CHECK(pool.state().live_blocks == 1); // work may be under way for ever
    world.forgive();
}

namespace {
/// A pool that forgives what it never gets back: where every call fails, CUDA cannot say that the work is over.
struct forgiving : stage {
    forgiving() : stage(counting(5 * chunk_bytes)) {}
    weir::device_pool pool{weir::pool_options{}.on_leak(weir::leak_action::ignore)};
};
} // namespace

TEST_CASE("streaming: wherever a call fails, the results are whole or the error is told, and all goes on") {
    auto const calls = support::fault_sweep(
        [] { return std::make_unique<forgiving>(); },
        [](forgiving& s) {
            octets back(s.row.size());
            stream_chunks(s.ring, s.pool, s.stream, from_memory(s.row.data(), s.row.size()),
                          to_memory(back.data(), back.size()), small_chunks(2), s.compute());
            CHECK(back == s.marked);
        },
        [](forgiving& s, support::struck const& fault) {
            if (!fault.for_ever)
                CHECK(s.pool.state().live_blocks == 0);
            check_round_trip(s.ring, s.stream, 5 * slot_bytes);
            if (!fault.threw)
                CHECK(s.seen.contents(s.stream) == s.row);
        });
    CHECK(calls > 60);
}

TEST_CASE("streaming: host memory that ends is told, and nothing is lost; chunks need none") {
    if (!support::host_memory_can_fail)
        return;
    bool whole = false;
    for (long k = 0; !whole; ++k) {
        REQUIRE(k < 100);
        device::world const world(device::config{}.late(), support::report_all);
        stage here(counting(9 * chunk_bytes));
        weir::device_pool pool;
        octets gathered(here.row.size());
        std::size_t at = 0;
        try {
            support::failing_new const from(k);
            stream_chunks(here.ring, pool, here.stream, from_memory(here.row.data(), here.row.size()),
                          to_callable([&](unsigned char const* p, std::size_t count) {
                              support::allocations_left = 0;
                              std::memcpy(gathered.data() + at, p, count);
                              at += count;
                          }),
                          small_chunks(2), [](weir::stream_ref, chunk const&) {});
            whole = true;
        } catch (std::bad_alloc const&) {
        }
        CHECK(pool.state().live_blocks == 0);
        here.check_at_rest();
        CHECK((!whole || gathered == here.row));
    }
}

#endif
