// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "open_bytes.hpp"
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <utility>
#include <vector>
#include <weir/container/owned/growing_bytes.hpp>

using weir::memory_space;

namespace {

// What a member makes of 100 counted bytes in a block of 200, while another container of another stream holds 90 bytes.
enum block_is { same, another, same_if_pinned };
template <class Bytes>
struct member {
    char const* name;
    void (*call)(Bytes& x, Bytes const& other);
    octets contents;
    std::size_t capacity;
    block_is where;
};

octets hundred_and(octets const& more) { return joined(counting(100), more); }

template <class Bytes>
std::vector<member<Bytes>> const members{
    {"resize, in the block", [](auto& x, auto&) { x.resize_bytes(150); x.resize_bytes(100); }, counting(100), 200, same},
    {"resize, down", [](auto& x, auto&) { x.resize_bytes(50); }, counting(50), 200, same},
    {"resize, to exactly that", [](auto& x, auto&) { x.resize_bytes(300); x.resize_bytes(100); }, counting(100), 300, another},
    {"reserve, less than there is", [](auto& x, auto&) { x.reserve_bytes(150); }, counting(100), 200, same},
    {"reserve, exactly that", [](auto& x, auto&) { x.reserve_bytes(201); }, counting(100), 201, another},
    {"clear", [](auto& x, auto&) { x.clear(); }, {}, 200, same},
    {"shrink", [](auto& x, auto&) { x.shrink_to_fit(); }, counting(100), 100, another},
    {"shrink to nothing", [](auto& x, auto&) { x.clear(); x.shrink_to_fit(); }, {}, 0, another},
    {"append, after that", [](auto& x, auto&) { x.clear(); x.shrink_to_fit(); x.append_bytes("a", 1); }, {'a'}, 1, another},
    {"append, what fits", [](auto& x, auto&) { x.append_bytes(counting(100)); }, hundred_and(counting(100)), 200, same},
    {"append, with half more", [](auto& x, auto&) { x.append_bytes(counting(101)); }, hundred_and(counting(101)), 300, another},
    {"append to nothing", [](auto& x, auto&) { x.clear(); x.append_bytes(counting(201)); }, counting(201), 300, another},
    {"append another to nothing",
     [](auto& x, auto& y) { x.resize_bytes(80); x.shrink_to_fit(); x.clear(); x.append_bytes(y); },
     counting(90, 3), 120, another},
    {"append, with half of an odd number more", [](auto& x, auto&) { x.reserve_bytes(201); x.append_bytes(counting(102)); },
     hundred_and(counting(102)), 302, another},
    {"append, with half of the elements more", [](auto& x, auto&) { x.append_bytes(counting(104).data(), 104, 8); },
     hundred_and(counting(104)), 304, another},
    {"append, more than that", [](auto& x, auto&) { x.append_bytes(counting(250)); }, hundred_and(counting(250)), 350, another},
    {"append its own part", [](auto& x, auto&) { x.append_bytes(x.data() + 10, 10); }, hundred_and(counting(10, 10)), 200, same},
    {"append itself, growing", [](auto& x, auto&) { x.append_bytes(x); x.append_bytes(x.data(), 100); },
     hundred_and(hundred_and(counting(100))), 300, another},
    {"append nothing", [](auto& x, auto&) { x.append_bytes(nullptr, 0); }, counting(100), 200, same},
    {"append another", [](auto& x, auto& y) { x.append_bytes(y); }, hundred_and(counting(90, 3)), 200, same},
    {"assign, what fits", [](auto& x, auto&) { x.assign_bytes(counting(150, 9)); }, counting(150, 9), 200, same},
    {"assign, exactly that", [](auto& x, auto&) { x.assign_bytes(counting(201, 9)); }, counting(201, 9), 201, another},
    {"assign itself", [](auto& x, auto&) { x.assign_bytes(x); }, counting(100), 200, same},
    {"assign its own beginning", [](auto& x, auto&) { x.assign_bytes(x.data(), 70); }, counting(70), 200, same},
    {"assign its own end", [](auto& x, auto&) { x.assign_bytes(x.data() + 1, 99); }, counting(99, 1), 200, same_if_pinned},
    {"assign nothing", [](auto& x, auto&) { x.assign_bytes(nullptr, 0); }, {}, 200, same},
    // a copy that other streams order may fail once the contents are gone
    {"assign another", [](auto& x, auto& y) { x.assign_bytes(y); }, counting(90, 3), 200, same_if_pinned},
};

} // namespace

TEST_CASE_TEMPLATE("growing_bytes: what each member leaves, and in which block", Bytes, device_bytes, pinned_bytes) {
    for (member<Bytes> const& each : members<Bytes>) {
        CAPTURE(each.name);
        support::every_schedule([&] {
            support::scoped_stream a, b;
            typename Bytes::pool_type pool;
            Bytes x(pool, a, counting(200));
            Bytes const other(pool, b, counting(90, 3));
            x.resize_bytes(100);
            auto const* const first = x.data();
            each.call(x, other);
            CHECK(x.contents() == each.contents);
            CHECK(x.capacity() == each.capacity);
            bool const stays = each.where == same || (each.where == same_if_pinned && Bytes::space == memory_space::pinned);
            CHECK((x.data() == first) == stays);
            CHECK((x.data() != nullptr) == (x.capacity() != 0));
            CHECK(pool.live_bytes() == x.capacity() + 90);
        });
    }
}

TEST_CASE_TEMPLATE("growing_bytes: many appends take few blocks", Bytes, device_bytes, pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a;
        typename Bytes::pool_type pool;
        Bytes many(pool, a, 0);
        octets model;
        for (unsigned i = 0; i < 300; ++i) {
            octets const piece = counting(i % 7, i);
            many.append_bytes(piece);
            model = joined(model, piece);
        }
        CHECK(many.contents() == model);
        CHECK(pool.allocations.size() < 25);
    });
}

TEST_CASE_TEMPLATE("growing_bytes: where the pool has no room for half more, an append gets what it needs", Bytes, device_bytes,
                   pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a;
        typename Bytes::pool_type pool;
        Bytes x(pool, a, counting(100));
        pool.fail_at = 1;
        x.append_bytes(x.data(), 20);
        CHECK(x.capacity() == 120);
        CHECK(x.contents() == joined(counting(100), counting(20)));
        pool.fail_at = 1;
        CHECK_THROWS_AS(x.append_bytes(x.data(), 100), weir::out_of_memory); // needs more than half: there is no second try
        CHECK(x.contents() == joined(counting(100), counting(20)));
    });
}

TEST_CASE("growing_bytes: sizes that wrap are refused") {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<> pool;
        device_bytes x(pool, a, counting(10));
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { x.append_bytes(x.data(), SIZE_MAX - 5); }),
                   "do not fit the address space");
        CHECK_THROWS_AS(x.resize_bytes(SIZE_MAX / 2), weir::out_of_memory);
        CHECK_THROWS_AS(x.reserve_bytes(SIZE_MAX / 2), weir::out_of_memory);
        CHECK(x.contents() == counting(10));
    });
}

TEST_CASE("growing_bytes: a growing block is freed behind the copy out of it") {
    // The pool poisons what is freed, on the stream of the free: a wrong order shows as poison.
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        device_bytes x(pool, a, counting(250));
        for (std::size_t size = 300; size < 3000; size += 300) {
            x.resize_bytes(size);
            x.set_stream(size % 200 == 0 ? weir::stream_ref(a) : weir::stream_ref(b));
        }
        x.resize_bytes(250);
        CHECK(x.contents() == counting(250));
    });
}

TEST_CASE("growing_bytes: copies from empty blocks order nothing") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        device_bytes const none(pool, a, 0);
        device_bytes y(pool, b, counting(5));
#ifdef WEIR_SIMULATED_CUDA
        auto const before = simulated_cuda::calls();
#endif
        y.append_bytes(none);
        CHECK(y.size() == 5);
        y.assign_bytes(none);
        CHECK(y.size() == 0);
        CHECK(y.capacity() == 5);
#ifdef WEIR_SIMULATED_CUDA
        CHECK(simulated_cuda::calls() == before);
#endif
    });
}

TEST_CASE_TEMPLATE("growing_bytes: behaves as a std::vector of bytes on whatever stream", Bytes, device_bytes,
                   pinned_bytes) {
    support::every_schedule([] {
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            std::mt19937_64 random(seed);
            support::scoped_stream streams[3];
            typename Bytes::pool_type pool(std::size_t{16} << 20);
            std::vector<Bytes> xs;
            std::vector<octets> models(4);
            for (int i = 0; i < 4; ++i)
                xs.emplace_back(pool, streams[i % 3], 0);
            for (int step = 0; step < 200; ++step) {
                std::size_t const i = random() % 4, j = random() % 4, count = random() % 700;
                octets const piece = counting(count, static_cast<unsigned>(random() % 256));
                switch (random() % 10) {
                case 0:
                    xs[i].append_bytes(piece);
                    models[i] = joined(models[i], piece);
                    break;
                case 1:
                    xs[i].assign_bytes(piece);
                    models[i] = piece;
                    break;
                case 2:
                    if (models[i].size() + models[j].size() < 20000) {
                        xs[i].append_bytes(xs[j]);
                        models[i] = joined(models[i], models[j]);
                    }
                    break;
                case 3:
                    xs[i].assign_bytes(xs[j]);
                    models[i] = models[j];
                    break;
                case 4:
                    xs[i].shrink_to_fit();
                    break;
                case 5:
                    xs[i].reserve_bytes(count);
                    break;
                case 6:
                    xs[i].set_stream(streams[count % 3]);
                    break;
                case 7:
                    if (count < models[i].size()) {
                        xs[i].resize_bytes(count);
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
                    CHECK_THROWS_AS(xs[i].reserve_bytes(xs[i].capacity() + 1), weir::out_of_memory);
                    pool.fail_at = 0;
                    break;
                }
                CHECK(xs[i].size() == models[i].size());
                CHECK(xs[i].size() <= xs[i].capacity());
                CHECK((xs[i].data() != nullptr) == (xs[i].capacity() != 0));
            }
            std::size_t held = 0;
            for (std::size_t i = 0; i < 4; ++i) {
                CHECK(xs[i].contents() == models[i]);
                held += xs[i].capacity();
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

    scene() : x(pool, a, 0), y(other, b, 0) {
        pool.poisons = other.poisons = false;
        x.assign_bytes(counting(100));
        x.reserve_bytes(150);
        y.assign_bytes(counting(40, 100));
        y.reserve_bytes(300);
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
        CHECK(s.x.contents() == counting(100));
        CHECK(s.y.contents() == counting(40, 100));
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

TEST_CASE("growing_bytes: stays as it was when CUDA or the pool fails") {
    sweep([](scene& s) { s.x.reserve_bytes(500); });
    sweep([](scene& s) { s.x.resize_bytes(500); });
    sweep([](scene& s) { s.x.shrink_to_fit(); });
    sweep([](scene& s) { s.x.append_bytes(counting(50)); });
    sweep([](scene& s) { s.x.append_bytes(counting(51)); });
    sweep([](scene& s) { s.x.append_bytes(s.x.data(), 100); });
    sweep([](scene& s) { s.x.assign_bytes(counting(150)); });
    sweep([](scene& s) { s.x.assign_bytes(counting(151)); });
    sweep([](scene& s) { s.x.assign_bytes(s.x.data() + 1, 50); });
    sweep([](scene& s) { s.x.append_bytes(s.y); });
    sweep([](scene& s) { s.x.assign_bytes(s.y); });
    sweep([](scene& s) { s.y.append_bytes(s.x); });
    sweep([](scene& s) { s.y.assign_bytes(s.x); });
    sweep([](scene& s) { s.x.set_stream(s.b); });
    sweep([](scene& s) { s.x.used_on(s.b); });
    sweep([](scene& s) { s.x.last_used_on(s.b); });
    sweep([](scene& s) { device_bytes(s.pool, s.a, 0).assign_bytes(s.y); });
    sweep([](scene& s) { s.x.read_sync(0, counting(10).data(), 10); });
}

TEST_CASE("growing_bytes: an overwrite that fails changes nothing") {
    sweep([](scene& s) { s.x.zero_bytes(); });
    sweep([](scene& s) { s.x.write_value(0, 50); });
}
