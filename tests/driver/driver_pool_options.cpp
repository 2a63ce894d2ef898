// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/sentence.hpp>
#include <weir/base/size.hpp>
#include <weir/driver/driver_pool_options.hpp>

using support::sentence_of;
using weir::driver_pool_options;
using weir::memory_location;
using weir::memory_space;
using weir::MiB;
using weir::driver::detail::properties_of;

namespace {

driver_pool_options on_device(int device) {
    driver_pool_options options;
    options.device(device);
    return options;
}

std::string refusal_of(memory_space space, driver_pool_options const& options) {
    return sentence_of<weir::usage_error>([&] { static_cast<void>(properties_of(space, options)); });
}

} // namespace

TEST_CASE("driver_pool_options: each kind of memory is what CUDA calls it") {
    driver_pool_options options = on_device(2);
    cudaMemPoolProps asked = properties_of(memory_space::device, options);
    CHECK(asked.allocType == cudaMemAllocationTypePinned);
    CHECK(asked.location.type == cudaMemLocationTypeDevice);
    CHECK(asked.location.id == 2);
    CHECK(asked.maxSize == 0);
    CHECK(asked.handleTypes == cudaMemHandleTypeNone);
    options.limit(5 * MiB);
    options.handle_types(cudaMemHandleTypePosixFileDescriptor | cudaMemHandleTypeFabric);
    options.location(memory_location::device(2));
    asked = properties_of(memory_space::device, options);
    CHECK(asked.maxSize == 5 * MiB);
    CHECK(static_cast<unsigned>(asked.handleTypes) == options.handle_types());

#if CUDART_VERSION >= 13000
    for (memory_location const& place : {memory_location::anywhere(), memory_location::host()}) {
        options = on_device(0);
        options.location(place);
        asked = properties_of(memory_space::pinned, options);
        CHECK(asked.allocType == cudaMemAllocationTypePinned);
        CHECK(asked.location.type == cudaMemLocationTypeHost);
    }
#else
    options = on_device(0);
    asked = properties_of(memory_space::pinned, options);
    CHECK(asked.location.type == cudaMemLocationTypeHostNuma);
    CHECK(asked.location.id == 0);
    options.location(memory_location::host());
    CHECK_SAYS(refusal_of(memory_space::pinned, options), "weir: before CUDA 13 a pool of pinned memory is on one NUMA node");
#endif
    options.location(memory_location::host_node(1));
    options.handle_types(cudaMemHandleTypePosixFileDescriptor);
    asked = properties_of(memory_space::pinned, options);
    CHECK(asked.location.type == cudaMemLocationTypeHostNuma);
    CHECK(asked.location.id == 1);
    CHECK(asked.handleTypes == cudaMemHandleTypePosixFileDescriptor);
#if CUDART_VERSION >= 13000
    for (memory_location const& place : {memory_location::anywhere(), memory_location::device(1), memory_location::host(),
                                         memory_location::host_node(0)}) {
        options = on_device(0);
        options.location(place);
        asked = properties_of(memory_space::managed, options);
        CHECK(asked.allocType == cudaMemAllocationTypeManaged);
        CHECK(asked.location.type == place.get().type);
        CHECK(asked.location.id == place.get().id);
    }
#endif
}

TEST_CASE("driver_pool_options: what CUDA does not have is refused with a sentence") {
    for (memory_space space : {memory_space::device, memory_space::pinned, memory_space::managed}) {
        driver_pool_options options = on_device(0);
        options.location(memory_location::nearest_host_node());
        CHECK_SAYS(refusal_of(space, options), "weir: a memory pool stays where it is made");
    }
    driver_pool_options options = on_device(0);
    for (memory_location const& place : {memory_location::device(1), memory_location::host(), memory_location::host_node(0)}) {
        options.location(place);
        CHECK_SAYS(refusal_of(memory_space::device, options), "weir: a pool of device memory is on the device that 'device' names");
    }
    options.location(memory_location::device(0));
    CHECK_SAYS(refusal_of(memory_space::pinned, options), "weir: a pool of pinned memory is on the host");
    options.location(memory_location::anywhere());
    options.handle_types(cudaMemHandleTypePosixFileDescriptor);
#if CUDART_VERSION >= 13000
    CHECK_SAYS(refusal_of(memory_space::pinned, options), "only where it is on one NUMA node");
#endif
    CHECK_SAYS(refusal_of(memory_space::managed, options), "weir: CUDA does not export managed memory");
    options = on_device(0);
    options.limit(1);
    CHECK_SAYS(refusal_of(memory_space::managed, options), "put layer::limit around the pool");
}
