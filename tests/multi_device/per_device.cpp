// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"

#include <atomic>
#include <cstddef>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/driver/driver_pool.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/multi_device.hpp>
#include <weir/recipes/device_pool.hpp>
#include <weir/recipes/frame_pool.hpp>
#include <weir/runtime/wait.hpp>

namespace {

using weir::multi_device::per_device;
using weir::MiB;

// Notes when it is made and ended; the first `failures` are not made.
struct noted_pool {
    static inline std::atomic<int> made{0};
    static inline int failures = 0;
    static inline std::vector<int> ended;
    static void forget() {
        made = 0;
        failures = 0;
        ended.clear();
    }

    explicit noted_pool(weir::pool_options const& options) : device(options.device()), limit(options.limit_bytes()) {
        if (failures > 0) {
            --failures;
            throw weir::usage_error("not yet");
        }
        ++made;
    }
    ~noted_pool() { ended.push_back(device); }
    int device;
    std::size_t limit;
};

} // namespace

TEST_CASE("per_device: a device's pool is made when it is first asked for, and stays") {
    machine const here;
    per_device<weir::device_pool> pools(weir::pool_options{}.limit(64 * MiB));
    CHECK(pools.size() == here.count);
    for (int i = 0; i < here.count; ++i)
        CHECK(pools.find(i) == nullptr);
    int const last = here.count - 1;
    CHECK(pools[last].device() == last); // though device 0 is current
    for (int i = here.count; i-- > 0;) {
        CAPTURE(i);
        CHECK(cudaSetDevice(i) == cudaSuccess);
        weir::device_pool& current = pools.current();
        CHECK(&current == &pools[i]);
        CHECK(&current == pools.find(i));
        CHECK(&current == &pools[weir::any_device]);
        CHECK(&current == pools.find(weir::any_device));
        CHECK(current.device() == i);
        CHECK(current.state().limit_bytes == 64 * MiB);
        cudaStream_t stream = nullptr;
        CHECK(cudaStreamCreate(&stream) == cudaSuccess);
        {
            weir::device_buffer const block(current, stream, 1000);
            cudaPointerAttributes where{};
            CHECK(cudaPointerGetAttributes(&where, block.data()) == cudaSuccess);
            CHECK(where.device == i);
        }
        CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    }
}

TEST_CASE("per_device: each device may have options of its own, whatever device they name") {
    machine const here;
    noted_pool::forget();
    {
        per_device<noted_pool> pools(
            [](int device) { return weir::pool_options{}.device(0).limit((std::size_t(device) + 1) * MiB); });
        pools.make_all();
        pools.make_all();
        CHECK(noted_pool::made == here.count);
        int next = 0;
        pools.visit([&](noted_pool& each) {
            CHECK(each.device == next++);
            CHECK(each.limit == std::size_t(next) * MiB);
        });
        CHECK(next == here.count);
    }
    std::vector<int> last_first;
    for (int i = here.count; i-- > 0;)
        last_first.push_back(i);
    CHECK(noted_pool::ended == last_first);
}

TEST_CASE("per_device: other pools are made from options of their own, and layers from those of the pool") {
    machine const here;
    int const last = here.count - 1;
    per_device<weir::driver_pool, weir::driver_pool_options> cudas(weir::driver_pool_options{}.name("cudas"));
    CHECK(cudas[last].device() == last);
    per_device<weir::layer::statistics<weir::device_pool>> counted;
    CHECK(counted[last].device() == last);
    int seen = 0;
    counted.visit([&](auto& each) { seen += each.live_blocks() == 0; });
    CHECK(seen == 1); // the others are not there
}

TEST_CASE("per_device: a device that is not there is refused, and a pool that could not be made is tried again") {
    machine const here;
    noted_pool::forget();
    per_device<noted_pool> pools;
    for (int const wrong : {here.count, -7}) {
        CAPTURE(wrong);
        CHECK_THROWS_AS(pools[wrong], weir::usage_error);
        CHECK_THROWS_AS(pools.find(wrong), weir::usage_error);
    }
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(pools[here.count]); }), "weir: there is no device ");
    noted_pool::failures = 2;
    CHECK_THROWS_AS(pools[0], weir::usage_error);
    CHECK_THROWS_AS(pools.make_all(), weir::usage_error);
    CHECK(pools.find(0) == nullptr);
    CHECK(pools[0].device == 0);
    CHECK(noted_pool::made == 1);
}

namespace {

// Whether the memory of `owner`'s pool is open to device `user`: what CUDA says of a block of it.
template <class Pool>
bool opens(Pool& pool, int owner, int user) {
    stream_of const stream(owner);
    weir::device_buffer const block(pool, stream, 3 * MiB);
    using weir::multi_device::detail::mapped_access;
    return mapped_access().of(block.data(), user) == mapped_access::answer::open;
}

} // namespace

TEST_CASE("per_device: pools are open to each other where devices reach each other, also what they get later") {
    using weir::multi_device::peer_access;
    for (bool const peers : {true, false})
        for (peer_access const access : {peer_access::where_possible, peer_access::none}) {
            CAPTURE(peers);
            machine const here(peers);
            per_device<weir::device_pool> pools({}, access);
            per_device<weir::layer::statistics<weir::device_pool>> layered([](int) { return weir::pool_options{}; }, access);
            CHECK_FALSE(pools.is_open(0, 0)); // it is not there
            static_cast<void>(pools[0]);
            CHECK(pools.is_open(0, 0));
            pools.make_all(), layered.make_all();
            for (int owner = 0; owner < here.count; ++owner)
                for (int user = 0; user < here.count; ++user) {
                    bool const open = owner == user || (access == peer_access::where_possible &&
                                                        weir::runtime::can_reach(user, owner));
                    CHECK(pools.is_open(owner, user) == open);
                    CHECK(layered.is_open(owner, user) == open);
                    CHECK(opens(pools[owner], owner, user) == open);
                    CHECK(opens(layered[owner], owner, user) == open);
                }
            CHECK_THROWS_AS(pools.is_open(here.count, 0), weir::usage_error);
            CHECK_THROWS_AS(pools.is_open(0, here.count), weir::usage_error);
        }
}

TEST_CASE("per_device: a driver_pool opens itself, and memory of cudaMalloc is not opened") {
    for (bool const peers : {true, false}) {
        machine const here(peers);
        per_device<weir::driver_pool, weir::driver_pool_options> cudas;
        per_device<weir::frame_pool> frames;
        cudas.make_all(), frames.make_all();
        for (int other = 1; other < here.count; ++other) {
            bool const open = weir::runtime::can_reach(other, 0);
            CHECK(cudas.is_open(0, other) == open);
            CHECK(cudas.is_open(other, 0) == open);
            CHECK_FALSE(frames.is_open(0, other));
            if (!open)
                continue;
            stream_of const home(0), away(other);
            weir::device_buffer block(cudas[0], home, 1000);
            block.zero_async();
            weir::synchronize(home);
            weir::runtime::device_scope const there(other);
            unsigned char host[16];
            CHECK(cudaMemcpyAsync(host, block.data(), 16, cudaMemcpyDefault, away) == cudaSuccess);
            weir::synchronize(away);
        }
    }
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("per_device: where CUDA refuses to open memory the pools are there, closed, and where it fails none is") {
    struct row {
        char const* call;
        unsigned which; // a mapped chunk is opened to its own device first
        cudaError_t answer;
        bool is_there;
    };
    for (row const& each : {row{"cuMemSetAccess", 2, cudaErrorTooManyPeers, true}, row{"cuMemSetAccess", 2, cudaErrorUnknown, false},
                            row{"cudaMemPoolSetAccess", 1, cudaErrorTooManyPeers, true},
                            row{"cudaMemPoolSetAccess", 1, cudaErrorUnknown, false}}) {
        CAPTURE(each.call);
        CAPTURE(each.answer);
        machine const here;
        auto const check = [&](auto& pools) {
            static_cast<void>(pools[0]);
            simulated_cuda::fail_call(each.call, each.which, each.answer);
            if (each.is_there)
                static_cast<void>(pools[1]);
            else
                CHECK_THROWS_AS(pools[1], weir::cuda_error);
            CHECK((pools.find(1) != nullptr) == each.is_there);
            static_cast<void>(pools[1]);
            CHECK((pools.is_open(0, 1) != pools.is_open(1, 0)) == each.is_there);
            static_cast<void>(pools[2]);
            CHECK(pools.is_open(0, 2));
            CHECK(pools.is_open(2, 0));
        };
        if (each.call == std::string("cuMemSetAccess")) {
            per_device<weir::device_pool> mapped(weir::pool_options{}.reserve(2 * MiB));
            check(mapped);
        } else {
            per_device<weir::driver_pool, weir::driver_pool_options> cudas;
            check(cudas);
        }
    }
}
#endif

TEST_CASE("per_device: threads that ask at the same time get the same pool") {
    machine const here;
    noted_pool::forget();
    per_device<noted_pool> pools;
    std::vector<std::vector<noted_pool*>> found(8);
    std::vector<std::thread> threads;
    for (std::vector<noted_pool*>& mine : found)
        threads.emplace_back([&] {
            for (int i = 0; i < pools.size(); ++i)
                mine.push_back(&pools[i]);
        });
    for (std::thread& each : threads)
        each.join();
    CHECK(noted_pool::made == here.count);
    for (std::vector<noted_pool*> const& each : found)
        CHECK(each == found.front());
}

TEST_CASE("per_device: a CUDA that fails leaves nothing behind, and the current device is what it was") {
    sweep_devices([] { return std::make_unique<int>(0); },
                  [](int&) {
                      per_device<weir::device_pool> pools;
                      pools.make_all();
                      static_cast<void>(pools.current());
                  },
                  [](int&, support::struck const&) {});
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("per_device: where there is no device, all that has a part on each says so") {
    simulated_cuda::world const none(simulated_cuda::config{}.with_devices(0));
    auto const said = [](auto const& make) { return support::sentence_of<weir::cuda_error>(make); };
    int nothing = 0;
    char const* const says = "cudaErrorNoDevice";
    CHECK_SAYS(said([&] { per_device<weir::device_pool>{}; }), says);
    CHECK_SAYS(said([&] { weir::multi_device::device_streams{}; }), says);
    std::vector<weir::device_pool> pools;
    std::vector<cudaStream_t> const streams;
    CHECK_SAYS(said([&] { weir::multi_device::sharded_vector<int>(pools, streams, 1); }), says);
    CHECK_SAYS(said([&] { weir::multi_device::replicated<int>(pools, streams, 1); }), says);
    CHECK_SAYS(said([&] { nothing += static_cast<int>(weir::multi_device::route_between(0, 0)); }), says);
}
#endif
