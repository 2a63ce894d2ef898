// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The sentences alone. Which one a pool says is in tests/pool/pool.cpp.

#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <string>
#include <support/sentence.hpp>
#include <weir/supply/chunk_refusals.hpp>

using weir::GiB;
using weir::MiB;

namespace {

struct lacks {
    std::size_t most_bytes = SIZE_MAX;
    bool no_addresses = false;
    weir::text reason = {};
};
weir::text block_text(std::size_t needed, std::size_t held, std::size_t limit, std::size_t refused, char const* kind,
                      bool ends_together = false, lacks const& lack = {}, std::size_t least = 0) {
    return weir::supply::chunk_refusal{kind, needed, held, limit, refused, lack.most_bytes, lack.no_addresses, lack.reason,
                                       ends_together, least}
        .for_block();
}
weir::text reserve_text(std::size_t lacking, std::size_t held, std::size_t limit, char const* kind, lacks const& lack = {}) {
    return weir::supply::chunk_refusal{kind, lacking, held, limit, 0, lack.most_bytes, lack.no_addresses, lack.reason}
        .for_reserve();
}

} // namespace

TEST_CASE("chunk_refusals: a refusal says what is in the way and what to do") {
    CHECK(block_text(0, 0, GiB, 0, "device") ==
          "no block of this pool can have that size and alignment; ask for less");
    CHECK(block_text(4096, 0, SIZE_MAX, 0, "device") ==
          "no free range is large enough and the upstream (device memory) has no room for another chunk of 4 KiB; "
          "free something, here or in another pool");
    CHECK(block_text(4096, GiB, GiB, 0, "device") ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 4 KiB; raise "
          "the pool's limit or free something");
    CHECK(block_text(4096, 1, 4096, 100, "device") ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 4 KiB, while the "
          "upstream refuses to take 100 B of free memory back; raise the pool's limit or free something");
    CHECK(block_text(1, 7, 7, 1, "device") ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 1 B, while the "
          "upstream refuses to take 1 B of free memory back; raise the pool's limit or free something");
    CHECK(block_text(4096, 0, SIZE_MAX, 0, "device", true) ==
          "no free range is large enough and the upstream (device memory) has no room for another chunk of 4 KiB; "
          "end a scope ('rewind' and 'clear' do as well, frees do not), or free something in another pool");
    CHECK(block_text(4096, GiB, GiB, 0, "device", true) ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 4 KiB; raise "
          "the pool's limit or end a scope ('rewind' and 'clear' do as well, frees do not)");
}

TEST_CASE("chunk_refusals: a refusal tells a lack of addresses, and what there can never be, from a lack of memory") {
    lacks lack;
    lack.most_bytes = 8 * MiB;
    CHECK(block_text(8 * MiB, 0, SIZE_MAX, 0, "device", false, lack) ==
          block_text(8 * MiB, 0, SIZE_MAX, 0, "device"));
    CHECK(block_text(8 * MiB + 1, 0, SIZE_MAX, 0, "device", false, lack) ==
          "it needs a chunk of 8388609 bytes (8 MiB), and of device memory there can be 8388608 bytes (8 MiB) in all; ask for less");
    CHECK(block_text(8 * MiB + 1, 0, MiB, 0, "device", false, lack) == // no limit would do
          block_text(8 * MiB + 1, 0, SIZE_MAX, 0, "device", false, lack));
    lack.no_addresses = true;
    CHECK(block_text(4096, 0, SIZE_MAX, 0, "device", false, lack) ==
          "no free range is large enough and the process has no more addresses for another chunk of 4 KiB; end pools that are not "
          "needed, unmap memory elsewhere, or raise the limit that the system sets ('ulimit -v')");
    CHECK(block_text(4096, GiB, GiB, 0, "device", false, lack) == block_text(4096, GiB, GiB, 0, "device"));
}

TEST_CASE("chunk_refusals: where no free would help, the refusal does not ask for one") {
    CHECK(block_text(4096, 0, 4095, 0, "device") ==
          "it needs a chunk of 4096 bytes (4 KiB), more than the pool's limit of 4095 bytes (3.99 KiB); ask for less or raise the pool's limit");
    CHECK(block_text(4096, 0, 0, 0, "device", true) ==
          "it needs a chunk of 4096 bytes (4 KiB), more than the pool's limit of 0 bytes; ask for less or raise the pool's limit");
    CHECK(block_text(4096, 0, 4095, 0, "device", false, {}, 4096) == // nor does less help
          "it needs a chunk of 4096 bytes (4 KiB), more than the pool's limit of 4095 bytes (3.99 KiB); no chunk is smaller, so raise "
          "the pool's limit");
    CHECK(std::string(block_text(4096, 1, 4096, 0, "device")).find("or free something") != std::string::npos);
    CHECK(std::string(block_text(4096, 0, 4096, 0, "device")).find("has no room for another chunk") != std::string::npos);
}

TEST_CASE("chunk_refusals: a refusal to reserve judges the bytes that are missing") {
    CHECK(reserve_text(0, MiB, SIZE_MAX, "device") == "there are not so many addresses; reserve less");
    CHECK(reserve_text(SIZE_MAX, 1, SIZE_MAX, "device") == "there are not so many addresses; reserve less");
    CHECK(reserve_text(MiB, 0, MiB - 1, "device") ==
          "it needs 1048576 bytes (1 MiB), and its limit is 1048575 bytes (1023.99 KiB); reserve less or raise the pool's limit");
    CHECK(reserve_text(MiB, MiB, 2 * MiB, "pinned") ==
          "it holds 1048576 bytes (1 MiB) and needs another 1048576 bytes (1 MiB), and the upstream (pinned memory) has no room for "
          "that; reserve less or free something elsewhere");
    lacks lack;
    lack.reason = "its pool 'x' (...) refuses: no";
    CHECK(reserve_text(MiB, 0, SIZE_MAX, "device", lack) == "it needs 1048576 bytes (1 MiB), and its pool 'x' (...) refuses: no");
    CHECK(block_text(MiB, 0, SIZE_MAX, 0, "device", false, lack) ==
          "no free range is large enough, and for another chunk of 1 MiB there is no room: its pool 'x' (...) refuses: no");
    lack.no_addresses = true;
    CHECK_SAYS(reserve_text(MiB, 0, SIZE_MAX, "device", lack), "and the process has no more addresses for that; end pools");
    lack.most_bytes = MiB;
    CHECK_SAYS(reserve_text(MiB, MiB, SIZE_MAX, "device", lack),
               "and of device memory there can be 1048576 bytes (1 MiB) in all; reserve less");
    CHECK(reserve_text(MiB, MiB, MiB, "device", lack) == reserve_text(MiB, MiB, SIZE_MAX, "device", lack));
}
