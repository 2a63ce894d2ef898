// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <support/sentence.hpp>
#include <weir/upstream/virtual_memory.hpp>

namespace {

namespace upstream = weir::upstream;
constexpr std::size_t page = upstream::virtual_memory<>::granularity;

// What the driver says of the memory behind an address.
CUmemAllocationProp made_as(void* chunk) {
    decltype(cuMemRetainAllocationHandle)* retain = nullptr;
    decltype(cuMemRelease)* release = nullptr;
    decltype(cuMemGetAllocationPropertiesFromHandle)* properties_of = nullptr;
    weir::runtime::detail::driver_functions::find("cuMemRetainAllocationHandle", retain);
    weir::runtime::detail::driver_functions::find("cuMemRelease", release);
    weir::runtime::detail::driver_functions::find("cuMemGetAllocationPropertiesFromHandle", properties_of);
    CUmemGenericAllocationHandle memory = 0;
    CUmemAllocationProp told{};
    REQUIRE(retain(&memory, chunk) == CUDA_SUCCESS);
    CHECK(properties_of(&told, memory) == CUDA_SUCCESS);
    CHECK(release(memory) == CUDA_SUCCESS);
    return told;
}

} // namespace

TEST_CASE("memory_tuning: registered memory has a descriptor, and what else the device has") {
    upstream::virtual_memory<upstream::registered_memory> memory;
    CHECK((memory.handle_types() & upstream::registered_memory::handle_types) != 0);
    void* const chunk = memory.acquire(2 * page);
    REQUIRE(chunk != nullptr);
    CUmemAllocationProp const told = made_as(chunk);
    CHECK(static_cast<unsigned>(told.requestedHandleTypes) == memory.handle_types());
    CHECK((memory.handle_types() & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0);
    CHECK(memory.release(chunk, 2 * page));
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("memory_tuning: what a device lacks of what was wished for is left out, and memory is there without") {
    struct row {
        char const* what;
        unsigned refusals; // of cuMemCreate
        cudaError_t as;
        bool rdma;
    };
    for (row const& each : {row{"no fabric", 0, cudaSuccess, true}, row{"nor any card of the network", 2, cudaErrorNotSupported, false},
                            row{"by another word", 2, cudaErrorInvalidValue, false}}) {
        CAPTURE(each.what);
        simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
        upstream::virtual_memory<upstream::registered_memory> memory;
        for (unsigned i = 1; i <= each.refusals; ++i)
            simulated_cuda::fail_call("cuMemCreate", i, each.as);
        void* const chunk = memory.acquire(page);
        REQUIRE(chunk != nullptr);
        CHECK(memory.handle_types() == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        CUmemAllocationProp const told = made_as(chunk);
        CHECK(told.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        CHECK((told.allocFlags.gpuDirectRDMACapable != 0) == each.rdma);
        // What the first chunk was made as, all are: a later refusal is an error.
        simulated_cuda::fail_call("cuMemCreate", 1, cudaErrorNotPermitted);
        CHECK_THROWS_AS(static_cast<void>(memory.acquire(page)), weir::cuda_error);
        CHECK(memory.release(chunk, page));
    }
}

TEST_CASE("memory_tuning: a device whose pages cannot be asked for with a wish is asked without it") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    simulated_cuda::fail_call("cuMemGetAllocationGranularity", 1, cudaErrorNotSupported);
    upstream::virtual_memory<upstream::registered_memory> memory;
    CHECK(memory.extends());
    CHECK(memory.handle_types() == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_CASE("memory_tuning: a device that refuses what is required refuses the chunk") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    upstream::virtual_memory<upstream::exported_memory<8>> memory; // no fabric here
    CHECK_THROWS_AS(static_cast<void>(memory.acquire(page)), weir::cuda_error);
}
#endif
