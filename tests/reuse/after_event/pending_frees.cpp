// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <algorithm>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <new>
#include <support/every_schedule.hpp>
#include <utility>
#include <vector>
#include <weir/reuse/after_event/pending_frees.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

using weir::runtime::event;
using weir::reuse::detail::pending_free;
using weir::reuse::detail::pending_frees;
using weir::base::shared;

namespace {

using blocks = std::vector<std::size_t>;

// A free of the block at `offset` on `stream`, recorded and not added yet.
shared<pending_free> recorded(pending_frees& frees, cudaStream_t stream, std::size_t offset) {
    shared<pending_free> made = shared<pending_free>::make();
    made->block = weir::base::range{offset, 1};
    made->passed = event(0);
    made->device = 0;
    frees.record(*made, stream, weir::runtime::id_of(stream));
    return made;
}

void free_at(pending_frees& frees, cudaStream_t stream, std::size_t offset) {
    frees.add(recorded(frees, stream, offset));
}

blocks last_ones(pending_frees const& frees) {
    blocks visited;
    frees.for_each_last([&](shared<pending_free> const& each) { visited.push_back(each->block.offset); });
    std::sort(visited.begin(), visited.end());
    return visited;
}

// The blocks whose frees are over, in order of address.
blocks over(pending_frees& frees) {
    blocks told;
    frees.poll([&](shared<pending_free>& each) { told.push_back(each->block.offset); });
    std::sort(told.begin(), told.end());
    return told;
}

} // namespace

TEST_CASE("pending_frees: each free is told of once, when its stream has passed it") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        pending_frees frees;
        CHECK(frees.empty());
        CHECK(frees.device_of(weir::runtime::id_of(a)) == weir::any_device);
        free_at(frees, a, 1);
        free_at(frees, b, 2);
        free_at(frees, a, 3);
        CHECK(frees.size() == 3);
        CHECK(frees.device_of(weir::runtime::id_of(a)) == 0);
        CHECK(last_ones(frees) == blocks{2, 3});
        weir::synchronize(a);
        weir::synchronize(b);
        CHECK(over(frees) == blocks{1, 2, 3});
        CHECK(over(frees).empty());
        CHECK(frees.empty());
        CHECK(frees.device_of(weir::runtime::id_of(a)) == weir::any_device); // the stream may be gone
    });
}

TEST_CASE("pending_frees: a free of the host's waits for its other uses alone") {
    support::every_schedule([] {
        support::scoped_stream const a;
        pending_frees frees;
        shared<pending_free> made = shared<pending_free>::make();
        made->block = weir::base::range{7, 1};
        made->uses.push_back(event(0));
        made->uses.back().record(a);
        frees.add(std::move(made));
        CHECK(last_ones(frees) == blocks{7});
        weir::synchronize(a);
        CHECK(over(frees) == blocks{7});
    });
}

#ifdef WEIR_SIMULATED_CUDA

namespace device = simulated_cuda;

TEST_CASE("pending_frees: what has not been passed stays, in its order, and streams answer for themselves") {
    device::world const here;
    support::scoped_stream const a, b;
    pending_frees frees;
    device::gate held;
    free_at(frees, b, 10);
    free_at(frees, a, 1);
    free_at(frees, a, 2);
    CHECK(held.close(a) == cudaSuccess);
    for (std::size_t i = 3; i <= 9; ++i)
        free_at(frees, i % 2 == 0 ? b : a, i);
    weir::synchronize(b);
    CHECK(over(frees) == blocks{1, 2, 4, 6, 8, 10});
    CHECK(frees.size() == 4);
    CHECK(last_ones(frees) == blocks{9});
    CHECK(over(frees).empty()); // nothing more is kept of b
    CHECK(frees.device_of(weir::runtime::id_of(a)) == 0);
    CHECK(frees.device_of(weir::runtime::id_of(b)) == weir::any_device);
    free_at(frees, a, 11);
    held.open();
    weir::synchronize(a);
    CHECK(over(frees) == blocks{3, 5, 7, 9, 11});
}

TEST_CASE("pending_frees: a use elsewhere keeps a free that its own stream has passed") {
    device::world const here;
    support::scoped_stream const a, b;
    pending_frees frees;
    device::gate held;
    CHECK(held.close(b) == cudaSuccess);
    shared<pending_free> made = recorded(frees, a, 1);
    made->uses.push_back(event(0));
    made->uses.back().record(b);
    frees.add(std::move(made));
    free_at(frees, a, 2);
    CHECK(last_ones(frees) == blocks{1, 2});
    weir::synchronize(a);
    CHECK(over(frees) == blocks{2});
    held.open();
    weir::synchronize(b);
    CHECK(over(frees) == blocks{1});
}

TEST_CASE("pending_frees: one question where no free is over, else few more than the logarithm of their number") {
    for (std::size_t const many : {1u, 2u, 100u})
        for (std::size_t passed = 0; passed <= many; passed += passed < 5 ? 1 : 5) {
            CAPTURE(many);
            CAPTURE(passed);
            device::world const here;
            support::scoped_stream const a;
            pending_frees frees;
            device::gate held;
            for (std::size_t i = 0; i < passed; ++i)
                free_at(frees, a, i + 1);
            CHECK(held.close(a) == cudaSuccess);
            for (std::size_t i = passed; i < many; ++i)
                free_at(frees, a, i + 1);
            device::drain();
            std::uint64_t const before = device::calls("cudaEventQuery");
            CHECK(over(frees).size() == passed);
            std::uint64_t const questions = device::calls("cudaEventQuery") - before;
            CHECK(questions <= (passed == 0 ? 1 : passed < 5 ? passed + 3 : 16));
            held.open();
            weir::synchronize(a);
            CHECK(over(frees).size() == many - passed);
        }
}

TEST_CASE("pending_frees: records that were made at once say nothing of each other") {
    device::world const here;
    support::scoped_stream const a;
    unsigned long long const id = weir::runtime::id_of(a);
    for (bool const late_first : {false, true}) {
        CAPTURE(late_first);
        pending_frees frees;
        device::gate held;
        free_at(frees, a, 8);
        free_at(frees, a, 9);
        shared<pending_free> early = recorded(frees, a, 1);
        CHECK(held.close(a) == cudaSuccess);
        shared<pending_free> late = recorded(frees, a, 2);
        early->passed.note({id, 101, 104});
        late->passed.note({id, 102, 103});
        if (late_first) { // the thread of the first was slow to add it
            frees.add(std::move(late));
            frees.add(std::move(early));
        } else {
            frees.add(std::move(early));
            frees.add(std::move(late));
        }
        CHECK(last_ones(frees) == blocks{1, 2});
        device::drain();
        CHECK(over(frees) == blocks{1, 8, 9});
        held.open();
        weir::synchronize(a);
        CHECK(over(frees) == blocks{2});
    }
}

TEST_CASE("pending_frees: one that was slow to be added does not hide that it was passed") {
    device::world const here;
    support::scoped_stream const a;
    pending_frees frees;
    device::gate held;
    shared<pending_free> early = recorded(frees, a, 1);
    CHECK(held.close(a) == cudaSuccess);
    free_at(frees, a, 2);
    free_at(frees, a, 3);
    frees.add(std::move(early));
    free_at(frees, a, 4);
    device::drain();
    CHECK(over(frees) == blocks{1});
    held.open();
    weir::synchronize(a);
    CHECK(over(frees) == blocks{2, 3, 4});
}

TEST_CASE("pending_frees: another thread's record in the middle of one's own says nothing of it") {
    for (bool const closes : {false, true}) {
        CAPTURE(closes);
        device::world const here;
        static support::scoped_stream const* a;
        static pending_frees* frees;
        static device::gate* held;
        static bool gate;
        support::scoped_stream const stream;
        pending_frees both;
        device::gate shut;
        a = &stream;
        frees = &both;
        held = &shut;
        gate = closes;
        free_at(both, stream, 8);
        free_at(both, stream, 9);
        device::at_switch_points([] { // in the record of the first, before CUDA has it
            device::at_switch_points(nullptr);
            free_at(*frees, *a, 2);
            if (gate)
                CHECK(held->close(*a) == cudaSuccess);
        });
        shared<pending_free> slow = recorded(both, stream, 1);
        both.add(std::move(slow));
        device::drain();
        CHECK(over(both) == (closes ? blocks{2, 8, 9} : blocks{1, 2, 8, 9}));
        shut.open();
        weir::synchronize(stream);
        CHECK(over(both).size() == (closes ? 1 : 0));
    }
}

TEST_CASE("pending_frees: a question that fails, or a taker that does, loses no free and tells none twice") {
    for (std::uint64_t k = 1; k <= 4; ++k) {
        CAPTURE(k);
        device::world const here;
        support::scoped_stream const a, b;
        pending_frees frees;
        for (std::size_t i = 1; i <= 6; ++i)
            free_at(frees, i % 2 == 0 ? b : a, i);
        weir::synchronize(a);
        weir::synchronize(b);
        blocks told;
        std::size_t refused = k; // the taker has no room for the k-th
        auto const take = [&](shared<pending_free>& each) {
            if (--refused == 0)
                throw std::bad_alloc();
            told.push_back(each->block.offset);
        };
        device::fail_call("cudaEventQuery", k % 2 + 1, cudaErrorUnknown);
        for (int tries = 0; tries < 3; ++tries) {
            try {
                frees.poll(take);
            } catch (std::exception const&) {
            }
            CHECK(frees.size() + told.size() == 6);
        }
        std::sort(told.begin(), told.end());
        CHECK(told == blocks{1, 2, 3, 4, 5, 6});
        device::clear_faults();
    }
}

TEST_CASE("pending_frees: streams that come and go leave nothing behind") {
    device::world const here;
    pending_frees frees;
    for (std::size_t turn = 1; turn <= 200; ++turn) {
        support::scoped_stream const a, b, c;
        free_at(frees, a, turn);
        free_at(frees, b, turn + 1000);
        free_at(frees, c, turn + 2000);
        weir::synchronize(a);
        weir::synchronize(b);
        weir::synchronize(c);
        CHECK(over(frees) == blocks{turn, turn + 1000, turn + 2000});
        CHECK(frees.device_of(weir::runtime::id_of(a)) == 0); // it may go on
        CHECK(over(frees).empty());
        for (cudaStream_t each : {cudaStream_t(a), cudaStream_t(b), cudaStream_t(c)})
            CHECK(frees.device_of(weir::runtime::id_of(each)) == weir::any_device);
    }
}

#endif
