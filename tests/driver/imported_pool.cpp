// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The simulated device imports in the exporter's own process; on a GPU the importer is a process of its own: see the last
// case.

#include <cstdint>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <spawn.h>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>
#include <weir/driver/driver_pool.hpp>
#include <weir/driver/imported_pool.hpp>

using support::sentence_of;
using weir::check_cuda;
using weir::driver_pool;
using weir::driver_pool_options;
using weir::runtime::exported_block;
using weir::imported_pool;
using weir::MiB;
using weir::on_host;

static_assert(!std::is_copy_constructible_v<imported_pool> && !std::is_convertible_v<int, imported_pool>);
static_assert(noexcept(std::declval<imported_pool&>().release(on_host, nullptr)));

namespace {

driver_pool_options shared(unsigned handle_types = cudaMemHandleTypePosixFileDescriptor) {
    driver_pool_options options;
    options.handle_types(handle_types);
    return options;
}

#ifdef WEIR_SIMULATED_CUDA
std::unique_ptr<imported_pool> imported(driver_pool const& pool) {
    int const descriptor = pool.export_descriptor();
    auto theirs = std::make_unique<imported_pool>(descriptor);
    CHECK(close(descriptor) == 0);
    return theirs;
}
#endif

} // namespace

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("imported_pool: the exporter's bytes are there, at an address of its own") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool(shared());
        std::unique_ptr<imported_pool> const theirs = imported(pool);
        for (weir::stream_ref const on : {weir::stream_ref(s), weir::stream_ref(on_host)}) {
            void* const p = pool.allocate(s, 1 * MiB);
            check_cuda(cudaMemsetAsync(p, 7, 1 * MiB, s), "cudaMemsetAsync");
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            void* const q = theirs->acquire(pool.export_block(p));
            CHECK(q != p);
            auto const has_ends = [](void* at, unsigned char value) {
                unsigned char ends[2] = {};
                check_cuda(cudaMemcpy(&ends[0], at, 1, cudaMemcpyDefault), "cudaMemcpy");
                check_cuda(cudaMemcpy(&ends[1], static_cast<char*>(at) + 1 * MiB - 1, 1, cudaMemcpyDefault), "cudaMemcpy");
                return ends[0] == value && ends[1] == value;
            };
            CHECK(has_ends(q, 7));
            check_cuda(cudaMemsetAsync(q, 8, 1 * MiB, s), "cudaMemsetAsync");
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            CHECK(has_ends(p, 8));
            CHECK(theirs->release(on, q));
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            pool.deallocate(s, p, 1 * MiB);
        }
        CHECK(theirs->release(s, nullptr));
    });
}

TEST_CASE("imported_pool: fabric handles do the same") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
    driver_pool pool(shared(cudaMemHandleTypeFabric));
    imported_pool theirs(pool.export_fabric());
    theirs.enable_access_from(1);
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { theirs.enable_access_from(2); }), "weir: there is no device 2; CUDA sees 2 devices");
    void* const p = pool.allocate_sync(1 * MiB);
    exported_block const block = pool.export_block(p);
    void* const q = theirs.acquire(block);
    CHECK(theirs.release(on_host, q));
    pool.deallocate_sync(p, 1 * MiB);
    CHECK(theirs.get() != pool.get());
}

TEST_CASE("imported_pool: what is acquired outlives it") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    driver_pool pool(shared());
    void* const p = pool.allocate_sync(1 * MiB);
    imported(pool); // a block is exported once its pool was
    exported_block const block = pool.export_block(p);
    void* const q = imported(pool)->acquire(block);
    check_cuda(cudaMemset(q, 1, 1 * MiB), "cudaMemset");
    CHECK(imported(pool)->release(on_host, q));
    pool.deallocate_sync(p, 1 * MiB);
}

TEST_CASE("imported_pool: the simulated device reports a block that the exporter frees too early") {
    simulated_cuda::world world(simulated_cuda::config{}.late());
    driver_pool pool(shared());
    std::unique_ptr<imported_pool> const theirs = imported(pool);
    void* const p = pool.allocate_sync(1 * MiB);
    exported_block const block = pool.export_block(p);
    void* const q = theirs->acquire(block);
    pool.deallocate_sync(p, 1 * MiB);
    CHECK(simulated_cuda::reports(simulated_cuda::finding::bad_free).size() == 1);
    simulated_cuda::clear_reports();
    CHECK(theirs->release(on_host, q));
}

TEST_CASE("imported_pool: what is no pool, and blocks of others, are refused with CUDA's error") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    CHECK_SAYS(sentence_of<weir::cuda_error>([] { imported_pool nothing(-1); }),
               "pass the descriptor that was received from the exporter, not the number that it has there");
    CHECK_SAYS(sentence_of<weir::cuda_error>([] { imported_pool nothing(cudaMemFabricHandle_t{}); }),
               "the handle names no pool of a living process; pass the descriptor that was received from the exporter");
    driver_pool pool(shared()), other(shared());
    std::unique_ptr<imported_pool> const theirs = imported(pool);
    void* const p = other.allocate_sync(1000);
    imported(other);
    exported_block const block = other.export_block(p);
    CHECK_SAYS(sentence_of<weir::cuda_error>([&] { static_cast<void>(theirs->acquire(block)); }),
               "weir: cudaMemPoolImportPointer failed with");
    other.deallocate_sync(p, 1000);
    CHECK_FALSE(theirs->release(on_host, p));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("imported_pool: its calls break no capture, and a captured stream releases nothing") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        cudaStream_t blocking = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        driver_pool pool(shared());
        void* const p = pool.allocate_sync(1 * MiB);
        imported(pool);
        exported_block const block = pool.export_block(p);
        for (cudaStream_t const captured : {static_cast<cudaStream_t>(s), blocking}) {
            support::capture graph(captured);
            auto const use = [&] {
                std::unique_ptr<imported_pool> const theirs = imported(pool);
                void* const q = theirs->acquire(block);
                CHECK_FALSE(theirs->release(captured == blocking ? cudaStreamLegacy : captured, q));
                CHECK(theirs->release(other, q));
            };
            use();
            std::thread(use).join();
            CHECK(graph.unbroken());
        }
        pool.deallocate_sync(p, 1 * MiB);
        check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    });
}

TEST_CASE("imported_pool: every call may fail: nothing is imported then, and what was refused can be released later") {
    struct state {
        driver_pool pool{shared()};
        support::scoped_stream s;
        void* p = pool.allocate_sync(1 * MiB);
        int descriptor = pool.export_descriptor(); // first: a block is exported once its pool was
        exported_block block = pool.export_block(p);
        std::unique_ptr<imported_pool> theirs = std::make_unique<imported_pool>(descriptor);
        std::unique_ptr<imported_pool> second;
        void* q = nullptr;
        bool released = false;
        ~state() {
            CHECK(close(descriptor) == 0);
            if (q)
                CHECK(theirs->release(s, q));
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            pool.deallocate_sync(p, 1 * MiB);
        }
    };
    auto const prepare = [] { return std::make_unique<state>(); };
    auto const holding = [] {
        auto fresh = std::make_unique<state>();
        fresh->q = fresh->theirs->acquire(fresh->block);
        return fresh;
    };
    std::uint64_t runs = support::fault_sweep(
        prepare, [](state& x) { x.second = std::make_unique<imported_pool>(x.descriptor); },
        [](state& x, support::struck const& fault) { CHECK((x.second == nullptr) == fault.threw); });
    runs += support::fault_sweep(prepare, [](state& x) { x.q = x.theirs->acquire(x.block); },
                                 [](state& x, support::struck const& fault) { CHECK((x.q == nullptr) == fault.threw); });
    for (bool host : {false, true})
        runs += support::fault_sweep(
            holding,
            [&](state& x) {
                x.released = x.theirs->release(host ? weir::stream_ref(on_host) : weir::stream_ref(x.s), x.q);
            },
            [](state& x, support::struck const& fault) {
                CHECK_FALSE(fault.threw);
                if (x.released)
                    x.q = nullptr;
            });
    CHECK(runs > 15);
}
#else

namespace {

// Where the importer finds the pool's descriptor, and the pipe with the block.
constexpr int pool_at = 100;
constexpr int block_at = 101;

void import_and_change() {
    exported_block block;
    REQUIRE(read(block_at, &block, sizeof block) == static_cast<ssize_t>(sizeof block));
    imported_pool theirs(pool_at);
    REQUIRE(close(pool_at) == 0);
    void* const q = theirs.acquire(block);
    unsigned char last = 0;
    check_cuda(cudaMemcpy(&last, static_cast<char*>(q) + 1 * MiB - 1, 1, cudaMemcpyDefault), "cudaMemcpy");
    CHECK(last == 7);
    check_cuda(cudaMemset(q, 8, 1 * MiB), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    CHECK(theirs.release(on_host, q));
}

} // namespace

TEST_CASE("imported_pool: another process reads and writes the exporter's bytes") {
    if (std::getenv("WEIR_TEST_IMPORTER") != nullptr)
        return import_and_change();
    driver_pool pool(shared());
    void* const p = pool.allocate_sync(1 * MiB);
    check_cuda(cudaMemset(p, 7, 1 * MiB), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    int const descriptor = pool.export_descriptor();
    exported_block const block = pool.export_block(p);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(write(ends[1], &block, sizeof block) == static_cast<ssize_t>(sizeof block));

    posix_spawn_file_actions_t files;
    REQUIRE(posix_spawn_file_actions_init(&files) == 0);
    REQUIRE(posix_spawn_file_actions_adddup2(&files, descriptor, pool_at) == 0);
    REQUIRE(posix_spawn_file_actions_adddup2(&files, ends[0], block_at) == 0);
    std::string program = "runtime", which = "--test-case=imported_pool: another process*", role = "WEIR_TEST_IMPORTER=1";
    char* const arguments[] = {program.data(), which.data(), nullptr};
    std::vector<char*> settings;
    for (char** each = environ; *each; ++each)
        settings.push_back(*each);
    settings.push_back(role.data());
    settings.push_back(nullptr);
    pid_t importer = 0;
    REQUIRE(posix_spawn(&importer, "/proc/self/exe", &files, nullptr, arguments, settings.data()) == 0);
    int status = -1;
    CHECK(waitpid(importer, &status, 0) == importer);
    CHECK(status == 0);
    static_cast<void>(posix_spawn_file_actions_destroy(&files));
    CHECK(close(ends[0]) == 0);
    CHECK(close(ends[1]) == 0);
    CHECK(close(descriptor) == 0);

    unsigned char last = 0;
    check_cuda(cudaMemcpy(&last, static_cast<char*>(p) + 1 * MiB - 1, 1, cudaMemcpyDefault), "cudaMemcpy");
    CHECK(last == 8);
    pool.deallocate_sync(p, 1 * MiB);
}
#endif
