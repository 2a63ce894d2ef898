// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <array>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/container/value.hpp>
#include <weir/container/vector.hpp>
#include <weir/recipes.hpp>

using weir::device_vector;
using weir::memory_space;
using weir::pinned_vector;
using device_pool = support::recording_pool<memory_space::device>;
using pinned_pool = support::recording_pool<memory_space::pinned>;

static_assert(!std::is_copy_constructible_v<device_vector<int>> &&
              !std::is_copy_assignable_v<device_vector<int>>);
static_assert(!std::is_copy_constructible_v<pinned_vector<int>> &&
              !std::is_copy_assignable_v<pinned_vector<int>>);
static_assert(std::is_nothrow_move_constructible_v<device_vector<int>>);
static_assert(std::is_nothrow_move_assignable_v<pinned_vector<int>>);
static_assert(std::is_same_v<decltype(std::declval<pinned_vector<int>&>().begin()), int*>);
static_assert(std::is_same_v<decltype(std::declval<pinned_vector<int> const&>().end()), int const*>);
static_assert(std::is_same_v<device_vector<int>::value_type, int>);
static_assert(device_vector<double>::max_size() == PTRDIFF_MAX / 8);
// A vector of other elements is no source.
static_assert(
    !std::is_constructible_v<device_vector<int>, device_pool&, cudaStream_t, std::vector<float> const&>);

namespace {

template <class T>
std::vector<T> contents(device_vector<T> const& x) {
    return x.template to_host_sync<std::vector>();
}

template <class T>
std::vector<T> contents(pinned_vector<T> const& x) {
    return std::vector<T>(x.begin(), x.end());
}

std::vector<int> counting(std::size_t count, int from = 0) {
    std::vector<int> host(count);
    for (std::size_t i = 0; i < count; ++i)
        host[i] = from + static_cast<int>(i);
    return host;
}

// What C++20's std::span is, as far as a vector asks.
struct span_of_int {
    int const* first;
    std::size_t count;
    int const* data() const { return first; }
    std::size_t size() const { return count; }
};

struct alignas(512) wide {
    int value[128];
};

struct no_default {
    explicit no_default(int v) : value(v) {}
    int value;
};

template <class Call>
std::string sentence(Call&& call) { return support::sentence_of<weir::usage_error>(call); }

} // namespace

TEST_CASE_TEMPLATE("vector: is empty without memory, and grows, shrinks and clears", Vector,
                   device_vector<int>, pinned_vector<int>) {
    support::every_schedule([] {
        support::scoped_stream stream;
        support::recording_pool<Vector::space> pool;
        Vector x(pool, stream);
        CHECK(x.empty());
        CHECK(x.data() == nullptr);
        CHECK(contents(x).empty());
        Vector also(pool, stream, 0);
        also.resize(0);
        also.reserve(0);
        also.shrink_to_fit();
        also.append(std::vector<int>{});
        CHECK(pool.allocations.empty());

        x.append(counting(10));
        CHECK(x.size() == 10);
        CHECK(x.size_bytes() == 40);
        CHECK(x.capacity() == 10);
        x.append(counting(1, 10));
        CHECK(x.capacity() == 15);
        CHECK(contents(x) == counting(11));
        x.append(counting(5, 11));
        CHECK(x.capacity() == 23); // half of an odd number, rounded up
        Vector another(pool, stream, counting(3));
        another.append(Vector(pool, stream, 1));
        CHECK(another.capacity() == 5);
        another = Vector(pool, stream);
        x.resize(11);
        x.reserve(100);
        CHECK(x.capacity() == 100);
        x.resize(200);
        CHECK(x.capacity() == 200);
        x.resize(11);
        CHECK(contents(x) == counting(11));
        x.shrink_to_fit();
        CHECK(x.capacity() == 11);
        CHECK(contents(x) == counting(11));
        x.clear();
        CHECK(x.empty());
        CHECK(x.capacity() == 11);
        x.shrink_to_fit();
        CHECK(x.data() == nullptr);
        CHECK(pool.live_blocks() == 0);
    });
}

TEST_CASE_TEMPLATE("vector: takes whatever has contiguous elements", Vector, device_vector<int>,
                   pinned_vector<int>) {
    support::every_schedule([] {
        support::scoped_stream stream;
        support::recording_pool<Vector::space> pool;
        std::vector<int> const vector = counting(4);
        std::array<int, 4> const array{0, 1, 2, 3};
        int const plain[4] = {0, 1, 2, 3};
        span_of_int const span{plain, 4};
        CHECK(contents(Vector(pool, stream, vector)) == vector);
        CHECK(contents(Vector(pool, stream, array)) == vector);
        CHECK(contents(Vector(pool, stream, plain)) == vector);
        CHECK(contents(Vector(pool, stream, span)) == vector);
        CHECK(contents(Vector(pool, stream, plain, 4)) == vector);
        Vector x(pool, stream, plain, 2);
        x.append(array);
        x.append(plain);
        x.append(span);
        x.append(plain, 1);
        CHECK(contents(x) == std::vector<int>{0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0});
        x.assign(span);
        CHECK(contents(x) == vector);
        x.assign(plain + 1, 2);
        CHECK(contents(x) == counting(2, 1));
    });
}

TEST_CASE_TEMPLATE("vector: copies name a pool and a stream; moves do not", Vector, device_vector<int>,
                   pinned_vector<int>) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<Vector::space> pool, other;
        Vector x(pool, a, counting(100));
        Vector y(other, b, x);
        CHECK(y.pool() == weir::pool_ref<Vector::space>(other));
        CHECK(y.stream() == weir::stream_ref(b));
        CHECK(y.capacity() == 100);
        x.assign(counting(3, 50));
        CHECK(contents(y) == counting(100));
        y.append(x);
        y.append(y);
        CHECK(y.size() == 206);
        x.assign(y);
        CHECK(contents(x) == contents(y));

        Vector z(std::move(y));
        CHECK(y.empty());
        CHECK(y.data() == nullptr);
        CHECK(y.capacity() == 0);
        CHECK(contents(y).empty());
        y.append(counting(2));
        CHECK(contents(y) == counting(2));
        CHECK(y.stream() == weir::stream_ref(b));
        x = std::move(z);
        CHECK(pool.live_blocks() == 0);
        CHECK(x.stream() == weir::stream_ref(b));
        x.set_stream(a);
        x.used_on(b);
        CHECK(x.size() == 206);
        CHECK(contents(x)[105] == 2);
    });
}

TEST_CASE("vector: a device vector's elements are set and read in stream order") {
    support::every_schedule([] {
        support::scoped_stream a;
        device_pool pool;
        device_vector<int> x(pool, a, counting(5));
        x.set_element_async(2, 42);
        CHECK(x.element_sync(2) == 42);
        CHECK(x.element_sync(4) == 4);
        x.set_element_async(2, 43);
        CHECK(contents(x) == std::vector<int>{0, 1, 43, 3, 4});
        int few[5] = {};
        x.copy_to_async(few);
        weir::synchronize(a);
        CHECK(few[2] == 43);
        device_vector<int> y(pool, a, 5);
        x.copy_to_async(y.data()); // the same stream
        x.zero_async();
        CHECK(contents(x) == std::vector<int>(5, 0));
        CHECK(contents(y) == std::vector<int>{0, 1, 43, 3, 4});
        CHECK(sentence([&] { x.element_sync(5); }) == "weir: there is no element 5 in a vector of 5");
        CHECK(sentence([&] { x.set_element_async(7, 1); }) == "weir: there is no element 7 in a vector of 5");
    });
}

TEST_CASE("vector: many values from the stack arrive, however late the stream runs") {
    support::every_schedule([] {
        support::scoped_stream a;
        device_pool pool;
        device_vector<int> x(pool, a, 200);
        for (int i = 0; i < 200; ++i)
            x.set_element_async(static_cast<std::size_t>(i), i * i);
        for (int i = 0; i < 200; i += 17)
            CHECK(x.element_sync(static_cast<std::size_t>(i)) == i * i);
        pinned_pool pinned;
        pinned_vector<int> source(pinned, a, 1);
        source[0] = 77;
        x.set_element_async(0, source[0]);
        source[0] = 78; // the value was taken at the call
        CHECK(x.element_sync(0) == 77);
    });
}

TEST_CASE("vector: a pinned vector's elements are the host's") {
    support::every_schedule([] {
        support::scoped_stream a;
        pinned_pool pool;
        pinned_vector<int> x(pool, a, counting(3));
        x[1] = 7;
        CHECK(std::as_const(x)[1] == 7);
        x.at(2) = 9;
        CHECK(std::as_const(x).at(2) == 9);
        CHECK(sentence([&] { x.at(3) = 1; }) == "weir: there is no element 3 in a vector of 3");
        CHECK(sentence([&] { static_cast<void>(std::as_const(x).at(4)); }) ==
              "weir: there is no element 4 in a vector of 3");
        int sum = 0;
        for (int each : x)
            sum += each;
        CHECK(sum == 16);
        for (int i = 0; i < 1000; ++i)
            x.push_back(x[static_cast<std::size_t>(i)]);
        CHECK(x.size() == 1003);
        CHECK(x[1001] == x[998]);
        CHECK(pool.allocations.size() < 25);
        x.zero();
        CHECK(x[1001] == 0);
    });
}

TEST_CASE("vector: elements may be wide, or have no default") {
    support::every_schedule([] {
        support::scoped_stream a;
        device_pool pool;
        pinned_pool pinned;
        device_vector<wide> x(pool, a, 3);
        CHECK(reinterpret_cast<std::uintptr_t>(x.data()) % 512 == 0);
        CHECK(pool.allocations.back().alignment == 512);
        wide w{};
        w.value[100] = 5;
        x.set_element_async(1, w);
        CHECK(x.element_sync(1).value[100] == 5);
        x.append(&w, 1);
        CHECK(pool.allocations.back().alignment == 512);
        CHECK(x.element_sync(3).value[100] == 5);

        device_vector<no_default> y(pool, a, 4);
        y.set_element_async(3, no_default(8));
        CHECK(y.element_sync(3).value == 8);
        pinned_vector<bool> z(pinned, a, 2);
        z[0] = true;
        z[1] = false;
        device_vector<bool> on_device(pool, a, z);
        bool back[2] = {false, true};
        on_device.copy_to_async(back);
        weir::synchronize(a);
        CHECK(back[0]);
        CHECK_FALSE(back[1]);
    });
}

TEST_CASE("vector: an upload from pinned memory on another stream, and back") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        device_pool pool;
        pinned_pool pinned;
        device_vector<int> x(pool, a);
        {
            pinned_vector<int> up(pinned, b, counting(1000));
            x.append(up);
        } // freed behind the copy
        pinned_vector<int> down(pinned, a, x.size());
        x.copy_to_async(down.data());
        weir::synchronize(a);
        CHECK(contents(down) == counting(1000));
    });
}

TEST_CASE("vector: kernels' containers live in managed and pinned pools too") {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<memory_space::managed> managed;
        pinned_pool pinned;
        device_vector<int> x(managed, a, counting(10)), y(pinned, a, x);
        CHECK(contents(y) == counting(10));
        CHECK(y.pool().space() == memory_space::pinned);
        pinned_vector<int> z(managed, a, counting(10));
        z[0] = 1;
        CHECK(z[0] == 1);
    });
}

TEST_CASE_TEMPLATE("vector: refuses sizes that wrap, and the host as a stream", Vector, device_vector<double>,
                   pinned_vector<double>) {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<Vector::space> pool;
        std::size_t const wraps = (std::size_t{1} << 61) + 1; // times 8: 8
        Vector x(pool, a, 2);
        CHECK_THROWS_AS(x.resize(wraps), weir::usage_error);
        CHECK_THROWS_AS(x.reserve(wraps), weir::usage_error);
        CHECK_THROWS_AS(x.append(x.data(), wraps), weir::usage_error);
        CHECK_THROWS_AS(x.assign(x.data(), wraps), weir::usage_error);
        CHECK_THROWS_AS(Vector(pool, a, wraps), weir::usage_error);
        CHECK_THROWS_AS(Vector(pool, a, x.data(), wraps), weir::usage_error);
        CHECK_THROWS_AS(x.resize(Vector::max_size() + 1), weir::usage_error);
        CHECK_THROWS_AS(x.resize(Vector::max_size()), weir::out_of_memory);
        CHECK_THROWS_AS(Vector(pool, weir::on_host, 1), weir::usage_error);
        CHECK_THROWS_AS(x.set_stream(weir::on_host), weir::usage_error);
        CHECK(x.size() == 2);
        CHECK(pool.live_blocks() == 1);
    });
}

TEST_CASE_TEMPLATE("vector: refuses elements at a null address, and takes none from there", Vector, device_vector<int>,
                   pinned_vector<int>) {
    support::recording_pool<Vector::space> pool;
    support::scoped_stream const s;
    Vector xs(pool, s, {1, 2, 3});
    int const* const nowhere = nullptr;
    char const* const said = "weir: 20 bytes cannot be copied from or to a null address; pass the address of as many";
    CHECK(sentence([&] { xs.append(nowhere, 5); }) == said);
    CHECK(sentence([&] { xs.assign(nowhere, 5); }) == said);
    CHECK(sentence([&] { Vector(pool, s, nowhere, 5); }) == said);
    CHECK(xs.size() == 3);
    CHECK(pool.live_blocks() == 1);
    if constexpr (std::is_same_v<Vector, device_vector<int>>) {
        char const* const refused = "weir: 12 bytes cannot be copied from or to a null address; pass the address of as many";
        CHECK(sentence([&] { xs.copy_to_sync(nullptr); }) == refused);
        CHECK(sentence([&] { xs.copy_to_async(nullptr); }) == refused);
    }
    xs.append(nowhere, 0);
    xs.assign(nowhere, 0);
    CHECK(xs.empty());
}

TEST_CASE_TEMPLATE("vector: stays as it was when the pool has no room, and nothing leaks", Vector,
                   device_vector<int>, pinned_vector<int>) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<Vector::space> pool;
        Vector x(pool, a, counting(10)), y(pool, b, counting(20));
        auto const fails = [&](auto&& operation, std::size_t tries = 1) {
            pool.fail_at = 1;
            pool.fails = tries;
            CHECK_SAYS(support::sentence_of<weir::out_of_memory>(operation), "'recording'");
            CHECK(x.capacity() == 10);
            CHECK(contents(x) == counting(10));
            CHECK(contents(y) == counting(20));
            CHECK(pool.live_blocks() == 2);
        };
        fails([&] { x.resize(100); });
        fails([&] { x.reserve(100); });
        fails([&] { x.append(counting(1)); }, 2); // first with room for more
        fails([&] { x.append(x); });
        fails([&] { x.append(y); });
        fails([&] { x.assign(counting(11)); });
        fails([&] { x.assign(y); });
        fails([&] { Vector(pool, a, 1); });
        fails([&] { Vector(pool, a, counting(3)); });
        fails([&] { Vector(pool, b, x); });
    });
}

TEST_CASE("vector: stays as it was when CUDA fails, whichever call it is") {
    struct scene {
        support::scoped_stream a, b;
        device_pool pool;
        pinned_pool pinned;
        device_vector<int> x, y;
        pinned_vector<int> z;
        scene() : x(pool, a, counting(10)), y(pool, b, counting(20)), z(pinned, b, counting(30)) {
            pool.poisons = pinned.poisons = false;
        }
    };
    auto const prepare = [] { return std::make_unique<scene>(); };
    auto const judge = [](scene& s, bool failed) {
        CHECK(s.pool.live_blocks() == 2);
        CHECK(s.pinned.live_blocks() == 1);
        CHECK(contents(s.y) == counting(20));
        CHECK(contents(s.z) == counting(30));
        if (failed) {
            CHECK(contents(s.x) == counting(10));
            CHECK(s.x.capacity() == 10);
            CHECK(s.x.stream() == weir::stream_ref(s.a));
        }
    };
    auto const sweep = [&](auto&& operation) { support::each_fault(prepare, operation, judge); };
    sweep([](scene& s) { s.x.resize(100); });
    sweep([](scene& s) { s.x.append(counting(5)); });
    sweep([](scene& s) { s.x.append(s.y); });
    sweep([](scene& s) { s.x.append(s.z); });
    sweep([](scene& s) { s.x.assign(s.z); });
    sweep([](scene& s) { s.x.assign(counting(10, 5)); });
    sweep([](scene& s) { s.x.set_stream(s.b); });
    sweep([](scene& s) { s.x.used_on(s.b); });
    sweep([](scene& s) { s.x.set_element_async(3, 9); });
    sweep([](scene& s) { s.x.element_sync(3); });
    sweep([](scene& s) { s.x.to_host_sync<std::vector>(); });
    sweep([](scene& s) { s.x.zero_async(); });
    sweep([](scene& s) { device_vector<int>(s.pool, s.a, counting(10)); });
    sweep([](scene& s) { device_vector<int>(s.pool, s.a, s.y); });
    sweep([](scene& s) { s.z.set_stream(s.a); });
}

TEST_CASE("vector: while its stream is captured, what cannot be is refused and the capture lives") {
    support::every_schedule([] {
        support::scoped_stream a;
        device_pool pool;
        device_vector<int> x(pool, a, counting(5));
        weir::synchronize(a);
        weir::check_cuda(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        CHECK_THROWS_AS(x.set_element_async(0, 1), weir::usage_error);
        CHECK_THROWS_AS(x.element_sync(0), weir::usage_error);
        CHECK_THROWS_AS(x.to_host_sync<std::vector>(), weir::usage_error);
        cudaGraph_t graph = nullptr;
        weir::check_cuda(cudaStreamEndCapture(a, &graph), "cudaStreamEndCapture");
        weir::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        CHECK(contents(x) == counting(5));
    });
}

TEST_CASE("vector: random histories on three streams and two pools agree with std::vector") {
    support::every_schedule([] {
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            support::scoped_stream streams[3];
            support::recording_pool<> plain(std::size_t{16} << 20);
            support::following_pool<> following(std::size_t{16} << 20);
            auto const made = [&] {
                weir::stream_ref const stream = streams[random() % 3];
                return random() % 2 ? device_vector<int>(plain, stream)
                                    : device_vector<int>(following, stream);
            };
            std::vector<device_vector<int>> xs;
            std::vector<std::vector<int>> models(5);
            for (int i = 0; i < 5; ++i)
                xs.push_back(made());
            for (int step = 0; step < 150; ++step) {
                std::size_t const i = random() % 5, j = random() % 5, count = random() % 300;
                std::vector<int> const piece = counting(count, static_cast<int>(random() % 1000));
                switch (random() % 9) {
                case 0:
                    xs[i].append(piece);
                    models[i].insert(models[i].end(), piece.begin(), piece.end());
                    break;
                case 1:
                    xs[i].assign(xs[j]);
                    models[i] = models[j];
                    break;
                case 2: {
                    auto& pool = plain;
                    xs[i] = device_vector<int>(pool, streams[count % 3], xs[j]);
                    models[i] = models[j];
                    break;
                }
                case 3:
                    xs[i].set_stream(streams[count % 3]);
                    break;
                case 4:
                    if (count < models[i].size()) {
                        xs[i].set_element_async(count, step);
                        models[i][count] = step;
                    }
                    break;
                case 5:
                    xs[i].used_on(streams[count % 3]);
                    break;
                case 6:
                    xs[i].zero_async();
                    models[i].assign(models[i].size(), 0);
                    break;
                case 7:
                    xs[i] = made();
                    models[i].clear();
                    break;
                default:
                    xs[i].shrink_to_fit();
                    if (count < models[i].size())
                        CHECK(xs[i].element_sync(count) == models[i][count]);
                    break;
                }
            }
            for (std::size_t i = 0; i < 5; ++i)
                CHECK(contents(xs[i]) == models[i]);
        }
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("vector: works whichever device is current, and between two") {
    for (int current = 0; current < 2; ++current) {
        simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2),
                                          support::report_all);
        weir::check_cuda(cudaSetDevice(0), "cudaSetDevice");
        support::scoped_stream a, b;
        support::following_pool<> pool;
        weir::check_cuda(cudaSetDevice(1), "cudaSetDevice");
        support::scoped_stream c;
        support::recording_pool<> other;
        weir::check_cuda(cudaSetDevice(current), "cudaSetDevice");
        {
            device_vector<int> x(pool, a, counting(100)), z(other, c, x);
            x.append(counting(100));
            x.set_element_async(199, 7);
            x.set_stream(b);
            x.used_on(a);
            x.append(z);
            CHECK(contents(z) == counting(100));
            CHECK(x.element_sync(199) == 7);
            CHECK(x.element_sync(299) == 99);
        }
        int now = -1;
        weir::check_cuda(cudaGetDevice(&now), "cudaGetDevice");
        CHECK(now == current);
    }
}
#endif

TEST_CASE_TEMPLATE("vector: lives in memory that is open to one device, whichever is current, and copies between two", Pool,
                   weir::device_pool, weir::driver_pool, weir::managed_pool, device_pool) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
#endif
    int const devices = weir::runtime::device_count() < 2 ? 1 : 2;
    int const before = weir::runtime::current_device();
    for (int current = 0; current < devices; ++current) {
        weir::check_cuda(cudaSetDevice(0), "cudaSetDevice");
        Pool pool;
        support::scoped_stream a;
        weir::check_cuda(cudaSetDevice(devices - 1), "cudaSetDevice");
        Pool other;
        support::scoped_stream b;
        weir::check_cuda(cudaSetDevice(current), "cudaSetDevice");
        {
            device_vector<int> x(pool, a, counting(1000)), y(other, b, counting(10));
            y.append(x);
            x.append(y);
            x.assign(y);
            x.set_element_async(0, 7);
            x.shrink_to_fit();
            weir::device_value<int> seven(other, b, 7);
            weir::device_value<int> const copied(pool, a, seven);
            std::vector<int> both = counting(10), more = counting(1000);
            both.insert(both.end(), more.begin(), more.end());
            CHECK(contents(y) == both);
            both[0] = 7;
            CHECK(contents(x) == both);
            CHECK(copied.value_sync() == 7);
            y.zero_async();
            CHECK(contents(y) == std::vector<int>(1010));
            CHECK(weir::runtime::current_device() == current);
        }
        CHECK(pool.state().live_blocks + other.state().live_blocks == 0);
    }
    weir::check_cuda(cudaSetDevice(before), "cudaSetDevice");
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE_TEMPLATE("vector: memory of no device is filled from another device's in order, and by that one", Pool, weir::managed_pool,
                   weir::pinned_pool) {
    using plain = weir::pool<weir::upstream::device, weir::recipes::general_placement, weir::reuse::stream_ordered<>>;
    for (int const which : {0, 1, 2}) {
        CAPTURE(which);
        simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
        Pool here;
        weir::check_cuda(cudaSetDevice(1), "cudaSetDevice");
        plain there;
        weir::device_pool mapped;
        support::scoped_stream b;
        weir::check_cuda(cudaSetDevice(0), "cudaSetDevice");
        support::scoped_stream a;
        {
            device_vector<int> const y(there, b, counting(1000)), z(mapped, b, counting(1000));
            cudaStream_t const on = which == 0 ? cudaStreamLegacy : which == 1 ? cudaStreamPerThread : static_cast<cudaStream_t>(a);
            device_vector<int> x(here, on, 10);
            x.assign(y);
            CHECK(contents(x) == counting(1000));
            x.clear();
            x.append(z);
            CHECK(contents(x) == counting(1000));
        }
        CHECK(here.state().live_blocks + there.state().live_blocks + mapped.state().live_blocks == 0);
    }
}

TEST_CASE("vector: a captured copy between devices needs memory that both reach, and fails where it is not") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    support::scoped_stream a;
    weir::device_pool pool;
    weir::check_cuda(cudaSetDevice(1), "cudaSetDevice");
    weir::device_pool other;
    support::scoped_stream b;
    device_vector<int> const source(other, b, counting(100));
    device_vector<int> x(pool, a, 200);
    x.clear();
    weir::synchronize(b);
    {
        support::capture graph(a);
        CHECK_SAYS(support::sentence_of<weir::cuda_error>([&] { x.append(source.data(), 100); }),
                   "check both, or open the memory ('enable_access_from')");
        CHECK(x.size() == 0);
    }
    x.append(source);
    CHECK(contents(x) == counting(100));
    weir::check_cuda(cudaSetDevice(0), "cudaSetDevice");
}
#endif

TEST_CASE("vector: elements are copied to a range of as many") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        device_pool pool;
        pinned_pool host_pool;
        device_vector<int> const xs(pool, stream, counting(10));
        std::vector<int> there(10);
        xs.copy_to_sync(there);
        CHECK(there == counting(10));
        pinned_vector<int> locked(host_pool, stream, 10);
        xs.copy_to_sync(locked);
        CHECK(contents(locked) == counting(10));
        int array[10] = {};
        xs.copy_to_sync(array);
        CHECK(array[9] == 9);
        for (std::size_t const other : {std::size_t{0}, std::size_t{9}, std::size_t{11}}) {
            std::vector<int> unlike(other, -1);
            CHECK(sentence([&] { xs.copy_to_sync(unlike); }) ==
                  "weir: 10 elements cannot be copied to " + std::to_string(other) + "; 'resize' the target first");
            CHECK(unlike == std::vector<int>(other, -1));
        }
    });
}

TEST_CASE("vector: a pinned one fills what is added, also with an element of its own") {
    support::scoped_stream const stream;
    pinned_pool pool;
    pinned_vector<int> xs(pool, stream, 3, 7);
    CHECK(contents(xs) == std::vector<int>{7, 7, 7});
    xs[1] = 8;
    xs.resize(1000, xs[1]); // which moves it
    CHECK(contents(xs) == [] {
        std::vector<int> all(1000, 8);
        all[0] = all[2] = 7;
        return all;
    }());
    xs.resize(2, 9);
    CHECK(contents(xs) == std::vector<int>{7, 8});
    int sum = 0;
    for (int const x : xs)
        sum += x;
    CHECK(sum == 15);
}

TEST_CASE_TEMPLATE("vector: takes lists of elements", Vector, device_vector<int>, pinned_vector<int>) {
    support::every_schedule([] {
        support::scoped_stream a;
        pinned_pool pool;
        Vector xs(pool, a, {1, 2, 3});
        CHECK(xs.size() == 3);
        xs.append({4, 5});
        weir::check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
        CHECK(std::vector<int>(xs.data(), xs.data() + xs.size()) == std::vector<int>{1, 2, 3, 4, 5});
        xs.assign({7});
        weir::check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
        CHECK(std::vector<int>(xs.data(), xs.data() + xs.size()) == std::vector<int>{7});
        xs.assign({});
        CHECK(xs.empty());
    });
}

TEST_CASE("vector: a list is not captured, since the graph would read it when it is gone") {
    support::every_schedule([] {
        support::scoped_stream a;
        device_pool pool;
        device_vector<int> xs(pool, a, 8);
        pinned_pool host;
        pinned_vector<int> ys(host, a);
        support::capture graph(a);
        CHECK_THROWS_AS(xs.assign({1, 2}), weir::usage_error);
        CHECK_THROWS_AS(xs.append({1, 2}), weir::usage_error);
        CHECK(xs.size() == 8);
        ys.assign({3, 4}); // by the host, at once
        CHECK(ys[1] == 4);
        CHECK(graph.unbroken());
    });
}
