// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <vector>
#include <weir/order/stream_mark.hpp>

using weir::order::stream_mark;
using state = weir::order::stream_mark::state;

TEST_CASE("stream_mark: a stream that lives is found under its handle, and a default stream under its name") {
    support::every_schedule([] {
        support::scoped_stream const s;
        for (cudaStream_t const each : {cudaStream_t(s), cudaStreamLegacy, cudaStreamPerThread}) {
            stream_mark const mark{each};
            stream_mark::view const found = mark.look();
            CHECK(found.now == state::open);
            CHECK(found.stream == weir::stream_ref(each));
            CHECK(found.id == weir::runtime::id_of(each));
            CHECK(mark.device() == weir::runtime::current_device());
            CHECK(mark.place() == (each == cudaStream_t(s) ? weir::any_device : weir::runtime::current_device()));
            CHECK(mark.is_as(stream_mark{each}));
        }
        CHECK_FALSE(stream_mark{cudaStream_t(s)}.is_as(stream_mark{cudaStreamLegacy}));
        weir::base::growing_array<stream_mark> marks;
        for (int i = 0; i < 3; ++i)
            for (cudaStream_t const each : {cudaStream_t(s), cudaStreamLegacy, cudaStreamPerThread})
                weir::order::add_mark(marks, stream_mark{each});
        CHECK(marks.size() == 3);
    });
}

TEST_CASE("stream_mark: a captured stream cannot be marked, and one that is captured later says so") {
    support::every_schedule([] {
        support::scoped_stream const s;
        stream_mark const mark{cudaStream_t(s)};
        support::capture graph(s);
        CHECK(mark.look().now == state::captured);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(stream_mark{cudaStream_t(s)}); }),
                   "weir: 'used_on' cannot mark a stream that is being captured into a graph");
        stream_mark const known = stream_mark::of_captured(cudaStream_t(s));
        CHECK(known.is_as(stream_mark::of_captured(cudaStream_t(s))));
        CHECK_FALSE(known.is_as(mark));
        CHECK(graph.unbroken());
        CHECK(known.look().now == state::open);
    });
}

TEST_CASE("stream_mark: a thread's own default stream is found by others as the legacy stream, which waits for it") {
    support::every_schedule([] {
        stream_mark const mark{cudaStreamPerThread};
        CHECK(mark.look().stream == weir::stream_ref(cudaStreamPerThread));
        std::thread([&] {
            stream_mark::view const found = mark.look();
            CHECK(found.now == state::open);
            CHECK(found.stream == weir::stream_ref(cudaStreamLegacy));
            CHECK(found.id == weir::runtime::id_of(cudaStreamLegacy));
            CHECK_FALSE(mark.is_as(stream_mark{cudaStreamPerThread}));
        }).join();
    });
}

TEST_CASE("stream_mark: where another thread cannot ask, the capture may be of the marked stream") {
    support::every_schedule([] {
        stream_mark const mark{cudaStreamPerThread};
        stream_mark const legacy{cudaStreamLegacy};
        support::capture graph(cudaStreamPerThread, cudaStreamCaptureModeRelaxed);
        std::thread([&] { CHECK(mark.look().now == state::captured); }).join();
        CHECK(legacy.look().now == state::unknown); // never captured itself
        CHECK(graph.unbroken());
    });
}

// A GPU may give the handle to no other stream.
TEST_CASE("stream_mark: of a handle that another stream bears by now nothing is known") {
    support::every_schedule([] {
        auto gone = std::make_unique<support::scoped_stream>();
        cudaStream_t const handle = *gone;
        stream_mark const mark{handle};
        gone.reset();
        std::vector<std::unique_ptr<support::scoped_stream>> heirs;
        for (int i = 0; i < 50 && (heirs.empty() || *heirs.back() != handle); ++i)
            heirs.push_back(std::make_unique<support::scoped_stream>());
        if (*heirs.back() != handle)
            return;
        CHECK(mark.look().now == state::unknown);
        CHECK_FALSE(mark.is_as(stream_mark{handle}));
    });
}
