// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <support/every_schedule.hpp>
#include <utility>
#include <vector>
#include <weir/order/stream_answers.hpp>
#include <weir/runtime/wait.hpp>

using weir::runtime::event;
using weir::base::growing_array;
using weir::runtime::event_place;
using weir::order::stream_answers;

namespace {

event recorded(cudaStream_t stream, unsigned long long id, std::uint64_t begin, std::uint64_t end) {
    event passed(0);
    passed.record(stream);
    event_place place;
    place.stream_id = id;
    place.begin = begin;
    place.end = end;
    passed.note(place);
    return passed;
}

} // namespace

TEST_CASE("stream_answers: tells what CUDA would") {
    support::every_schedule([] {
        support::scoped_stream const a;
        event const first = recorded(a, 1, 1, 2);
        event const unknown = [&] {
            event passed(0);
            passed.record(a);
            return passed;
        }();
        weir::synchronize(a);
        stream_answers answers;
        CHECK(answers.reached(first));
        CHECK(answers.reached(unknown));
        growing_array<event> list;
        CHECK(answers.all_reached(list));
        list.push_back(recorded(a, 1, 3, 4));
        weir::synchronize(a);
        CHECK(answers.all_reached(list));
    });
}

#ifdef WEIR_SIMULATED_CUDA

namespace {

// A stream that stands still after the events of 'passed', and before those of 'late'.
struct stage {
    void stop() { weir::check_cuda(gate.close(stream), "gate"); }
    static std::uint64_t queries() { return simulated_cuda::calls("cudaEventQuery"); }
    // What is answered, and whether CUDA was asked.
    bool asks(event const& which, bool expected) {
        std::uint64_t const before = queries();
        CHECK(answers.reached(which) == expected);
        return queries() != before;
    }
    ~stage() { gate.open(); }

    simulated_cuda::world const world{simulated_cuda::config{}.eager(), support::report_all};
    support::scoped_stream const stream;
    simulated_cuda::gate gate;
    stream_answers answers;
};

} // namespace

TEST_CASE("stream_answers: who reached an event has reached those before, who did not has not those after") {
    stage here;
    event const e1 = recorded(here.stream, 1, 1, 2), e2 = recorded(here.stream, 1, 3, 4);
    here.stop();
    event const e3 = recorded(here.stream, 1, 5, 6), e4 = recorded(here.stream, 1, 7, 8);
    CHECK(here.asks(e2, true));
    CHECK_FALSE(here.asks(e1, true));
    CHECK_FALSE(here.asks(e2, true));
    CHECK(here.asks(e3, false));
    CHECK_FALSE(here.asks(e4, false));
    CHECK_FALSE(here.asks(e3, false));
}

TEST_CASE("stream_answers: an answer tells nothing of an event that was recorded at the same time") {
    for (bool const first : {false, true}) {
        CAPTURE(first);
        stage here;
        event const passed = recorded(here.stream, 1, 10, 13);
        here.stop();
        event const late = recorded(here.stream, 1, 11, 12), other = recorded(here.stream, 1, 9, 14);
        if (first) {
            CHECK(here.asks(passed, true));
            CHECK(here.asks(late, false));
            CHECK(here.asks(other, false));
        } else {
            CHECK(here.asks(late, false));
            CHECK(here.asks(other, false));
            CHECK(here.asks(passed, true));
        }
    }
}

TEST_CASE("stream_answers: an answer between others takes nothing from what those tell") {
    stage here;
    event const e1 = recorded(here.stream, 1, 3, 4), e2 = recorded(here.stream, 1, 5, 6);
    event const wide = recorded(here.stream, 1, 2, 21); // its thread lost its core meanwhile
    here.stop();
    event const e3 = recorded(here.stream, 1, 7, 8), e4 = recorded(here.stream, 1, 9, 10);
    event const also_wide = recorded(here.stream, 1, 1, 22);
    CHECK(here.asks(e2, true));
    CHECK(here.asks(wide, true));
    CHECK_FALSE(here.asks(e1, true));
    CHECK(here.asks(e3, false));
    CHECK(here.asks(also_wide, false));
    CHECK_FALSE(here.asks(e4, false));
}

TEST_CASE("stream_answers: nor of one of another stream, or of no known place") {
    stage here;
    support::scoped_stream const b;
    event const passed = recorded(b, 2, 5, 6);
    event unknown(0);
    unknown.record(b);
    here.stop();
    event const late = recorded(here.stream, 1, 3, 4);
    CHECK(here.asks(late, false));
    CHECK(here.asks(passed, true));
    CHECK(here.asks(unknown, true));
    CHECK(here.asks(unknown, true));
    event const after = recorded(here.stream, 1, 9, 10);
    CHECK_FALSE(here.asks(after, false));
}

TEST_CASE("stream_answers: of streams beyond the eighth each event is asked, once, and none to learn from") {
    stage here;
    std::vector<std::unique_ptr<support::scoped_stream>> streams;
    for (unsigned long long i = 1; i <= 9; ++i) {
        streams.push_back(std::make_unique<support::scoped_stream>());
        growing_array<event> list;
        list.push_back(recorded(*streams.back(), i, 2 * i, 2 * i + 1));
        list.push_back(recorded(*streams.back(), i, 100 + 2 * i, 101 + 2 * i));
        std::uint64_t const before = stage::queries();
        here.answers.learn(list);
        CHECK(stage::queries() - before == (i <= 8 ? 2 : 0));
        CHECK(here.answers.all_reached(list));
        CHECK(stage::queries() - before == 2);
    }
}

TEST_CASE("stream_answers: learns of a block's uses up to the first that was not reached") {
    stage here;
    support::scoped_stream const b;
    here.stop();
    growing_array<event> list;
    list.push_back(recorded(here.stream, 1, 1, 2));
    list.push_back(recorded(b, 2, 3, 4));
    std::uint64_t const before = stage::queries();
    here.answers.learn(list);
    CHECK_FALSE(here.answers.all_reached(list));
    CHECK(stage::queries() - before == 1);
}

TEST_CASE("stream_answers: a question that fails leaves what is known") {
    stage here;
    event const e1 = recorded(here.stream, 1, 1, 2), e2 = recorded(here.stream, 1, 3, 4);
    simulated_cuda::fail_call("cudaEventQuery", 1, cudaErrorUnknown);
    CHECK_THROWS_AS(static_cast<void>(here.answers.reached(e2)), weir::cuda_error);
    CHECK(here.asks(e1, true));
    CHECK(here.asks(e2, true));
}

#endif
