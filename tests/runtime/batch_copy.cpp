// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <vector>
#include <weir/runtime/batch_copy.hpp>
#include <weir/runtime/wait.hpp>

namespace {

/// Two rows on the device; the second gets pieces of the first.
struct rows {
    rows() {
        weir::check_cuda(cudaMalloc(&from, 1000), "cudaMalloc");
        weir::check_cuda(cudaMalloc(&to, 1000), "cudaMalloc");
        for (int i = 0; i < 10; ++i)
            weir::check_cuda(cudaMemset(static_cast<char*>(from) + i * 100, i + 1, 100), "cudaMemset");
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        for (std::size_t i = 0; i < 10; ++i) {
            sources[i] = static_cast<char*>(from) + i * 100;
            targets[i] = static_cast<char*>(to) + (9 - i) * 100;
            sizes[i] = 10 * (i + 1);
        }
    }
    ~rows() {
        static_cast<void>(cudaFree(from));
        static_cast<void>(cudaFree(to));
    }
    void check_copied(std::size_t count, weir::stream_ref stream) {
        weir::synchronize(stream);
        std::vector<char> now(1000);
        weir::check_cuda(cudaMemcpy(now.data(), to, 1000, cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (std::size_t i = 0; i < count; ++i)
            CHECK(std::string(now.data() + (9 - i) * 100, 10 * (i + 1)) == std::string(10 * (i + 1), static_cast<char>(i + 1)));
    }

    void* from = nullptr;
    void* to = nullptr;
    void* sources[10];
    void* targets[10];
    std::size_t sizes[10];
};

} // namespace

TEST_CASE("batch_copy: a list of copies is made, on any stream") {
    for (std::size_t const count : {0u, 1u, 2u, 10u})
        support::every_schedule([&] {
            support::scoped_stream const s;
            for (weir::stream_ref const stream :
                 {weir::stream_ref(s), weir::stream_ref(cudaStreamLegacy), weir::stream_ref(cudaStreamPerThread)}) {
                rows x;
                weir::runtime::copy_list(stream, x.targets, x.sources, x.sizes, count);
                x.check_copied(count, stream);
            }
        });
}

TEST_CASE("batch_copy: what is no memory is told") {
    support::every_schedule([&] {
        support::scoped_stream const s;
        rows x;
        x.sizes[1] = std::size_t{1} << 40;
        CHECK_SAYS(
            support::sentence_of<weir::cuda_error>([&] { weir::runtime::copy_list(s, x.targets, x.sources, x.sizes, 2); }),
            "a source or a target is not live memory of that size");
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("batch_copy: a driver without such a call gets the copies one by one, and other errors are told") {
    for (cudaError_t const missing : {cudaErrorNotSupported, cudaErrorCallRequiresNewerDriver, cudaErrorUnknown}) {
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s;
        rows x;
        std::uint64_t const before = simulated_cuda::calls("cudaMemcpyAsync");
        simulated_cuda::fail_call("cudaMemcpyBatchAsync", 1, missing);
        if (missing == cudaErrorUnknown) {
            CHECK_THROWS_AS(weir::runtime::copy_list(s, x.targets, x.sources, x.sizes, 10), weir::cuda_error);
        } else {
            weir::runtime::copy_list(s, x.targets, x.sources, x.sizes, 10);
            x.check_copied(10, s);
        }
        CHECK(simulated_cuda::calls("cudaMemcpyAsync") == before + (missing == cudaErrorUnknown ? 0 : 10));
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
}
#endif
