// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <new>
#include <support/failing_new.hpp>
#include <weir/driver/driver_pool/graph_blocks.hpp>

using weir::driver::detail::graph_blocks;

namespace {

void* at(std::uintptr_t address) {
    return reinterpret_cast<void*>(address);
}

} // namespace

TEST_CASE("graph_blocks: knows the blocks of graphs alone, and an address that is handed out again is what it is now") {
    graph_blocks blocks;
    blocks.note(at(0x1000), 0);
    CHECK(blocks.empty());
    CHECK_FALSE(blocks.has(at(0x1000)));
    blocks.note(at(0x1000), 7);
    CHECK_FALSE(blocks.empty());
    CHECK(blocks.has(at(0x1000)));
    CHECK_FALSE(blocks.has(at(0x2000)));
    blocks.note(at(0x2000), 0);
    CHECK_FALSE(blocks.has(at(0x2000)));
    blocks.note(at(0x1000), 8); // another graph's
    blocks.freed_by(7, at(0x1000));
    CHECK(blocks.has(at(0x1000)));
    blocks.note(at(0x1000), 0); // the pool's
    CHECK(blocks.empty());
}

TEST_CASE("graph_blocks: the graph that owns a block forgets it with its own free, and no other graph's does") {
    graph_blocks blocks;
    blocks.note(at(0x1000), 7);
    blocks.freed_by(8, at(0x1000));
    blocks.freed_by(0, at(0x1000)); // a capture that CUDA does not tell
    CHECK(blocks.has(at(0x1000)));
    blocks.freed_by(7, at(0x1000));
    CHECK(blocks.empty());
    blocks.freed_by(7, at(0x1000));
    CHECK(blocks.empty());
}

TEST_CASE("graph_blocks: without host memory it stays as it was") {
    graph_blocks blocks;
    if (support::host_memory_can_fail) {
        support::failing_new const none(0);
        CHECK_THROWS_AS(blocks.note(at(0x1000), 7), std::bad_alloc);
    }
    CHECK(blocks.empty());
    blocks.note(at(0x1000), 7);
    CHECK(blocks.has(at(0x1000)));
}
