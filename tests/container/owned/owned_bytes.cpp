// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstring>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <string>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <utility>
#include <vector>
#include <weir/container/owned/owned_bytes.hpp>

using weir::memory_space;
using device_bytes = weir::detail::owned_bytes<memory_space::device>;
using pinned_bytes = weir::detail::owned_bytes<memory_space::pinned>;
using octets = std::vector<unsigned char>;
using pinned_pool = support::recording_pool<memory_space::pinned>;

namespace {

octets contents(device_bytes const& x) {
    octets host(x.size());
    x.read_sync(0, host.data(), host.size());
    return host;
}

octets contents(pinned_bytes const& x) {
    octets host(x.size());
    if (x.size() != 0)
        std::memcpy(host.data(), x.data(), x.size());
    return host;
}

octets counting(std::size_t count, unsigned from = 0) {
    octets host(count);
    for (std::size_t i = 0; i < count; ++i)
        host[i] = static_cast<unsigned char>(from + i);
    return host;
}

octets joined(octets a, octets const& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

template <class Bytes, class Pool>
Bytes filled(Pool& pool, weir::stream_ref stream, octets const& with) {
    Bytes x(pool, stream, 0, 1);
    x.assign(with.data(), with.size());
    return x;
}

template <class Call>
std::string sentence(Call&& call) {
    try {
        call();
    } catch (weir::usage_error const& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("owned_bytes: zero bytes hold no block, and a block goes back on its stream") {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<> pool;
        {
            device_bytes none(pool, a, 0, 1);
            CHECK(none.data() == nullptr);
            CHECK(none.size() == 0);
            CHECK(none.capacity() == 0);
            none.zero();
            none.clear();
            none.resize(0);
            none.shrink_to_fit();
            none.assign(nullptr, 0);
            none.append(nullptr, 0);
            none.used_on(cudaStreamLegacy);
            CHECK(contents(none).empty());
        }
        CHECK(pool.allocations.empty());
        {
            device_bytes some(pool, a, 1000, 1);
            CHECK(some.size() == 1000);
            CHECK(some.capacity() == 1000);
            CHECK(some.pool() == weir::pool_ref<memory_space::device>(pool));
            CHECK(some.stream() == weir::stream_ref(a));
            CHECK(pool.allocations.at(0).stream == weir::stream_ref(a));
            CHECK(pool.allocations.at(0).alignment == 256);
        }
        CHECK(pool.frees.at(0).stream == weir::stream_ref(a));
        CHECK(pool.live_blocks() == 0);
    });
}

TEST_CASE("owned_bytes: asks for the larger of two alignments, for every block") {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<> pool;
        device_bytes x(pool, a, 10, 1024);
        x.resize(20);
        x.append("x", 1);
        x.assign(counting(99).data(), 99);
        x.clear();
        x.shrink_to_fit();
        for (auto const& each : pool.allocations)
            CHECK(each.alignment == 1024);
        CHECK(pool.allocations.size() == 4);
    });
}

TEST_CASE("owned_bytes: pinned blocks begin on the host and end on the stream") {
    // Bytes that were freed on a stream are good for that stream's next work, not for the host at once.
    support::every_schedule([] {
        support::scoped_stream a;
        pinned_pool pool;
        {
            pinned_bytes x(pool, a, 10, 1);
            x.resize(100);
            x.append(counting(10).data(), 10);
            x.assign(counting(1000).data(), 1000);
        }
        CHECK(pool.allocations.size() == 4);
        for (auto const& each : pool.allocations)
            CHECK(each.stream.is_host());
        CHECK(pool.frees.size() == 4);
        for (auto const& each : pool.frees)
            CHECK(each.stream == weir::stream_ref(a));
    });
}

TEST_CASE_TEMPLATE("owned_bytes: reserve, resize, clear and shrink_to_fit", Bytes, device_bytes,
                   pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<std::is_same_v<Bytes, pinned_bytes> ? memory_space::pinned
                                                                    : memory_space::device>
            pool;
        auto x = filled<Bytes>(pool, a, counting(100));
        x.resize(300);
        CHECK(x.size() == 300);
        CHECK(x.capacity() == 300);
        x.resize(100);
        CHECK(x.size() == 100);
        CHECK(x.capacity() == 300);
        CHECK(contents(x) == counting(100));
        x.reserve(200);
        CHECK(x.capacity() == 300);
        x.reserve(1000);
        CHECK(x.capacity() == 1000);
        CHECK(x.size() == 100);
        x.resize(1000);
        x.resize(100);
        CHECK(pool.allocations.size() == 3);
        CHECK(contents(x) == counting(100));
        x.shrink_to_fit();
        CHECK(x.capacity() == 100);
        CHECK(contents(x) == counting(100));
        x.shrink_to_fit();
        CHECK(pool.allocations.size() == 4);
        x.clear();
        CHECK(x.size() == 0);
        CHECK(x.capacity() == 100);
        x.shrink_to_fit();
        CHECK(x.data() == nullptr);
        CHECK(pool.live_blocks() == 0);
        x.append(counting(3).data(), 3);
        CHECK(contents(x) == counting(3));
    });
}

TEST_CASE_TEMPLATE("owned_bytes: appends grow by half, and may read the block itself", Bytes, device_bytes,
                   pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<std::is_same_v<Bytes, pinned_bytes> ? memory_space::pinned
                                                                    : memory_space::device>
            pool;
        auto x = filled<Bytes>(pool, a, counting(100));
        x.append(x.data(), 100); // grows while it reads
        CHECK(x.capacity() == 200);
        CHECK(contents(x) == joined(counting(100), counting(100)));
        x.append(x.data() + 10, 10);
        CHECK(x.capacity() == 300);
        CHECK(x.size() == 210);
        x.append(x.data(), 90); // fits
        CHECK(x.capacity() == 300);
        CHECK(contents(x) ==
              joined(joined(joined(counting(100), counting(100)), counting(10, 10)), counting(90)));

        auto many = filled<Bytes>(pool, a, {});
        octets model;
        for (unsigned i = 0; i < 300; ++i) {
            octets const piece = counting(i % 7, i);
            many.append(piece.data(), piece.size());
            model = joined(model, piece);
        }
        CHECK(contents(many) == model);
        CHECK(pool.allocations.size() < 30);
    });
}

TEST_CASE_TEMPLATE("owned_bytes: where the pool has no room for half more, an append gets what it needs", Bytes, device_bytes,
                   pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a;
        constexpr bool pinned = std::is_same_v<Bytes, pinned_bytes>;
        support::recording_pool<pinned ? memory_space::pinned : memory_space::device> pool;
        auto x = filled<Bytes>(pool, a, counting(100));
        pool.fail_at = 1;
        x.append(x.data(), 20);
        CHECK(x.capacity() == 120);
        CHECK(contents(x) == joined(counting(100), counting(20)));
        pool.fail_at = 1;
        CHECK_THROWS_AS(x.append(x.data(), 100), weir::out_of_memory); // needs more than half, and there is no second try
        CHECK(contents(x) == joined(counting(100), counting(20)));
    });
}

TEST_CASE_TEMPLATE("owned_bytes: assigned its own beginning it stays where it is, and what replaces it has its room", Bytes,
                   device_bytes, pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        constexpr bool pinned = std::is_same_v<Bytes, pinned_bytes>;
        support::recording_pool<pinned ? memory_space::pinned : memory_space::device> pool;
        auto x = filled<Bytes>(pool, a, counting(200));
        auto const* const first = x.data();
        x.assign(x);
        CHECK(contents(x) == counting(200));
        x.assign(x.data(), 70);
        CHECK(contents(x) == counting(70));
        CHECK(pool.allocations.size() == 1);
        auto const y = filled<Bytes>(pool, b, counting(90, 3));
        x.assign(y);
        CHECK(contents(x) == counting(90, 3));
        CHECK(x.capacity() == 200);
        CHECK((x.data() == first) == pinned); // a copy that other streams order may fail once the contents are gone
    });
}

TEST_CASE_TEMPLATE("owned_bytes: assign replaces, in place where it fits, and may read the block itself",
                   Bytes, device_bytes, pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<std::is_same_v<Bytes, pinned_bytes> ? memory_space::pinned
                                                                    : memory_space::device>
            pool;
        auto x = filled<Bytes>(pool, a, counting(200));
        x.assign(counting(50, 9).data(), 50);
        CHECK(x.capacity() == 200);
        CHECK(contents(x) == counting(50, 9));
        CHECK(pool.allocations.size() == 1);
        x.assign(counting(200).data(), 200);
        auto const* const first = x.data();
        x.assign(x.data() + 1, 199); // overlaps its own target
        CHECK((x.data() == first) == (std::is_same_v<Bytes, pinned_bytes>));
        CHECK(contents(x) == counting(199, 1));
        x.assign(x);
        CHECK(contents(x) == counting(199, 1));
        x.assign(nullptr, 0);
        CHECK(x.size() == 0);
        CHECK(x.capacity() == 200);
        x.assign(counting(400).data(), 400);
        CHECK(contents(x) == counting(400));
        CHECK(x.capacity() == 400);
    });
}

TEST_CASE_TEMPLATE("owned_bytes: write, read and zero", Bytes, device_bytes, pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<std::is_same_v<Bytes, pinned_bytes> ? memory_space::pinned
                                                                    : memory_space::device>
            pool;
        auto x = filled<Bytes>(pool, a, counting(20));
        unsigned char const two[] = {200, 201};
        x.write(5, two, 2);
        x.write_now(7, two, 1);
        unsigned char read[4] = {};
        x.read(4, read, 4);
        weir::synchronize(a);
        CHECK(read[0] == 4);
        CHECK(read[1] == 200);
        CHECK(read[2] == 201);
        CHECK(read[3] == 200);
        x.reserve(30);
        x.zero();
        CHECK(contents(x) == octets(20, 0));
    });
}

TEST_CASE("owned_bytes: moves leave an empty block that is as good as new") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool, other;
        auto x = filled<device_bytes>(pool, a, counting(10));
        auto y = filled<device_bytes>(other, b, counting(20));
        void const* const block = x.data();
        device_bytes z(std::move(x));
        CHECK(z.data() == block);
        CHECK(x.data() == nullptr);
        CHECK(x.size() == 0);
        CHECK(x.capacity() == 0);
        x.append(counting(5).data(), 5);
        CHECK(contents(x) == counting(5));
        y = std::move(z);
        CHECK(other.frees.size() == 1);
        CHECK(other.frees[0].stream == weir::stream_ref(b));
        CHECK(y.pool() == x.pool());
        CHECK(y.stream() == weir::stream_ref(a));
        CHECK(contents(y) == counting(10));
        auto& same = y;
        y = std::move(same);
        CHECK(contents(y) == counting(10));
        CHECK(y.data() == block);
        y.swap(x);
        CHECK(contents(y) == counting(5));
        CHECK(contents(x) == counting(10));
        CHECK(other.live_blocks() == 0);
    });
}

TEST_CASE("owned_bytes: a growing block is freed behind the copy out of it") {
    // The pool poisons what is freed, on the stream of the free: a wrong order shows as poison.
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        auto x = filled<device_bytes>(pool, a, counting(250));
        for (std::size_t size = 300; size < 3000; size += 300) {
            x.resize(size);
            x.set_stream(size % 200 == 0 ? weir::stream_ref(a) : weir::stream_ref(b));
        }
        x.resize(250);
        CHECK(contents(x) == counting(250));
    });
}

TEST_CASE("owned_bytes: a cleared block is used, and freed behind its uses, as a full one is") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        support::recording_pool<> pool;
        device_bytes x(pool, a, 1 << 16, 1);
        weir::order_after(b, a);
        weir::check(cudaMemsetAsync(x.data(), 3, x.size(), b), "cudaMemsetAsync");
        x.clear();
        x.used_on(b);
    });
}

TEST_CASE("owned_bytes: set_stream orders the streams, and the free follows") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        {
            auto x = filled<device_bytes>(pool, a, counting(100));
            x.set_stream(b);
            CHECK(x.stream() == weir::stream_ref(b));
            CHECK(contents(x) == counting(100));
            x.set_stream(b);
            x.append(counting(100).data(), 100);
            x.set_stream(a);
            CHECK(contents(x) == joined(counting(100), counting(100)));
            x.set_stream(b);
        }
        CHECK(pool.frees.back().stream == weir::stream_ref(b));
        device_bytes none(pool, a, 0, 1);
#ifdef WEIR_SIMULATED_CUDA
        auto const before = simulated_cuda::calls();
#endif
        none.set_stream(b);
#ifdef WEIR_SIMULATED_CUDA
        CHECK(simulated_cuda::calls() == before);
#endif
        CHECK(none.stream() == weir::stream_ref(b));
    });
}

TEST_CASE_TEMPLATE("owned_bytes: copies across streams and pools are snapshots", Pool,
                   support::recording_pool<>, support::following_pool<>) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        Pool one, other;
        auto y = filled<device_bytes>(other, b, counting(3, 77));
        {
            auto x = filled<device_bytes>(one, a, counting(200));
            y.append(x);
            x.zero(); // behind the copy
            x.write(0, "\x09", 1);
            y.assign(x); // into a block that is large enough, and fresh all the same
            x.assign(counting(200).data(), 200);
            y.append(x);
        } // freed, and poisoned, behind the copies
        CHECK(contents(y) == joined(joined({9}, octets(199, 0)), counting(200)));
        CHECK(one.live_blocks() == 0);
    });
}

TEST_CASE("owned_bytes: copies from empty blocks order nothing") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        device_bytes const none(pool, a, 0, 1);
        auto y = filled<device_bytes>(pool, b, counting(5));
#ifdef WEIR_SIMULATED_CUDA
        auto const before = simulated_cuda::calls();
#endif
        y.append(none);
        CHECK(y.size() == 5);
        y.assign(none);
        CHECK(y.size() == 0);
        CHECK(y.capacity() == 5);
#ifdef WEIR_SIMULATED_CUDA
        CHECK(simulated_cuda::calls() == before);
#endif
    });
}

TEST_CASE("owned_bytes: device blocks copy from pinned ones, and pinned from pinned") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        pinned_pool pinned;
        device_bytes x(pool, a, 0, 1);
        pinned_bytes z(pinned, a, 0, 1);
        {
            auto y = filled<pinned_bytes>(pinned, b, counting(100));
            z.assign(y);
            z.append(y);
            x.append(y);
        } // freed behind the copy
        x.append(z);
        CHECK(contents(z) == joined(counting(100), counting(100)));
        CHECK(contents(x) == joined(counting(100), contents(z)));
    });
}

TEST_CASE("owned_bytes: used_on tells the pool, or makes its own stream wait") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::following_pool<> told;
        support::recording_pool<> untold;
        {
            auto x = filled<device_bytes>(told, a, counting(100));
            auto y = filled<device_bytes>(untold, a, counting(100));
            void* target = nullptr;
            weir::check(cudaMalloc(&target, 200), "cudaMalloc");
            weir::order_after(b, a);
            weir::check(cudaMemcpyAsync(target, x.data(), 100, cudaMemcpyDefault, b), "cudaMemcpyAsync");
            weir::check(
                cudaMemcpyAsync(static_cast<char*>(target) + 100, y.data(), 100, cudaMemcpyDefault, b),
                "cudaMemcpyAsync");
            x.used_on(b);
            y.used_on(b);
            CHECK(told.uses.size() == 1);
            CHECK(told.uses[0].p == x.data());
            x.used_on(weir::on_host); // whose uses are over when it frees
            CHECK(told.uses.size() == 1);
            x.last_used_on(b);
            CHECK(told.last_uses.size() == 1);
            x.last_used_on(a); // its own stream, and the host: nothing to do
            x.last_used_on(weir::on_host);
            CHECK(told.last_uses.size() == 1);
            x = device_bytes(told, a, 0, 1); // freed, and poisoned, behind what b reads
            y = device_bytes(untold, a, 0, 1);
            octets host(200);
            weir::check(cudaMemcpyAsync(host.data(), target, 200, cudaMemcpyDefault, b), "cudaMemcpyAsync");
            weir::synchronize(b);
            CHECK(host == joined(counting(100), counting(100)));
            weir::check(cudaFree(target), "cudaFree");
        }
        CHECK(untold.frees.at(0).stream == weir::stream_ref(a));
    });
}

TEST_CASE("owned_bytes: refuses the host as a stream, and sizes that wrap") {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<> pool;
        CHECK(sentence([&] {
                  device_bytes(pool, weir::on_host, 10, 1);
              }).find("name the stream whose work uses") != std::string::npos);
        CHECK(pool.allocations.empty());
        auto x = filled<device_bytes>(pool, a, counting(10));
        CHECK(sentence([&] { x.set_stream(weir::on_host); }).find("cannot move from a stream to 'on_host'") !=
              std::string::npos);
        CHECK(x.stream() == weir::stream_ref(a));
        CHECK(sentence([&] { x.append(x.data(), SIZE_MAX - 5); }).find("do not fit the address space") !=
              std::string::npos);
        CHECK(contents(x) == counting(10));
        CHECK_THROWS_AS(x.resize(SIZE_MAX / 2), weir::out_of_memory);
        CHECK_THROWS_AS(x.reserve(SIZE_MAX / 2), weir::out_of_memory);
        CHECK(contents(x) == counting(10));
    });
}

TEST_CASE("owned_bytes: while its stream is captured, it neither reads nor keeps an address of the stack") {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<> pool;
        auto x = filled<device_bytes>(pool, a, counting(10));
        weir::synchronize(a);
        weir::check(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        x.zero();
        unsigned char value = 1;
        CHECK(sentence([&] { x.write_now(0, &value, 1); }).find("keeps the address of the value") !=
              std::string::npos);
        CHECK(sentence([&] { x.read_sync(0, &value, 1); }).find("read after the graph has run") !=
              std::string::npos);
        cudaGraph_t graph = nullptr;
        weir::check(cudaStreamEndCapture(a, &graph), "cudaStreamEndCapture"); // the capture is whole
        REQUIRE(graph != nullptr);
        cudaGraphExec_t run = nullptr;
        weir::check(cudaGraphInstantiate(&run, graph, 0), "cudaGraphInstantiate");
        weir::check(cudaGraphLaunch(run, a), "cudaGraphLaunch");
        CHECK(contents(x) == octets(10, 0));
        weir::check(cudaGraphExecDestroy(run), "cudaGraphExecDestroy");
        weir::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    });
}

TEST_CASE_TEMPLATE("owned_bytes: behaves as a std::vector of bytes on whatever stream", Bytes, device_bytes,
                   pinned_bytes) {
    constexpr bool pinned = std::is_same_v<Bytes, pinned_bytes>;
    support::every_schedule([] {
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            std::mt19937_64 random(seed);
            support::scoped_stream streams[3];
            support::recording_pool<pinned ? memory_space::pinned : memory_space::device> pool(std::size_t{16}
                                                                                               << 20);
            pool.fail_at = 0;
            std::vector<Bytes> xs;
            std::vector<octets> models(4);
            for (int i = 0; i < 4; ++i)
                xs.emplace_back(pool, streams[i % 3], 0, 1);
            for (int step = 0; step < 200; ++step) {
                std::size_t const i = random() % 4, j = random() % 4, count = random() % 700;
                octets const piece = counting(count, static_cast<unsigned>(random() % 256));
                switch (random() % 10) {
                case 0:
                    xs[i].append(piece.data(), count);
                    models[i] = joined(models[i], piece);
                    break;
                case 1:
                    xs[i].assign(piece.data(), count);
                    models[i] = piece;
                    break;
                case 2:
                    if (models[i].size() + models[j].size() < 20000) {
                        xs[i].append(xs[j]);
                        models[i] = joined(models[i], models[j]);
                    }
                    break;
                case 3:
                    xs[i].assign(xs[j]);
                    models[i] = models[j];
                    break;
                case 4:
                    xs[i].shrink_to_fit();
                    break;
                case 5:
                    xs[i].reserve(count);
                    break;
                case 6:
                    xs[i].set_stream(streams[count % 3]);
                    break;
                case 7:
                    if (count < models[i].size()) {
                        xs[i].resize(count);
                        models[i].resize(count);
                    }
                    break;
                case 8:
                    if (i != j) {
                        xs[i] = std::move(xs[j]);
                        models[i] = std::exchange(models[j], {});
                    }
                    break;
                default:
                    pool.fail_at = 1;
                    CHECK_THROWS_AS(xs[i].reserve(xs[i].capacity() + 1), weir::out_of_memory);
                    pool.fail_at = 0;
                    break;
                }
                CHECK(xs[i].size() == models[i].size());
                CHECK(xs[i].size() <= xs[i].capacity());
                CHECK((xs[i].data() != nullptr) == (xs[i].capacity() != 0));
            }
            std::size_t held = 0;
            for (int i = 0; i < 4; ++i) {
                CHECK(contents(xs[static_cast<std::size_t>(i)]) == models[static_cast<std::size_t>(i)]);
                held += xs[static_cast<std::size_t>(i)].capacity();
            }
            CHECK(pool.live_bytes() == held);
        }
    });
}

namespace {

// Two blocks on two streams, as an operation finds them; pools whose frees make no CUDA calls.
struct scene {
    support::scoped_stream a, b;
    support::recording_pool<> pool, other;
    device_bytes x, y;

    scene() : x(pool, a, 0, 1), y(other, b, 0, 1) {
        pool.poisons = other.poisons = false;
        x.assign(counting(100).data(), 100);
        x.reserve(150);
        y.assign(counting(40, 100).data(), 40);
        y.reserve(300);
    }
};

template <class Operation>
void sweep(Operation&& operation) {
    auto const judge = [](scene& s, bool failed) {
        CHECK(s.pool.live_blocks() == (s.x.capacity() != 0));
        CHECK(s.other.live_blocks() == (s.y.capacity() != 0));
        if (!failed)
            return;
        CHECK(s.x.capacity() == 150);
        CHECK(s.y.capacity() == 300);
        CHECK(s.x.stream() == weir::stream_ref(s.a));
        CHECK(contents(s.x) == counting(100));
        CHECK(contents(s.y) == counting(40, 100));
    };
    auto const broken = support::each_fault([] { return std::make_unique<scene>(); }, operation, judge);
    static_cast<void>(broken);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(broken > 0);
#endif
    for (std::size_t k = 1; k < 10; ++k) { // the k-th allocation finds no room
        support::every_schedule([&] {
            scene s;
            s.pool.fail_at = s.other.fail_at = k;
            try {
                operation(s);
                judge(s, false);
            } catch (weir::out_of_memory const& error) {
                CHECK(error.reason() == "the test made it fail");
                judge(s, true);
            }
        });
    }
}

} // namespace

TEST_CASE("owned_bytes: stays as it was when CUDA or the pool fails") {
    sweep([](scene& s) { s.x.reserve(500); });
    sweep([](scene& s) { s.x.resize(500); });
    sweep([](scene& s) { s.x.shrink_to_fit(); });
    sweep([](scene& s) { s.x.append(counting(50).data(), 50); });
    sweep([](scene& s) { s.x.append(counting(51).data(), 51); });
    sweep([](scene& s) { s.x.append(s.x.data(), 100); });
    sweep([](scene& s) { s.x.assign(counting(150).data(), 150); });
    sweep([](scene& s) { s.x.assign(counting(151).data(), 151); });
    sweep([](scene& s) { s.x.assign(s.x.data() + 1, 50); });
    sweep([](scene& s) { s.x.append(s.y); });
    sweep([](scene& s) { s.x.assign(s.y); });
    sweep([](scene& s) { s.y.append(s.x); });
    sweep([](scene& s) { s.y.assign(s.x); });
    sweep([](scene& s) { s.x.set_stream(s.b); });
    sweep([](scene& s) { s.x.used_on(s.b); });
    sweep([](scene& s) { s.x.last_used_on(s.b); });
    sweep([](scene& s) { device_bytes(s.pool, s.a, 0, 1).assign(s.y); });
    sweep([](scene& s) { s.x.read_sync(0, counting(10).data(), 10); });
}

TEST_CASE("owned_bytes: an overwrite that fails changes nothing") {
    sweep([](scene& s) { s.x.zero(); });
    sweep([](scene& s) { s.x.write(0, counting(10, 50).data(), 10); });
    sweep([](scene& s) { s.x.write_now(0, counting(10, 50).data(), 10); });
}
