// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Calls the plug-in as PyTorch does, on the simulated device, which reports what memory it hands out too early.
//
// usage: torch_calls CASE. Each case is a process of its own, since a plug-in's pools never end. Exit status 0: it holds.

#include "../../examples/python/weir_plugin/watched_memory.hpp"
#include "plugin_functions.hpp"

#include <c10/util/Exception.h>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/simulated_device/control.hpp>
#include <weir/weir.hpp>

using weir::GiB;
using weir::MiB;

namespace {

constexpr std::size_t size = 4 * MiB;
constexpr pool_id ids[] = {{0, 7}, {0, 8}};
constexpr pool_id id = ids[0];

void require(bool holds, char const* what) {
    if (!holds) {
        std::fprintf(stderr, "%s\n", what);
        std::exit(1);
    }
}

void check(cudaError_t error) {
    require(error == cudaSuccess, cudaGetErrorName(error));
}

cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void* take(cudaStream_t stream, std::size_t bytes = size) {
    return weir_allocate(bytes, 0, stream);
}
void give(void* p, cudaStream_t stream, std::size_t bytes = size) {
    weir_deallocate(p, bytes, 0, stream);
}
void write(void* p, cudaStream_t stream) {
    check(cudaMemsetAsync(p, 1, size, stream));
}
void wait_for(cudaStream_t later, cudaStream_t earlier) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    check(cudaEventRecord(event, earlier));
    check(cudaStreamWaitEvent(later, event, 0));
    check(cudaEventDestroy(event));
}

figures state() {
    figures now{};
    require(weir_state(0, &now.requested) == 0, "state failed");
    return now;
}

unsigned long long capture_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long found = 0;
    check(cudaStreamGetCaptureInfo(stream, &status, &found));
    return status == cudaStreamCaptureStatusActive ? found : 0;
}
void begin(cudaStream_t stream, pool_id name = id) {
    auto const own = std::make_shared<unsigned long long>(0); // known only once the capture began
    weir_begin_capture(0, name, [own](cudaStream_t asked) { return *own != 0 && capture_of(asked) == *own; });
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    *own = capture_of(stream);
}
cudaGraphExec_t end(cudaStream_t stream, pool_id name = id) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t run = nullptr;
    check(cudaStreamEndCapture(stream, &graph));
    weir_end_capture(0, name);
    check(cudaGraphInstantiate(&run, graph, 0));
    check(cudaGraphDestroy(graph));
    return run;
}
void launch(cudaGraphExec_t run, cudaStream_t stream) {
    check(cudaGraphLaunch(run, stream));
}

// A block used on a second stream is freed and its bytes asked for again.
void use_on_two_streams(bool records, bool first) {
    cudaStream_t const own = new_stream();
    cudaStream_t const other = new_stream();
    void* const p = take(own);
    write(p, own);
    wait_for(other, own);
    if (records && first)
        weir_record_stream(p, other);
    write(p, other);
    if (records && !first)
        weir_record_stream(p, other);
    give(p, own);
    write(take(own), own);
}

void record_stream_after() {
    use_on_two_streams(true, false);
}
void record_stream_before() {
    use_on_two_streams(true, true);
}
// Shows that the cases above could fail.
void without_record_stream() {
    use_on_two_streams(false, false);
    check(cudaDeviceSynchronize());
    require(!simulated_device::reports().empty(), "nobody saw that two streams wrote the same bytes at a time");
    simulated_device::clear_reports();
}

void default_stream() {
    for (int i = 0; i < 10; ++i) {
        void* const p = take(nullptr);
        write(p, nullptr);
        give(p, nullptr);
    }
    require(state().reserved < 4 * size, "the null stream's own memory is not used again");
    require(take(nullptr, 0) == nullptr, "no bytes have an address");
    give(nullptr, nullptr, 0);
}

void graph_keeps_its_memory() {
    cudaStream_t const stream = new_stream();
    begin(stream);
    void* const p = take(stream);
    write(p, stream);
    give(p, stream);
    void* const q = take(stream);
    write(q, stream);
    require(p == q, "a capture does not use again what it freed");
    give(q, stream);
    cudaGraphExec_t const run = end(stream);
    launch(run, stream);
    void* const outside = take(stream);
    require(outside != p, "the graph's memory was handed to others");
    write(outside, stream);
    launch(run, stream);
    give(outside, stream);
    weir_empty_cache();
    require(state().in_use >= size, "the graph's memory went back while it lives");
    launch(run, stream);
    weir_release_capture(0, id);
    check(cudaGraphExecDestroy(run));
    weir_empty_cache();
    require(state().in_use == 0 && state().reserved == 0, "the graph's memory did not go back");
}

void graph_output_outlives_it() {
    cudaStream_t const stream = new_stream();
    begin(stream);
    void* const p = take(stream);
    write(p, stream);
    cudaGraphExec_t const run = end(stream);
    launch(run, stream);
    weir_release_capture(0, id);
    check(cudaGraphExecDestroy(run));
    weir_empty_cache();
    write(p, stream); // still ours
    require(state().in_use >= size, "a live tensor's memory went back");
    give(p, stream);
    weir_empty_cache();
    require(state().in_use == 0, "the memory did not go back after the tensor");
}

void graphs_share_an_id() {
    cudaStream_t const stream = new_stream();
    begin(stream);
    void* const p = take(stream);
    give(p, stream);
    cudaGraphExec_t const first = end(stream);
    begin(stream);
    void* const q = take(stream);
    require(p == q, "the second graph does not use the first one's memory");
    give(q, stream);
    cudaGraphExec_t const second = end(stream);
    weir_release_capture(0, id);
    check(cudaGraphExecDestroy(first));
    weir_empty_cache();
    require(state().in_use != 0, "the memory went back while a graph lives");
    weir_release_capture(0, id);
    check(cudaGraphExecDestroy(second));
    weir_empty_cache();
    require(state().in_use == 0, "the memory did not go back");
}

void graph_of_two_streams() {
    cudaStream_t const stream = new_stream();
    cudaStream_t const side = new_stream();
    begin(stream);
    void* const p = take(stream);
    write(p, stream);
    wait_for(side, stream);
    write(p, side);
    weir_record_stream(p, side);
    give(p, stream);
    void* const q = take(stream);
    require(q != p, "bytes that a side stream of the capture uses were handed out again");
    write(q, stream);
    wait_for(stream, side);
    give(q, stream);
    launch(end(stream), stream);
    check(cudaStreamSynchronize(stream));
    begin(stream);
    void* const again[] = {take(stream), take(stream)};
    require(again[0] == p || again[1] == p, "the bytes stay out after the capture");
    static_cast<void>(end(stream));
}

void freed_in_a_capture() {
    cudaStream_t const stream = new_stream();
    void* const p = take(stream);
    begin(stream);
    write(p, stream);
    give(p, stream);
    cudaGraphExec_t const run = end(stream);
    void* const q = take(stream);
    require(q != p, "what a capture freed was handed out again");
    write(q, stream);
    launch(run, stream);
    require(state().lost == 0, "what a capture freed is lost");
    give(q, stream);
    weir_release_capture(0, id);
    check(cudaGraphExecDestroy(run));
    weir_empty_cache();
    require(state().in_use == 0, "what a capture freed did not come back");
}

void used_in_a_capture() {
    cudaStream_t const own = new_stream();
    cudaStream_t const captured = new_stream();
    void* const p = take(own);
    begin(captured);
    write(p, captured);
    weir_record_stream(p, captured);
    cudaGraphExec_t const run = end(captured);
    give(p, own);
    void* const q = take(own);
    require(q != p, "what a graph uses was handed out again");
    write(q, own);
    launch(run, captured);
}

// What was freed in a capture, and is too small for what comes next, is still written by the graph.
void outgrown_in_a_capture() {
    cudaStream_t const stream = new_stream();
    cudaStream_t const other = new_stream();
    begin(stream);
    void* const p = take(stream, 10 * size);
    write(p, stream);
    void* const between = take(other);
    give(p, stream, 10 * size);
    give(take(stream, 20 * size), stream, 20 * size);
    cudaGraphExec_t const run = end(stream);
    write(take(other, 10 * size), other);
    launch(run, stream);
    give(between, other);
}

// Two graphs, with ids of their own, use a block that is not theirs.
void two_graphs_use_a_block(void* (*make)(cudaStream_t own, cudaStream_t first), void (*use)(void* p, cudaStream_t captured)) {
    cudaStream_t const own = new_stream();
    cudaStream_t const streams[] = {new_stream(), new_stream()};
    void* const p = make(own, streams[1]);
    cudaGraphExec_t runs[2];
    for (int i = 0; i < 2; ++i) {
        begin(streams[i], ids[i]);
        write(p, streams[i]);
        i == 0 ? weir_record_stream(p, streams[i]) : use(p, streams[i]);
        runs[i] = end(streams[i], ids[i]);
    }
    weir_release_capture(0, ids[0]);
    check(cudaGraphExecDestroy(runs[0]));
    weir_empty_cache();
    for (int i = 0; i < 40; ++i)
        write(take(own), own);
    launch(runs[1], streams[1]);
    weir_release_capture(0, ids[1]);
    check(cudaGraphExecDestroy(runs[1]));
    check(cudaDeviceSynchronize());
    std::size_t const before = state().requested;
    weir_empty_cache();
    require(state().requested == before - size, "what the graphs used did not come back after the last one");
}
void used_by_two_graphs() {
    two_graphs_use_a_block([](cudaStream_t own, cudaStream_t) { return take(own); },
                           [](void* p, cudaStream_t captured) {
                               weir_record_stream(p, captured);
                               give(p, new_stream());
                           });
}
void used_by_a_graph_and_freed_in_another() {
    two_graphs_use_a_block([](cudaStream_t, cudaStream_t second) { return take(second); },
                           [](void* p, cudaStream_t captured) { give(p, captured); });
}

void block_of_a_graph_used_by_another() {
    cudaStream_t const stream = new_stream();
    cudaStream_t const other = new_stream();
    begin(stream);
    void* const p = take(stream);
    cudaGraphExec_t const first = end(stream);
    begin(other, ids[1]);
    write(p, other);
    weir_record_stream(p, other);
    give(p, stream);
    cudaGraphExec_t const second = end(other, ids[1]);
    weir_release_capture(0, id);
    check(cudaGraphExecDestroy(first));
    weir_empty_cache();
    for (int i = 0; i < 40; ++i)
        write(take(stream), stream);
    launch(second, other);
}

// An ordinary tensor that a graph used does not keep the graph's memory.
void graph_goes_before_what_it_used() {
    cudaStream_t const stream = new_stream();
    cudaStream_t const own = new_stream();
    void* const weight = take(own);
    begin(stream);
    give(take(stream), stream);
    write(weight, stream);
    weir_record_stream(weight, stream);
    cudaGraphExec_t const run = end(stream);
    weir_release_capture(0, id);
    check(cudaGraphExecDestroy(run));
    weir_empty_cache();
    require(state().in_use == size, "the graph's memory stays with a tensor that is not in it");
    give(weight, own);
    write(take(own), own);
}

// PyTorch does not tell of the end of a capture that failed.
void capture_that_failed() {
    cudaStream_t const stream = new_stream();
    cudaStream_t const other = new_stream();
    begin(stream);
    give(take(stream, GiB), stream, GiB);
    cudaGraphExec_t const run = end(stream);
    // The filter that stays may come to know later captures: PyTorch's reads an object that another one may follow.
    weir_begin_capture(0, ids[1], [](cudaStream_t asked) { return capture_of(asked) != 0; });
    check(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
    void* const p = take(other);
    require(cudaStreamSynchronize(other) != cudaSuccess, "a captured stream was waited for");
    give(p, other);
    cudaGraph_t none = nullptr;
    require(cudaStreamEndCapture(other, &none) != cudaSuccess, "a broken capture made a graph");
    weir_release_capture(0, id);
    check(cudaGraphExecDestroy(run));
    weir_empty_cache();
    unsigned long long const before = state().in_use;
    require(before < GiB, "another capture that failed keeps a graph's memory");
    begin(stream);
    give(take(stream), stream);
    cudaGraphExec_t const next = end(stream);
    launch(next, stream);
    check(cudaStreamSynchronize(stream));
    check(cudaGraphExecDestroy(next));
    weir_release_capture(0, id);
    weir_empty_cache();
    require(state().in_use == before, "a graph's memory went to a capture that failed");
}

// CUDA tells in a later call that a graph is gone.
void empty_cache_later() {
    for (int i = 0; i < 40; ++i)
        check(cudaDeviceSynchronize());
    weir_empty_cache();
}

// PyTorch 2.13 tells that a capture ended that had failed, and not that nobody uses its pool any more. Graphs of the same id
// keep theirs.
void capture_that_failed_and_ended() {
    cudaStream_t const stream = new_stream();
    for (bool const shared : {false, true}) {
        cudaGraphExec_t run = nullptr;
        if (shared) {
            begin(stream);
            give(take(stream), stream);
            run = end(stream);
        }
        begin(stream);
        give(take(stream, GiB), stream, GiB);
        require(cudaStreamSynchronize(stream) != cudaSuccess, "a captured stream was waited for");
        cudaGraph_t none = nullptr;
        require(cudaStreamEndCapture(stream, &none) != cudaSuccess, "a broken capture made a graph");
        weir_end_capture(0, id);
        static_cast<void>(cudaGetLastError());
        empty_cache_later();
        require((state().in_use != 0) == shared, "a capture that failed keeps its memory, or takes that of a graph along");
        if (shared) {
            launch(run, stream);
            weir_release_capture(0, id);
            weir_empty_cache();
            require(state().in_use != 0, "the memory went before the graph");
            check(cudaGraphExecDestroy(run));
            empty_cache_later();
            require(state().in_use == 0, "the memory did not go back after the last graph");
        }
    }
}

// Work outside of captures uses what a graph wrote; the next graph must not write there meanwhile.
void output_used_outside() {
    cudaStream_t const stream = new_stream();
    cudaStream_t const side = new_stream();
    begin(stream);
    void* const p = take(stream);
    write(p, stream);
    launch(end(stream), stream);
    wait_for(side, stream);
    write(p, side);
    weir_record_stream(p, side);
    give(p, stream);
    begin(stream);
    void* const q = take(stream);
    write(q, stream);
    launch(end(stream), stream);
    require(p == q, "the bytes did not come back");
}

// A stream is captured that a tensor of before was recorded on.
void freed_while_its_other_stream_is_captured() {
    cudaStream_t const own = new_stream();
    cudaStream_t const side = new_stream();
    void* const p = take(own);
    write(p, own);
    wait_for(side, own);
    write(p, side);
    weir_record_stream(p, side);
    begin(side);
    give(p, own);
    write(take(own), own);
    static_cast<void>(end(side));
    weir_empty_cache();
    require(state().lost == 0, "the bytes are lost");
    require(state().requested == size, "the block did not come back after the capture");
}

void housekeeping_in_a_capture() {
    cudaStream_t const stream = new_stream();
    cudaStream_t const other = new_stream();
    give(take(other), other);
    begin(stream);
    void* const p = take(stream);
    write(p, stream);
    weir_empty_cache();
    weir_set_memory_fraction(0.5, 0);
    give(take(other), other);
    give(p, stream);
    launch(end(stream), stream);
}

void captured_by_nobody() {
    cudaStream_t const stream = new_stream();
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    try {
        take(stream);
        require(false, "a block was handed out into a graph that nobody named");
    } catch (std::exception const& error) {
        require(std::strstr(error.what(), "captured"), error.what());
    }
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphDestroy(graph));
}

void out_of_memory() {
    require(weir_configure(64 * MiB, "torch") == 0, "configure failed");
    cudaStream_t const stream = new_stream();
    void* const p = take(stream, 10 * MiB);
    try {
        take(stream, GiB);
        require(false, "more than the limit was handed out");
    } catch (c10::OutOfMemoryError const& error) {
        for (char const* part : {"weir: out of memory: pool 'torch:0'", "limit 64 MiB", "the largest live blocks", "10 MiB"})
            require(std::strstr(error.what(), part), error.what());
    }
    give(p, stream, 10 * MiB);
    give(take(stream, 50 * MiB), stream, 50 * MiB);
    require(weir_configure(32 * MiB, "torch") != 0, "a limit was taken after the first allocation");
}

void out_of_memory_takes_back_graphs() {
    require(weir_configure(8 * MiB, "torch") == 0, "configure failed");
    cudaStream_t const stream = new_stream();
    begin(stream);
    give(take(stream), stream);
    cudaGraphExec_t const run = end(stream);
    weir_release_capture(0, id);
    check(cudaGraphExecDestroy(run));
    take(stream, 8 * MiB); // only where the graph held them
}

void memory_fraction() {
    weir_set_memory_fraction(0.25, 0); // of 80 GiB
    cudaStream_t const stream = new_stream();
    void* const p = take(stream);
    require(state().limit == 20 * GiB, "the fraction is not the limit");
    weir_set_memory_fraction(64.0 * MiB / (80.0 * GiB), 0);
    try {
        take(stream, GiB);
        require(false, "more than the fraction was handed out");
    } catch (c10::OutOfMemoryError const& error) {
        require(std::strstr(error.what(), "limit of 67108864 bytes (64 MiB)"), error.what());
    }
    require(state().reserved <= 64 * MiB, "what was refused is still held");
    give(take(stream, 32 * MiB), stream, 32 * MiB);
    try {
        weir_set_memory_fraction(2.0 * MiB / (80.0 * GiB), 0);
        require(false, "a limit below what is in use was taken");
    } catch (std::exception const& error) {
        require(std::strstr(error.what(), "is below what is in use"), error.what());
    }
    require(state().limit == 64 * MiB, "a limit that was refused is in force");
    begin(stream);
    try {
        take(stream, GiB);
        require(false, "a capture got more than the fraction");
    } catch (c10::OutOfMemoryError const& error) {
        require(std::strstr(error.what(), "limit of 67108864 bytes (64 MiB)"), error.what());
    }
    static_cast<void>(end(stream));
    weir_set_memory_fraction(0.5, 0);
    require(state().limit == 40 * GiB, "a fraction that was set before the first allocation cannot be raised");
    for (double const none : {-0.5, 1.5, std::nan("")})
        try {
            weir_set_memory_fraction(none, 0);
            require(false, "what is no fraction was taken");
        } catch (std::exception const& error) {
            require(std::strstr(error.what(), "from 0 to 1"), error.what());
        }
    give(p, stream);
}

void memory_fraction_of_nothing() {
    weir_set_memory_fraction(0, 0);
    require(weir_try_allocate_sync(size, 0, nullptr) == nullptr, "a fraction of nothing gives something");
    weir_set_memory_fraction(1, 0);
    weir_deallocate(weir_try_allocate_sync(size, 0, nullptr), size, 0, nullptr);
    require(state().limit == 80 * GiB, "the whole is not all");
}

// The contents come back, and the host has its memory then.
void suspended_contents() {
    void* const p = take(cudaStreamLegacy);
    write(p, cudaStreamLegacy);
    unsigned long long given = 0;
    char last = 0;
    for (int round = 0; round < 2; ++round) {
        require(weir_suspend(0, 1, &given) == 0 && given >= size && state().reserved == 0, "the device did not get its memory");
        std::uint64_t const before = simulated_device::calls("cudaHostUnregister");
        require(weir_resume(0) == 0, "resume failed");
        require(simulated_device::calls("cudaHostUnregister") != before, "the host's memory stays locked");
        check(cudaMemcpy(&last, static_cast<char*>(p) + size - 1, 1, cudaMemcpyDeviceToHost));
        require(last == 1, "contents are lost");
    }
    give(p, cudaStreamLegacy);
}

// What is suspended comes back, so it counts.
void memory_fraction_while_suspended() {
    cudaStream_t const stream = new_stream();
    void* const p = take(stream, 64 * MiB);
    unsigned long long given = 0;
    require(weir_suspend(0, 0, &given) == 0, "suspend failed");
    try {
        weir_set_memory_fraction(32.0 * MiB / (80.0 * GiB), 0);
        require(false, "a limit below what is suspended was taken");
    } catch (std::exception const& error) {
        require(std::strstr(error.what(), "is below what is in use"), error.what());
    }
    require(weir_resume(0) == 0, "resume failed");
    give(p, stream, 64 * MiB);
}

void peak_of_a_capture() {
    cudaStream_t const stream = new_stream();
    begin(stream);
    give(take(stream, GiB), stream, GiB);
    static_cast<void>(end(stream));
    require(state().peak_reserved >= GiB, "what a capture held is not in the peak");
    require(weir_configure(2 * GiB, "torch") != 0, "a limit was taken after the first allocation");
}

// Kernels of each device use the other's memory, as PyTorch's copies do, also what was there before the other had any.
void two_devices() {
    cudaStream_t const streams[] = {new_stream(), (check(cudaSetDevice(1)), new_stream())};
    check(cudaSetDevice(0));
    void* blocks[2] = {};
    for (int each : {0, 1})
        blocks[each] = weir_allocate(size, each, streams[each]);
    int current = -1;
    check(cudaGetDevice(&current));
    require(current == 0, "the current device is another one");
    for (int turn = 0; turn < 2; ++turn)
        for (int each : {0, 1}) {
            check(cudaSetDevice(1 - each));
            write(blocks[each], streams[1 - each]);
            weir_record_stream(blocks[each], streams[1 - each]);
            weir_deallocate(blocks[each], size, each, streams[each]);
            blocks[each] = weir_allocate(size, each, streams[each]);
            check(cudaSetDevice(each));
            write(blocks[each], streams[each]);
            check(cudaStreamSynchronize(streams[each]));
        }
    for (int each : {0, 1})
        weir_deallocate(blocks[each], size, each, streams[each]);
}

// What CuPy and Numba get is open to all devices: PyTorch's tensors beside it may lie on any.
void open_to_all_devices() {
    cudaStream_t const stream = new_stream();
    check(cudaSetDevice(1));
    cudaStream_t const other = new_stream();
    void* const q = weir_try_allocate_sync(size, 1, nullptr);
    check(cudaSetDevice(0));
    write(q, stream); // open to all
    void* const p = weir_allocate(size, 0, stream);
    check(cudaSetDevice(1));
    write(p, other);
    check(cudaDeviceSynchronize());
    weir_deallocate(q, size, 1, cudaStreamLegacy);
    weir_record_stream(p, other);
    weir_deallocate(p, size, 0, stream);
}

// The same where PyTorch had memory there before.
void late_open_to_all_devices() {
    cudaStream_t const stream = new_stream();
    give(take(stream), stream);
    void* const q = weir_try_allocate_sync(size, 0, nullptr);
    check(cudaSetDevice(1));
    write(q, new_stream());
    check(cudaDeviceSynchronize());
    weir_deallocate(q, size, 0, cudaStreamLegacy);
}

// Opening memory costs time for each chunk, which a process that uses one device of many does not pay.
void one_device_of_two() {
    cudaStream_t const stream = new_stream();
    give(take(stream), stream);
    check(cudaSetDevice(1));
    write(take(stream), new_stream());
    require(!simulated_device::reports().empty(), "memory was opened to a device that has none of weir's");
    simulated_device::clear_reports();
}

void memory_for_any_stream() {
    cudaStream_t const other = new_stream();
    for (int i = 0; i < 8; ++i) {
        void* const p = weir_try_allocate_sync(size, 0, nullptr);
        write(p, cudaStreamLegacy);
        give(p, cudaStreamLegacy);
        void* const q = weir_try_allocate_sync(size, 0, nullptr);
        write(q, other); // ordered behind nothing
        check(cudaStreamSynchronize(other));
        give(q, other);
    }
}

// Each CUDA call of a free fails once, on one stream or two, whichever device is current: the memory is back all the same.
void free_whose_call_fails_on_devices() {
    cudaStream_t const own = new_stream();
    cudaStream_t const other = new_stream();
    give(take(own), own); // the pool is there
    for (int current : {0, 1})
        for (cudaStream_t const stream : {own, cudaStream_t{}})
            for (bool const recorded : {false, true}) {
                bool failed = true;
                for (unsigned k = 1; failed; ++k) {
                    void* const p = take(stream);
                    write(p, stream);
                    wait_for(other, stream);
                    if (recorded) {
                        write(p, other);
                        weir_record_stream(p, other);
                    }
                    check(cudaSetDevice(current));
                    auto const before = simulated_device::failed_calls();
                    simulated_device::fail_call(k, cudaErrorUnknown);
                    give(p, stream);
                    failed = simulated_device::failed_calls() != before;
                    simulated_device::clear_faults();
                    int now = -1;
                    check(cudaGetDevice(&now));
                    require(now == current, "another device is current");
                    check(cudaSetDevice(0));
                    require(state().blocks == 0, "a block whose free failed once is lost");
                    weir_empty_cache();
                    require(state().in_use == 0 && state().reserved == 0 && state().lost == 0, "memory of a free stays");
                }
            }
}

// What the pools' common limit counts is what the pool holds: while it sleeps, while free pages of it are cut out, and if it
// ends so. An error that leaves memory behind a chunk's addresses changes nothing of that.
void limit_counts_each_chunk_once() {
    for (bool const fails : {false, true}) {
        constexpr std::size_t others = 100 * MiB; // of another pool
        weir_plugin::shared_limit limit(GiB);
        limit.again(others);
        weir_plugin::watched_memory memory(0, limit);
        {
            weir::host_pool keep;
            weir::pool<weir_plugin::watched_memory, weir::recipes::general_placement, weir::reuse::stream_ordered<>,
                       weir::growth::by_holes<>>
                pool(memory, weir::pool_options{}.on_leak(weir::leak_action::ignore));
            auto const agrees = [&] {
                require(limit.held() == others + pool.reserved_bytes(), "the limit counts what the pool does not hold");
            };
            void* const other = pool.allocate(weir::on_host, 40 * MiB);
            void* const p = pool.allocate(weir::on_host, size);
            agrees();
            static_cast<void>(pool.suspend(keep));
            pool.deallocate(weir::on_host, other, 40 * MiB);
            agrees();
            if (fails) {
                simulated_device::fail_call("cuMemSetAccess", 1, cudaErrorUnknown);
                simulated_device::fail_call("cuMemUnmap", 2, cudaErrorUnknown);
                bool threw = false;
                try {
                    pool.resume();
                } catch (weir::cuda_error const&) {
                    threw = true;
                }
                require(threw, "the error was not told");
                simulated_device::clear_faults();
            }
            static_cast<void>(pool.trim());
            agrees();
            pool.resume();
            agrees();
            require(pool.reserved_bytes() == size, "the free pages came back");
            pool.deallocate(weir::on_host, p, size);
            static_cast<void>(pool.trim());
            agrees();
            static_cast<void>(pool.allocate(weir::on_host, size)); // it ends suspended
            static_cast<void>(pool.suspend());
            agrees();
        }
        require(limit.held() == others, "a pool that ended asleep gave back what was another one's");
    }
}

struct test {
    char const* name;
    void (*run)();
};
#define CASE(name) {#name, &name}
test const tests[] = {
    CASE(record_stream_after),
    CASE(record_stream_before),
    CASE(without_record_stream),
    CASE(default_stream),
    CASE(graph_keeps_its_memory),
    CASE(graph_output_outlives_it),
    CASE(graphs_share_an_id),
    CASE(graph_of_two_streams),
    CASE(freed_in_a_capture),
    CASE(used_in_a_capture),
    CASE(outgrown_in_a_capture),
    CASE(used_by_two_graphs),
    CASE(used_by_a_graph_and_freed_in_another),
    CASE(block_of_a_graph_used_by_another),
    CASE(graph_goes_before_what_it_used),
    CASE(capture_that_failed),
    CASE(capture_that_failed_and_ended),
    CASE(output_used_outside),
    CASE(freed_while_its_other_stream_is_captured),
    CASE(housekeeping_in_a_capture),
    CASE(captured_by_nobody),
    CASE(out_of_memory),
    CASE(out_of_memory_takes_back_graphs),
    CASE(memory_fraction),
    CASE(memory_fraction_of_nothing),
    CASE(memory_fraction_while_suspended),
    CASE(suspended_contents),
    CASE(peak_of_a_capture),
    CASE(two_devices),
    CASE(open_to_all_devices),
    CASE(late_open_to_all_devices),
    CASE(one_device_of_two),
    CASE(memory_for_any_stream),
    CASE(free_whose_call_fails_on_devices),
    CASE(limit_counts_each_chunk_once),
};

} // namespace

int main(int count, char** words) {
    if (count < 2) {
        for (test const& each : tests)
            std::puts(each.name);
        return 0;
    }
    for (test const& each : tests)
        if (std::strcmp(each.name, words[1]) == 0) {
            simulated_device::reset(simulated_device::config{}.late().with_devices(std::strstr(each.name, "device") ? 2 : 1));
            try {
                each.run();
                check(cudaDeviceSynchronize());
            } catch (std::exception const& error) {
                require(false, error.what());
            }
            for (simulated_device::report const& found : simulated_device::reports())
                require(false, found.sentence.c_str());
            return 0;
        }
    std::fprintf(stderr, "no case '%s'\n", words[1]);
    return 1;
}
