// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The list by hand. What directories and pools make of it is in stream_directory.cpp and tests/reuse.

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <stdexcept>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <vector>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/order/stranded_blocks.hpp>
#include <weir/runtime/capture.hpp>

using weir::check_cuda;
using weir::KiB;
using weir::MiB;
using weir::base::range;
using weir::order::stranded_blocks;

TEST_CASE("stranded_blocks: who marked the end takes what lay in front of it, once") {
    stranded_blocks list;
    std::vector<std::size_t> taken;
    auto const note = [&](range block) { taken.push_back(block.offset); };
    list.add(range{1 * MiB, 1 * KiB}, 0);
    std::uint64_t const first = list.mark();
    list.add(range{2 * MiB, 2 * MiB}, 1);
    list.add(range{}, 1); // handed out again: waited for, but nobody's here
    std::uint64_t const second = list.mark();
    CHECK(list.bytes() == 2 * MiB + 1 * KiB);
    CHECK(list.weight() == 2 * MiB + 2 * stranded_blocks::least_weight);
    std::vector<int> devices;
    list.visit_devices([&](int each) { devices.push_back(each); });
    CHECK(devices == std::vector<int>{0, 1, 1});

    list.take_until(first, note);
    CHECK(taken == std::vector<std::size_t>{1 * MiB});
    list.take_until(first, note); // another waited as well
    CHECK(taken.size() == 1);
    list.add(range{8 * MiB, 1 * MiB}, 0);
    list.take_until(second, note);
    CHECK(taken == std::vector<std::size_t>{1 * MiB, 2 * MiB});
    CHECK(list.bytes() == 1 * MiB);
    CHECK(list.weight() == 1 * MiB);
}

TEST_CASE("stranded_blocks: what the sink does not take stays") {
    stranded_blocks list;
    for (std::size_t i = 1; i <= 3; ++i)
        list.add(range{i * MiB, 1 * MiB}, 0);
    int room = 1;
    auto const sink = [&](range) {
        if (room-- == 0)
            throw std::runtime_error("full");
    };
    CHECK_THROWS_AS(list.take_until(list.mark(), sink), std::runtime_error);
    CHECK(list.bytes() == 2 * MiB);
    room = 2;
    list.take_until(list.mark(), sink);
    CHECK(list.bytes() == 0);
    CHECK(list.weight() == 0);
}

TEST_CASE("stranded_blocks: what a graph may use is lost until nothing is left of the graph, and stranded then") {
    support::every_schedule([] {
        support::scoped_stream const s;
        stranded_blocks list;
        CHECK_FALSE(list.add_for_graph(range{9 * MiB, 1 * MiB}, {})); // whose graph is not known
        cudaGraph_t graphs[2] = {};
        for (std::size_t i = 0; i != 2; ++i) {
            check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
            for (std::size_t block = 1; block <= 2; ++block)
                CHECK(list.add_for_graph(range{(2 * i + block) * MiB, 1 * KiB}, weir::runtime::capture_of(s)));
            check_cuda(cudaStreamEndCapture(s, &graphs[i]), "cudaStreamEndCapture");
        }
        list.look_at_graphs();
        CHECK(list.graph_bytes() == 4 * KiB);
        CHECK(list.bytes() == 0);
        for (std::size_t left : {2 * KiB, std::size_t{0}}) {
            check_cuda(cudaGraphDestroy(graphs[left == 0]), "cudaGraphDestroy");
            for (int turns = 0; turns < 1'000'000 && list.graph_bytes() != left; ++turns) { // CUDA may tell a little later
                static_cast<void>(cudaStreamQuery(s));
                list.look_at_graphs();
            }
            CHECK(list.graph_bytes() == left);
            CHECK(list.bytes() == 4 * KiB - left);
        }
        std::vector<std::size_t> taken;
        list.take_until(list.mark(), [&](range block) { taken.push_back(block.offset / MiB); });
        CHECK(taken.size() == 4);
    });
}

TEST_CASE("stranded_blocks: without host memory what a graph left stays lost until the next look") {
    if (!support::host_memory_can_fail)
        return;
    support::every_schedule([] {
        support::scoped_stream const s;
        stranded_blocks list;
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        CHECK(list.add_for_graph(range{1 * MiB, 1 * KiB}, weir::runtime::capture_of(s)));
        check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        for (int turns = 0; turns < 1'000'000 && list.graph_bytes() != 0; ++turns) { // CUDA may tell a little later
            static_cast<void>(cudaStreamQuery(s));
            {
                support::failing_new const at_once(0);
                list.look_at_graphs();
            }
            CHECK(list.bytes() == 0);
            CHECK(list.graph_bytes() == 1 * KiB);
            list.look_at_graphs();
        }
        CHECK(list.bytes() == 1 * KiB);
    });
}
