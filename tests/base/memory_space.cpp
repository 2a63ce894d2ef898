// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <string>
#include <weir/base/memory_space.hpp>

using weir::device_accessible;
using weir::host_accessible;
using weir::memory_space;
using weir::name_of;

static_assert(sizeof(memory_space) == 1);
static_assert(device_accessible(memory_space::device) && !host_accessible(memory_space::device));
static_assert(device_accessible(memory_space::pinned) && host_accessible(memory_space::pinned));
static_assert(device_accessible(memory_space::managed) && host_accessible(memory_space::managed));
static_assert(!device_accessible(memory_space::host) && host_accessible(memory_space::host));

TEST_CASE("memory_space: somebody can reach every space") {
    for (memory_space each : {memory_space::device, memory_space::pinned, memory_space::managed, memory_space::host})
        CHECK((device_accessible(each) || host_accessible(each)));
}

TEST_CASE("memory_space: each has a name of its own") {
    CHECK(std::string(name_of(memory_space::device)) == "device");
    CHECK(std::string(name_of(memory_space::pinned)) == "pinned");
    CHECK(std::string(name_of(memory_space::managed)) == "managed");
    CHECK(std::string(name_of(memory_space::host)) == "host");
}
