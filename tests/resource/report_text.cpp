// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <string>
#include <support/sentence.hpp>
#include <weir/resource/report_text.hpp>

using weir::GiB;
using weir::KiB;
using weir::MiB;

TEST_CASE("report_text: a report is one line with every fact") {
    weir::memory_report state;
    state.name = "frames";
    state.in_use_bytes = 3 * MiB;
    state.reserved_bytes = 8 * MiB;
    state.limit_bytes = GiB;
    state.largest_free_bytes = 512;
    state.live_blocks = 7;
    state.chunks = 2;
    CHECK(weir::resource::report_text(state, "device") ==
          "pool 'frames' (device): 3 MiB in use in 7 blocks, 8 MiB reserved in 2 chunks, largest free 512 B, limit 1 "
          "GiB");
    CHECK(std::string(weir::resource::report_text(state, "")).substr(0, 25) == "pool 'frames': 3 MiB in u");
    state.limit_bytes = SIZE_MAX;
    std::string said = weir::resource::report_text(state, "device");
    CHECK(said.substr(said.size() - 10) == "limit none");
    state.largest_free_bytes = SIZE_MAX; // not known
    CHECK(weir::resource::report_text(state, "device") ==
          "pool 'frames' (device): 3 MiB in use in 7 blocks, 8 MiB reserved in 2 chunks, limit none");
    state.lost_bytes = 3 * KiB;
    said = weir::resource::report_text(state, "device");
    CHECK(said.find(", limit none, 3 KiB not handed out again") != std::string::npos);
}

TEST_CASE("report_text: a full report adds what is left on the device, and a line a block") {
    weir::memory_report state;
    CHECK(weir::resource::full_report_text("pool 'x'", state) == "pool 'x'");
    state.device_free_bytes = 3 * MiB;
    CHECK(weir::resource::full_report_text("pool 'x'", state) == "pool 'x', 3 MiB free on the device");
    state.largest_live.offer({reinterpret_cast<void const*>(0x1000), 64});
    state.largest_live.offer({reinterpret_cast<void const*>(0x7f00), 2 * MiB});
    CHECK(weir::resource::full_report_text("pool 'x'", state) == "pool 'x', 3 MiB free on the device; the largest live blocks:\n"
                                                       "  2 MiB at 0x7f00\n  64 B at 0x1000");
}

TEST_CASE("report_text: a refusal says what is in the way and what to do") {
    CHECK(weir::resource::refusal_text(0, 0, GiB, 0, "device") ==
          "no block of this pool can have that size and alignment; ask for less");
    CHECK(weir::resource::refusal_text(4096, 0, SIZE_MAX, 0, "device") ==
          "no free range is large enough and the upstream (device memory) has no room for another chunk of 4 KiB; "
          "free something, here or in another pool");
    CHECK(weir::resource::refusal_text(4096, GiB, GiB, 0, "device") ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 4 KiB; raise "
          "the pool's limit or free something");
    CHECK(weir::resource::refusal_text(4096, 1, 4096, 100, "device") ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 4 KiB, while the "
          "upstream refuses to take 100 B of free memory back; raise the pool's limit or free something");
    CHECK(weir::resource::refusal_text(1, 7, 7, 1, "device") ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 1 B, while the "
          "upstream refuses to take 1 B of free memory back; raise the pool's limit or free something");
    CHECK(weir::resource::refusal_text(4096, 0, SIZE_MAX, 0, "device", true) ==
          "no free range is large enough and the upstream (device memory) has no room for another chunk of 4 KiB; "
          "end a scope ('rewind' and 'clear' do as well, frees do not), or free something in another pool");
    CHECK(weir::resource::refusal_text(4096, GiB, GiB, 0, "device", true) ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 4 KiB; raise "
          "the pool's limit or end a scope ('rewind' and 'clear' do as well, frees do not)");
}

TEST_CASE("report_text: a refusal tells a lack of addresses, and what there can never be, from a lack of memory") {
    weir::resource::upstream_lack lack;
    lack.most_bytes = 8 * MiB;
    CHECK(weir::resource::refusal_text(8 * MiB, 0, SIZE_MAX, 0, "device", false, lack) ==
          weir::resource::refusal_text(8 * MiB, 0, SIZE_MAX, 0, "device"));
    CHECK(weir::resource::refusal_text(8 * MiB + 1, 0, SIZE_MAX, 0, "device", false, lack) ==
          "it needs a chunk of 8388609 bytes (8 MiB), and of device memory there can be 8388608 bytes (8 MiB) in all; ask for less");
    CHECK(weir::resource::refusal_text(8 * MiB + 1, 0, MiB, 0, "device", false, lack) == // no limit would do
          weir::resource::refusal_text(8 * MiB + 1, 0, SIZE_MAX, 0, "device", false, lack));
    lack.addresses = true;
    CHECK(weir::resource::refusal_text(4096, 0, SIZE_MAX, 0, "device", false, lack) ==
          "no free range is large enough and the process has no more addresses for another chunk of 4 KiB; end pools that are not "
          "needed, unmap memory elsewhere, or raise the limit that the system sets ('ulimit -v')");
    CHECK(weir::resource::refusal_text(4096, GiB, GiB, 0, "device", false, lack) == weir::resource::refusal_text(4096, GiB, GiB, 0, "device"));
}

TEST_CASE("report_text: where no free would help, the refusal does not ask for one") {
    CHECK(weir::resource::refusal_text(4096, 0, 4095, 0, "device") ==
          "it needs a chunk of 4096 bytes (4 KiB), more than the pool's limit of 4095 bytes (3.99 KiB); ask for less or raise the pool's limit");
    CHECK(weir::resource::refusal_text(4096, 0, 0, 0, "device", true) ==
          "it needs a chunk of 4096 bytes (4 KiB), more than the pool's limit of 0 bytes; ask for less or raise the pool's limit");
    CHECK(weir::resource::refusal_text(4096, 0, 4095, 0, "device", false, {}, 4096) == // nor does less help
          "it needs a chunk of 4096 bytes (4 KiB), more than the pool's limit of 4095 bytes (3.99 KiB); no chunk is smaller, so raise "
          "the pool's limit");
    CHECK(std::string(weir::resource::refusal_text(4096, 1, 4096, 0, "device")).find("or free something") != std::string::npos);
    CHECK(std::string(weir::resource::refusal_text(4096, 0, 4096, 0, "device")).find("has no room for another chunk") != std::string::npos);
}

TEST_CASE("report_text: a refusal to reserve judges the bytes that are missing") {
    using weir::resource::reserve_refusal_text;
    CHECK(reserve_refusal_text(0, MiB, SIZE_MAX, "device") == "there are not so many addresses; reserve less");
    CHECK(reserve_refusal_text(SIZE_MAX, 1, SIZE_MAX, "device") == "there are not so many addresses; reserve less");
    CHECK(reserve_refusal_text(MiB, 0, MiB - 1, "device") ==
          "it needs 1048576 bytes (1 MiB), and its limit is 1048575 bytes (1023.99 KiB); reserve less or raise the pool's limit");
    CHECK(reserve_refusal_text(MiB, MiB, 2 * MiB, "pinned") ==
          "it holds 1048576 bytes (1 MiB) and needs another 1048576 bytes (1 MiB), and the upstream (pinned memory) has no room for "
          "that; reserve less or free something elsewhere");
    weir::resource::upstream_lack lack;
    lack.reason = "its pool 'x' (...) refuses: no";
    CHECK(reserve_refusal_text(MiB, 0, SIZE_MAX, "device", lack) == "it needs 1048576 bytes (1 MiB), and its pool 'x' (...) refuses: no");
    CHECK(weir::resource::refusal_text(MiB, 0, SIZE_MAX, 0, "device", false, lack) ==
          "no free range is large enough, and for another chunk of 1 MiB there is no room: its pool 'x' (...) refuses: no");
    lack.addresses = true;
    CHECK_SAYS(reserve_refusal_text(MiB, 0, SIZE_MAX, "device", lack), "and the process has no more addresses for that; end pools");
    lack.most_bytes = MiB;
    CHECK_SAYS(reserve_refusal_text(MiB, MiB, SIZE_MAX, "device", lack),
               "and of device memory there can be 1048576 bytes (1 MiB) in all; reserve less");
    CHECK(reserve_refusal_text(MiB, MiB, MiB, "device", lack) == reserve_refusal_text(MiB, MiB, SIZE_MAX, "device", lack));
}

TEST_CASE("report_text: a part over a pool names the pool that refused, and its state") {
    weir::memory_report below;
    below.name = "frames";
    below.in_use_bytes = 3 * MiB;
    below.reserved_bytes = 8 * MiB;
    CHECK(weir::base::refusal_below_text(below, "no") == "its pool 'frames' (3 MiB in use, 8 MiB reserved, limit none) refuses: no");
    below.limit_bytes = GiB;
    CHECK(weir::base::refusal_below_text(below, "no") == "its pool 'frames' (3 MiB in use, 8 MiB reserved, limit 1 GiB) refuses: no");
}
