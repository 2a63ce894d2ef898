// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// The host has no memory for the bookkeeping: from the k-th allocation of an operation on, every one fails. Nothing is
// handed out twice or too early, a failed call changes nothing, and a free, which may not fail, loses at worst the
// block's bytes until the pool ends.

#include "scene.hpp"

#include <new>
#include <support/growth_numbers.hpp>
#include <vector>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>

using namespace faults;

namespace {

template <class Pool>
void starve_pool() {
    CHECK(starve_everywhere(every_act<Pool>()) > 5);
}

struct few : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 4;
    static constexpr unsigned young_frees = 0;
};

} // namespace

TEST_CASE_TEMPLATE("memory: stream_ordered", Pool, pool<stream_ordered<checked, grow_first>, sized>,
                   pool<stream_ordered<checked, grow_first, closing>, fitted>,
                   pool<stream_ordered<checked, wait_first, closing>, sized>,
                   pool<stream_ordered<promised, grow_first>, sized>,
                   pool<stream_ordered<promised, wait_first, closing>, fitted>,
                   pool<stream_ordered<checked>, sized, weir::upstream::managed>) {
    starve_pool<Pool>();
}

TEST_CASE_TEMPLATE("memory: after_event", Pool, pool<after_event, sized>,
                   pool<after_event, fitted, weir::upstream::pinned<>>) {
    starve_pool<Pool>();
}

TEST_CASE_TEMPLATE("memory: immediate", Pool, pool<weir::reuse::immediate, sized>,
                   pool<weir::reuse::immediate, fitted, weir::upstream::pinned<>>) {
    starve_pool<Pool>();
}

TEST_CASE_TEMPLATE("memory: recipes", Pool, weir::device_pool, weir::promised_device_pool,
                   weir::compact_device_pool, weir::pinned_pool, weir::managed_pool, weir::host_pool,
                   weir::frame_pool, weir::node_pool, weir::driver_pool, weir::pinned_driver_pool) {
    starve_pool<Pool>();
}

TEST_CASE_TEMPLATE(
    "memory: layers", Pool,
    layer::statistics<layer::limit<layer::guard<layer::fallback<
        pool<stream_ordered<checked>, sized>, pool<after_event, sized, weir::upstream::pinned<>>>>>>,
    layer::synchronized<weir::node_pool>,
    layer::statistics<layer::failure_handler<layer::limit<weir::compact_device_pool>, persistent>>) {
    starve_pool<Pool>();
}

TEST_CASE("memory: where the store of recent blocks is full too, a block is lost and counted") {
    if (!support::host_memory_can_fail)
        return;
    stage::world const here;
    stage::stream const s;
    weir::reuse::detail::stream_set<fitted, checked, few> own{fitted()};
    own.name(weir::reuse::detail::caller<checked>(s), 0);
    CHECK(own.close(s)); // the event is made
    for (std::size_t i = 0; i < few::recent_blocks; ++i)
        CHECK(own.put_recent(weir::base::range{i * 4096 + 4096, 512}));
    {
        support::failing_new const fails(0);
        CHECK(own.put(weir::base::range{1 << 20, 512}, s));
    }
    CHECK(own.used().lost_bytes == 512);
    CHECK(own.open_bytes() == few::recent_blocks * 512); // they stay open
    CHECK(own.close(s));
    CHECK(own.open_bytes() == 0);
    CHECK(own.covered().free_bytes() == few::recent_blocks * 512);
    CHECK(cudaStreamSynchronize(s) == cudaSuccess);
}

TEST_CASE("memory: after_event keeps what was stranded, or counts it as lost") {
    if (!support::host_memory_can_fail)
        return;
    long thrown = 0;
    for (long k = 0;; ++k) {
        stage::world const here;
        after_event::over<fitted> rule(0);
        rule.add(weir::base::range{1 << 20, 1 << 20}, weir::on_host);
        std::vector<weir::base::range> blocks;
        for (int i = 0; i < 200; ++i)
            blocks.push_back(rule.take(512, 512, weir::on_host));
        for (std::size_t i = 0; i < blocks.size(); i += 2)
            rule.strand(blocks[i]);
        bool threw = false;
        try {
            support::failing_new const fails(k);
            rule.settle();
        } catch (std::bad_alloc const&) {
            threw = true;
            ++thrown;
        }
        rule.settle();
        CHECK(rule.used().lost_bytes == 0);
        CHECK(rule.used().blocks == 100);
        for (std::size_t i = 1; i < blocks.size(); i += 2)
            rule.give(blocks[i], weir::on_host);
        CHECK(rule.take(1 << 20, 512, weir::on_host).bytes == 1 << 20); // all of it is there
        if (!threw)
            break;
    }
    CHECK(thrown > 0);
    stage::world const here;
    after_event::over<fitted> rule(0);
    rule.add(weir::base::range{1 << 20, 1 << 20}, weir::on_host);
    weir::base::range const block = rule.take(512, 512, weir::on_host);
    {
        support::failing_new const fails(0);
        rule.strand(block);
    }
    CHECK(rule.used().lost_bytes == 512);
    CHECK(rule.used().blocks == 0);
}

TEST_CASE("memory: second uses that cannot be put back are waited for, also on a device that is lost") {
    if (!support::host_memory_can_fail)
        return;
    for (bool const lost : {false, true}) {
        simulated_cuda::world const world(simulated_cuda::config{}.late());
        support::scoped_stream const s;
        weir::order::second_uses uses;
        weir::runtime::event before(weir::any_device);
        before.record(s);
        uses.add(64, s);
        auto taken = uses.take(64, weir::on_host);
        uses.add(128, s);
        CHECK_FALSE(before.reached());
        if (lost)
            simulated_cuda::fail_call("cudaEventSynchronize", 1, cudaErrorIllegalAddress);
        {
            support::failing_new const fails(0);
            uses.put_back(64, std::move(taken));
        }
        CHECK(uses.take(64, weir::on_host).empty());
        CHECK(uses.take(128, weir::on_host).events.size() == 1);
        CHECK(before.reached() != lost);
    }
}

TEST_CASE("memory: a slab that was lent comes back as one, whenever the host runs out of memory") {
    if (!support::host_memory_can_fail)
        return;
    using low = weir::placement::by_size<64 * weir::KiB, weir::placement::bins<>, weir::placement::best_fit<>>;
    using mapped_pool = weir::pool<weir::upstream::virtual_memory<>, low, stream_ordered<>,
                                   support::paged_of<512, 2 * weir::MiB, 64 * weir::MiB>>;
    constexpr std::size_t large = 80 * weir::KiB;
    for (std::size_t const holes : {std::size_t{7}, std::size_t{15}, std::size_t{23}})
        for (long k = 0, thrown = 1; thrown != 0; ++k) {
            simulated_cuda::world const world;
            support::scoped_stream const a, b;
            mapped_pool pool;
            std::vector<char*> blocks;
            while (blocks.size() < 2 * holes + 1 || pool.state().largest_free_bytes >= large)
                blocks.push_back(static_cast<char*>(pool.allocate(a, large)));
            for (std::size_t i = 1; i < 2 * holes + 1; i += 2)
                pool.deallocate(a, std::exchange(blocks[i], nullptr), large);
            pool.settle();
            auto const before = pool.state();
            thrown = 0;
            void* small = nullptr;
            try {
                support::failing_new const fails(k);
                small = pool.try_allocate(b, 256);
            } catch (std::bad_alloc const&) {
                thrown = 1;
            }
            pool.settle();
            if (thrown != 0) {
                CHECK(pool.state().in_use_bytes == before.in_use_bytes);
                CHECK(pool.state().lost_bytes == 0);
            }
            std::vector<char*> more;
            for (std::size_t i = 0; i < 4 * holes; ++i)
                more.push_back(static_cast<char*>(pool.allocate(a, 64 * weir::KiB)));
            for (char* p : more)
                for (char* q : blocks)
                    CHECK((!q || p + 64 * weir::KiB <= q || q + large <= p));
            for (char* p : more)
                pool.deallocate(a, p, 64 * weir::KiB);
            for (char* q : blocks)
                pool.deallocate(a, q, large);
            pool.deallocate(b, small, 256);
            pool.settle();
            pool.trim();
            CHECK(pool.reserved_bytes() == 0);
        }
}

TEST_CASE("memory: a pool with holes grows in place or throws, whatever host memory is left") {
    using pages = support::paged_of<512, 2 * weir::MiB, 64 * weir::MiB>;
    using mapped_pool = weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>,
                                   stream_ordered<checked, grow_first>, pages>;
    if (!support::host_memory_can_fail)
        return;
    long failures = 0;
    for (bool grown = false; !grown; ++failures) {
        simulated_cuda::world const world;
        support::scoped_stream const s;
        mapped_pool pool;
        std::vector<void*> blocks(24);
        for (void*& each : blocks)
            each = pool.try_allocate(s, 2 * weir::MiB);
        for (std::size_t i = 0; i < blocks.size(); i += 2)
            pool.deallocate(s, blocks[i], 2 * weir::MiB);
        pool.settle();
        pool.trim();
        std::size_t const held = pool.reserved_bytes();
        void* wide = nullptr;
        try {
            support::failing_new const fails(failures);
            wide = pool.try_allocate(s, 9 * weir::MiB);
            grown = true;
        } catch (std::bad_alloc const&) {
            CHECK(pool.reserved_bytes() <= held);
            wide = pool.try_allocate(s, 9 * weir::MiB);
        }
        CHECK(wide != nullptr);
        pool.deallocate(s, wide, 9 * weir::MiB);
        for (std::size_t i = 1; i < blocks.size(); i += 2)
            pool.deallocate(s, blocks[i], 2 * weir::MiB);
    }
    CHECK(failures > 4);
}

#endif
