// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <weir/base/size.hpp>
#include <weir/runtime/cuda_pool.hpp>

using support::sentence_of;
using weir::check_cuda;
using weir::runtime::cuda_pool;
using weir::runtime::cuda_pool_statistics;
using weir::MiB;

static_assert(!std::is_copy_constructible_v<cuda_pool> && !std::is_move_constructible_v<cuda_pool>);
static_assert(std::is_trivially_copyable_v<weir::runtime::exported_block>);

namespace {

cudaMemPoolProps of_device(int device, unsigned handle_types = 0) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    properties.handleTypes = static_cast<cudaMemAllocationHandleType>(handle_types);
    return properties;
}

void* taken(cuda_pool& pool, std::size_t bytes, cudaStream_t stream) {
    void* p = nullptr;
    check_cuda(cudaMallocFromPoolAsync(&p, bytes, pool.get(), stream), "cudaMallocFromPoolAsync");
    return p;
}

} // namespace

TEST_CASE("cuda_pool: counts what is in use and reserved, now and at most") {
    support::every_schedule([] {
        support::scoped_stream const s;
        cuda_pool pool(of_device(0));
        pool.set<std::uint64_t>(cudaMemPoolAttrReleaseThreshold, UINT64_MAX);
        cuda_pool_statistics now = pool.statistics();
        CHECK(now.in_use_bytes == 0);
        CHECK(now.peak_in_use_bytes == 0);
        CHECK(now.reserved_bytes == 0);
        CHECK(now.peak_reserved_bytes == 0);
        void* const a = taken(pool, 40 * MiB, s);
        void* const b = taken(pool, 2 * MiB, s);
        check_cuda(cudaFreeAsync(a, s), "cudaFreeAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        now = pool.statistics();
        CHECK(now.in_use_bytes == 2 * MiB);
        CHECK(now.peak_in_use_bytes == 42 * MiB);
        CHECK(now.reserved_bytes >= 42 * MiB);
        CHECK(now.peak_reserved_bytes == now.reserved_bytes);
        CHECK(now.reserved_bytes == pool.bytes(cudaMemPoolAttrReservedMemCurrent));
        pool.reset_peaks();
        CHECK(pool.statistics().peak_in_use_bytes == 2 * MiB);
        check_cuda(cudaFreeAsync(b, s), "cudaFreeAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.trim(0);
        now = pool.statistics();
        CHECK(now.reserved_bytes == 0);
        CHECK(now.peak_reserved_bytes >= 42 * MiB);
        pool.reset_peaks();
        CHECK(pool.statistics().peak_reserved_bytes == 0);
    });
}

TEST_CASE("cuda_pool: takes over a pool that exists") {
    support::every_schedule([] {
        cudaMemPoolProps const properties = of_device(0);
        cudaMemPool_t handle = nullptr;
        check_cuda(cudaMemPoolCreate(&handle, &properties), "cudaMemPoolCreate");
        cuda_pool const pool(handle);
        CHECK(pool.get() == handle);
    }); // the world reports a pool that was never destroyed
}

TEST_CASE("cuda_pool: lets other devices in") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
    cuda_pool one(of_device(0)), all(of_device(0));
    one.enable_access_from(1);
    all.allow_all();
    for (cuda_pool const* each : {&one, &all}) {
        cudaMemLocation there{};
        there.type = cudaMemLocationTypeDevice;
        there.id = 1;
        cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
        check_cuda(cudaMemPoolGetAccess(&flags, each->get(), &there), "cudaMemPoolGetAccess");
        CHECK(flags == cudaMemAccessFlagsProtReadWrite);
    }
#endif
    cuda_pool pool(of_device(0));
    pool.enable_access_from(0);
    CHECK_SAYS(sentence_of<weir::cuda_error>([&] { pool.enable_access_from(12345); }), "weir: cudaMemPoolSetAccess failed with");
}

TEST_CASE("cuda_pool: exports itself and its blocks where it was made for that") {
    support::every_schedule([] {
        support::scoped_stream const s;
        cuda_pool pool(of_device(0, cudaMemHandleTypePosixFileDescriptor));
        int const one = pool.export_descriptor();
        int const other = pool.export_descriptor();
        CHECK(one >= 0);
        CHECK(other != one);
        CHECK(close(one) == 0);
        CHECK(close(other) == 0);
        void* const p = taken(pool, 1 * MiB, s);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        static_cast<void>(cuda_pool::export_block(p));
        check_cuda(cudaFreeAsync(p, s), "cudaFreeAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");

        cuda_pool closed(of_device(0));
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { static_cast<void>(closed.export_descriptor()); }),
                   "weir: cudaMemPoolExportToShareableHandle failed with");
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    });
}

TEST_CASE("cuda_pool: none of its calls breaks a capture") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        cuda_pool before(of_device(0, cudaMemHandleTypePosixFileDescriptor));
        void* const p = taken(before, 1 * MiB, other);
        check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
        support::capture graph(s);
        auto const use = [&] {
            cuda_pool pool(of_device(0));
            static_cast<void>(pool.statistics());
            pool.reset_peaks();
            pool.trim(0);
            pool.allow_all();
            CHECK(close(before.export_descriptor()) == 0);
            static_cast<void>(cuda_pool::export_block(p));
        };
        use();
        std::thread(use).join();
        CHECK(graph.unbroken());
        check_cuda(cudaFreeAsync(p, other), "cudaFreeAsync");
        check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
    });
}

TEST_CASE("cuda_pool: every call may fail: the pool is as it was, and the error names the call") {
    struct state {
        support::scoped_stream s;
        cuda_pool pool{of_device(0, cudaMemHandleTypePosixFileDescriptor | cudaMemHandleTypeFabric)};
        void* p = taken(pool, 1 * MiB, s);
        int descriptor = -1;
        state() { CHECK(close(pool.export_descriptor()) == 0); } // a block is exported once its pool was
        ~state() { check_cuda(cudaFreeAsync(p, s), "cudaFreeAsync"); }
    };
    auto const prepare = [] { return std::make_unique<state>(); };
    auto const as_before = [](state& x, support::struck const&) {
        CHECK(x.pool.statistics().in_use_bytes == 1 * MiB);
    };
    std::uint64_t runs = 0;
    runs += support::fault_sweep(prepare, [](state& x) { static_cast<void>(x.pool.statistics()); }, as_before);
    runs += support::fault_sweep(prepare, [](state& x) { x.pool.reset_peaks(); }, as_before);
    runs += support::fault_sweep(prepare, [](state& x) { x.pool.trim(0); }, as_before);
    runs += support::fault_sweep(prepare, [](state& x) { x.pool.enable_access_from(0); }, as_before);
    runs += support::fault_sweep(prepare, [](state& x) { x.pool.allow_all(); }, as_before);
    runs += support::fault_sweep(prepare, [](state& x) { x.descriptor = x.pool.export_descriptor(); },
                                 [&](state& x, support::struck const& fault) {
                                     CHECK((x.descriptor == -1) == fault.threw);
                                     if (x.descriptor != -1)
                                         CHECK(close(x.descriptor) == 0);
                                     as_before(x, fault);
                                 });
    runs += support::fault_sweep(prepare, [](state& x) { static_cast<void>(x.pool.export_fabric()); }, as_before);
    runs += support::fault_sweep(prepare, [](state& x) { static_cast<void>(cuda_pool::export_block(x.p)); }, as_before);
    runs += support::fault_sweep([] { return std::make_unique<std::unique_ptr<cuda_pool>>(); },
                                 [](std::unique_ptr<cuda_pool>& x) { x = std::make_unique<cuda_pool>(of_device(0)); },
                                 [](std::unique_ptr<cuda_pool>& x, support::struck const& fault) {
                                     CHECK((x == nullptr) == fault.threw);
                                 });
    runs += support::fault_sweep([] { return std::make_unique<std::unique_ptr<cuda_pool>>(new cuda_pool(of_device(0))); },
                                 [](std::unique_ptr<cuda_pool>& x) { x.reset(); },
                                 [](std::unique_ptr<cuda_pool>&, support::struck const& fault) { CHECK_FALSE(fault.threw); });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs > 50);
#endif
    static_cast<void>(runs);
}
