// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The pool's side: where pages are, who gets them, and what they cost. What a vector is to its user is in stable_vector.cpp.

#include <stable/scene.hpp>
#include <weir/recipes/host_pool.hpp>

using namespace scene;

TEST_CASE("page_pool: pages that were given back are mapped elsewhere and not made anew") {
    support::every_schedule([] {
        scoped_stream const s;
        page_pool pool(small().limit(4 * page));
        stable_vector<int> first(pool, s);
        stable_vector<int> second(pool, s);
        write(s, first.append(3 * ints), 3 * page);
        first.shrink(2 * ints);
        CHECK(in_use(pool) == 1);
        CHECK(reserved(pool) == 3);
        // The work on the stream is still to come under some schedules: then the host waits for it.
        write(s, second.append(3 * ints), 3 * page);
        CHECK(in_use(pool) == 4);
        CHECK(reserved(pool) == 4);
        CHECK(first.element_sync(ints - 1) == 0x07070707);
        CHECK(second.element_sync(3 * ints - 1) == 0x07070707);
    });
}

TEST_CASE("page_pool: a page leaves its addresses only when the work of every stream that used it is over") {
    support::every_schedule([] {
        scoped_stream const s, marked, last;
        page_pool pool(small().limit(2 * page));
        {
            stable_vector<int> first(pool, s);
            int* const data = first.append(2 * ints);
            weir::order_after(weir::stream_ref(marked), weir::stream_ref(s));
            write(s, data, page);
            first.used_on(marked);
            write(marked, data + ints, page / 2);
            write(last, data + ints + ints / 2, page / 2);
            first.last_used_on(last);
        }
        stable_vector<int> second(pool, s);
        write(marked, second.append(2 * ints), 2 * page);
        second.last_used_on(marked);
    });
}

TEST_CASE("page_pool: a growth that fails leaves a page that it took back as it was: work may use it") {
    support::every_schedule([] {
        scoped_stream const s;
        page_pool pool(small().limit(3 * page));
        stable_vector<int> xs(pool, s, 8 * ints), ys(pool, s, ints), zs(pool, s, ints);
        ys.append(1);
        write(s, xs.append(2 * ints), 2 * page);
        xs.shrink(ints);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { xs.append(2 * ints); }), "the limit leaves no room");
        CHECK(in_use(pool) == 2);
        write(s, zs.append(1), 4);
        CHECK(reserved(pool) == 3);
    });
}

TEST_CASE("page_pool: growing again, and beginning where another ended, makes no driver call") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_log(), support::report_all);
#endif
    scoped_stream const s;
    page_pool pool(small());
    std::optional<stable_vector<int>> xs(std::in_place, pool, s, 8 * ints);
    int* const data = xs->append(4 * ints);
    write(s, data, 4 * page);
#ifdef WEIR_SIMULATED_CUDA
    std::size_t const calls = calls_of("cuMem");
#endif
    xs->shrink(3 * ints); // which waits for nothing, nor does the growth, though the work has not run
    write(s, xs->append(3 * ints), 3 * page, 8);
    CHECK(xs->element_sync(ints - 1) == 0x07070707);
    CHECK(xs->element_sync(ints) == 0x08080808);
    xs.reset();
    weir::synchronize(s);
    xs.emplace(pool, s, 8 * ints);
    CHECK(xs->data() == data);
    xs->append(4 * ints);
    CHECK(xs->capacity() == 4 * ints);
    CHECK(reserved(pool) == 4);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(calls_of("cuMem") == calls);
#endif
}

TEST_CASE("page_pool: a vector that begins does so where another ended only when the work is over that used it there") {
    support::every_schedule([] {
        scoped_stream const s, other;
        page_pool pool(small());
        for (int round = 0; round < 4; ++round) {
            cudaStream_t const own = round % 2 == 0 ? s : other; // in no order with each other
            stable_vector<int> xs(pool, own, ints);
            write(own, xs.append(ints), page);
        }
    });
}

TEST_CASE("page_pool: 64 vectors end, and trim leaves nothing held" * doctest::test_suite("fills the card")) {
    support::every_schedule([] {
        scoped_stream const s;
        std::size_t before = 0, after = 0, all = 0;
        check_cuda(cudaMemGetInfo(&before, &all), "cudaMemGetInfo");
        page_pool pool(small());
        for (int round = 0; round < 3; ++round) {
            {
                std::vector<stable_vector<int>> many;
                for (std::size_t i = 0; i < 64; ++i) {
                    many.emplace_back(pool, s, 4 * ints);
                    write(s, many.back().append(1 + i % 2 * ints), 4);
                }
                CHECK(in_use(pool) == 96);
            }
            CHECK(in_use(pool) == 0);
        }
        pool.settle();
        CHECK(pool.state().unsettled_bytes == 0);
        std::size_t const held = pool.reserved_bytes();
        CHECK(pool.trim(5 * page) == held - 5 * page);
        CHECK(pool.trim() == 5 * page);
        CHECK(pool.reserved_bytes() == 0);
        check_cuda(cudaMemGetInfo(&after, &all), "cudaMemGetInfo");
        CHECK(after == before);
    });
}

TEST_CASE("page_pool: no mapping changes while a graph runs that uses it, whoever needs the page") {
    support::every_schedule([] {
        scoped_stream const s, other;
        page_pool pool(small().limit(3 * page));
        stable_vector<int> first(pool, s, 3 * ints), second(pool, other, 3 * ints);
        int* const data = first.append(3 * ints);
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t launched = nullptr;
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        write(s, data, 3 * page);
        check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&launched, graph, 0), "cudaGraphInstantiate");
        check_cuda(cudaGraphLaunch(launched, s), "cudaGraphLaunch");
        first.shrink(2 * ints); // while the launch is under way, on the vector's own stream
        write(other, second.append(ints), page, 8);
        check_cuda(cudaGraphExecDestroy(launched), "cudaGraphExecDestroy"); // also of what still runs
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        write(other, second.append(ints), page, 8);
        CHECK(first.element_sync(ints - 1) == 0x07070707);
        CHECK(second.element_sync(2 * ints - 1) == 0x08080808);
        CHECK(reserved(pool) == 3);
    });
}

TEST_CASE("page_pool: pages that several graphs may use go nowhere") {
    support::every_schedule([] {
        scoped_stream const s, streams[2];
        page_pool pool(small().limit(page));
        std::optional<stable_vector<int>> first(std::in_place, pool, s, ints);
        int* const data = first->append(ints);
        cudaGraph_t graphs[2] = {};
        cudaGraphExec_t launched[2] = {};
        for (scoped_stream const& each : streams) {
            first->used_on(each);
            check_cuda(cudaStreamBeginCapture(each, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
            write(each, data, page);
        }
        first.reset();
        for (int i = 0; i < 2; ++i)
            check_cuda(cudaStreamEndCapture(streams[i], &graphs[i]), "cudaStreamEndCapture");
        for (int i = 0; i < 2; ++i)
            check_cuda(cudaGraphInstantiate(&launched[i], graphs[i], 0), "cudaGraphInstantiate");
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        stable_vector<int> second(pool, s, 2 * ints);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { second.append(1); }), "graphs may still use pages");
        CHECK(pool.state().lost_bytes == page);
        for (int i = 0; i < 2; ++i) {
            check_cuda(cudaGraphLaunch(launched[i], streams[i]), "cudaGraphLaunch");
            check_cuda(cudaStreamSynchronize(streams[i]), "cudaStreamSynchronize");
            check_cuda(cudaGraphExecDestroy(launched[i]), "cudaGraphExecDestroy");
            check_cuda(cudaGraphDestroy(graphs[i]), "cudaGraphDestroy");
        }
    });
}

TEST_CASE("page_pool: what is given back in a capture is free once nothing is left of the graph") {
    support::every_schedule([] {
        scoped_stream const s, other;
        page_pool pool(small().limit(2 * page));
        std::optional<stable_vector<int>> first(std::in_place, pool, s, 2 * ints);
        first->reserve(2 * ints);
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        write(s, first->append(2 * ints), 2 * page);
        first->shrink(ints);
        write(s, first->append(ints), page); // its own again, in the graph
        first.reset();
        check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
        CHECK(pool.state().lost_bytes == 2 * page);
        stable_vector<int> second(pool, other, 2 * ints);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { second.append(1); }), "graphs may still use pages");
        CHECK(second.size() == 0);
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        for (int turns = 0; turns < 1'000'000 && pool.state().lost_bytes != 0; ++turns) // CUDA may tell a little later
            static_cast<void>(cudaStreamQuery(s));
        write(other, second.append(2 * ints), 2 * page);
        CHECK(in_use(pool) == 2);
    });
}

TEST_CASE("page_pool: a page that was given back in a capture and taken back stays until the graphs are gone, however it is given") {
    enum class how { on_the_stream, in_another_capture, without_host_memory, after_a_sleep };
    for (how const given : {how::on_the_stream, how::in_another_capture, how::without_host_memory, how::after_a_sleep}) {
        CAPTURE(static_cast<int>(given));
        if (given == how::without_host_memory && !support::host_memory_can_fail)
            continue;
        support::every_schedule([&] {
            scoped_stream const s, other;
            page_pool pool(small().limit(2 * page));
            stable_vector<int> first(pool, s, 2 * ints);
            first.append(2 * ints);
            auto const captured = [&] {
                cudaGraph_t graph = nullptr;
                check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
                write(s, first.data() + ints, page);
                first.shrink(ints);
                check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
                return graph;
            };
            cudaGraph_t const graph = captured();
            write(s, first.append(ints), page); // its own again
            cudaGraph_t second_graph = nullptr;
            if (given == how::on_the_stream) {
                first.shrink(ints);
            } else if (given == how::in_another_capture) {
                second_graph = captured();
            } else if (given == how::after_a_sleep) {
                weir::host_pool keep;
                weir::stable::sleep_group sleepers(keep);
                sleepers.join("first", first);
                sleepers.suspend("first");
                CHECK(in_use(pool) == 0);
                CHECK(pool.trim() == page);
                CHECK(pool.state().lost_bytes == page); // for the graph
                sleepers.resume("first");
                CHECK(first.element_sync(2 * ints - 1) == 0x07070707);
                first.shrink(ints);
            } else {
                support::failing_new const none(1); // for what 'shrink' cannot do without
                first.shrink(ints);
            }
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            CHECK(pool.state().lost_bytes == page);
            stable_vector<int> second(pool, other, ints);
            CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { second.append(1); }), "graphs may still use pages");
            if (second_graph)
                check_cuda(cudaGraphDestroy(second_graph), "cudaGraphDestroy");
            CHECK(pool.state().lost_bytes == page);
            check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
            if (given == how::without_host_memory) { // nobody knows any more which graph it was
                CHECK(pool.state().lost_bytes == page);
                return;
            }
            for (int turns = 0; turns < 1'000'000 && pool.state().lost_bytes != 0; ++turns) // CUDA may tell a little later
                static_cast<void>(cudaStreamQuery(s));
            write(other, second.append(ints), page);
        });
    }
}

TEST_CASE("page_pool: of what a vector gives back together, a graph keeps the pages that it got, and not the others") {
    support::every_schedule([] {
        scoped_stream const s, other;
        page_pool pool(small().limit(4 * page));
        stable_vector<int> first(pool, s, 4 * ints);
        first.append(4 * ints);
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        first.shrink(2 * ints);
        check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
        write(s, first.append(2 * ints) - 2 * ints, 4 * page);
        first.shrink(4 * ints);
        CHECK(pool.state().lost_bytes == 2 * page);
        stable_vector<int> second(pool, other, 2 * ints);
        write(other, second.append(2 * ints), 2 * page);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    });
}

TEST_CASE("page_pool: peers reach what is there and what comes later, also after a page has moved") {
    support::two_devices const two;
    if (!two)
        return;
    scoped_stream const s;
    page_pool pool(small().limit(3 * page));
    std::optional<stable_vector<int>> first(std::in_place, pool, s);
    first->append(ints);
    pool.enable_access_from(1);
    support::fill_from(1, first->data(), page);
    first->append(ints);
    support::fill_from(1, first->data(), 2 * page);
    first.reset();
    stable_vector<int> second(pool, s, 4 * ints);
    second.append(3 * ints);
    support::fill_from(1, second.data(), 3 * page);
    CHECK(second.element_sync(0) == 0x02020202);
}

TEST_CASE("page_pool: threads that share a pool get pages of their own") {
    support::every_schedule([] {
        page_pool pool(small().limit(8 * page));
        std::vector<std::thread> threads;
        for (int who = 0; who < 4; ++who)
            threads.emplace_back([&pool, who] {
                scoped_stream const s;
                for (int round = 0; round < 20; ++round) {
                    stable_vector<int> xs(pool, s, 2 * ints);
                    int const value = 1 + who + 4 * round;
                    write(s, xs.append(ints + 1), page + 4, value);
                    xs.shrink(1);
                    CHECK(xs.element_sync(ints - 1) == value * 0x01010101);
                }
            });
        for (std::thread& each : threads)
            each.join();
        CHECK(in_use(pool) == 0);
        CHECK(reserved(pool) <= 8);
    });
}

TEST_CASE("page_pool: says what is wrong") {
    for (std::size_t bytes : {std::size_t{0}, page / 2, 3 * MiB, 128 * MiB})
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { page_pool(small().page_bytes(bytes)); }),
                   "a page has a power of two of bytes, from 2 to 64 MiB");
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { page_pool(small().device(1000)); }), "there is no device 1000");
    page_pool const pool(small().limit(3 * page));
    CHECK(pool.page_bytes() == page);
    CHECK(pool.limit_bytes() == 3 * page);
    CHECK(pool.name() == "small");
    CHECK(page_pool(page_pool_options{}).page_bytes() == 16 * MiB);
    CHECK(pool == page_pool(pool));
    CHECK(pool != page_pool(small()));
    CHECK_SAYS(pool.report(), "pool 'small' (device): 0 B in use in 0 blocks, 0 B reserved in 0 chunks, limit 6 MiB");
#ifdef WEIR_SIMULATED_CUDA
    {
        simulated_cuda::world const world(simulated_cuda::config{}.without_virtual_memory(), support::report_all);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([] { static_cast<void>(page_pool(small())); }),
                   "device 0 cannot map memory, so no vector can grow in place there; use a device_vector of a device_pool");
    }
    for (char const* const call : {"cuMemAddressReserve", "cuMemCreate"}) { // some devices say so only now
        simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
        scoped_stream const s;
        page_pool late(small());
        simulated_cuda::fail_call(call, 1, cudaErrorNotSupported, simulated_cuda::lasting::for_ever);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { stable_vector<int>(late, s).append(1); }), "cannot map memory");
        simulated_cuda::clear_faults();
    }
#endif
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("page_pool: a growth that fails takes no device's access to the pages that are there, nor to those that come later") {
    for (char const* const call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemRetainAllocationHandle"})
        for (std::uint64_t k = 1; k <= 3; ++k) {
            CAPTURE(std::string(call));
            CAPTURE(k);
            simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
            scoped_stream const s;
            page_pool pool(small());
            pool.enable_access_from(1);
            stable_vector<int> xs(pool, s, 8 * ints);
            xs.append(2 * ints);
            stable_vector<int>(pool, s, ints).append(1);
            simulated_cuda::fail_call(call, k, cudaErrorUnknown);
            try {
                xs.append(3 * ints); // a page moves, and two are made
            } catch (weir::cuda_error const&) {
                CHECK(xs.capacity() == 2 * ints);
            }
            simulated_cuda::clear_faults();
            support::fill_from(1, xs.data(), xs.capacity() * sizeof(int));
            xs.resize(7 * ints);
            support::fill_from(1, xs.data(), 7 * page);
        }
}

TEST_CASE("page_pool: small vectors share a reservation, and where addresses run out, those of ended vectors are used again") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_log().with_memory(64 * page), support::report_all);
    scoped_stream const s;
    page_pool pool(small());
    std::vector<stable_vector<int>> many;
    for (int i = 0; i < 400; ++i)
        many.emplace_back(pool, s, ints);
    CHECK(calls_of("cuMemAddressReserve") <= 3);
}

TEST_CASE("page_pool: where the process has no addresses left, a vector is refused, and the others go on") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_addresses(64 * page).with_memory(64 * page),
                                      support::report_all);
    scoped_stream const s;
    page_pool pool(small());
    std::optional<stable_vector<int>> first(std::in_place, pool, s, 40 * ints);
    first->append(2 * ints);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { stable_vector<int>(pool, s, 60 * ints); }),
               "the process has no addresses left for a vector of so many bytes at most");
    stable_vector<int> second(pool, s, 8 * ints);
    second.append(1);
    first.reset(); // its pages stay where they are, until somebody needs the addresses
    CHECK(reserved(pool) == 3);
    stable_vector<int> third(pool, s, 39 * ints);
    third.append(1);
    CHECK(in_use(pool) == 2);
}

TEST_CASE("page_pool: what CUDA refuses to unmap is unmapped later, and nothing is put there before") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    scoped_stream const s;
    page_pool pool(small());
    stable_vector<int> first(pool, s, 4 * ints);
    stable_vector<int> second(pool, s, 4 * ints);
    first.append(ints);
    first.shrink(ints);
    weir::synchronize(s);
    simulated_cuda::fail_call("cuMemUnmap", 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { second.append(ints); }),
               "CUDA refuses to take the memory away that is behind its addresses; try again");
    simulated_cuda::clear_faults();
    CHECK(second.capacity() == 0);
    CHECK(reserved(pool) == 1);
    second.append(ints);
    CHECK(reserved(pool) == 1);
    second.shrink(ints);
    weir::synchronize(s);
    simulated_cuda::fail_call("cuMemUnmap", 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
    CHECK(pool.trim() == 0);
    simulated_cuda::clear_faults();
    CHECK(pool.trim() == page);
}

TEST_CASE("page_pool: vectors whose addresses touch end each by itself, also where two reservations meet") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_log().with_memory(16 * page), support::report_all);
    scoped_stream const s;
    {
        page_pool pool(small());
        std::vector<std::unique_ptr<stable_vector<int>>> all;
        while (calls_of("cuMemAddressReserve") < 4) {
            all.push_back(std::make_unique<stable_vector<int>>(pool, s, 2 * ints));
            CHECK(all.size() < 10'000);
        }
        while (all.size() > 6) // those that lie at the ends of reservations, and beside each other
            all.erase(all.begin());
        int value = 0;
        for (auto const& each : all)
            write(s, each->append(2 * ints), 2 * page, ++value);
        for (std::size_t i : {1u, 3u, 5u})
            all[i].reset();
        pool.settle();
        CHECK(pool.trim() == 6 * page);
        for (int i : {0, 2, 4}) {
            CHECK(all[static_cast<std::size_t>(i)]->element_sync(0) == (i + 1) * 0x01010101);
            CHECK(all[static_cast<std::size_t>(i)]->element_sync(2 * ints - 1) == (i + 1) * 0x01010101);
        }
        CHECK(reserved(pool) == 6);
    }
    CHECK(calls_of("cuMemAddressFree") == calls_of("cuMemAddressReserve"));
}

TEST_CASE("page_pool: where the process has no mappings left, growing is refused, and what is there goes on") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_mappings(6), support::report_all);
    scoped_stream const s;
    page_pool pool(small());
    stable_vector<int> xs(pool, s, 8 * ints), ys(pool, s, 8 * ints);
    xs.append(counting(10));
    ys.append(3 * ints);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { xs.append(3 * ints); }), "the device has no room for so many pages");
    CHECK(xs.size() == 10);
    CHECK(xs.capacity() == ints);
    CHECK(reserved(pool) == 4);
    xs.append(2 * ints);
    write(s, xs.data() + ints, page);
    ys.shrink(ints);
    ys.append(ints); // its own page
    ys.shrink(2 * ints);
    weir::synchronize(s);
    xs.append(2 * ints); // pages are free, and there is no mapping for one at two places
    CHECK(reserved(pool) == 6);
    CHECK(xs.element_sync(9) == 9);
}
#endif
