// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp.

#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <string>
#include <support/counting_pool.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/replayed.hpp>
#include <trace/events.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/container/value.hpp>
#include <weir/container/vector.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/record.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>
#include <weir/trace/call_stacks.hpp>
#include <weir/trace/recorder.hpp>

using support::counting_pool;
using weir::on_host;
using weir::trace::event;
using weir::trace::event_kind;
using weir::trace::recorder;
using recorded = weir::layer::record<counting_pool<>>;

namespace {

std::vector<event> events_of(recorder& tape) {
    std::vector<event> all;
    tape.ring()->drain([&](event const* first, std::size_t count) { all.insert(all.end(), first, first + count); });
    return all;
}

std::vector<event_kind> kinds_of(recorder& tape) {
    std::vector<event_kind> kinds;
    for (event const& each : events_of(tape))
        kinds.push_back(each.kind);
    return kinds;
}

using kinds = std::vector<event_kind>;

// A pool that can do whatever a layer may ask for, and says what was asked of it.
struct willing_pool : counting_pool<> {
    std::size_t suspend() { return 11; }
    std::size_t suspend(int) { return 12; }
    std::size_t suspend(int, std::initializer_list<weir::live_block>) { return 13; }
    bool try_resume() { return resumes; }
    void reserve(std::size_t bytes) { reserve_bytes = bytes; }
    void set_limit(std::size_t bytes) { limit = bytes; }
    static std::size_t rounded(std::size_t bytes, std::size_t) { return bytes == 5 ? bytes + (std::size_t{1} << 33) : bytes + 3; }
    bool resumes = false;
    std::size_t reserve_bytes = 0, limit = 0;
};

} // namespace

TEST_CASE("record: is made from a recorder and what makes its pool, and from nothing else") {
    CHECK(std::is_constructible_v<recorded, recorder&>);
    CHECK(std::is_constructible_v<recorded, recorder&, std::size_t>);
    CHECK_FALSE(std::is_constructible_v<recorded>);
    CHECK_FALSE(std::is_constructible_v<recorded, recorder&, int*>);
    CHECK_FALSE(std::is_constructible_v<recorded, recorded&>);
}

TEST_CASE("record: writes allocations, frees and refusals, with what was asked and given") {
    recorder tape(100);
    weir::layer::record<willing_pool> pool(tape);
    CHECK(&pool.recorder() == &tape);
    tape.start();
    void* const p = pool.try_allocate(on_host, 100, 64);
    void* const large = pool.try_allocate(on_host, 5);
    CHECK(pool.try_allocate(on_host, SIZE_MAX) == nullptr);
    CHECK(pool.try_allocate(on_host, 0) == nullptr);
    pool.deallocate(on_host, p, 100, 64);
    pool.deallocate(on_host, nullptr, 100);
    pool.deallocate(on_host, large, 5);
    std::vector<event> const all = events_of(tape);
    REQUIRE(all.size() == 5);
    CHECK(all[0].kind == event_kind::allocate);
    CHECK(all[0].address == reinterpret_cast<std::uintptr_t>(p));
    CHECK(all[0].bytes == 100);
    CHECK(all[0].extra_bytes == 3);
    CHECK(all[0].log2_alignment == 6);
    CHECK(all[0].stream == 0);
    CHECK(all[0].site == 0);
    CHECK(all[1].extra_bytes == weir::trace::unknown_extra);
    CHECK(all[2].kind == event_kind::refuse);
    CHECK(all[2].address == 0);
    CHECK(all[2].bytes == SIZE_MAX);
    CHECK(all[3].kind == event_kind::free);
    CHECK(all[3].address == all[0].address);
    CHECK(all[3].bytes == 100);
    CHECK(all[3].extra_bytes == 3);
}

TEST_CASE("record: a free is written before the pool sees it, and an allocation after it was served") {
    struct looking_pool : counting_pool<> {
        explicit looking_pool(recorder& of) : tape(of) {}
        void* try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
            seen.push_back(events_of(tape).size());
            return counting_pool<>::try_allocate(stream, bytes, alignment);
        }
        void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
            seen.push_back(events_of(tape).size());
            counting_pool<>::deallocate(stream, p, bytes, alignment);
        }
        recorder& tape;
        std::vector<std::size_t> seen; // events since the call before
    };
    recorder tape(100);
    weir::layer::record<looking_pool> pool(tape, tape);
    tape.start();
    pool.deallocate(on_host, pool.allocate(on_host, 100), 100);
    CHECK(pool.inner().seen == std::vector<std::size_t>{0, 2});
}

TEST_CASE("record: 'allocate' tells the line that asks") {
    recorder tape(100);
    recorded pool(tape);
    tape.start();
    unsigned const line = __LINE__ + 1;
    pool.deallocate(on_host, pool.allocate(on_host, 100), 100);
    pool.deallocate_sync(pool.allocate(on_host, 100, 64, weir::call_site::of("elsewhere.cpp", "f", 7)), 100, 64);
    std::vector<event> const all = events_of(tape);
    REQUIRE(all.size() == 4);
    CHECK(tape.names()[all[0].site].line == line);
    CHECK(std::string(tape.names()[all[0].site].file) == __FILE__);
    CHECK(tape.names()[all[2].site].file == "elsewhere.cpp");
    CHECK(all[1].site == 0);
    CHECK(all[0].extra_bytes == weir::trace::unknown_extra);
}

TEST_CASE("record: a container's block is of the line that makes the container, or lets it grow") {
    struct point {
        int x, y;
    };
    recorder tape(1000);
    weir::layer::record<weir::device_pool> pool(tape);
    weir::layer::record<weir::pinned_pool> pinned(tape);
    weir::device_pool_ref const named = pool;
    support::scoped_stream const stream;
    float const some[3] = {1, 2, 3};
    std::vector<float> const host(some, some + 3);
    weir::call_site const told = weir::call_site::of("told.cpp", "f", 7);
    weir::device_vector<float> xs(pool, stream, 1);
    weir::device_buffer bytes(pool, stream, 1);
    weir::pinned_vector<point> points(pinned, stream, 1);
    tape.start();
    // Each lambda asks for one block.
    auto const line_of = [&](auto const& asks) {
        asks();
        std::vector<unsigned> lines;
        for (event const& each : events_of(tape))
            if (each.kind == event_kind::allocate)
                lines.push_back(each.site == 0 ? 0 : tape.names()[each.site].line);
        REQUIRE(lines.size() == 1);
        return lines[0];
    };
#define CHECK_LINE(...) CHECK(line_of([&] { __VA_ARGS__; }) == __LINE__)
    CHECK_LINE(weir::device_vector<float>(pool, stream, 10));
    CHECK_LINE(weir::device_vector<float>(named, stream, 10));
    CHECK_LINE(weir::device_vector<float>(pool, stream, some, 3));
    CHECK_LINE(weir::device_vector<float>(pool, stream, host));
    CHECK_LINE(weir::device_vector<float>(pool, stream, {1, 2, 3}));
    CHECK_LINE(weir::device_buffer(pool, stream, 10));
    CHECK_LINE(weir::device_buffer(pool, stream, some, sizeof some));
    CHECK_LINE(weir::device_buffer(pool, stream, xs));
    CHECK_LINE(weir::device_value<int>(pool, stream));
    CHECK_LINE(weir::device_value(pool, stream, 5));
    CHECK_LINE(weir::pinned_vector<point>(pinned, stream, 3, {0, 0}));
    CHECK_LINE(weir::pinned_value<point>(pinned, stream, {}));
    CHECK_LINE(xs.reserve(100));
    CHECK_LINE(xs.resize(200));
    CHECK_LINE(xs.shrink_to_fit(); xs.resize(201));
    CHECK_LINE(xs.append({1, 2, 3}));
    CHECK_LINE(xs.resize(xs.capacity()); events_of(tape); xs.append(some, 3));
    CHECK_LINE(xs.resize(xs.capacity()); events_of(tape); xs.append(host));
    CHECK_LINE(xs.clear(); xs.shrink_to_fit(); xs.assign(host));
    CHECK_LINE(xs.clear(); xs.shrink_to_fit(); xs.assign({1, 2, 3}));
    CHECK_LINE(bytes.reserve(100));
    CHECK_LINE(bytes.resize(200));
    CHECK_LINE(bytes.append(some, sizeof some));
    CHECK_LINE(bytes.assign(some, sizeof some); bytes.shrink_to_fit());
    CHECK_LINE(points.push_back({1, 2}));
    CHECK_LINE(points.resize(100, {0, 0}));
    CHECK_LINE(pool.deallocate_sync(pool.allocate_sync(10), 10));
    CHECK_LINE(named.deallocate(stream, named.allocate(stream, 10), 10));
#undef CHECK_LINE
    CHECK(line_of([&] { weir::device_vector<float>(pool, stream, 10, told); }) == 7);
    CHECK(line_of([&] { xs.resize(1000, told); }) == 7);
    CHECK(line_of([&] { named.deallocate(stream, named.allocate(stream, 10, 64, told), 10, 64); }) == 7);
}

TEST_CASE("record: is silent while the recorder is off, and the pool sees the same calls") {
    recorder tape(100);
    recorded pool(tape);
    pool.deallocate(on_host, pool.allocate(on_host, 100), 100);
    tape.start();
    tape.stop();
    pool.deallocate(on_host, pool.allocate(on_host, 100), 100);
    CHECK(events_of(tape).empty());
    CHECK(pool.inner().allocations == 2);
    CHECK(pool.inner().frees == 2);
}

TEST_CASE("record: what is asked of the pool as a whole is passed on, and written") {
    recorder tape(100);
    weir::layer::record<willing_pool> pool(tape);
    tape.start();
    void* const p = pool.allocate(on_host, 100);
    pool.used_on(p, on_host);
    pool.last_used_on(p, on_host);
    CHECK(pool.inner().last_uses == 1);
    CHECK(pool.before_destroy(on_host) == 0);
    pool.settle();
    CHECK(pool.inner().settled == 1);
    pool.inner().reserved_bytes = 10;
    CHECK(pool.trim(4) == 6);
    pool.reserve(20);
    CHECK(pool.inner().reserve_bytes == 20);
    pool.set_limit(30);
    CHECK(pool.inner().limit == 30);
    CHECK(pool.suspend() == 11);
    CHECK(pool.suspend(1) == 12);
    CHECK(pool.suspend(1, {}) == 13);
    CHECK_FALSE(pool.try_resume());
    pool.inner().resumes = true;
    CHECK(pool.try_resume());
    pool.deallocate(on_host, p, 100);
    std::vector<event> const all = events_of(tape);
    std::vector<event_kind> seen;
    std::vector<std::uint64_t> bytes;
    for (event const& each : all) {
        seen.push_back(each.kind);
        bytes.push_back(each.bytes);
    }
    CHECK(seen == kinds{event_kind::allocate, event_kind::used_on, event_kind::last_used_on, event_kind::stream_ends,
                        event_kind::settle, event_kind::trim, event_kind::reserve, event_kind::set_limit, event_kind::suspend,
                        event_kind::suspend, event_kind::suspend, event_kind::resume, event_kind::free});
    CHECK(bytes == std::vector<std::uint64_t>{100, 0, 0, 0, 0, 4, 20, 30, 11, 12, 13, 0, 100});
}

TEST_CASE("record: marks are numbered, so that a rewind says to which one it goes") {
    recorder tape(100);
    weir::layer::record<weir::frame_pool> pool(tape);
    tape.start();
    auto const outer = pool.mark();
    static_cast<void>(pool.allocate(on_host, 100));
    auto const inner = pool.mark();
    pool.rewind(inner);
    pool.rewind(outer);
    pool.clear();
    std::vector<event> const all = events_of(tape);
    REQUIRE(all.size() == 6);
    CHECK(all[0].bytes == 1);
    CHECK(all[2].bytes == 2);
    CHECK(all[3].kind == event_kind::rewind);
    CHECK(all[3].bytes == 2);
    CHECK(all[4].bytes == 1);
    CHECK(all[5].kind == event_kind::clear);
}

TEST_CASE("record: pools that share a recorder are told apart") {
    recorder tape(100);
    weir::layer::record<weir::layer::guard<counting_pool<>>> first(tape, SIZE_MAX, std::string("first"));
    weir::layer::record<weir::host_pool> second(tape, weir::pool_options{}.name("second").limit(1 << 20));
    tape.start();
    first.deallocate(on_host, first.allocate(on_host, 100), 100);
    second.deallocate(on_host, second.allocate(on_host, 100), 100);
    std::vector<event> const all = events_of(tape);
    CHECK(all[0].source == 0);
    CHECK(all[2].source == 1);
    CHECK(all[2].extra_bytes != weir::trace::unknown_extra); // the pool knows how it rounds, through a guard
    CHECK(tape.source_of(0).name == "first");
    CHECK(tape.source_of(0).device == 5);
    CHECK(tape.source_of(1).name == "second");
    CHECK(tape.source_of(1).device == weir::any_device);
    CHECK(tape.source_of(1).space == weir::memory_space::host);
    CHECK(tape.source_of(1).limit_bytes == 1 << 20);
}

// A program of a few streams that allocates, frees, shares and gives back; what it calls depends on the seed alone.
template <class Pool>
void random_program(Pool& pool, unsigned seed, std::vector<std::unique_ptr<support::scoped_stream>> const& streams) {
    struct block {
        void* p;
        std::size_t bytes, alignment, stream;
    };
    std::mt19937 random(seed);
    std::vector<block> live;
    for (int i = 0; i < 1500; ++i) {
        auto const what = random() % 100;
        std::size_t const stream = random() % streams.size();
        if (what < 50) {
            std::size_t const bytes = random() % 3 == 0 ? 1 + random() % 3000 : (1 + random() % 40) * 50000;
            std::size_t const alignment = std::size_t{1} << random() % 10;
            if (void* const p = pool.try_allocate(*streams[stream], bytes, alignment))
                live.push_back({p, bytes, alignment, stream});
        } else if (what < 94 && !live.empty()) {
            std::size_t const at = random() % live.size();
            pool.deallocate(*streams[live[at].stream], live[at].p, live[at].bytes, live[at].alignment);
            live[at] = live.back();
            live.pop_back();
        } else if (what < 97 && !live.empty()) {
            void* const p = live[random() % live.size()].p;
            if (random() % 2 == 0)
                pool.used_on(p, *streams[stream]);
            else
                pool.last_used_on(p, *streams[stream]);
        } else if (what == 97) {
            pool.settle();
        } else if (what == 98) {
            static_cast<void>(pool.trim(random() % 64 * weir::MiB));
        } else {
            pool.set_limit((16 + random() % 64) * weir::MiB);
        }
    }
    for (block const& each : live)
        pool.deallocate(*streams[each.stream], each.p, each.bytes, each.alignment);
}

TEST_CASE("record: a recording replays to the same addresses, to the byte") {
#ifdef WEIR_SIMULATED_CUDA // whose streams do the same at each run; on a GPU they are as fast as they are
    using simulated_cuda::config;
    auto const streams_for = [](std::size_t count) {
        std::vector<std::unique_ptr<support::scoped_stream>> streams(count);
        for (auto& each : streams)
            each = std::make_unique<support::scoped_stream>();
        return streams;
    };
    unsigned seed = 0;
    for (config const& schedule : {config{}, config{}.late(), config{}.random(3)}) {
        recorder tape;
        trace_tests::writer file;
        {
            simulated_cuda::world const world(schedule, support::report_all);
            auto const streams = streams_for(3);
            weir::layer::record<weir::device_pool> pool(tape);
            tape.start();
            random_program(pool, ++seed, streams);
            pool.settle();
            for (event const& each : events_of(tape))
                file.add(each);
        }
        weir::trace::recording const from = file.read();
        REQUIRE(from.complaint == "");
        simulated_cuda::world const world(schedule, support::report_all);
        auto const streams = streams_for(from.streams.size());
        weir::device_pool pool;
        support::both_addresses const all = support::replayed(from, pool, streams);
        pool.settle();
        REQUIRE(all.recorded.size() > 500);
        for (std::size_t i = 0; i < all.recorded.size(); ++i) {
            CAPTURE(i);
            REQUIRE((all.recorded[i] == 0) == (all.replayed[i] == 0));
            if (all.recorded[i] != 0)
                REQUIRE(all.recorded[i] - all.recorded[0] == all.replayed[i] - all.replayed[0]);
        }
    }
#endif
}

TEST_CASE("record: a refusal names the lines that hold most, through layers, and goes without where the host has no memory") {
    recorder tape(1000);
    weir::layer::statistics<weir::layer::record<counting_pool<>>> pool(tape, std::size_t{1000});
    auto const refusal = [&] {
        try {
            static_cast<void>(pool.allocate(on_host, 500));
        } catch (weir::out_of_memory const& failed) {
            return std::pair<std::string, std::string>(failed.holders(), failed.what());
        }
        return std::pair<std::string, std::string>();
    };
    tape.start();
    unsigned const line = __LINE__ + 1;
    void* const p = pool.inner().allocate(on_host, 900);
    std::string const holders = "900 B in 1 block at record.cpp:" + std::to_string(line);
    CHECK(refusal().first == holders);
    CHECK(refusal().second.find("; as recorded, most is held by " + holders) != std::string::npos);
    tape.stop();
    CHECK(refusal().first == "");
    CHECK(refusal().second.find("as recorded") == std::string::npos);
    tape.start();
    if (support::host_memory_can_fail) {
        long const needed = support::each_failure([] { return 0; }, [&](int) { static_cast<void>(refusal()); },
                                                  [&](int) { CHECK(pool.inner().inner().live_blocks() == 1); });
        CHECK(needed > 0);
    }
    pool.inner().deallocate(on_host, p, 900);
}

TEST_CASE("record: with call_stacks an allocation has its callers, if it is admitted, and a refusal tells them") {
    static_assert(std::is_empty_v<weir::trace::no_stacks>);
    recorder tape(1000);
    weir::layer::record<counting_pool<>, weir::trace::call_stacks<>> pool(tape, std::size_t{1000});
    tape.start();
    weir::trace::event_filter large;
    large.least_bytes = 100;
    tape.set_filter(large);
    pool.deallocate(on_host, pool.allocate(on_host, 10), 10);
    CHECK(tape.names().size() == 0);
    unsigned const line = __LINE__ + 1;
    void* const p = pool.allocate(on_host, 900);
    std::string said;
    try {
        static_cast<void>(pool.allocate(on_host, 500));
    } catch (weir::out_of_memory const& failed) {
        said = failed.holders();
    }
    CHECK(said.rfind("900 B in 1 block at record.cpp:" + std::to_string(line) + " from ", 0) == 0);
    CHECK(said.find("doctest::Context::run() from main") != std::string::npos);
    CHECK(said.find("weir::") == std::string::npos);
    pool.deallocate(on_host, p, 900);
    std::vector<event> const all = events_of(tape);
    CHECK(tape.names()[all[0].site].line == line);
    CHECK(all.back().site == 0);
}

TEST_CASE("record: under another layer the line is not known") {
    recorder tape(100);
    weir::layer::limit<recorded> pool(SIZE_MAX, tape);
    tape.start();
    pool.deallocate(on_host, pool.allocate(on_host, 100), 100);
    CHECK(kinds_of(tape) == kinds{event_kind::allocate, event_kind::free});
}
