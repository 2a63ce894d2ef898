// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <stable/scene.hpp>
#include <weir/container/buffer.hpp>
#include <weir/container/value.hpp>
#include <weir/recipes.hpp>

using namespace scene;

static_assert(!std::is_copy_constructible_v<stable_vector<int>> && !std::is_copy_assignable_v<stable_vector<int>>);
static_assert(std::is_nothrow_move_constructible_v<stable_vector<int>> && std::is_nothrow_move_assignable_v<stable_vector<int>>);

TEST_CASE("stable_vector: grows where it is, and keeps its elements") {
    support::every_schedule([] {
        scoped_stream const s;
        page_pool pool(small());
        stable_vector<int> xs(pool, s, 10 * ints);
        int const* const data = xs.data();
        CHECK(xs.empty());
        CHECK(xs.capacity() == 0);
        CHECK(xs.max_elements() == 10 * ints);
        CHECK(in_use(pool) == 0);
        xs.append(counting(1000));
        CHECK(xs.capacity() == ints);
        xs.append({7, 8, 9});
        xs.append(xs.data() + 1, 2); // a part of itself
        CHECK(xs.append(4 * ints) == data + 1005);
        xs.set_element_async(xs.size() - 1, 5);
        xs.resize(xs.size() + 1);
        xs.reserve(6 * ints);
        CHECK(xs.capacity() == 6 * ints);
        CHECK(xs.size() == 1006 + 4 * ints);
        CHECK(xs.data() == data);
        CHECK(xs.element_sync(999) == 999);
        CHECK(xs.element_sync(1004) == 2);
        CHECK(xs.element_sync(1004 + 4 * ints) == 5);
        xs.resize(1003);
        std::vector<int> read = xs.to_host_sync<std::vector>();
        CHECK(read.back() == 9);
        xs.zero_async();
        xs.copy_to_sync(read.data());
        CHECK(read.back() == 0);
        read[0] = 1;
        xs.copy_to_async(read.data());
        weir::synchronize(s);
        CHECK(read[0] == 0);
        xs.shrink_to_fit();
        CHECK(xs.capacity() == ints);
        xs.clear();
        CHECK(xs.capacity() == ints);
        xs.shrink_to_fit();
        CHECK(xs.capacity() == 0);
        CHECK(in_use(pool) == 0);
    });
}

TEST_CASE("stable_vector: is filled from rows and containers of other streams, in order with their work") {
    support::every_schedule([] {
        scoped_stream const s, other;
        weir::device_pool blocks;
        page_pool pool(small());
        weir::device_vector<int> source(blocks, other, counting(100, 50));
        stable_vector<int> xs(pool, s);
        xs.append(source);
        xs.append(source.data(), 0);
        source.zero_async();
        stable_vector<int> ys(pool, other, ints);
        ys.assign(xs);
        ys.append(xs);
        ys.assign(ys.data(), 150); // its own beginning
        xs.assign({1, 2, 3});
        CHECK(ys.size() == 150);
        CHECK(ys.element_sync(149) == 99);
        CHECK(xs.to_host_sync<std::vector>() == std::vector<int>{1, 2, 3});
        xs.assign(counting(5));
        CHECK(xs.element_sync(4) == 4);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { ys.assign(ys.data() + 1, 2); }), "a part of itself");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { ys.append(nullptr, 2); }), "a null address");
        weir::synchronize(other);
    });
}

TEST_CASE("stable_vector: is copied to containers of other streams, in order with its work") {
    support::every_schedule([] {
        scoped_stream const s, other;
        weir::device_pool blocks;
        page_pool pool(small());
        stable_vector<int> xs(pool, s, ints);
        xs.append(counting(4));
        weir::device_vector<int> as_vector(blocks, other, xs);
        weir::device_buffer as_bytes(blocks, other, xs);
        stable_buffer stays(pool, other, page);
        stays.append(xs);
        xs.zero_async(); // behind the copies
        as_vector.append(xs);
        as_bytes.append(xs);
        stays.append(as_vector);
        stays.append(weir::device_value<int>(blocks, other, 8));
        CHECK(as_vector.to_host_sync<std::vector>() == std::vector<int>{0, 1, 2, 3, 0, 0, 0, 0});
        std::vector<int> read(13);
        as_bytes.copy_to_sync(read.data());
        CHECK(read == std::vector<int>{0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0});
        stays.copy_to_sync(read.data());
        CHECK(read == std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0, 8});
        xs.set_element_async(1, 5); // in front of the copy
        as_vector.assign(xs);
        stays.assign(xs);
        xs.zero_async();
        as_bytes.assign(stays);
        CHECK(as_bytes.size() == 16);
        CHECK(as_vector.element_sync(1) == 5);
        write(s, xs.data(), 16); // which may not overtake the copy either
        as_vector.copy_to_sync(xs);
        CHECK(xs.element_sync(1) == 5);
        CHECK(xs.element_sync(2) == 0);
    });
}

TEST_CASE("stable_vector: a captured graph and its arguments stay valid while the vector grows, also in the capture") {
    support::every_schedule([] {
        scoped_stream const s;
        page_pool pool(small());
        stable_vector<int> xs(pool, s, 8 * ints);
        xs.append(counting(10));
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t launched = nullptr;
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        write(s, xs.data(), 5 * sizeof(int));
        write(s, xs.append(2 * ints), 2 * page); // memory that is mapped while the stream is captured
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.append({1}); }), "captured");
        check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&launched, graph, 0), "cudaGraphInstantiate");
        xs.append(4 * ints);
        for (int round = 0; round < 2; ++round) {
            check_cuda(cudaGraphLaunch(launched, s), "cudaGraphLaunch");
            CHECK(xs.element_sync(4) == 0x07070707);
            CHECK(xs.element_sync(5) == 5);
            CHECK(xs.element_sync(9 + 2 * ints) == 0x07070707);
            xs.append(ints / 2);
        }
        check_cuda(cudaGraphExecDestroy(launched), "cudaGraphExecDestroy");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    });
}

TEST_CASE("stable_vector: pages are there ahead of need, and then growing makes no driver call") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_log(), support::report_all);
#endif
    scoped_stream const s;
    page_pool pool(small().limit(8 * page));
    stable_vector<int> xs(pool, s, 6 * ints);
    xs.commit_ahead(3 * page);
    CHECK(xs.capacity() == 3 * ints);
#ifdef WEIR_SIMULATED_CUDA
    std::size_t const calls = calls_of("cu");
#endif
    for (int i = 0; i < 3; ++i)
        xs.append(ints);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(calls_of("cu") == calls);
#endif
    xs.commit_ahead(100 * page); // as much as there can be
    CHECK(xs.capacity() == 6 * ints);
    // By itself, where less than a mark is left; and what there is no room for is no error, and tried once.
    stable_vector<int> ys(pool, s, 6 * ints);
    ys.keep_ahead(page);
    ys.append(1);
    CHECK(ys.capacity() == 2 * ints);
    ys.append({2});
    ys.append(ints);
    CHECK(ys.capacity() == 2 * ints);
#ifdef WEIR_SIMULATED_CUDA
    std::size_t const tried = calls_of("cu");
    ys.append(1);
    CHECK(calls_of("cu") == tried);
#endif
    xs.shrink(3 * ints);
    ys.keep_ahead(page); // there is room now
    ys.append(1);
    CHECK(ys.capacity() == 3 * ints);
    ys.keep_ahead(0);
    ys.append(2 * ints - 10);
    CHECK(ys.capacity() == 3 * ints);
}

TEST_CASE("stable_vector: moves, and one that was moved from is empty and can be used again") {
    support::every_schedule([] {
        scoped_stream const s, other;
        page_pool pool(small());
        stable_vector<int> xs(pool, s, 4 * ints);
        xs.append(counting(10));
        int* const data = xs.data();
        stable_vector<int> ys(std::move(xs));
        CHECK(ys.data() == data);
        CHECK(xs.size() == 0);
        CHECK(xs.data() == nullptr);
        CHECK(xs.capacity() == 0);
        xs.shrink_to_fit();
        xs.append(counting(3));
        CHECK(xs.element_sync(2) == 2);
        stable_vector<int> zs(pool, other, ints);
        zs.append(1);
        zs.shrink(0);
        zs = std::move(ys);
        CHECK(zs.stream() == s);
        CHECK(zs.pool() == pool);
        CHECK(zs.element_sync(9) == 9);
        zs.set_stream(other);
        CHECK(zs.stream() == other);
        write(other, zs.data(), 4);
        CHECK(zs.element_sync(0) == 0x07070707);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { zs.set_stream(weir::on_host); }), "'on_host'");
        zs.used_on(weir::on_host);
        zs.last_used_on(weir::on_host);
    });
}

TEST_CASE("stable_vector: another stream's capture does not draw the vector's stream in") {
    support::every_schedule([] {
        scoped_stream const s, other;
        page_pool pool(small());
        stable_vector<int> xs(pool, s);
        xs.append(counting(10));
        {
            support::capture by(other);
            CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.last_used_on(other); }), "captured");
            CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.used_on(other); }), "captured");
            CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.set_stream(other); }), "captured");
            CHECK(xs.stream() == s);
            CHECK(by.unbroken());
        }
        CHECK(xs.element_sync(9) == 9);
    });
}

TEST_CASE("stable_vector: a vector outlives its pool's name, and the default streams are those of its device") {
    support::every_schedule([] {
        std::optional<stable_vector<int>> xs;
        {
            page_pool pool(small());
            xs.emplace(pool, cudaStreamLegacy);
            xs->append(counting(10));
        }
        xs->append(2 * ints);
        CHECK(xs->placed().device == 0);
        CHECK(xs->element_sync(9) == 9);
        xs->set_stream(cudaStreamPerThread);
        xs->shrink(2 * ints);
        CHECK(xs->pool().name() == "small");
    });
}

TEST_CASE("stable_vector: says what is wrong, and has not changed") {
    support::every_schedule([] {
        scoped_stream const s;
        page_pool pool(small().limit(3 * page));
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { stable_vector<int>(pool, weir::on_host); }), "'on_host' is none");
        stable_vector<int> xs(pool, s, 8 * ints);
        CHECK(stable_vector<int>(pool, s).max_elements() == 3 * ints); // the limit's
        xs.append(counting(10));
        auto const refusal = [&](std::size_t count) {
            return support::sentence_of<weir::out_of_memory>([&] { xs.append(count); });
        };
        CHECK_SAYS(refusal(3 * ints), "weir: out of memory: page_pool 'small' cannot hand out 6291456 bytes (6 MiB): the limit "
                                      "leaves no room for so many pages; raise it, or end other vectors");
        CHECK_SAYS(refusal(7 * ints), "the limit leaves no room");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.append(8 * ints); }),
                   "a stable container of at most 16777216 bytes (16 MiB) cannot hold 16777256 bytes (16 MiB); name more");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.append(SIZE_MAX); }), "do not fit the address space");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { stable_buffer(pool, s).append(xs.data(), SIZE_MAX); }), "cannot hold");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.shrink(11); }), "a stable vector of 10 elements cannot shrink by 11");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.element_sync(10); }), "there is no element 10");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.set_element_async(10, 1); }), "there is no element 10");
        CHECK(xs.size() == 10);
        CHECK(xs.capacity() == ints);
        CHECK(reserved(pool) == 1);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { stable_vector<int>(pool, s, SIZE_MAX / 8); }), "no addresses left");
        std::size_t const live = pool.state().live_blocks;
        stable_vector<int> const moved(std::move(xs));
        CHECK_SAYS(refusal(3 * ints), "the limit leaves no room");
        CHECK(xs.data() == nullptr);
        CHECK(pool.state().live_blocks == live);
        page_pool none(small().limit(1));
        stable_vector<int> ys(none, s);
        CHECK(ys.max_elements() == ints);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { ys.append(1); }), "the limit leaves no room");
        stable_vector<int> zs(page_pool(small().limit(0)), s);
        CHECK(zs.max_elements() == ints);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("stable_vector: where the device has no room, nothing is taken, and what others give back is waited for") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_memory(4 * page), support::report_all);
    scoped_stream const s;
    page_pool pool(small());
    CHECK(stable_vector<int>(pool, s).max_elements() == 4 * ints); // the device's
    stable_vector<int> xs(pool, s, 8 * ints);
    xs.append(ints);
    auto const refusal = [&](std::size_t count) {
        return support::sentence_of<weir::out_of_memory>([&] { xs.append(count); });
    };
    CHECK_SAYS(refusal(4 * ints), "the device has no room for so many pages");
    CHECK(reserved(pool) == 1);
    std::optional<stable_vector<int>> ys(std::in_place, pool, s, 3 * ints);
    write(s, ys->append(3 * ints), 3 * page);
    CHECK_SAYS(refusal(1), "the device has no room for so many pages");
    ys.reset();
    xs.append(3 * ints);
    CHECK(reserved(pool) == 4);
    simulated_cuda::fail_call("cudaMemGetInfo", 1, cudaErrorUnknown);
    CHECK(stable_vector<int>(pool, s).max_bytes() == 64 * weir::GiB); // CUDA does not say what the device has
}

namespace {

// A vector with elements and pages given back, beside free pages of another one; so growing takes some of each kind.
struct grown {
    page_pool pool{small().limit(6 * page)};
    scoped_stream stream;
    stable_vector<int> xs{pool, stream, 8 * ints};

    grown() {
        xs.append(counting(10));
        xs.append(2 * ints);
        write(stream, xs.data() + ints, 2 * page);
        xs.shrink(2 * ints);
        stable_vector<int> gone(pool, stream, ints);
        write(stream, gone.append(1), 4);
    }
    grown(grown const&) = delete;

    // Everything is as it was before, works, and comes back.
    void check_unchanged(char const* what, bool may_hold = false, bool may_lose = false) {
        CAPTURE(std::string(what));
        CHECK(xs.size() == 10);
        CHECK(xs.capacity() == ints);
        CHECK(in_use(pool) == 1);
        CHECK((reserved(pool) <= 4 || may_hold)); // what it made for the growth went back
        check_usable(may_lose);
    }
    void check_usable(bool may_lose = false) {
        std::size_t const lost = pool.state().lost_bytes / page;
        CHECK((lost == 0 || may_lose));
        xs.resize(10);
        CHECK(xs.element_sync(9) == 9);
        xs.append((5 - lost) * ints);
        CHECK((reserved(pool) == 6 || may_lose)); // it may have its own lost page again
        write(stream, xs.data() + 10, (5 - lost) * page);
        CHECK(xs.element_sync(9) == 9);
    }
};

} // namespace

TEST_CASE("stable_vector: every call may fail, and a member that throws leaves vector and pages as they were") {
    std::uint64_t runs = 0;
    auto const prepare = [] {
        static_cast<void>(cudaGetLastError());
        return std::make_unique<grown>();
    };
    auto const sweep = [&](char const* what, auto attempt, bool may_hold = false) {
        runs += support::fault_sweep(
            [&] { return prepare(); },
            [&](grown& x) {
                try {
                    attempt(x);
                } catch (weir::out_of_memory const& error) { // where CUDA refuses the move of a page and there is no other
                    CHECK_SAYS(error.reason(), "CUDA refuses");
                }
            },
            [&](grown& x, support::struck const& fault) {
                bool const may_lose = fault.hit_twice("cudaStreamIsCapturing"); // whether a graph uses what was given back
                if (fault.threw)
                    x.check_unchanged(what, may_hold || fault.hit("cuMemUnmap"), may_lose && may_hold);
                else
                    x.check_usable(may_lose);
            },
            support::faults::pairs_too);
    };
    sweep("append", [](grown& x) { x.xs.append(4 * ints); });
    sweep("append all", [](grown& x) { x.xs.append(5 * ints); });
    sweep("append a copy", [](grown& x) { x.xs.append(x.xs.data(), 10); });
    sweep("assign", [](grown& x) { x.xs.assign(counting(ints + 1)); }, true); // pages that the copy might use stay a while
    sweep("trim", [](grown& x) { x.pool.trim(); });
    sweep("settle", [](grown& x) { x.pool.settle(); });
    sweep("begin and end", [](grown& x) { stable_vector<int>(x.pool, x.stream, ints).append(1); });
    CHECK(runs > 100);
}

TEST_CASE("stable_vector: what is kept ahead fails no growth that has succeeded, whatever fails") {
    auto const runs = support::fault_sweep(
        [] {
            auto x = std::make_unique<grown>();
            x->xs.keep_ahead(3 * page);
            return x;
        },
        [](grown& x) { x.xs.append(5); },
        [](grown& x, support::struck const& fault) {
            CHECK_FALSE(fault.threw);
            CHECK(x.xs.size() == 15);
            x.check_usable(fault.hit_twice("cudaStreamIsCapturing"));
        });
    CHECK(runs > 5);
}

TEST_CASE("stable_vector: the end survives the failure of every call") {
    auto const runs = support::fault_sweep([] { return std::make_unique<grown>(); },
                                           [](grown& x) {
                                               stable_vector<int> const ended(std::move(x.xs));
                                               x.xs = stable_vector<int>(x.pool, x.stream, 8 * ints);
                                               x.xs.append(counting(10));
                                           },
                                           [](grown& x, support::struck const& fault) {
                                               if (!fault.threw)
                                                   x.check_usable(fault.hit_twice("cudaStreamIsCapturing"));
                                           },
                                           support::faults::pairs_too);
    CHECK(runs > 10);
}

TEST_CASE("stable_vector: where the host has no memory, a member throws and nothing has changed") {
    if (!support::host_memory_can_fail)
        return;
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    auto const each = [](auto action) {
        return support::each_failure([] { return std::make_unique<grown>(); }, [&](auto& x) { action(*x); },
                                     [](auto& x) { x->check_unchanged("no host memory"); });
    };
    each([](grown& x) { x.xs.append(5 * ints); });
    each([](grown& x) { x.xs.append(x.xs.data(), 10); });
    each([](grown& x) {
        static std::vector<int> const row = counting(ints + 1);
        x.xs.assign(row);
    });
    CHECK(each([](grown& x) { x.xs.shrink(10); }) > 0);
    CHECK(each([](grown& x) { stable_vector<int>(x.pool, x.stream, ints).append(1); }) > 0);
}
#endif
