// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cmath>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <doctest/doctest.h>
#include <limits>
#include <string>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <type_traits>
#include <utility>
#include <weir/converting/stored_vector.hpp>

using weir::stored_vector;
using device_pool = support::recording_pool<weir::memory_space::device>;
using halves = stored_vector<float, __half>;
using scaled = stored_vector<float, __nv_fp8_e4m3>;

static_assert(!std::is_copy_constructible_v<halves> && std::is_nothrow_move_constructible_v<halves>);
static_assert(std::is_same_v<decltype(std::declval<halves const&>().view()), weir::converting_view<float, __half const>>);

TEST_CASE("stored_vector: takes the bytes of its storage, and gives them back on its stream") {
    support::every_schedule([] {
        device_pool pool;
        support::scoped_stream const s;
        {
            halves xs(pool, s, 1000);
            CHECK(xs.size() == 1000);
            CHECK(xs.size_bytes() == 2000);
            CHECK(xs.view().end() - xs.view().begin() == 1000);
            xs.resize(1500);
            CHECK(xs.capacity() == 1500);
            xs.reserve(2000);
            CHECK(xs.size() == 1500);
            halves moved = std::move(xs);
            CHECK(xs.size() == 0);
            CHECK(moved.view().size() == 1500);
            CHECK(halves(pool, s).empty());
        }
        CHECK(pool.frees.size() == pool.allocations.size());
        CHECK_THROWS_AS(halves(pool, s, SIZE_MAX), weir::usage_error);
    });
}

TEST_CASE("stored_vector: elements are converted by its scale, and change with it") {
    support::every_schedule([] {
        device_pool pool;
        support::scoped_stream const s;
        scaled xs(pool, s, 3, 100.f);
        xs.zero_async();
        CHECK(xs.element_sync(2) == 0);
        xs.set_element_async(1, 44800.f);
        CHECK(xs.element_sync(1) == 44800);
        xs.set_element_async(1, 1e9f);
        CHECK(xs.element_sync(1) == 44800); // the largest
        scaled const kept = std::move(xs);
        CHECK(kept.scale() == 100);
        CHECK(kept.view().scale() == 100);
        CHECK(kept.view().begin().base() == kept.data());
        CHECK(kept.view().end() - kept.view().begin() == 3);
        scaled again(pool, s, 1);
        again.set_element_async(0, 2);
        again.set_scale(8);
        CHECK(again.element_sync(0) == 16);
    });
}

TEST_CASE("stored_vector: what cannot be is refused, and changes nothing") {
    support::every_schedule([] {
        device_pool pool;
        support::scoped_stream const s;
        for (float const scale : {0.f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { scaled(pool, s, 4, scale); }), "a scale is");
            scaled xs(pool, s, 1, 2);
            CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.set_scale(scale); }), "a scale is");
            CHECK(xs.scale() == 2);
        }
        halves xs(pool, s, 3);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.set_element_async(3, 1); }), "no element 3 in a vector of 3");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(xs.element_sync(7)); }), "no element 7");
    });
}
