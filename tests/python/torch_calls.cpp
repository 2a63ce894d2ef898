// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Calls the plug-in as PyTorch does, on the simulated device, which reports what memory it hands out too early.
//
// usage: torch_calls CASE. Each case is a process of its own, since a plug-in's pools never end. Exit status 0: it holds.

#include <c10/util/Exception.h>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <functional>
#include <string>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/simulated_device/control.hpp>

using pool_id = std::pair<unsigned long long, unsigned long long>;
using stream_filter = std::function<bool(cudaStream_t)>;

extern "C" {
int weir_configure(std::size_t limit, char const* name);
void* weir_allocate(std::size_t bytes, int device, cudaStream_t stream);
void* weir_try_allocate_sync(std::size_t bytes, int device, cudaStream_t stream);
void weir_deallocate(void* p, std::size_t bytes, int device, cudaStream_t stream);
void weir_record_stream(void* p, cudaStream_t stream);
void weir_empty_cache();
void weir_set_memory_fraction(double fraction, int device);
void weir_begin_capture(int device, pool_id id, stream_filter filter);
void weir_end_capture(int device, pool_id id);
void weir_release_capture(int device, pool_id id);
int weir_state(int device, unsigned long long* figures);
}

using weir::GiB;
using weir::MiB;

namespace {

constexpr std::size_t size = 4 * MiB;
constexpr pool_id id{0, 7};

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

struct figures {
    unsigned long long requested, peak_requested, in_use, reserved, peak_reserved, limit, blocks, chunks, lost, total;
};
figures state() {
    figures now{};
    require(weir_state(0, &now.requested) == 0, "state failed");
    return now;
}

bool is_captured(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status));
    return status == cudaStreamCaptureStatusActive;
}
void begin(cudaStream_t stream) {
    weir_begin_capture(0, id, is_captured);
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
}
cudaGraphExec_t end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t run = nullptr;
    weir_end_capture(0, id);
    check(cudaStreamEndCapture(stream, &graph));
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
        require(std::strstr(error.what(), "memory fraction that was set allows 64 MiB"), error.what());
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
    give(p, stream);
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

struct test {
    char const* name;
    void (*run)();
};
#define CASE(name) {#name, &name}
test const tests[] = {CASE(record_stream_after),  CASE(record_stream_before),     CASE(without_record_stream),
                      CASE(default_stream),       CASE(graph_keeps_its_memory),   CASE(graph_output_outlives_it),
                      CASE(graphs_share_an_id),   CASE(graph_of_two_streams),     CASE(freed_in_a_capture),
                      CASE(used_in_a_capture),    CASE(captured_by_nobody),       CASE(out_of_memory),
                      CASE(out_of_memory_takes_back_graphs), CASE(memory_fraction), CASE(memory_for_any_stream)};

} // namespace

int main(int count, char** words) {
    if (count < 2) {
        for (test const& each : tests)
            std::puts(each.name);
        return 0;
    }
    for (test const& each : tests)
        if (std::strcmp(each.name, words[1]) == 0) {
            simulated_device::reset(simulated_device::config{}.late());
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
