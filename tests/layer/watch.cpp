// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp; the board itself in tests/trace/watch_board.cpp.

#include "../../examples/weir_top/board_view.hpp"
#include <cstring>
#include <doctest/doctest.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <support/counting_pool.hpp>
#include <support/every_schedule.hpp>
#include <type_traits>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/layer/record.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/watch.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>
#include <weir/recipes/recorded_device_pool.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/trace/recording_file.hpp>
#include <weir/trace/watch_board.hpp>

using support::counting_pool;
using weir::KiB;
using weir::MiB;
using weir::on_host;
using weir::base::stream_usage;
using weir::layer::watch;
using weir::trace::pool_figures;
using weir::trace::watch_board;
using weir_top::board_view;
using weir_top::pool_sample;

namespace {

struct watched {
    watch_board board{"tests"};
    board_view view{std::string(board.segment()).substr(1)};

    // What the pool at `place` says to a watcher that asks, once `calls` are made.
    template <class Calls>
    pool_sample asked(Calls const& calls, std::size_t place = 0) {
        view.ask();
        calls();
        std::vector<pool_sample> const all = view.read();
        REQUIRE(place < all.size());
        return all[place];
    }
    pool_sample polled(std::size_t place = 0) {
        return asked([&] { board.poll(); }, place);
    }
};

stream_usage const* row_of(pool_sample const& sample, void const* stream) {
    for (stream_usage const& each : sample.streams)
        if (each.stream == reinterpret_cast<std::uintptr_t>(stream))
            return &each;
    return nullptr;
}

// Nothing is counted twice, and nothing left out but the rest of a slab.
bool tells_all(pool_sample const& sample) {
    std::uint64_t all = sample.figures.in_use_bytes;
    for (stream_usage const& each : sample.streams)
        all += each.free_bytes;
    return all <= sample.figures.reserved_bytes && all + 64 * KiB > sample.figures.reserved_bytes;
}

} // namespace

TEST_CASE("watch: is made from a board and what makes its pool, and from nothing else") {
    using plain = watch<counting_pool<>>;
    CHECK(std::is_constructible_v<plain, watch_board&>);
    CHECK(std::is_constructible_v<plain, watch_board&, std::size_t>);
    CHECK_FALSE(std::is_constructible_v<plain>);
    CHECK_FALSE(std::is_constructible_v<plain, watch_board&, int*>);
    CHECK_FALSE(std::is_constructible_v<plain, plain&>);
}

TEST_CASE("watch: the pool sees the calls, and the board what its state says") {
    watched here;
    counting_pool<> below(1000, "a pool whose name is longer than the sixty-three characters of its place");
    watch<counting_pool<>&> pool(here.board, below);
    void* const p = pool.allocate(on_host, 100);
    CHECK(here.view.read()[0].answers == 0); // nobody asked
    void* q = nullptr;
    pool_sample const seen = here.asked([&] { q = pool.allocate(on_host, 50); });
    CHECK(seen.answers == 1);
    CHECK(weir_top::printable(seen.figures.name) == "a pool whose name is longer than the sixty-three characters of ");
    CHECK(seen.figures.in_use_bytes == 100); // before the allocation in which it answered
    CHECK(seen.figures.live_blocks == 1);
    CHECK(seen.figures.chunks == 2);
    CHECK(seen.figures.limit_bytes == 1000);
    CHECK(seen.figures.largest_free_bytes == 7);
    CHECK(seen.figures.device == 5);
    CHECK(seen.figures.time_ns != 0);
    for (std::uint64_t const unknown : {seen.figures.taken_blocks, seen.figures.given_bytes, seen.figures.requested_bytes,
                                        seen.figures.peak_requested_bytes, seen.figures.peak_reserved_bytes})
        CHECK(unknown == pool_figures::unknown);
    CHECK(here.asked([&] { pool.deallocate(on_host, q, 50); }).answers == 1); // a free answers nothing
    CHECK(pool.try_allocate(on_host, 5000) == nullptr);
    CHECK(here.view.read()[0].answers == 2); // it answered in that allocation
    CHECK(here.polled().answers == 3);
    pool.deallocate_sync(p, 100);
    CHECK(below.allocations == 3);
    CHECK(below.frees == 2);
}

TEST_CASE("watch: an answer that fails fails no call") {
    struct silent_pool : counting_pool<> {
        weir::memory_report state() const { throw std::runtime_error("no state"); }
    };
    watched here;
    watch<silent_pool> pool(here.board);
    void* p = nullptr;
    CHECK(here.asked([&] { p = pool.allocate(on_host, 8); }).answers == 0);
    pool.deallocate(on_host, p, 8);
}

TEST_CASE("watch: a pool that finds no place on the board works all the same") {
    watched here;
    std::vector<std::unique_ptr<watch<counting_pool<>>>> pools;
    for (std::size_t i = 0; i <= weir::trace::most_board_pools; ++i)
        pools.push_back(std::make_unique<watch<counting_pool<>>>(here.board));
    here.view.ask();
    pools.back()->deallocate_sync(pools.back()->allocate_sync(8), 8);
    CHECK(here.view.pools_without_place() == 1);
}

TEST_CASE("watch: over statistics also what was asked for, peaks and totals") {
    watched here;
    watch<weir::layer::statistics<weir::host_pool>> pool(here.board, weir::pool_options{}.name("heap"));
    void* const p = pool.allocate_sync(1000);
    pool.deallocate_sync(p, 1000);
    void* const q = pool.allocate_sync(300);
    pool_sample const unasked = here.polled();
    CHECK(unasked.answers == 0); // it is for one thread: poll may run in another
    pool_sample const seen = here.asked([&] { pool.deallocate_sync(pool.allocate_sync(1), 1); });
    CHECK(seen.figures.requested_bytes == 300);
    CHECK(seen.figures.peak_requested_bytes == 1000);
    CHECK(seen.figures.taken_blocks == 2);
    CHECK(seen.figures.taken_bytes == 1300);
    CHECK(seen.figures.given_blocks == 1);
    CHECK(seen.figures.given_bytes == 1000);
    CHECK(seen.figures.peak_reserved_bytes == seen.figures.reserved_bytes);
    CHECK(seen.streams.empty());
    pool.deallocate_sync(q, 300);
}

TEST_CASE("watch: scopes and clear are the wrapped pool's") {
    watched here;
    watch<weir::frame_pool> pool(here.board);
    {
        weir::scope<watch<weir::frame_pool>> const frame(pool);
        CHECK(pool.allocate_sync(100) != nullptr);
        CHECK(pool.state().live_blocks == 1);
    }
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.allocate_sync(100) != nullptr);
    pool.clear();
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("watch: what went through each stream's memory") {
    support::scoped_stream a, b;
    watched here;
    watch<weir::device_pool> pool(here.board, weir::pool_options{}.name("frames"));
    pool.deallocate(a, pool.allocate(a, 3000), 3000);
    void* const p = pool.allocate(a, 3000);
    void* const q = pool.allocate(b, 5 * MiB);
    pool_sample const seen = here.polled();
    CHECK(weir_top::printable(seen.figures.name) == "frames");
    CHECK(seen.figures.live_blocks == 2);
    CHECK(seen.figures.taken_blocks == 3);
    CHECK(seen.figures.given_blocks == 1);
    CHECK(seen.figures.taken_bytes - seen.figures.given_bytes == seen.figures.in_use_bytes);
    CHECK(tells_all(seen));
    REQUIRE(row_of(seen, a));
    CHECK(row_of(seen, a)->taken_blocks >= 2); // b's block, too, if it is of what lay there
    CHECK(row_of(seen, a)->given_blocks == 1);
    CHECK(row_of(seen, a)->given_bytes >= 3000);
    pool.deallocate(b, q, 5 * MiB);
    pool_sample const after = here.polled();
    CHECK(tells_all(after));
    REQUIRE(row_of(after, b));
    CHECK(row_of(after, b)->given_blocks == 1);
    CHECK(row_of(after, b)->given_bytes >= 5 * MiB);
    CHECK(row_of(after, b)->free_bytes >= 5 * MiB);
    CHECK(row_of(after, a)->given_blocks == 1);
    pool.deallocate(a, p, 3000);
    pool_sample const last = here.polled();
    CHECK(tells_all(last));
    CHECK(row_of(last, a)->free_bytes >= row_of(after, a)->free_bytes + 3000);
    pool.settle();
}

TEST_CASE("watch: streams beyond the rows are one row") {
    constexpr std::size_t count = weir::trace::most_board_streams + 5;
    std::vector<std::unique_ptr<support::scoped_stream>> streams;
    watched here;
    watch<weir::device_pool> pool(here.board);
    for (std::size_t i = 0; i < count; ++i) {
        streams.push_back(std::make_unique<support::scoped_stream>());
        pool.deallocate(*streams[i], pool.allocate(*streams[i], 1000), 1000);
    }
    pool_sample const seen = here.polled();
    REQUIRE(seen.streams.size() == weir::trace::most_board_streams);
    CHECK(seen.streams.back().stream == pool_figures::other_streams);
    CHECK(seen.streams.back().given_blocks >= 5);
    CHECK(seen.figures.taken_blocks == count);
    CHECK(seen.figures.given_blocks == count);
    pool.settle();
}

TEST_CASE("watch: streams that ended are one row") {
    watched here;
    watch<weir::device_pool> pool(here.board);
    for (int i = 0; i < 4; ++i) {
        support::scoped_stream const once;
        pool.deallocate(once, pool.allocate(once, 1000), 1000);
    }
    support::scoped_stream const last;
    void* const p = pool.allocate(last, 1000);
    pool_sample const seen = here.polled();
    CHECK(seen.figures.taken_blocks == 5);
    CHECK(seen.figures.given_blocks == 4);
    CHECK(seen.streams.size() <= 5);
    pool.deallocate(last, p, 1000);
    pool.settle();
}

TEST_CASE("watch: around or within layer::record, lines are recorded, and a dump is a recording") {
    std::string const path = "/tmp/weir-watch-" + std::to_string(::getpid());
    watched here;
    weir::trace::recorder tape(100);
    tape.start();
    watch<weir::layer::record<counting_pool<>>> around(here.board, tape);
    weir::layer::record<watch<counting_pool<>>> within(tape, here.board);
    around.deallocate(on_host, around.allocate(on_host, 8), 8);
    within.deallocate(on_host, within.allocate(on_host, 8), 8);
    std::size_t lines = 0;
    tape.ring()->visit([&](weir::trace::event const& each) { lines += each.site != 0; });
    CHECK(lines == 2);
    here.view.ask_dump(path);
    void* const p = within.allocate(on_host, 8); // which does not know of a recorder, and the board does
    CHECK(here.view.dump_said() == "a recording");
    within.deallocate(on_host, p, 8);
    ::unlink(path.c_str());
    watch<weir::recorded_device_pool> recipe(here.board, tape);
    CHECK(here.polled(2).figures.taken_blocks == 0);
}

TEST_CASE("watch: without a recorder a dump is the pools' reports") {
    std::string const path = "/tmp/weir-watch-" + std::to_string(::getpid());
    watched here;
    watch<counting_pool<>> pool(here.board, std::size_t{100}, "small");
    here.view.ask_dump(path);
    pool.deallocate(on_host, pool.allocate(on_host, 8), 8);
    CHECK(here.view.dump_said() == "the report of 1 pool");
    char said[100] = {};
    int const file = ::open(path.c_str(), O_RDONLY);
    CHECK(::read(file, said, sizeof said - 1) > 0);
    ::close(file);
    CHECK(std::string(said).find("pool 'small' (host): 0 B in use in 0 blocks") == 0);
    ::unlink(path.c_str());
}
