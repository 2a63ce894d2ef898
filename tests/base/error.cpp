// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <exception>
#include <new>
#include <string>
#include <support/failing_new.hpp>
#include <support/sentence.hpp>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>

using weir::cuda_error;
using weir::memory_report;
using weir::out_of_memory;
using weir::usage_error;

// Whoever handles the standard's exceptions handles these; copying one, as a rethrow may, cannot throw.
static_assert(std::is_base_of_v<std::bad_alloc, out_of_memory>);
static_assert(std::is_base_of_v<std::exception, cuda_error> && std::is_base_of_v<std::exception, usage_error>);
static_assert(std::is_nothrow_copy_constructible_v<out_of_memory> && std::is_nothrow_copy_assignable_v<out_of_memory>);
static_assert(std::is_nothrow_copy_constructible_v<cuda_error> && std::is_nothrow_copy_assignable_v<cuda_error>);
static_assert(std::is_nothrow_copy_constructible_v<usage_error> && std::is_nothrow_copy_assignable_v<usage_error>);
static_assert(std::is_nothrow_copy_constructible_v<memory_report>);

namespace {

memory_report report() {
    memory_report state;
    state.name = "frames";
    state.in_use_bytes = 1000;
    state.reserved_bytes = 2000;
    state.limit_bytes = 3000;
    state.largest_free_bytes = 400;
    state.live_blocks = 5;
    state.chunks = 6;
    return state;
}

} // namespace

TEST_CASE("error: out_of_memory carries what was asked, the pool's state and the reason") {
    out_of_memory const error(4096, {report(), "the limit leaves no room; free something"});
    CHECK(error.asked_bytes() == 4096);
    CHECK(error.limit_bytes() == 3000);
    CHECK(error.in_use_bytes() == 1000);
    CHECK(error.reserved_bytes() == 2000);
    CHECK(error.largest_free_bytes() == 400);
    CHECK(error.pool_name() == "frames");
    CHECK(error.reason() == "the limit leaves no room; free something");
    CHECK(std::string(error.what()) ==
          "weir: out of memory: pool 'frames' cannot hand out 4096 bytes (4 KiB): the limit leaves no room; free something "
          "(in use 1000 B, reserved 1.95 KiB, limit 2.92 KiB, largest free 400 B)");
    memory_report silent = report();
    silent.largest_free_bytes = SIZE_MAX; // not known
    CHECK_SAYS(out_of_memory(1, {silent, "x"}).what(), "(in use 1000 B, reserved 1.95 KiB, limit 2.92 KiB)");
    silent.requested_bytes = 900; // a layer's, which does not know the pool's figures
    silent.in_use_bytes = silent.reserved_bytes = SIZE_MAX;
    CHECK_SAYS(out_of_memory(1, {silent, "x"}).what(), "(requested 900 B, limit 2.92 KiB)");
    CHECK(out_of_memory(1, {silent, "x"}).requested_bytes() == 900);
}

TEST_CASE("error: out_of_memory says what is left on the device and who has the most, where that is known") {
    out_of_memory const plain(1, {report(), "x"});
    CHECK(plain.device_free_bytes() == SIZE_MAX);
    CHECK(plain.largest_live().empty());
    memory_report state = report();
    state.device_free_bytes = 123;
    state.largest_live.offer({reinterpret_cast<void const*>(0x1000), 64});
    state.largest_live.offer({reinterpret_cast<void const*>(0x7f00), 900});
    out_of_memory const error(4096, {state, "the limit leaves no room; free something"});
    CHECK(error.device_free_bytes() == 123);
    REQUIRE(error.largest_live().size() == 2);
    CHECK(error.largest_live()[0].bytes == 900);
    CHECK(std::string(error.what()) ==
          "weir: out of memory: pool 'frames' cannot hand out 4096 bytes (4 KiB): the limit leaves no room; free something "
          "(in use 1000 B, reserved 1.95 KiB, limit 2.92 KiB, largest free 400 B, free on the device 123 B); the largest live blocks: "
          "900 B at 0x7f00, 64 B at 0x1000");
    state.device_free_bytes = 0;
    CHECK(std::string(out_of_memory(1, {state, "x"}).what()).find("free on the device 0 B)") != std::string::npos);
    CHECK(plain.lost_bytes() == 0);
    state.lost_bytes = 77; // or the other figures do not add up
    CHECK(out_of_memory(1, {state, "x"}).lost_bytes() == 77);
    CHECK(std::string(out_of_memory(1, {state, "x"}).what()).find("free on the device 0 B, not handed out again 77 B)") != std::string::npos);
    state.largest_live = {};
    state.largest_live.offer({reinterpret_cast<void const*>(0x1000), 1});
    std::string const said = out_of_memory(1, {state, "x"}).what();
    CHECK(said.find("cannot hand out 1 byte: x (") != std::string::npos);
    CHECK(said.find("; the largest live blocks: 1 B at 0x1000") != std::string::npos);
}

TEST_CASE("error: out_of_memory says when there is no limit") {
    memory_report state = report();
    state.limit_bytes = SIZE_MAX;
    CHECK(std::string(out_of_memory(1, {state, "x"}).what()).find("limit none") != std::string::npos);
    state.limit_bytes = SIZE_MAX - 1;
    CHECK(std::string(out_of_memory(1, {state, "x"}).what()).find("limit none") == std::string::npos);
}

TEST_CASE("error: copies and moves of out_of_memory all tell the whole story") {
    out_of_memory first(1, {report(), "why"});
    std::string const text = first.what();
    out_of_memory copy = first;
    out_of_memory moved = std::move(first);
    CHECK(copy.what() == text);
    CHECK(moved.what() == text);
    CHECK(first.what() == text); // also what was moved from, which a handler may still hold
    out_of_memory other(2, {{}, "else"});
    other = moved;
    CHECK(other.what() == text);
    CHECK(other.asked_bytes() == 1);
    other = std::move(copy);
    CHECK(copy.what() == text);
    copy = other;
    CHECK(copy.reason() == "why");
}

TEST_CASE("error: out_of_memory survives a journey between threads and a rethrow") {
    std::exception_ptr kept;
    try {
        throw out_of_memory(77, {report(), "full"});
    } catch (std::bad_alloc const&) {
        kept = std::current_exception();
    }
    for (int again = 0; again < 3; ++again) {
        try {
            std::rethrow_exception(kept);
        } catch (out_of_memory const& error) {
            CHECK(error.asked_bytes() == 77);
            CHECK(error.pool_name() == "frames");
        }
    }
}

TEST_CASE("error: cuda_error carries the call, the code, CUDA's name and what to do") {
    cuda_error const error("cudaMalloc", "cudaErrorNoDevice", 100, "no GPU is visible; look for one");
    CHECK(std::string(error.call()) == "cudaMalloc");
    CHECK(error.code() == 100);
    CHECK(std::string(error.what()) ==
          "weir: cudaMalloc failed with cudaErrorNoDevice (100): no GPU is visible; look for one");
    CHECK(std::string(cuda_error("cudaFree", "cudaErrorUnknown", 999, "").what()) ==
          "weir: cudaFree failed with cudaErrorUnknown (999)");
}

TEST_CASE("error: usage_error says what it was given to say") {
    CHECK(std::string(usage_error("weir: do this").what()) == "weir: do this");
    CHECK(std::string(usage_error(std::string("weir: do that")).what()) == "weir: do that");
    CHECK_THROWS_AS(throw usage_error("x"), std::exception);
}

TEST_CASE("error: copies and moves of usage_error and cuda_error all tell the whole story") {
    usage_error first("weir: do this");
    usage_error const copy = first;
    usage_error const moved = std::move(first);
    CHECK(std::string(copy.what()) == "weir: do this");
    CHECK(moved.what() == copy.what()); // the characters are shared
    CHECK(first.what() == copy.what());
    first = usage_error("weir: do that");
    CHECK(std::string(first.what()) == "weir: do that");
    CHECK(std::string(copy.what()) == "weir: do this");

    cuda_error call("cudaMalloc", "cudaErrorNoDevice", 100, "");
    cuda_error const other = std::move(call);
    CHECK(call.what() == other.what());
    CHECK(std::string(call.what()) == "weir: cudaMalloc failed with cudaErrorNoDevice (100)");
    CHECK(other.code() == 100);
    call = cuda_error("cudaFree", "cudaErrorUnknown", 999, "");
    CHECK(call.code() == 999);
    CHECK(std::string(call.what()) == "weir: cudaFree failed with cudaErrorUnknown (999)");
}

TEST_CASE("error: an error for whose sentence the host has no memory is std::bad_alloc") {
    if (!support::host_memory_can_fail)
        return;
    weir::text const why = "the limit leaves no room";
    memory_report const state = report();
    auto const nothing = [] { return 0; };
    auto const unharmed = [&](int) {
        CHECK(why == "the limit leaves no room");
        CHECK(state.name == "frames");
    };
    CHECK(support::each_failure(nothing, [&](int) { out_of_memory(1, {state, why}); }, unharmed) > 0);
    CHECK(support::each_failure(nothing, [](int) { usage_error("weir: do this"); }, unharmed) > 0);
    CHECK(support::each_failure(nothing, [](int) { cuda_error("cudaFree", "cudaErrorUnknown", 999, ""); }, unharmed) > 0);
    out_of_memory const error(1, {state, why});
    support::allocations_left = 0;
    out_of_memory const copy = error; // a rethrow needs no memory
    support::allocations_left = -1;
    CHECK(copy.what() == error.what());
}

TEST_CASE("error: an empty report is of an unnamed pool that holds nothing") {
    memory_report const none;
    CHECK(none.name.empty());
    CHECK(none.in_use_bytes + none.reserved_bytes + none.live_blocks + none.chunks == 0);
    CHECK(none.limit_bytes == SIZE_MAX); // no limit
    CHECK(none.largest_free_bytes == SIZE_MAX); // not known
}
