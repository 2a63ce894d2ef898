// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/runtime/event.hpp>
#include <weir/runtime/wait.hpp>

using support::sentence_of;
using weir::any_device;
using weir::check_cuda;
using weir::runtime::event;

static_assert(!std::is_copy_constructible_v<event> && !std::is_copy_assignable_v<event>);
static_assert(std::is_nothrow_move_constructible_v<event> && std::is_nothrow_move_assignable_v<event>);
static_assert(std::is_nothrow_default_constructible_v<event> && !std::is_convertible_v<int, event>);

namespace {

// Holds a stream's work back until it is opened: on a GPU a host function that waits, in the simulator a gate.
class barrier {
public:
    explicit barrier(cudaStream_t stream) {
#ifdef WEIR_SIMULATED_CUDA
        check_cuda(gate_.close(stream), "gate");
#else
        check_cuda(cudaLaunchHostFunc(stream, &wait, &open_), "cudaLaunchHostFunc");
#endif
    }
    ~barrier() { open(); }
    void open() {
#ifdef WEIR_SIMULATED_CUDA
        gate_.open();
#else
        open_.store(true);
#endif
    }

private:
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::gate gate_;
#else
    static void wait(void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load())
            std::this_thread::yield();
    }
    std::atomic<bool> open_{false};
#endif
};

} // namespace

TEST_CASE("event: there is none until one is made") {
    support::every_schedule([] {
        event none;
        CHECK_FALSE(none);
        CHECK(none.get() == nullptr);
        event const one(any_device);
        CHECK(one);
        CHECK(one.get() != nullptr);
    });
}

TEST_CASE("event: one that was never recorded has been reached, and nobody waits for it") {
    support::every_schedule([] {
        support::scoped_stream const s;
        event const fresh(any_device);
        CHECK(fresh.reached());
        fresh.synchronize();
        fresh.make_wait(s);
        weir::synchronize(s);
    });
}

TEST_CASE("event: is reached when the work before it has run, and not before") {
    support::every_schedule([] {
        support::scoped_stream const s;
        event passed(any_device);
        barrier held(s);
        passed.record(s);
        for (int i = 0; i < 10; ++i)
            CHECK_FALSE(passed.reached());
        CHECK(cudaPeekAtLastError() == cudaSuccess); // 'not ready' is an answer
        held.open();
        passed.synchronize();
        CHECK(passed.reached());
        CHECK(passed.reached());
    });
}

TEST_CASE("event: 'wait' says whether there was anything to wait for") {
    support::every_schedule([] {
        support::scoped_stream const s;
        event passed(0);
        CHECK_FALSE(passed.wait()); // never recorded
        barrier held(s);
        passed.record(s);
        CHECK_FALSE(passed.reached());
        held.open();
        bool const reached = passed.reached();
        bool const waited = passed.wait();
        CHECK_FALSE((reached && waited));
        CHECK(passed.reached());
        CHECK_FALSE(passed.wait());
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("event: 'wait' says that it waited") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    event passed(0);
    passed.record(s);
    CHECK(passed.wait());
    CHECK_FALSE(passed.wait());
}
#endif

TEST_CASE("event: recording again moves it forward") {
    support::every_schedule([] {
        support::scoped_stream const s;
        event passed(any_device);
        passed.record(s);
        passed.synchronize();
        CHECK(passed.reached());
        barrier held(s);
        passed.record(s);
        CHECK_FALSE(passed.reached());
        held.open();
        passed.synchronize();
    });
}

TEST_CASE("event: makes another stream wait, and only for what came before it") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        std::size_t const bytes = 1 << 16;
        void *from = nullptr, *to = nullptr;
        check_cuda(cudaMalloc(&from, bytes), "cudaMalloc");
        check_cuda(cudaMalloc(&to, bytes), "cudaMalloc");
        check_cuda(cudaMemsetAsync(from, 5, bytes, a), "cudaMemsetAsync");
        event passed(any_device);
        passed.record(a);
        passed.make_wait(b);
        check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, b), "cudaMemcpyAsync");
        barrier held(a); // behind the event: b does not wait for it
        std::vector<unsigned char> host(bytes);
        check_cuda(cudaMemcpyAsync(host.data(), to, bytes, cudaMemcpyDefault, b), "cudaMemcpyAsync");
        weir::synchronize(b);
        CHECK(host == std::vector<unsigned char>(bytes, 5));
        held.open();
        weir::synchronize(a);
        check_cuda(cudaFree(from), "cudaFree");
        check_cuda(cudaFree(to), "cudaFree");
    });
}

TEST_CASE("event: a wait keeps the point that the event was at, whatever becomes of the event") {
    support::every_schedule([] {
        support::scoped_stream const a, b, c;
        barrier held(a);
        {
            event passed(any_device);
            passed.record(a);
            passed.make_wait(b);
            passed.record(c); // elsewhere now
            CHECK(cudaStreamQuery(b) == cudaErrorNotReady);
        } // and gone
        static_cast<void>(cudaGetLastError());
        CHECK(cudaStreamQuery(b) == cudaErrorNotReady);
        static_cast<void>(cudaGetLastError());
        held.open();
        weir::synchronize(b);
    });
}

TEST_CASE("event: stays valid after its stream is destroyed") {
    support::every_schedule([] {
        support::scoped_stream const b;
        event passed(any_device);
        cudaStream_t a = nullptr;
        check_cuda(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        barrier held(a);
        passed.record(a);
        check_cuda(cudaStreamDestroy(a), "cudaStreamDestroy");
        CHECK_FALSE(passed.reached());
        passed.make_wait(b);
        CHECK(cudaStreamQuery(b) == cudaErrorNotReady);
        static_cast<void>(cudaGetLastError());
        held.open();
        passed.synchronize();
        CHECK(passed.reached());
        weir::synchronize(b);
    });
}

TEST_CASE("event: moves, and each CUDA event is destroyed once") {
    support::every_schedule([] {
        event a(any_device);
        cudaEvent_t const first = a.get();
        weir::runtime::event_place place;
        place.begin = 7;
        a.note(place);
        event b = std::move(a);
        CHECK(b.place().begin == 7);
        CHECK_FALSE(a);
        CHECK(b.get() == first);
        event c(any_device);
        cudaEvent_t const second = c.get();
        place.begin = 8;
        c.note(place);
        c = std::move(b);
        CHECK(c.place().begin == 7);
        CHECK(b.place().begin == 8);
        support::scoped_stream const s;
        c.record(s);
        CHECK(c.place().begin == 0); // it is of this record now
        CHECK(c.get() == first);
        b = event();
        CHECK(c.get() == first);
        std::vector<event> many;
        for (int i = 0; i < 20; ++i)
            many.emplace_back(any_device);
        many.erase(many.begin(), many.begin() + 10);
        CHECK(many.size() == 10);
        static_cast<void>(second);
    }); // the world reports what leaked or was destroyed twice
}

TEST_CASE("event: is made on the device that is named, and the current one stays current") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world world(simulated_cuda::config{}.with_devices(2));
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    for (int i = 0; i < devices; ++i) {
        event passed(i);
        CHECK(weir::runtime::current_device() == 0);
        weir::runtime::device_scope const there(i);
        support::scoped_stream const s;
        passed.record(s); // an event of another device is refused
        passed.synchronize();
    }
    if (devices > 1) {
        event here(0);
        weir::runtime::device_scope const on_device(1);
        support::scoped_stream const there;
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { here.record(there); }),
                   "weir: cudaEventRecord failed with cudaErrorInvalidResourceHandle (400): the stream or event was "
                   "destroyed, or belongs to another device");
    }
}

TEST_CASE("event: every call may fail, and the event is where it was") {
    struct state {
        support::scoped_stream s, other;
        event passed{any_device};
        event made;
        bool answer = true;
    };
    auto const prepare = [] {
        auto fresh = std::make_unique<state>();
        fresh->passed.record(fresh->s);
        return fresh;
    };
    auto const threw = [](state& x, support::struck const& fault) {
        CHECK(fault.threw == !fault.calls.empty());
        x.passed.synchronize(); // still sound
        CHECK(x.passed.reached());
    };
    auto runs = support::fault_sweep(prepare, [](state& x) { x.passed.record(x.other); }, threw);
    runs += support::fault_sweep(prepare, [](state& x) { x.answer = x.passed.reached(); }, threw);
    runs += support::fault_sweep(prepare, [](state& x) { x.passed.make_wait(x.other); }, threw);
    runs += support::fault_sweep(prepare, [](state& x) { x.passed.synchronize(); }, threw);
    runs += support::fault_sweep(prepare, [](state& x) { x.made = event(any_device); },
                                 [](state& x, support::struck const& fault) { CHECK(bool(x.made) == fault.calls.empty()); });
    runs += support::fault_sweep(prepare, [](state& x) { x.made = event(0); },
                                 [](state& x, support::struck const& fault) { CHECK(bool(x.made) == fault.calls.empty()); });
    runs += support::fault_sweep(prepare, [](state& x) { static_cast<void>(event(std::move(x.passed))); },
                                 [](state&, support::struck const& fault) { CHECK_FALSE(fault.threw); });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs == 16);
#endif
    static_cast<void>(runs);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("event: after a sticky error nothing blocks and everything says so") {
    simulated_cuda::world world;
    cudaStream_t s = nullptr;
    check_cuda(cudaStreamCreate(&s), "cudaStreamCreate");
    event passed(any_device);
    check_cuda(simulated_cuda::launch_failing(s, cudaErrorIllegalAddress), "launch");
    simulated_cuda::drain();
    CHECK_THROWS_AS(passed.record(s), weir::cuda_error);
    CHECK_THROWS_AS(static_cast<void>(passed.reached()), weir::cuda_error);
    CHECK_SAYS(sentence_of<weir::cuda_error>([&] { passed.synchronize(); }), "cudaErrorIllegalAddress");
    world.forgive();
}
#endif
