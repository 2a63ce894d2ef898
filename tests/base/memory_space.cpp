// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstddef>
#include <doctest/doctest.h>
#include <string>
#include <weir/base/memory_space.hpp>

using weir::base::device_accessible;
using weir::base::host_accessible;
using weir::memory_space;
using weir::base::name_of;

static_assert(sizeof(memory_space) == 1);
static_assert(device_accessible(memory_space::device) && !host_accessible(memory_space::device));
static_assert(device_accessible(memory_space::pinned) && host_accessible(memory_space::pinned));
static_assert(device_accessible(memory_space::managed) && host_accessible(memory_space::managed));
static_assert(!device_accessible(memory_space::host) && host_accessible(memory_space::host));

// Blocks of so many bytes, at multiples of their size.
template <std::size_t Bytes>
struct blocks_of {
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t alignment) {
        return bytes <= Bytes && alignment <= Bytes ? Bytes : 0;
    }
};
using weir::base::default_alignment_of;

TEST_CASE("memory_space: the usual alignment is the memory's, and no more than the blocks have") {
    CHECK(default_alignment_of<blocks_of<4096>>(memory_space::device) == 256);
    CHECK(default_alignment_of<blocks_of<4096>>(memory_space::managed) == 256);
    CHECK(default_alignment_of<blocks_of<4096>>(memory_space::pinned) == alignof(std::max_align_t));
    CHECK(default_alignment_of<blocks_of<4096>>(memory_space::host) == alignof(std::max_align_t));
    CHECK(default_alignment_of<blocks_of<256>>(memory_space::device) == 256);
    CHECK(default_alignment_of<blocks_of<64>>(memory_space::device) == 64);
    CHECK(default_alignment_of<blocks_of<8>>(memory_space::host) == 8);
    CHECK(default_alignment_of<blocks_of<1>>(memory_space::device) == 1);
}

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
