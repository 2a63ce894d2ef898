// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// What no program should do, and machines that cannot: every recipe answers with a sentence that says what to do, and
// nothing is lost. Sizes and alignments are in the contract suite.

#include "scene.hpp"

#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <weir/container/vector.hpp>

using namespace faults;
using support::sentence_of;
using support::standard_error_of;

#define WEIR_CUDA_RECIPES                                                                                    \
    weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::pinned_pool,             \
        weir::managed_pool, weir::frame_pool, weir::node_pool, weir::driver_pool, weir::pinned_driver_pool
#define WEIR_STREAM_RECIPES                                                                                  \
    weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::pinned_pool,             \
        weir::managed_pool, weir::driver_pool, weir::pinned_driver_pool
#define WEIR_GUARDED_RECIPES                                                                                 \
    weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::pinned_pool,             \
        weir::managed_pool, weir::frame_pool, weir::node_pool, weir::host_pool, weir::layer::guard<weir::driver_pool>

namespace {

template <class Pool>
void settle_and_trim(Pool& pool) {
    pool.settle();
    pool.trim();
    CHECK(pool.state().in_use_bytes == 0);
    CHECK(pool.state().reserved_bytes == 0);
}

struct fresh_world : device::world {
    explicit fresh_world(device::config const& settings = device::config{}.late())
        : device::world(settings, support::report_all) {}
};

} // namespace

TEST_CASE_TEMPLATE("inputs: a machine without a GPU, and one whose driver is too old", Pool,
                   WEIR_CUDA_RECIPES) {
    struct machine {
        device::config settings;
        char const* advice;
    };
    for (machine const& each : {machine{device::config{}.with_devices(0),
                                        "no GPU is visible; check 'nvidia-smi' and CUDA_VISIBLE_DEVICES"},
                                machine{device::config{}.with_driver(CUDART_VERSION / 1000 * 1000 - 10),
                                        "older than the CUDA runtime that this program was built with; "
                                        "install or update the driver"}}) {
        fresh_world const world(each.settings);
        // Where no device need be known, the pool can be made, and its first block says it.
        CHECK_SAYS(
            sentence_of<weir::cuda_error>([] { static_cast<void>(made<Pool>(no_limit)->allocate_sync(64)); }),
            each.advice);
        CHECK_SAYS(sentence_of<weir::cuda_error>([] {
                       std::unique_ptr<Pool> const pool = made<Pool>(no_limit);
                       weir::stream_ref const on = cudaStreamPerThread;
                       static_cast<void>(pool->allocate(on, 64));
                   }),
                   each.advice);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
}

TEST_CASE_TEMPLATE("inputs: a stream that was destroyed", Pool, WEIR_STREAM_RECIPES) {
    fresh_world world;
    {
        std::unique_ptr<Pool> const pool = made<Pool>(no_limit);
        stage::stream s;
        stage::stream const other;
        cudaStream_t const gone = s;
        void* const p = pool->allocate(gone, 100 * KiB);
        void* const q = pool->allocate(other, 100 * KiB);
        s.destroy();
        std::string const said = sentence_of<weir::cuda_error>([&] { pool->used_on(q, gone); });
        CHECK_SAYS(said, "the stream or event was destroyed, or belongs to another device");
        // These ask for it: a promise is believed, and memory that nothing uses is ordered after nothing.
        if (!std::is_same_v<Pool, weir::promised_device_pool> && !std::is_same_v<Pool, weir::pinned_pool>)
            CHECK_SAYS(sentence_of<weir::cuda_error>([&] { static_cast<void>(pool->allocate(gone, 64)); }),
                       "the stream or event was destroyed");
        CHECK(pool->state().live_blocks == 2);
        pool->deallocate(gone, p, 100 * KiB);
        pool->deallocate(gone, q, 100 * KiB);
        CHECK(pool->state().live_blocks == 0);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        settle_and_trim(*pool);
    }
    device::clear_reports(); // of the handle's use: on a GPU it may be the program's end
}

TEST_CASE_TEMPLATE("inputs: a stream of another device", Pool, WEIR_STREAM_RECIPES) {
    fresh_world const world(device::config{}.late().with_devices(2));
    std::unique_ptr<Pool> const pool = made<Pool>(no_limit);
    stage::stream const here;
    CHECK(cudaSetDevice(1) == cudaSuccess);
    stage::stream const there;
    CHECK(cudaSetDevice(0) == cudaSuccess);
    // Managed and pinned memory is every device's, and CUDA's pools serve any stream.
    bool const refuses = std::is_same_v<Pool, weir::device_pool> ||
                         std::is_same_v<Pool, weir::promised_device_pool> ||
                         std::is_same_v<Pool, weir::compact_device_pool>;
    if (refuses) {
        char const* const advice =
            "weir: the stream belongs to device 1 and the pool to device 0; use a stream of the "
            "pool's device, or a pool of the stream's";
        CHECK(sentence_of<weir::usage_error>([&] { static_cast<void>(pool->allocate(there, 64)); }) ==
              advice);
        CHECK(sentence_of<weir::usage_error>([&] { weir::device_vector<int>(*pool, there, 5); }) == advice);
        CHECK(pool->reserved_bytes() == 0);
    } else {
        void* const p = pool->allocate(there, 64);
        pool->deallocate(there, p, 64);
    }
    { // a block that is used and freed there
        void* const p = pool->allocate(here, 100 * KiB);
        pool->used_on(p, there);
        CHECK(cudaStreamSynchronize(here) == cudaSuccess); // the free is ordered there
        pool->deallocate(there, p, 100 * KiB);
        weir::device_vector<int> x(*pool, here, 100);
        x.set_stream(there);
        x.used_on(here);
    }
    CHECK(pool->state().live_blocks == 0);
    CHECK(cudaStreamSynchronize(there) == cudaSuccess); // 'settle' waits for the pool's device
    settle_and_trim(*pool);
}

TEST_CASE_TEMPLATE("inputs: a pool that ends with live blocks says so, and gives the memory back", Pool,
                   WEIR_CUDA_RECIPES, weir::host_pool) {
    fresh_world world;
    std::unique_ptr<Pool> pool;
    if constexpr (is_driver_pool<Pool>)
        pool = std::make_unique<Pool>();
    else
        pool = std::make_unique<Pool>(weir::pool_options{}.name("driver"));
    for (int i = 0; i < 2; ++i)
        static_cast<void>(pool->allocate_sync(64, 16));
    std::string const text = standard_error_of([&] { pool.reset(); });
    std::size_t const last = text.find("weir: pool 'driver' ends with ");
    CHECK(text.find('\n', last) == text.size() - 1);
    CHECK_SAYS(text, "2 blocks still handed out; free them, or end their containers, before the pool\n");
    std::string const owners = text.substr(0, last); // from the guard, where the pool wears one
    CHECK(std::count(owners.begin(), owners.end(), '\n') == (is_driver_pool<Pool> ? 0 : WEIR_GUARD));
    if (!owners.empty())
        CHECK(owners.find("weir: layer::guard: pool 'driver': the pool ends before the owners of its blocks: ") == 0);
    if (is_driver_pool<Pool>) // CUDA keeps what nobody freed: they leak
        CHECK(world.finish().size() == 2);
}

TEST_CASE_TEMPLATE("inputs: in debug builds a wrong free goes no further", Pool, WEIR_GUARDED_RECIPES) {
    fresh_world const world;
    std::unique_ptr<Pool> const pool = made<Pool>(no_limit);
    std::unique_ptr<Pool> const other = made<Pool>(no_limit);
    auto const said = [&](void* p, std::size_t bytes, std::size_t alignment) {
        std::string const text = standard_error_of([&] { pool->deallocate_sync(p, bytes, alignment); });
        CHECK(text.find("weir: layer::guard: pool '") == 0);
        CHECK(text.find('\n') == text.size() - 1);
        return text;
    };
    auto* const p = static_cast<char*>(pool->allocate_sync(64, 16));
    void* const q = other->allocate_sync(64, 16);
    int here = 0;
    CHECK_SAYS(said(&here, 64, 16), "was not handed out by this pool; free it where it was allocated");
    CHECK_SAYS(said(q, 64, 16), "was not handed out by this pool; free it where it was allocated");
    CHECK_SAYS(said(p + 16, 48, 16),
               "is 16 bytes inside a live block; pass the pointer that 'allocate' returned");
    CHECK(pool->state().live_blocks == 1);
    CHECK(other->state().live_blocks == 1);
    CHECK_SAYS(said(p, 32, 16),
               "was allocated with 64 bytes at alignment 16 and is freed with 32 bytes at alignment 16");
    CHECK(pool->state().live_blocks == 0); // freed as it was allocated
    CHECK_SAYS(said(p, 64, 16), "is freed already; free each block once");
    other->deallocate_sync(q, 64, 16);
    for (Pool* each : {pool.get(), other.get()})
        settle_and_trim(*each);
}

TEST_CASE_TEMPLATE("inputs: a machine that is full says which memory, and serves again", Pool,
                   weir::device_pool, weir::promised_device_pool, weir::compact_device_pool,
                   weir::pinned_pool, weir::managed_pool, weir::frame_pool, weir::node_pool,
                   weir::driver_pool) {
    device::config settings = device::config{}.late().with_memory(64 * MiB);
    settings.pinned_bytes = 64 * MiB;
    fresh_world const world(settings);
    std::unique_ptr<Pool> const pool = made<Pool>(no_limit);
    std::size_t const bytes = std::is_same_v<Pool, weir::node_pool> ? 64 : 1 * MiB;
    std::vector<void*> blocks;
    std::string said;
    try {
        while (blocks.size() <= 64 * MiB / bytes)
            blocks.push_back(pool->allocate_sync(bytes));
    } catch (weir::out_of_memory const& error) {
        said = error.reason();
        CHECK(error.asked_bytes() == bytes);
        CHECK(error.in_use_bytes() >= 60 * MiB);
    }
    bool const is_driver = is_driver_pool<Pool>;
    CHECK_SAYS(said, is_driver ? "CUDA's memory pool found no 1048576 bytes (1 MiB) in the device's memory"
                               : " memory) has no room for another chunk of ");
    bool const ends_together = std::is_same_v<Pool, weir::frame_pool>;
    CHECK_SAYS(said, ends_together ? "; end a scope ('rewind' and 'clear' do as well, frees do not), or free something in another pool"
                                   : "; free something");
    CHECK(blocks.size() >= 60 * MiB / bytes);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    while (!blocks.empty()) {
        pool->deallocate_sync(blocks.back(), bytes);
        blocks.pop_back();
    }
    pool->settle();
    if constexpr (std::is_same_v<Pool, weir::frame_pool>)
        pool->clear();
    void* const p = pool->allocate_sync(bytes);
    pool->deallocate_sync(p, bytes);
}

TEST_CASE("inputs: a device that there is not") {
    fresh_world const world;
    CHECK_SAYS(sentence_of<weir::usage_error>(
                   [] { weir::driver_pool const pool{weir::driver_pool_options{}.device(7)}; }),
               "weir: there is no device 7; CUDA sees ");
    CHECK_SAYS(sentence_of<weir::usage_error>([] {
                   weir::pool<weir::upstream::device, stage::sized, weir::reuse::stream_ordered<>> const pool{
                       weir::upstream::device(7)};
               }),
               "weir: there is no device 7; CUDA sees ");
}

#endif
