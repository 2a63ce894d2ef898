// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <array>
#include <cstddef>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/container/owned/owner.hpp>
#include <weir/container/value.hpp>
#include <weir/container/vector.hpp>

using weir::device_vector;
using weir::container::detail::is_owner;
using weir::container::detail::orders_its_work;

namespace {

// A user's class around a container: it says whose work its elements are.
struct table {
    device_vector<int> rows;
    int const* data() const { return rows.data(); }
    int* data() { return rows.data(); }
    std::size_t size() const { return rows.size(); }
    weir::order::placed_stream const& placed() const { return rows.placed(); }
};

// Another library's container: it has a stream, and its size is in bytes.
struct foreign {
    device_vector<int> rows;
    weir::stream_ref on = rows.stream();
    void const* data() const { return rows.data(); }
    std::size_t size() const { return rows.size_bytes(); }
    weir::stream_ref stream() const { return on; }
};
// The same with elements.
struct foreign_row : foreign {
    int* data() { return rows.data(); }
    int const* data() const { return rows.data(); }
    std::size_t size() const { return rows.size(); }
};

struct derived : device_vector<int> {
    using device_vector<int>::device_vector;
};

} // namespace

static_assert(is_owner<device_vector<int>> && is_owner<weir::pinned_buffer> && is_owner<weir::device_value<int>>);
static_assert(is_owner<table> && is_owner<derived> && is_owner<foreign> && is_owner<foreign_row>);
static_assert(!is_owner<std::vector<int>> && !is_owner<int[3]> && !is_owner<std::array<int, 3>>);
static_assert(orders_its_work<table>() && orders_its_work<device_vector<int>>());
static_assert(!orders_its_work<weir::pinned_vector<int>>() && !orders_its_work<std::vector<int>>());

TEST_CASE_TEMPLATE("owner: what has a stream of its own is copied in order with that stream's work, whatever its type", Owner,
                   device_vector<int>, table, foreign_row, derived) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        std::vector<int> const numbers{1, 2, 3, 4};
        Owner source{[&] {
            if constexpr (std::is_same_v<Owner, foreign_row>)
                return Owner{{device_vector<int>(pool, a, numbers)}};
            else if constexpr (std::is_same_v<Owner, table>)
                return Owner{device_vector<int>(pool, a, numbers)};
            else
                return Owner(pool, a, numbers);
        }()};
        device_vector<int> xs(pool, b, source);
        weir::device_buffer bytes(pool, b, source);
        weir::check_cuda(cudaMemsetAsync(source.data(), 0, 16, a), "cudaMemsetAsync"); // behind the copies
        xs.append(source);
        bytes.append(source);
        bytes.assign(source);
        CHECK(xs.to_host_sync<std::vector>() == std::vector<int>{1, 2, 3, 4, 0, 0, 0, 0});
        std::array<int, 4> read{5, 5, 5, 5};
        bytes.copy_to_sync(read.data());
        CHECK(read == std::array<int, 4>{});
        weir::check_cuda(cudaMemsetAsync(source.data(), 1, 16, a), "cudaMemsetAsync"); // in front of the copy
        xs.resize(4);
        xs.copy_to_sync(source);
        xs.zero_async();
        xs.assign(source);
        CHECK(xs.to_host_sync<std::vector>() == numbers);
    });
}

TEST_CASE("owner: one without a type, and one whose work is the host's") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        foreign source{device_vector<int>(pool, a, std::vector<int>{1, 2, 3})};
        weir::device_buffer bytes(pool, b, source);
        source.rows.zero_async();
        std::array<int, 3> read{};
        bytes.copy_to_sync(read.data());
        CHECK(read == std::array<int, 3>{1, 2, 3});
        foreign_row at_rest{{device_vector<int>(pool, a, std::vector<int>{4, 5, 6}), weir::on_host}};
        weir::synchronize(a);
        device_vector<int> xs(pool, b, at_rest);
        CHECK(xs.element_sync(2) == 6);
        xs.zero_async();
        xs.copy_to_sync(at_rest);
        CHECK(at_rest.rows.element_sync(2) == 0);
    });
}
