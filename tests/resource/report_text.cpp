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

TEST_CASE("report_text: a part over a pool names the pool that refused, and its state") {
    weir::memory_report below;
    below.name = "frames";
    below.in_use_bytes = 3 * MiB;
    below.reserved_bytes = 8 * MiB;
    CHECK(weir::base::refusal_below_text(below, "no") == "its pool 'frames' (3 MiB in use, 8 MiB reserved, limit none) refuses: no");
    below.limit_bytes = GiB;
    CHECK(weir::base::refusal_below_text(below, "no") == "its pool 'frames' (3 MiB in use, 8 MiB reserved, limit 1 GiB) refuses: no");
}
