// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cstdlib>
#include <doctest/doctest.h>
#include <random>
#include <string>
#include <weir/base/report_text.hpp>

using weir::bytes_text;
using weir::GiB;
using weir::KiB;
using weir::MiB;

TEST_CASE("report_text: bytes read with the largest unit that fits") {
    CHECK(bytes_text(0) == "0 B");
    CHECK(bytes_text(1) == "1 B");
    CHECK(bytes_text(256) == "256 B");
    CHECK(bytes_text(1023) == "1023 B");
    CHECK(bytes_text(KiB) == "1 KiB");
    CHECK(bytes_text(MiB - 1) == "1023.99 KiB");
    CHECK(bytes_text(MiB) == "1 MiB");
    CHECK(bytes_text(GiB) == "1 GiB");
    CHECK(bytes_text(80 * GiB) == "80 GiB");
}

TEST_CASE("report_text: two decimals where the number is not whole, and never one") {
    CHECK(bytes_text(KiB + KiB / 2) == "1.50 KiB");
    CHECK(bytes_text(MiB + MiB / 2) == "1.50 MiB");
    CHECK(bytes_text(MiB + 16 * KiB) == "1.01 MiB");
    CHECK(bytes_text(MiB + 103 * KiB) == "1.10 MiB");
    CHECK(bytes_text(GiB + 52 * MiB) == "1.05 GiB");
    CHECK(bytes_text(KiB + 1) == "1 KiB"); // less than a hundredth is cut
}

TEST_CASE("report_text: the largest size there is does not overflow") {
    CHECK(bytes_text(SIZE_MAX) == "17179869183.99 GiB");
}

TEST_CASE("report_text: what is printed is the size, cut to hundredths of its unit") {
    std::mt19937_64 draw(7);
    for (int i = 0; i < 2000; ++i) {
        std::size_t const bytes = static_cast<std::size_t>(draw() >> (draw() % 60));
        std::string const text = bytes_text(bytes);
        std::size_t const unit = bytes >= GiB ? GiB : bytes >= MiB ? MiB : bytes >= KiB ? KiB : 1;
        std::string const name = bytes >= GiB ? " GiB" : bytes >= MiB ? " MiB" : bytes >= KiB ? " KiB" : " B";
        REQUIRE(text.size() > name.size());
        REQUIRE(text.substr(text.size() - name.size()) == name);
        std::size_t whole = std::strtoull(text.c_str(), nullptr, 10);
        std::size_t hundredths = 0;
        if (auto const point = text.find('.'); point != std::string::npos) {
            REQUIRE(text.find(' ') == point + 3);
            hundredths = std::strtoull(text.c_str() + point + 1, nullptr, 10);
        }
        REQUIRE(whole == bytes / unit);
        REQUIRE(hundredths == bytes % unit * 100 / unit);
    }
}

TEST_CASE("report_text: a report is one line with every fact") {
    weir::memory_report facts;
    facts.name = "frames";
    facts.in_use_bytes = 3 * MiB;
    facts.reserved_bytes = 8 * MiB;
    facts.limit_bytes = GiB;
    facts.largest_free_bytes = 512;
    facts.live_blocks = 7;
    facts.chunks = 2;
    CHECK(weir::report_text(facts, "device") ==
          "pool 'frames' (device): 3 MiB in use in 7 blocks, 8 MiB reserved in 2 chunks, largest free 512 B, limit 1 "
          "GiB");
    facts.limit_bytes = SIZE_MAX;
    std::string said = weir::report_text(facts, "device");
    CHECK(said.substr(said.size() - 10) == "limit none");
    facts.largest_free_bytes = SIZE_MAX; // not known
    CHECK(weir::report_text(facts, "device") ==
          "pool 'frames' (device): 3 MiB in use in 7 blocks, 8 MiB reserved in 2 chunks, limit none");
    facts.lost_bytes = 3 * KiB;
    said = weir::report_text(facts, "device");
    CHECK(said.find(", limit none, 3 KiB not handed out again") != std::string::npos);
}

TEST_CASE("report_text: a full report adds what is left on the device, and a line a block") {
    weir::memory_report facts;
    CHECK(weir::full_report_text("pool 'x'", facts) == "pool 'x'");
    facts.device_free_bytes = 3 * MiB;
    CHECK(weir::full_report_text("pool 'x'", facts) == "pool 'x', 3 MiB free on the device");
    facts.largest_live.offer({reinterpret_cast<void const*>(0x1000), 64});
    facts.largest_live.offer({reinterpret_cast<void const*>(0x7f00), 2 * MiB});
    CHECK(weir::full_report_text("pool 'x'", facts) == "pool 'x', 3 MiB free on the device; the largest live blocks:\n"
                                                       "  2 MiB at 0x7f00\n  64 B at 0x1000");
}

TEST_CASE("report_text: a refusal says what is in the way and what to do") {
    CHECK(weir::refusal_text(0, 0, GiB, 0, "device") ==
          "no block of this pool can have that size and alignment; ask for less");
    CHECK(weir::refusal_text(4096, 0, SIZE_MAX, 0, "device") ==
          "no free range is large enough and the upstream (device memory) has no room for another chunk of 4096 bytes; "
          "free something, here or in another pool");
    CHECK(weir::refusal_text(4096, GiB, GiB, 0, "device") ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 4096 bytes; raise "
          "pool_options::limit or free something");
    CHECK(weir::refusal_text(4096, 1, 4096, 100, "device") ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 4096 bytes, while the "
          "upstream refuses to take 100 free bytes back; raise pool_options::limit or free something");
    CHECK(weir::refusal_text(1, 7, 7, 1, "device") ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 1 byte, while the "
          "upstream refuses to take 1 free byte back; raise pool_options::limit or free something");
    CHECK(weir::refusal_text(4096, 0, SIZE_MAX, 0, "device", true) ==
          "no free range is large enough and the upstream (device memory) has no room for another chunk of 4096 bytes; "
          "end a scope ('rewind' and 'clear' do as well, frees do not), or free something in another pool");
    CHECK(weir::refusal_text(4096, GiB, GiB, 0, "device", true) ==
          "no free range is large enough and the pool's limit leaves no room for another chunk of 4096 bytes; raise "
          "pool_options::limit or end a scope ('rewind' and 'clear' do as well, frees do not)");
}

TEST_CASE("report_text: where no free would help, the refusal does not ask for one") {
    CHECK(weir::refusal_text(4096, 0, 4095, 0, "device") ==
          "it needs a chunk of 4096 bytes, more than the pool's limit; ask for less or raise pool_options::limit");
    CHECK(weir::refusal_text(4096, 0, 0, 0, "device", true) ==
          "it needs a chunk of 4096 bytes, more than the pool's limit; ask for less or raise pool_options::limit");
    CHECK(std::string(weir::refusal_text(4096, 1, 4096, 0, "device")).find("or free something") != std::string::npos);
    CHECK(std::string(weir::refusal_text(4096, 0, 4096, 0, "device")).find("has no room for another chunk") != std::string::npos);
}

TEST_CASE("report_text: a part over a pool names the pool that refused, and its state") {
    weir::memory_report below;
    below.name = "frames";
    below.in_use_bytes = 3 * MiB;
    below.reserved_bytes = 8 * MiB;
    CHECK(weir::refusal_below_text(below, "no") == "its pool 'frames' (3 MiB in use, 8 MiB reserved, limit none) refuses: no");
    below.limit_bytes = GiB;
    CHECK(weir::refusal_below_text(below, "no") == "its pool 'frames' (3 MiB in use, 8 MiB reserved, limit 1 GiB) refuses: no");
}
